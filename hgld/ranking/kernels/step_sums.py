"""Sums of the step over the scores around a positive, in numba: by pairs, by powers, or on a grid.

Three methods give the same sums; each is used where it is cheapest:

- **Pairs** near a positive. One exponential per score serves every pair:
  sigma((s_j - s_k) / tau) = 1 / (1 + F_k G_j) with G_j = exp(-s_j / tau) and F_k = 1 / G_k. A row
  whose range is too wide for that takes one exponential per pair. The slope of each pair is stored
  until the positive's weight is known.
- **Powers** outside the window. Far above, the step is linear. Far below (and far above for a
  sigmoid), sigma is a polynomial of x = exp(-|t| / tau), and x is a product of one exponential of
  each side: running sums of the powers of one side serve every score of the other. Two powers with
  fitted coefficients are enough. The backward pass uses a difference array: a positive adds its
  weight at the window's edge, and every score beyond it receives the running sum.
- **A grid** if windows contain most scores, so that no cost grows with the pairs. sigma(x / tau) is
  analytic up to +-i pi tau, so eight-point interpolation on nodes tau / 4 apart is exact to 1e-7.
  The scores of a level are spread onto the nodes; sigma and its slope are convolved from all nodes
  to all nodes; a positive interpolates the result from eight nodes, and its weight takes the same
  path back. For float32, and for steps that are smooth except where they are linear.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hgld.compiled import Array, fast, inner, part
from hgld.ranking.kernels.sort import SortedRow


@part
def edge_above(val: Array, s: float, edge: float, first: int, at: int) -> int:
    """First index from ``first`` on whose score is more than ``edge`` above s, at most ``at``."""
    while at > first and np.float64(val[at - 1]) - s > edge:
        at -= 1
    return at


@part
def edge_below(val: Array, s: float, window: float, first: int, at: int) -> int:
    """First index from ``first`` on whose score is no more than ``window`` below s."""
    while at > first and np.float64(val[at - 1]) - s >= -window:
        at -= 1
    return at


@fast
def sigmoids(g: Array, f: float, lo: int, hi: int, slope: Array) -> tuple[float, float]:
    """Sums of sigma and of sigma (1 - sigma); stores each slope."""
    one = g.dtype.type(1)
    total, slopes = g.dtype.type(0), g.dtype.type(0)
    f = g.dtype.type(f)
    for j in range(np.uint64(lo), np.uint64(hi)):  # unsigned: numba need not test for j < 0
        x = one / (one + f * g[j])
        y = x - x * x
        slope[j] = y
        total += x
        slopes += y
    return np.float64(total), np.float64(slopes)


@inner
def sigmoids_each(
    val: Array, s: float, tau: float, lo: int, hi: int, slope: Array
) -> tuple[float, float]:
    """Like ``sigmoids``, with an exponential for each pair."""
    total, slopes = 0.0, 0.0
    for j in range(lo, hi):
        x = 1.0 / (1.0 + np.exp(-(np.float64(val[j]) - s) / tau))
        slope[j] = x - x * x
        total += x
        slopes += x - x * x
    return total, slopes


@fast
def add_scaled(target: Array, slope: Array, weight: float, lo: int, hi: int) -> None:
    """Add weight * slope to the target at indices lo..hi."""
    w = target.dtype.type(weight)
    for j in range(np.uint64(lo), np.uint64(hi)):
        target[j] += w * slope[j]


QUARTERS = np.exp(-np.arange(700) / 4.0)
SINGLE, DOUBLE = 170.0, 680.0  # range / tau: limits of exponentials in float32, and of squares


class Reach(NamedTuple):
    """End of a window, and the contribution of scores beyond it.

    Args:
        window: distance below a positive up to which scores count in pairs.
        edge: the same above it.
        end: contribution of each score beyond the edge.
        powers_below: whether scores below the window count by powers of x.
        below: (4,) coefficients of x and x^2 there: of the sum, then of its slope.
        powers_above: whether scores beyond the edge count by powers of x.
        above: (4,) coefficients of x and x^2 there: of the sum, then of its slope.
    """

    window: float
    edge: float
    end: float
    powers_below: bool
    below: Array
    powers_above: bool
    above: Array


class Groups(NamedTuple):
    """Buffers for a row by level and score. Lists of sums have one more entry per level.

    Args:
        val: (N,) scores.
        down: (N,) float64 exp(-s / tau) up to a factor of the row; 1 if the range is too wide.
        up: (N,) float64 its inverse.
        near: (N,) ``down`` in the scores' dtype.
        own: (N,) float64 slope of the loss.
        above: (N + L + 1, 3) float64 sums over the scores from here on: s, down, down^2.
        below: (N + L + 1, 2) float64 sums over the scores before: 1/down, 1/down^2.
        to_above: (N + L + 1, 3) float64 weights for the scores from here on.
        to_below: (N + L + 1, 2) float64 weights for the scores before.
    """

    val: Array
    down: Array
    up: Array
    near: Array
    own: Array
    above: Array
    below: Array
    to_above: Array
    to_below: Array


def new_groups(size: int, num_levels: int, dtype: "np.dtype[np.floating]") -> Groups:
    """Allocate the buffers for a row of this many scores."""
    kinds = dtype, np.float64, np.float64, dtype, np.float64
    each = (np.empty(size, kind) for kind in kinds)
    lists = (np.empty((size + num_levels + 1, width)) for width in (3, 2, 3, 2))
    return Groups(*each, *lists)


@lru_cache(maxsize=16)
def fit_tail(edge: float) -> Array:
    """Coefficients of x and x^2 that fit x / (1 + x) and x / (1 + x)^2 on x in 0..exp(-edge)."""
    high = np.exp(-edge)
    nodes = high * (0.5 + np.array([-1.0, 1.0]) / np.sqrt(8.0))  # of Chebyshev
    found = []
    for values in (1.0 / (1.0 + nodes), 1.0 / (1.0 + nodes) ** 2):
        slope = (values[1] - values[0]) / (nodes[1] - nodes[0])
        found += [values[0] - slope * nodes[0], slope]
    return np.array(found)


@inner
def exponentials(tau: float, low: float, span: float, row: SortedRow, groups: Groups) -> None:
    """Write exp(-s / tau), up to a factor of the row, for all its scores by level."""
    start = np.exp(span / 2.0)
    for p in range(row.starts[row.starts.shape[0] - 1]):
        place = (np.float64(groups.val[p]) - low) / tau
        if span > DOUBLE:
            groups.down[p] = 1.0
        elif span > SINGLE or groups.near.itemsize == 8:
            groups.down[p] = np.exp(span / 2.0 - place)
        else:  # quarters of tau from a table, the rest by a Taylor series
            quarter = np.uint64(place * 4.0)
            e = start * QUARTERS[quarter] * small_exp(np.float64(quarter) * 0.25 - place)
            groups.down[p] = e
            groups.near[p] = e
    for p in range(row.starts[row.starts.shape[0] - 1]):
        groups.up[p] = 1.0 / groups.down[p]


@part
def small_exp(x: float) -> float:
    """exp(x) for x in (-1/4, 0], to 1e-11."""
    y = 1.0 / 5040.0 + x * (1.0 / 40320.0)
    y = 1.0 / 120.0 + x * (1.0 / 720.0 + x * y)
    y = 1.0 / 6.0 + x * (1.0 / 24.0 + x * y)
    return 1.0 + x * (1.0 + x * (0.5 + x * y))


@inner
def prepare_sums(reach: Reach, smooth: bool, row: SortedRow, groups: Groups) -> None:
    """Compute the running sums of each level, and clear the slopes to be accumulated."""
    groups.own[: row.starts[row.starts.shape[0] - 1]] = 0.0
    for v in range(row.counts.shape[0] - 1 + smooth):  # nothing is finer than the last level
        first, last = row.starts[v], row.starts[v + 1]
        a, b = first + v, last + v + 1
        groups.to_below[a:b] = 0.0
        groups.to_above[a:b] = 0.0
        val, up = groups.val[first:last], groups.up[first:last]
        sum_sides(val, up, groups.above[a:b], groups.below[a:b])
        if reach.powers_above:
            sum_above(groups.down[first:last], groups.above[a:b])


@inner
def sum_sides(val: Array, up: Array, above: Array, below: Array) -> None:
    """Running sums of scores from each index on, and of ``up`` and its square before each index.

    Both in one loop, since each sum waits for its last.
    """
    last = val.shape[0]
    s, a, b = 0.0, 0.0, 0.0
    for p in range(last):
        above[last - p, 0] = s
        s += np.float64(val[last - 1 - p])
        below[p, 0] = a
        below[p, 1] = b
        a += up[p]
        b += up[p] * up[p]
    above[0, 0] = s
    below[last, 0] = a
    below[last, 1] = b


@inner
def sum_above(down: Array, above: Array) -> None:
    """Running sums of down and its square from each index on."""
    a, b = 0.0, 0.0
    above[down.shape[0], 1:] = 0.0
    for p in range(down.shape[0] - 1, -1, -1):
        a += down[p]
        b += down[p] * down[p]
        above[p, 1] = a
        above[p, 2] = b


@part
def powers_of(
    sums: Array, at: int, column: int, x: float, a: float, b: float, c: float, d: float
) -> tuple[float, float]:
    """Contribution of the sums of powers to a score with factor x, and its slope."""
    first, second = sums[at, column] * x, sums[at, column + 1] * x * x
    return a * first + b * second, c * first + d * second


@part
def leave_powers(
    left: Array, at: int, column: int, x: float, weight: float, c: float, d: float
) -> None:
    """Add a weight for all scores that ``powers_of`` counted."""
    left[at, column] += weight * c * x
    left[at, column + 1] += weight * d * x * x


@inner
def add_sums(reach: Reach, smooth: bool, row: SortedRow, groups: Groups) -> None:
    """Add to each score's slope the weights that positives assigned to it."""
    for v in range(row.counts.shape[0] - 1 + smooth):
        first, last = row.starts[v], row.starts[v + 1]
        a, b = first + v, last + v + 1
        own, up = groups.own[first:last], groups.up[first:last]
        add_sides(groups.to_above[a:b], groups.to_below[a:b], up, own)
        if reach.powers_above:
            add_from_below(groups.to_above[a:b], groups.down[first:last], own)


