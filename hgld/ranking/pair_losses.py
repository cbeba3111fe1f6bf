"""Losses over the pairs of a batch: calibration, per query or pooled, and contrastive losses.

The pooled losses are not means over queries. Their gradient is computed by autograd, so the scores
of a batch against its references are held in memory.
"""

from abc import abstractmethod

import torch
from torch import Tensor

from hgld.ranking.checks import check_count, check_finite, check_positive, check_weights
from hgld.ranking.kernels.device import pair_scores, whole_products
from hgld.ranking.levels import check_pairs
from hgld.ranking.rank_loss import BatchLoss, RankLoss, Sides


def pair_calibration(
    scores: Tensor, levels: Tensor, alpha: float = 0.9, beta: float = 0.6
) -> Tensor:
    """Decomposability loss of each query by pairs (Eq. 7).

    (1/P) sum over positives of [alpha - s]+ plus (1/N) sum over negatives of [s - beta]+. Each side
    is divided by **all** its pairs; the authors' code pools all queries and divides by the number
    of pairs with a non-zero loss (``pooled_calibration``). A side without pairs adds 0.

    Args:
        scores: (Q, G) similarities.
        levels: (Q, G); positives are levels > 0, negatives level 0, -1 is not in the gallery.
        alpha: similarity that positives should reach.
        beta: similarity that negatives should stay below.

    Returns:
        (Q,) >= 0.

    Example:
        >>> pair_calibration(torch.tensor([[0.5, 0.7, 0.0]]), torch.tensor([[1, 0, 0]]))
        tensor([0.4500])
    """
    check_finite(alpha=alpha, beta=beta)
    scores = check_pairs(scores, levels)
    positive, negative = levels > 0, levels == 0
    pull = torch.where(positive, (alpha - scores).relu(), 0.0).sum(1)
    push = torch.where(negative, (scores - beta).relu(), 0.0).sum(1)
    return pull / positive.sum(1).clamp(min=1) + push / negative.sum(1).clamp(min=1)


def pooled_calibration(
    scores: Tensor, levels: Tensor, alpha: float = 0.9, beta: float = 0.6
) -> Tensor:
    """The authors' pair loss, one number: means over the pairs with a non-zero loss, all queries.

    Example:
        >>> pooled_calibration(torch.tensor([[0.5, 0.75, 0.0]]), torch.tensor([[1, 0, 0]]))
        tensor(0.5500)
    """
    check_finite(alpha=alpha, beta=beta)
    scores = check_pairs(scores, levels)
    pull = torch.where(levels > 0, (alpha - scores).relu(), 0.0)
    push = torch.where(levels == 0, (scores - beta).relu(), 0.0)
    means = [side.sum() / (side > 0).sum().clamp(min=1) for side in (pull, push)]
    return means[0] + means[1]


def sup_con(scores: Tensor, levels: Tensor, temperature: float = 0.1) -> Tensor:
    """Supervised contrastive loss of each query (Khosla et al. 2020, Eq. 2, L_out).

    -(1 / |P|) sum over positives p of log [exp(s_p / t) / sum_a exp(s_a / t)]

    Args:
        scores: (Q, G) cosines.
        levels: (Q, G); positives are levels > 0; -1 is not among the a of the denominator.
        temperature: t in cosine units.

    Returns:
        (Q,); 0 if a query has no positive.

    Example:
        >>> sup_con(torch.zeros(1, 2), torch.tensor([[1, 0]])).exp().round().tolist()
        [2.0]
    """
    check_positive(temperature=temperature)
    scores = check_pairs(scores, levels)
    losses, positives = _pair_losses(scores, levels, temperature), levels > 0
    return torch.where(positives, losses, 0.0).sum(1) / positives.sum(1).clamp(min=1)


