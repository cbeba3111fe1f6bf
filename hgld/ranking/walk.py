"""The walk over the positives of a row, best first, in numba.

The scores near a positive are counted in pairs or read off a grid, those far away come from running
sums. What its rank is worth gives the positive's weight at once, since it depends on the rank
alone: so forward and backward are one walk, and no pair is kept once it is passed.
"""

from typing import NamedTuple

import numpy as np

from hgld.ranking.compiled import Array, kernel, part
from hgld.ranking.grid import Nodes
from hgld.ranking.order import Row
from hgld.ranking.rules import RATIO, Rule, worth
from hgld.ranking.sums import Groups, Reach, leave_powers, powers_of
from hgld.ranking.windowed import Pairs, add_scaled, count_pairs, edge_above, edge_below

__all__ = ["Case", "walk"]


class Case(NamedTuple):
    """What holds for all positives of a row.

    Args:
        present: scores in the gallery.
        scale: what the sum over positives is divided by.
        on_grid: whether near scores are read off the grid.
        single: whether their exponentials are in the scores' dtype.
    """

    present: int
    scale: float
    on_grid: bool
    single: bool


@kernel
def walk(
    case: Case,
    rel: Array,
    rule: Rule,
    reach: Reach,
    row: Row,
    groups: Groups,
    pairs: Pairs,
    nodes: Nodes,
    shares: Array,
    found: Array,
) -> float:
    """Value of all positives; their weights are left for the scores that they counted.

    Args:
        case: what holds for the row.
        rel: (L + 1,) float64 relevance or gain of each level.
        rule: what is computed.
        reach: where windows end.
        row: the row in order.
        groups: the same by level, with running sums.
        pairs: room for pairs.
        nodes: the row on the grid.
        shares: for each cut-off what a positive found counts.
        found: for each cut-off how many were found; added to.
    """
    # Fields are read once: numba copies a whole tuple for each call that takes one.
    val, lev, spot, starts = row.val, row.lev, row.spot, row.starts
    by_level, down_of, near, own = groups.val, groups.down, groups.near, groups.own
    above, below = groups.above, groups.below
    to_above, to_below = groups.to_above, groups.to_below
    slope_of, gathered = pairs.slope, pairs.gathered
    grid_sums, grid_slopes, grid_weights = nodes.sums, nodes.slopes, nodes.weights
    kind, smooth, ks, temperature = rule.kind, rule.smooth, rule.ks, rule.temperature
    tau, rho, delta, jump = rule.tau, rule.rho, rule.delta, rule.jump
    window, edge, end = reach.window, reach.edge, reach.end
    powers_below, powers_above = reach.powers_below, reach.powers_above
    b0, b1, b2, b3 = reach.below[0], reach.below[1], reach.below[2], reach.below[3]
    a0, a1, a2, a3 = reach.above[0], reach.above[1], reach.above[2], reach.above[3]
    scale, on_grid, single = case.scale, case.on_grid, case.single

    size = rel.shape[0]
    seen = np.zeros(size, np.int64)  # scores at or above the current one, by level
    lows, highs = starts[1:].copy(), starts[1:].copy()  # first in the window, first beyond it
    begins = lows.copy()  # first counted in pairs
    slopes = np.zeros(size)
    total, equals = 0.0, case.present
    down, up = 0.0, 0.0
    for k in range(case.present - 1, -1, -1):
        if k < equals:
            equals = see_equals(val, lev, k, seen)
        level = np.int64(lev[k])
        if level == 0:
            continue
        p, s = spot[k], np.float64(val[k])
        if powers_below or powers_above:
            down = down_of[p]
            up = 1.0 / down
        rank, shared = exact_counts(level, rel, smooth, seen)
        top = size if smooth else level
        for v in range(top):
            first, beyond = starts[v], starts[v + 1]
            hi = edge_above(by_level, s, edge, first, highs[v])
            highs[v] = hi
            beyond -= hi
            if on_grid:
                number = max(np.float64(grid_sums[v, p]), 0.0)
                slope = max(np.float64(grid_slopes[v, p]), 0.0)
            else:
                lo = edge_below(by_level, s, window, first, lows[v])
                lows[v] = lo
                lo = max(first, hi - ((hi - lo + 7) & ~7))  # whole vectors
                begins[v] = lo
                number, slope = count_pairs(
                    near, down_of, by_level, s, up, tau, single, lo, hi, slope_of
                )
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
        value, weight = worth(rank, shared, rel[level], scale, kind, ks, temperature, shares, found)
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
def see_equals(val: Array, lev: Array, k: int, seen: Array) -> int:
    """Count all scores equal to the k-th, of which it is the last; the first of them."""
    s = val[k]
    while k >= 0 and val[k] == s:
        seen[lev[k]] += 1
        k -= 1
    return k + 1


@part
def exact_counts(level: int, rel: Array, smooth: bool, seen: Array) -> tuple[float, float]:
    """The part of rank and of shared relevance that no step makes smooth."""
    if smooth:  # a score's own step counts a half
        return 0.5, 0.5 * rel[level]
    rank, shared = 0.0, 0.0
    for v in range(1, rel.shape[0]):
        if v >= level:
            rank += seen[v]
        shared += seen[v] * min(rel[v], rel[level])
    return rank, shared
