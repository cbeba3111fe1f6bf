import os
from pathlib import Path

import pytest

from hgld.errors import InvalidData
from hgld.evaluate.models import find_models
from hgld.model.model_folder import LOSSES, WEIGHTS, check_model, write_config
from tests.listening import heard


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


def test_a_model_without_its_losses_is_measured_with_a_note(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS).write_bytes(b"weights")
    (tmp_path / LOSSES).write_text('{"step": 1, "loss": 0.5}\n')
    write_config(tmp_path, {"steps": 1})
    with heard() as notes:
        find_models({"old": str(tmp_path)}, Path())
        (tmp_path / LOSSES).unlink()
        (model,) = find_models({"old": str(tmp_path)}, Path())
    assert model.facts()["steps"] == 1
    assert notes == [f"{tmp_path / LOSSES}: is missing; old is measured, but its losses are not "
                     "drawn"]  # fmt: skip
