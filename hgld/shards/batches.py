"""Plan the batches of all epochs: exactly P classes with K different images each.

A batch is a pure function of the samples, the options, the seed and its step; readers, workers and
ranks only load their share of it. A run can therefore stop at any step and resume with any number
of workers or ranks, and every rank has the same number of steps.

Sampling by class leaves images out silently, and too small classes always; ``measure_coverage``
counts both before a run that takes days.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import combinations
from math import ceil
from typing import Any

import numpy as np
import pandas as pd

from hgld.errors import InvalidData, UsageError
from hgld.shards.image_table import MANY, PIECE, bounds_of_shards, pieces
from hgld.shards.sampling import (
    BatchOptions,
    Samples,
    count_classes,
    count_groups,
    count_rows,
    count_up,
    deal_rows,
    parents_of,
    require_classes,
    require_count,
    shuffle_classes,
)
from hgld.shards.window import draw_from_window

PLANS_KEPT = 2  # the current epoch, and the next one while workers prefetch


@dataclass(frozen=True)
class GlobalBatch:
    """The batch that all ranks share.

    Attributes:
        epoch: number of the epoch.
        step: number of the batch, counted through all epochs.
        rows: (P * K,) row numbers; -1 is padding.
    """

    epoch: int
    step: int
    rows: np.ndarray


class BatchPlan:
    """The batches of all epochs.

    Args:
        samples: labels, runs and shards of the rows.
        options: composition of a batch.
        seed: of the training run.
        manifest_sha256: identifies the shards in a saved state.

    Raises:
        UsageError: the seed is negative.

    Example:
        >>> samples = Samples.of_labels(np.repeat([[0, 0], [0, 1], [0, 2]], 2, axis=0))
        >>> plan = BatchPlan(samples, BatchOptions(3, 2), seed=0)
        >>> batch = plan.at(4)  # one batch an epoch
        >>> batch.epoch, batch.step, sorted(batch.rows.tolist())
        (4, 4, [0, 1, 2, 3, 4, 5])
    """

    def __init__(
        self, samples: Samples, options: BatchOptions, *, seed: int, manifest_sha256: str = ""
    ) -> None:
        self.samples, self.options = samples, options
        self.seed = require_count("seed", seed, least=0)
        self.batch_size = options.classes_per_batch * options.images_per_class
        self._manifest_sha256 = manifest_sha256
        # In the order "shards" epochs differ in length, so a step's epoch is looked up here.
        self._starts = [0]  # first step of each epoch
        self._epochs: OrderedDict[int, _EpochPlan] = OrderedDict()

    def rows(self, epoch: int) -> np.ndarray:
        """Row numbers of all batches of an epoch, (steps, P * K).

        Raises:
            InvalidData: not a single batch can be made.
        """
        return self._plan(epoch).rows()

    def _plan(self, epoch: int) -> "_EpochPlan":
        if epoch not in self._epochs:
            # Room first: a plan of many images is as large as what they leave of a limit.
            most = PLANS_KEPT if len(self.samples.labels) <= MANY else 1
            while len(self._epochs) >= most:
                self._epochs.popitem(last=False)
            self._epochs[epoch] = _plan(self.samples, self.options, self.seed, epoch)
        return self._epochs[epoch]

    def at(self, step: int) -> GlobalBatch:
        """The batch of a step, counted through all epochs.

        Raises:
            InvalidData: not a single batch can be made.
        """
        epoch = self.epoch_of(step)
        (rows,) = self._plan(epoch).rows(step - self._starts[epoch], 1)
        return GlobalBatch(epoch, step, rows)

    def epoch_of(self, step: int) -> int:
        """Number of the epoch that contains a step."""
        while self._starts[-1] <= step:
            self._add_epoch()
        return bisect_right(self._starts, step) - 1

    def steps_of(self, epoch: int) -> range:
        """The steps of an epoch, counted through all epochs."""
        while len(self._starts) <= epoch + 1:
            self._add_epoch()
        return range(self._starts[epoch], self._starts[epoch + 1])

    def _add_epoch(self) -> None:
        """Record where the next epoch starts.

        But for the order "shards" all epochs have as many steps as the first, and only that one is
        planned.
        """
        epoch = len(self._starts) - 1
        known = self.options.order != "shards" and epoch > 0
        steps = self._starts[1] if known else len(self._plan(epoch).table)
        self._starts.append(self._starts[-1] + steps)

    def shard_order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Lane of each shard, and its turn in the epoch's reading order (order "shards")."""
        return _deal_shards(self.samples, self.options, np.random.default_rng([self.seed, epoch]))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that decides the batches: shards, samples, options, seed."""
        # The arrays too: two splits of the same shards give other batches.
        digest = sha256(repr((self._manifest_sha256, self.options, self.seed)).encode())
        for array in (self.samples.labels, self.samples.runs, self.samples.shards):
            for part in pieces(array):
                digest.update(part.astype(np.int64).tobytes())  # as 64 bits for any type
        return digest.hexdigest()

    def state_of(self, step: int) -> dict[str, Any]:
        """The state to save before a step: its epoch, its index in the epoch, the fingerprint."""
        epoch = self.epoch_of(step)
        place = step - self._starts[epoch]
        return {"epoch": epoch, "step": place, "fingerprint": self.fingerprint}

    def step_of(self, state: Mapping[str, Any]) -> int:
        """The step, counted through all epochs, of a saved state.

        Raises:
            InvalidData: the state was saved with other shards, batch options or another seed, or
                its step does not exist.
        """
        if not {"epoch", "step", "fingerprint"} <= state.keys():
            raise InvalidData("not a saved state of batches: epoch, step or fingerprint is missing")
        if state["fingerprint"] != self.fingerprint:
            raise InvalidData(
                "this state was saved with other shards, batch options or another seed, so its "
                "step means other batches; start again, or restore what it was saved with"
            )
        epoch, place = int(state["epoch"]), int(state["step"])
        if epoch < 0 or not 0 <= place < len(self.steps_of(epoch)):
            raise InvalidData(f"the saved state names step {place} of epoch {epoch}: there is none")
        return self.steps_of(epoch)[place]


def require_rank(rank: int, world_size: int) -> None:
    """Refuse a rank that none of the processes has.

    Raises:
        UsageError: it is below 0, or not below the number of processes.

    Example:
        >>> require_rank(3, world_size=4)
    """
    require_count("world_size", world_size)
    if not 0 <= rank < world_size:
        raise UsageError(f"rank is {rank} of {world_size}; expected 0..{world_size - 1}")


def part_of_rank(size: int, rank: int, world_size: int) -> slice:
    """The slice of each global batch that a rank loads.

    Raises:
        UsageError: there is no such rank, or the ranks do not divide the batch.

    Example:
        >>> part_of_rank(16, rank=1, world_size=4)
        slice(4, 8, None)
    """
    require_rank(rank, world_size)
    if size % world_size:
        raise UsageError(f"{world_size} ranks do not divide a batch of {size} images")
    return slice(rank * size // world_size, (rank + 1) * size // world_size)


def step_seed(seed: int, step: int, purpose: str) -> int:
    """Derive a seed from the run's seed, a step and a purpose.

    Example:
        >>> step_seed(0, 1, "model") == step_seed(0, 1, "model")
        True
        >>> step_seed(0, 1, "model") == step_seed(0, 1, "augmentation")
        False
    """
    return int.from_bytes(sha256(f"{seed} {step} {purpose}".encode()).digest()[:7])


def plan_epoch(samples: Samples, options: BatchOptions, *, seed: int, epoch: int) -> np.ndarray:
    """Row numbers of all batches of an epoch, (steps, P * K).

    Each class contributes as many groups of K of its images as it has, drawn again for each epoch;
    they form as many full batches as possible. The K images of a class are adjacent; in the order
    "shards" the classes of a lane are adjacent, too.

    Raises:
        InvalidData: not a single batch can be made.

    Example:
        >>> samples = Samples.of_labels(np.array([[0, 0], [0, 0], [0, 1], [0, 1], [0, 2]]))
        >>> plan = plan_epoch(samples, BatchOptions(2, 2), seed=0, epoch=0)
        >>> sorted(plan[0].tolist())
        [0, 1, 2, 3]
    """
    return _plan(samples, options, seed, epoch).rows()


@dataclass(frozen=True)
class _EpochPlan:
    """Batches of an epoch, whose rows are looked up when they are needed.

    Attributes:
        order: (N,) rows, those of a class (or run) together.
        first, size: place in the order and number of rows of each class (or run).
        table: (steps, P) classes (or runs) of each batch.
        nth: (steps, P) which group of K images of its class each cell is.
        options: of the batches.
    """

    order: np.ndarray
    first: np.ndarray
    size: np.ndarray
    table: np.ndarray
    nth: np.ndarray
    options: BatchOptions

    def rows(self, first: int = 0, batches: int | None = None) -> np.ndarray:
        """(steps, P * K) row numbers of some batches, or of all: the nth K images of each cell."""
        chosen = slice(first, None if batches is None else first + batches)
        table, images = self.table[chosen], self.options.images_per_class
        begin, size = self.first[table][..., None], self.size[table][..., None]
        place = self.nth[chosen][..., None].astype(np.int64) * images + np.arange(images)
        # True only for small classes, which are repeated or padded.
        beyond = place >= size
        place = begin + np.where(beyond, place % size, place)  # (steps, P, K)
        rows: np.ndarray = self.order[place]
        if self.options.small_classes == "pad":
            rows = np.where(beyond, -1, rows)
        return rows.reshape(len(table), -1).astype(np.int64, copy=False)


def _plan(samples: Samples, options: BatchOptions, seed: int, epoch: int) -> _EpochPlan:
    if not len(samples.labels):
        raise InvalidData("there are no samples to make batches of; is this the right split?")
    random = np.random.default_rng([seed, epoch])
    if options.order == "shards":
        return _plan_in_shards(samples, options, random)
    return _plan_at_random(samples.labels, options, random)


def _plan_at_random(
    labels: np.ndarray, options: BatchOptions, random: np.random.Generator
) -> _EpochPlan:
    order, first, size = shuffle_classes(labels[:, -1], random)
    groups = count_groups(size, options)
    require_classes(groups, options)
    if options.groups_per_batch is None:
        table = deal_rows(groups, options.classes_per_batch, random)
    else:
        table = _deal_in_groups(groups, parents_of(labels[order[first]]), options, random)
    # A class is drawn more often than it has groups only with ``batches_per_combination``.
    nth = count_up(table)
    if options.batches_per_combination is not None:
        nth = nth % groups[table]
    return _EpochPlan(order, first, size, table, nth, options)


def _deal_in_groups(
    counts: np.ndarray, parents: np.ndarray, options: BatchOptions, random: np.random.Generator
) -> np.ndarray:
    """Classes of each batch, drawn from ``groups_per_batch`` different parents.

    Parts of batches are first dealt within each parent. The parents are then dealt to batches as
    often as they have parts, so that rare groups are not drawn again and again; or, with
    ``batches_per_combination``, each set of parents equally often, whatever their sizes.
    """
    together = options.groups_per_batch or 1
    width = options.classes_per_batch // together
    numbers = [np.flatnonzero(parents == parent) for parent in np.unique(parents)]
    able = [inside for inside in numbers if count_rows(counts[inside], width)]
    if len(able) < together:
        raise InvalidData(
            f"{len(able)} groups have {width} classes of enough images, but a batch "
            f"needs {together} of them; lower classes_per_batch or groups_per_batch"
        )
    if options.batches_per_combination is None:
        parts = [inside[deal_rows(counts[inside], width, random)] for inside in numbers]
        size = np.array([len(part) for part in parts])
        sets = deal_rows(size, together, random)
    else:
        every = np.array(list(combinations(range(len(able)), together)), np.int64)
        in_turn = options.order == "combinations"
        sets = random.permutation(every) if in_turn else every
        sets = np.repeat(sets, options.batches_per_combination, axis=0)
        sets = sets if in_turn else random.permutation(sets)
        size = np.bincount(sets.ravel(), minlength=len(able))
        filled = [inside[counts[inside] > 0] for inside in able]
        parts = []
        for inside, number in zip(filled, size, strict=True):
            # One permutation after the other, so that each class comes equally often. What is left
            # of one is dropped, since the next could repeat its classes.
            whole = len(inside) // width
            turns = range(ceil(number / whole))
            rounds = [random.permutation(inside)[: whole * width] for _ in turns]
            parts.append(np.concatenate(rounds).reshape(-1, width)[:number])
    chosen = (np.cumsum(size) - size)[sets] + count_up(sets)
    return np.asarray(np.concatenate(parts)[chosen].reshape(len(sets), -1))


def _plan_in_shards(
    samples: Samples, options: BatchOptions, random: np.random.Generator
) -> _EpochPlan:
    """Batches of an epoch; the classes of a lane are adjacent.

    Raises:
        InvalidData: not a single batch can be made, or a run has several classes.
    """
    lane_of, turn_of = _deal_shards(samples, options, random)
    order, first = _order_in_shards(samples, turn_of, random)
    size = np.diff(np.r_[first, len(order)])
    classes = samples.labels[order[first], -1]
    _, number = np.unique(classes, return_inverse=True)
    total, groups = np.bincount(number, size).astype(np.int64), count_groups(size, options)
    if options.small_classes != "drop":
        # A short run of a large class gives none. Of a small class that is in several runs, as
        # where a shard of another tool ends, the longest is taken.
        by_size = np.lexsort((size, number))
        longest = by_size[np.r_[np.diff(number[by_size]) > 0, True]]
        taken = size >= options.images_per_class
        taken[longest] |= total < options.images_per_class
        groups = np.where(taken, groups, 0)
    if options.images_cap is not None:  # on images of a class, which may be in many runs
        before = pd.Series(groups).groupby(classes).cumsum().to_numpy() - groups
        groups = np.clip(options.images_cap // options.images_per_class - before, 0, groups)
    require_classes(groups, options, classes, count_groups(total, options))
    together = options.groups_per_batch
    parts = (together or options.lanes) // options.lanes  # of each lane
    width = options.classes_per_batch // options.lanes // parts
    table, _ = draw_from_window(
        classes,
        None if together is None else parents_of(samples.labels[order[first]]),
        groups,
        lane_of[samples.shards[order[first]]],
        num_lanes=options.lanes,
        parts=parts,
        width=width,
        window=options.window,
        seed=int(random.integers(2**63)),
    )
    if not len(table):
        what = f"{width} classes" if together is None else f"{parts} x {width} classes of a group"
        raise InvalidData(
            f"{options.lanes} lane{'s' * (options.lanes > 1)} cannot fill one batch: each has to "
            f"give {what} of its own shards; lower lanes, classes_per_batch or groups_per_batch"
        )
    return _EpochPlan(order, first, size, table, count_up(table), options)


def _order_in_shards(
    samples: Samples, turn_of: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Rows in reading order: shards by their turn, then runs; shuffled within each run.

    The rows of a shard are mostly adjacent. They are then sorted shard by shard, in the memory of
    one; otherwise all together.

    Returns:
        (N,) row numbers, and the place in them at which each run begins.

    Raises:
        InvalidData: a run has several classes, as labels of one's own may give it.
    """
    shards, runs, count = samples.shards, samples.runs, len(samples.runs)
    bounds = bounds_of_shards(shards)
    length, by_turn = np.diff(bounds), np.argsort(turn_of[shards[bounds[:-1]]])
    ends = np.cumsum(length[by_turn])
    place = np.empty_like(ends)
    place[by_turn] = ends - length[by_turn]
    order = np.empty(count, np.int32 if count < 1 << 31 else np.int64)
    begins = list[np.ndarray]()
    for start, stop, to in zip(bounds[:-1], bounds[1:], place, strict=True):
        turn, run = turn_of[shards[start:stop]], runs[start:stop]
        rows = np.lexsort((random.random(stop - start), run, turn))
        order[to : to + len(rows)] = start + rows
        turn, run, finest = turn[rows], run[rows], samples.labels[start:stop, -1][rows]
        changes = (turn[1:] != turn[:-1]) | (run[1:] != run[:-1])
        if ((finest[1:] != finest[:-1]) & ~changes).any():
            raise InvalidData(
                'a run has images of several classes, but the order "shards" draws whole runs of '
                'one class; take the order "random", or copy the samples sorted by class'
            )
        begins.append(to + np.r_[0, np.flatnonzero(changes) + 1])
    return order, np.concatenate([begins[number] for number in by_turn])


