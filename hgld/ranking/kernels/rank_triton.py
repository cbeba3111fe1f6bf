"""Rank a query's relevant images in a whole gallery by counting, in Triton.

A rank is a number of images above. The gallery is sorted by label path, so a query's relevant
images are one range of columns, and their levels are nested ranges in it. Only these are sorted:
into bins between their smallest and largest score (``span_scores``, ``count_bins``, ``start_bins``,
``fill_bins``), then inside the bins (``settle_bins``). Every other image finds its place between
two of them by its bin and a short search, and is counted there (``count_others``); running sums of
these counts are the ranks (``sum_ranks``). Counts are integers, so the order of the atomic
additions changes nothing.

Keys sort as the ranking does, smallest first: the higher score, then the lower level. A row's items
start at ``offsets``; its bins start at BINS times that, plus one for each row before it.
"""

import triton
import triton.language as tl

__all__ = [
    "count_bins",
    "count_others",
    "fill_bins",
    "settle_bins",
    "span_scores",
    "start_bins",
    "sum_ranks",
]


@triton.jit
def key_of(s, level):
    """Order-reversing bits of a float32 above 8 bits of level: an int64 >= 0."""
    bits = (s + 0.0).to(tl.int32, bitcast=True).to(tl.int64)  # + 0.0 turns -0.0 into 0.0
    rising = tl.where(bits < 0, -1 - (bits & 0x7FFFFFFF), bits)  # -2^31 .. 2^31 - 1
    return (0x7FFFFFFF - rising) * 256 + level


@triton.jit
def bin_of(s, top, scale, bins):
    """Bin of a score, 0 for the highest; it never decreases as scores decrease."""
    depth = (top - s) * scale
    depth = tl.where(depth > 0, tl.minimum(depth, 1e9), 0.0)  # also replaces nan, from 0 times inf
    return tl.minimum(depth.to(tl.int32), bins - 1)


@triton.jit
def relevant(scores, starts, ends, own, row, width, local, LEVELS: tl.constexpr):
    """Scores of a row's relevant images, and a mask of columns that have one (not the query)."""
    place = tl.load(starts + row * LEVELS) + local
    here = (place < tl.load(ends + row * LEVELS)) & (place != tl.load(own + row))
    return tl.load(scores + row.to(tl.int64) * width + place, mask=here, other=0.0), here, place


@triton.jit
def room_of(starts, ends, offsets, row, base, LEVELS: tl.constexpr, BINS: tl.constexpr):
    """Size of a row's range of columns, and the start of its items and of its bins."""
    size = tl.load(ends + row * LEVELS) - tl.load(starts + row * LEVELS)
    items = tl.load(offsets + row) - base
    return size, items, items * BINS + row


