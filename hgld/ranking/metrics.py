"""Exact metrics of a ranking, one value per query.

Functions take (Q, G) scores and levels and return (Q,) float64. Images are ranked by score; among
equal scores the less relevant comes first, regardless of the gallery's order. A query without
relevant images gets nan, and is left out of means. Levels are compared as integers; a query is
removed from its own gallery by index (level -1), never as "the first of the ranking".

``evaluate`` computes any of them for whole galleries, in blocks.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf, prod
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hgld.errors import ShapeError, UsageError
from hgld.ranking import levels as grades
from hgld.ranking import rankings
from hgld.ranking.checks import check_choice, check_count
from hgld.ranking.evaluation import evaluate, rank_gallery
from hgld.ranking.kernels.device import over_rows
from hgld.ranking.rankings import MetricName, Ranking, Result, measure, parse
from hgld.ranking.structure import ClassSums, cpcc, vote_paths

__all__ = [
    "ClassSums",
    "MetricName",
    "Ranking",
    "Result",
    "ap_approximation_error",
    "ap_at_k",
    "asi",
    "average_precision",
    "cpcc",
    "decomposability_gap",
    "evaluate",
    "gap_bound",
    "gap_bound_with_calibration",
    "h_ap",
    "h_precision_at_k",
    "h_rank_plus",
    "h_recall_at_k",
    "hierarchical_distance_at_k",
    "hops",
    "map_at_r",
    "measure",
    "mistake_severity",
    "ndcg",
    "parse",
    "precision_at_k",
    "rank_gallery",
    "recall_at_k",
    "reciprocal_rank",
    "set_overlap_at_k",
    "tr_at_k",
    "vote_paths",
    "weighted_ap",
]

MOST_STATES = 100_000  # choices of first batches for which Eq. 27 is computed, about four seconds
Counts = tuple[int, int, int, int]  # of a batch: positives, negatives, G+, E-


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
    less relevance than a coarser one. The order by level is then not optimal and scores below 1,
    and a ``RelevanceWarning`` gives the number of such queries.

    Args:
        scores: (Q, G) similarity; higher ranks first; among equals the less relevant first.
        levels: (Q, G) shared level 0..L; -1 is not in the gallery.
        num_levels: L.
        alpha: of Eq. 20.
        relevance: (Q, G) to use instead of Eq. 20.

    Returns:
        (Q,) in [0, 1]; nan if a query has no relevant gallery image.

    Raises:
        ShapeError: scores and levels differ in shape, or are out of range.

    Example:
        >>> levels = torch.tensor([[1, 0, 2]])
        >>> h_ap(torch.tensor([[0.9, 0.8, 0.7]]), levels, num_levels=2).tolist()
        [0.6666666666666666]
    """
    ranked = _Ranked.of(scores, levels, num_levels, alpha, relevance)
    if relevance is None and (inverted := grades.inverted_queries(ranked.table, ranked.counts)):
        grades.warn_of_inverted(inverted, len(scores))
    return ranked.value(MetricName("H-AP"))


def weighted_ap(
    scores: Tensor, levels: Tensor, weights: Tensor | list[float] | tuple[float, ...]
) -> Tensor:
    """Weighted sum of the APs of all levels, as an H-AP (Property 1).

    Args:
        scores: (Q, G) similarity; among equals the less relevant first.
        levels: (Q, G) shared level 0..L; -1 is not in the gallery.
        weights: (L,) coarse to fine, with sum 1. Those of levels without images of a query are
            shared by its other levels in proportion, so that a perfect ranking has 1.

    Returns:
        (Q,) in [0, 1]; nan if a query has no relevant gallery image.

    Example:
        >>> weighted_ap(torch.tensor([[0.9, 0.8]]), torch.tensor([[1, 2]]), [0.5, 0.5]).tolist()
        [0.75]
    """
    # on the CPU, as the counts of each level that they are divided by
    given = torch.as_tensor(weights, dtype=torch.float64, device="cpu")
    grades.weighted_relevance(levels[:1], given)  # checks the weights
    ranked = _Ranked.of(scores, levels, len(given))
    table = grades.weighted_table(ranked.counts, given)
    return replace(ranked, table=table).value(MetricName("wAP"))


