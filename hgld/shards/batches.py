"""Plans batches of exactly P classes with K different images each, an epoch at a time.

A plan is a pure function of the samples, the options, the seed and the epoch: readers, workers
and ranks only take their part of it. So a run may stop at any step and go on, with any number of
workers, and every rank has the same number of steps.
"""

from functools import lru_cache

import numpy as np

from hgld.errors import InvalidData
from hgld.shards.deal import deal_rows
from hgld.shards.in_shards import order_shards, plan_in_shards
from hgld.shards.sampling import (
    BatchOptions,
    Samples,
    count_groups,
    count_up,
    parents_of,
    require_classes,
    take_images,
)

__all__ = ["BatchOptions", "Samples", "batch_at", "order_shards", "plan_batches", "plan_epoch"]


def plan_epoch(samples: Samples, options: BatchOptions, *, seed: int, epoch: int) -> np.ndarray:
    """Row numbers of all batches of an epoch, (steps, P * K).

    The K images of a class stand side by side; in the order "shards" the classes of a lane do too.

    Raises:
        InvalidData: not one batch can be made.
    """
    if not len(samples.labels):
        raise InvalidData("there are no samples to make batches of; is this the right split?")
    random = np.random.default_rng([seed, epoch])
    if options.order == "shards":
        return plan_in_shards(samples, options, random)
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
    groups = count_groups(size, options)
    require_classes(groups, options)
    if options.groups_per_batch is None:
        table = deal_rows(groups, options.classes_per_batch, random)
    else:
        table = _deal_in_groups(groups, parents_of(labels[order[first]]), options, random)
    return take_images(order, first[table], size[table], count_up(table), options)


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
    chosen = (np.cumsum(size) - size)[pairs] + count_up(pairs)
    return np.asarray(np.concatenate(parts)[chosen].reshape(len(pairs), -1))


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
