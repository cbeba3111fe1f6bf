"""Baseline losses of the papers' tables without ranks: pairs, triplets, proxies, and their sums.

Triplets and FastAP are those of ``pytorch-metric-learning``, which computes them correctly; its
Smooth-AP is not used, since it assumes equal class sizes. The hierarchical baselines Sigma-TL,
Sigma-NSM and Sigma-NCA++ are sums over levels of a fine-grained loss: ``LevelSum``.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgld.errors import HgldError, ShapeError
from hgld.ranking.checks import check_count, check_finite, check_positive
from hgld.ranking.levels import finest_ids
from hgld.ranking.modules import ProxyCalibration, cosines_with_proxies, new_proxies
from hgld.ranking.rank_loss import Sides, check_labels

__all__ = ["FastAP", "LevelSum", "NormSoftmax", "ProxyNCA", "Triplet"]

NormSoftmax = ProxyCalibration  # the same loss under the name of the baseline


def class_of(labels: Tensor) -> Tensor:
    """A number for each distinct label path, (B,)."""
    classes: Tensor = torch.unique(labels, dim=0, return_inverse=True)[1]
    return classes


def _metric_learning(module: str) -> Any:
    """Import a module of pytorch-metric-learning, an optional dependency of the ranking library."""
    try:
        return import_module(f"pytorch_metric_learning.{module}")
    except ImportError:
        raise HgldError(
            "Triplet and FastAP need a package: pip install pytorch-metric-learning"
        ) from None


class _OfPairs(nn.Module):
    """A loss of ``pytorch-metric-learning`` on unit vectors; 0 without positive pairs."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss
        self._checked = False

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(B, D) and (B, L) label paths -> one number."""
        sides = Sides.of(embeddings, labels)
        found: Tensor = self.loss(sides.queries, class_of(labels))
        # The first batch is checked once, since a batch without positives gives no error by itself.
        if not self._checked:
            self._checked = True
            sides.check_first_batch(labels.shape[1])
        return found


class Triplet(_OfPairs):
    """Mean over all triplets of a batch that violate the margin, on cosines.

    Args:
        margin: in cosine units; 0.05 in the authors' configuration.

    Example:
        >>> Triplet()(torch.eye(3)[[0, 0, 1]], torch.tensor([[0], [0], [1]])).item()
        0.0
    """

    def __init__(self, margin: float = 0.05) -> None:
        check_finite(margin=margin)
        cosine = _metric_learning("distances").DotProductSimilarity()
        super().__init__(_metric_learning("losses").TripletMarginLoss(margin, distance=cosine))


class FastAP(_OfPairs):
    """FastAP (Cakir et al. 2019): AP by soft histograms of distances, without the query itself.

    Args:
        bins: number of bins of squared distances in 0..4.

    Example:
        >>> FastAP()(torch.eye(3)[[0, 0, 1]], torch.tensor([[0], [0], [1]])).item() < 1e-6
        True
    """

    def __init__(self, bins: int = 10) -> None:
        check_count(bins=bins)
        super().__init__(_metric_learning("losses").FastAPLoss(num_bins=bins))


class ProxyNCA(nn.Module):
    """ProxyNCA++ (Teh et al. 2020): -log softmax(-scale |x - p|^2) of the own class's proxy.

    For unit vectors |x - p|^2 = 2 - 2 cos, so it is a cross-entropy of cosines times 2 scale.

    Args:
        num_classes: C; labels[:, -1] are 0..C-1.
        dim: D of the embeddings.
        scale: 1 / T of the paper, 9.

    Example:
        >>> loss = ProxyNCA(num_classes=3, dim=4)
        >>> loss(torch.eye(4)[:3], torch.tensor([[0], [1], [2]])).shape
        torch.Size([])
    """

    def __init__(self, num_classes: int, dim: int, scale: float = 9.0) -> None:
        super().__init__()
        check_positive(scale=scale)
        self.scale = scale
        self.proxies = new_proxies(num_classes, dim)
        nn.init.normal_(self.proxies, std=0.125)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(B, D) and (B, L) label paths -> one number."""
        check_labels(labels, len(embeddings), None)
        classes = finest_ids(labels)
        cosines = cosines_with_proxies(embeddings, classes, self.proxies)
        return F.cross_entropy(2.0 * self.scale * cosines, classes)


class LevelSum(nn.Module):
    """Sum over levels of a fine-grained loss: Sigma-TL, Sigma-NSM, Sigma-NCA++.

    Args:
        losses: one per level, coarse to fine; each is given the label paths down to its level.

    Example:
        >>> sigma_nsm = LevelSum([NormSoftmax(classes, dim=4) for classes in (2, 8)])
        >>> sigma_nsm(torch.eye(4), torch.tensor([[0, 0], [0, 1], [1, 4], [1, 5]])).shape
        torch.Size([])
    """

    def __init__(self, losses: Sequence[nn.Module]) -> None:
        super().__init__()
        if not losses:
            raise ShapeError("no losses; expected one for each level")
        self.levels = nn.ModuleList(losses)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(B, D) and (B, L) label paths -> one number."""
        check_labels(labels, len(embeddings), len(self.levels))
        parts = [loss(embeddings, labels[:, : i + 1]) for i, loss in enumerate(self.levels)]
        return torch.stack(parts).sum()
