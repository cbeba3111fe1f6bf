"""All metrics of ranked levels, in numba: the only implementation, for rankings of every device.

AP at a level is a sum of i / r_i over the ranks r of the images at or above it. H-AP is a weighted
sum of such sums, since min(x, y) is the sum of the steps between distinct relevances that both x
and y reach. One pass over nested lists therefore gives all metrics of all levels. Sums are float64.
"""

import numpy as np

from hgld.compiled import Array, fast, inner, kernel

KINDS = {  # number of each metric; those up to ASI: are of one level
    "AP": 0, "MRR": 1, "mAP": 2, "R": 3, "TR": 4, "P": 5, "mMP": 6, "ASI:": 7, "NDCG": 8,
    "ASI": 9, "H-AP": 10, "wAP": 10, "H-R": 11, "H-P": 12, "MS": 13, "AHD": 14, "hP": 15, "hR": 16,
    "hF": 17, "HOPS": 18, "HC": 19, "HCA": 20,
}  # fmt: skip
AP, RECIPROCAL_RANK, RECALL, TRUE_RECALL, PRECISION, MODIFIED_PRECISION, ASI_AT_LEVEL = (
    KINDS[name] for name in ("AP", "MRR", "R", "TR", "P", "mMP", "ASI:")
)
NDCG, ASI, H_AP, H_RECALL, H_PRECISION = (
    KINDS[name] for name in ("NDCG", "ASI", "H-AP", "H-R", "H-P")
)
SEVERITY, DISTANCE, SET_PRECISION, SET_RECALL, SET_F, PREFERENCE = (
    KINDS[name] for name in ("MS", "AHD", "hP", "hR", "hF", "HOPS")
)
LISTED = 128  # images of a ranking that are skipped together if none is relevant


@kernel
def measure_rows(
    levels: Array,
    counts: Array,
    specs: Array,
    tables: Array,
    logs: Array,
    discounts: Array,
    harmonic: Array,
    ranks: Array,
    near: Array,
    found: Array,
    room: Array,
    values: Array,
) -> None:
    """Write the values of all metrics of ranked levels.

    The buffers have one entry more than any query has relevant images, P of them.

    Args:
        levels: (Q, G) integers by rank.
        counts: (Q, L + 1) int64 images of each level.
        specs: (M, 4) int64: kind, level, cut-off (0: none or R), table.
        tables: (Q, T, L + 1) float64 relevance by level.
        logs: 1 / log2(1 + r) at index r.
        discounts: sums of ``logs`` up to and including index r.
        harmonic: sums of 1 / r up to and including index r.
        ranks: (P,) int32 buffer for the ranks of the relevant images, ascending.
        near: (P,) int32 buffer for those at a level.
        found: (P,) buffer for the levels of the relevant images.
        room: (P,) buffer for those at a level.
        values: (Q, M) float64, written; nan if there is no relevant image.

    Raises:
        ValueError: the buffers are too short.
    """
    num_levels = counts.shape[1] - 1
    for q in range(levels.shape[0]):
        m = list_relevant(levels[q], ranks, found)
        sums = np.zeros(num_levels + 1)  # sum of i / r_i over the images at or above a level
        values[q] = np.nan
        size, here, marks = m, ranks[:m], found[:m]
        for level in range(1, num_levels + 1):
            if level > 1:
                size = keep_level(here, marks, near, room, level)
                here, marks = near[:size], room[:size]
            if size == 0:
                continue
            sums[level] = sum_of_precisions(here)
            for i in range(specs.shape[0]):
                kind, cut = specs[i, 0], specs[i, 2]
                if specs[i, 1] == level and kind <= ASI_AT_LEVEL:
                    values[q, i] = at_one_level(here, kind, cut, sums[level], harmonic)
        for i in range(specs.shape[0]):
            if specs[i, 0] > ASI_AT_LEVEL and m > 0:
                values[q, i] = over_levels(
                    ranks[:m], found[:m], counts[q], specs[i], tables[q], sums, logs, discounts,
                    harmonic,
                )  # fmt: skip