def _deal_shards(
    samples: Samples, options: BatchOptions, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Shuffle the shards and deal them to the lanes in turn; (S,) lane and (S,) turn."""
    turn = random.permutation(int(samples.shards.max()) + 1)
    return turn % options.lanes, turn


@dataclass(frozen=True)
class Coverage:
    """Classes and images of some epochs.

    Attributes:
        steps: batches of each epoch.
        classes, images: how many there are.
        classes_reached, images_reached: how many are in at least one batch.
        classes_too_small: classes that are left out because they have fewer than K images.
        images_too_small: images of those classes.
        images_left_out: images of other classes that no batch took (remainders, cap, no partners).
        repeats: images that are in an epoch more than once.
        padding: cells of batches that are padding.
    """

    steps: tuple[int, ...]
    classes: int
    images: int
    classes_reached: int
    images_reached: int
    classes_too_small: int
    images_too_small: int
    images_left_out: int
    repeats: int
    padding: int

    def describe(self, images_per_class: int) -> str:
        """Describe in one line what an epoch covers and what it leaves out."""
        shown = (
            f"batches of an epoch: {max(self.steps):,}; classes in them: {self.classes_reached:,} "
            f"of {self.classes:,}; images: {self.images_reached:,} of {self.images:,}"
        )
        others = self.classes - self.classes_reached - self.classes_too_small
        left_out = {
            f"classes with fewer than {images_per_class} images": self.classes_too_small,
            "images of these": self.images_too_small,
            "classes without room or partners": others,
            "images left for other epochs": self.images_left_out,
            "repeated images": self.repeats,
            "padded places": self.padding,
        }
        return "; ".join([shown, *(f"{what}: {n:,}" for what, n in left_out.items() if n)])


def measure_coverage(
    samples: Samples, options: BatchOptions, *, seed: int, epochs: int = 1
) -> Coverage:
    """Plan the first ``epochs`` epochs and count the classes and images in them."""
    finest, size = count_classes(samples.labels[:, -1])
    reached, classes_reached = np.zeros(len(finest), bool), np.zeros(len(size), bool)
    steps, repeats, padding = list[int](), 0, 0
    together = ceil(PIECE / (options.classes_per_batch * options.images_per_class))  # batches
    for epoch in range(epochs):
        plan, drawn = _plan(samples, options, seed, epoch), np.zeros(len(finest), bool)
        for first in range(0, len(plan.table), together):
            rows = plan.rows(first, together)
            padding += int(np.count_nonzero(rows < 0))
            repeats += int(np.count_nonzero(rows >= 0))
            drawn[rows[rows >= 0]] = True
        repeats -= int(np.count_nonzero(drawn))
        reached |= drawn
        steps.append(len(plan.table))
    first = 0
    for part in pieces(finest):
        classes_reached[part[reached[first : first + len(part)]]] = True
        first += len(part)
    # Otherwise small classes are repeated or padded, not left out.
    least = options.images_per_class if options.small_classes == "drop" else 0
    small = (size > 0) & (size < least)
    in_small, images_reached = int(size[small].sum()), int(np.count_nonzero(reached))
    return Coverage(
        steps=tuple(steps),
        classes=int(np.count_nonzero(size)),
        images=len(finest),
        classes_reached=int(np.count_nonzero(classes_reached)),
        images_reached=images_reached,
        classes_too_small=int(np.count_nonzero(small)),
        images_too_small=in_small,
        images_left_out=len(finest) - images_reached - in_small,
        repeats=repeats,
        padding=padding,
    )
