"""Baseline losses of the papers' tables without ranks: pairs, triplets, proxies, and their sums.

Triplets, FastAP, Proxy-Anchor and the ArcFace family are those of ``pytorch-metric-learning``,
which computes them correctly; its Smooth-AP is not used, since it assumes equal class sizes. The
hierarchical baselines Sigma-TL, Sigma-NSM and Sigma-NCA++ are sums over levels of a fine-grained
loss: ``LevelSum``.
"""

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgld.errors import HgldError, ShapeError
from hgld.ranking.checks import (
    check_choice,
    check_count,
    check_finite,
    check_positive,
    check_tensors,
    check_weights,
)
from hgld.ranking.kernels.device import whole_products
from hgld.ranking.levels import finest_ids
from hgld.ranking.modules import (
    ProxyCalibration,
    check_classes,
    check_paths,
    cosines_with_proxies,
    new_proxies,
)
from hgld.ranking.rank_loss import Sides, check_labels, unit_vectors

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
            "Triplet, FastAP, ProxyAnchor and the ArcFace family need a package: "
            "pip install pytorch-metric-learning"
        ) from None


class _OfPairs(nn.Module):
    """A loss of ``pytorch-metric-learning`` on unit vectors; 0 without positive pairs."""

    def __init__(self, loss: nn.Module, miner: nn.Module | None = None) -> None:
        super().__init__()
        self.loss, self.miner = loss, miner
        self._checked = False

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(B, D) and (B, L) label paths -> one number."""
        sides = Sides.of(embeddings, labels)
        classes = class_of(labels)
        with whole_products(embeddings.device):
            mined = None if self.miner is None else self.miner(sides.queries, classes)
            found: Tensor = self.loss(sides.queries, classes, mined)
        # The first batch is checked once, since a batch without positives gives no error by itself.
        if not self._checked:
            self._checked = True
            sides.check_first_batch(labels.shape[1])
        return found


class Triplet(_OfPairs):
    """Mean over the triplets of a batch that violate the margin, on cosines.

    Args:
        margin: in cosine units; 0.05 in the authors' configuration.
        mining: "all" of them, or "semi-hard": only those whose negative is farther from the
            anchor than the positive (TL_SH of the tables).

    Raises:
        ShapeError: another mining.

    Example:
        >>> Triplet()(torch.eye(3)[[0, 0, 1]], torch.tensor([[0], [0], [1]])).item()
        0.0
    """

    def __init__(self, margin: float = 0.05, mining: Literal["all", "semi-hard"] = "all") -> None:
        check_finite(margin=margin)
        check_choice("all", "semi-hard", mining=mining)
        cosine = _metric_learning("distances").DotProductSimilarity()
        loss, miner = _metric_learning("losses").TripletMarginLoss(margin, distance=cosine), None
        if mining == "semi-hard":
            miner = _metric_learning("miners").TripletMarginMiner(
                margin, type_of_triplets="semihard", distance=cosine
            )
        super().__init__(loss, miner)


class CLCD(nn.Module):
    """Cross-level concept distillation (Zheng et al. 2022): concepts of a level pull its pairs.

    An embedding is reduced to a concept for each level, finest first, half as long at each, and a
    concept is recovered to D numbers. With C^l the cosines of recovered concepts and embeddings,
    the loss is the mean over levels of -C^l over the pairs whose finest shared level is l; at the
    coarsest level the mean of C^1 over pairs that share none is added, as in the authors' code.
    That code pulls two views of each photo together; here the other photos of its class are these
    views, as the trainer draws several of each class. Batches of one image are refused.

    Args:
        num_levels: L.
        dim: D, at least 2^L.
        refiner: "accumulated": a concept is made of the next finer one (ACR of Table VIII);
            "independent": of the embedding (ICR).

    Raises:
        ShapeError: dim is too small for the levels; in use: embeddings of another dimension, or a
            batch of one image.

    Example:
        >>> loss = CLCD(num_levels=2, dim=8)
        >>> -1 <= loss(torch.eye(8)[[0, 0, 1]], torch.tensor([[0, 0], [0, 0], [1, 1]])).item() <= 2
        True
    """

    def __init__(
        self,
        num_levels: int,
        dim: int,
        refiner: Literal["accumulated", "independent"] = "accumulated",
    ) -> None:
        super().__init__()
        check_count(num_levels=num_levels, dim=dim)
        if dim < 2**num_levels:
            raise ShapeError(f"dim is {dim}; {num_levels} levels need {2**num_levels} or more")
        check_choice("accumulated", "independent", refiner=refiner)
        self.num_levels, self.refiner = num_levels, refiner
        lengths = [dim >> level for level in range(num_levels + 1)]
        # inputs of the reductions: the concept before, or each time the embedding
        before = lengths if refiner == "accumulated" else [dim] * num_levels
        self.norm = nn.BatchNorm1d(dim, affine=False)
        self.reduce = nn.ModuleList(
            nn.Sequential(nn.Linear(a, b, bias=False), nn.BatchNorm1d(b), nn.ReLU())
            for a, b in zip(before, lengths[1:], strict=False)
        )
        self.recover = nn.ModuleList(nn.Linear(length, dim) for length in lengths[1:])
        self._checked = False

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(B, D) and (B, L) label paths -> one number."""
        sides = Sides.of(embeddings, labels, num_levels=self.num_levels)
        if sides.queries.shape[1] != self.norm.num_features:
            raise ShapeError(
                f"embeddings have {sides.queries.shape[1]} dimensions; dim is "
                f"{self.norm.num_features}"
            )
        if len(embeddings) == 1:
            raise ShapeError("a batch of 1 image has no other to pull; give 2 or more")
        if not self._checked:
            self._checked = True
            sides.check_first_batch(1, hierarchical=True)
        levels = sides.levels(slice(None), include_self=False)  # (B, B); -1 is the image itself
        with whole_products(embeddings.device):
            return self._of_levels(sides.queries, levels)

    def _of_levels(self, queries: Tensor, levels: Tensor) -> Tensor:
        """The loss from (B, D) unit vectors and (B, B) shared levels."""
        found = self.norm(queries.to(next(self.parameters()).dtype))
        unit, concept, total = F.normalize(found, dim=1), found, found.new_zeros(())
        for depth, (reduce, recover) in enumerate(zip(self.reduce, self.recover, strict=True)):
            concept = reduce(concept if self.refiner == "accumulated" else found)
            cosines = F.normalize(recover(concept), dim=1) @ unit.T
            pulled = levels == self.num_levels - depth
            total = total - (cosines * pulled).sum() / pulled.sum().clamp(min=1)
        others = levels == 0
        pushed = (cosines * others).sum() / others.sum().clamp(min=1)
        loss: Tensor = (total + pushed) / self.num_levels
        return loss


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
        nn.init.normal_(self.proxies, std=0.125)  # the scale has no effect: proxies are normalised

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(B, D) and (B, L) label paths -> one number."""
        check_labels(labels, len(embeddings), None)
        classes = finest_ids(labels)
        cosines = cosines_with_proxies(embeddings, classes, self.proxies)
        return F.cross_entropy(2.0 * self.scale * cosines, classes)


class _OfProxies(nn.Module):
    """A loss of ``pytorch-metric-learning`` that learns a vector per class, on unit vectors."""

    def __init__(self, kind: str, num_classes: int, dim: int, **options: float) -> None:
        super().__init__()
        check_count(num_classes=num_classes, dim=dim)
        self.num_classes, self.dim = num_classes, dim
        make = getattr(_metric_learning("losses"), kind)
        self.loss = make(num_classes=num_classes, embedding_size=dim, **options)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(B, D) and (B, L) label paths -> one number."""
        check_tensors(embeddings=embeddings)
        check_labels(labels, len(embeddings), None)
        unit, classes = unit_vectors(embeddings), finest_ids(labels)
        check_classes(embeddings, classes, self.num_classes, self.dim)
        with whole_products(embeddings.device):
            found: Tensor = self.loss(unit, classes)
        return found


