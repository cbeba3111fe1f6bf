"""Metrics of ranked levels: the level of the image at each rank is all that a metric needs.

A (Q, G) table of ranked levels is found once, by sorting, and serves every metric, every k and
every alpha. Sums are float64. A query without what the metric asks for gets nan.
"""

import torch
from torch import Tensor

from hgld.ranking.plain import gain_table, ideal_dcg

__all__ = [
    "asi",
    "average_precision",
    "h_ap",
    "h_precision",
    "h_rank_plus",
    "h_rank_plus_of",
    "h_recall",
    "ndcg",
    "places",
    "rank_levels",
    "rank_relevance",
    "ratio_of",
    "recall",
    "true_recall",
]


def rank_levels(scores: Tensor, levels: Tensor) -> Tensor:
    """Levels in the order of the ranking, (Q, G) int8; what is not in the gallery (-1) goes last.

    Among equal scores the less relevant comes first, whatever the gallery's order, so that no
    metric gains by ties and none depends on how the gallery was stored.

    Example:
        >>> rank_levels(torch.tensor([[0.5, 0.5, 0.9]]), torch.tensor([[2, 1, 0]])).tolist()
        [[0, 1, 2]]
    """
    return levels.gather(1, _order(scores, levels, levels)).to(torch.int8)


def _order(scores: Tensor, levels: Tensor, worth: Tensor) -> Tensor:
    """Columns by score, best first; among equals the one worth less first; absent ones last."""
    finite = scores.masked_fill(levels < 0, -torch.inf)
    by_worth = worth.argsort(dim=1, stable=True)
    by_score = finite.gather(1, by_worth).argsort(dim=1, descending=True, stable=True)
    return by_worth.gather(1, by_score)


def rank_relevance(scores: Tensor, levels: Tensor, rel: Tensor) -> Tensor:
    """Relevance in the order of the ranking, (Q, G) float64; absent images go last with 0."""
    rel = rel.double() * (levels > 0)
    return rel.gather(1, _order(scores, levels, rel))


def places(ranked: Tensor) -> Tensor:
    """1..G as float64."""
    return torch.arange(1, ranked.shape[1] + 1, dtype=torch.float64, device=ranked.device)


def average_precision(
    ranked: Tensor, at_level: int, k: int | None = None, at_r: bool = False
) -> Tensor:
    """Sum of precisions at positives up to the cut, over R, or over min(R, k); (Q,)."""
    hits = ranked >= at_level
    total = hits.sum(1)
    found = hits.cumsum(1)
    precision = torch.where(hits, found / places(ranked), 0.0)
    limit = total
    if at_r:
        precision = torch.where(places(ranked) <= total[:, None], precision, 0.0)
    elif k is not None:
        precision, limit = precision[:, :k], total.clamp(max=k)
    return _or_nan(precision.sum(1) / limit, total)


def recall(ranked: Tensor, at_level: int, k: int) -> Tensor:
    """1 where any positive is among the first k (Eq. 13); (Q,)."""
    hits = ranked >= at_level
    return _or_nan(hits[:, :k].any(1).double(), hits.sum(1))


def true_recall(ranked: Tensor, at_level: int, k: int) -> Tensor:
    """Share of min(k, R) found among the first k (Eq. 14); (Q,)."""
    hits = ranked >= at_level
    total = hits.sum(1)
    return _or_nan(hits[:, :k].sum(1) / total.clamp(max=k).double(), total)


def ndcg(ranked: Tensor, counts: Tensor, k: int | None = None) -> Tensor:
    """DCG over ideal DCG with gain 2^level - 1 (Eq. 23); (Q,)."""
    gains = gain_table(counts.shape[1] - 1).to(ranked.device)
    found = gains[ranked.clamp(min=0).long()] / (places(ranked) + 1.0).log2()
    if k is None:
        ideal = ideal_dcg(gains, counts)
    else:
        best = best_order(counts, min(k, ranked.shape[1]))
        ideal = (gains[best] / (places(best) + 1.0).log2()).sum(1)
        found = found[:, :k]
    return _or_nan(found.sum(1) / ideal, counts[:, 1:].sum(1))


