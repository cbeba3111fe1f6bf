"""Losses over all pairs of a batch that are no mean over queries: pooled calibration, XBM.

Their gradient is a plain autograd one: the scores of a batch against its references are held.
"""

import torch
from torch import Tensor, nn

from hgld.errors import ShapeError
from hgld.ranking import levels as grades
from hgld.ranking.binary import checked, pooled_calibration
from hgld.ranking.modules import check_labels, mask_own, own_pairs, unit_vectors

__all__ = ["PooledCalibration", "XBMContrastive", "xbm_contrastive"]


def xbm_contrastive(scores: Tensor, levels: Tensor, margin: float = 0.5) -> Tensor:
    """Contrastive loss of cross-batch memory (Wang et al. 2020; Table III), one number.

    (1/Q) sum over queries of sum_positives (1 - s) + sum_negatives [s - margin]+. Sums, not means,
    so it grows with the memory. Published code adds s instead of s - margin for a negative above
    the margin: another value, the same gradient.

    Example:
        >>> xbm_contrastive(torch.tensor([[0.5, 0.75, 0.0]]), torch.tensor([[1, 0, 0]])).item()
        0.75
    """
    scores = checked(scores, levels)
    pull = torch.where(levels > 0, 1.0 - scores, 0.0).sum()
    push = torch.where(levels == 0, (scores - margin).relu(), 0.0).sum()
    return (pull + push) / len(scores)


class _Pooled(nn.Module):
    """Scores and binary levels of a batch against its gallery, at one level."""

    def __init__(self, level: int | None, include_self: bool) -> None:
        super().__init__()
        self.level, self.include_self = level, include_self

    def pairs(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None,
        ref_labels: Tensor | None,
        ids: Tensor | None,
        ref_ids: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """(B, M) cosines and binary levels; -1 where a query meets itself and is left out."""
        own = own_pairs(len(embeddings), ref_embeddings, ids, ref_ids)
        queries = unit_vectors(embeddings)
        gallery = queries if ref_embeddings is None else unit_vectors(ref_embeddings)
        paths = labels if ref_labels is None else ref_labels
        check_labels(labels, len(queries), None)
        check_labels(paths, len(gallery), None, "ref_")
        if queries.shape[1] != gallery.shape[1]:
            raise ShapeError(
                f"embeddings have {queries.shape[1]} dimensions, references {gallery.shape[1]}"
            )
        levels = grades.at_least(grades.shared_levels(labels, paths), self.level or labels.shape[1])
        if not self.include_self and own is not None:
            mask_own(levels, own, slice(None))
        with torch.autocast(queries.device.type, enabled=False):
            return queries @ gallery.to(queries.dtype).T, levels


class PooledCalibration(_Pooled):
    """The authors' pair loss: means over the pairs of the whole batch that still have a loss."""

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

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        ids: Tensor | None = None,
        ref_ids: Tensor | None = None,
    ) -> Tensor:
        """As ``RankLoss.forward``."""
        scores, levels = self.pairs(embeddings, labels, ref_embeddings, ref_labels, ids, ref_ids)
        return pooled_calibration(scores, levels, self.alpha, self.beta)


class XBMContrastive(_Pooled):
    """Contrastive loss against a memory of references (Table III)."""

    def __init__(
        self, margin: float = 0.5, level: int | None = None, include_self: bool = False
    ) -> None:
        super().__init__(level, include_self)
        self.margin = margin

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        ids: Tensor | None = None,
        ref_ids: Tensor | None = None,
    ) -> Tensor:
        """As ``RankLoss.forward``; mean over all queries of the batch."""
        scores, levels = self.pairs(embeddings, labels, ref_embeddings, ref_labels, ids, ref_ids)
        return xbm_contrastive(scores, levels, self.margin)
