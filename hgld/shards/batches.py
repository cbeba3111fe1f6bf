"""Plans batches of exactly P classes with K different images each, an epoch at a time.

A plan is a pure function of the samples, the options, the seed and the epoch: readers, workers
and ranks only take their part of it. So a run may stop at any step and go on, with any number of
workers, and every rank has the same number of steps.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import pandas as pd

from hgld.errors import InvalidData, UsageError
from hgld.shards.deal import deal_rows
from hgld.shards.index import level_columns
from hgld.shards.window import draw_from_window

__all__ = ["BatchOptions", "Samples", "batch_at", "order_shards", "plan_batches", "plan_epoch"]

SmallClasses = Literal["drop", "repeat", "pad"]


@dataclass(frozen=True)
class BatchOptions:
    """What a batch is made of.

    Attributes:
        classes_per_batch: P.
        images_per_class: K.
        order: "random" draws any image at any time; "shards" draws from the runs that a reader
            holds who reads shards from end to end.
        window: runs that are open at a time in the order "shards".
        lanes: shards are read in so many lanes (order "shards"); as many readers share the work.
        images_cap: most images of a class in an epoch (H-GLDv2 in the paper: 8); None: all.
        groups_per_batch: supercategories that a batch holds, each with the same number of classes
            (SOP in the paper: 2); None: as it comes.
        small_classes: what becomes of classes with fewer than K images: left out, their images
            repeated up to K, or the row number -1 in place of the missing.
    """

    classes_per_batch: int
    images_per_class: int
    order: Literal["random", "shards"] = "random"
    window: int = 512
    lanes: int = 1
    images_cap: int | None = None
    groups_per_batch: int | None = None
    small_classes: SmallClasses = "drop"

    def __post_init__(self) -> None:
        """Refuse what does not fit together."""
        _require_division("groups_per_batch", self.groups_per_batch or 1, self.classes_per_batch)
        _require_division("lanes", self.lanes, self.classes_per_batch)
        if self.order == "shards" and self.groups_per_batch:
            raise UsageError(
                "groups_per_batch needs the order 'random': a window of runs seldom "
                "holds enough classes of one group"
            )
        if self.images_cap is not None and self.images_cap < self.images_per_class:
            raise UsageError(
                f"images_cap {self.images_cap} is below images_per_class "
                f"{self.images_per_class}, which leaves no class"
            )


def _require_division(name: str, divisor: int, classes: int) -> None:
    if classes % divisor:
        raise UsageError(f"{name} {divisor} does not divide classes_per_batch {classes}")


@dataclass(frozen=True)
class Samples:
    """What a plan must know of the samples.

    Attributes:
        labels: (N, L) class numbers, coarse to fine.
        runs: (N,) number of the run of each sample; samples of a run are neighbours.
        shards: (N,) number of the shard, in the order of their names.
    """

    labels: np.ndarray
    runs: np.ndarray
    shards: np.ndarray

    @classmethod
    def of_index(cls, rows: pd.DataFrame) -> "Samples":
        """From rows of the index, in their order."""
        return cls(
            rows[level_columns(rows)].to_numpy(np.int64, copy=True),
            rows["run"].to_numpy(np.int64, copy=True),
            rows["shard"].astype("category").cat.codes.to_numpy(np.int64),
        )


def plan_epoch(samples: Samples, options: BatchOptions, *, seed: int, epoch: int) -> np.ndarray:
    """Row numbers of all batches of an epoch, (steps, P * K).

    The K images of a class stand side by side; in the order "shards" the classes of a lane do too.

    Raises:
        InvalidData: not one batch can be made.
    """
    random = np.random.default_rng([seed, epoch])
    if options.order == "shards":
        return _plan_in_shards(samples, options, random)
    return _plan_at_random(samples.labels, options, random)


def plan_batches(
    labels: np.ndarray, *, classes_per_batch: int, images_per_class: int, seed: int, epoch: int
) -> np.ndarray:
    """Row numbers of all batches of an epoch; classes with fewer than K images are left out.

    Each class gives as many groups of K of its images as it has, drawn anew each epoch; as many
    full batches as possible are made of them.

    Args:
        labels: (N, L) class numbers, coarse to fine.
        classes_per_batch: P.
        images_per_class: K.
        seed: of the training run.
        epoch: number of the epoch; each has its own batches.

    Returns:
        (steps, P * K) row numbers; the K images of a class stand side by side.

    Raises:
        InvalidData: fewer than P classes have K images.

    Example:
        >>> labels = np.array([[0, 0], [0, 0], [0, 1], [0, 1], [0, 2]])
        >>> plan = plan_batches(
        ...     labels, classes_per_batch=2, images_per_class=2, seed=0, epoch=0
        ... )
        >>> sorted(plan[0].tolist())
        [0, 1, 2, 3]
    """
    options = BatchOptions(classes_per_batch, images_per_class)
    return _plan_at_random(labels, options, np.random.default_rng([seed, epoch]))


def batch_at(
    labels: np.ndarray, step: int, *, classes_per_batch: int, images_per_class: int, seed: int
) -> np.ndarray:
    """Batch of one step of an endless sequence of epochs, (P * K,) row numbers.

    Every epoch of given labels has the same number of steps, so a step belongs to one epoch.
    """
    first = _plan_of(_Labels(labels), classes_per_batch, images_per_class, seed, 0)
    epoch, place = divmod(step, len(first))
    plan = _plan_of(_Labels(labels), classes_per_batch, images_per_class, seed, epoch)
    return np.asarray(plan[place])


def _plan_at_random(
    labels: np.ndarray, options: BatchOptions, random: np.random.Generator
) -> np.ndarray:
    finest = np.ascontiguousarray(labels[:, -1])
    order = random.permutation(len(finest))
    order = order[np.argsort(finest[order], kind="stable")]
    _, first, size = np.unique(finest[order], return_index=True, return_counts=True)
    groups = _count_groups(size, options)
    _require_classes(groups, options)
    if options.groups_per_batch is None:
        table = deal_rows(groups, options.classes_per_batch, random)
    else:
        parents = labels[order[first], -2] if labels.shape[1] > 1 else np.zeros(len(size), int)
        table = _deal_in_groups(groups, parents, options, random)
    return _take_images(order, first[table], size[table], _count_up(table), options)


def _count_groups(size: np.ndarray, options: BatchOptions) -> np.ndarray:
    """How often a class (or run) of each size can give K images in an epoch."""
    groups = size // options.images_per_class
    if options.small_classes != "drop":
        groups = np.maximum(groups, 1)
    if options.images_cap is not None:
        groups = np.minimum(groups, options.images_cap // options.images_per_class)
    return np.asarray(groups)


def _deal_in_groups(
    counts: np.ndarray, parents: np.ndarray, options: BatchOptions, random: np.random.Generator
) -> np.ndarray:
    """Classes of each batch, drawn from ``groups_per_batch`` different parents.

    Parts of batches are dealt within each parent, then parents are dealt to batches: as often as
    they have parts, so that rare groups are not drawn again and again.
    """
    together = options.groups_per_batch or 1
    width = options.classes_per_batch // together
    numbers = [np.flatnonzero(parents == parent) for parent in np.unique(parents)]
    parts = [inside[deal_rows(counts[inside], width, random)] for inside in numbers]
    size = np.array([len(part) for part in parts])
    pairs = deal_rows(size, together, random)
    if not len(pairs):
        raise InvalidData(
            f"{int((size > 0).sum())} groups have {width} classes of enough images, but a batch "
            f"needs {together} of them; lower classes_per_batch or groups_per_batch"
        )
    chosen = (np.cumsum(size) - size)[pairs] + _count_up(pairs)
    return np.asarray(np.concatenate(parts)[chosen].reshape(len(pairs), -1))


def _plan_in_shards(
    samples: Samples, options: BatchOptions, random: np.random.Generator
) -> np.ndarray:
    lane_of, turn_of = _deal_shards(samples, options, random)
    place = np.arange(len(samples.runs))
    order = np.lexsort((random.random(len(place)), samples.runs, turn_of[samples.shards]))
    ordered = samples.runs[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    size = np.diff(np.r_[first, len(ordered)])
    classes = samples.labels[order[first], -1]
    groups = _cap_runs(classes, _count_run_groups(classes, size, options), options)
    _require_classes(groups, options, classes)
    table, _ = draw_from_window(
        classes,
        groups,
        lane_of[samples.shards[order[first]]],
        num_lanes=options.lanes,
        per_lane=options.classes_per_batch // options.lanes,
        window=options.window,
        seed=int(random.integers(2**63)),
    )
    if not len(table):
        raise InvalidData(
            f"{options.lanes} lanes cannot fill one batch: each has to give "
            f"{options.classes_per_batch // options.lanes} classes of its own shards; lower lanes "
            "or classes_per_batch"
        )
    return _take_images(order, first[table], size[table], _count_up(table), options)


def order_shards(
    samples: Samples, options: BatchOptions, *, seed: int, epoch: int
) -> tuple[np.ndarray, np.ndarray]:
    """Lane of each shard, and its turn in the epoch's reading order (order "shards")."""
    return _deal_shards(samples, options, np.random.default_rng([seed, epoch]))


