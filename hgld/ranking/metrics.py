"""What to report: exact metrics of a ranking, one value for each query.

Functions take (Q, G) scores and levels and give (Q,) float64. Images are ranked by score; among
equal scores the less relevant comes first, whatever the gallery's order. A query that has nothing
to find gets nan, and is left out of a mean. Levels are compared as integers; a query is taken out
of its own gallery by index (level -1), never as "the first of the ranking".

``evaluate`` computes any of them for whole galleries, in blocks.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking import levels as grades
from hgld.ranking import ranked as lists
from hgld.ranking.checks import check_count, check_tensors
from hgld.ranking.evaluation import evaluate, rank_gallery
from hgld.ranking.names import MetricName, parse
from hgld.ranking.result import Result

__all__ = [
    "MetricName",
    "Result",
    "ap_approximation_error",
    "ap_at_k",
    "asi",
    "average_precision",
    "decomposability_gap",
    "evaluate",
    "h_ap",
    "h_precision_at_k",
    "h_rank_plus",
    "h_recall_at_k",
    "map_at_r",
    "ndcg",
    "parse",
    "rank_gallery",
    "recall_at_k",
    "tr_at_k",
    "weighted_ap",
]


def h_ap(
    scores: Tensor,
    levels: Tensor,
    num_levels: int,
    alpha: float = 1.0,
    relevance: Tensor | None = None,
) -> Tensor:
    """Hierarchical average precision of each query (Ramzi et al. 2024, Eq. 19).

    H-AP = sum_k [H-rank+(k) / rank(k)] / sum_k rel(k)

    Eq. 20 divides a level's weight by its size, so a fine level with very many images can have
    less relevance than a coarser one; then the order by level is not the best one, scores below 1,
    and a ``RelevanceWarning`` says how many queries are concerned.

    Args:
        scores: (Q, G) similarity; higher ranks first; among equals the less relevant first.
        levels: (Q, G) shared level 0..L; -1 is not in the gallery.
        num_levels: L.
        alpha: of Eq. 20.
        relevance: (Q, G) in place of Eq. 20.

    Returns:
        (Q,) in [0, 1]; nan where a query has no relevant gallery image.

    Raises:
        ShapeError: scores and levels differ in shape, or are out of range.

    Example:
        >>> levels = torch.tensor([[1, 0, 2]])
        >>> h_ap(torch.tensor([[0.9, 0.8, 0.7]]), levels, num_levels=2).tolist()
        [0.6666666666666666]
    """
    if relevance is not None:
        return lists.ratio_of(_ranked_relevance(scores, levels, relevance))
    ranked, counts = _ranked(scores, levels, num_levels)
    table = grades.relevance_table(counts, alpha)
    grades.warn_if_inverted(table, counts)
    return lists.h_ap(ranked, table, counts)


def weighted_ap(
    scores: Tensor, levels: Tensor, weights: Tensor | list[float] | tuple[float, ...]
) -> Tensor:
    """Weighted sum of the APs of all levels, as an H-AP (Property 1).

    Args:
        scores: (Q, G) similarity.
        levels: (Q, G) shared level 0..L; -1 is not in the gallery.
        weights: (L,) coarse to fine, with sum 1. A level that a query has nothing on counts 0.

    Returns:
        (Q,) in [0, 1]; nan where a query has no relevant gallery image.

    Example:
        >>> weighted_ap(torch.tensor([[0.9, 0.8]]), torch.tensor([[1, 2]]), [0.5, 0.5]).tolist()
        [0.75]
    """
    given = torch.as_tensor(weights, dtype=torch.float64)
    grades.weighted_relevance(levels[:1], given)  # checks the weights
    ranked, counts = _ranked(scores, levels, len(given))
    return lists.h_ap(ranked, grades.weighted_table(counts, given.to(ranked.device)), counts)


def ndcg(scores: Tensor, levels: Tensor, k: int | None = None) -> Tensor:
    """NDCG of each query with gain 2^level - 1 (Eq. 23), over the whole list or its first k.

    Example:
        >>> ndcg(torch.tensor([[0.9, 0.8]]), torch.tensor([[2, 1]])).tolist()
        [1.0]
    """
    ranked, counts = _ranked(scores, levels)
    return lists.ndcg(ranked, counts, _cut(k))


def asi(scores: Tensor, levels: Tensor, num_levels: int) -> Tensor:
    """Average set intersection of each query, at depths 1..P (P = its positives of any level).

    (1/P) sum_n (1/n) sum_l min(images of level l in the first n, in the ideal first n).

    Example:
        >>> asi(torch.tensor([[0.9, 0.8]]), torch.tensor([[1, 2]]), num_levels=2).tolist()
        [0.5]
    """
    ranked, counts = _ranked(scores, levels, num_levels)
    return lists.asi(ranked, counts)


def average_precision(scores: Tensor, levels: Tensor, at_level: int) -> Tensor:
    """AP of each query over the whole list (Eq. 9); positives have a level >= at_level.

    Example:
        >>> average_precision(torch.tensor([[0.9, 0.8]]), torch.tensor([[0, 1]]), 1).tolist()
        [0.5]
    """
    return lists.average_precision(_at(scores, levels, at_level), 1)


def map_at_r(scores: Tensor, levels: Tensor, at_level: int) -> Tensor:
    """mAP@R of each query: sum of precisions at the positives among the first R, over R.

    Another definition takes the AP of the first R as if they were all; this is the one of
    Musgrave et al. 2020 and of the papers' tables.

    Example:
        >>> map_at_r(torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[1, 0, 1]]), 1).tolist()
        [0.5]
    """
    return lists.average_precision(_at(scores, levels, at_level), 1, at_r=True)


def ap_at_k(scores: Tensor, levels: Tensor, at_level: int, k: int) -> Tensor:
    """Sum of precisions at the positives among the first k, over min(R, k), of each query.

    With k = 100 and the official relevant images it is the mAP@100 of GLDv2.

    Example:
        >>> ap_at_k(torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[1, 0, 1]]), 1, k=1).tolist()
        [1.0]
    """
    return lists.average_precision(_at(scores, levels, at_level), 1, _cut(k))


def recall_at_k(scores: Tensor, levels: Tensor, at_level: int, k: int) -> Tensor:
    """R@k of each query (Eq. 13): 1 where any positive is among the first k.

    Example:
        >>> recall_at_k(torch.tensor([[0.9, 0.8]]), torch.tensor([[0, 1]]), 1, k=2).tolist()
        [1.0]
    """
    cut = _cut(k)
    assert cut is not None
    return lists.recall(_at(scores, levels, at_level), 1, cut)


def tr_at_k(scores: Tensor, levels: Tensor, at_level: int, k: int) -> Tensor:
    """TR@k of each query (Eq. 14): positives among the first k, over min(k, R).

    Example:
        >>> tr_at_k(torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[0, 1, 1]]), 1, k=2).tolist()
        [0.5]
    """
    cut = _cut(k)
    assert cut is not None
    return lists.true_recall(_at(scores, levels, at_level), 1, cut)


def h_rank_plus(
    scores: Tensor,
    levels: Tensor,
    num_levels: int,
    alpha: float = 1.0,
    relevance: Tensor | None = None,
) -> Tensor:
    """H-rank+ (Eq. 18) of each **rank**: column r - 1 is the image at rank r, 0 if not relevant.

    Example:
        >>> levels = torch.tensor([[1, 2]])
        >>> h_rank_plus(torch.tensor([[0.9, 0.8]]), levels, num_levels=2).tolist()
        [[0.5, 1.5]]
    """
    if relevance is not None:
        return lists.h_rank_plus_of(_ranked_relevance(scores, levels, relevance))
    ranked, counts = _ranked(scores, levels, num_levels)
    return lists.h_rank_plus(ranked, grades.relevance_table(counts, alpha))


def h_recall_at_k(
    scores: Tensor,
    levels: Tensor,
    num_levels: int,
    k: int,
    alpha: float = 1.0,
    relevance: Tensor | None = None,
) -> Tensor:
    """H-R@k of each query (Eq. 30): relevance of the first k over all relevance.

    Example:
        >>> levels = torch.tensor([[1, 2]])
        >>> h_recall_at_k(torch.tensor([[0.9, 0.8]]), levels, num_levels=2, k=1).tolist()
        [0.3333333333333333]
    """
    _cut(k)
    return lists.h_recall(_ranked_rel(scores, levels, num_levels, alpha, relevance), k)


def h_precision_at_k(
    scores: Tensor,
    levels: Tensor,
    num_levels: int,
    k: int,
    alpha: float = 1.0,
    relevance: Tensor | None = None,
) -> Tensor:
    """H-P@k of each query (Eq. 31): sum_{j <= k} min(rel_j, rel_k) / (k rel_k).

    0 where the image at rank k is not relevant: Eq. 31 is 0/0 there, and Eq. 32 gives it no weight.

    Example:
        >>> levels = torch.tensor([[1, 2]])
        >>> h_precision_at_k(torch.tensor([[0.9, 0.8]]), levels, num_levels=2, k=2).tolist()
        [0.75]
    """
    _cut(k)
    return lists.h_precision(_ranked_rel(scores, levels, num_levels, alpha, relevance), k)


def ap_approximation_error(losses: Tensor, scores: Tensor, levels: Tensor) -> Tensor:
    """|AP_pred - AP| of each query (Brown et al. 2020, Eq. 8), from a loss 1 - AP_pred.

    Args:
        losses: (Q,) e.g. of ``losses.smooth_ap``.
        scores: (Q, G) similarity that the losses came from.
        levels: (Q, G); positives are levels > 0.

    Returns:
        (Q,) float64; nan where a query has no positive.

    Example:
        >>> scores, levels = torch.tensor([[0.9, 0.1]]), torch.tensor([[1, 0]])
        >>> ap_approximation_error(torch.tensor([0.25]), scores, levels).tolist()
        [0.25]
    """
    if losses.shape != scores.shape[:1]:
        raise ShapeError(
            f"losses have shape {tuple(losses.shape)}; expected one for each of "
            f"{len(scores)} queries"
        )
    return ((1.0 - losses.detach().double()) - average_precision(scores, levels, 1)).abs()


def decomposability_gap(
    scores: Tensor,
    levels: Tensor,
    batches: Tensor,
    metric: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Mean of the metric over batches minus the metric of the whole, for each query.

    This is the sign of the papers' appendix and of ROADMAP, under which the bounds of Eq. 26 and 27
    are upper bounds; Eq. 6 has it the other way round. A batch without a value (nan) is left out.

    Args:
        scores: (Q, G) similarity.
        levels: (Q, G) levels; -1 is not in the gallery.
        batches: (G,) number of the batch that each gallery image is in.
        metric: (Q, g) scores and levels -> (Q,), e.g. a metric of this module with its level set.

    Returns:
        (Q,) float64; nan where a query has no value.

    Example:
        >>> scores, levels = torch.tensor([[0.9, 0.8, 0.7, 0.6]]), torch.tensor([[1, 0, 1, 0]])
        >>> batches = torch.tensor([0, 0, 1, 1])
        >>> gap = decomposability_gap(
        ...     scores, levels, batches, lambda s, l: average_precision(s, l, 1)
        ... )
        >>> round(gap.item(), 6)
        0.166667
    """
    if batches.shape != scores.shape[1:]:
        raise ShapeError(
            f"batches have shape {tuple(batches.shape)}; expected ({scores.shape[1]},), one number "
            "for each gallery image"
        )
    parts = [
        metric(scores[:, batches == b], levels[:, batches == b]) for b in torch.unique(batches)
    ]
    return torch.stack(parts).nanmean(0) - metric(scores, levels)


