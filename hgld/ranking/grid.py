"""The Sup-losses of rows of scores on a grid: the cost does not grow with the pairs in a window.

sigma(x / tau) is analytic up to +-i pi tau, so eight-point interpolation on nodes tau / 4 apart is
exact to 1e-7. Sources are spread over the nodes, one matrix product applies sigma and its slope
between all nodes, targets read off eight nodes each; backward goes the same way in reverse. What is
not smooth is added from the sorted order: the jump at 0, and beyond delta the straight part in
place of the sigmoid, whose sum there comes from the first four powers of
x = exp(-t / tau) <= exp(-delta / tau). x is a product of one exponential of each side, so running
sums over the sorted row serve all pairs. float32 only; for many positives among many scores.
"""

from functools import lru_cache

import numpy as np
import torch

from hgld.ranking.compiled import Array, kernel
from hgld.ranking.threads import over_rows
from hgld.ranking.windowed import normaliser, recall_of, small_exp, sort_row

__all__ = ["LEAST_DELTA", "WIDEST", "grid_rows", "nodes_for"]

PER_TAU = 4  # nodes in a temperature
MARGIN = 10  # nodes beyond the range
LEAST_DELTA = 4.5  # delta / tau: below, four powers of exp(-t / tau) are not enough
WIDEST = 320.0  # range / tau: above, the fourth power of an exponential overflows
ROWS = 32  # rows in one matrix product


def nodes_for(span: float, tau: float) -> int:
    """Nodes that a row with this range of scores needs."""
    return int(span / tau * PER_TAU) + MARGIN


