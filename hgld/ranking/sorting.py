"""Rank of every relevant image of a query, by one sort of all scores, in numba.

A key holds, from the top: the score's place among 2^24 even steps of the row's range, the score's
32 bits in descending order, and 8 bits of level. Two counting passes over the first part sort all
but neighbours in one step; an insertion pass over whole keys mends these. So ranks are exact for
float32, and among equal scores the less relevant comes first. Where one far score stretches the
range and the rest fall into few steps, insertion would be slow: then five more passes sort
all bits.
"""

import numpy as np

from hgld.ranking.compiled import Array, fast, kernel

__all__ = ["rank_row"]

DIGIT = np.uint64(12)
HEADS = 1 << 12
MASK = np.uint64(HEADS - 1)
BUCKET = np.uint64(40)  # where the place in the range begins
PLACES = (1 << 24) - 64  # rounding up stays below 2^24


@kernel
def rank_row(
    scores: Array,
    order: Array,
    starts: Array,
    ends: Array,
    own: int,
    keys: Array,
    more: Array,
    ranks: Array,
    found: Array,
    levels: Array,
    counts: Array,
) -> int:
    """Ranks and levels of a query's relevant images, best first; how many there are.

    Args:
        scores: (G,) float32.
        order: (G,) int32 place of each gallery image when sorted by label path.
        starts: (L,) first place of the query's own class at each level, coarse to fine.
        ends: (L,) place after the last.
        own: column of the query itself, -1 where it is not in the gallery.
        keys: room for (G,) uint64.
        more: room for (G,) uint64.
        ranks: (G,) int32, written.
        found: (G,) int8 levels, written.
        levels: room for (G,) uint8.
        counts: (L + 1,) int64 images of each level, written.

    Raises:
        ValueError: a score is nan or infinite.
    """
    if not all_finite(scores.view(np.uint32)):
        raise ValueError("scores hold nan or inf")
    size = make_keys(scores, order, starts, ends, own, keys, levels, counts)
    sort_keys(keys[:size], more[:size])
    m = 0
    for j in range(size):
        level = np.int8(keys[j] & np.uint64(0xFF))
        ranks[m] = j + 1
        found[m] = level
        if level > 0:
            m += 1
    return m


@kernel
def make_keys(
    scores: Array,
    order: Array,
    starts: Array,
    ends: Array,
    own: int,
    keys: Array,
    levels: Array,
    counts: Array,
) -> int:
    """Keys of all images but the query itself, and how many stand on each level."""
    size = len(scores)
    low, high = extremes(scores)
    scale = np.float32(PLACES) / (high - low) if high > low else np.float32(0.0)
    scale = min(scale, np.float32(1e30))
    levels[:] = 0
    before = size
    for v in range(starts.shape[0]):
        inside = add_level(order, np.uint32(starts[v]), np.uint32(ends[v] - starts[v]), levels)
        counts[v] = before - inside
        before = inside
    counts[starts.shape[0]] = before
    fill_keys(scores, scores.view(np.uint32), levels, high, scale, keys)
    if own >= 0:
        counts[levels[own]] -= 1
        size = size - 1
        keys[own] = keys[size]
    return size


@fast
def all_finite(bits: Array) -> bool:
    """Whether no score, given by its bits, is nan or infinite."""
    largest = np.uint32(0)
    for j in range(bits.shape[0]):
        largest = max(largest, bits[j] & np.uint32(0x7FFFFFFF))
    return bool(largest < np.uint32(0x7F800000))


@fast
def extremes(scores: Array) -> tuple[float, float]:
    """Lowest and highest score."""
    low, high = scores[0], scores[0]
    for j in range(scores.shape[0]):
        s = scores[j]
        low = s if s < low else low
        high = s if s > high else high
    return low, high


@fast
def add_level(order: Array, start: int, width: int, levels: Array) -> int:
    """Add 1 to the level of each image in a range of places; how many there are."""
    inside = np.uint32(0)
    for j in range(order.shape[0]):
        here = np.uint32(order[j]) - start < width
        levels[j] += np.uint8(here)
        inside += np.uint32(here)
    return int(inside)


@kernel
def fill_keys(
    scores: Array, bits: Array, levels: Array, high: float, scale: float, keys: Array
) -> None:
    """Place in the range, score in descending order, and level of each image as one number."""
    for j in range(scores.shape[0]):
        b = bits[j] if bits[j] != np.uint32(0x80000000) else np.uint32(0)  # -0.0 is 0.0
        down = b if b >= np.uint32(0x80000000) else b ^ np.uint32(0x7FFFFFFF)
        step = np.uint32(np.int32((high - scores[j]) * scale))
        keys[j] = (
            (np.uint64(step) << np.uint64(40))
            | (np.uint64(down) << np.uint64(8))
            | np.uint64(levels[j])
        )


@kernel
def sort_keys(keys: Array, more: Array) -> None:
    """Sort ascending in place."""
    n = keys.shape[0]
    if n < 2:
        return
    low, high = np.zeros(HEADS, np.uint32), np.zeros(HEADS, np.uint32)
    for j in range(n):
        step = np.uint32(keys[j] >> BUCKET)
        low[step & np.uint32(HEADS - 1)] += np.uint32(1)
        high[step >> np.uint32(12)] += np.uint32(1)
    scatter(keys, more, low, BUCKET)
    scatter(more, keys, high, BUCKET + DIGIT)
    if not mend(keys, 2 * n):
        for digit in range(6):  # 72 bits: an even number of passes ends in keys
            shift = np.uint64(digit) * DIGIT
            source, target = (keys, more) if digit % 2 == 0 else (more, keys)
            low[:] = 0
            for j in range(n):
                low[(source[j] >> shift) & MASK] += np.uint32(1)
            scatter(source, target, low, shift)


@kernel
def scatter(source: Array, target: Array, heads: Array, shift: int) -> None:
    """Stable sort by twelve bits from ``shift``, given how often each value comes."""
    run = np.uint32(0)
    for b in range(HEADS):
        count = heads[b]
        heads[b] = run
        run += count
    for j in range(source.shape[0]):
        key = source[j]
        digit = (key >> np.uint64(shift)) & MASK
        spot = heads[digit]
        target[spot] = key
        heads[digit] = spot + np.uint32(1)


@kernel
def mend(keys: Array, most: int) -> bool:
    """Insertion sort of what is nearly in order; False where that takes too many moves."""
    moves = 0
    before = keys[0]
    for j in range(1, keys.shape[0]):
        key = keys[j]
        if key >= before:
            before = key
            continue
        i = j
        while i > 0 and keys[i - 1] > key:
            keys[i] = keys[i - 1]
            i -= 1
        keys[i] = key
        before = keys[j]
        moves += j - i
        if moves > most:
            return False
    return True