def hi_mul_con(
    scores: Tensor,
    levels: Tensor,
    weights: tuple[float, ...],
    temperature: float = 0.07,
    constraint: bool = True,
) -> Tensor:
    """Hierarchical multi-label contrastive loss (Zhang et al. 2022, HiMulConE), one number.

    (1 / L) sum over levels l of w_l times the mean over queries of (1 / |P_l|) sum over p in P_l of
    max(L(p), max over the batch's pairs q of level l + 1 of L(q)), with L(p) the loss of one pair
    in ``sup_con`` and P_l the images that share at least level l.

    Equal weights of 1 give the paper's HiConE, ``constraint=False`` its HiMulCon. The authors' code
    compares means of levels instead of pairs, keeps one image of a class on the level above, and
    divides by L + 1.

    Args:
        scores: (Q, G) cosines.
        levels: (Q, G) shared level 0..L; -1 is left out.
        weights: (L,) w_l of each level, coarse to fine.
        temperature: in cosine units.
        constraint: whether no coarse pair counts less than the worst pair of a finer level.

    Example:
        >>> scores, levels = torch.zeros(1, 3), torch.tensor([[2, 1, 0]])
        >>> hi_mul_con(scores, levels, weights=(1.0, 1.0)).exp().round().item()
        3.0
    """
    check_positive(temperature=temperature)
    check_weights(weights, len(weights))
    scores = check_pairs(scores, levels, len(weights))
    pairs, worst, total = _pair_losses(scores, levels, temperature), None, scores.new_zeros(())
    # the finest first: its worst pair bounds the losses of the coarser ones
    for level in range(len(weights), 0, -1):
        positives = levels >= level
        bounded = pairs if worst is None else torch.maximum(pairs, worst)
        sums = torch.where(positives, bounded, 0.0).sum(1) / positives.sum(1).clamp(min=1)
        total = total + weights[level - 1] * sums.sum() / positives.any(1).sum().clamp(min=1)
        if constraint and bool(positives.any()):
            worst = pairs[positives].max()
    return total / len(weights)


def _pair_losses(scores: Tensor, levels: Tensor, temperature: float) -> Tensor:
    """(Q, G) -log softmax of the cosines over the temperature, among the gallery's images."""
    scaled = scores / temperature
    # -1e9 instead of -inf: a query without a gallery would have a nan gradient.
    return scaled.masked_fill(levels < 0, -1e9).logsumexp(1, keepdim=True) - scaled


def xbm_contrastive(scores: Tensor, levels: Tensor, margin: float = 0.5) -> Tensor:
    """Contrastive loss of cross-batch memory (Wang et al. 2020; Table III), one number.

    (1/Q) sum over queries of sum_positives (1 - s) + sum_negatives [s - margin]+. These are sums,
    not means, so it grows with the memory. Published code adds s instead of s - margin for a
    negative above the margin: another value, the same gradient.

    Example:
        >>> xbm_contrastive(torch.tensor([[0.5, 0.75, 0.0]]), torch.tensor([[1, 0, 0]])).item()
        0.75
    """
    check_finite(margin=margin)
    scores = check_pairs(scores, levels)
    pull = torch.where(levels > 0, 1.0 - scores, 0.0).sum()
    push = torch.where(levels == 0, (scores - margin).relu(), 0.0).sum()
    return (pull + push) / len(scores)