@lru_cache(maxsize=8)
def _kernels(nodes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sigma | sigma (1 - sigma) from each source node to each target node, and back: float32."""
    place = torch.arange(nodes, dtype=torch.float64) / PER_TAU
    sigma = torch.sigmoid(place[:, None] - place[None, :])
    slope = sigma * (1.0 - sigma)
    forth = torch.cat([sigma, slope], 1).float()
    return forth, slope.T.contiguous().float()


def grid_rows(
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
    span: float,
) -> None:
    """As ``windowed.sup_rows``, for float32; ``span`` is the widest range of scores of a row."""
    n, num_levels = scores.shape[1], table.shape[1] - 1
    nodes = -(-nodes_for(span, float(step[0])) // 32) * 32
    forth, back = _kernels(nodes)
    decay = np.exp(-(np.arange(nodes) - nodes / 2.0) / PER_TAU)
    rows = min(ROWS * torch.get_num_threads(), len(scores))
    chunk = _chunk(rows, n, num_levels, nodes)
    for start in range(0, len(scores), rows):
        size = min(rows, len(scores) - start)
        here = scores[start:], levels[start:], table[start:], losses[start:], gradient[start:]
        _solve_chunk(
            size, here, chunk, (forth, back, decay), kind, step, ks, temperature, discounts
        )


def _chunk(rows: int, n: int, num_levels: int, nodes: int) -> tuple[Array, ...]:
    """Room for a chunk: val, lev, node, share, power, present, counts, col, weight, ds, mass."""
    return (
        np.empty((rows, n), np.float32),
        np.empty((rows, n), np.int8),
        np.empty((rows, n), np.int32),
        np.empty((rows, n, 8), np.float32),
        np.empty((rows, n), np.float64),
        np.empty(rows, np.int64),
        np.empty((rows, num_levels + 1), np.int64),
        np.empty((rows, n), np.int32),
        np.empty((rows, n), np.float64),
        np.empty((rows, n), np.float64),
        np.empty((rows, num_levels, nodes), np.float32),
    )


def _solve_chunk(
    size: int,
    here: tuple[Array, ...],
    chunk: tuple[Array, ...],
    nodes: tuple[torch.Tensor, torch.Tensor, Array],
    kind: int,
    step: Array,
    ks: Array,
    temperature: float,
    discounts: Array,
) -> None:
    """Losses and gradients of the first ``size`` rows of ``here``."""
    forth, back, decay = nodes

    def cut(arrays: tuple[Array, ...], part: slice) -> list[Array]:
        return [array[part] for array in arrays]

    def spread(part: slice) -> None:
        scores, levels, *_ = cut(here, part)
        spread_sources(scores, levels, step[0], decay, *cut(chunk, part))

    def solve(part: slice) -> None:
        _, _, table, losses, _ = cut(here, part)
        fixed = kind, step, ks, temperature, discounts
        solve_targets(table, *fixed, losses, fields[part], *cut(chunk, part))

    def pull(part: slice) -> None:
        pull_sources(step, pulls[part], cut(here, part)[4], *cut(chunk, part))

    mass = torch.from_numpy(chunk[-1][:size])
    over_rows(spread, size)
    fields = (mass.flatten(0, 1) @ forth).view(*mass.shape[:2], -1).numpy()
    over_rows(solve, size)
    pulls = (mass.flatten(0, 1) @ back).view(*mass.shape).numpy()
    over_rows(pull, size)


@kernel
def spread_sources(
    scores: Array,
    levels: Array,
    tau: float,
    decay: Array,
    val: Array,
    lev: Array,
    node: Array,
    share: Array,
    power: Array,
    present: Array,
    counts: Array,
    col: Array,
    weight: Array,
    ds: Array,
    mass: Array,
) -> None:
    """Sort each row, find the eight nodes of every score, and lay the sources on them.

    mass[r, l] holds all sources of level l or below, for the targets of level l + 1. power is
    exp(-s / tau) up to a factor of the row.
    """
    n = scores.shape[1]
    spare = np.empty(n, np.int32)
    keys = np.empty(n, np.uint32)
    more = np.empty(n, np.uint32)
    held = np.zeros((mass.shape[1], 8), np.float32)  # what lies on the current nodes
    at = np.zeros(mass.shape[1], np.int32)
    mass[:] = 0
    per = PER_TAU / tau
    for r in range(scores.shape[0]):
        present[r] = sort_row(
            scores[r], levels[r], val[r], col[r], lev[r], spare, keys, more, counts[r]
        )
        low = np.float64(val[r, 0])
        for j in range(present[r]):
            place = (np.float64(val[r, j]) - low) * per
            first = np.int32(place)
            node[r, j] = first  # nodes first..first + 7 stand for -3..+4
            lagrange(place - first, share[r, j])
            power[r, j] = decay[first] * small_exp((first - place) / PER_TAU)
            level = lev[r, j]
            if level < mass.shape[1]:
                if first != at[level]:
                    at[level] = flush(held[level], mass[r, level], at[level], first)
                for i in range(8):
                    held[level, i] += share[r, j, i]
        for level in range(mass.shape[1]):
            at[level] = flush(held[level], mass[r, level], at[level], 0)
        for level in range(1, mass.shape[1]):
            for a in range(mass.shape[2]):
                mass[r, level, a] += mass[r, level - 1, a]


@kernel
def flush(held: Array, mass: Array, at: int, first: int) -> int:
    """Lay down what was held for the nodes from ``at``; the next are from ``first``."""
    row = mass[at : at + 8]
    for i in range(8):
        row[i] += held[i]
        held[i] = 0
    return first


@kernel
def lagrange(t: float, weights: Array) -> None:
    """Weights of the nodes -3..4 for a place t in [0, 1)."""
    a, b, c, d = t + 3.0, t + 2.0, t + 1.0, t
    e, f, g, h = t - 1.0, t - 2.0, t - 3.0, t - 4.0
    ab, cd, ef, gh = a * b, c * d, e * f, g * h
    abcd, efgh = ab * cd, ef * gh
    weights[0] = b * cd * efgh * (-1.0 / 5040.0)
    weights[1] = a * cd * efgh * (1.0 / 720.0)
    weights[2] = ab * d * efgh * (-1.0 / 240.0)
    weights[3] = ab * c * efgh * (1.0 / 144.0)
    weights[4] = abcd * f * gh * (-1.0 / 144.0)
    weights[5] = abcd * e * gh * (1.0 / 240.0)
    weights[6] = abcd * ef * h * (-1.0 / 720.0)
    weights[7] = abcd * ef * g * (1.0 / 5040.0)


@kernel
def read_nodes(share: Array, field: Array) -> float:
    """Field at a place, from its eight nodes."""
    a = share[0] * field[0] + share[1] * field[1]
    b = share[2] * field[2] + share[3] * field[3]
    c = share[4] * field[4] + share[5] * field[5]
    d = share[6] * field[6] + share[7] * field[7]
    return np.float64((a + b) + (c + d))


@kernel
def solve_targets(
    table: Array,
    kind: int,
    step: Array,
    ks: Array,
    temperature: float,
    discounts: Array,
    losses: Array,
    fields: Array,
    val: Array,
    lev: Array,
    node: Array,
    share: Array,
    power: Array,
    present: Array,
    counts: Array,
    col: Array,
    weight: Array,
    ds: Array,
    mass: Array,
) -> None:
    """Rank, loss and weight of every positive; its weight is laid on the nodes for the way back.

    mass[r, m] is filled with the weights of all targets above level m, for the sources on it.
    """
    nodes = mass.shape[2]
    seen = np.empty(table.shape[1], np.int64)
    far = np.empty((table.shape[1], 6), np.float64)
    held = np.zeros((mass.shape[1], 8), np.float32)
    at = np.zeros(mass.shape[1], np.int32)
    mass[:] = 0
    for r in range(present.shape[0]):
        weight[r, :] = 0.0
        ds[r, :] = 0.0
        losses[r] = 0.0
        scale = normaliser(table[r], counts[r], kind, discounts)
        positives = present[r] - counts[r, 0]
        if positives == 0 or scale <= 0.0:
            continue
        losses[r] = 1.0 - solve_row(
            val[r], lev[r], node[r], share[r], power[r], present[r], fields[r], table[r], kind,
            step, ks, temperature, positives, scale, seen, far, held, at, weight[r], ds[r],
            mass[r],
        )  # fmt: skip
        for m in range(mass.shape[1] - 2, -1, -1):
            for a in range(nodes):
                mass[r, m, a] += mass[r, m + 1, a]


@kernel
def solve_row(
    val: Array,
    lev: Array,
    node: Array,
    share: Array,
    power: Array,
    present: int,
    fields: Array,
    rel: Array,
    kind: int,
    step: Array,
    ks: Array,
    temperature: float,
    positives: int,
    scale: float,
    seen: Array,
    far: Array,
    held: Array,
    at: Array,
    weight: Array,
    ds: Array,
    mass: Array,
) -> float:
    """Metric of a row, best positive first; writes weights, own slopes and mass.

    seen[v]: images of level v at or above the current score. far[v]: of those beyond delta the
    number, the sum of scores, and the sums of the first four powers.
    """
    tau, rho, delta, jump, end = step[0], step[1], step[2], step[3], step[4]
    nodes = mass.shape[1]
    seen[:] = 0
    far[:] = 0.0
    hi, group = present, present
    total = 0.0
    for k in range(present - 1, -1, -1):
        if k < group:
            group = k
            while group >= 0 and val[group] == val[k]:
                seen[lev[group]] += 1
                group -= 1
            group += 1
        level = np.int64(lev[k])
        if level == 0:
            continue
        s = np.float64(val[k])
        while hi > 0 and np.float64(val[hi - 1]) - s > delta:
            hi -= 1
            add_powers(far[lev[hi]], 1.0, np.float64(val[hi]), power[hi])
        above, below, h_rank = 0, 0, 0.0
        for v in range(rel.shape[0]):
            if v >= level:
                above += seen[v]
            else:
                below += seen[v]
            h_rank += seen[v] * min(rel[v], rel[level])
        number, values, p1, p2, p3, p4 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for v in range(level):
            number += far[v, 0]
            values += far[v, 1]
            p1 += far[v, 2]
            p2 += far[v, 3]
            p3 += far[v, 4]
            p4 += far[v, 5]
        first = node[k]
        sums = read_nodes(share[k], fields[level - 1, first : first + 8])
        slopes = read_nodes(share[k], fields[level - 1, nodes + first : nodes + first + 8])
        x = 1.0 / power[k]
        x2 = x * x
        p1, p2, p3, p4 = p1 * x, p2 * x2, p3 * x2 * x, p4 * x2 * x2
        near = sums - number + (p1 - p2 + p3 - p4)
        flat = slopes - (p1 - 2.0 * p2 + 3.0 * p3 - 4.0 * p4)
        rank = above + max(near, 0.0) + jump * (below - number) + end * number
        rank += rho * (values - number * (s + delta))
        slope = max(flat, 0.0) / tau + rho * number
        if kind == 0:
            value = h_rank / rank / scale
            w = value / rank
        elif kind == 1:
            log = np.log2(1.0 + rank)
            value = rel[level] / log / scale
            w = value / (np.log(2.0) * (1.0 + rank) * log)
        else:
            value, w = recall_of(rank, ks, temperature, positives)
        total += value
        weight[k] = w
        ds[k] -= w * slope
        if first != at[level - 1]:
            at[level - 1] = flush(held[level - 1], mass[level - 1], at[level - 1], first)
        for i in range(8):
            held[level - 1, i] += np.float32(w) * share[k, i]
    for m in range(at.shape[0]):
        at[m] = flush(held[m], mass[m], at[m], 0)
    return total


@kernel
def add_powers(sums: Array, weight: float, value: float, power: float) -> None:
    """Add to a number, a sum of values, and sums of the first four powers."""
    square = power * power
    sums[0] += weight
    sums[1] += weight * value
    sums[2] += weight * power
    sums[3] += weight * square
    sums[4] += weight * square * power
    sums[5] += weight * square * square


@kernel
def pull_sources(
    step: Array,
    pulls: Array,
    gradient: Array,
    val: Array,
    lev: Array,
    node: Array,
    share: Array,
    power: Array,
    present: Array,
    counts: Array,
    col: Array,
    weight: Array,
    ds: Array,
    mass: Array,
) -> None:
    """Slope of every source from the targets above its level, and the gradient rows.

    far[m]: over the targets above level m that lie more than delta below the current score.
    """
    tau, rho, delta = step[0], step[1], step[2]
    num_levels = pulls.shape[1]
    far = np.empty((num_levels, 6), np.float64)
    for r in range(present.shape[0]):
        gradient[r, :] = 0
        far[:] = 0.0
        k = 0
        for j in range(present[r]):
            s = np.float64(val[r, j])
            while s - np.float64(val[r, k]) > delta:
                if lev[r, k] > 0:
                    x = 1.0 / power[r, k]
                    for m in range(lev[r, k]):
                        add_powers(far[m], weight[r, k], 0.0, x)
                k += 1
            slope = ds[r, j]
            if lev[r, j] < num_levels:
                own = far[lev[r, j]]
                first = node[r, j]
                pull = read_nodes(share[r, j], pulls[r, lev[r, j], first : first + 8])
                x = power[r, j]
                x2 = x * x
                near = x * own[2] - 2.0 * x2 * own[3]
                near += 3.0 * x2 * x * own[4] - 4.0 * x2 * x2 * own[5]
                slope += (pull - near) / tau + rho * own[0]
            gradient[r, col[r, j]] = slope