def _deal_shards(
    samples: Samples, options: BatchOptions, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Lanes take the shuffled shards in turn."""
    turn = random.permutation(int(samples.shards.max()) + 1)
    return turn % options.lanes, turn


def _count_run_groups(classes: np.ndarray, size: np.ndarray, options: BatchOptions) -> np.ndarray:
    """A short run of a large class is no small class: it gives nothing, and is not filled up."""
    groups = _count_groups(size, options)
    _, number = np.unique(classes, return_inverse=True)
    short = (size < options.images_per_class) & (np.bincount(number)[number] > 1)
    return np.asarray(np.where(short, 0, groups))


def _cap_runs(classes: np.ndarray, groups: np.ndarray, options: BatchOptions) -> np.ndarray:
    """Groups of the first runs of each class, up to the cap."""
    if options.images_cap is None:
        return groups
    order = np.argsort(classes, kind="stable")
    total = np.cumsum(groups[order])
    begins = np.r_[True, classes[order][1:] != classes[order][:-1]]
    before_class = np.maximum.accumulate(np.where(begins, total - groups[order], 0))
    before = total - groups[order] - before_class
    capped = np.empty_like(groups)
    room = options.images_cap // options.images_per_class - before
    capped[order] = np.clip(room, 0, groups[order])
    return capped


def _take_images(
    order: np.ndarray, first: np.ndarray, size: np.ndarray, nth: np.ndarray, options: BatchOptions
) -> np.ndarray:
    """The images of each cell: the nth K of the ``size`` rows that start at ``first``."""
    images = options.images_per_class
    place = nth[..., None] * images + np.arange(images)  # (steps, P, K)
    beyond = place >= size[..., None]
    rows = order[first[..., None] + np.where(beyond, place % size[..., None], place)]
    if options.small_classes == "pad":
        rows = np.where(beyond, -1, rows)
    return np.asarray(rows.reshape(len(first), -1))


def _require_classes(
    groups: np.ndarray, options: BatchOptions, classes: np.ndarray | None = None
) -> None:
    """Refuse labels from which not one batch can be made."""
    numbers = np.arange(len(groups)) if classes is None else classes
    eligible, there = len(np.unique(numbers[groups > 0])), len(np.unique(numbers))
    if eligible < options.classes_per_batch:
        raise InvalidData(
            f"{eligible} of {there} classes have {options.images_per_class} images or more, but "
            f"a batch needs {options.classes_per_batch} of them; lower classes_per_batch or "
            "images_per_class"
        )


def _count_up(table: np.ndarray) -> np.ndarray:
    """How often the number in each cell stood in the cells before it.

    Example:
        >>> _count_up(np.array([[4, 2], [2, 4], [4, 3]])).tolist()
        [[0, 0], [1, 1], [2, 0]]
    """
    flat = table.reshape(-1)
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]][: len(flat)]
    place = np.arange(len(flat))
    count = np.empty(len(flat), np.int64)
    count[order] = place - np.maximum.accumulate(np.where(first, place, 0))
    return count.reshape(table.shape)


class _Labels:
    """Labels as a key of the cache: equal by content, found by a few of their rows."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self._hash = hash((array.shape, array[:: max(1, len(array) // 64)].tobytes()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Labels) and (
            self.array is other.array or np.array_equal(self.array, other.array)
        )


@lru_cache(maxsize=4)
def _plan_of(labels: _Labels, classes: int, images: int, seed: int, epoch: int) -> np.ndarray:
    return plan_batches(
        labels.array, classes_per_batch=classes, images_per_class=images, seed=seed, epoch=epoch
    )
