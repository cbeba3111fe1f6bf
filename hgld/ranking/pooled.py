"""Losses over the pairs of a batch: calibration, per query or pooled, and XBM's contrastive loss.

The pooled losses are not means over queries. Their gradient is computed by autograd, so the scores
of a batch against its references are held in memory.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from hgld.ranking import binary
from hgld.ranking.checks import check_finite
from hgld.ranking.kernels.device import whole_products
from hgld.ranking.levels import check_pairs
from hgld.ranking.rank_loss import RankLoss, Sides

__all__ = ["PairCalibration", "PooledCalibration", "XBMContrastive", "xbm_contrastive"]


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
        >>> import torch
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
        loss = binary.pair_calibration(scores, levels, self.alpha, self.beta)
        return torch.where((levels > 0).any(1), loss, 0.0)


class _Pooled(nn.Module, ABC):
    """One number from all scores and binary levels of a batch against its gallery."""

    def __init__(self, level: int | None, include_self: bool) -> None:
        super().__init__()
        self.level, self.include_self = level, include_self
        self._checked = False

    @abstractmethod
    def pooled(self, scores: Tensor, levels: Tensor) -> Tensor:
        """(B, M) scores and levels -> one number."""

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        ids: Tensor | None = None,
        ref_ids: Tensor | None = None,
    ) -> Tensor:
        """Like ``RankLoss.forward``, over all queries of the batch."""
        sides = Sides.of(embeddings, labels, ref_embeddings, ref_labels, ids, ref_ids)
        at = sides.level_or_finest(self.level)
        levels = sides.levels(slice(None), self.include_self, at)
        with whole_products(sides.queries.device):
            loss = self.pooled(sides.queries @ sides.gallery.T, levels)
        # The first batch only, as a sampler repeats its mistakes and the check sorts all labels.
        if not self._checked:
            self._checked = True
            sides.check_first_batch(at)
        return loss


class PooledCalibration(_Pooled):
    """The authors' pair loss: means over the pairs of the whole batch with a non-zero loss.

    Example:
        >>> import torch
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
        return binary.pooled_calibration(scores, levels, self.alpha, self.beta)


class XBMContrastive(_Pooled):
    """Contrastive loss against a memory of references (Table III).

    Example:
        >>> import torch
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