def ndcg(scores: Tensor, levels: Tensor, k: int | None = None) -> Tensor:
    """NDCG of each query with gain 2^level - 1 (Eq. 23), over the whole list or its first k.

    DCG = sum_r (2^level_r - 1) / log2(1 + r), over that of the order by level.

    Returns:
        (Q,) in [0, 1], among equal scores the less relevant first; nan without a relevant image.

    Example:
        >>> ndcg(torch.tensor([[0.9, 0.8]]), torch.tensor([[2, 1]])).tolist()
        [1.0]
    """
    return _Ranked.of(scores, levels).value(MetricName("NDCG", k=_cut_if_given(k)))


def asi(scores: Tensor, levels: Tensor, num_levels: int) -> Tensor:
    """Average set intersection of each query, at depths 1..P (P = its positives of any level).

    (1/P) sum_n (1/n) sum_l min(images of level l in the first n, in the ideal first n).

    Returns:
        (Q,) in [0, 1], among equal scores the less relevant first; nan without a relevant image.

    Example:
        >>> asi(torch.tensor([[0.9, 0.8]]), torch.tensor([[1, 2]]), num_levels=2).tolist()
        [0.5]
    """
    return _Ranked.of(scores, levels, num_levels).value(MetricName("ASI"))


def average_precision(scores: Tensor, levels: Tensor, at_level: int) -> Tensor:
    """AP of each query over the whole list (Eq. 9); positives have a level >= at_level.

    AP = (1 / R) sum over its R positives of (positives down to its rank) / (its rank).

    Returns:
        (Q,) in [0, 1], among equal scores the less relevant first; nan without a positive.

    Example:
        >>> average_precision(torch.tensor([[0.9, 0.8]]), torch.tensor([[0, 1]]), 1).tolist()
        [0.5]
    """
    return _at(scores, levels, at_level, MetricName("AP"))


def map_at_r(scores: Tensor, levels: Tensor, at_level: int) -> Tensor:
    """mAP@R of each query: sum of precisions at the positives among the first R, over R.

    Another definition is the AP of the first R taken as the whole list; this one is that of
    Musgrave et al. 2020 and of the papers' tables.

    Returns:
        (Q,) in [0, 1], among equal scores the less relevant first; nan without a positive.

    Example:
        >>> map_at_r(torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[1, 0, 1]]), 1).tolist()
        [0.5]
    """
    return _at(scores, levels, at_level, MetricName("mAP", k=0))


def ap_at_k(scores: Tensor, levels: Tensor, at_level: int, k: int) -> Tensor:
    """Sum of precisions at the positives among the first k, over min(R, k), of each query.

    With k = 100 and the official relevant images it is the mAP@100 of GLDv2.

    Returns:
        (Q,) in [0, 1], among equal scores the less relevant first; nan without a positive.

    Example:
        >>> ap_at_k(torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[1, 0, 1]]), 1, k=1).tolist()
        [1.0]
    """
    return _at(scores, levels, at_level, MetricName("mAP", k=_cut(k)))


def recall_at_k(scores: Tensor, levels: Tensor, at_level: int, k: int) -> Tensor:
    """R@k of each query (Eq. 13): 1 if any positive is among the first k.

    Returns:
        (Q,) in [0, 1], among equal scores the less relevant first; nan without a positive.

    Example:
        >>> recall_at_k(torch.tensor([[0.9, 0.8]]), torch.tensor([[0, 1]]), 1, k=2).tolist()
        [1.0]
    """
    return _at(scores, levels, at_level, MetricName("R", k=_cut(k)))


def tr_at_k(scores: Tensor, levels: Tensor, at_level: int, k: int) -> Tensor:
    """TR@k of each query (Eq. 14): positives among the first k, over min(k, R).

    Returns:
        (Q,) in [0, 1], among equal scores the less relevant first; nan without a positive.

    Example:
        >>> tr_at_k(torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[0, 1, 1]]), 1, k=2).tolist()
        [0.5]
    """
    return _at(scores, levels, at_level, MetricName("TR", k=_cut(k)))