@inner
def list_relevant(levels: Array, ranks: Array, found: Array) -> int:
    """Write ranks and levels of the relevant images, best first; return their number."""
    m = np.uint64(0)
    for start in range(0, levels.shape[0], LISTED):
        stop = min(start + LISTED, levels.shape[0])
        here = count_relevant(levels[start:stop])
        if here == 0:
            continue
        if m + np.uint64(here) >= ranks.shape[0]:
            raise ValueError("more relevant images than counted")
        for j in range(np.uint64(start), np.uint64(stop)):  # unsigned: numba tests no index < 0
            # Branchless: every image is written, and kept only if m advances.
            ranks[m] = np.int32(j + np.uint64(1))
            found[m] = levels[j]
            m += np.uint64(levels[j] > 0)
    return int(m)


@fast
def count_relevant(levels: Array) -> int:
    """Return the number of relevant images."""
    m = np.int32(0)
    for j in range(levels.shape[0]):
        m += np.int32(levels[j] > 0)
    return int(m)


@kernel
def h_rank_plus_rows(levels: Array, tables: Array, shared: Array) -> None:
    """Write H-rank+ (Eq. 18) of each rank, 0 if the image there is not relevant.

    Args:
        levels: (Q, G) integers by rank.
        tables: (Q, L + 1) float64 relevance by level.
        shared: (Q, G) float64, written.
    """
    for q in range(levels.shape[0]):
        rel = tables[q]
        seen = np.zeros(rel.shape[0], np.int64)
        for j in range(levels.shape[1]):
            level = levels[q, j]
            shared[q, j] = 0.0
            if level > 0:
                seen[level] += 1
                shared[q, j] = relevance_up_to(seen, rel, rel[level])


@inner
def relevance_up_to(seen: Array, rel: Array, limit: float) -> float:
    """Sum of the relevance of images by level, of each at most the limit."""
    total = 0.0
    for level in range(1, rel.shape[0]):
        total += seen[level] * min(rel[level], limit)
    return total


@kernel
def precisions_at_recalls(
    levels: Array, counts: Array, tables: Array, recalls: Array, values: Array
) -> None:
    """Write H-P (Eq. 31) at the first rank where H-R (Eq. 30) reaches each recall.

    The area below this staircase is H-AP (Eq. 32).

    Args:
        levels: (Q, G) by rank.
        counts: (Q, L + 1) int64 images of each level.
        tables: (Q, L + 1) float64 relevance by level.
        recalls: (R,) ascending, at most 1.
        values: (Q, R) float64, written; nan if there is no relevant image.
    """
    for q in range(levels.shape[0]):
        rel, values[q] = tables[q], np.nan
        total, at = relevance_up_to(counts[q], rel, np.inf), 0
        seen = np.zeros(rel.shape[0], np.int64)
        for j in range(levels.shape[1]):
            level = levels[q, j]
            if level > 0 and rel[level] > 0.0:
                seen[level] += 1
                recall = relevance_up_to(seen, rel, np.inf) / total * (1.0 + 1e-12)  # rounding
                precision = relevance_up_to(seen, rel, rel[level]) / ((j + 1) * rel[level])
                while at < recalls.shape[0] and recall >= recalls[at]:
                    values[q, at] = precision
                    at += 1


@kernel
def vote_rows(paths: Array, images: Array, winners: Array) -> None:
    """Write the winner of each level; arguments as ``structure.find_winners``."""
    size, num_levels = paths.shape[1], paths.shape[2]
    for q in range(paths.shape[0]):
        most = np.zeros(num_levels, np.int64)
        there = min(size, images[q])
        for i in range(there):
            votes = np.zeros(num_levels + 1, np.int64)  # images by the length of their shared path
            for j in range(there):
                shared = 0
                while shared < num_levels and paths[q, i, shared] == paths[q, j, shared] != -1:
                    shared += 1
                votes[shared] += 1
            total = 0
            for level in range(num_levels - 1, -1, -1):
                total += votes[level + 1]
                if total > most[level]:
                    most[level], winners[q, level] = total, i


@inner
def keep_level(ranks: Array, levels: Array, near: Array, room: Array, level: int) -> int:
    """Copy the images at or above the level to ``near`` and ``room``; return their number."""
    m = 0
    for i in range(ranks.shape[0]):
        here = levels[i]
        near[m] = ranks[i]
        room[m] = here
        m += here >= level
    return m


@fast
def sum_of_precisions(ranks: Array) -> float:
    """Sum of i / r_i."""
    total = 0.0
    for i in range(ranks.shape[0]):
        total += (i + 1.0) / ranks[i]
    return total


