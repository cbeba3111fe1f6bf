"""Walks through the steps of all epochs, remembers where it is, and cuts a batch among ranks.

The global batch knows nothing of ranks or workers. A rank takes its slice of it, so all ranks
have the same number of steps, and the state of a run is two numbers and a fingerprint.
"""

from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np

from hgld.errors import InvalidData, UsageError
from hgld.shards.batches import BatchOptions, Samples, plan_epoch

__all__ = ["BatchSequence", "BatchSteps", "EpochPlan", "GlobalBatch"]

PLANS_KEPT = 2


@dataclass(frozen=True)
class GlobalBatch:
    """A batch of all ranks, and which part of it is wanted.

    Attributes:
        epoch: it belongs to.
        step: number in the epoch.
        rows: (P * K,) row numbers; -1 is padding.
        part: places of this rank.
    """

    epoch: int
    step: int
    rows: np.ndarray
    part: slice

    @property
    def mine(self) -> np.ndarray:
        """Row numbers of this rank's places."""
        return self.rows[self.part]


@dataclass(frozen=True)
class EpochPlan:
    """The batches of one epoch, all ranks' (steps, P * K), and the places of one rank."""

    epoch: int
    rows: np.ndarray
    part: slice

    def batch(self, step: int) -> GlobalBatch:
        """The batch of a step."""
        return GlobalBatch(self.epoch, step, self.rows[step], self.part)


class BatchSequence:
    """The batches of one rank, epoch after epoch.

    Args:
        samples: what the batches are made of.
        options: what a batch is made of.
        seed: of the training run.
        rank: of this process.
        world_size: processes that share each global batch.
        manifest_sha256: names the shards that the samples are of.
    """

    def __init__(
        self,
        samples: Samples,
        options: BatchOptions,
        *,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        manifest_sha256: str = "",
    ) -> None:
        size = options.classes_per_batch * options.images_per_class
        if not 0 <= rank < world_size:
            raise UsageError(f"rank is {rank} of {world_size}; expected 0..{world_size - 1}")
        if seed < 0:
            raise UsageError(f"seed is {seed}; expected 0 or more")
        if size % world_size:
            raise UsageError(f"{world_size} ranks do not divide a batch of {size} images")
        self.samples, self.options, self.seed = samples, options, seed
        self.manifest_sha256 = manifest_sha256
        self._part = slice(rank * size // world_size, (rank + 1) * size // world_size)
        self.epoch = self.step = 0
        self._plans: OrderedDict[int, np.ndarray] = OrderedDict()

    def plan(self, epoch: int) -> np.ndarray:
        """Row numbers of this rank in each step of an epoch, (steps, B)."""
        return self._whole(epoch)[:, self._part]

    def epoch_plan(self) -> EpochPlan:
        """The current epoch, as workers need it."""
        return EpochPlan(self.epoch, self._whole(self.epoch), self._part)

    def _whole(self, epoch: int) -> np.ndarray:
        if epoch not in self._plans:
            whole = plan_epoch(self.samples, self.options, seed=self.seed, epoch=epoch)
            self._plans[epoch] = whole
            while len(self._plans) > PLANS_KEPT:
                self._plans.popitem(last=False)
        return self._plans[epoch]

    def advance(self) -> None:
        """Go to the next step; after the last one of an epoch, to the next epoch."""
        self.step += 1
        if self.step >= len(self.plan(self.epoch)):
            self.epoch, self.step = self.epoch + 1, 0

    @cached_property
    def fingerprint(self) -> str:
        """Names all that decides the global batches: shards, samples of them, options, seed."""
        digest = sha256(repr((self.manifest_sha256, self.options, self.seed)).encode())
        for array in (self.samples.labels, self.samples.runs, self.samples.shards):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def state_dict(self) -> dict[str, Any]:
        """The next step, and what it belongs to."""
        return {"epoch": self.epoch, "step": self.step, "fingerprint": self.fingerprint}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a step that was saved.

        Raises:
            InvalidData: it was saved with other shards, batch options or another seed, or names
                no step.
        """
        if not {"epoch", "step", "fingerprint"} <= state.keys():
            raise InvalidData("this is no saved state of batches: epoch, step or fingerprint lack")
        if state["fingerprint"] != self.fingerprint:
            raise InvalidData(
                "this state was saved with other shards, batch options or another seed, so its "
                "step means other batches; start anew, or bring back what it was saved with"
            )
        epoch, step = int(state["epoch"]), int(state["step"])
        if epoch < 0 or not 0 <= step < len(self.plan(epoch)):
            raise InvalidData(f"the saved state names step {step} of epoch {epoch}: there is none")
        self.epoch, self.step = epoch, step


class BatchSteps:
    """The global batch of any step, for a loop that counts steps through all epochs.

    Args:
        samples: what the batches are made of.
        options: what a batch is made of.
        seed: of the training run.
    """

    def __init__(self, samples: Samples, options: BatchOptions, *, seed: int) -> None:
        self._sequence = BatchSequence(samples, options, seed=seed)
        self._starts = [0]  # first step of each epoch

    def at(self, step: int) -> np.ndarray:
        """Row numbers of the batch, (P * K,).

        Raises:
            InvalidData: not one batch can be made.
        """
        epoch = self.epoch(step)
        return np.asarray(self._sequence.plan(epoch)[step - self._starts[epoch]])

    def epoch(self, step: int) -> int:
        """Number of the epoch that a step is in."""
        while self._starts[-1] <= step:
            self._starts.append(self._starts[-1] + self._length(len(self._starts) - 1))
        return bisect_right(self._starts, step) - 1

    def _length(self, epoch: int) -> int:
        """Steps of an epoch; at random each has as many, so those in between need no plan."""
        if self._sequence.options.order == "random" and epoch > 0:
            return self._starts[1]
        return len(self._sequence.plan(epoch))
