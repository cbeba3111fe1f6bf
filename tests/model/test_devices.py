import resource
import subprocess
import sys

import pytest
import torch

from hgld.errors import UsageError
from hgld.model.devices import choose_device, kept_memory


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_a_gpu_where_there_is_none_is_one_clear_line() -> None:
    with pytest.raises(UsageError, match="'cuda': there is no GPU here"):
        choose_device("cuda")
    assert choose_device("auto") == torch.device("cpu")


def test_an_unknown_device_is_named() -> None:
    with pytest.raises(
        UsageError, match="device 'gpu' is unknown; expected auto, cpu, cuda or cuda:1"
    ):
        choose_device("gpu")


@pytest.mark.parametrize(("count", "last"), [(1, "the only one is cuda:0"), (4, "is cuda:3")])
def test_a_gpu_beyond_the_last_is_refused(
    count: int, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    assert choose_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(UsageError, match=f"'cuda:5': there is no such GPU here; .*{last}$"):
        choose_device("cuda:5")


def new_pages() -> int:
    """Pages that the system cleared for four blocks of 64 MB, one after the other."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        bytearray(1 << 26)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def keep_and_return() -> None:
    pages = (1 << 26) // resource.getpagesize()  # of one of them
    cpu = torch.device("cpu")
    with kept_memory(cpu):
        new_pages()
        with kept_memory(cpu):
            pass
        assert new_pages() < pages / 8
        with kept_memory(torch.device("cuda")):  # has memory of its own
            assert new_pages() < pages / 8
    assert new_pages() > 3 * pages


def test_freed_memory_is_kept_for_the_next_step_until_the_last_block_ends() -> None:
    # in a new process: among what other tests left, a freed block is used again
    code = "from tests.model.test_devices import keep_and_return; keep_and_return()"
    subprocess.run([sys.executable, "-c", code], check=True)
