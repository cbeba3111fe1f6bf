"""Pairs of all positives with all scores at once, on a grid: no cost grows with a window's pairs.

sigma(x / tau) is analytic up to +-i pi tau, so eight-point interpolation on nodes tau / 4 apart is
exact to 1e-7. The scores of a level are laid on the nodes; sigma and its slope go from all nodes to
all nodes; a positive reads them off eight nodes. Its weight goes the same way back. Between nodes,
pairs near each other are a short filter, and those farther apart are running sums of the powers of
x = exp(-|t| / tau), as in ``sums``. For float32, and steps that are smooth where they are not
straight.
"""

from typing import NamedTuple

import numpy as np

from hgld.ranking.compiled import Array, fast, kernel
from hgld.ranking.order import Row
from hgld.ranking.sums import Groups, fit_tail

__all__ = ["LEAST_DELTA", "Nodes", "count_all", "new_nodes", "nodes_for", "pull_all"]

PER_TAU = 4  # nodes in a temperature
LEAST_DELTA = 4.5  # delta / tau: below, two powers of exp(-t / tau) are not enough
NEAR = 31  # nodes to each side that the filter reaches
TAIL = fit_tail(NEAR / PER_TAU)
PLACES = np.arange(-NEAR, NEAR + 1) / PER_TAU
SIGMA = (1.0 / (1.0 + np.exp(-PLACES))).astype(np.float32)
SLOPE = (1.0 / (2.0 + 2.0 * np.cosh(PLACES))).astype(np.float32)
DECAY = np.exp(-1.0 / PER_TAU)
FAR = np.exp(-(NEAR + 1.0) / PER_TAU)  # x of the first node out of reach


class Nodes(NamedTuple):
    """Room for a row on the grid.

    Args:
        first: (N,) int32 first of the eight nodes of a score.
        between: (N,) float32 where it lies between the middle two.
        share: (8, N + 16) float32 share of each of the nodes.
        mass: (A + 2 NEAR,) float32 what lies on the nodes, with empty ones at both ends.
        field: (A,) float32 sums over the mass, at the nodes.
        sums: (L + 1, N) float32 sum of sigma over a level's scores, for each positive.
        slopes: (L + 1, N) float32 the same of its slope.
        weights: (L + 1, N) float32 what each positive leaves for a level's scores.
    """

    first: Array
    between: Array
    share: Array
    mass: Array
    field: Array
    sums: Array
    slopes: Array
    weights: Array


def nodes_for(span: float) -> int:
    """Nodes that rows with a range of ``span`` tau need."""
    return int(span * PER_TAU) + 10


def new_nodes(size: int, num_levels: int, span: float) -> Nodes:
    """Room for rows of this many scores, with a range of at most ``span`` tau."""
    nodes = nodes_for(span)
    by_score = (np.empty((num_levels + 1, size), np.float32) for _ in range(3))
    return Nodes(
        np.empty(size, np.int32),
        np.empty(size, np.float32),
        np.empty((8, size + 16), np.float32),  # rows apart in the cache
        np.empty(nodes + 2 * NEAR, np.float32),
        np.empty(nodes, np.float32),
        *by_score,
    )


@kernel
def count_all(tau: float, low: float, smooth: bool, row: Row, groups: Groups, nodes: Nodes) -> None:
    """Sums of sigma and of its slope over the scores of each level, for each positive."""
    n = row.starts[row.starts.shape[0] - 1]
    place(groups.val[:n], low, PER_TAU / tau, nodes.first, nodes.between)
    for i in range(8):
        lagrange(nodes.between[:n], i, nodes.share[i])
    nodes.weights[:] = 1.0
    for v in range(row.counts.shape[0]):
        first, last = row.starts[v], row.starts[v + 1]
        start = row.starts[1] if smooth else last  # first of the positives that count this level
        if first == last or start == n:
            nodes.sums[v, start:n] = 0.0
            nodes.slopes[v, start:n] = 0.0
            continue
        nodes.mass[:] = 0.0
        lay(nodes.share, nodes.first, nodes.weights[v], nodes.mass, first, last)
        sum_sigma(nodes.mass, nodes.field)
        nodes.sums[v, start:n] = 0.0
        read(nodes.share, nodes.first, nodes.field, start, n, 1.0, nodes.sums[v])
        sum_slopes(nodes.mass, nodes.field)
        nodes.slopes[v, start:n] = 0.0
        read(nodes.share, nodes.first, nodes.field, start, n, 1.0, nodes.slopes[v])
    nodes.weights[:] = 0.0


