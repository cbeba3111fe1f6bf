"""Losses as modules: of embeddings and label paths, one number to train on.

Similarities are cosines: embeddings are scaled to unit length here, in float32 at least and
outside autocast (bfloat16 steps near 1 are 0.4 tau wide). Labels are paths, coarse to fine. By
default a query is its own rank-1 positive, as in the authors' code; ``include_self=False`` takes it
out. References (a memory, another machine's part of the batch) replace the batch as gallery; where
they hold the queries themselves, ``ids`` and ``ref_ids`` tell which pairs are a query with itself.
"""

import warnings
from abc import ABC, abstractmethod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgld.errors import ShapeError
from hgld.ranking import binary, blackbox, surrogates
from hgld.ranking import levels as grades
from hgld.ranking.steps import Step
from hgld.ranking.stream import mean_over_queries

__all__ = [
    "BlackBoxAP",
    "BlackBoxRecall",
    "PairCalibration",
    "RankLoss",
    "SmoothAP",
    "SmoothHAP",
    "SmoothRecall",
    "SoftBinAP",
    "SupAP",
    "SupHAP",
    "SupNDCG",
    "SupRecall",
    "unit_vectors",
]


def unit_vectors(embeddings: Tensor) -> Tensor:
    """(B, D) embeddings scaled to unit length, in float32 at least."""
    if embeddings.ndim != 2 or 0 in embeddings.shape:
        raise ShapeError(f"embeddings have shape {tuple(embeddings.shape)}; expected (images, dim)")
    half = embeddings.dtype in (torch.float16, torch.bfloat16)
    with torch.autocast(embeddings.device.type, enabled=False):
        unit = F.normalize(embeddings.float() if half else embeddings, dim=1)
    if not bool(torch.isfinite(unit.sum())):
        raise ShapeError("embeddings hold nan or inf; expected finite numbers")
    return unit


class RankLoss(nn.Module, ABC):
    """Mean over the queries with a positive of a loss of their scores and levels.

    Args:
        level: positives share at least this level; None is the finest. Hierarchical losses use
            all levels and take none.
        num_levels: levels that the labels must have; None is any number.
        include_self: whether a query counts as its own positive.
        chunk: rows of scores held at a time; None chooses.
    """

    weigh_first = False  # blackbox gradients do not scale with what comes in

    def __init__(
        self,
        level: int | None = None,
        num_levels: int | None = None,
        include_self: bool = True,
        chunk: int | None = None,
        hierarchical: bool = False,
    ) -> None:
        super().__init__()
        self.level, self.num_levels = level, num_levels
        self.include_self, self.chunk, self.hierarchical = include_self, chunk, hierarchical
        self._warned = False

    @abstractmethod
    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """(Q, G) scores and levels -> (Q,) losses, 0 where a query has no positive."""

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        ids: Tensor | None = None,
        ref_ids: Tensor | None = None,
    ) -> Tensor:
        """Mean loss of a batch.

        Args:
            embeddings: (B, D), of any length.
            labels: (B, L) label paths, coarse to fine.
            ref_embeddings: (M, D) gallery in place of the batch.
            ref_labels: (M, L) its label paths.
            ids: (B,) image ids; with ``ref_ids``, which references are a query itself.
            ref_ids: (M,) image ids of the references.

        Returns:
            One number; 0 with a zero gradient where no query has a positive.

        Raises:
            ShapeError: what is given does not fit together.
        """
        own = own_pairs(len(embeddings), ref_embeddings, ids, ref_ids)
        queries = unit_vectors(embeddings)
        gallery = queries if ref_embeddings is None else unit_vectors(ref_embeddings)
        gallery_labels = labels if ref_labels is None else ref_labels
        self._check(queries, labels, gallery, gallery_labels)

        def levels_of(rows: slice) -> Tensor:
            levels = grades.shared_levels(labels[rows], gallery_labels)
            if not self.include_self and own is not None:
                mask_own(levels, own, rows)
            if self.hierarchical:
                return levels
            return grades.at_least(levels, self.level or labels.shape[1])

        gallery = gallery.to(queries.dtype)
        loss, counted = mean_over_queries(
            queries, gallery, levels_of, self.per_query, self.chunk, self.weigh_first
        )
        self._warn_if_none(counted)
        return loss

    def _check(self, queries: Tensor, labels: Tensor, gallery: Tensor, others: Tensor) -> None:
        if queries.shape[1] != gallery.shape[1]:
            raise ShapeError(
                f"embeddings have {queries.shape[1]} dimensions, references {gallery.shape[1]}"
            )
        for name, vectors, paths in (("", queries, labels), ("ref_", gallery, others)):
            check_labels(paths, len(vectors), self.num_levels, name)
        if self.level is not None and not 1 <= self.level <= labels.shape[1]:
            raise ShapeError(f"level is {self.level}; labels have levels 1..{labels.shape[1]}")

    def _warn_if_none(self, counted: Tensor) -> None:
        if not self._warned and not bool(counted):
            self._warned = True
            warnings.warn(
                "no query of this batch has a positive: its loss is 0 and teaches nothing "
                "(said once)",
                stacklevel=4,
            )


