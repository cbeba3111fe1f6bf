"""Feeds the trainer: the batch of each step, read, decoded and augmented ahead by processes.

A batch is tens of megabytes. Handing it over costs a copy and, for fresh memory, thousands of page
faults; so all processes write into one ring of batches that is there from the start, and what
passes between them is a number. What an image looks like depends on its step and its place in the
global batch, never on who loads it.
"""

import signal
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hgld.config import TrainOptions
from hgld.errors import HgldError, Resumable
from hgld.model.image_config import ImageConfig
from hgld.model.transforms import training_transform
from hgld.shards.damaged import DamagedImages
from hgld.shards.decode import Decoder
from hgld.shards.read import ShardImages
from hgld.shards.sequence import BatchSteps, GlobalBatch
from hgld.stopping import held_back, ignore_requests
from hgld.train.data import TrainingData, batch_options, step_seed
from hgld.train.ranks import ALONE, Ranks

__all__ = ["Batch", "feed_batches", "loaded"]

Batch = tuple[Tensor, Tensor, Tensor, int]
Filled = tuple[int, np.ndarray, int, set[int]]
AHEAD = 2  # batches that each process works ahead


def feed_batches(
    data: TrainingData,
    config: ImageConfig,
    options: TrainOptions,
    steps: Sequence[int],
    ranks: Ranks = ALONE,
    damaged: DamagedImages | None = None,
) -> Generator[Batch]:
    """The batch of each step.

    Bytes of the images (B / ranks, 3, H, W) of this rank's slice, which hold until the next batch
    is asked for; labels (B, L) and row numbers (B,) of the whole batch; the number of its epoch.

    The place of a damaged image is taken by another of its class, whose row number is not given.
    Closed, it ends the processes that load.

    Args:
        data: the samples.
        config: size of the images.
        options: of the trainer.
        steps: whose batches are wanted.
        ranks: this process among those that share each batch.
        damaged: knows the damaged images that were met before, and gets those that this rank
            meets, with the batch that first needed them; default: its own, of nothing known.

    Raises:
        InvalidData: not one batch can be made, or more images are damaged than the budget allows.
        Resumable: a process that loads died.
        UsageError: the processes do not divide it.
    """
    plan = BatchSteps(data.samples, batch_options(options), seed=options.seed)
    batch = len(plan.at(0))
    ranks.require_division(batch)
    # One is in use, one has just been, and each process fills or has filled so many.
    slots = AHEAD * options.workers + 2
    side = config.image_size
    # The memory is in the order of pixels, as decoders and the model have it: a copy moves nothing.
    ring = torch.empty(slots, batch // ranks.size, side, side, 3, dtype=torch.uint8)
    ring = ring.share_memory_().permute(0, 1, 4, 2, 3)  # type: ignore[no-untyped-call]
    damaged = damaged or DamagedImages(options.undecodable_budget, data.name, speaks=ranks.leads)
    loader = DataLoader(
        _FilledSlots(data, plan, config, options, ranks, ring, damaged.rows),
        batch_size=None,
        sampler=list(enumerate(steps)),
        num_workers=options.workers,
        prefetch_factor=AHEAD if options.workers else None,
        collate_fn=_as_it_is,
        worker_init_fn=ignore_requests,
    )
    labels = torch.from_numpy(data.labels)
    with closing(loaded(loader)) as filled:
        for slot, rows, epoch, met in filled:
            damaged.hold(met)
            yield ring[slot], labels[rows], torch.from_numpy(rows), epoch


def loaded(loader: "DataLoader[Any]") -> Generator[Any]:
    """What a loader gives; closed or at its end, its processes are ended whole.

    Torch would raise the death of a process amid whatever the main one does, and end them where
    a request to stop cuts it short. Here a death is told when the next item is asked for, and a
    fault in a process as it is told in this one.

    Raises:
        HgldError: a process gave it.
        Resumable: a process died.
    """
    end = _nothing
    try:
        with held_back():
            items = iter(loader)
            end = getattr(items, "_shutdown_workers", _nothing)
        for _ in range(len(loader)):  # asked for one more, it would end them by itself
            found = next(items)
            if isinstance(found, HgldError):
                raise found
            with held_back([signal.SIGCHLD]):
                yield found
    except RuntimeError as error:
        raise _one_line(error) from None
    finally:
        with held_back(), held_back([signal.SIGCHLD]):
            end()


def _nothing() -> None:
    """End no processes where there are none."""


def _one_line(error: RuntimeError) -> Exception:
    if "DataLoader worker" not in str(error):
        return error
    return Resumable(
        "a process that loads images died (out of memory, or killed); the same command goes on "
        "from the last checkpoint; lower train.workers if it happens again"
    )


class _FilledSlots(Dataset[Filled | HgldError]):
    """Item (n, step) puts the images of a step into slot n of the ring, whoever loads it."""

    def __init__(
        self,
        data: TrainingData,
        plan: BatchSteps,
        config: ImageConfig,
        options: TrainOptions,
        ranks: Ranks,
        ring: Tensor,
        known: set[int],
    ) -> None:
        self.plan, self.seed, self.ring = plan, options.seed, ring
        self.mine = ranks.slice_of(ring.shape[1] * ranks.size)
        transform = training_transform(config, options.augmentation)
        self.images = ShardImages(data.folder, data.rows, transform)
        self.decoder = Decoder(transform, options.seed, options.undecodable_budget, known)

    def __getitem__(self, item: tuple[int, int]) -> Filled | HgldError:
        number, step = item
        try:
            return self._fill(number % len(self.ring), step)
        except HgldError as error:  # raised here, it would cross over as pages of traceback
            return error

    def _fill(self, slot: int, step: int) -> Filled:
        rows, epoch = self.plan.at(step), self.plan.epoch(step)
        batch = GlobalBatch(epoch, step, rows, self.mine)  # rows (B,)
        with torch.random.fork_rng(devices=[]):
            for place, row in enumerate(batch.mine.tolist()):
                seed = step_seed(self.seed, step, f"augmentation {self.mine.start + place}")
                torch.default_generator.manual_seed(seed)
                jpeg = self.images.read_bytes(row)
                self.ring[slot, place] = self.decoder.image(batch, place, jpeg, self.images)[1]
        return slot, rows, epoch, set(self.decoder.undecodable)


def _as_it_is(found: Any) -> Any:
    """Arrays stay arrays: as tensors they would be handed over in shared memory, one file each."""
    return found