def precision_at_k(
    scores: Tensor, levels: Tensor, at_level: int, k: int | None, modified: bool = False
) -> Tensor:
    """P@k of each query: positives among the first k, over k.

    Args:
        scores: (Q, G) similarity.
        levels: (Q, G) levels; -1 is not in the gallery.
        at_level: level from which on an image is a positive.
        k: cut-off; None: the number of positives (P@R, R-precision).
        modified: cut at the number of positives if that is smaller (mMP@k of UnED), so that a
            perfect ranking has 1.

    Returns:
        (Q,) in [0, 1], among equal scores the less relevant first; nan without a positive.

    Example:
        >>> scores, levels = torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[1, 0, 0]])
        >>> precision_at_k(scores, levels, 1, k=2).tolist()
        [0.5]
        >>> precision_at_k(scores, levels, 1, k=2, modified=True).tolist()
        [1.0]
    """
    cut = _cut_if_given(k) or 0
    return _at(scores, levels, at_level, MetricName("mMP" if modified else "P", k=cut))


def reciprocal_rank(scores: Tensor, levels: Tensor, at_level: int, k: int | None = None) -> Tensor:
    """MRR of each query: 1 / rank of its first positive, 0 if that is after rank k.

    Returns:
        (Q,) in [0, 1], among equal scores the less relevant first; nan without a positive.

    Example:
        >>> reciprocal_rank(torch.tensor([[0.9, 0.8]]), torch.tensor([[0, 1]]), 1).tolist()
        [0.5]
        >>> reciprocal_rank(torch.tensor([[0.9, 0.8]]), torch.tensor([[0, 1]]), 1, k=1).tolist()
        [0.0]
    """
    return _at(scores, levels, at_level, MetricName("MRR", k=_cut_if_given(k)))


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
    from hgld.ranking.kernels.metrics_cpu import h_rank_plus_rows

    ranked = _Ranked.of(scores, levels, num_levels, alpha, relevance)
    by_rank, table, shared = ranked.levels.numpy(), ranked.table.numpy(), np.empty(levels.shape)
    over_rows(lambda part: h_rank_plus_rows(by_rank[part], table[part], shared[part]), len(shared))
    return torch.from_numpy(shared).to(scores.device)


def h_recall_at_k(
    scores: Tensor,
    levels: Tensor,
    num_levels: int,
    k: int,
    alpha: float = 1.0,
    relevance: Tensor | None = None,
) -> Tensor:
    """H-R@k of each query (Eq. 30): relevance of the first k over all relevance.

    Returns:
        (Q,) in [0, 1], among equal scores the less relevant first; nan without a relevant image.

    Example:
        >>> levels = torch.tensor([[1, 2]])
        >>> h_recall_at_k(torch.tensor([[0.9, 0.8]]), levels, num_levels=2, k=1).tolist()
        [0.3333333333333333]
    """
    ranked = _Ranked.of(scores, levels, num_levels, alpha, relevance)
    return ranked.value(MetricName("H-R", k=_cut(k)))


def h_precision_at_k(
    scores: Tensor,
    levels: Tensor,
    num_levels: int,
    k: int,
    alpha: float = 1.0,
    relevance: Tensor | None = None,
) -> Tensor:
    """H-P@k of each query (Eq. 31): sum_{j <= k} min(rel_j, rel_k) / (k rel_k).

    0 if the image at rank k is not relevant: Eq. 31 is 0/0 there, and Eq. 32 gives it no weight.

    Returns:
        (Q,) in [0, 1], among equal scores the less relevant first; nan without a relevant image.

    Example:
        >>> levels = torch.tensor([[1, 2]])
        >>> h_precision_at_k(torch.tensor([[0.9, 0.8]]), levels, num_levels=2, k=2).tolist()
        [0.75]
    """
    ranked = _Ranked.of(scores, levels, num_levels, alpha, relevance)
    return ranked.value(MetricName("H-P", k=_cut(k)))


def mistake_severity(scores: Tensor, levels: Tensor, num_levels: int) -> Tensor:
    """MS of each query whose first image is wrong (Bertinetto et al. 2020): how far off it is.

    (L - level of the first image) / L: the height of the lowest common ancestor, as a share of the
    tree's height. The paper counts edges: multiply by L. Lower is better, and it says nothing of
    how many first images are wrong: report it beside R@1.

    Args:
        scores: (Q, G) similarity; among equals the less relevant first.
        levels: (Q, G) shared level 0..L; -1 is not in the gallery.
        num_levels: L.

    Returns:
        (Q,) in (0, 1]; nan if the first image is of the query's finest class, or none is.

    Example:
        >>> levels = torch.tensor([[1, 2], [2, 1]])
        >>> mistake_severity(torch.tensor([[0.9, 0.8]]).expand(2, 2), levels, num_levels=2).tolist()
        [0.5, nan]
    """
    return _Ranked.of(scores, levels, num_levels).value(MetricName("MS"))


