"""What lies outside a positive's window, by running sums over each level, in numba.

A pair far apart needs no sigmoid of its own. Far above, the step is straight. Where it is the
sigmoid there, and far below, sigma is a polynomial of x = exp(-|t| / tau), and x is a product of
one exponential of each side: sums of the powers of one side serve every score of the other. Two
powers are enough, with coefficients that fit sigma best between 0 and the window's edge.

What is a running sum on the way there is a difference array on the way back: a positive leaves its
weight at the window's edge, and every score beyond it picks it up.
"""

from typing import NamedTuple

import numpy as np

from hgld.ranking.compiled import Array, kernel, part
from hgld.ranking.order import Row

__all__ = [
    "DOUBLE",
    "SINGLE",
    "Groups",
    "Reach",
    "add_sums",
    "exponentials",
    "fit_tail",
    "leave_powers",
    "new_groups",
    "powers_of",
    "prepare_sums",
]

QUARTERS = np.exp(-np.arange(700) / 4.0)
SINGLE, DOUBLE = 170.0, 680.0  # range / tau that exponentials in float32, and squares, can bear


class Reach(NamedTuple):
    """Where a window ends, and what stands beyond it.

    Args:
        window: how far below a positive scores count in pairs.
        edge: how far above.
        end: what each score beyond the edge counts.
        powers_below: whether what lies below the window counts by powers of x.
        below: (4,) what x and x^2 count there, and the slopes that they give.
        powers_above: whether what lies beyond the edge does.
        above: (4,) what x and x^2 count there, and the slopes that they give.
    """

    window: float
    edge: float
    end: float
    powers_below: bool
    below: Array
    powers_above: bool
    above: Array


class Groups(NamedTuple):
    """Room for a row by level and score. Lists of sums have a spot more for each level.

    Args:
        val: (N,) scores.
        down: (N,) float64 exp(-s / tau) up to a factor of the row; 1 where the range is too wide.
        near: (N,) the same in the scores' dtype.
        own: (N,) float64 slope of the loss.
        above: (N + L + 1, 3) float64 sums over the scores from here on: s, down, down^2.
        below: (N + L + 1, 2) float64 sums over the scores before: 1/down, 1/down^2.
        to_above: (N + L + 1, 3) float64 weights that go to the scores from here on.
        to_below: (N + L + 1, 2) float64 weights that go to the scores before.
    """

    val: Array
    down: Array
    near: Array
    own: Array
    above: Array
    below: Array
    to_above: Array
    to_below: Array


def new_groups(size: int, num_levels: int, dtype: "np.dtype[np.floating]") -> Groups:
    """Room for a row of this many scores."""
    each = (np.empty(size, kind) for kind in (dtype, np.float64, dtype, np.float64))
    lists = (np.empty((size + num_levels + 1, width)) for width in (3, 2, 3, 2))
    return Groups(*each, *lists)


def fit_tail(edge: float) -> Array:
    """Factors of x and x^2 in x / (1 + x) and in x / (1 + x)^2 for x in 0..exp(-edge)."""
    high = np.exp(-edge)
    nodes = high * (0.5 + np.array([-1.0, 1.0]) / np.sqrt(8.0))  # of Chebyshev
    found = []
    for values in (1.0 / (1.0 + nodes), 1.0 / (1.0 + nodes) ** 2):
        slope = (values[1] - values[0]) / (nodes[1] - nodes[0])
        found += [values[0] - slope * nodes[0], slope]
    return np.array(found)


@kernel
def exponentials(tau: float, low: float, span: float, row: Row, groups: Groups) -> None:
    """exp(-s / tau) up to a factor of the row, for all its scores by level."""
    start = np.exp(span / 2.0)
    for p in range(row.starts[row.starts.shape[0] - 1]):
        place = (np.float64(groups.val[p]) - low) / tau
        if span > DOUBLE:
            groups.down[p] = 1.0
        elif span > SINGLE or groups.near.itemsize == 8:
            groups.down[p] = np.exp(span / 2.0 - place)
        else:  # quarters of tau from a table, the rest by a series
            quarter = np.uint64(place * 4.0)
            e = start * QUARTERS[quarter] * small_exp(np.float64(quarter) * 0.25 - place)
            groups.down[p] = e
            groups.near[p] = e


