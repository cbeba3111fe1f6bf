"""Draws batches from runs in the order in which shards are read, with few runs open at a time.

A reader that goes through shards from end to end can give any batch of the runs that it holds.
So the plan plays that reader: it opens runs in reading order until the window is full, draws P
classes from the open runs, and closes a run when less than K of its images are left. Shards may
be dealt to lanes: each lane is read on its own and fills its share of every batch, so that
as many readers as lanes read each byte once between them.
"""

import numpy as np

from hgld.shards.compiled import compiled

__all__ = ["draw_below", "draw_from_window", "queue_runs"]

_MULTIPLIER = np.uint64(6364136223846793005)
_INCREMENT = np.uint64(1442695040888963407)


def draw_from_window(
    classes: np.ndarray,
    groups: np.ndarray,
    lanes: np.ndarray,
    *,
    num_lanes: int,
    per_lane: int,
    window: int,
    seed: int,
) -> tuple[np.ndarray, int]:
    """Runs of each batch, in which no class stands twice.

    Args:
        classes: (R,) class of each run, in reading order.
        groups: (R,) how often the run can give K images.
        lanes: (R,) lane of each run.
        num_lanes: lanes of the whole plan.
        per_lane: classes that each lane gives to a batch.
        window: runs that are open in all lanes together; more only where a batch needs them.
        seed: draws the classes.

    Returns:
        (steps, num_lanes * per_lane) numbers of runs, lane by lane, and the most runs that were
        open at a time.
    """
    queues, bounds = queue_runs(groups, lanes, num_lanes)
    most = int(groups.sum()) // (num_lanes * per_lane)
    table = np.empty((most, num_lanes * per_lane), np.int64)
    steps, peak = _play(
        np.ascontiguousarray(classes, np.int64),
        groups.astype(np.int64),
        queues,
        bounds,
        per_lane,
        max(1, window // num_lanes),
        np.array([seed % 2**64], np.uint64),
        table,
    )
    return table[:steps], int(peak)


def queue_runs(
    groups: np.ndarray, lanes: np.ndarray, num_lanes: int
) -> tuple[np.ndarray, np.ndarray]:
    """The useful runs, lane after lane in reading order, and where each lane starts."""
    queues = np.argsort(lanes, kind="stable")
    queues = queues[groups[queues] > 0]
    bounds = np.searchsorted(lanes[queues], np.arange(num_lanes + 1))
    return queues.astype(np.int64), bounds.astype(np.int64)


@compiled
def draw_below(random: np.ndarray, below: int) -> int:
    """A number 0 .. below - 1, of a state that goes on with each call."""
    random[0] = random[0] * _MULTIPLIER + _INCREMENT
    return int(np.int64(random[0] >> np.uint64(33)) % below)


@compiled
def _play(
    classes: np.ndarray,
    left: np.ndarray,
    queues: np.ndarray,
    bounds: np.ndarray,
    per_lane: int,
    window: int,
    random: np.ndarray,
    table: np.ndarray,
) -> tuple[int, int]:
    lanes = len(bounds) - 1
    used = np.full(classes.max() + 1, -1, np.int64)  # last step that took the class
    following = bounds[:-1].copy()
    opened = np.empty(len(queues), np.int64)  # the open runs of a lane, from its bound on
    count = np.zeros(lanes, np.int64)
    peak = 0
    for step in range(table.shape[0]):
        for lane in range(lanes):
            base = bounds[lane]
            taken = 0
            while count[lane] < window and following[lane] < bounds[lane + 1]:
                opened[base + count[lane]] = queues[following[lane]]
                following[lane] += 1
                count[lane] += 1
            tail = following[lane] == bounds[lane + 1]
            tried = 0
            while taken < per_lane:
                if tried == count[lane]:  # every open run was tried: open one more, or end
                    if following[lane] == bounds[lane + 1]:
                        return step, peak
                    opened[base + count[lane]] = queues[following[lane]]
                    following[lane] += 1
                    count[lane] += 1
                place = tried
                if tail:  # nothing follows: the fullest runs first, so that most batches come
                    for other in range(tried + 1, count[lane]):
                        if left[opened[base + other]] > left[opened[base + place]]:
                            place = other
                else:
                    place = tried + draw_below(random, count[lane] - tried)
                run = opened[base + place]
                opened[base + place] = opened[base + tried]
                opened[base + tried] = run
                tried += 1
                if used[classes[run]] != step:
                    used[classes[run]] = step
                    left[run] -= 1
                    table[step, lane * per_lane + taken] = run
                    taken += 1
            peak = max(peak, count.sum())
            kept = 0
            for i in range(count[lane]):  # close what is used up
                if left[opened[base + i]] > 0:
                    opened[base + kept] = opened[base + i]
                    kept += 1
            count[lane] = kept
    return table.shape[0], peak