def check_labels(labels: Tensor, images: int, num_levels: int | None, name: str = "") -> None:
    """Raise ShapeError unless labels are one path for each image with the declared levels."""
    if labels.ndim != 2 or len(labels) != images:
        raise ShapeError(
            f"{name}labels have shape {tuple(labels.shape)}; expected ({images}, levels)"
        )
    if num_levels is not None and labels.shape[1] != num_levels:
        raise ShapeError(f"{name}labels have {labels.shape[1]} levels; num_levels is {num_levels}")


def own_pairs(
    batch: int, references: Tensor | None, ids: Tensor | None, ref_ids: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """Ids of both sides, equal where a pair is an image with itself; None where none can be."""
    if references is None:
        rows = torch.arange(batch) if ids is None else ids
        return rows, rows if ref_ids is None else ref_ids
    if ids is None or ref_ids is None:
        return None
    if len(ids) != batch or len(ref_ids) != len(references):
        raise ShapeError(
            f"{len(ids)} ids for {batch} queries, {len(ref_ids)} ref_ids for "
            f"{len(references)} references; expected one for each"
        )
    return ids, ref_ids


def mask_own(levels: Tensor, own: tuple[Tensor, Tensor], rows: slice) -> None:
    """Put -1 where a query meets itself, in place."""
    ids, ref_ids = own[0][rows].to(levels.device), own[1].to(levels.device)
    levels[ids[:, None] == ref_ids[None, :]] = -1


class SmoothAP(RankLoss):
    """Smooth-AP (Brown et al. 2020) at one level.

    Example:
        >>> labels = torch.tensor([[0], [0], [1]])
        >>> SmoothAP()(torch.eye(3)[[0, 0, 1]], labels).item() < 1e-6
        True
    """

    def __init__(
        self,
        level: int | None = None,
        include_self: bool = True,
        tau: float = 0.01,
        chunk: int | None = None,
    ) -> None:
        super().__init__(level, None, include_self, chunk)
        self.tau = tau

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Smooth-AP loss of each query."""
        return surrogates.smooth_ap(scores, levels, self.tau)


class SupAP(RankLoss):
    """Sup-AP (Eq. 11) at one level.

    Example:
        >>> labels = torch.tensor([[0], [0], [1]])
        >>> SupAP()(torch.eye(3)[[0, 0, 1]], labels).item() < 1e-6
        True
    """

    def __init__(
        self,
        level: int | None = None,
        include_self: bool = True,
        step: Step | None = None,
        chunk: int | None = None,
    ) -> None:
        super().__init__(level, None, include_self, chunk)
        self.step = step

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Sup-AP loss of each query."""
        return surrogates.sup_ap(scores, levels, self.step)


class SupHAP(RankLoss):
    """Sup-H-AP (Eq. 21) over all levels.

    Args:
        num_levels: L.
        alpha: of Eq. 20; above 1 is HAPPIER_F.
        weights: (L,) weights of AP at each level, coarse to fine, in place of Eq. 20: trains the
            sum of weighted APs (Property 1, Table XI).
        step: H-minus.
        include_self: whether a query counts as its own positive.
        chunk: rows of scores held at a time.
    """

    def __init__(
        self,
        num_levels: int,
        alpha: float = 1.0,
        include_self: bool = True,
        step: Step | None = None,
        weights: tuple[float, ...] | None = None,
        chunk: int | None = None,
    ) -> None:
        super().__init__(None, num_levels, include_self, chunk, hierarchical=True)
        if weights is not None and len(weights) != num_levels:
            raise ShapeError(f"{len(weights)} weights for {num_levels} levels")
        self.alpha, self.step, self.weights = alpha, step, weights

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Sup-H-AP loss of each query."""
        assert self.num_levels is not None
        rel = None if self.weights is None else grades.weighted_relevance(levels, self.weights)
        return surrogates.sup_h_ap(scores, levels, self.num_levels, self.alpha, rel, self.step)


class SmoothHAP(RankLoss):
    """H-AP with sigmoids for every step (Table X's baseline) over all levels."""

    def __init__(
        self,
        num_levels: int,
        alpha: float = 1.0,
        include_self: bool = True,
        tau: float = 0.01,
        chunk: int | None = None,
    ) -> None:
        super().__init__(None, num_levels, include_self, chunk, hierarchical=True)
        self.alpha, self.tau = alpha, tau

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Sigmoid H-AP loss of each query."""
        assert self.num_levels is not None
        return surrogates.smooth_h_ap(scores, levels, self.num_levels, self.alpha, tau=self.tau)


class SupNDCG(RankLoss):
    """Sup-NDCG (Eq. 24) over all levels."""

    def __init__(
        self,
        num_levels: int | None = None,
        include_self: bool = True,
        step: Step | None = None,
        chunk: int | None = None,
    ) -> None:
        super().__init__(None, num_levels, include_self, chunk, hierarchical=True)
        self.step = step

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Sup-NDCG loss of each query."""
        return surrogates.sup_ndcg(scores, levels, self.step)


class SupRecall(RankLoss):
    """Sup-R@k (Eq. 16) at one level, mean over ks."""

    def __init__(
        self,
        ks: tuple[int, ...] = surrogates.KS,
        temperature: float = 1.0,
        level: int | None = None,
        include_self: bool = True,
        step: Step | None = None,
        chunk: int | None = None,
    ) -> None:
        super().__init__(level, None, include_self, chunk)
        self.ks, self.temperature, self.step = ks, temperature, step

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Sup-R@k loss of each query."""
        return surrogates.sup_recall(scores, levels, self.ks, self.temperature, self.step)


class SmoothRecall(RankLoss):
    """Sigmoid R@k of reference [28] at one level; the query is not its own positive."""

    def __init__(
        self,
        ks: tuple[int, ...] = surrogates.KS,
        temperature: float = 1.0,
        level: int | None = None,
        include_self: bool = False,
        tau: float = 0.01,
        chunk: int | None = None,
    ) -> None:
        super().__init__(level, None, include_self, chunk)
        self.ks, self.temperature, self.tau = ks, temperature, tau

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Sigmoid R@k loss of each query."""
        return surrogates.smooth_recall(scores, levels, self.ks, self.temperature, self.tau)


class SoftBinAP(RankLoss):
    """Quantised AP (Revaud et al. 2019) at one level."""

    def __init__(
        self,
        bins: int = 20,
        low: float = -1.0,
        high: float = 1.0,
        level: int | None = None,
        include_self: bool = True,
        chunk: int | None = None,
    ) -> None:
        super().__init__(level, None, include_self, chunk)
        self.bins, self.low, self.high = bins, low, high

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Quantised AP loss of each query."""
        return binary.soft_bin_ap(scores, levels, self.bins, self.low, self.high)


class BlackBoxAP(RankLoss):
    """AP with the blackbox gradient (Rolinek et al. 2020) at one level."""

    weigh_first = True

    def __init__(
        self,
        lam: float = 4.0,
        margin: float = 0.02,
        level: int | None = None,
        include_self: bool = True,
        chunk: int | None = None,
    ) -> None:
        super().__init__(level, None, include_self, chunk)
        self.lam, self.margin = lam, margin

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Blackbox AP loss of each query."""
        return blackbox.blackbox_ap(scores, levels, self.lam, self.margin)


class BlackBoxRecall(RankLoss):
    """Recall with the blackbox gradient at one level; the query is left out, as in the paper."""

    weigh_first = True

    def __init__(
        self,
        lam: float = 4.0,
        margin: float = 0.02,
        weight: Literal["log", "loglog"] = "log",
        level: int | None = None,
        include_self: bool = False,
        chunk: int | None = None,
    ) -> None:
        super().__init__(level, None, include_self, chunk)
        self.lam, self.margin, self.weight = lam, margin, weight

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Blackbox recall loss of each query."""
        return blackbox.blackbox_recall(scores, levels, self.lam, self.margin, self.weight)


class PairCalibration(RankLoss):
    """Decomposability loss by pairs (Eq. 7) at one level, mean over the queries."""

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
