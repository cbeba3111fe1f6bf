"""Draw batches from runs in the order in which shards are read, with few runs open at a time.

A reader that goes through shards sequentially can form any batch from the runs that it holds. The
plan simulates that reader: it opens runs in reading order until the window is full, draws P
classes from the open runs, and closes a run when fewer than K of its images are left. Shards may
be dealt to lanes: each lane is read on its own and fills its share of every batch, so that
as many readers as lanes read each byte only once in total.

A batch may also consist of few groups (supercategories) with the same number of classes each. Few
groups have enough classes among some hundred open runs, so a run waits until enough classes of its
group are open. Waiting runs do not count towards the window, or rare groups would fill it; a run
that waits in vain is in no batch, so no reader holds its images.
"""

from typing import NamedTuple

import numpy as np

from hgld.compiled import inner, kernel

# Knuth's MMIX linear congruential generator: the same draws in every version of numpy and numba.
_MULTIPLIER = np.uint64(6364136223846793005)
_INCREMENT = np.uint64(1442695040888963407)


def draw_from_window(
    classes: np.ndarray,
    parents: np.ndarray | None,
    groups: np.ndarray,
    lanes: np.ndarray,
    *,
    num_lanes: int,
    parts: int,
    width: int,
    window: int,
    seed: int,
) -> tuple[np.ndarray, int]:
    """Draw runs for each batch such that no class is in a batch twice.

    Each lane gives ``width`` classes of each of ``parts`` parents.

    Args:
        classes: (R,) class of each run, in reading order.
        parents: (R,) group that the class belongs to; None: any classes may meet, as of one part.
        groups: (R,) how often the run can give K images.
        lanes: (R,) lane of each run.
        num_lanes: lanes of the whole plan.
        parts: parents that each lane gives to a batch; no two lanes give the same.
        width: classes of each of them.
        window: runs that are open in all lanes together, not counting those that wait for others of
            their parent; exceeded only if a batch needs more.
        seed: draws parents and classes.

    Returns:
        (steps, num_lanes * parts * width) numbers of runs, lane by lane, parent by parent, and
        the most runs that were open at a time.
    """
    # Runs with at least one group, lane by lane in reading order, and where each lane begins.
    queues = np.argsort(lanes, kind="stable")
    queues = queues[groups[queues] > 0]
    bounds = np.searchsorted(lanes[queues], np.arange(num_lanes + 1))
    cells = num_lanes * parts * width
    table = np.empty((int(groups.sum()) // cells, cells), np.int64)
    random = np.array([seed % 2**64], np.uint64)
    runs = np.ascontiguousarray(classes, np.int64), groups.astype(np.int64), queues, bounds
    sizes = parts, width, max(1, window // num_lanes)
    if parents is None:
        steps, peak = _play(*runs, sizes, random, table)
    else:
        of_runs = np.ascontiguousarray(parents, np.int64)
        steps, peak = _play_groups(*runs, sizes, random, table, of_runs)
    return table[:steps], int(peak)


@inner
def _draw_below(random: np.ndarray, below: int) -> int:
    """Return a number in 0 .. below - 1, and advance the state."""
    random[0] = random[0] * _MULTIPLIER + _INCREMENT
    # The high bits: the low ones of such a generator have short periods.
    return int(np.int64(random[0] >> np.uint64(33)) % below)


@inner
def _draw_place(
    runs: np.ndarray, first: int, left: np.ndarray, ended: bool, random: np.ndarray
) -> int:
    """Draw a place from the first on; if no more runs come, one of the fullest.

    These make as many batches as possible. Which of equally full ones is left to chance, or the
    same classes would meet in every epoch.
    """
    if not ended:
        return int(first + _draw_below(random, len(runs) - first))
    place, equal = first, 1
    for other in range(first + 1, len(runs)):
        more = left[runs[other]] - left[runs[place]]
        equal = 1 if more > 0 else equal + (more == 0)
        if more > 0 or (more == 0 and _draw_below(random, equal) == 0):
            place = other
    return place


@kernel
def _play(
    classes: np.ndarray,
    left: np.ndarray,
    queues: np.ndarray,
    bounds: np.ndarray,
    sizes: tuple[int, int, int],
    random: np.ndarray,
    table: np.ndarray,
) -> tuple[int, int]:
    """Fill the table; return the number of rows filled and the most open runs."""
    _, per_lane, window = sizes
    lanes = len(bounds) - 1
    used = np.full(classes.max() + 1, -1, np.int64)  # last step that used the class
    following = bounds[:-1].copy()
    opened = np.empty(len(queues), np.int64)  # open runs of each lane, from its bound on
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
                if tried == count[lane]:  # all open runs were tried: open one more, or end
                    if following[lane] == bounds[lane + 1]:
                        return step, peak
                    opened[base + count[lane]] = queues[following[lane]]
                    following[lane] += 1
                    count[lane] += 1
                open_runs = opened[base : base + count[lane]]
                place = _draw_place(open_runs, tried, left, tail, random)
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
            for i in range(count[lane]):  # close exhausted runs
                if left[opened[base + i]] > 0:
                    opened[base + kept] = opened[base + i]
                    kept += 1
            count[lane] = kept
    return table.shape[0], peak


class _Runs(NamedTuple):
    """All runs, and the open ones of one lane."""

    classes: np.ndarray
    parents: np.ndarray
    left: np.ndarray  # how often each can still give K images
    opened: np.ndarray  # numbers of the open runs of the lane
    runs_of: np.ndarray  # open runs of each class
    runs_in: np.ndarray  # open runs of each parent
    there: np.ndarray  # classes of each parent that have an open run


@kernel
def _play_groups(
    classes: np.ndarray,
    left: np.ndarray,
    queues: np.ndarray,
    bounds: np.ndarray,
    sizes: tuple[int, int, int],
    random: np.ndarray,
    table: np.ndarray,
    parents: np.ndarray,
) -> tuple[int, int]:
    """Fill the table as ``_play`` does, with few parents in a batch."""
    parts, width, window = sizes
    lanes = len(bounds) - 1
    runs_of = np.zeros((lanes, classes.max() + 1), np.int64)
    runs_in = np.zeros((lanes, parents.max() + 1), np.int64)
    there = np.zeros((lanes, parents.max() + 1), np.int64)
    opened = np.empty(len(queues), np.int64)
    following, count = bounds[:-1].copy(), np.zeros(lanes, np.int64)
    used = np.full(parents.max() + 1, -1, np.int64)  # last step that used the parent
    seen = np.full(classes.max() + 1, -1, np.int64)  # last step that used the class
    peak = 0
    for step in range(table.shape[0]):
        for lane in range(lanes):
            mine = opened[bounds[lane] : bounds[lane + 1]]
            runs = _Runs(classes, parents, left, mine, runs_of[lane], runs_in[lane], there[lane])
            for part in range(parts):
                parent = -1
                while True:
                    ended = following[lane] == bounds[lane + 1]
                    if ended or _count_ready(runs, width) >= window:
                        parent = _choose_parent(runs, width, used, step, random)
                        if parent >= 0:
                            break
                        if ended:
                            return step, peak
                    _open(runs, count[lane], queues[following[lane]])
                    count[lane] += 1
                    following[lane] += 1
                used[parent] = step
                peak = max(peak, count.sum())
                column = (lane * parts + part) * width
                cells = table[step, column : column + width]
                _take(runs, count[lane], parent, cells, seen, step, ended, random)
                count[lane] = _close(runs, count[lane])
    return table.shape[0], peak


@inner
def _count_ready(runs: _Runs, width: int) -> int:
    """Open runs that do not wait for other classes of their parent."""
    ready = 0
    for parent in range(len(runs.there)):
        if runs.there[parent] >= width:
            ready += runs.runs_in[parent]
    return ready


@inner
def _open(runs: _Runs, count: int, run: int) -> None:
    runs.opened[count] = run
    parent, class_of = runs.parents[run], runs.classes[run]
    runs.there[parent] += runs.runs_of[class_of] == 0
    runs.runs_of[class_of] += 1
    runs.runs_in[parent] += 1


@inner
def _choose_parent(runs: _Runs, width: int, used: np.ndarray, step: int, random: np.ndarray) -> int:
    """Draw a parent with enough classes, weighted by its open runs; -1 if there is none."""
    free = 0
    for parent in range(len(used)):
        if runs.there[parent] >= width and used[parent] != step:
            free += runs.runs_in[parent]
    if free == 0:
        return -1
    place = _draw_below(random, free)
    for parent in range(len(used)):
        if runs.there[parent] >= width and used[parent] != step:
            place -= runs.runs_in[parent]
            if place < 0:
                return parent
    return -1


@inner
def _take(
    runs: _Runs,
    count: int,
    parent: int,
    cells: np.ndarray,
    seen: np.ndarray,
    step: int,
    ended: bool,
    random: np.ndarray,
) -> None:
    """Fill the cells with runs of different classes of the parent, at random.

    At the end of a lane the fullest runs come first.
    """
    places = np.empty(runs.runs_in[parent], np.int64)
    number, taken = 0, 0
    for run in runs.opened[:count]:
        if runs.parents[run] == parent:
            places[number] = run
            number += 1
    for tried in range(number):
        chosen = _draw_place(places, tried, runs.left, ended, random)
        places[tried], places[chosen] = places[chosen], places[tried]
        run = places[tried]
        if seen[runs.classes[run]] != step:
            seen[runs.classes[run]] = step
            runs.left[run] -= 1
            cells[taken] = run
            taken += 1
            if taken == len(cells):
                return


@inner
def _close(runs: _Runs, count: int) -> int:
    """Close the exhausted runs; return how many stay open."""
    kept = 0
    for i in range(count):
        run = runs.opened[i]
        if runs.left[run] > 0:
            runs.opened[kept] = run
            kept += 1
        else:
            parent, class_of = runs.parents[run], runs.classes[run]
            runs.runs_in[parent] -= 1
            runs.runs_of[class_of] -= 1
            runs.there[parent] -= runs.runs_of[class_of] == 0
    return kept
