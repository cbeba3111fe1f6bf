"""Plans the batches of an epoch in the order in which shards are read.

Shards are shuffled and dealt to lanes; a lane's runs are read in turn, and batches are drawn from
those that are open. What a reader must know to follow is each shard's lane and turn.
"""

import numpy as np

from hgld.errors import InvalidData
from hgld.shards.grouped import draw_groups_from_window
from hgld.shards.sampling import (
    BatchOptions,
    Samples,
    count_groups,
    count_up,
    parents_of,
    require_classes,
    take_images,
)
from hgld.shards.window import draw_from_window

__all__ = ["order_shards", "plan_in_shards"]


def plan_in_shards(
    samples: Samples, options: BatchOptions, random: np.random.Generator
) -> np.ndarray:
    """Row numbers of all batches of an epoch, (steps, P * K); the classes of a lane side by side.

    Raises:
        InvalidData: not one batch can be made.
    """
    lane_of, turn_of = _deal_shards(samples, options, random)
    place = np.arange(len(samples.runs))
    order = np.lexsort((random.random(len(place)), samples.runs, turn_of[samples.shards]))
    ordered = np.column_stack([samples.shards, samples.runs])[order]
    first = np.flatnonzero(np.r_[True, (ordered[1:] != ordered[:-1]).any(1)])
    size = np.diff(np.r_[first, len(ordered)])
    classes = samples.labels[order[first], -1]
    groups = _cap_runs(classes, _count_run_groups(classes, size, options), options)
    require_classes(groups, options, classes)
    parents = parents_of(samples.labels[order[first]])
    lanes = lane_of[samples.shards[order[first]]]
    table = _draw_runs(classes, parents, groups, lanes, options, int(random.integers(2**63)))
    return take_images(order, first[table], size[table], count_up(table), options)


def _draw_runs(
    classes: np.ndarray,
    parents: np.ndarray,
    groups: np.ndarray,
    lanes: np.ndarray,
    options: BatchOptions,
    seed: int,
) -> np.ndarray:
    """Runs of each batch, (steps, P)."""
    whole = {"num_lanes": options.lanes, "window": options.window, "seed": seed}
    wanted = options.classes_per_batch // options.lanes
    what = f"{wanted} classes"
    if options.groups_per_batch is None:
        table, _ = draw_from_window(classes, groups, lanes, per_lane=wanted, **whole)
    else:
        parts = options.groups_per_batch // options.lanes
        what = f"{parts} x {wanted // parts} classes of a group"
        table, _ = draw_groups_from_window(
            classes, parents, groups, lanes, parts=parts, width=wanted // parts, **whole
        )
    if not len(table):
        raise InvalidData(
            f"{options.lanes} lane{'s' * (options.lanes > 1)} cannot fill one batch: each has to "
            f"give {what} of its own shards; lower lanes, classes_per_batch or groups_per_batch"
        )
    return table


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
    groups = count_groups(size, options)
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
