import pytest
import torch

from hgld.errors import UsageError
from hgld.model.devices import choose_device


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_a_gpu_where_there_is_none_is_one_clear_line() -> None:
    with pytest.raises(UsageError, match="'cuda': there is no GPU here"):
        choose_device("cuda")
    assert choose_device("auto") == torch.device("cpu")


def test_an_unknown_device_is_named() -> None:
    with pytest.raises(UsageError, match="device 'gpu' is unknown; expected auto, cpu or cuda"):
        choose_device("gpu")