def best_order(counts: Tensor, size: int) -> Tensor:
    """Levels of the best ranking, its first ``size`` places: (Q, size)."""
    ends = counts.flip(1).cumsum(1)  # finest first
    spots = torch.arange(1, size + 1, device=counts.device).expand(len(counts), -1)
    passed = torch.searchsorted(ends, spots.contiguous())  # levels wholly before a place
    return (counts.shape[1] - 1 - passed).clamp(min=0)


def asi(ranked: Tensor, counts: Tensor) -> Tensor:
    """Mean over n = 1..P of the overlap by level of the first n with the ideal first n; (Q,)."""
    positives = counts[:, 1:].sum(1)
    depth = max(1, int(positives.max()))
    top, best = ranked[:, :depth], best_order(counts, depth)
    shared = torch.zeros(top.shape, dtype=torch.int64, device=ranked.device)
    for level in range(1, counts.shape[1]):
        shared += torch.minimum((top == level).cumsum(1), (best == level).cumsum(1))
    overlap = torch.where(places(top) <= positives[:, None], shared / places(top), 0.0)
    return _or_nan(overlap.sum(1) / positives, positives)


def h_ap(ranked: Tensor, table: Tensor, counts: Tensor) -> Tensor:
    """H-AP (Eq. 19) from a (Q, L + 1) relevance by level; (Q,)."""
    total = (table * counts)[:, 1:].sum(1)
    ratio = h_rank_plus(ranked, table) / places(ranked)
    return _or_nan(ratio.sum(1) / total, total)


def h_rank_plus(ranked: Tensor, table: Tensor) -> Tensor:
    """H-rank+ (Eq. 18) at each rank, 0 where the image there is not relevant; (Q, G) float64."""
    result = torch.zeros(ranked.shape, dtype=torch.float64, device=ranked.device)
    found = [(ranked == level).cumsum(1) for level in range(1, table.shape[1])]
    for level in range(1, table.shape[1]):
        here = torch.zeros_like(result)
        for other, until in enumerate(found, 1):
            here += until * torch.minimum(table[:, level], table[:, other])[:, None]
        result = torch.where(ranked == level, here, result)
    return result


def h_rank_plus_of(rel: Tensor) -> Tensor:
    """H-rank+ from ranked relevance that is no function of the level; (Q, G) float64.

    min(x, y) is the sum over distinct values v of the steps up to v that both reach, so a row
    needs one cumulative sum for each distinct value.
    """
    rows = []
    for row in rel:
        values = row.unique()
        steps = values.diff(prepend=values.new_zeros(1))
        total = torch.zeros_like(row)
        for value, step in zip(values, steps, strict=True):
            total += torch.where(row >= value, (row >= value).cumsum(0) * step, 0.0)
        rows.append(total)
    return torch.stack(rows)


def ratio_of(rel: Tensor) -> Tensor:
    """H-AP from ranked relevance (Q, G); (Q,)."""
    total = rel.sum(1)
    return _or_nan((h_rank_plus_of(rel) / places(rel)).sum(1) / total, total)


def h_recall(rel: Tensor, k: int) -> Tensor:
    """H-R@k (Eq. 30) from ranked relevance (Q, G); (Q,)."""
    total = rel.sum(1)
    return _or_nan(rel[:, :k].sum(1) / total, total)


def h_precision(rel: Tensor, k: int) -> Tensor:
    """H-P@k (Eq. 31) from ranked relevance (Q, G), 0 where rank k is not relevant; (Q,)."""
    total = rel.sum(1)
    if k > rel.shape[1]:
        return _or_nan(torch.zeros_like(total), total)
    here = rel[:, k - 1]
    shared = torch.minimum(rel[:, :k], here[:, None]).sum(1)
    precision = torch.where(here > 0, shared / (k * torch.where(here > 0, here, 1.0)), 0.0)
    return _or_nan(precision, total)


def _or_nan(values: Tensor, weight: Tensor) -> Tensor:
    return torch.where(weight > 0, values.double(), torch.nan)