@kernel
def pull_all(tau: float, smooth: bool, row: Row, groups: Groups, nodes: Nodes) -> None:
    """Slope of every score, from what the positives left for its level."""
    n = row.starts[row.starts.shape[0] - 1]
    for v in range(row.counts.shape[0]):
        first, last = row.starts[v], row.starts[v + 1]
        start = row.starts[1] if smooth else last
        if first == last or start == n:
            continue
        nodes.mass[:] = 0.0
        lay(nodes.share, nodes.first, nodes.weights[v], nodes.mass, start, n)
        sum_slopes(nodes.mass, nodes.field)
        read(nodes.share, nodes.first, nodes.field, first, last, 1.0 / tau, groups.own)


@fast
def place(val: Array, low: float, scale: float, first: Array, between: Array) -> None:
    """Node below each score, and how far it lies above it, 0..1."""
    for p in range(val.shape[0]):
        at = (np.float64(val[p]) - low) * scale
        first[p] = np.int32(at)
        between[p] = np.float32(at - np.float64(np.int32(at)))


@fast
def lagrange(between: Array, node: int, ways: Array) -> None:
    """Share of one of the eight nodes -3..4: a product of the ways to the others."""
    scale = np.float32(1.0)
    for other in range(8):
        if other != node:
            scale /= np.float32(node - other)
    for p in range(between.shape[0]):
        ways[p] = scale
    for other in range(8):
        if other != node:
            add = np.float32(3 - other)
            for p in range(between.shape[0]):
                ways[p] *= between[p] + add


@fast
def lay(share: Array, firsts: Array, weight: Array, mass: Array, first: int, last: int) -> None:
    """Lay down the weights of the scores first..last, those on the same nodes together."""
    p = first
    while p < last:
        node, q = firsts[p], p + 1
        while q < last and firsts[q] == node:
            q += 1
        for i in range(8):
            total = np.float32(0)
            for j in range(np.uint64(p), np.uint64(q)):
                total += weight[j] * share[np.uint64(i), j]
            mass[node + NEAR + i] += total
        p = q


@fast
def read(
    share: Array, firsts: Array, field: Array, first: int, last: int, scale: float, out: Array
) -> None:
    """Add the field at the places of the scores first..last, each from its eight nodes."""
    for p in range(np.uint64(first), np.uint64(last)):
        node = np.uint64(firsts[p])
        total = np.float32(0)
        for i in range(np.uint64(8)):
            total += share[i, p] * field[node + i]
        out[p] += total * scale


@kernel
def sum_sigma(mass: Array, out: Array) -> None:
    """Sums of sigma over the mass, at every node."""
    filter_near(mass, SIGMA, out)
    add_below(mass, out, TAIL[0], TAIL[1])
    add_above(mass, out, 1.0, -TAIL[0], -TAIL[1])


@kernel
def sum_slopes(mass: Array, out: Array) -> None:
    """Sums of sigma (1 - sigma) over the mass, at every node: the same to and fro."""
    filter_near(mass, SLOPE, out)
    add_below(mass, out, TAIL[2], TAIL[3])
    add_above(mass, out, 0.0, TAIL[2], TAIL[3])


@kernel
def filter_near(mass: Array, taps: Array, out: Array) -> None:
    """Sum over the 63 nodes within reach, seven at a time."""
    out[:] = 0
    for i in range(0, taps.shape[0], 7):
        add_seven(mass[i : i + out.shape[0] + 6], taps[i : i + 7], out)


@fast
def add_seven(mass: Array, taps: Array, out: Array) -> None:
    """Add seven taps times as many shifted masses."""
    t0, t1, t2, t3, t4, t5, t6 = taps[0], taps[1], taps[2], taps[3], taps[4], taps[5], taps[6]
    for b in range(np.uint64(out.shape[0])):
        c = np.uint64(b)
        near = t0 * mass[c] + t1 * mass[c + np.uint64(1)] + t2 * mass[c + np.uint64(2)]
        far = t3 * mass[c + np.uint64(3)] + t4 * mass[c + np.uint64(4)]
        out[c] += near + far + t5 * mass[c + np.uint64(5)] + t6 * mass[c + np.uint64(6)]


@kernel
def add_below(mass: Array, out: Array, first: float, second: float) -> None:
    """Add what lies out of reach below each node."""
    x, y = 0.0, 0.0
    for b in range(NEAR + 1, out.shape[0]):
        here = np.float64(mass[b - 1])  # node b - NEAR - 1
        x = x * DECAY + here * FAR
        y = y * (DECAY * DECAY) + here * (FAR * FAR)
        out[b] += np.float32(first * x + second * y)


@kernel
def add_above(mass: Array, out: Array, each: float, first: float, second: float) -> None:
    """Add what lies out of reach above each node."""
    number, x, y = 0.0, 0.0, 0.0
    for b in range(out.shape[0] - NEAR - 2, -1, -1):
        here = np.float64(mass[b + 2 * NEAR + 1])  # node b + NEAR + 1
        number += here
        x = x * DECAY + here * FAR
        y = y * (DECAY * DECAY) + here * (FAR * FAR)
        out[b] += np.float32(each * number + first * x + second * y)