def hierarchical_distance_at_k(scores: Tensor, levels: Tensor, num_levels: int, k: int) -> Tensor:
    """AHD@k of each query (Bertinetto et al. 2020): mean distance of the first k images.

    (1 / k) sum_{j <= k} (L - level_j) / L. The paper counts edges: multiply by L. Lower is better;
    k counts the images that the gallery has.

    Returns:
        (Q,) in [0, 1], among equal scores the less relevant first; nan without a relevant image.

    Example:
        >>> levels = torch.tensor([[1, 2]])
        >>> hierarchical_distance_at_k(torch.tensor([[0.9, 0.8]]), levels, 2, k=2).tolist()
        [0.25]
    """
    return _Ranked.of(scores, levels, num_levels).value(MetricName("AHD", k=_cut(k)))


def hops(scores: Tensor, levels: Tensor, num_levels: int, k: int | None = None) -> Tensor:
    """HOPS of each query (Sani and Anand 2025): how near the ranking is to the order by level.

    1 - sum_r w_r |ideal_r - found_r| / sum_r w_r |ideal_r - reverse_r|, at least 0. ideal_r is the
    level at rank r of the ideal order, counted 0, 1, 2 ... from the finest that the gallery has,
    found_r that of the ranking, reverse_r that of the ideal order reversed. w_r is 1 for the
    finest; level n falls evenly from 2^-n towards 2^-(n + 1), the last one to 0.

    The authors rank classes; here images are ranked, and the values agree if each class is one
    image. Their code reverses the first k alone for HOPS@k, which is 0 / 0 if these are of one
    level; here the sums end at k.

    Args:
        scores: (Q, G) similarity; among equals the less relevant first.
        levels: (Q, G) shared level 0..L; -1 is not in the gallery.
        num_levels: L.
        k: cut-off of both sums; None: the whole list.

    Returns:
        (Q,) in [0, 1]; nan if a query has no relevant gallery image, or all are of one level.

    Example:
        >>> levels = torch.tensor([[2, 2, 1, 0]])
        >>> hops(torch.tensor([[0.9, 0.7, 0.8, 0.6]]), levels, num_levels=2).tolist()
        [0.625]
    """
    return _Ranked.of(scores, levels, num_levels).value(MetricName("HOPS", k=_cut_if_given(k)))


def set_overlap_at_k(
    scores: Tensor,
    levels: Tensor,
    num_levels: int,
    k: int,
    kind: Literal["precision", "recall", "F"] = "F",
) -> Tensor:
    """hP@k, hR@k or hF@k of each query (Kiritchenko et al. 2005): overlap of label paths.

    Each image counts as the L labels of its path. hP@k = sum_{j <= k} level_j / (k L), the share of
    the labels of the first k images that are the query's; hR@k = sum_{j <= k} level_j / sum_j
    level_j, the share of all such labels in the gallery; hF@k = 2 hP hR / (hP + hR).

    Returns:
        (Q,) in [0, 1], among equal scores the less relevant first; nan without a relevant image.

    Example:
        >>> scores, levels = torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[2, 0, 1]])
        >>> set_overlap_at_k(scores, levels, num_levels=2, k=2, kind="precision").tolist()
        [0.5]
        >>> round(set_overlap_at_k(scores, levels, num_levels=2, k=2).item(), 3)
        0.571
    """
    names = {"precision": "hP", "recall": "hR", "F": "hF"}
    check_choice(*names, kind=kind)
    return _Ranked.of(scores, levels, num_levels).value(MetricName(names[kind], k=_cut(k)))


