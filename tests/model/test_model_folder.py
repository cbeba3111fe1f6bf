import os
from pathlib import Path

import pytest

from hgld.errors import InvalidData
from hgld.model.folder import LOSSES, WEIGHTS, check_model, write_config


def test_losses_that_are_a_pipe_or_a_device_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS).write_bytes(b"weights")
    losses = tmp_path / LOSSES
    losses.write_text('{"step": 1, "loss": 0.5}\n')
    write_config(tmp_path, {"steps": 1})
    losses.unlink()
    check_model(tmp_path)
    losses.symlink_to("/dev/zero")
    with pytest.raises(InvalidData, match="a pipe or a device"):
        check_model(tmp_path)
    losses.unlink()
    os.mkfifo(losses)
    with pytest.raises(InvalidData, match="a pipe or a device"):
        check_model(tmp_path)