@inner
def add_sides(to_above: Array, to_below: Array, up: Array, own: Array) -> None:
    """Slopes of the linear part, and those by powers of x below, both in one loop.

    A weight for the scores from an index on is stored there, one for those before it, too.
    """
    last = own.shape[0] - 1
    run, a, b = 0.0, 0.0, 0.0
    for p in range(last + 1):
        run += to_above[p, 0]
        own[p] += run
        q = last - p
        a += to_below[q + 1, 0]
        b += to_below[q + 1, 1]
        own[q] += (a + b * up[q]) * up[q]


@inner
def add_from_below(left: Array, down: Array, own: Array) -> None:
    """Slopes by powers of x; each weight is stored at its first score."""
    a, b = 0.0, 0.0
    for p in range(own.shape[0]):
        a += left[p, 1]
        b += left[p, 2]
        own[p] += (a + b * down[p]) * down[p]


PER_TAU = 4  # nodes per temperature
LEAST_DELTA = 4.5  # delta / tau; below, two powers of exp(-t / tau) are too inaccurate
NEAR = 31  # reach of the filter in nodes, to each side
TAIL = fit_tail(NEAR / PER_TAU)
PLACES = np.arange(-NEAR, NEAR + 1) / PER_TAU
SIGMA = (1.0 / (1.0 + np.exp(-PLACES))).astype(np.float32)
SLOPE = (1.0 / (2.0 + 2.0 * np.cosh(PLACES))).astype(np.float32)
DECAY = np.exp(-1.0 / PER_TAU)
FAR = np.exp(-(NEAR + 1.0) / PER_TAU)  # x of the first node out of reach


