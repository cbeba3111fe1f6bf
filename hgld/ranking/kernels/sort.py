"""A row of scores in order: by score, and by level and score, in numba.

Scores are put in one of 2^22 even places of the row's range and sorted by it in two counting
passes; an insertion pass over the scores themselves mends neighbours in one place. Where one far
score stretches the range and the rest fall into few places, it is led up to in wide steps.
"""

from typing import NamedTuple

import numpy as np

from hgld.ranking.kernels.compiled import Array, fast, kernel

__all__ = ["SortedRow", "count_rows", "new_row", "sort_row"]

FEW = 1536  # below, two passes of 8 bits do


class SortedRow(NamedTuple):
    """Room for one row of N scores, ascending, and the same by level.

    Args:
        val: (N,) scores, ascending.
        col: (N,) int32 their columns.
        lev: (N,) int8 their levels.
        spot: (N,) int32 their places when sorted by level first.
        counts: (L + 1,) int64 scores of each level.
        starts: (L + 2,) int64 first spot of each level.
        keys: (N,) uint64 room to sort.
        more: (N,) uint64 room to sort.
        heads: (2, 2048) int32 room to sort.
    """

    val: Array
    col: Array
    lev: Array
    spot: Array
    counts: Array
    starts: Array
    keys: Array
    more: Array
    heads: Array


def new_row(size: int, num_levels: int, dtype: "np.dtype[np.floating]") -> SortedRow:
    """Room for a row of this many scores."""
    return SortedRow(
        np.empty(size, dtype),
        np.empty(size, np.int32),
        np.empty(size, np.int8),
        np.empty(size, np.int32),
        np.empty(num_levels + 1, np.int64),
        np.empty(num_levels + 2, np.int64),
        np.empty(size, np.uint64),
        np.empty(size, np.uint64),
        np.empty((2, 2048), np.int32),
    )


@kernel
def sort_row(scores: Array, levels: Array, row: SortedRow) -> int:
    """Put what is in the gallery (level 0 or more) in order; how many there are."""
    low, high, present = extremes(scores, levels)
    if present == 0:
        row.counts[:] = 0
        return 0
    make_keys(scores, levels, low, high, row)
    keys = row.keys[:present]
    for j in range(present):
        c = np.int64(keys[j] & np.uint64(0xFFFFFFFF))
        row.col[j] = c
        row.val[j] = scores[c]
    mend(row.val[:present], row.col[:present])
    group(levels, present, row)
    return int(present)


@fast
def extremes(scores: Array, levels: Array) -> tuple[float, float, int]:
    """Lowest and highest score in the gallery, and how many there are."""
    low, high = scores.dtype.type(np.inf), scores.dtype.type(-np.inf)
    present = 0
    for j in range(scores.shape[0]):
        here = levels[j] >= 0
        s = scores[j]
        low = s if here and s < low else low
        high = s if here and s > high else high
        present += here
    return low, high, present


@kernel
def make_keys(scores: Array, levels: Array, low: float, high: float, row: SortedRow) -> None:
    """Place and column of each score, sorted by place."""
    bits = np.uint64(8) if scores.shape[0] < FEW else np.uint64(11)
    last = (np.int64(1) << np.int64(bits)) - 1
    places = np.int64(1) << np.int64(2 * bits)
    span = np.float64(high) - np.float64(low)
    scale = np.float64(places - 1) / span if span > 0.0 else 0.0
    scale = min(scale, 1e300)
    first, second = row.heads[0], row.heads[1]
    first[: last + 1] = 0
    second[: last + 1] = 0
    m = 0
    for j in range(scores.shape[0]):
        place = np.int64((np.float64(scores[j]) - np.float64(low)) * scale)
        row.keys[m] = (np.uint64(place) << np.uint64(32)) | np.uint64(j)
        if levels[j] >= 0:
            first[place & last] += 1
            second[place >> bits] += 1
            m += 1
    scatter(row.keys[:m], row.more, first[: last + 1], np.uint64(32))
    scatter(row.more[:m], row.keys, second[: last + 1], np.uint64(32) + bits)


@kernel
def scatter(source: Array, target: Array, heads: Array, shift: int) -> None:
    """Stable counting sort by the digit at ``shift``, given how often each comes."""
    run = np.int32(0)
    for b in range(heads.shape[0]):
        count = heads[b]
        heads[b] = run
        run += count
    last = np.uint64(heads.shape[0] - 1)
    for j in range(source.shape[0]):
        digit = (source[j] >> np.uint64(shift)) & last
        spot = heads[digit]
        heads[digit] = spot + np.int32(1)
        target[spot] = source[j]


@kernel
def mend(val: Array, col: Array) -> None:
    """Sort what is nearly in order; where it is not, first in wide steps (Shell 1959)."""
    n = val.shape[0]
    if insert(val, col, 1, 4 * n):
        return
    step = 1
    while step < n // 9:
        step = 3 * step + 1
    while step > 0:
        insert(val, col, step, n * n)
        step //= 3


@kernel
def insert(val: Array, col: Array, step: int, most: int) -> bool:
    """Insertion sort of every ``step``-th score; False where it took too many moves."""
    moves = 0
    for j in range(step, val.shape[0]):
        s = val[j]
        if s >= val[j - step]:
            continue
        c, i = col[j], j
        while i >= step and val[i - step] > s:
            val[i], col[i] = val[i - step], col[i - step]
            i -= step
        val[i], col[i] = s, c
        moves += j - i
        if moves > most * step:
            return False
    return True


@kernel
def group(levels: Array, present: int, row: SortedRow) -> None:
    """Levels in the order of scores, and the spot of each score when sorted by level first."""
    row.counts[:] = 0
    for j in range(present):
        level = levels[row.col[j]]
        row.lev[j] = level
        row.spot[j] = row.counts[level]
        row.counts[level] += 1
    row.starts[0] = 0
    for v in range(row.counts.shape[0]):
        row.starts[v + 1] = row.starts[v] + row.counts[v]
    for j in range(present):
        row.spot[j] += np.int32(row.starts[row.lev[j]])


@kernel
def count_rows(levels: Array, counts: Array) -> None:
    """Images of each level in each row, into (Q, L + 1) zeros."""
    for i in range(levels.shape[0]):
        for j in range(levels.shape[1]):
            level = levels[i, j]
            if 0 <= level < counts.shape[1]:
                counts[i, level] += 1