def ap_approximation_error(losses: Tensor, scores: Tensor, levels: Tensor) -> Tensor:
    """|AP_pred - AP| of each query (Brown et al. 2020, Eq. 8), from a loss 1 - AP_pred.

    Args:
        losses: (Q,) e.g. of ``losses.smooth_ap``.
        scores: (Q, G) similarity that the losses came from.
        levels: (Q, G); positives are levels > 0.

    Returns:
        (Q,) float64; nan if a query has no positive.

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

    This is the sign of the papers' appendix and of ROADMAP, with which the bounds of Eq. 26 and 27
    are upper bounds; Eq. 6 has the opposite sign. A batch without a value (nan) is left out.

    Args:
        scores: (Q, G) similarity.
        levels: (Q, G) levels; -1 is not in the gallery.
        batches: (G,) batch number of each gallery image.
        metric: (Q, g) scores and levels -> (Q,), e.g. a metric of this module with its level set.

    Returns:
        (Q,) float64; nan if a query has no value.

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


def gap_bound(positives: Sequence[int], negatives: Sequence[int]) -> float:
    """Upper bound of the gap (Eq. 26): the batches concatenated, the first on top.

    It holds if the metric is 1 in each batch and all batches have the same number of positives
    and the same number of negatives.

    Args:
        positives: number of the query's positives in each batch.
        negatives: number of negatives in each batch.

    Example:
        >>> round(gap_bound([1, 1], [1, 1]), 6)
        0.166667
    """
    _check_batches(positives, negatives)
    total, above, below = 0.0, 0, 0
    for here, wrong in zip(positives, negatives, strict=True):
        total += sum((j + above) / (j + above + below) for j in range(1, here + 1))
        above, below = above + here, below + wrong
    return 1.0 - total / above


def gap_bound_with_calibration(
    positives: Sequence[int],
    negatives: Sequence[int],
    good_positives: Sequence[int],
    bad_negatives: Sequence[int],
    *,
    as_printed: bool = False,
) -> float:
    """Upper bound of the gap (Eq. 27) if some scores satisfy the calibration.

    The value of Eq. 27 depends on the order of the batches, and in one given order the gap of
    unequal batches can exceed it. Its largest value over all orders is the bound. That is 0 if all
    scores satisfy the calibration. It is not always below Eq. 26: if most negatives are above beta
    and some positives below alpha, those positives are counted behind the good ones of their batch
    again, and Eq. 26 is the tighter bound.

    Args:
        positives: number of the query's positives in each batch.
        negatives: number of negatives in each batch.
        good_positives: G+, positives of each batch above alpha.
        bad_negatives: E-, negatives of each batch above beta.
        as_printed: the value for the batches in the given order, which the gap may exceed.

    Raises:
        ShapeError: the sequences differ in length, or there is no positive.
        UsageError: too many different batches to try all their orders.

    Example:
        >>> gap_bound_with_calibration([2, 2], [2, 2], [2, 2], [0, 0])
        0.0
        >>> counts = [1, 1, 1], [3, 3, 3], [1, 1, 1], [0, 0, 3]  # one batch has stray negatives
        >>> gap_bound_with_calibration(*counts, as_printed=True)
        0.0
        >>> gap_bound_with_calibration(*counts) > 0.3
        True
    """
    _check_batches(positives, negatives, good_positives, bad_negatives)
    good, bad = (positives, good_positives), (negatives, bad_negatives)
    for name, (every, some) in ("good_positives", good), ("bad_negatives", bad):
        if any(not 0 <= part <= whole for whole, part in zip(every, some, strict=True)):
            raise ShapeError(f"{name} are {[*some]} of {[*every]}; expected a part of each batch")
    batches = list(zip(positives, negatives, good_positives, bad_negatives, strict=True))
    if as_printed:
        # What precedes each batch, as sums; Eq. 27 needs nothing else of it.
        earlier = [[0, 0, 0, 0], *np.cumsum(batches, axis=0).tolist()]
        total = sum(map(_calibrated_precision, batches, earlier))
    else:
        total = _least_precision(Counter(batches))
    return 1.0 - total / sum(positives)


def _calibrated_precision(batch: Counts, earlier: Sequence[int]) -> float:
    """The sum of a batch's precisions in Eq. 27, behind the batches before it."""
    here, _, kept, _ = batch
    above, below, good, bad = earlier
    late = kept + above
    total = sum((j + good) / (j + good + bad) for j in range(1, kept + 1))
    return total + sum((j + late) / (j + late + below) for j in range(1, here - kept + 1))