@inner
def at_one_level(ranks: Array, kind: int, cut: int, total: float, harmonic: Array) -> float:
    """A metric of the images at or above one level."""
    size = ranks.shape[0]
    if kind == ASI_AT_LEVEL:
        # The i-th image is in both lists from the depth of its rank, which is at least i.
        overlap = 0.0
        for i in range(size):
            if ranks[i] <= size:
                overlap += harmonic[size] - harmonic[ranks[i] - 1]
        return float(overlap / size)
    if kind == AP:
        return float(total / size)
    if kind == RECALL:
        return 1.0 if ranks[0] <= cut else 0.0
    if kind == RECIPROCAL_RANK:
        return 1.0 / ranks[0] if cut == 0 or ranks[0] <= cut else 0.0
    if cut == 0:  # cut at R
        cut = size
    elif kind == MODIFIED_PRECISION:
        cut = min(cut, size)
    inside = np.searchsorted(ranks, cut + 1)
    if kind in (PRECISION, MODIFIED_PRECISION):
        return float(inside / cut)
    if kind == TRUE_RECALL:
        return float(inside / min(cut, size))
    return float(sum_of_precisions(ranks[:inside]) / min(cut, size))


@inner
def over_levels(
    ranks: Array,
    found: Array,
    counts: Array,
    spec: Array,
    tables: Array,
    sums: Array,
    logs: Array,
    discounts: Array,
    harmonic: Array,
) -> float:
    """A metric of all levels together."""
    kind, cut = spec[0], spec[2]
    if kind == NDCG:
        return float(ndcg(ranks, found, counts, cut, logs, discounts))
    if kind == ASI:
        return float(set_intersection(ranks, found, counts, harmonic))
    if kind > PREFERENCE:
        return np.nan  # of votes, which levels alone do not show
    if kind == PREFERENCE:
        return float(preference_score(ranks, found, counts, cut))
    if kind >= SEVERITY:
        return float(of_heights(ranks, found, counts, kind, cut))
    rel = tables[spec[3]]
    total = 0.0
    for level in range(1, rel.shape[0]):
        total += rel[level] * counts[level]
    if total <= 0.0:
        return np.nan
    if kind == H_RECALL:
        inside = np.searchsorted(ranks, cut + 1)
        part = 0.0
        for i in range(inside):
            part += rel[found[i]]
        return part / total
    if kind == H_PRECISION:
        at = np.searchsorted(ranks, cut)
        if at == ranks.shape[0] or ranks[at] != cut or rel[found[at]] <= 0.0:
            return 0.0
        part = 0.0
        for i in range(at + 1):
            part += min(rel[found[i]], rel[found[at]])
        return float(part / (cut * rel[found[at]]))
    return float(h_ap(ranks, found, counts, rel, sums) / total)


@inner
def of_heights(ranks: Array, found: Array, counts: Array, kind: int, cut: int) -> float:
    """A metric of the shared levels of the first images themselves."""
    height = counts.shape[0] - 1
    if kind == SEVERITY:
        level = found[0] if ranks[0] == 1 else 0
        if counts[height] == 0 or level == height:
            return np.nan
        return float((height - level) / height)
    shared, every, size = 0, 0, 0
    for i in range(np.searchsorted(ranks, cut + 1)):
        shared += found[i]
    for level in range(counts.shape[0]):
        every += level * counts[level]
        size += counts[level]
    if kind == DISTANCE:
        return float(1.0 - shared / (height * min(cut, size)))
    if kind == SET_PRECISION:
        return float(shared / (height * cut))
    if kind == SET_RECALL:
        return float(shared / every)
    return float(2.0 * shared / (height * cut + every))  # 2 P R / (P + R)


