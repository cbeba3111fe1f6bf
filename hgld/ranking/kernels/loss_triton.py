"""The Sup-losses of rows of scores from all pairs of positives and gallery, in Triton.

A GPU computes a pair faster than it moves one: without sort or window, each pair's step and slope
are computed and summed in registers. The weight of a positive's slope depends on its rank alone, so
if a whole row fits the registers of one program (``whole_rows``), forward and backward are one loop
over the positives, a few at a time. A wider row takes two: ``weigh_positives`` computes ranks and
weights, ``spread_slopes`` the gradient of each column. No two programs add to one address, so
results are reproducible bit by bit. A column outside the gallery has score -inf here: it is above
nothing and adds nothing.

``bound_rows`` and ``count_images`` validate scores and levels before a loss with one read each. In
torch these are a dozen small operations and three GPU synchronisations, which cost as much as the
loss of a batch of a thousand.
"""

import triton
import triton.language as tl

__all__ = [
    "bound_rows",
    "count_images",
    "list_positives",
    "spread_slopes",
    "weigh_positives",
    "whole_rows",
]


@triton.jit
def bound_rows(scores, levels, found, width, BLOCK: tl.constexpr):
    """Smallest and largest level of each row, and whether a score is nan or inf.

    Args:
        scores: (Q, N) floats.
        levels: (Q, N) integers.
        found: (Q, 3) int64, written: smallest, largest, 1 if a score is nan or inf.
        width: N.
        BLOCK: columns at a time.
    """
    row = tl.program_id(0).to(tl.int64)
    # 127 is the largest int8, so lanes beyond the row change no minimum.
    low = tl.full([BLOCK], 127, tl.int64)
    high = tl.full([BLOCK], -1, tl.int64)
    wrong = tl.zeros([BLOCK], tl.int32)
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        level = tl.load(levels + row * width + at, mask=at < width, other=0).to(tl.int64)
        low = tl.minimum(low, tl.where(at < width, level, 127))
        high = tl.maximum(high, tl.where(at < width, level, -1))
        s = tl.load(scores + row * width + at, mask=at < width, other=0.0)
        # A comparison with nan is false, so one test finds nan and inf.
        wrong |= (tl.abs(s) < float("inf")).to(tl.int32) ^ 1
    tl.store(found + row * 3, tl.min(low, 0))
    tl.store(found + row * 3 + 1, tl.max(high, 0))
    tl.store(found + row * 3 + 2, tl.max(wrong, 0).to(tl.int64))