class Nodes(NamedTuple):
    """Buffers for a row on the grid.

    Args:
        first: (N,) int32 first of the eight nodes of a score.
        share: (8, N + 16) float32 share of each of the nodes.
        mass: (A + 2 NEAR,) float32 weight on each node, with empty nodes at both ends.
        field: (A,) float32 sums over the mass, at the nodes.
        sums: (L + 1, N) float32 sum of sigma over a level's scores, for each positive.
        slopes: (L + 1, N) float32 the same of its slope.
        weights: (L + 1, N) float32 weight of each positive for a level's scores.
    """

    first: Array
    share: Array
    mass: Array
    field: Array
    sums: Array
    slopes: Array
    weights: Array


def nodes_for(span: float) -> int:
    """Number of nodes for rows with a range of ``span`` tau."""
    return int(span * PER_TAU) + 10


def new_nodes(size: int, num_levels: int, span: float) -> Nodes:
    """Allocate the buffers for rows of this many scores, with a range of at most ``span`` tau."""
    nodes = nodes_for(span)
    by_score = (np.empty((num_levels + 1, size), np.float32) for _ in range(3))
    return Nodes(
        np.empty(size, np.int32),
        np.empty((8, size + 16), np.float32),  # padded, so that rows do not collide in the cache
        np.empty(nodes + 2 * NEAR, np.float32),
        np.empty(nodes, np.float32),
        *by_score,
    )


@inner
def count_all(
    tau: float, low: float, smooth: bool, row: SortedRow, groups: Groups, nodes: Nodes
) -> None:
    """Compute sums of sigma and its slope over the scores of each level, for each positive."""
    n = row.starts[row.starts.shape[0] - 1]
    place(groups.val[:n], low, PER_TAU / tau, nodes.first, nodes.share)
    nodes.weights[:] = 1.0
    for v in range(row.counts.shape[0]):
        first, last = row.starts[v], row.starts[v + 1]
        start = row.starts[1] if smooth else last  # first positive that counts this level
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