@inner
def preference_score(ranks: Array, found: Array, counts: Array, cut: int) -> float:
    """HOPS: 1 - the weighted distance from the ideal order, over that of its reverse.

    Only relevant images are listed, so all others are counted first, as whole stretches of the
    ideal order, and the listed ones are put right after.
    """
    size, kinds = 0, 0
    steps = np.zeros(counts.shape[0], np.int64)  # of each level among those there, finest first
    ends = np.zeros(counts.shape[0] + 1, np.int64)  # of their stretches of the ideal order
    for level in range(counts.shape[0] - 1, -1, -1):
        if counts[level]:
            size += counts[level]
            steps[level] = kinds
            kinds += 1
            ends[kinds] = size
    end, last = size if cut == 0 else min(cut, size), kinds - 1
    apart, worst = 0.0, 0.0
    for step in range(kinds):
        low, high = ends[step], min(ends[step + 1], end)
        apart += (last - step) * weights_between(low, high, step, ends, last)
        for other in range(kinds):  # in the reverse order at the same ranks
            start, stop = max(low, size - ends[other + 1]), min(high, size - ends[other])
            worst += abs(step - other) * weights_between(start, stop, step, ends, last)
    if worst <= 0.0:
        return np.nan  # all images are of one level
    step = 0
    for i in range(ranks.shape[0]):
        if ranks[i] > end:
            break
        while ends[step + 1] < ranks[i]:
            step += 1
        weight = weights_between(ranks[i] - 1, ranks[i], step, ends, last)
        apart += weight * (abs(step - steps[found[i]]) - (last - step))
    return float(max(0.0, 1.0 - apart / worst))


@inner
def weights_between(low: int, high: int, step: int, ends: Array, last: int) -> float:
    """Sum of HOPS's weights of the ranks low + 1 .. high, inside one stretch of the ideal order.

    1 in the first stretch; in stretch n they fall from 2^-n towards 2^-(n + 1), in the last to 0.
    """
    if high <= low:
        return 0.0
    value = 0.5**step
    fall = 0.0 if step == 0 else value if step == last else value / 2
    size, first = ends[step + 1] - ends[step], low - ends[step]
    number = high - low
    return float(number * (value - fall * (first + (number - 1) / 2) / size))


@inner
def h_ap(ranks: Array, found: Array, counts: Array, rel: Array, sums: Array) -> float:
    """Sum of H-rank+ / rank."""
    growing, last, total = True, 0.0, 0.0
    for level in range(1, rel.shape[0]):
        if counts[level] == 0:
            continue
        growing = growing and rel[level] >= last
        total += (rel[level] - last) * sums[level]
        last = rel[level]
    # The sums by level need relevance that grows with the level; else step through its values.
    if growing:
        return total
    total, last = 0.0, 0.0
    for _ in range(1, rel.shape[0]):
        step = np.inf  # the next distinct relevance
        for level in range(1, rel.shape[0]):
            if counts[level] and last < rel[level] < step:
                step = rel[level]
        if step == np.inf:
            break
        seen, part = 0, 0.0
        for i in range(ranks.shape[0]):
            if rel[found[i]] >= step:
                seen += 1
                part += seen / ranks[i]
        total += (step - last) * part
        last = step
    return total


@inner
def ndcg(
    ranks: Array, found: Array, counts: Array, cut: int, logs: Array, discounts: Array
) -> float:
    """DCG over ideal DCG with gain 2^level - 1."""
    end = discounts.shape[0] - 1 if cut == 0 else min(cut, discounts.shape[0] - 1)
    gains = np.empty(counts.shape[0])
    for level in range(counts.shape[0]):
        gains[level] = 2.0**level - 1.0
    total, ideal, place = 0.0, 0.0, 0
    for i in range(ranks.shape[0]):
        if ranks[i] > end:
            break
        total += gains[found[i]] * logs[ranks[i]]
    for level in range(counts.shape[0] - 1, 0, -1):
        stop = min(place + counts[level], end)
        ideal += gains[level] * (discounts[stop] - discounts[place])
        place = stop
    return total / ideal


@inner
def set_intersection(ranks: Array, found: Array, counts: Array, harmonic: Array) -> float:
    """Mean over depths 1..P of the overlap by level with the ideal ranking.

    The i-th image of a level is in both lists from the depth that reaches both its own rank and its
    place in the ideal ranking. From there on it adds 1/depth, up to depth P.
    """
    size = ranks.shape[0]
    place = np.zeros(counts.shape[0], np.int64)  # in the ideal ranking, finest first
    for level in range(counts.shape[0] - 2, 0, -1):
        place[level] = place[level + 1] + counts[level + 1]
    total = 0.0
    for i in range(size):
        if ranks[i] > size:
            break
        level = found[i]
        place[level] += 1
        total += harmonic[size] - harmonic[max(np.int64(ranks[i]), place[level]) - 1]
    return float(total / size)
