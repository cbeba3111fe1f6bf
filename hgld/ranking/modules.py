"""Rank losses as modules, alone and combined with a calibration.

A rank loss orders the images inside a batch; a calibration gives scores the same meaning in every
batch. ROADMAP, ROD-R@k, HAPPIER and ROD-NDCG are (1 - lam) * rank loss + lam * calibration (Eq. 2).
The equation of each loss is in the docstring of its function of scores.

Proxies are learned class vectors: an ``nn.Parameter`` named ``proxies``, so that a trainer can give
them a separate optimiser (the authors use Adam at learning rate 10 on SOP). Their length is not
constrained; they are scaled to unit length on each use.
"""

import math
from collections.abc import Callable
from itertools import takewhile
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgld.errors import ShapeError
from hgld.ranking import blackbox, surrogates
from hgld.ranking import levels as grades
from hgld.ranking.checks import (
    check_choice,
    check_count,
    check_finite,
    check_positive,
    check_tensors,
)
from hgld.ranking.kernels.device import whole_products
from hgld.ranking.levels import finest_ids
from hgld.ranking.pair_losses import PairCalibration, PooledCalibration
from hgld.ranking.rank_loss import PairsToLosses, RankLoss, Sides, check_labels, unit_vectors
from hgld.ranking.steps import Step


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
        weights: (L,) weights of AP at each level, coarse to fine, instead of Eq. 20: trains the sum
            of weighted APs (Property 1, Table XI).
        step: H-minus.
        include_self: whether a query counts as its own positive.
        chunk: rows of scores held at a time; default: as many as fit a memory limit.
        compare: whether an image ranks below another by "level" (the authors' code) or by
            "relevance" (the text); see ``surrogates.sup_h_ap``.

    Example:
        >>> labels = torch.tensor([[0, 0], [0, 0], [1, 1]])
        >>> SupHAP(num_levels=2)(torch.eye(3)[[0, 0, 1]], labels).item() < 1e-6
        True
    """

    def __init__(
        self,
        num_levels: int,
        alpha: float = 1.0,
        include_self: bool = True,
        step: Step | None = None,
        weights: tuple[float, ...] | None = None,
        chunk: int | None = None,
        compare: grades.Compare = "level",
    ) -> None:
        super().__init__(None, num_levels, include_self, chunk, hierarchical=True)
        check_choice(*get_args(grades.Compare), compare=compare)
        if weights is not None and len(weights) != num_levels:
            raise ShapeError(f"{len(weights)} weights for {num_levels} levels")
        if weights is not None and compare == "relevance":
            raise ShapeError("weights give a relevance that grows with the level; compare levels")
        self.alpha, self.step, self.weights, self.compare = alpha, step, weights, compare

    def relevant(self, levels: Tensor) -> Tensor:
        """Levels, those below the first level with a weight as 0: their relevance is 0."""
        below = len([*takewhile(lambda weight: weight == 0, self.weights or ())])
        return levels.masked_fill((levels > 0) & (levels <= below), 0) if below else levels

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Sup-H-AP loss of each query."""
        assert self.num_levels is not None
        rel = None if self.weights is None else grades.weighted_relevance(levels, self.weights)
        given = scores, levels, self.num_levels, self.alpha, rel, self.step, self.compare
        return surrogates.sup_h_ap(*given)


class SmoothHAP(RankLoss):
    """H-AP with sigmoids for every step (Table X's baseline) over all levels.

    Example:
        >>> labels = torch.tensor([[0, 0], [0, 0], [1, 1]])
        >>> SmoothHAP(num_levels=2)(torch.eye(3)[[0, 0, 1]], labels).item() < 1e-6
        True
    """

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
    """Sup-NDCG (Eq. 24) over all levels.

    Example:
        >>> labels = torch.tensor([[0, 0], [0, 0], [1, 1]])
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
        >>> SupNDCG(num_levels=2)(embeddings, labels).item() < 1e-6
        True
    """

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
    """Sup-R@k (Eq. 16) at one level, mean over ks.

    Example:
        >>> SupRecall(ks=(2,))(torch.eye(2)[[0, 0]], torch.tensor([[0], [0]])).item()
        0.5
    """

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
    """Sigmoid R@k of reference [28] at one level; the query is not its own positive.

    Args:
        ks: cut-offs, averaged.
        temperature: of the step at k, in ranks.
        level: that positives share; None: the finest.
        include_self: whether a query counts as its own positive.
        tau: temperature of the ranks.
        chunk: rows of scores held at a time; default: as many as fit a memory limit.
        mixup: add the mixtures of all pairs of a class to queries and gallery (SiMix, of the same
            paper). Their shares are drawn from the number of the call, which is saved with the
            loss, so that a resumed run draws the same.

    Example:
        >>> SmoothRecall(ks=(1,))(torch.eye(2)[[0, 0]], torch.tensor([[0], [0]])).item()
        0.5
    """

    def __init__(
        self,
        ks: tuple[int, ...] = surrogates.KS,
        temperature: float = 1.0,
        level: int | None = None,
        include_self: bool = False,
        tau: float = 0.01,
        chunk: int | None = None,
        mixup: bool = False,
    ) -> None:
        super().__init__(level, None, include_self, chunk)
        self.ks, self.temperature, self.tau = ks, temperature, tau
        self.calls: Tensor | None
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64) if mixup else None)

    def extend(self, sides: Sides, at: int) -> Sides:
        """Add the mixtures, if there are to be any."""
        if self.calls is None:
            return sides
        self.calls += 1
        return sides.with_mixtures(at, int(self.calls))

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Sigmoid R@k loss of each query."""
        return surrogates.smooth_recall(scores, levels, self.ks, self.temperature, self.tau)


class SoftBinAP(RankLoss):
    """Quantised AP (Revaud et al. 2019) at one level.

    Example:
        >>> labels = torch.tensor([[0, 0], [0, 0], [1, 1]])
        >>> SoftBinAP()(torch.eye(3)[[0, 0, 1]], labels).item() < 1e-6
        True
    """

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
        return surrogates.soft_bin_ap(scores, levels, self.bins, self.low, self.high)


class BlackBoxAP(RankLoss):
    """AP with the blackbox gradient (Rolinek et al. 2020) at one level.

    The gradient is that of the batch's mean, regardless of how many rows are held at a time. The
    paper leaves the query out (``include_self=False``) and leaves ranks undivided
    (``ranks="count"``); the defaults are those of the comparison in Ramzi et al.

    Example:
        >>> labels = torch.tensor([[0, 0], [0, 0], [1, 1]])
        >>> BlackBoxAP()(torch.eye(3)[[0, 0, 1]], labels).item() < 1e-6
        True
    """

    def __init__(
        self,
        lam: float = 4.0,
        margin: float = 0.02,
        level: int | None = None,
        include_self: bool = True,
        chunk: int | None = None,
        ranks: blackbox.Ranks = "share",
    ) -> None:
        super().__init__(level, None, include_self, chunk)
        self.lam, self.margin, self.ranks = lam, margin, ranks

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Blackbox AP loss of each query."""
        return self.of_batch(lambda: len(scores))(scores, levels)

    def of_batch(self, count: Callable[[], int]) -> PairsToLosses:
        """The same, for some rows of a batch with this many queries in its mean."""
        queries = max(1, count())
        return lambda s, x: blackbox.blackbox_ap(s, x, self.lam, self.margin, queries, self.ranks)


