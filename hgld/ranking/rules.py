"""What the ranks of a query's positives are worth, in the form that kernels read.

A rule says which step counts those above, and what is made of a rank R and of H, the relevance
shared with those above: H / R (AP, H-AP), gain / log2(1 + R) (DCG) or sigma((K - R) / T) (recall).
"""

from typing import NamedTuple

import numpy as np

from hgld.ranking.compiled import Array, kernel, part

__all__ = ["DCG", "RATIO", "RECALL", "Rule", "close_full", "normaliser", "shares_of", "worth"]

RATIO, DCG, RECALL = 0, 1, 2


class Rule(NamedTuple):
    """What a kernel computes.

    Args:
        kind: RATIO, DCG or RECALL.
        smooth: whether the step counts all images, not those of a lower level alone.
        soft: whether the step is the sigmoid above ``delta`` too.
        tau: temperature of the step.
        rho: slope above ``delta``.
        delta: where the step goes on straight.
        jump: what is added at 0.
        end: value just above ``delta``.
        ks: cut-offs of RECALL, float64.
        temperature: of RECALL, in ranks.
        clip: whether at most k count for a cut-off.
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
    temperature: float
    clip: bool
    discounts: Array


@kernel
def normaliser(rel: Array, counts: Array, rule: Rule) -> float:
    """What the sum over positives is divided by: all relevance, or the ideal DCG."""
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
    temperature: float,
    shares: Array,
    found: Array,
) -> tuple[float, float]:
    """Value of one positive, and minus its slope by the rank.

    Args:
        rank: R, at least 1 but for rounding.
        shared: H.
        gain: relevance of the positive itself.
        scale: the ``normaliser``.
        kind: as in ``Rule``, like ``ks`` and ``temperature``.
        ks: the cut-offs.
        temperature: in ranks.
        shares: for each cut-off what a positive found counts; 0 once it is full.
        found: for each cut-off how many were found; added to.
    """
    if kind == RATIO:
        value = shared / rank / scale
        return value, value / rank
    if kind == DCG:
        log = np.log(1.0 + rank)
        value = gain * np.log(2.0) / log / scale
        return value, value / ((1.0 + rank) * log)
    value, slope = 0.0, 0.0
    for c in range(ks.shape[0]):
        if rank - ks[c] > 700.0 * temperature:  # below what a float64 holds
            continue
        x = 1.0 / (1.0 + np.exp(-(ks[c] - rank) / temperature))
        found[c] += x
        value += x * shares[c]
        slope += x * (1.0 - x) / temperature * shares[c]
    return value, slope


@kernel
def shares_of(rule: Rule, positives: int) -> Array:
    """What a positive found counts for each cut-off: 1 / min(k, P), of their mean."""
    shares = np.empty(rule.ks.shape[0])
    for c in range(shares.shape[0]):
        shares[c] = 1.0 / (min(rule.ks[c], np.float64(positives)) * shares.shape[0])
    return shares


@kernel
def close_full(rule: Rule, found: Array, shares: Array) -> float:
    """Close the cut-offs that found more than k, where that is all that counts; what they give."""
    given = 0.0
    for c in range(shares.shape[0]):
        if rule.clip and shares[c] > 0.0 and found[c] > rule.ks[c]:
            given += rule.ks[c] * shares[c]
            shares[c] = 0.0
        found[c] = 0.0
    return given
