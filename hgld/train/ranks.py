"""The processes of a torchrun that train one model together; without torchrun, one alone.

Each embeds its slice of the global batch; the embeddings of all are gathered, so that each finds
the same loss of the whole batch and the same gradient by it. Rank 0 decides what is to be done and
tells the others through the store that torchrun keeps: so they wait as long as it takes, and a
rank 0 that has nothing to do, or fails before it starts, lets them go.
"""

import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from hgld.errors import HgldError, Resumable, UsageError
from hgld.model.weights import choose_device
from hgld.tasks import say

__all__ = ["ALONE", "Ranks", "current", "give_orders", "joined", "take_orders"]

PATIENCE = timedelta(days=30)  # the others wait while rank 0 checks shards, or stands in a queue
FAREWELL = timedelta(seconds=10)
ORDERS, NOTHING, LEFT = "hgld/orders", "-", "hgld/left/{}"


@dataclass(frozen=True)
class Ranks:
    """The process itself among those that train together.

    Attributes:
        rank: its number; 0 leads: it alone writes and speaks.
        size: how many there are.
        local_rank: its number on this machine, and of its GPU.
        store: where rank 0 leaves its orders; None: there is nobody else.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    store: Any = None

    @property
    def leads(self) -> bool:
        """Whether this process decides, writes and speaks."""
        return self.rank == 0

    def slice_of(self, batch: int) -> slice:
        """Own part of a global batch."""
        width = batch // self.size
        return slice(self.rank * width, (self.rank + 1) * width)

    def require_division(self, batch: int) -> None:
        """Refuse a global batch that cannot be shared equally."""
        if batch % self.size:
            raise UsageError(
                f"{self.size} processes do not divide a batch of {batch} images; change "
                "--nproc_per_node or train.classes_per_batch"
            )

    def device(self, name: str) -> torch.device:
        """The device of that name for this process: of GPUs, the one of its number."""
        device = choose_device(name)
        if device.type != "cuda" or self.size == 1:
            return device
        if self.local_rank >= torch.cuda.device_count():
            raise UsageError(
                f"{self.local_rank + 1} or more processes share {torch.cuda.device_count()} GPUs; "
                "lower --nproc_per_node"
            )
        torch.cuda.set_device(self.local_rank)
        return torch.device("cuda", self.local_rank)

    def parallel(self, model: nn.Module) -> nn.Module:
        """The model in training, its gradients averaged over the processes as they are found.

        Batch-norm that is not frozen takes its statistics from each process's own slice, which is
        said; rank 0's are kept.
        """
        if self.size == 1:
            return model
        if self.leads and any(isinstance(m, _BatchNorm) and m.training for m in model.modules()):
            say(
                "batch-norm is not frozen: each process takes its statistics from its own "
                f"1/{self.size} of a batch, so one process would train another model"
            )
        device = next(model.parameters()).device
        return DistributedDataParallel(model, [device] if device.type == "cuda" else None)

    def gather(self, rows: Tensor) -> Tensor:
        """Rows of all ranks, in the order of the global batch; without their gradient."""
        if self.size == 1:
            return rows.detach()
        parts = [torch.empty_like(rows) for _ in range(self.size)]
        dist.all_gather(parts, rows.detach().contiguous())
        return torch.cat(parts)

    def share_of(self, gradient: Tensor) -> Tensor:
        """Own rows of the gradient by all rows, which each rank finds whole.

        Times the number of processes, since afterwards the average of theirs is taken.
        """
        return gradient[self.slice_of(len(gradient))] * self.size

    def same_gradients(self, loss: nn.Module) -> None:
        """Give all ranks rank 0's gradients of the proxies: the same, but for a GPU's rounding."""
        if self.size > 1:
            for parameter in loss.parameters():
                if parameter.grad is not None:
                    dist.broadcast(parameter.grad, 0)

    def any(self, claim: bool) -> bool:
        """Whether it holds on any rank; all get the same answer, when all have asked."""
        if self.size == 1:
            return claim
        found = torch.tensor(int(claim))
        try:
            dist.all_reduce(found, dist.ReduceOp.MAX)
        except RuntimeError:
            raise self.gone() from None
        return bool(found)

    def collect(self, own: Any) -> list[Any]:
        """What each rank has to give, rank by rank; for what is small and seldom."""
        if self.size == 1:
            return [own]
        found: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(found, own)
        except RuntimeError:
            raise self.gone() from None
        return found

    def lost(self, error: RuntimeError) -> bool:
        """Whether it says that another process is gone."""
        words = ("gloo", "nccl", "connection")
        return self.size > 1 and bool([word for word in words if word in str(error).lower()])

    def gone(self) -> BaseException:
        """What to raise where another process is gone."""
        return self.told(
            Resumable(
                "another process of this training has ended; the same command goes on from the "
                "last checkpoint"
            )
        )

    def told(self, error: HgldError) -> BaseException:
        """An error that all ranks meet: rank 0 tells it, the others end without a word."""
        return error if self.leads else SystemExit(error.exit_code)


ALONE = Ranks()
_current = ALONE


def current() -> Ranks:
    """The processes that this one trains with."""
    return _current


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the processes that torchrun started; alone where it did not."""
    global _current
    if int(os.environ.get("WORLD_SIZE", "1")) <= 1:
        yield ALONE
        return
    _current = _meet()
    try:
        yield _current
    finally:
        # Once one process has ended, torchrun stops the others; they are ending by themselves.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(RuntimeError):  # torchrun is gone, and its store with it
            _let_go(_current)
            _leave(_current)
        _current = ALONE
        dist.destroy_process_group()


def _meet() -> Ranks:
    store, rank, size = next(rendezvous("env://"))
    if rank:
        warnings.simplefilter("ignore")  # rank 0 gives the same
    store.set_timeout(PATIENCE)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(
        backend, store=PrefixStore("hgld/group", store), rank=rank, world_size=size
    )
    return Ranks(rank, size, int(os.environ.get("LOCAL_RANK", rank)), store)


def give_orders(names: list[str]) -> None:
    """As rank 0, tell the others which runs to train."""
    if _current.store is not None and names:
        _current.store.set(ORDERS, "\n".join(names))


def take_orders() -> list[str]:
    """As another rank, wait for rank 0 to say which runs to train; none where it never does."""
    try:
        found = str(_current.store.get(ORDERS).decode())
    except RuntimeError:
        raise _current.gone() from None
    return [] if found == NOTHING else found.split("\n")


def _leave(ranks: Ranks) -> None:
    """Wait a little for the others: a connection that closes too soon looks like a death."""
    ranks.store.set(LEFT.format(ranks.rank), "")
    keys = [LEFT.format(rank) for rank in range(ranks.size)]
    with suppress(RuntimeError):  # one is gone already, or still busy by itself
        ranks.store.wait(keys, FAREWELL)


def _let_go(ranks: Ranks) -> None:
    """Where rank 0 gave no orders, the others still wait for them."""
    if ranks.leads:
        ranks.store.compare_set(ORDERS, "", NOTHING)
