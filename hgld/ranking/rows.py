"""Rank losses of rows of scores, and their gradients, in numba.

Each row is sorted once, walked once over its positives, and what these left for other scores is
gathered in one pass over running sums. A row depends on no other, so rows go to threads.
"""

import numpy as np

from hgld.ranking import grid, sums
from hgld.ranking.compiled import Array, kernel
from hgld.ranking.grid import Nodes, new_nodes
from hgld.ranking.order import Row, new_row, sort_row
from hgld.ranking.rules import Rule, close_full, normaliser, shares_of
from hgld.ranking.sums import DOUBLE, SINGLE, Groups, Reach, fit_tail, new_groups
from hgld.ranking.walk import Case, walk
from hgld.ranking.windowed import Pairs, new_pairs

__all__ = ["REACH", "loss_rows", "solve_rows"]

REACH = {np.dtype(np.float32): 7.0, np.dtype(np.float64): 14.0}  # window / tau
FULL = 35.0  # the same where no power of an exponential can be had
NOTHING = np.zeros(4)


def loss_rows(
    scores: Array,
    levels: Array,
    table: Array,
    rule: Rule,
    losses: Array,
    gradient: Array,
    span: float = 0.0,
) -> None:
    """Losses (Q,) and gradients (Q, N) of rows of scores, written in place.

    Args:
        scores: (Q, N) float32 or float64, finite.
        levels: (Q, N) int8; -1 is not in the gallery.
        table: (Q, L + 1) float64 relevance or gain of each level.
        rule: what is computed.
        losses: (Q,) float64, written.
        gradient: (Q, N) in the dtype of the scores, written.
        span: widest range of a row over tau, where a grid is wanted; 0 counts in pairs.
    """
    n, num_levels, dtype = scores.shape[1], table.shape[1] - 1, scores.dtype
    reach = _on_grid(rule) if span else _in_pairs(rule, REACH[dtype])
    solve_rows(
        scores,
        levels,
        table,
        rule,
        span > 0.0,
        reach,
        _in_pairs(rule, 0.0),
        new_row(n, num_levels, dtype),
        new_groups(n, num_levels, dtype),
        new_pairs(n, dtype),
        new_nodes(n if span else 0, num_levels, span),
        losses,
        gradient,
    )


def _in_pairs(rule: Rule, window: float) -> Reach:
    """A window of pairs; 0 is one that needs nothing below it."""
    tail = fit_tail(window) if window else NOTHING
    below, has = (window or FULL) * rule.tau, bool(window)
    if rule.soft:
        return Reach(below, below, 1.0, has, tail, has, tail * [-1.0, -1.0, 1.0, 1.0])
    return Reach(below, rule.delta, rule.end, has, tail, False, NOTHING)


def _on_grid(rule: Rule) -> Reach:
    """The grid counts a sigmoid of every score; beyond delta the straight part takes its place."""
    if rule.soft:
        return Reach(np.inf, np.inf, 1.0, False, NOTHING, False, NOTHING)
    tail = fit_tail(rule.delta / rule.tau) * [1.0, 1.0, -1.0, -1.0]
    return Reach(np.inf, rule.delta, rule.end - 1.0, False, NOTHING, True, tail)


@kernel
def solve_rows(
    scores: Array,
    levels: Array,
    table: Array,
    rule: Rule,
    on_grid: bool,
    reach: Reach,
    wide: Reach,
    row: Row,
    groups: Groups,
    pairs: Pairs,
    nodes: Nodes,
    losses: Array,
    gradient: Array,
) -> None:
    """``loss_rows`` with room for one row; ``wide`` is the reach where powers overflow."""
    for i in range(scores.shape[0]):
        present = sort_row(scores[i], levels[i], row)
        gradient[i, :] = 0
        losses[i] = 0.0
        scale = normaliser(table[i], row.counts, rule)
        if present == row.counts[0] or scale <= 0.0:
            continue
        for j in range(present):
            groups.val[row.spot[j]] = row.val[j]
        low = np.float64(row.val[0])
        span = (np.float64(row.val[present - 1]) - low) / rule.tau
        sums.exponentials(rule.tau, low, span, row, groups)
        here = reach if on_grid or span <= DOUBLE else wide
        single = bool(span <= SINGLE and groups.near.itemsize == 4)
        case = Case(present, scale, on_grid, single)
        losses[i] = solve_row(case, table[i], rule, here, row, groups, pairs, nodes)
        for j in range(present):
            gradient[i, row.col[j]] = groups.own[row.spot[j]]


@kernel
def solve_row(
    case: Case,
    rel: Array,
    rule: Rule,
    reach: Reach,
    row: Row,
    groups: Groups,
    pairs: Pairs,
    nodes: Nodes,
) -> float:
    """Loss of a row in order; its gradient is left in ``groups.own``."""
    shares, found = shares_of(rule, case.present - row.counts[0]), np.zeros(rule.ks.shape[0])
    low = np.float64(row.val[0])
    value, full, more = 0.0, 0.0, 1.0
    while more > 0.0:  # again without the cut-offs that are full, where these are clipped
        sums.prepare_sums(reach, row, groups)
        pairs.gathered[: case.present] = 0
        if case.on_grid:
            grid.count_all(rule.tau, low, rule.smooth, row, groups, nodes)
        value = walk(case, rel, rule, reach, row, groups, pairs, nodes, shares, found)
        more = close_full(rule, found, shares)
        full += more
    if case.on_grid:
        grid.pull_all(rule.tau, rule.smooth, row, groups, nodes)
    else:
        for p in range(case.present):
            groups.own[p] += np.float64(pairs.gathered[p])
    sums.add_sums(reach, row, groups)
    return 1.0 - value - full