class PairCalibration(RankLoss):
    """Decomposability loss by pairs (Eq. 7) at one level, mean over the queries.

    Example:
        >>> labels = torch.tensor([[0, 0], [0, 0], [1, 1]])
        >>> PairCalibration()(torch.eye(3)[[0, 0, 1]], labels).item() < 1e-6
        True
    """

    def __init__(
        self,
        alpha: float = 0.9,
        beta: float = 0.6,
        level: int | None = None,
        include_self: bool = True,
        chunk: int | None = None,
    ) -> None:
        super().__init__(level, None, include_self, chunk)
        self.alpha, self.beta = alpha, beta

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Eq. 7 of each query with a positive."""
        loss = pair_calibration(scores, levels, self.alpha, self.beta)
        return torch.where((levels > 0).any(1), loss, 0.0)


class _Pooled(BatchLoss):
    """One number from all scores and levels of a batch against its gallery.

    The levels are binary, those that reach ``level``, unless the loss has ``num_levels``.
    """

    def __init__(
        self, level: int | None, include_self: bool, num_levels: int | None = None
    ) -> None:
        super().__init__(level, num_levels, include_self, hierarchical=num_levels is not None)

    @abstractmethod
    def pooled(self, scores: Tensor, levels: Tensor) -> Tensor:
        """(B, M) scores and levels -> one number."""

    def of_sides(self, sides: Sides, at: int | None) -> Tensor:
        """``pooled`` of all queries of the batch."""
        levels = sides.levels(slice(None), self.include_self, at)
        with whole_products(sides.queries.device):
            return self.pooled(pair_scores(sides.queries, sides.gallery), levels)


class PooledCalibration(_Pooled):
    """The authors' pair loss: means over the pairs of the whole batch with a non-zero loss.

    Example:
        >>> labels = torch.tensor([[0, 0], [0, 0], [1, 1]])
        >>> PooledCalibration()(torch.eye(3)[[0, 0, 1]], labels).item() < 1e-6
        True
    """

    def __init__(
        self,
        alpha: float = 0.9,
        beta: float = 0.6,
        level: int | None = None,
        include_self: bool = True,
        chunk: int | None = None,
    ) -> None:
        super().__init__(level, include_self)
        self.alpha, self.beta = alpha, beta

    def pooled(self, scores: Tensor, levels: Tensor) -> Tensor:
        """``pooled_calibration`` of the batch."""
        return pooled_calibration(scores, levels, self.alpha, self.beta)


class XBMContrastive(_Pooled):
    """Contrastive loss against a memory of references (Table III).

    Example:
        >>> labels = torch.tensor([[0, 0], [0, 0], [1, 1]])
        >>> XBMContrastive()(torch.eye(3)[[0, 0, 1]], labels).item() < 1e-6
        True
    """

    def __init__(
        self, margin: float = 0.5, level: int | None = None, include_self: bool = False
    ) -> None:
        super().__init__(level, include_self)
        self.margin = margin

    def pooled(self, scores: Tensor, levels: Tensor) -> Tensor:
        """``xbm_contrastive`` of the batch."""
        return xbm_contrastive(scores, levels, self.margin)


class SupCon(RankLoss):
    """Supervised contrastive loss at one level, mean over the queries with a positive.

    ``pytorch-metric-learning`` has the same values, but returns 0 if all images of a batch are of
    one class, as often happens at a coarse level.

    Example:
        >>> labels = torch.tensor([[0, 0], [0, 0], [1, 1]])
        >>> SupCon()(torch.eye(3)[[0, 0, 1]], labels).item() < 1e-4
        True
    """

    def __init__(
        self,
        temperature: float = 0.1,
        level: int | None = None,
        include_self: bool = False,
        chunk: int | None = None,
    ) -> None:
        super().__init__(level, None, include_self, chunk)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """``sup_con`` of each query."""
        return sup_con(scores, levels, self.temperature)


class HiMulCon(_Pooled):
    """Hierarchical multi-label contrastive loss over all levels, with its constraint.

    Args:
        num_levels: L.
        weights: (L,) of the levels, coarse to fine; default: 2^(1 / (L + 1 - l)) at level l, as
            the authors' code, so 2 at the finest.
        temperature: in cosine units; 0.07 in the authors' code.
        constraint: whether no coarse pair counts less than the worst pair of a finer level.
        include_self: whether a query counts as its own positive.

    Example:
        >>> labels = torch.tensor([[0, 0], [0, 0], [1, 1]])
        >>> HiMulCon(num_levels=2)(torch.eye(3)[[0, 0, 1]], labels).item() < 1e-4
        True
    """

    def __init__(
        self,
        num_levels: int,
        weights: tuple[float, ...] | None = None,
        temperature: float = 0.07,
        constraint: bool = True,
        include_self: bool = False,
    ) -> None:
        check_count(num_levels=num_levels)
        check_positive(temperature=temperature)
        super().__init__(None, include_self, num_levels)
        self.weights = weights or tuple(2.0 ** (1 / n) for n in range(num_levels, 0, -1))
        check_weights(self.weights, num_levels)
        self.temperature, self.constraint = temperature, constraint

    def pooled(self, scores: Tensor, levels: Tensor) -> Tensor:
        """``hi_mul_con`` of the batch."""
        return hi_mul_con(scores, levels, self.weights, self.temperature, self.constraint)