def _at(scores: Tensor, levels: Tensor, at_level: int) -> Tensor:
    """Ranked binary levels: the less relevant first among equals, whatever level is asked for."""
    binary = grades.at_least(levels, at_level)
    return _ranked(scores, binary, 1)[0]


def _ranked(scores: Tensor, levels: Tensor, num_levels: int | None = None) -> tuple[Tensor, Tensor]:
    """Ranked levels (Q, G) and the counts of each level (Q, L + 1)."""
    scores = grades.check_pairs(scores, levels, num_levels)
    num_levels = max(1, int(levels.max())) if num_levels is None else num_levels
    ranked = lists.rank_levels(scores, levels)
    return ranked, grades.count_levels(levels, num_levels)


def _ranked_relevance(scores: Tensor, levels: Tensor, relevance: Tensor) -> Tensor:
    scores = grades.check_pairs(scores, levels)
    check_tensors(relevance=relevance)
    if relevance.shape != levels.shape:
        raise ShapeError(
            f"relevance has shape {tuple(relevance.shape)}, levels {tuple(levels.shape)}"
        )
    if not bool((relevance >= 0).all()) or not bool(torch.isfinite(relevance).all()):
        raise ShapeError("relevance holds negative values, nan or inf; expected values >= 0")
    return lists.rank_relevance(scores, levels, relevance)


def _ranked_rel(
    scores: Tensor, levels: Tensor, num_levels: int, alpha: float, relevance: Tensor | None
) -> Tensor:
    if relevance is not None:
        return _ranked_relevance(scores, levels, relevance)
    ranked, counts = _ranked(scores, levels, num_levels)
    return grades.look_up(grades.relevance_table(counts, alpha), ranked)


def _cut(k: int | None) -> int | None:
    check_count(k=k)
    return k