class BlackBoxRecall(RankLoss):
    """Recall with the blackbox gradient at one level; the query is left out, as in the paper.

    Example:
        >>> labels = torch.tensor([[0, 0], [0, 0], [1, 1]])
        >>> BlackBoxRecall()(torch.eye(3)[[0, 0, 1]], labels).item() < 1e-6
        True
    """

    def __init__(
        self,
        lam: float = 4.0,
        margin: float = 0.02,
        weight: Literal["log", "loglog"] = "log",
        level: int | None = None,
        include_self: bool = False,
        chunk: int | None = None,
        ranks: blackbox.Ranks = "share",
    ) -> None:
        super().__init__(level, None, include_self, chunk)
        self.lam, self.margin, self.weight, self.ranks = lam, margin, weight, ranks

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Blackbox recall loss of each query."""
        return self.of_batch(lambda: len(scores))(scores, levels)

    def of_batch(self, count: Callable[[], int]) -> PairsToLosses:
        """The same, for some rows of a batch with this many queries in its mean."""
        queries = max(1, count())
        return lambda s, x: blackbox.blackbox_recall(
            s, x, self.lam, self.margin, self.weight, queries, self.ranks
        )


Calibration = Literal["proxy", "pair", "pair-pooled"]


class RobustDecomposable(nn.Module):
    """(1 - lam) * rank + lam * calibration (Eq. 2) for any rank loss.

    Args:
        rank: the rank loss.
        lam: weight of the calibration, 0..1.
        calibration: ``proxy`` L*_DG (Eq. 8), ``pair`` Eq. 7, ``pair-pooled`` the authors' mean over
            the pairs of the whole batch with a non-zero loss.
        num_classes: number of proxies; labels[:, -1], or those at the rank loss's level, are
            0..num_classes-1.
        dim: dimension of the proxies.
        eta: temperature of the proxies.
        pair_alpha: similarity that positive pairs should reach.
        pair_beta: similarity that negative pairs should stay below.

    Example:
        >>> loss = RobustDecomposable(SupNDCG(), lam=0.5, calibration="pair")
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
        >>> loss(embeddings, torch.tensor([[0], [0], [1]])).item() < 1e-6
        True
    """

    def __init__(
        self,
        rank: RankLoss,
        lam: float = 0.1,
        calibration: Calibration = "proxy",
        num_classes: int | None = None,
        dim: int | None = None,
        eta: float = 0.05,
        pair_alpha: float = 0.9,
        pair_beta: float = 0.6,
    ) -> None:
        super().__init__()
        check_finite(lam=lam)
        if not 0.0 <= lam <= 1.0:
            raise ShapeError(f"lam is {lam}; expected 0..1")
        check_positive(eta=eta)
        check_choice(*get_args(Calibration), calibration=calibration)
        self.rank, self.lam, self.eta, self.calibration = rank, lam, eta, calibration
        if calibration == "proxy":
            if num_classes is None or dim is None:
                raise ShapeError("calibration by proxy needs num_classes and dim")
            self.proxies = new_proxies(num_classes, dim)
        else:
            kind = PairCalibration if calibration == "pair" else PooledCalibration
            self.pairs = kind(pair_alpha, pair_beta, rank.level, rank.include_self, rank.chunk)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        ids: Tensor | None = None,
        ref_ids: Tensor | None = None,
    ) -> Tensor:
        """Like ``RankLoss.forward``; proxies use the batch only, pairs the references, too."""
        given = (embeddings, labels, ref_embeddings, ref_labels, ids, ref_ids)
        rank: Tensor = self.rank(*given)
        if self.calibration == "proxy":
            classes = finest_ids(labels[:, : self.rank.level])
            other = proxy_calibration(embeddings, classes, self.proxies, self.eta)
        else:
            other = self.pairs(*given)
        return (1.0 - self.lam) * rank + self.lam * other


class ROADMAP(RobustDecomposable):
    """Sup-AP with calibration (Eq. 12), by default with proxies as in the paper's tables.

    Example:
        >>> loss = ROADMAP(calibration="pair")
        >>> loss(torch.eye(3)[[0, 0, 1]], torch.tensor([[0], [0], [1]])).item() < 1e-6
        True
    """

    def __init__(
        self,
        lam: float = 0.1,
        calibration: Calibration = "proxy",
        num_classes: int | None = None,
        dim: int | None = None,
        eta: float = 0.05,
        level: int | None = None,
        include_self: bool = True,
        step: Step | None = None,
        chunk: int | None = None,
        pair_alpha: float = 0.9,
        pair_beta: float = 0.6,
    ) -> None:
        rank = SupAP(level, include_self, step, chunk)
        super().__init__(rank, lam, calibration, num_classes, dim, eta, pair_alpha, pair_beta)


class RODRecall(RobustDecomposable):
    """Sup-R@k with calibration (Eq. 17). The authors' code runs it with lam = 0.5.

    Example:
        >>> loss = RODRecall(num_classes=3, dim=4, ks=(1, 2))
        >>> loss(torch.eye(4)[:3], torch.tensor([[0], [1], [1]])).shape
        torch.Size([])
    """

    def __init__(
        self,
        lam: float = 0.1,
        calibration: Calibration = "proxy",
        num_classes: int | None = None,
        dim: int | None = None,
        eta: float = 0.05,
        ks: tuple[int, ...] = surrogates.KS,
        temperature: float = 1.0,
        level: int | None = None,
        include_self: bool = True,
        step: Step | None = None,
        chunk: int | None = None,
    ) -> None:
        rank = SupRecall(ks, temperature, level, include_self, step, chunk)
        super().__init__(rank, lam, calibration, num_classes, dim, eta)


class HAPPIER(RobustDecomposable):
    """Sup-H-AP with proxies of the finest classes (Eq. 22); alpha above 1 is HAPPIER_F.

    Example:
        >>> loss = HAPPIER(num_levels=2, num_classes=3, dim=4)
        >>> [name for name, _ in loss.named_parameters()]
        ['proxies']
        >>> loss(torch.eye(4)[:3], torch.tensor([[0, 0], [0, 1], [1, 2]])).shape
        torch.Size([])
    """

    def __init__(
        self,
        num_levels: int,
        num_classes: int,
        dim: int,
        lam: float = 0.1,
        alpha: float = 1.0,
        eta: float = 0.05,
        include_self: bool = True,
        step: Step | None = None,
        weights: tuple[float, ...] | None = None,
        chunk: int | None = None,
        compare: grades.Compare = "level",
    ) -> None:
        rank = SupHAP(num_levels, alpha, include_self, step, weights, chunk, compare)
        super().__init__(rank, lam, "proxy", num_classes, dim, eta)


class RODNDCG(RobustDecomposable):
    """Sup-NDCG with proxies of the finest classes (Eq. 25).

    Example:
        >>> loss = RODNDCG(num_levels=2, num_classes=3, dim=4)
        >>> loss(torch.eye(4)[:3], torch.tensor([[0, 0], [0, 1], [1, 2]])).shape
        torch.Size([])
    """

    def __init__(
        self,
        num_levels: int,
        num_classes: int,
        dim: int,
        lam: float = 0.1,
        eta: float = 0.05,
        include_self: bool = True,
        step: Step | None = None,
        chunk: int | None = None,
    ) -> None:
        rank = SupNDCG(num_levels, include_self, step, chunk)
        super().__init__(rank, lam, "proxy", num_classes, dim, eta)


INTEGERS = torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64


def new_proxies(num_classes: int, dim: int) -> nn.Parameter:
    """(C, D) proxies, uniform in +-1 / sqrt(dim)."""
    check_count(num_classes=num_classes, dim=dim)
    bound = 1.0 / math.sqrt(dim)
    return nn.Parameter(torch.empty(num_classes, dim).uniform_(-bound, bound))


def proxy_calibration(
    embeddings: Tensor, classes: Tensor, proxies: Tensor, eta: float = 0.05
) -> Tensor:
    """L*_DG (Eq. 8): cross-entropy of cosines with the proxies over eta, mean over the batch.

    Args:
        embeddings: (B, D).
        classes: (B,) in 0..C-1.
        proxies: (C, D).
        eta: temperature in cosine units.

    Example:
        >>> proxy_calibration(torch.eye(2), torch.tensor([0, 1]), torch.eye(2)).item() < 1e-6
        True
    """
    check_positive(eta=eta)
    cosines = cosines_with_proxies(embeddings, classes, proxies)
    return F.cross_entropy(cosines / eta, classes.long())


def cosines_with_proxies(embeddings: Tensor, classes: Tensor, proxies: Tensor) -> Tensor:
    """(B, C) cosines of embeddings and proxies in float32 or wider, after validation."""
    check_tensors(proxies=proxies)
    check_classes(embeddings, classes, *proxies.shape)
    unit = unit_vectors(embeddings)
    with whole_products(embeddings.device):
        return unit @ F.normalize(proxies.to(unit.dtype), dim=1).T


def check_classes(embeddings: Tensor, classes: Tensor, num_classes: int, dim: int) -> None:
    """Raise ShapeError unless (B, D) embeddings and (B,) classes fit (C, D) proxies."""
    check_tensors(embeddings=embeddings, classes=classes)
    if classes.shape != embeddings.shape[:1] or classes.dtype not in INTEGERS:
        raise ShapeError(
            f"classes are {classes.dtype} of shape {tuple(classes.shape)}; "
            f"expected one integer for each of {len(embeddings)} images"
        )
    if embeddings.shape[-1] != dim:
        raise ShapeError(f"embeddings have {embeddings.shape[-1]} dimensions, proxies {dim}")
    # On a GPU cross_entropy would fail with a device-side assert instead.
    if bool((classes < 0).any()) or bool((classes >= num_classes).any()):
        raise ShapeError(
            f"classes run from {int(classes.min())} to {int(classes.max())}; there are proxies for "
            f"0..{num_classes - 1}: number the finest ids of the whole training set from 0, as "
            "torch.unique(ids, return_inverse=True)[1] does"
        )


def check_paths(labels: Tensor, class_labels: Tensor) -> None:
    """Raise ShapeError unless each label path is that of its finest class.

    Args:
        labels: (B, L) label paths, their finest ids in 0..C-1.
        class_labels: (C, L) label path of each class.
    """
    classes = labels[:, -1].long()
    other = (class_labels[classes] != labels).any(1)
    if bool(other.any()):
        path = labels[int(other.int().argmax())]
        raise ShapeError(
            f"labels hold the path {path.tolist()}, but class {int(path[-1])} has "
            f"{class_labels[path[-1]].tolist()} in class_labels; expected the same path"
        )


class ProxyCalibration(nn.Module):
    """L*_DG (Eq. 8) on the finest label: NormSoftmax among the baselines.

    Args:
        num_classes: C; labels[:, -1] are 0..C-1.
        dim: D of the embeddings.
        eta: temperature in cosine units.

    Example:
        >>> loss = ProxyCalibration(num_classes=3, dim=4)
        >>> loss(torch.eye(4)[:3], torch.tensor([[0], [1], [2]])).shape
        torch.Size([])
    """

    def __init__(self, num_classes: int, dim: int, eta: float = 0.05) -> None:
        super().__init__()
        check_positive(eta=eta)
        self.eta = eta
        self.proxies = new_proxies(num_classes, dim)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(B, D) and (B, L) label paths -> one number."""
        check_labels(labels, len(embeddings), None)
        return proxy_calibration(embeddings, finest_ids(labels), self.proxies, self.eta)


