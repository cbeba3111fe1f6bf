"""Rank of every relevant image of a query, by one sort of all scores, in numba.

A key holds, from the top: the score's place among 2^23 even steps of the row's range, the score's
32 bits in descending order, and 8 bits of level. Two counting passes over the first part sort all
but neighbours in one step; an insertion pass over whole keys mends these. So ranks are exact for
float32, and among equal scores the less relevant comes first. Where one far score stretches the
range and the rest fall into few steps, insertion would be slow: then four passes over the rest of
the key sort all of it, since a place never falls as the bits of the score grow.
"""

import numpy as np

from hgld.ranking.kernels.compiled import Array, fast, kernel

__all__ = ["rank_row"]

BUCKET = 40  # bits below the place in the range
LOW, HIGH = 10, 13  # bits of the place in two digits: above ten, scattered writes leave the cache
PLACES = (1 << (LOW + HIGH)) - 64  # rounding up stays below 2^23


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

    Raises:
        ValueError: a score is nan or infinite.
    """
    span = np.empty(2, np.int32)
    if not find_span(scores.view(np.int32), span):
        raise ValueError("scores hold nan or inf")
    find_levels(order, starts, ends, levels)
    fill_keys(scores, scores.view(np.uint32), levels, span.view(np.float32), keys)
    size = len(scores)
    if own >= 0:
        size -= 1
        keys[own] = keys[size]
    sort_keys(keys[:size], more[:size])
    m = 0
    for j in range(size):
        level = np.int8(keys[j] & np.uint64(0xFF))
        ranks[m] = j + 1
        found[m] = level
        if level > 0:
            m += 1
    return m


@fast
def find_span(bits: Array, span: Array) -> bool:
    """Bits of the least and greatest score, given all by theirs; False where one is no number.

    With the lower bits of negative ones turned, bits grow as the scores do; nan and inf lie beyond
    all numbers.
    """
    low, high = np.int32(0x7FFFFFFF), np.int32(-0x80000000)
    for j in range(bits.shape[0]):
        b = bits[j]
        rising = b ^ ((b >> np.int32(31)) & np.int32(0x7FFFFFFF))
        low, high = min(low, rising), max(high, rising)
    span[0] = low ^ ((low >> np.int32(31)) & np.int32(0x7FFFFFFF))
    span[1] = high ^ ((high >> np.int32(31)) & np.int32(0x7FFFFFFF))
    return bool(high < np.int32(0x7F800000) and low > np.int32(-0x7F800001))


@kernel
def find_levels(order: Array, starts: Array, ends: Array, levels: Array) -> None:
    """Level of each image, from its place and the nested ranges of the query's classes."""
    levels[:] = 0
    for v in range(starts.shape[0]):
        add_level(order, np.uint32(starts[v]), np.uint32(ends[v] - starts[v]), levels)


@fast
def add_level(order: Array, start: int, width: int, levels: Array) -> None:
    """Add 1 to the level of each image in a range of places."""
    for j in range(order.shape[0]):
        levels[j] += np.uint8(np.uint32(order[j]) - start < width)


@kernel
def fill_keys(scores: Array, bits: Array, levels: Array, span: Array, keys: Array) -> None:
    """Place in the range, score in descending order, and level of each image as one number."""
    low, high = span[0], span[1]
    scale = np.float32(PLACES) / (high - low) if high > low else np.float32(0.0)
    scale = min(scale, np.float32(1e30))
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
    low, high = np.zeros(1 << LOW, np.uint32), np.zeros(1 << HIGH, np.uint32)
    count_digits(keys, BUCKET, low)
    count_digits(keys, BUCKET + LOW, high)
    scatter(keys, more, BUCKET, low)
    scatter(more, keys, BUCKET + LOW, high)
    if not mend(keys, 2 * n):
        for digit in range(BUCKET // LOW):  # an even number of passes ends in keys
            source, target = (keys, more) if digit % 2 == 0 else (more, keys)
            low[:] = 0
            count_digits(source, digit * LOW, low)
            scatter(source, target, digit * LOW, low)


@kernel
def count_digits(keys: Array, shift: int, heads: Array) -> None:
    """Add to ``heads`` how often each digit from ``shift`` comes."""
    mask = np.uint64(heads.shape[0] - 1)
    for j in range(keys.shape[0]):
        heads[(keys[j] >> np.uint64(shift)) & mask] += np.uint32(1)


@kernel
def scatter(source: Array, target: Array, shift: int, heads: Array) -> None:
    """Stable sort by the digit from ``shift``, given how often each value comes."""
    run = np.uint32(0)
    for b in range(heads.shape[0]):
        count = heads[b]
        heads[b] = run
        run += count
    mask = np.uint64(heads.shape[0] - 1)
    for j in range(source.shape[0]):
        key = source[j]
        digit = (key >> np.uint64(shift)) & mask
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
