"""The Sup-losses of a row of scores by sorting and a narrow window of pairs, in numba.

For one positive k, sources far above it (t > delta) lie on the straight part of H-minus, so prefix
sums of sorted scores serve them all; sources far below (t < -W) add nothing that a float can hold;
only what lies between needs a sigmoid, and one exponential per **score** serves every pair:
sigma((s_j - s_k) / tau) = 1 / (1 + F_k G_j) with G_j = exp(-(s_j - c) / tau) and F_k = 1 / G_k.
The weight of k's slope depends on its rank alone, so forward and backward are one walk.

Dropping t < -W changes a rank by less than N exp(-W / tau): W is 28 tau in float32, 35 tau in
float64. exp must not overflow: where a row's range is wide, G is float64, and where it is wider
still each pair has its own exponential.
"""

import numpy as np

from hgld.ranking.compiled import Array, fast, kernel

__all__ = ["sup_rows"]

RATIO, DCG, RECALL = 0, 1, 2
QUARTERS = np.exp(-np.arange(700) / 4.0)


@kernel
def sup_rows(
    scores: Array,
    levels: Array,
    table: Array,
    kind: int,
    step: Array,
    ks: Array,
    temperature: float,
    discounts: Array,
    losses: Array,
    gradient: Array,
    reach: float,
) -> None:
    """Losses (Q,) and gradients (Q, N) of rows of scores, written in place.

    Args:
        scores: (Q, N) float32 or float64, finite.
        levels: (Q, N) int8; -1 is not in the gallery.
        table: (Q, L + 1) float64 relevance or gain of each level.
        kind: RATIO, DCG or RECALL.
        step: tau, rho, delta, jump at 0, value beyond delta, float64; rho < 0 is a plain sigmoid.
        ks: cut-offs of RECALL, float64.
        temperature: of RECALL.
        discounts: (N + 1,) running sums of 1 / log2(1 + rank), for DCG.
        losses: (Q,) float64, written.
        gradient: (Q, N) in the dtype of the scores, written.
        reach: W / tau.
    """
    n = scores.shape[1]
    size = table.shape[1]
    counts = np.empty(size, np.int64)
    seen = np.empty(size, np.int64)
    val = np.empty(n, scores.dtype)
    col = np.empty(n, np.int32)
    lev = np.empty(n, np.int8)
    spare = np.empty(n, np.int32)
    keys = np.empty(n, np.uint32)
    more = np.empty(n, np.uint32)
    near = np.empty(n, scores.dtype)  # G in the scores' dtype
    wide = np.empty(n, np.float64)  # G where the range is wide
    s_val = np.empty(n, scores.dtype)
    s_near = np.empty(n, scores.dtype)
    s_wide = np.empty(n, np.float64)
    s_pos = np.empty(n, np.int32)
    slope = np.empty(n, scores.dtype)
    ds_s = np.empty(n, scores.dtype)
    ds = np.empty(n, np.float64)
    prefix = np.empty(n + 1, np.float64)
    linear = np.empty(n + 1, np.float64)
    single = 170.0 if scores.itemsize == 4 else 1400.0
    for i in range(scores.shape[0]):
        present = sort_row(scores[i], levels[i], val, col, lev, spare, keys, more, counts)
        gradient[i, :] = 0
        losses[i] = 0.0
        scale = normaliser(table[i], counts, kind, discounts)
        positives = present - counts[0]
        if positives == 0 or scale <= 0.0:
            continue
        span = (np.float64(val[present - 1]) - np.float64(val[0])) / step[0]
        mode = 0 if span <= single else (1 if span <= 1400.0 else 2)
        exponentials(val, present, step[0], span, mode, near, wide)
        ds[:present] = 0.0
        total = 0.0
        for level in range(1, size):
            if counts[level] == 0:
                continue
            m = 0
            run = 0.0
            prefix[0] = 0.0
            for j in range(present):
                if lev[j] < level:
                    s_val[m] = val[j]
                    s_pos[m] = j
                    if mode == 0:
                        s_near[m] = near[j]
                    else:
                        s_wide[m] = wide[j]
                    run += np.float64(val[j])
                    ds_s[m] = 0
                    linear[m] = 0.0
                    m += 1
                    prefix[m] = run
            linear[m] = 0.0
            if mode == 0:
                total += walk(
                    level, val, lev, present, near, s_val, s_near, m, prefix, linear, ds_s, slope,
                    ds, table[i], seen, kind, step, ks, temperature, positives, scale, reach, False,
                )  # fmt: skip
            else:
                total += walk(
                    level, val, lev, present, wide, s_val, s_wide, m, prefix, linear, ds_s, slope,
                    ds, table[i], seen, kind, step, ks, temperature, positives, scale, reach,
                    mode == 2,
                )  # fmt: skip
            run = 0.0
            for j in range(m):
                run += linear[j]
                ds[s_pos[j]] += np.float64(ds_s[j]) + run
        losses[i] = 1.0 - total
        for j in range(present):
            gradient[i, col[j]] = ds[j]


