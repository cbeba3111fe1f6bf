"""Every metric of a query from the ranks and levels of its relevant images, in Triton.

One program reads a row's ranks, best first, for one metric; sums are float64. It is what
``lists.metric_row`` does on a CPU, in the words of the same plan: kind, level, cut-off, table.
"""

import triton
import triton.language as tl

__all__ = ["measure_level", "measure_levels"]


@triton.jit
def measure_level(
    ranks, levels, offsets, counts, specs, values, base, metrics, LEVELS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Metrics of the images at or above one level: AP, mAP@R, mAP@k, R@k, TR@k (kinds 0..4).

    Args:
        ranks: int32, ascending in a row, from ``offsets`` (less base) on.
        levels: int8, above 0.
        offsets: (Q,) int64.
        counts: (Q, L + 1) int32 images on each level.
        specs: (M', 5) int32 kind, level, cut-off, table, column of values.
        values: (Q, M) float64, written; nan where there is nothing to find.
        base: offset of the first row.
        metrics: M.
        LEVELS: L.
        BLOCK: images at a time.
    """
    row = tl.program_id(0)
    spec = specs + tl.program_id(1) * 5
    kind = tl.load(spec)
    level = tl.load(spec + 1)
    cut = tl.load(spec + 2)
    items = tl.load(offsets + row) - base
    total = 0
    present = 0
    for each in tl.static_range(1, LEVELS + 1):
        count = tl.load(counts + row * (LEVELS + 1) + each)
        present += count
        total += tl.where(level <= each, count, 0)
    limit = tl.where(kind == 0, 2147483647, tl.where(kind == 1, total, cut))
    precisions = tl.zeros([BLOCK], tl.float64)
    found = 0
    before = 0
    for start in range(0, present, BLOCK):
        at = start + tl.arange(0, BLOCK)
        rank = tl.load(ranks + items + at, mask=at < present, other=2147483647)
        hit = (tl.load(levels + items + at, mask=at < present, other=0) >= level).to(tl.int32)
        place = before + tl.cumsum(hit, 0)
        inside = (hit > 0) & (rank <= limit) & (at < present)
        precision = place.to(tl.float64) / rank.to(tl.float64)
        precisions += tl.where(inside, precision, 0.0)
        found += tl.sum(inside.to(tl.int32), 0)
        before += tl.sum(hit, 0)
    value = tl.sum(precisions, 0)
    share = tl.where(kind < 2, total, tl.minimum(cut, total)).to(tl.float64)
    value = tl.where(kind > 2, found.to(tl.float64), value) / share
    value = tl.where(kind == 3, (found > 0).to(tl.float64), value)
    value = tl.where(total > 0, value, float("nan"))
    tl.store(values + row.to(tl.int64) * metrics + tl.load(spec + 4), value)


@triton.jit
def gain_of(level):
    """2^level - 1, float64, exact."""
    return ((level.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True) - 1.0


@triton.jit
def measure_levels(
    ranks, levels, offsets, counts, specs, tables, logs, discounts, harmonic, values, base,
    metrics, longest, num_tables, LEVELS: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Metrics of all levels together: NDCG, ASI, H-AP, H-R@k, H-P@k (kinds 5..9).

    Args: as ``measure_level``;
        tables: (Q, T, L + 1) float64 relevance by level.
        logs: 1 / log2(1 + r) at index r, float64.
        discounts: sums of ``logs`` up to and with index r.
        harmonic: sums of 1 / r up to and with index r.
        longest: last index of these.
        num_tables: T.
        STEPS: a power of two above L.
    """
    row = tl.program_id(0)
    spec = specs + tl.program_id(1) * 5
    kind = tl.load(spec)
    cut = tl.load(spec + 2)
    items = tl.load(offsets + row) - base
    table = tables + (row.to(tl.int64) * num_tables + tl.load(spec + 3)) * (LEVELS + 1)
    step = tl.arange(0, STEPS)
    real = (step > 0) & (step <= LEVELS)
    count = tl.load(counts + row * (LEVELS + 1) + step, mask=real, other=0)
    rel = tl.load(table + step, mask=real, other=0.0)
    present = tl.sum(count, 0)
    finer = present - tl.cumsum(count, 0)  # images above a level: its first place in the ideal
    end = tl.where(cut == 0, longest, tl.minimum(cut, longest))
    stops = tl.load(discounts + tl.minimum(finer + count, end))
    ideal = gain_of(step) * (stops - tl.load(discounts + tl.minimum(finer, end)))
    worth = tl.sum(rel * count.to(tl.float64), 0)
    all_places = tl.load(harmonic + present)
    seen = tl.zeros([STEPS], tl.int32)
    sums = tl.zeros([BLOCK], tl.float64)
    last = tl.zeros([BLOCK], tl.float64)
    for start in range(0, present, BLOCK):
        at = start + tl.arange(0, BLOCK)
        here = at < present
        rank = tl.load(ranks + items + at, mask=here, other=1)
        level = tl.load(levels + items + at, mask=here, other=0).to(tl.int32)
        hits = (level[:, None] == step[None, :]) & real[None, :]  # (BLOCK, STEPS)
        whole = seen[None, :] + tl.cumsum(hits.to(tl.int32), 0)
        seen += tl.sum(hits.to(tl.int32), 0)
        own = tl.load(table + level, mask=here, other=0.0)
        inside = here & (rank <= end)
        if kind == 5:
            part = gain_of(level) * tl.load(logs + rank, mask=here, other=0.0)
        elif kind == 6:
            place = tl.sum(tl.where(hits, finer[None, :] + whole, 0), 1)
            inside = here & (rank <= present)
            both = tl.maximum(tl.maximum(rank, place), 1)
            part = all_places - tl.load(harmonic + both - 1, mask=inside, other=0.0)
        elif kind == 8:
            part = own
        else:
            shared = tl.minimum(rel[None, :], own[:, None]) * whole.to(tl.float64)
            part = tl.sum(shared, 1) / rank.to(tl.float64)
            last += tl.where(here & (rank == cut) & (own > 0), part / own, 0.0)
        sums += tl.where(inside, part, 0.0)
    value = tl.sum(sums, 0)
    value = tl.where(kind == 9, tl.sum(last, 0), value)
    share = tl.where(kind == 5, tl.sum(tl.where(real, ideal, 0.0), 0), worth)
    share = tl.where(kind == 6, present.to(tl.float64), share)
    valid = (present > 0) & (share > 0)
    value = value / tl.where(kind == 9, 1.0, share)
    value = tl.where(valid, value, float("nan"))
    tl.store(values + row.to(tl.int64) * metrics + tl.load(spec + 4), value)