class ProxyAnchor(_OfProxies):
    """Proxy-Anchor (Kim et al. 2020, Eq. 4): each proxy against the images of the batch.

    Mean over the proxies with an image in the batch of log(1 + sum of exp(-scale (s - margin)) over
    their images), plus the mean over all proxies of log(1 + sum of exp(scale (s + margin)) over the
    images of other classes).

    Args:
        num_classes: C; labels[:, -1] are 0..C-1.
        dim: D of the embeddings.
        margin: delta of the paper, in cosine units.
        scale: alpha of the paper.

    Example:
        >>> loss = ProxyAnchor(num_classes=3, dim=4)
        >>> loss(torch.eye(4)[:3], torch.tensor([[0], [1], [2]])).shape
        torch.Size([])
    """

    def __init__(
        self, num_classes: int, dim: int, margin: float = 0.1, scale: float = 32.0
    ) -> None:
        check_finite(margin=margin)
        check_positive(scale=scale)
        super().__init__("ProxyAnchorLoss", num_classes, dim, margin=margin, alpha=scale)


class ArcFace(_OfProxies):
    """ArcFace (Deng et al. 2019): softmax of scale cos, the own class's angle enlarged by a margin.

    If the angle and the margin exceed 180 degrees, cos - margin sin(margin), as in the authors'
    code.

    Args:
        num_classes: C; labels[:, -1] are 0..C-1.
        dim: D of the embeddings.
        margin: in radians.
        scale: s of the paper.

    Example:
        >>> loss = ArcFace(num_classes=3, dim=4)
        >>> loss(torch.eye(4)[:3], torch.tensor([[0], [1], [2]])).shape
        torch.Size([])
    """

    def __init__(
        self, num_classes: int, dim: int, margin: float = 0.5, scale: float = 64.0
    ) -> None:
        check_finite(margin=margin)
        check_positive(scale=scale)
        degrees = math.degrees(margin)
        super().__init__("ArcFaceLoss", num_classes, dim, margin=degrees, scale=scale)


