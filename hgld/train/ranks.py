"""Processes started by torchrun that train one model together; without torchrun, a single one.

Each rank embeds its slice of the global batch. The embeddings are gathered, so that every rank
computes the same loss of the whole batch and the same gradient. Rank 0 decides which runs to train
and announces them through torchrun's store: the others wait as long as needed, and rank 0 releases
them if there is nothing to do or it fails before it starts.
"""

import os
import signal
import socket
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
from torch.nn.parallel import DistributedDataParallel

from hgld.errors import HgldError, Resumable, UsageError
from hgld.model.devices import choose_device
from hgld.shards.batches import part_of_rank

PATIENCE = timedelta(days=30)  # the others wait while rank 0 checks shards or waits for a lock
FAREWELL = timedelta(seconds=10)
ORDERS, NOTHING, LEFT = "hgld/orders", "-", "hgld/left/{}"


@dataclass(frozen=True)
class Ranks:
    """The calling process among those that train together.

    Attributes:
        rank: its number; rank 0 alone decides, writes and reports.
        size: number of processes.
        local_rank: its number on this machine, and that of its GPU.
        store: torchrun's store, for rank 0's orders; None: a single process.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    store: Any = None

    @property
    def leads(self) -> bool:
        """Whether this process decides, writes and reports."""
        return self.rank == 0

    def slice_of(self, batch: int) -> slice:
        """The slice of a global batch that belongs to this rank."""
        return part_of_rank(batch, self.rank, self.size)

    def device(self, name: str) -> torch.device:
        """The device of that name for this process; for GPUs, the one of its local rank."""
        device = choose_device(name)
        if device.type != "cuda" or self.size == 1:
            return device
        if device.index is not None:
            raise UsageError(
                f"device '{name}': each of {self.size} processes takes the GPU of its number; give "
                "cuda, and choose GPUs by CUDA_VISIBLE_DEVICES"
            )
        if self.local_rank >= torch.cuda.device_count():
            raise UsageError(
                f"{self.local_rank + 1} or more processes share {torch.cuda.device_count()} GPUs; "
                "lower --nproc_per_node"
            )
        torch.cuda.set_device(self.local_rank)
        return torch.device("cuda", self.local_rank)

    def parallel(self, model: nn.Module) -> nn.Module:
        """Wrap the model so that its gradients are averaged over the processes during backward.

        Batch-norm that is not frozen takes its statistics from each process's own slice; rank 0's
        are kept.
        """
        if self.size == 1:
            return model
        device = next(model.parameters()).device
        return DistributedDataParallel(model, [device] if device.type == "cuda" else None)

    def gather(self, rows: Tensor) -> Tensor:
        """Rows of all ranks, in the order of the global batch; detached."""
        if self.size == 1:
            return rows.detach()
        parts = [torch.empty_like(rows) for _ in range(self.size)]
        dist.all_gather(parts, rows.detach().contiguous())
        return torch.cat(parts)

    def share_of(self, gradient: Tensor) -> Tensor:
        """Own rows of the gradient by all rows, which every rank computes in full.

        Multiplied by the number of processes, since DistributedDataParallel averages over them.
        """
        return gradient[self.slice_of(len(gradient))] * self.size

    def same_gradients(self, loss: nn.Module) -> None:
        """Copy rank 0's proxy gradients to all ranks; they differ only by a GPU's rounding."""
        if self.size > 1:
            for parameter in loss.parameters():
                if parameter.grad is not None:
                    dist.broadcast(parameter.grad, 0)

    def average_gradients(self, model: nn.Module) -> None:
        """Average the gradients over the processes, as ``parallel`` does during backward."""
        if self.size > 1:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= self.size

    def any(self, claim: bool) -> bool:
        """Whether the claim is true on any rank; waits for all, and returns the same on each."""
        if self.size == 1:
            return claim
        # On the CPU, so that gloo reduces it and no GPU has to wait.
        found = torch.tensor(int(claim))
        try:
            dist.all_reduce(found, dist.ReduceOp.MAX)
        except RuntimeError:
            raise self.gone() from None
        return bool(found)

    def collect(self, own: Any) -> list[Any]:
        """Gather one small object from each rank, in rank order; slow, for rare use."""
        if self.size == 1:
            return [own]
        found: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(found, own)
        except RuntimeError:
            raise self.gone() from None
        return found

    def lost(self, error: RuntimeError) -> bool:
        """Whether the error means that another process is gone."""
        text = str(error).lower()
        return self.size > 1 and any(word in text for word in ("gloo", "nccl", "connection"))

    def gone(self) -> BaseException:
        """The error to raise when another process is gone."""
        return self.told(
            Resumable(
                "another process of this training has ended; the same command goes on from the "
                "last checkpoint"
            )
        )

    def told(self, error: HgldError) -> BaseException:
        """An error that all ranks raise: rank 0 reports it, the others exit silently."""
        return error if self.leads else SystemExit(error.exit_code)


ALONE = Ranks()
_current = ALONE


def current() -> Ranks:
    """The processes that this process trains with."""
    return _current


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the processes that torchrun started; a single process without torchrun."""
    global _current
    if int(os.environ.get("WORLD_SIZE", "1")) <= 1:
        yield ALONE
        return
    _current = _meet()
    try:
        yield _current
    finally:
        # Once one process has ended, torchrun signals the others, but they end on their own.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(RuntimeError):  # torchrun is gone, and its store with it
            if _current.leads:  # the others still wait for orders, if rank 0 gave none
                _current.store.compare_set(ORDERS, "", NOTHING)
            _current.store.set(LEFT.format(_current.rank), "")
            left = [LEFT.format(rank) for rank in range(_current.size)]
            # A connection that closes early looks like a crash; a process that is gone already or
            # still busy is not waited for.
            _current.store.wait(left, FAREWELL)
        _current = ALONE
        dist.destroy_process_group()


def _meet() -> Ranks:
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # The store is torchrun's, and older than this process: without it torch would wait for half
        # an hour. Other faults of the network are torch's to repeat.
        at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        try:
            socket.create_connection(at, timeout=10).close()
        except ConnectionRefusedError:
            raise Ranks(int(os.environ["RANK"])).gone() from None
        except OSError:
            pass
    store, rank, size = next(rendezvous("env://"))
    if rank:
        warnings.simplefilter("ignore")  # rank 0 gives the same warnings
    store.set_timeout(PATIENCE)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(
        backend, store=PrefixStore("hgld/group", store), rank=rank, world_size=size
    )
    return Ranks(rank, size, int(os.environ.get("LOCAL_RANK", rank)), store)


def give_orders(names: list[str]) -> None:
    """As rank 0, announce to the others which runs to train."""
    if _current.store is not None and names:
        _current.store.set(ORDERS, "\n".join(names))


def take_orders() -> list[str]:
    """As another rank, wait for rank 0's list of runs to train; empty if it has none."""
    try:
        found = str(_current.store.get(ORDERS).decode())
    except RuntimeError:
        raise _current.gone() from None
    return [] if found == NOTHING else found.split("\n")
