"""Pairs of a positive with the scores near it, in numba.

One exponential per **score** serves every pair: sigma((s_j - s_k) / tau) = 1 / (1 + F_k G_j) with
G_j = exp(-s_j / tau) and F_k = 1 / G_k. Where a row's range is too wide for that, each pair has its
own. The slope of each pair is kept until the positive's weight is known.
"""

from typing import NamedTuple

import numpy as np

from hgld.ranking.compiled import Array, fast, kernel, part

__all__ = ["Pairs", "add_scaled", "count_pairs", "edge_above", "edge_below", "new_pairs"]


class Pairs(NamedTuple):
    """Room for the pairs of one positive.

    Args:
        slope: (N,) slope of each pair.
        gathered: (N,) slope of the loss by pairs.
    """

    slope: Array
    gathered: Array


def new_pairs(size: int, dtype: "np.dtype[np.floating]") -> Pairs:
    """Room for the pairs of a row of this many scores."""
    return Pairs(np.empty(size, dtype), np.empty(size, dtype))


@part
def edge_above(val: Array, s: float, edge: float, first: int, at: int) -> int:
    """First place from ``first`` on whose score is more than ``edge`` above s, at most ``at``."""
    while at > first and np.float64(val[at - 1]) - s > edge:
        at -= 1
    return at


@part
def edge_below(val: Array, s: float, window: float, first: int, at: int) -> int:
    """First place from ``first`` on whose score is no more than ``window`` below s."""
    while at > first and np.float64(val[at - 1]) - s >= -window:
        at -= 1
    return at


@part
def count_pairs(
    near: Array,
    down: Array,
    val: Array,
    s: float,
    up: float,
    tau: float,
    single: bool,
    lo: int,
    hi: int,
    slope: Array,
) -> tuple[float, float]:
    """Sums over lo..hi of sigma and of its slope.

    near, down: exp(-s / tau) in the scores' dtype, where ``single``, and in float64; up: its
    inverse for the score itself, 0 where there is none.
    """
    number, slopes = 0.0, 0.0
    if lo >= hi:
        return number, slopes
    if single:
        number, slopes = sigmoids(near, up, lo, hi, slope)
    elif up > 0.0:
        number, slopes = sigmoids(down, up, lo, hi, slope)
    else:
        number, slopes = sigmoids_each(val, s, tau, lo, hi, slope)
    return number, slopes


@fast
def sigmoids(g: Array, f: float, lo: int, hi: int, slope: Array) -> tuple[float, float]:
    """Sums of sigma and of sigma (1 - sigma); each slope is kept."""
    one = g.dtype.type(1)
    total, slopes = g.dtype.type(0), g.dtype.type(0)
    f = g.dtype.type(f)
    for j in range(np.uint64(lo), np.uint64(hi)):  # unsigned: no place counts from the end
        x = one / (one + f * g[j])
        y = x - x * x
        slope[j] = y
        total += x
        slopes += y
    return np.float64(total), np.float64(slopes)


@kernel
def sigmoids_each(
    val: Array, s: float, tau: float, lo: int, hi: int, slope: Array
) -> tuple[float, float]:
    """As ``sigmoids`` with an exponential for each pair."""
    total, slopes = 0.0, 0.0
    for j in range(lo, hi):
        x = 1.0 / (1.0 + np.exp(-(np.float64(val[j]) - s) / tau))
        slope[j] = x - x * x
        total += x
        slopes += x - x * x
    return total, slopes


@fast
def add_scaled(target: Array, slope: Array, weight: float, lo: int, hi: int) -> None:
    """Add weight * slope to the target at lo..hi."""
    w = target.dtype.type(weight)
    for j in range(np.uint64(lo), np.uint64(hi)):
        target[j] += w * slope[j]