@inner
def pull_all(tau: float, smooth: bool, row: SortedRow, groups: Groups, nodes: Nodes) -> None:
    """Compute the slope of every score from the weights of the positives for its level."""
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
def place(val: Array, low: float, scale: float, first: Array, share: Array) -> None:
    """Write the node below each score, and the Lagrange weights of the nodes -3..4 around it."""
    for p in range(val.shape[0]):
        at = (np.float64(val[p]) - low) * scale
        node = np.int32(at)
        first[p] = node
        x = np.float32(at - np.float64(node))
        # distances to the eight nodes, and products of them, two and four at a time
        a, b, c, d = x + np.float32(3), x + np.float32(2), x + np.float32(1), x
        e, f, g, h = x - np.float32(1), x - np.float32(2), x - np.float32(3), x - np.float32(4)
        ab, cd, ef, gh = a * b, c * d, e * f, g * h
        low_four, high_four = ab * cd, ef * gh
        share[0, p] = high_four * cd * b * np.float32(-1 / 5040)
        share[1, p] = high_four * cd * a * np.float32(1 / 720)
        share[2, p] = high_four * ab * d * np.float32(-1 / 240)
        share[3, p] = high_four * ab * c * np.float32(1 / 144)
        share[4, p] = low_four * gh * f * np.float32(-1 / 144)
        share[5, p] = low_four * gh * e * np.float32(1 / 240)
        share[6, p] = low_four * ef * h * np.float32(-1 / 720)
        share[7, p] = low_four * ef * g * np.float32(1 / 5040)


@fast
def lay(share: Array, firsts: Array, weight: Array, mass: Array, first: int, last: int) -> None:
    """Spread the weights of the scores first..last onto nodes; scores of one node together."""
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
    """Add the interpolated field at the scores first..last, each from its eight nodes."""
    for p in range(np.uint64(first), np.uint64(last)):
        node = np.uint64(firsts[p])
        total = np.float32(0)
        for i in range(np.uint64(8)):
            total += share[i, p] * field[node + i]
        out[p] += total * scale


@inner
def sum_sigma(mass: Array, out: Array) -> None:
    """Convolve the mass with sigma, at every node."""
    filter_near(mass, SIGMA, out)
    add_tails(mass, out, TAIL[0], TAIL[1], 1.0)


@inner
def sum_slopes(mass: Array, out: Array) -> None:
    """Convolve the mass with sigma (1 - sigma), which is symmetric, at every node."""
    filter_near(mass, SLOPE, out)
    add_tails(mass, out, TAIL[2], TAIL[3], 0.0)


@inner
def filter_near(mass: Array, taps: Array, out: Array) -> None:
    """Convolve with the 63 taps in reach, seven at a time."""
    out[:] = 0
    for i in range(0, taps.shape[0], 7):
        add_seven(mass[i : i + out.shape[0] + 6], taps[i : i + 7], out)


@fast
def add_seven(mass: Array, taps: Array, out: Array) -> None:
    """Add seven taps times the shifted masses; unrolled, to load each output once."""
    t0, t1, t2, t3, t4, t5, t6 = taps[0], taps[1], taps[2], taps[3], taps[4], taps[5], taps[6]
    for b in range(np.uint64(out.shape[0])):
        c = np.uint64(b)
        near = t0 * mass[c] + t1 * mass[c + np.uint64(1)] + t2 * mass[c + np.uint64(2)]
        far = t3 * mass[c + np.uint64(3)] + t4 * mass[c + np.uint64(4)]
        out[c] += near + far + t5 * mass[c + np.uint64(5)] + t6 * mass[c + np.uint64(6)]


@inner
def add_tails(mass: Array, out: Array, first: float, second: float, end: float) -> None:
    """Add the tails of the nodes out of the filter's reach, by two decaying sums on each side.

    Both sides in one loop, since each sum waits for its last. end: limit of the filter far above;
    the tails are those of end - sigma if it is 1.
    """
    sign = 1.0 - 2.0 * end
    number, x, y, u, v = 0.0, 0.0, 0.0, 0.0, 0.0
    last = out.shape[0] - 1
    for b in range(NEAR + 1, out.shape[0]):
        below, above = np.float64(mass[b - 1]), np.float64(mass[last - b + 2 * NEAR + 1])
        x = x * DECAY + below * FAR
        y = y * (DECAY * DECAY) + below * (FAR * FAR)
        out[b] += np.float32(first * x + second * y)
        number += above
        u = u * DECAY + above * FAR
        v = v * (DECAY * DECAY) + above * (FAR * FAR)
        out[last - b] += np.float32(end * number + sign * (first * u + second * v))