class CSL(nn.Module):
    """Cross-level similarity loss: one proxy per fine class; a coarse class is a set of proxies.

    Sum over levels l of the batch mean of softplus(LSE_{z not in the class at l} scale s_z +
    LSE_{z is the fine class} -scale s_z + scale m_l): the image's own fine proxy must exceed all
    proxies outside its class at level l by m_l.

    Args:
        num_classes: C fine classes; labels[:, -1] are 0..C-1.
        dim: D of the embeddings.
        class_labels: (C, L) label path of each fine class, coarse to fine.
        margins: (L,) in cosine units, coarse to fine like the labels. The only public code has
            0.25, 0.35, 0.45 for three levels, finest first; its authors' own code was never
            released.
        scale: factor of the cosines.

    Example:
        >>> paths = torch.tensor([[0, 0], [0, 1], [1, 2]])
        >>> loss = CSL(num_classes=3, dim=4, class_labels=paths, margins=(0.45, 0.25))
        >>> loss(torch.eye(4)[:3], paths).shape
        torch.Size([])
    """

    class_labels: Tensor

    def __init__(
        self,
        num_classes: int,
        dim: int,
        class_labels: Tensor,
        margins: tuple[float, ...] = (0.45, 0.35, 0.25),
        scale: float = 32.0,
    ) -> None:
        super().__init__()
        check_labels(class_labels, num_classes, None, "class_")
        if class_labels.shape[1] != len(margins):
            raise ShapeError(
                f"class_labels have shape {tuple(class_labels.shape)}; expected "
                f"({num_classes}, {len(margins)}), a path for each class and a margin a level"
            )
        check_positive(scale=scale)
        for margin in margins:
            check_finite(margin=margin)
        self.proxies = new_proxies(num_classes, dim)
        self.margins, self.scale = tuple(margins), scale
        # Not persistent: the labels come from the data on every start.
        self.register_buffer("class_labels", class_labels.long(), persistent=False)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(B, D) and (B, L) label paths -> one number."""
        check_labels(labels, len(embeddings), len(self.margins))
        classes = labels[:, -1].long()
        scaled = self.scale * cosines_with_proxies(embeddings, classes, self.proxies)  # (B, C)
        check_paths(labels, self.class_labels)
        own = scaled.gather(1, classes[:, None])[:, 0]
        paths = self.class_labels
        inside = torch.ones(scaled.shape, dtype=torch.bool, device=scaled.device)
        total = scaled.new_zeros(())
        for level, margin in enumerate(self.margins):
            # A proxy is inside only if all coarser labels agree, too.
            inside = inside & (paths[classes, level][:, None] == paths[:, level][None, :])
            # -1e9 instead of -inf: a row without others would have a nan gradient.
            others = scaled.masked_fill(inside, -1e9).logsumexp(1)
            loss = F.softplus(others - own + self.scale * margin)
            # A class that contains all proxies has no others to exceed.
            total = total + torch.where(inside.all(1), 0.0, loss).mean()
        return total