@kernel
def exponentials(
    val: Array, present: int, tau: float, span: float, mode: int, near: Array, wide: Array
) -> None:
    """exp(-s / tau) up to a factor of the row: in the scores' dtype (mode 0) or float64 (1)."""
    low = np.float64(val[0])
    if mode == 0 and val.itemsize == 4:
        start = np.exp(span / 2.0)
        for j in range(present):  # quarters of tau from a table, the rest by a series
            place = (np.float64(val[j]) - low) / tau
            quarter = np.int64(place * 4.0)
            near[j] = start * QUARTERS[quarter] * small_exp(quarter * 0.25 - place)
    elif mode < 2:
        for j in range(present):
            e = np.exp(span / 2.0 - (np.float64(val[j]) - low) / tau)
            if mode == 0:
                near[j] = e
            else:
                wide[j] = e


@kernel
def walk(
    level: int,
    val: Array,
    lev: Array,
    present: int,
    g: Array,
    s_val: Array,
    s_g: Array,
    m: int,
    prefix: Array,
    linear: Array,
    ds_s: Array,
    slope: Array,
    ds: Array,
    rel: Array,
    seen: Array,
    kind: int,
    step: Array,
    ks: Array,
    temperature: float,
    positives: int,
    scale: float,
    reach: float,
    each: bool,
) -> float:
    """Metric of the positives of one level, best first; adds their slopes to ds, ds_s, linear.

    s_*: the m sources of a lower level, ascending; each: an exponential for each pair.
    """
    tau, rho, delta, jump, end = step[0], step[1], step[2], step[3], step[4]
    plain = rho < 0.0
    window = reach * tau
    seen[:] = 0
    lo, mid, hi = m, m, m
    group = present
    total = 0.0
    one = s_val.dtype.type(1)
    for k in range(present - 1, -1, -1):
        s = np.float64(val[k])
        if k < group:  # a new group of equal scores: all of it counts
            group = k
            while group >= 0 and val[group] == val[k]:
                if lev[group] >= 0:
                    seen[lev[group]] += 1
                group -= 1
            group += 1
        if lev[k] != level:
            continue
        rank = 0.0
        h_rank = 0.0
        for v in range(1, rel.shape[0]):
            if v >= level:
                rank += seen[v]
            h_rank += seen[v] * min(rel[v], rel[level])
        while mid > 0 and np.float64(s_val[mid - 1]) >= s:
            mid -= 1
        while lo > 0 and np.float64(s_val[lo - 1]) - s >= -window:
            lo -= 1
        if plain:
            while hi > 0 and np.float64(s_val[hi - 1]) - s > window:
                hi -= 1
        else:
            while hi > 0 and np.float64(s_val[hi - 1]) - s > delta:
                hi -= 1
        beyond = m - hi
        slopes = 0.0
        if lo < hi:
            if each:
                total_s, total_q = sigmoids_each(s_val[lo:hi], s, tau, slope)
            else:
                total_s, total_q = sigmoids(s_g[lo:hi], one / g[k], slope)
            rank += total_s
            slopes = total_q / tau
        if plain:
            rank += beyond
        else:
            rank += jump * (hi - mid) + end * beyond
            rank += rho * ((prefix[m] - prefix[hi]) - beyond * (s + delta))
            slopes += rho * beyond
        if kind == 0:
            value = h_rank / rank / scale
            weight = value / rank
        elif kind == 1:
            log = np.log2(1.0 + rank)
            value = rel[level] / log / scale
            weight = value / (np.log(2.0) * (1.0 + rank) * log)
        else:
            value, weight = recall_of(rank, ks, temperature, positives)
        total += value
        if weight != 0.0:
            if lo < hi:
                add_scaled(ds_s[lo:hi], slope, weight / tau)
            if not plain:
                linear[hi] += weight * rho
            ds[k] -= weight * slopes
    return total


@fast
def sigmoids(g: Array, f: float, slope: Array) -> tuple[float, float]:
    """Sums of sigma and of sigma (1 - sigma); each slope is kept."""
    one = g.dtype.type(1)
    total, slopes = g.dtype.type(0), g.dtype.type(0)
    f = g.dtype.type(f)
    for j in range(g.shape[0]):
        x = one / (one + f * g[j])
        y = x - x * x
        slope[j] = y
        total += x
        slopes += y
    return np.float64(total), np.float64(slopes)