@part
def small_exp(x: float) -> float:
    """exp(x) for x in (-1/4, 0], to 1e-11."""
    y = 1.0 / 5040.0 + x * (1.0 / 40320.0)
    y = 1.0 / 120.0 + x * (1.0 / 720.0 + x * y)
    y = 1.0 / 6.0 + x * (1.0 / 24.0 + x * y)
    return 1.0 + x * (1.0 + x * (0.5 + x * y))


@kernel
def prepare_sums(reach: Reach, row: Row, groups: Groups) -> None:
    """Running sums of each level, and zeros where slopes will be gathered."""
    groups.own[: row.starts[row.starts.shape[0] - 1]] = 0.0
    for v in range(row.counts.shape[0]):
        first, last = row.starts[v], row.starts[v + 1]
        a, b = first + v, last + v + 1
        groups.to_below[a:b] = 0.0
        groups.to_above[a:b] = 0.0
        sum_values(groups.val[first:last], groups.above[a:b])
        if reach.powers_below:
            sum_below(groups.down[first:last], groups.below[a:b])
        if reach.powers_above:
            sum_above(groups.down[first:last], groups.above[a:b])


@kernel
def sum_below(down: Array, below: Array) -> None:
    """Sums of 1/down and its square over what stands before."""
    a, b = 0.0, 0.0
    for p in range(down.shape[0]):
        below[p, 0] = a
        below[p, 1] = b
        x = 1.0 / down[p]
        a += x
        b += x * x
    below[down.shape[0], 0] = a
    below[down.shape[0], 1] = b


@kernel
def sum_values(val: Array, above: Array) -> None:
    """Sums of scores over what stands from here on."""
    s = 0.0
    above[val.shape[0], 0] = 0.0
    for p in range(val.shape[0] - 1, -1, -1):
        s += np.float64(val[p])
        above[p, 0] = s


@kernel
def sum_above(down: Array, above: Array) -> None:
    """Sums of down and its square over what stands from here on."""
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
    """What sums of powers count for one score, whose own factor is x, and the slope they give."""
    first, second = sums[at, column] * x, sums[at, column + 1] * x * x
    return a * first + b * second, c * first + d * second


@part
def leave_powers(
    left: Array, at: int, column: int, x: float, weight: float, c: float, d: float
) -> None:
    """Leave a weight for all scores that ``powers_of`` counted."""
    left[at, column] += weight * c * x
    left[at, column + 1] += weight * d * x * x


@kernel
def add_sums(reach: Reach, row: Row, groups: Groups) -> None:
    """Add to each score's slope what positives left for it."""
    for v in range(row.counts.shape[0]):
        first, last = row.starts[v], row.starts[v + 1]
        a, b = first + v, last + v + 1
        own, down = groups.own[first:last], groups.down[first:last]
        add_flat(groups.to_above[a:b], own)
        if reach.powers_below:
            add_from_above(groups.to_below[a:b], down, own)
        if reach.powers_above:
            add_from_below(groups.to_above[a:b], down, own)


@kernel
def add_flat(left: Array, own: Array) -> None:
    """Slope of the straight part, left at the first score that it goes to."""
    run = 0.0
    for p in range(own.shape[0]):
        run += left[p, 0]
        own[p] += run


@kernel
def add_from_above(left: Array, down: Array, own: Array) -> None:
    """Slopes by powers of x, left one behind the last score that they go to."""
    a, b = 0.0, 0.0
    for p in range(own.shape[0] - 1, -1, -1):
        a += left[p + 1, 0]
        b += left[p + 1, 1]
        up = 1.0 / down[p]
        own[p] += (a + b * up) * up


@kernel
def add_from_below(left: Array, down: Array, own: Array) -> None:
    """Slopes by powers of x, left at the first score that they go to."""
    a, b = 0.0, 0.0
    for p in range(own.shape[0]):
        a += left[p, 1]
        b += left[p, 2]
        own[p] += (a + b * down[p]) * down[p]