@triton.jit
def span_scores(
    scores, starts, ends, own, spans, width, LEVELS: tl.constexpr, BINS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Largest and smallest score of each row's relevant images, and bins per unit of score.

    Args:
        scores: (Q, N) float32, columns sorted by label path.
        starts: (Q, L) int32 first column of the query's class at each level, coarse to fine.
        ends: (Q, L) int32 the column after the last.
        own: (Q,) int32 column of the query itself, -1 if it is not in the gallery.
        spans: (Q, 3) float32, written.
        width: N.
        LEVELS: L.
        BINS: bins per relevant image.
        BLOCK: columns at a time.
    """
    row = tl.program_id(0)
    size = tl.load(ends + row * LEVELS) - tl.load(starts + row * LEVELS)
    low = tl.full([BLOCK], float("inf"), tl.float32)
    high = tl.full([BLOCK], -float("inf"), tl.float32)
    for start in range(0, size, BLOCK):
        local = start + tl.arange(0, BLOCK)
        s, here, _ = relevant(scores, starts, ends, own, row, width, local, LEVELS)
        low = tl.minimum(low, tl.where(here, s, float("inf")))
        high = tl.maximum(high, tl.where(here, s, -float("inf")))
    top = tl.max(high, 0)
    bottom = tl.min(low, 0)
    span = top - bottom
    tl.store(spans + row * 3, top)
    tl.store(spans + row * 3 + 1, bottom)
    tl.store(spans + row * 3 + 2, tl.where(span > 0, (size * BINS).to(tl.float32) / span, 0.0))


@triton.jit
def count_bins(
    scores, starts, ends, own, offsets, spans, bins, slots, width, base, LEVELS: tl.constexpr,
    BINS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Count the relevant images in each bin, into zeros; store each one's number in its bin.

    Args: as ``span_scores``; offsets: (Q,) int64, minus base; bins: int32 zeros; slots: int32.
    """
    row = tl.program_id(1)
    start = tl.program_id(0) * BLOCK
    size, items, first = room_of(starts, ends, offsets, row, base, LEVELS, BINS)
    if start < size:
        local = start + tl.arange(0, BLOCK)
        s, here, _ = relevant(scores, starts, ends, own, row, width, local, LEVELS)
        at = bin_of(s, tl.load(spans + row * 3), tl.load(spans + row * 3 + 2), size * BINS)
        slot = tl.atomic_add(bins + first + at, 1, mask=here, sem="relaxed")
        tl.store(slots + items + local, slot, mask=here)


@triton.jit
def start_bins(
    starts, ends, offsets, bins, most, base, LEVELS: tl.constexpr, BINS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Turn the counts of bins into their starts, in place; most: size of the fullest bin."""
    row = tl.program_id(0)
    size, _, first = room_of(starts, ends, offsets, row, base, LEVELS, BINS)
    seen = 0
    fullest = 0
    for start in range(0, size * BINS, BLOCK):
        at = start + tl.arange(0, BLOCK)
        count = tl.load(bins + first + at, mask=at < size * BINS, other=0)
        tl.store(bins + first + at, seen + tl.cumsum(count, 0) - count, mask=at < size * BINS)
        seen += tl.sum(count, 0)
        fullest = tl.maximum(fullest, tl.max(count, 0))
    tl.store(bins + first + size * BINS, seen)
    tl.store(most + row, fullest)


@triton.jit
def fill_bins(
    scores, starts, ends, own, offsets, spans, bins, slots, keys, width, base,
    LEVELS: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the keys of the relevant images in the order of their bins; keys: int64."""
    row = tl.program_id(1)
    start = tl.program_id(0) * BLOCK
    size, items, first = room_of(starts, ends, offsets, row, base, LEVELS, BINS)
    if start < size:
        local = start + tl.arange(0, BLOCK)
        s, here, place = relevant(scores, starts, ends, own, row, width, local, LEVELS)
        level = here.to(tl.int64)
        for at in tl.static_range(1, LEVELS):
            low = tl.load(starts + row * LEVELS + at)
            high = tl.load(ends + row * LEVELS + at)
            level += ((place >= low) & (place < high)).to(tl.int64)
        at = bin_of(s, tl.load(spans + row * 3), tl.load(spans + row * 3 + 2), size * BINS)
        spot = tl.load(bins + first + at, mask=here, other=0)
        spot += tl.load(slots + items + local, mask=here, other=0)
        tl.store(keys + items + spot, key_of(s, level), mask=here)


@triton.jit
def settle_bins(
    starts, ends, offsets, bins, most, keys, ranked, base, LEVELS: tl.constexpr,
    BINS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sort keys inside their bins: each compares with neighbours up to a bin's size away."""
    row = tl.program_id(1)
    start = tl.program_id(0) * BLOCK
    size, items, first = room_of(starts, ends, offsets, row, base, LEVELS, BINS)
    present = tl.load(bins + first + size * BINS)
    if start < present:
        at = start + tl.arange(0, BLOCK)
        key = tl.load(keys + items + at, mask=at < present, other=0)
        place = at
        for far in range(1, tl.load(most + row)):
            later = tl.load(keys + items + at + far, mask=at + far < present, other=1 << 62)
            past = (at >= far) & (at < present)
            sooner = tl.load(keys + items + at - far, mask=past, other=-1)
            place += (later < key).to(tl.int32) - (sooner > key).to(tl.int32)
        tl.store(ranked + items + place, key, mask=at < present)


@triton.jit
def count_others(
    scores, starts, ends, offsets, spans, bins, most, ranked, gaps, faults, width, base,
    LEVELS: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Count other images between neighbouring relevant ones, into zeros.

    Args: as the others; gaps: int32 zeros, images above an item and not above the item before it;
        faults: one int32, 1 if a score is nan or inf.
    """
    row = tl.program_id(1)
    size, items, first = room_of(starts, ends, offsets, row, base, LEVELS, BINS)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    s = tl.load(scores + row.to(tl.int64) * width + place, mask=place < width, other=0.0)
    wrong = tl.max((tl.abs(s) < float("inf")).to(tl.int32) ^ 1, 0)
    if wrong > 0:
        tl.store(faults, 1)
    low = tl.load(starts + row * LEVELS)
    other = (place < width) & ((place < low) | (place >= low + size))
    other = other & (s >= tl.load(spans + row * 3 + 1))  # the rest affects no rank
    present = tl.load(bins + first + size * BINS)
    if present > 0:
        at = bin_of(s, tl.load(spans + row * 3), tl.load(spans + row * 3 + 2), size * BINS)
        left = tl.load(bins + first + at, mask=other, other=0)
        right = tl.load(bins + first + at + 1, mask=other, other=0)
        key = key_of(s, 0)  # sorts before all relevant ones of the same score
        width_left = tl.load(most + row)
        while width_left > 0:
            open_ = other & (left < right)
            middle = (left + right) >> 1
            less = tl.load(ranked + items + middle, mask=open_, other=0) < key
            left = tl.where(open_ & less, middle + 1, left)
            right = tl.where(open_ & (less == 0), middle, right)
            width_left = width_left >> 1
        tl.atomic_add(gaps + items + left, 1, mask=other & (left < present), sem="relaxed")


@triton.jit
def sum_ranks(
    starts, ends, offsets, bins, ranked, gaps, levels, width, base, LEVELS: tl.constexpr,
    BINS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the levels of the relevant images at their ranks, from the counts between them.

    Args: as the others; levels: (Q, N) int8 by rank, written for relevant images.
    """
    row = tl.program_id(0)
    size, items, first = room_of(starts, ends, offsets, row, base, LEVELS, BINS)
    present = tl.load(bins + first + size * BINS)
    above = 0
    for start in range(0, present, BLOCK):
        at = start + tl.arange(0, BLOCK)
        here = at < present
        gap = tl.load(gaps + items + at, mask=here, other=0)
        place = above + tl.cumsum(gap, 0) + at  # rank - 1
        key = tl.load(ranked + items + at, mask=here, other=0)
        tl.store(levels + row.to(tl.int64) * width + place, (key & 255).to(tl.int8), mask=here)
        above += tl.sum(gap, 0)