@kernel
def sigmoids_each(values: Array, s: float, tau: float, slope: Array) -> tuple[float, float]:
    """As ``sigmoids`` with an exponential for each pair."""
    total, slopes = 0.0, 0.0
    for j in range(values.shape[0]):
        x = 1.0 / (1.0 + np.exp(-(np.float64(values[j]) - s) / tau))
        slope[j] = x - x * x
        total += x
        slopes += x - x * x
    return total, slopes


@fast
def add_scaled(target: Array, slope: Array, weight: float) -> None:
    """Add weight * slope to the target, element by element."""
    w = target.dtype.type(weight)
    for j in range(target.shape[0]):
        target[j] += w * slope[j]


@kernel
def recall_of(rank: float, ks: Array, temperature: float, positives: int) -> tuple[float, float]:
    """Value of one positive and minus its slope by the rank (Eq. 16), mean over the cut-offs."""
    value, weight = 0.0, 0.0
    for k in ks:
        x = 1.0 / (1.0 + np.exp(-(k - rank) / temperature))
        part = min(k, np.float64(positives)) * ks.shape[0]
        value += x / part
        weight += x * (1.0 - x) / temperature / part
    return value, weight


@kernel
def small_exp(x: float) -> float:
    """exp(x) for x in (-1/4, 0], to 1e-11."""
    y = 1.0 / 5040.0 + x * (1.0 / 40320.0)
    y = 1.0 / 120.0 + x * (1.0 / 720.0 + x * y)
    y = 1.0 / 6.0 + x * (1.0 / 24.0 + x * y)
    return 1.0 + x * (1.0 + x * (0.5 + x * y))


@kernel
def normaliser(rel: Array, counts: Array, kind: int, discounts: Array) -> float:
    """What the sum over positives is divided by: all relevance, or the ideal DCG."""
    total = 0.0
    if kind == 2:
        return 1.0
    if kind == 0:
        for level in range(1, rel.shape[0]):
            total += rel[level] * counts[level]
        return total
    place = 0
    for level in range(rel.shape[0] - 1, 0, -1):
        total += rel[level] * (discounts[place + counts[level]] - discounts[place])
        place += counts[level]
    return total


@kernel
def count_rows(levels: Array, counts: Array) -> None:
    """Images of each level in each row, into (Q, L + 1) zeros."""
    for i in range(levels.shape[0]):
        for j in range(levels.shape[1]):
            level = levels[i, j]
            if 0 <= level < counts.shape[1]:
                counts[i, level] += 1


@kernel
def sort_row(
    scores: Array,
    levels: Array,
    val: Array,
    col: Array,
    lev: Array,
    spare: Array,
    keys: Array,
    more: Array,
    counts: Array,
) -> int:
    """Scores of what is in the gallery, ascending, with columns and levels; how many there are."""
    counts[:] = 0
    m = 0
    for j in range(scores.shape[0]):
        if levels[j] >= 0:
            col[m] = j
            val[m] = scores[j]
            counts[levels[j]] += 1
            m += 1
    if scores.itemsize == 4:
        bits = val.view(np.uint32)
        for j in range(m):
            b = bits[j]
            flip = np.uint32(0xFFFFFFFF) if b >> np.uint32(31) else np.uint32(0x80000000)
            keys[j] = b ^ flip
        radix_sort(keys[:m], col[:m], more[:m], spare[:m])
    else:
        order = np.argsort(val[:m])
        for j in range(m):
            spare[j] = col[order[j]]
        col[:m] = spare[:m]
    for j in range(m):
        val[j] = scores[col[j]]
        lev[j] = levels[col[j]]
    return m


@kernel
def radix_sort(keys: Array, items: Array, more: Array, spare: Array) -> None:
    """Sort uint32 keys ascending with their items, stable, lowest digit first."""
    n = keys.shape[0]
    width = np.uint32(8) if n < 768 else np.uint32(11)
    passes = 4 if n < 768 else 3
    mask = np.uint32((1 << width) - 1)
    heads = np.empty(1 << width, np.int32)
    source, target, here, there = keys, more, items, spare
    shift = np.uint32(0)
    for _ in range(passes):
        heads[:] = 0
        for j in range(n):
            heads[(source[j] >> shift) & mask] += 1
        run = np.int32(0)
        for b in range(heads.shape[0]):
            count = heads[b]
            heads[b] = run
            run += count
        for j in range(n):
            digit = (source[j] >> shift) & mask
            spot = heads[digit]
            heads[digit] = spot + 1
            target[spot] = source[j]
            there[spot] = here[j]
        source, target, here, there = target, source, there, here
        shift += width
    if passes == 3:  # an odd number of passes leaves the result in the other pair
        keys[:] = more
        items[:] = spare