class SubCenterArcFace(_OfProxies):
    """Sub-center ArcFace (Deng et al. 2020): ArcFace on the nearest of K vectors of each class.

    Args:
        num_classes: C; labels[:, -1] are 0..C-1.
        dim: D of the embeddings.
        margin: in radians.
        scale: s of the paper.
        sub_centers: K.

    Example:
        >>> loss = SubCenterArcFace(num_classes=3, dim=4)
        >>> loss(torch.eye(4)[:3], torch.tensor([[0], [1], [2]])).shape
        torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        margin: float = 0.5,
        scale: float = 64.0,
        sub_centers: int = 3,
    ) -> None:
        check_finite(margin=margin)
        check_positive(scale=scale)
        check_count(sub_centers=sub_centers)
        options = {"margin": math.degrees(margin), "scale": scale, "sub_centers": sub_centers}
        super().__init__("SubCenterArcFaceLoss", num_classes, dim, **options)


class CosFace(_OfProxies):
    """CosFace (Wang et al. 2018): softmax of scale cos, the own class's cosine less a margin.

    Args:
        num_classes: C; labels[:, -1] are 0..C-1.
        dim: D of the embeddings.
        margin: in cosine units.
        scale: s of the paper.

    Example:
        >>> loss = CosFace(num_classes=3, dim=4)
        >>> loss(torch.eye(4)[:3], torch.tensor([[0], [1], [2]])).shape
        torch.Size([])
    """

    def __init__(
        self, num_classes: int, dim: int, margin: float = 0.35, scale: float = 64.0
    ) -> None:
        check_finite(margin=margin)
        check_positive(scale=scale)
        super().__init__("CosFaceLoss", num_classes, dim, margin=margin, scale=scale)


class HierarchicalProxies(nn.Module):
    """Proxies of fine classes, and their means as proxies of the coarser classes.

    Sum over levels of w_l times the cross-entropy of cosines over eta with the proxies of that
    level (Yang et al. 2022, who put any proxy loss at each level; here it is ``NormSoftmax``). They
    find the coarse classes by clustering the fine proxies; here the label paths are given, and a
    coarse proxy is the mean of the unit proxies of its fine classes.

    Args:
        num_classes: C fine classes; labels[:, -1] are 0..C-1.
        dim: D of the embeddings.
        class_labels: (C, L) label path of each fine class, coarse to fine.
        weights: (L,) of the levels, coarse to fine; default: 1 each, as their values were not at
            hand.
        eta: temperature in cosine units, as of ``NormSoftmax``.

    Example:
        >>> paths = torch.tensor([[0, 0], [0, 1], [1, 2]])
        >>> loss = HierarchicalProxies(num_classes=3, dim=4, class_labels=paths)
        >>> loss(torch.eye(4)[:3], paths).shape
        torch.Size([])
    """

    class_labels: Tensor
    classes: Tensor

    def __init__(
        self,
        num_classes: int,
        dim: int,
        class_labels: Tensor,
        weights: tuple[float, ...] | None = None,
        eta: float = 0.05,
    ) -> None:
        super().__init__()
        check_labels(class_labels, num_classes, None, "class_")
        check_positive(eta=eta)
        self.weights, self.eta = weights or (1.0,) * class_labels.shape[1], eta
        check_weights(self.weights, class_labels.shape[1])
        self.proxies = new_proxies(num_classes, dim)
        # Not persistent: the labels come from the data on every start.
        paths = class_labels.long()
        self.register_buffer("class_labels", paths, persistent=False)
        # (L, C) class of each fine class at each level, numbered over all parents
        classes = [class_of(paths[:, :level]) for level in range(1, paths.shape[1] + 1)]
        self.register_buffer("classes", torch.stack(classes), persistent=False)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(B, D) and (B, L) label paths -> one number."""
        check_tensors(embeddings=embeddings)
        check_labels(labels, len(embeddings), len(self.weights))
        fine = labels[:, -1].long()
        check_classes(embeddings, fine, *self.proxies.shape)
        check_paths(labels, self.class_labels)
        unit, total = F.normalize(self.proxies, dim=1), self.proxies.new_zeros(())
        for classes, weight in zip(self.classes, self.weights, strict=True):
            sums = unit.new_zeros(int(classes.max()) + 1, unit.shape[1])
            proxies = sums.index_add(0, classes, unit)  # a sum has the direction of the mean
            cosines = cosines_with_proxies(embeddings, classes[fine], proxies)
            total = total + weight * F.cross_entropy(cosines / self.eta, classes[fine])
        return total


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
