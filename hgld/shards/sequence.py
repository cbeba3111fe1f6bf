"""Walks through the steps of all epochs, remembers where it is, and cuts a batch among ranks.

The global batch knows nothing of ranks or workers. A rank takes its slice of it, so all ranks
have the same number of steps, and the state of a run is two numbers and a fingerprint.
"""

from bisect import bisect_right
from collections import OrderedDict
from hashlib import sha256
from typing import Any

import numpy as np

from hgld.errors import InvalidData, UsageError
from hgld.shards.batches import BatchOptions, Samples, plan_epoch

__all__ = ["BatchSequence", "BatchSteps"]

PLANS_KEPT = 2


class BatchSequence:
    """The batches of one rank, epoch after epoch.

    Args:
        samples: what the batches are made of.
        options: what a batch is made of.
        seed: of the training run.
        rank: of this process.
        world_size: processes that share each global batch.
    """

    def __init__(
        self,
        samples: Samples,
        options: BatchOptions,
        *,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        size = options.classes_per_batch * options.images_per_class
        if size % world_size:
            raise UsageError(f"{world_size} ranks do not divide a batch of {size} images")
        self.samples, self.options, self.seed = samples, options, seed
        self.rank, self.world_size = rank, world_size
        self.epoch = self.step = 0
        self._plans: OrderedDict[int, np.ndarray] = OrderedDict()

    def plan(self, epoch: int) -> np.ndarray:
        """Row numbers of this rank in each step of an epoch, (steps, B)."""
        if epoch not in self._plans:
            whole = plan_epoch(self.samples, self.options, seed=self.seed, epoch=epoch)
            width = whole.shape[1] // self.world_size
            mine = whole[:, self.rank * width : (self.rank + 1) * width]
            self._plans[epoch] = np.ascontiguousarray(mine)
            while len(self._plans) > PLANS_KEPT:
                self._plans.popitem(last=False)
        return self._plans[epoch]

    def advance(self) -> None:
        """Go to the next step; after the last one of an epoch, to the next epoch."""
        self.step += 1
        if self.step >= len(self.plan(self.epoch)):
            self.epoch, self.step = self.epoch + 1, 0

    def fingerprint(self) -> str:
        """Names all that decides the global batches: samples, options, seed."""
        digest = sha256(repr((self.options, self.seed)).encode())
        for array in (self.samples.labels, self.samples.runs, self.samples.shards):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def state_dict(self) -> dict[str, Any]:
        """The next step, and what it belongs to."""
        return {"epoch": self.epoch, "step": self.step, "fingerprint": self.fingerprint()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a step that was saved.

        Raises:
            InvalidData: it was saved with other shards, batch options or another seed.
        """
        if state["fingerprint"] != self.fingerprint():
            raise InvalidData(
                "this state was saved with other shards, batch options or another seed, so its "
                "step means other batches; start anew, or bring back what it was saved with"
            )
        self.epoch, self.step = int(state["epoch"]), int(state["step"])


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
        while self._starts[-1] <= step:
            self._starts.append(self._starts[-1] + self._length(len(self._starts) - 1))
        epoch = bisect_right(self._starts, step) - 1
        return np.asarray(self._sequence.plan(epoch)[step - self._starts[epoch]])

    def _length(self, epoch: int) -> int:
        """Steps of an epoch; at random each has as many, so those in between need no plan."""
        if self._sequence.options.order == "random" and epoch > 0:
            return self._starts[1]
        return len(self._sequence.plan(epoch))
