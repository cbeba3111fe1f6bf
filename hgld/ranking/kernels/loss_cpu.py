"""Rank losses of rows of CPU scores, and their gradients, in numba.

Each row is sorted once; one loop over its positives, best first, then computes the loss. The weight
of a positive's gradient depends on its rank alone, so that loop is forward and backward pass in one
and no pair is stored. Rows are independent, so they are split among threads.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hgld.compiled import Array, bare_kernel, inner, part
from hgld.ranking.kernels.device import over_rows
from hgld.ranking.kernels.sort import SortedRow, count_equal, new_row, sort_row
from hgld.ranking.kernels.step_sums import (
    DOUBLE,
    LEAST_DELTA,
    SINGLE,
    Groups,
    Nodes,
    Reach,
    add_scaled,
    add_sums,
    count_all,
    edge_above,
    edge_below,
    exponentials,
    fit_tail,
    leave_powers,
    new_groups,
    new_nodes,
    nodes_for,
    powers_of,
    prepare_sums,
    pull_all,
    sigmoids,
    sigmoids_each,
)

if TYPE_CHECKING:
    from hgld.ranking.surrogates import Goal

CELLS_TO_CHOOSE = 1 << 19  # for fewer, pairs are always faster
SAMPLED_ROWS = 4
RATIO, DCG, RECALL = 0, 1, 2
REACH = {np.dtype(np.float32): 7.0, np.dtype(np.float64): 14.0}  # window / tau
LARGEST = 600.0  # exponent of float64, with a margin
FULL = 35.0  # the same if powers of exponentials would overflow
SHARED = 8  # neighbouring positives with the same edge below, a power of two
NOTHING = np.zeros(4)


class Rule(NamedTuple):
    """Parameters of the loss that a kernel computes.

    Args:
        kind: RATIO, DCG or RECALL.
        smooth: whether the step counts all images, instead of only those of a lower level.
        soft: whether the step is a sigmoid above ``delta``, too.
        tau: temperature of the step.
        rho: slope above ``delta``.
        delta: start of the linear part.
        jump: constant added from 0 on.
        end: value just above ``delta``.
        ks: cut-offs of RECALL, float64.
        largest: of them.
        ratios: exp((largest - k) / temperature) of each, 0 if one of them would overflow.
        temperature: of RECALL, in ranks.
        clip: whether at most k positives count for a cut-off k.
        discounts: (N + 1,) running sums of 1 / log2(1 + rank), for DCG.
    """

    kind: int
    smooth: bool
    soft: bool
    tau: float
    rho: float
    delta: float
    jump: float
    end: float
    ks: Array
    largest: float
    ratios: Array
    temperature: float
    clip: bool
    discounts: Array


class Windows(NamedTuple):
    """Buffers for a row's positives, their windows and pairs, and for its cut-offs.

    Args:
        slope: (N,) slope of each pair of one positive.
        gathered: (N,) slope of the loss, summed over pairs.
        positives: (N,) int32 places of the positives among the sorted scores.
        seen: (L + 1,) int64 scores of each level at or above the current one.
        lows: (L + 1,) int64 first score of each level in the window.
        highs: (L + 1,) int64 first score beyond it.
        begins: (L + 1,) int64 first score that is counted in pairs.
        slopes: (L + 1,) float64 slope of the sum over each level.
        shares: (K,) float64 value of a found positive, by cut-off; 0 once the cut-off is full.
        found: (K,) float64 number of positives found, by cut-off.
    """

    slope: Array
    gathered: Array
    positives: Array
    seen: Array
    lows: Array
    highs: Array
    begins: Array
    slopes: Array
    shares: Array
    found: Array


def new_windows(
    size: int, num_levels: int, cut_offs: int, dtype: "np.dtype[np.floating]"
) -> Windows:
    """Allocate the buffers for a row of this many scores."""
    by_score = (np.empty(size, kind) for kind in (dtype, dtype, np.int32))
    integers = (np.empty(num_levels + 1, np.int64) for _ in range(4))
    floats = (np.empty(n) for n in (num_levels + 1, cut_offs, cut_offs))
    return Windows(*by_score, *integers, *floats)


def solve_rows(
    scores: Tensor, levels: Tensor, table: Tensor, goal: "Goal"
) -> tuple[Tensor, Tensor]:
    """Losses (Q,) and gradients (Q, G) of CPU scores, with relevance by level."""
    s, compact = scores.detach().contiguous(), levels.to(torch.int8).contiguous()
    by_level = table.detach().to("cpu", torch.float64).contiguous()
    given = s.numpy(), compact.numpy(), by_level.numpy()
    losses, gradient = np.empty(len(s)), torch.empty_like(s)
    size, num_levels, dtype = s.shape[1], table.shape[1] - 1, given[0].dtype
    rule = rule_of(goal, size)
    span = grid_span(given[0], given[1], num_levels, rule)
    reach = _on_grid(rule) if span else _in_pairs(rule, REACH[dtype])
    wide = _in_pairs(rule, 0.0)

    def work(part: slice) -> None:
        buffers = (
            new_row(size, num_levels, dtype),
            new_groups(size, num_levels, dtype),
            new_windows(size, num_levels, len(rule.ks), dtype),
            new_nodes(size if span else 0, num_levels, span),
        )
        rows = (array[part] for array in given)
        found = losses[part], gradient.numpy()[part]
        run_rows(*rows, rule, span > 0.0, reach, wide, *buffers, *found)

    over_rows(work, len(s))
    return torch.from_numpy(losses).to(s.dtype), gradient


@lru_cache(maxsize=16)
def rule_of(goal: "Goal", size: int) -> Rule:
    """Convert the goal to numbers, for rows of this many scores."""
    step = goal.step
    ks = np.array(goal.ks, dtype=np.float64)
    largest = float(ks.max(initial=0.0))
    below = (largest - ks) / float(goal.temperature)
    # a sigmoid has no slope, edge or jump
    rho, delta, jump, end = map(float, step.straight or (0.0, 0.0, 0.0, 1.0))
    return Rule(
        kind=goal.number,
        smooth=goal.smooth,
        soft=step.straight is None,
        tau=float(step.tau),
        rho=rho,
        delta=delta,
        jump=jump,
        end=end,
        ks=ks,
        largest=largest,
        ratios=np.exp(below) if (below < LARGEST).all() else np.zeros_like(ks),
        temperature=float(goal.temperature),
        clip=goal.clip,
        discounts=_discounts(size + 1) if goal.kind == "dcg" else np.zeros(1),
    )


@lru_cache(maxsize=4)
def _discounts(size: int) -> Array:
    """Running sums of 1 / log2(1 + rank), from 0."""
    places = np.arange(2, size + 1, dtype=np.float64)
    return np.concatenate([[0.0], np.cumsum(1.0 / np.log2(places))])


def grid_span(scores: Array, levels: Array, num_levels: int, rule: Rule) -> float:
    """Widest range of a row over tau if the grid is cheaper; 0 if it is not.

    Costs are measured, in ns per row: pairs cost by the number of pairs in the windows, the grid by
    the number of scores and of nodes.
    """
    if scores.size < CELLS_TO_CHOOSE or scores.dtype != np.float32:
        return 0.0
    if not rule.soft and rule.delta < LEAST_DELTA * rule.tau:
        return 0.0
    given = torch.from_numpy(scores)
    span = float((given.amax(1) - given.amin(1)).max()) / rule.tau
    if span > DOUBLE:
        return 0.0
    some = np.linspace(0, len(scores) - 1, SAMPLED_ROWS).astype(np.int64)
    visits, pairs = _count_pairs(scores[some], levels[some], num_levels, rule)
    by_pairs = 34.0 * visits + 0.21 * pairs
    fields = num_levels + rule.smooth
    by_nodes = 7.0 * scores.shape[1] + 22.0 * visits + 20.0 * fields * nodes_for(span)
    return span if by_nodes < by_pairs else 0.0


def _count_pairs(scores: Array, levels: Array, num_levels: int, rule: Rule) -> tuple[float, float]:
    """Mean number of windows per row, and of pairs in them, over the given rows."""
    visits, pairs = 0, 0
    below = REACH[scores.dtype] * rule.tau
    above = below if rule.soft else rule.delta
    for row, level in zip(scores, levels, strict=True):
        by_level = [np.sort(row[level == v]) for v in range(num_levels + 1)]
        for at, targets in enumerate(by_level[1:], 1):
            for sources in by_level if rule.smooth else by_level[:at]:
                high = np.searchsorted(sources, targets + above)
                pairs += int((high - np.searchsorted(sources, targets - below)).sum())
                visits += len(targets)
    return visits / len(scores), pairs / len(scores)


@inner
def normaliser(rel: Array, counts: Array, rule: Rule) -> float:
    """Divisor of the sum over positives: the total relevance, or the ideal DCG."""
    total = 0.0
    if rule.kind == RECALL:
        return 1.0
    if rule.kind == RATIO:
        for level in range(1, rel.shape[0]):
            total += rel[level] * counts[level]
        return total
    place = 0
    for level in range(rel.shape[0] - 1, 0, -1):
        total += rel[level] * (rule.discounts[place + counts[level]] - rule.discounts[place])
        place += counts[level]
    return total


@part
def worth(
    rank: float,
    shared: float,
    gain: float,
    scale: float,
    kind: int,
    ks: Array,
    largest: float,
    ratios: Array,
    temperature: float,
    far: float,
    shares: Array,
    found: Array,
) -> tuple[float, float]:
    """Value of one positive, and its derivative by the rank, negated.

    Args:
        rank: R, at least 1 except for rounding.
        shared: H.
        gain: relevance of the positive itself.
        scale: the ``normaliser``.
        kind: as in ``Rule``, like ``ks`` and ``temperature``.
        ks: the cut-offs.
        largest: of them.
        ratios: as in ``Rule``.
        temperature: in ranks.
        far: ranks beyond a cut-off from where on x is about 0.
        shares: value of a found positive, by cut-off; 0 once the cut-off is full.
        found: number of positives found, by cut-off; added to.
    """
    if kind == RATIO:
        value = shared / rank / scale
        return value, value / rank
    if kind == DCG:
        log = np.log(1.0 + rank)
        value = gain * np.log(2.0) / log / scale
        return value, value / ((1.0 + rank) * log)
    value, slope = 0.0, 0.0
    if rank - largest > far:
        return value, slope
    odds_of_largest = np.exp((rank - largest) / temperature)
    for c in range(ks.shape[0]):
        if rank - ks[c] > far:
            continue
        odds = odds_of_largest * ratios[c]  # one exponential for all cut-offs
        if ratios[c] == 0.0:
            odds = np.exp((rank - ks[c]) / temperature)
        x = 1.0 / (1.0 + odds)
        found[c] += x
        value += x * shares[c]
        slope += x * (1.0 - x) * shares[c]
    return value, slope / temperature


@part
def open_cut_offs(ks: Array, positives: int, shares: Array, found: Array) -> None:
    """Write the value of a found positive, by cut-off: 1 / min(k, P), over their number."""
    for c in range(ks.shape[0]):
        shares[c] = 1.0 / (min(ks[c], np.float64(positives)) * ks.shape[0])
        found[c] = 0.0


@part
def close_full(ks: Array, clip: bool, shares: Array, found: Array) -> float:
    """Close the clipped cut-offs that found more than k positives; return their total value."""
    given = 0.0
    for c in range(ks.shape[0]):
        if clip and shares[c] > 0.0 and found[c] > ks[c]:
            given += ks[c] * shares[c]
            shares[c] = 0.0
        found[c] = 0.0
    return given


def _in_pairs(rule: Rule, window: float) -> Reach:
    """Reach of a window of pairs; with window 0, one so wide that nothing below it counts."""
    tail = fit_tail(window) if window else NOTHING
    below, has = (window or FULL) * rule.tau, bool(window)
    if rule.soft:
        return Reach(below, below, 1.0, has, tail, has, tail * [-1.0, -1.0, 1.0, 1.0])
    return Reach(below, rule.delta, rule.end, has, tail, False, NOTHING)


def _on_grid(rule: Rule) -> Reach:
    """Reach on the grid, which sums a sigmoid of every score; beyond delta the line replaces it."""
    if rule.soft:
        return Reach(np.inf, np.inf, 1.0, False, NOTHING, False, NOTHING)
    tail = fit_tail(rule.delta / rule.tau) * [1.0, 1.0, -1.0, -1.0]
    return Reach(np.inf, rule.delta, rule.end - 1.0, False, NOTHING, True, tail)


@bare_kernel
def run_rows(
    scores: Array,
    levels: Array,
    table: Array,
    rule: Rule,
    on_grid: bool,
    reach: Reach,
    wide: Reach,
    row: SortedRow,
    groups: Groups,
    windows: Windows,
    nodes: Nodes,
    losses: Array,
    gradient: Array,
) -> None:
    """Losses (Q,) and gradients (Q, N) of rows of scores, written in place.

    Args:
        scores: (Q, N) float32 or float64, finite.
        levels: (Q, N) int8; -1 is not in the gallery.
        table: (Q, L + 1) float64 relevance or gain of each level.
        rule: parameters of the loss.
        on_grid: whether near scores are interpolated from the grid, else counted in pairs.
        reach: ends of the windows.
        wide: the same if powers overflow.
        row: buffers for one row, like the others.
        groups: the row by level.
        windows: its positives, windows and cut-offs.
        nodes: the row on the grid.
        losses: (Q,) float64, written.
        gradient: (Q, N) in the dtype of the scores, written.
    """
    ks, shares, found = rule.ks, windows.shares, windows.found
    for i in range(scores.shape[0]):
        present = sort_row(scores[i], levels[i], row)
        gradient[i, :] = 0
        losses[i] = 0.0
        scale = normaliser(table[i], row.counts, rule)
        if present == row.counts[0] or scale <= 0.0:
            continue
        positives = 0
        for j in range(present):
            groups.val[row.spot[j]] = row.val[j]
            windows.positives[positives] = j
            positives += row.lev[j] > 0
        low = np.float64(row.val[0])
        span = (np.float64(row.val[present - 1]) - low) / rule.tau
        exponentials(rule.tau, low, span, row, groups)
        here = reach if on_grid or span <= DOUBLE else wide
        single = bool(span <= SINGLE and groups.near.itemsize == 4)
        open_cut_offs(ks, positives, shares, found)
        value, full, more = 0.0, 0.0, 1.0
        while more > 0.0:  # repeat without the full cut-offs, if they are clipped
            prepare_sums(here, rule.smooth, row, groups)
            windows.gathered[:present] = 0
            if on_grid:
                count_all(rule.tau, low, rule.smooth, row, groups, nodes)
            value = walk(
                positives, table[i], scale, on_grid, single, rule, here, row, groups, windows, nodes
            )
            more = close_full(ks, rule.clip, shares, found)
            full += more
        if on_grid:
            pull_all(rule.tau, rule.smooth, row, groups, nodes)
        else:
            for p in range(present):
                groups.own[p] += np.float64(windows.gathered[p])
        add_sums(here, rule.smooth, row, groups)
        losses[i] = 1.0 - value - full
        for j in range(present):
            gradient[i, row.col[j]] = groups.own[row.spot[j]]


@inner
def walk(
    positives: int,
    rel: Array,
    scale: float,
    on_grid: bool,
    single: bool,
    rule: Rule,
    reach: Reach,
    row: SortedRow,
    groups: Groups,
    windows: Windows,
    nodes: Nodes,
) -> float:
    """Value of all positives; adds their weights for the scores that they counted.

    Args:
        positives: number of scores of level 1 or more.
        rel: (L + 1,) float64 relevance or gain of each level.
        scale: divisor of the sum over positives.
        on_grid: whether near scores are interpolated from the grid.
        single: whether their exponentials are in the scores' dtype.
        rule: parameters of the loss.
        reach: ends of the windows.
        row: the sorted row.
        groups: the row by level, with running sums.
        windows: buffers by pair and level; ``shares`` is read, ``found`` added to.
        nodes: the row on the grid.
    """
    # Fields are read once: numba copies a whole tuple in each call that takes one.
    val, lev, spot, starts = row.val, row.lev, row.spot, row.starts
    by_level, near, own = groups.val, groups.near, groups.own
    down_of, up_of = groups.down, groups.up
    above, below = groups.above, groups.below
    to_above, to_below = groups.to_above, groups.to_below
    slope_of, gathered = windows.slope, windows.gathered
    grid_sums, grid_slopes, grid_weights = nodes.sums, nodes.slopes, nodes.weights
    places, seen = windows.positives, windows.seen
    lows, highs, begins = windows.lows, windows.highs, windows.begins
    slopes, shares, found = windows.slopes, windows.shares, windows.found
    kind, smooth, temperature = rule.kind, rule.smooth, rule.temperature
    ks, largest, ratios = rule.ks, rule.largest, rule.ratios
    tau, rho, delta, jump = rule.tau, rule.rho, rule.delta, rule.jump
    window, edge, end = reach.window, reach.edge, reach.end
    powers_below, powers_above = reach.powers_below, reach.powers_above
    b0, b1, b2, b3 = reach.below[0], reach.below[1], reach.below[2], reach.below[3]
    a0, a1, a2, a3 = reach.above[0], reach.above[1], reach.above[2], reach.above[3]

    size = rel.shape[0]
    far = (87.0 if val.itemsize == 4 else 700.0) * temperature  # exp(-87) is 1.6e-38 in float32
    for v in range(size):
        seen[v] = 0
        lows[v] = highs[v] = starts[v + 1]
    total, equals = 0.0, positives
    down, up = 0.0, 0.0
    unseen = starts[1]  # scores of level 0 below the current one
    for i in range(positives - 1, -1, -1):
        k = places[i]
        level, p, s = np.int64(lev[k]), spot[k], np.float64(val[k])
        while equals > 0 and val[places[equals - 1]] >= val[k]:
            equals -= 1
            seen[lev[places[equals]]] += 1
        while unseen > 0 and by_level[unseen - 1] >= val[k]:
            unseen -= 1
        seen[0] = starts[1] - unseen
        # neighbours share the edge below, where more pairs do no harm: fewer branches mispredicted
        lowest = np.float64(val[places[i & ~(SHARED - 1)]])
        if powers_below or powers_above:
            down, up = down_of[p], up_of[p]
        rank, shared = exact_counts(level, rel, smooth, seen)
        top = size if smooth else level
        for v in range(top):
            first, beyond = starts[v], starts[v + 1]
            # Positives come best first, so window edges only move down: O(N) moves in total.
            hi = edge_above(by_level, s, edge, first, highs[v])
            highs[v] = hi
            beyond -= hi
            if on_grid:
                number = max(np.float64(grid_sums[v, p]), 0.0)
                slope = max(np.float64(grid_slopes[v, p]), 0.0)
            else:
                lo = edge_below(by_level, lowest, window, first, lows[v])
                lows[v] = lo
                lo = max(first, hi - ((hi - lo + 7) & ~7))  # rounded up to whole SIMD vectors
                begins[v] = lo
                number, slope = 0.0, 0.0
                if lo < hi:
                    if single:
                        number, slope = sigmoids(near, up, lo, hi, slope_of)
                    elif up > 0.0:
                        number, slope = sigmoids(down_of, up, lo, hi, slope_of)
                    else:
                        number, slope = sigmoids_each(by_level, s, tau, lo, hi, slope_of)
                if powers_below:
                    more, steep = powers_of(below, lo + v, 0, down, b0, b1, b2, b3)
                    number += more
                    slope += steep
            number += jump * (seen[v] - beyond) + end * beyond
            if beyond > 0:
                number += rho * (above[hi + v, 0] - beyond * (s + delta))
                if powers_above:
                    more, steep = powers_of(above, hi + v, 1, up, a0, a1, a2, a3)
                    number += more
                    slope += steep
            slopes[v] = slope / tau + rho * beyond
            rank += number
            if smooth:
                shared += number * min(rel[v], rel[level])
        value, weight = worth(
            rank, shared, rel[level], scale, kind,
            ks, largest, ratios, temperature, far, shares, found,
        )  # fmt: skip
        total += value
        for v in range(top):
            w = weight
            if smooth and kind == RATIO:
                w -= min(rel[v], rel[level]) / rank / scale
            if w == 0.0:
                continue
            own[p] -= w * slopes[v]
            lo, hi = begins[v], highs[v]
            if on_grid:
                grid_weights[v, p] = w
            else:
                add_scaled(gathered, slope_of, w / tau, lo, hi)
                if powers_below:
                    leave_powers(to_below, lo + v, 0, down, w / tau, b2, b3)
            to_above[hi + v, 0] += w * rho
            if powers_above:
                leave_powers(to_above, hi + v, 1, up, w / tau, a2, a3)
    return total


@part
def exact_counts(level: int, rel: Array, smooth: bool, seen: Array) -> tuple[float, float]:
    """The parts of the rank and of the shared relevance that are counted exactly."""
    if smooth:  # with the score's own step of a half, the rank starts at 1
        return 0.5, 0.5 * rel[level]
    rank, shared = 0.0, 0.0
    for v in range(1, rel.shape[0]):
        if v >= level:
            rank += seen[v]
        shared += seen[v] * min(rel[v], rel[level])
    return rank, shared


@bare_kernel
def count_rows(levels: Array, counts: Array) -> None:
    """Count the images of each level in each row, into (Q, L + 1)."""
    for i in range(levels.shape[0]):
        for level in range(counts.shape[1]):
            counts[i, level] = count_equal(levels[i], level)
