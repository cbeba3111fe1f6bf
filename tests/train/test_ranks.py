"""Processes that train together, once the torchrun that started them is gone."""

import socket

import pytest
import torch.distributed as dist

from hgld.errors import Resumable, UsageError
from hgld.train import ranks

MEET = ranks._meet


class Gone:
    """A store that nobody keeps any more."""

    def _raise(self, *_: object) -> None:
        raise dist.DistNetworkError("failed to recv, got 0 bytes")

    get = set = wait = compare_set = _raise


@pytest.fixture(autouse=True)
def torchrun_is_gone(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(ranks, "_meet", lambda: ranks.Ranks(rank, 2, rank, Gone()))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_training_that_is_done_ends_without_a_word() -> None:
    with ranks.joined():
        pass
    assert ranks.current() is ranks.ALONE


@pytest.mark.parametrize("rank", [0, 1])
def test_who_waits_for_orders_ends_so_that_it_can_go_on(rank: int) -> None:
    with pytest.raises(Resumable if rank == 0 else SystemExit), ranks.joined():
        ranks.take_orders()


@pytest.mark.parametrize("rank", [0, 1])
def test_who_comes_after_the_end_of_torchrun_does_not_wait_for_its_store(
    rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for half an hour."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in {**place, "TORCHELASTIC_USE_AGENT_STORE": True}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(Resumable if rank == 0 else SystemExit):
        MEET()


@pytest.mark.parametrize("rank", [1])
def test_one_gpu_is_refused_for_several_processes(
    rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setattr("torch.cuda.set_device", lambda _: None)
    several = ranks.Ranks(rank, 2, rank)
    assert several.device("cuda").index == rank
    with pytest.raises(UsageError, match="'cuda:3': each of 2 processes takes the GPU of its"):
        several.device("cuda:3")