@triton.jit
def count_images(
    levels, counts, width, num_levels, STEPS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Count the images on each level of each row.

    Args:
        levels: (Q, N) integers; -1 is not in the gallery.
        counts: (Q, L + 1) int64, written, level 0 first.
        width: N.
        num_levels: L.
        STEPS: a power of two above L.
        BLOCK: columns at a time.
    """
    row = tl.program_id(0).to(tl.int64)
    step = tl.arange(0, STEPS)
    count = tl.zeros([STEPS], tl.int32)
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        level = tl.load(levels + row * width + at, mask=at < width, other=-1).to(tl.int32)
        count += tl.sum((level[:, None] == step[None, :]).to(tl.int32), 0)
    here = counts + row * (num_levels + 1) + step
    tl.store(here, count.to(tl.int64), mask=step <= num_levels)


@triton.jit
def list_positives(
    levels,
    rel,
    discounts,
    columns,
    sizes,
    scales,
    width,
    rel_stride,
    KIND: tl.constexpr,
    BY_LEVEL: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the columns of each row's positives, their number, and the divisor of their sum.

    Args:
        levels: (Q, N) int8; -1 is not in the gallery.
        rel: (Q, L + 1) float64 by level, or (Q, N) by pair if not BY_LEVEL.
        discounts: sums of 1 / log2(1 + rank), float64, for DCG.
        columns: (Q, N) int32, written up to the row's size.
        sizes: (Q,) int32, written.
        scales: (Q,) written: all relevance, the ideal DCG, or the positives.
        width: N.
        rel_stride: distance of two rows of rel.
        KIND: 0 ratio, 1 dcg, 2 recall.
        BY_LEVEL: whether rel is by level.
        LEVELS: a power of two above L.
        BLOCK: columns at a time.
    """
    row = tl.program_id(0).to(tl.int64)
    base = row * width
    step = tl.arange(0, LEVELS)
    counts = tl.zeros([LEVELS], tl.int32)
    pooled = tl.zeros([BLOCK], tl.float64)
    seen = 0
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        level = tl.load(levels + base + at, mask=at < width, other=0).to(tl.int32)
        hit = (level > 0).to(tl.int32)
        # The running count is each positive's place, so no two lanes write one address.
        tl.store(columns + base + seen + tl.cumsum(hit, 0) - 1, at, mask=level > 0)
        seen += tl.sum(hit, 0)
        if BY_LEVEL:
            counts += tl.sum((level[:, None] == step[None, :]).to(tl.int32), 0)
        else:
            pooled += tl.load(rel + row * rel_stride + at, mask=level > 0, other=0.0).to(tl.float64)
    tl.store(sizes + row, seen)
    if KIND == 2:
        scale = seen.to(tl.float64)
    elif not BY_LEVEL:
        scale = tl.sum(pooled, 0)
    else:
        counts = tl.where(step > 0, counts, 0)
        here = counts > 0
        worth = tl.load(rel + row * rel_stride + step, mask=here, other=0.0)
        if KIND == 0:
            scale = tl.sum(worth * counts.to(tl.float64), 0)
        else:  # finest first
            # The ideal order is finest first: a level ranks behind all finer ones.
            above = seen - tl.cumsum(counts, 0)
            until = tl.load(discounts + above + counts, mask=here, other=0.0)
            scale = tl.sum(worth * (until - tl.load(discounts + above, mask=here, other=0.0)), 0)
    tl.store(scales + row, scale.to(scales.dtype.element_ty))


@triton.jit
def h_minus(
    t,
    TAU: tl.constexpr,
    RHO: tl.constexpr,
    DELTA: tl.constexpr,
    START: tl.constexpr,
    LINE: tl.constexpr,
):
    """H-minus minus the exact step, and tau times its slope, at t = s_j - s_k.

    Beyond DELTA it is RHO t + LINE; RHO below 0 means the plain sigmoid. The caller adds ``t >= 0``
    for all pairs: a pair of a lower level then counts H-minus and any other pair the exact step,
    which saves one mask per pair.
    """
    # exp in base 2, for which GPUs have an instruction; the constant is log2(e).
    power = tl.exp2(t * (-1.4426950408889634 / TAU)) + 1.0
    if t.dtype == tl.float32:
        sigma = tl.rsqrt(power * power)  # one instruction; a division takes five
    else:
        sigma = 1.0 / power
    slope = sigma - sigma * sigma
    if RHO >= 0:
        far = t > DELTA
        slope = tl.where(far, RHO * TAU, slope)
        near = tl.where(t >= 0, sigma + (START - 1.0), sigma)
        sigma = tl.where(far, t * RHO + (LINE - 1.0), near)
    else:
        sigma = tl.where(t >= 0, sigma - 1.0, sigma)
    return sigma, slope


@triton.jit
def lower_than(s, level, s_k, level_k):
    """Differences s_j - s_k, (targets, sources); -inf unless j has a lower level than k."""
    return tl.where(level[None, :] < level_k[:, None], s[None, :], -float("inf")) - s_k[:, None]


@triton.jit
def weigh(
    rank,
    shared,
    worth,
    scale,
    ks,
    num_ks,
    KIND: tl.constexpr,
    TEMPERATURE: tl.constexpr,
):
    """Value of each positive, and its derivative by the rank, negated."""
    if KIND == 0:
        value = shared / rank / scale
        weight = value / rank
    elif KIND == 1:
        log = tl.log2(1.0 + rank)
        value = worth / log / scale
        weight = value / (0.6931471805599453 * (1.0 + rank) * log)
    else:
        value = rank * 0.0
        weight = rank * 0.0
        for i in range(num_ks):
            cut = tl.load(ks + i).to(rank.dtype)
            share = 1.0 / (1.0 + tl.exp((rank - cut) / TEMPERATURE))
            part = tl.minimum(cut, scale) * num_ks
            value += share / part
            weight += share * (1.0 - share) / TEMPERATURE / part
    return value, weight


@triton.jit
def worth_of(rel, row, rel_stride, column, level, BY_LEVEL: tl.constexpr):
    """Relevance of columns; 0 if the level is 0 or -1."""
    at = level if BY_LEVEL else column
    return tl.load(rel + row * rel_stride + at, mask=level > 0, other=0.0)


@triton.jit
def whole_rows(
    scores,
    levels,
    rel,
    columns,
    sizes,
    scales,
    ks,
    losses,
    gradient,
    width,
    rel_stride,
    num_ks,
    KIND: tl.constexpr,
    BY_LEVEL: tl.constexpr,
    TEMPERATURE: tl.constexpr,
    TAU: tl.constexpr,
    RHO: tl.constexpr,
    DELTA: tl.constexpr,
    START: tl.constexpr,
    LINE: tl.constexpr,
    TARGETS: tl.constexpr,
    SOURCES: tl.constexpr,
):
    """Loss and gradient of one row per program; the row must fit its registers.

    Args: as ``list_positives``; TARGETS positives at a time; SOURCES: a power of two, N at least.
    """
    row = tl.program_id(0).to(tl.int64)
    base = row * width
    at = tl.arange(0, SOURCES)
    level = tl.load(levels + base + at, mask=at < width, other=-1).to(tl.int32)
    s = tl.load(scores + base + at, mask=level >= 0, other=-float("inf"))
    if KIND == 0:
        worth = worth_of(rel, row, rel_stride, at, level, BY_LEVEL).to(s.dtype)
    size = tl.load(sizes + row)
    scale = tl.load(scales + row)
    size = tl.where(scale > 0, size, 0)
    gains = tl.zeros([TARGETS], s.dtype)
    slopes = tl.zeros([SOURCES], s.dtype)
    for start in range(0, size, TARGETS):
        k = start + tl.arange(0, TARGETS)
        real = k < size
        column = tl.load(columns + base + k, mask=real, other=0)
        s_k = tl.load(scores + base + column, mask=real, other=float("inf"))
        level_k = tl.load(levels + base + column, mask=real, other=0).to(tl.int32)
        worth_k = worth_of(rel, row, rel_stride, column, level_k, BY_LEVEL).to(s.dtype)
        t = lower_than(s, level, s_k, level_k)  # (TARGETS, SOURCES)
        above = s[None, :] >= s_k[:, None]
        value, slope = h_minus(t, TAU, RHO, DELTA, START, LINE)
        rank = tl.sum(value + above.to(s.dtype), 1)
        shared = rank
        if KIND == 0:
            both = tl.minimum(worth[None, :], worth_k[:, None])
            shared = tl.sum(tl.where(above, both, 0.0), 1)
        total = tl.sum(slope, 1)
        gain, weight = weigh(rank, shared, worth_k, scale, ks, num_ks, KIND, TEMPERATURE)
        weight = tl.where(real, weight / TAU, 0.0)
        gains += tl.where(real, gain, 0.0)
        slopes += tl.sum(weight[:, None] * slope, 0)
        tl.store(gradient + base + column, -weight * total, mask=real)
    tl.debug_barrier()  # writes of all threads must be visible before they are read below
    own = tl.load(gradient + base + at, mask=(level > 0) & (size > 0), other=0.0)
    tl.store(gradient + base + at, tl.where(level >= 0, slopes + own, 0.0), mask=at < width)
    tl.store(losses + row, tl.where(size > 0, 1.0 - tl.sum(gains, 0), 0.0))


@triton.jit
def weigh_positives(
    scores,
    levels,
    rel,
    columns,
    sizes,
    scales,
    ks,
    parts,
    weights,
    gradient,
    width,
    rel_stride,
    num_ks,
    KIND: tl.constexpr,
    BY_LEVEL: tl.constexpr,
    TEMPERATURE: tl.constexpr,
    TAU: tl.constexpr,
    RHO: tl.constexpr,
    DELTA: tl.constexpr,
    START: tl.constexpr,
    LINE: tl.constexpr,
    TARGETS: tl.constexpr,
    SOURCES: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Write the weights of a row's positives, and their own part of the gradient.

    PARTS programs share a row; each writes the sum of its values to parts, (Q, PARTS).
    weights: (Q, N), written in the order of columns.
    """
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    base = row * width
    scale = tl.load(scales + row)
    size = tl.where(scale > 0, tl.load(sizes + row), 0)
    dtype = scores.dtype.element_ty
    gains = tl.zeros([TARGETS], dtype)
    for start in range(part * TARGETS, size, PARTS * TARGETS):
        k = start + tl.arange(0, TARGETS)
        real = k < size
        column = tl.load(columns + base + k, mask=real, other=0)
        s_k = tl.load(scores + base + column, mask=real, other=float("inf"))
        level_k = tl.load(levels + base + column, mask=real, other=0).to(tl.int32)
        worth_k = worth_of(rel, row, rel_stride, column, level_k, BY_LEVEL).to(dtype)
        rank = tl.zeros([TARGETS], dtype)
        shared = tl.zeros([TARGETS], dtype)
        total = tl.zeros([TARGETS], dtype)
        for first in range(0, width, SOURCES):
            at = first + tl.arange(0, SOURCES)
            level = tl.load(levels + base + at, mask=at < width, other=-1).to(tl.int32)
            s = tl.load(scores + base + at, mask=level >= 0, other=-float("inf"))
            t = lower_than(s, level, s_k, level_k)  # (TARGETS, SOURCES)
            above = s[None, :] >= s_k[:, None]
            value, slope = h_minus(t, TAU, RHO, DELTA, START, LINE)
            rank += tl.sum(value + above.to(dtype), 1)
            total += tl.sum(slope, 1)
            if KIND == 0:
                worth = worth_of(rel, row, rel_stride, at, level, BY_LEVEL).to(dtype)
                both = tl.minimum(worth[None, :], worth_k[:, None])
                shared += tl.sum(tl.where(above, both, 0.0), 1)
        gain, weight = weigh(rank, shared, worth_k, scale, ks, num_ks, KIND, TEMPERATURE)
        weight = tl.where(real, weight / TAU, 0.0)
        gains += tl.where(real, gain, 0.0)
        tl.store(weights + base + k, weight, mask=real)
        tl.store(gradient + base + column, -weight * total, mask=real)
    tl.store(parts + row * PARTS + part, tl.sum(gains, 0))


@triton.jit
def spread_slopes(
    scores,
    levels,
    columns,
    sizes,
    scales,
    parts,
    weights,
    losses,
    gradient,
    width,
    TAU: tl.constexpr,
    RHO: tl.constexpr,
    DELTA: tl.constexpr,
    START: tl.constexpr,
    LINE: tl.constexpr,
    TARGETS: tl.constexpr,
    SOURCES: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Gradient of SOURCES columns of a row per program, after ``weigh_positives``; and losses."""
    row = tl.program_id(0).to(tl.int64)
    base = row * width
    size = tl.where(tl.load(scales + row) > 0, tl.load(sizes + row), 0)
    at = tl.program_id(1) * SOURCES + tl.arange(0, SOURCES)
    level = tl.load(levels + base + at, mask=at < width, other=-1).to(tl.int32)
    s = tl.load(scores + base + at, mask=level >= 0, other=-float("inf"))
    slopes = tl.zeros([SOURCES], s.dtype)
    for start in range(0, size, TARGETS):
        k = start + tl.arange(0, TARGETS)
        real = k < size
        column = tl.load(columns + base + k, mask=real, other=0)
        s_k = tl.load(scores + base + column, mask=real, other=float("inf"))
        level_k = tl.load(levels + base + column, mask=real, other=0).to(tl.int32)
        weight = tl.load(weights + base + k, mask=real, other=0.0)
        t = lower_than(s, level, s_k, level_k)
        _, slope = h_minus(t, TAU, RHO, DELTA, START, LINE)
        slopes += tl.sum(weight[:, None] * slope, 0)
    own = tl.load(gradient + base + at, mask=(level > 0) & (size > 0), other=0.0)
    tl.store(gradient + base + at, tl.where(level >= 0, slopes + own, 0.0), mask=at < width)
    if tl.program_id(1) == 0:
        gains = tl.sum(tl.load(parts + row * PARTS + tl.arange(0, PARTS)), 0)
        tl.store(losses + row, tl.where(size > 0, 1.0 - gains, 0.0))