def _least_precision(batches: Counter[Counts]) -> float:
    """The least sum of precisions over all orders of the batches.

    What precedes a batch matters only by its sums, so the orders are not tried one by one: for each
    choice of batches that come first, only the least sum is kept.
    """
    kinds, most = list(batches), tuple(batches.values())
    states = prod(count + 1 for count in most)
    if states > MOST_STATES:
        raise UsageError(
            f"{len(kinds)} different batches have {states:,} choices of first batches, more than "
            f"{MOST_STATES:,}; take fewer batches"
        )
    least = {(0,) * len(kinds): 0.0}
    # Ordered so that each choice is complete before it is extended by a batch.
    for chosen in product(*(range(count + 1) for count in most)):
        earlier = (np.array(chosen) @ np.array(kinds)).tolist()
        for i, kind in enumerate(kinds):
            if chosen[i] < most[i]:
                after = (*chosen[:i], chosen[i] + 1, *chosen[i + 1 :])
                total = least[chosen] + _calibrated_precision(kind, earlier)
                least[after] = min(total, least.get(after, inf))
    return least[most]


def _check_batches(positives: Sequence[int], *others: Sequence[int]) -> None:
    lengths = [len(positives), *map(len, others)]
    if len(set(lengths)) > 1 or not sum(positives):
        raise ShapeError(
            f"counts of {', '.join(map(str, lengths))} batches and {sum(positives)} positives; "
            "expected counts of the same batches, and a positive"
        )


@dataclass(frozen=True)
class _Ranked:
    """Queries of a score matrix, ranked, with the relevance of each level; all on the CPU.

    Args:
        levels: (Q, G) integers by rank.
        counts: (Q, L + 1) int64 images of each level.
        table: (Q, L + 1) float64 relevance by level.
        device: device of the returned values.
    """

    levels: Tensor
    counts: Tensor
    table: Tensor
    device: torch.device

    @classmethod
    def of(
        cls,
        scores: Tensor,
        levels: Tensor,
        num_levels: int | None = None,
        alpha: float = 1.0,
        relevance: Tensor | None = None,
    ) -> "_Ranked":
        scores = grades.check_pairs(scores, levels, num_levels)
        if relevance is None:
            num_levels = max(1, int(levels.max())) if num_levels is None else num_levels
            counts = grades.count_levels(levels, num_levels).cpu()
            table = grades.relevance_table(counts, alpha)
        else:
            levels, counts, table = _levels_of(relevance, levels)
        few = torch.int8 if counts.shape[1] <= 127 else torch.int64  # kernels are compiled for both
        ranked = levels.gather(1, rankings.rank_columns(scores, levels)).to("cpu", few)
        return cls(ranked, counts, table, scores.device)

    def value(self, name: MetricName) -> Tensor:
        """(Q,) float64 of one metric; positives of single-level ones have a level >= 1."""
        specs = np.array([[name.kind, 1, name.k or 0, 0]])
        given = self.levels.numpy(), self.counts.numpy(), specs, self.table[:, None].numpy()
        return torch.from_numpy(rankings.values_of(*given)[:, 0]).to(self.device)


def _at(scores: Tensor, levels: Tensor, at_level: int, name: MetricName) -> Tensor:
    """(Q,) of a metric whose positives have a level >= at_level."""
    return _Ranked.of(scores, grades.at_least(levels, at_level), 1).value(name)


def _levels_of(relevance: Tensor, levels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Number the distinct relevances of each query: (Q, G) levels, (Q, L + 1) counts and table.

    A relevance that does not depend on the level alone then becomes one, so metrics of levels apply
    to any relevance.
    """
    grades.check_relevance(relevance, levels)
    # Relevance of an image outside the gallery counts as 0.
    rel = relevance.double() * (levels > 0)
    # a level for each step up in the sorted relevances of a query
    ordered, columns = rel.sort(dim=1)
    new = ordered.diff(dim=1, prepend=torch.zeros_like(ordered[:, :1])) > 0
    found = torch.empty_like(columns).scatter_(1, columns, new.cumsum(1))  # 0 where rel is 0
    size = int(found.max()) + 1
    table = rel.new_zeros(len(rel), size).scatter_(1, found, rel)
    counts = found.new_zeros(len(rel), size).scatter_add_(1, found, (levels >= 0).long())
    return found.masked_fill(levels < 0, -1), counts.cpu(), table.cpu()


def _cut(k: int | None) -> int:
    if k is None:  # would be a cut-off of 0 images
        raise ShapeError("k is None; expected a whole number, 1 or more")
    check_count(k=k)
    return k


def _cut_if_given(k: int | None) -> int | None:
    return None if k is None else _cut(k)
