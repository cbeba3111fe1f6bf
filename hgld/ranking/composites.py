"""A rank loss joined with a decomposability loss: ROADMAP, ROD-R@k, HAPPIER, ROD-NDCG.

loss = (1 - lam) * rank loss + lam * calibration (Eq. 2). The rank loss makes the order right inside
a batch; the calibration makes scores mean the same in every batch.
"""

from typing import Literal

from torch import Tensor, nn

from hgld.errors import ShapeError
from hgld.ranking import surrogates
from hgld.ranking.checks import check_finite, check_positive
from hgld.ranking.levels import finest_ids
from hgld.ranking.modules import SupAP, SupHAP, SupNDCG, SupRecall
from hgld.ranking.pooled import PairCalibration, PooledCalibration
from hgld.ranking.proxies import new_proxies, proxy_calibration
from hgld.ranking.rank_loss import RankLoss
from hgld.ranking.steps import Step

__all__ = ["HAPPIER", "ROADMAP", "RODNDCG", "RODRecall", "RobustDecomposable"]

Calibration = Literal["proxy", "pair", "pair-pooled"]


class RobustDecomposable(nn.Module):
    """(1 - lam) * rank + lam * calibration (Eq. 2) for any rank loss.

    Args:
        rank: the rank loss.
        lam: weight of the calibration, 0..1.
        calibration: ``proxy`` L*_DG (Eq. 8), ``pair`` Eq. 7, ``pair-pooled`` the authors' mean over
            the pairs of the whole batch that still have a loss.
        num_classes: of the proxies; labels[:, -1] are 0..num_classes-1.
        dim: of the proxies.
        eta: temperature of the proxies.
        pair_alpha: similarity that positive pairs should reach.
        pair_beta: similarity that negative pairs should stay under.

    Example:
        >>> import torch
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
        self.rank, self.lam, self.eta, self.calibration = rank, lam, eta, calibration
        if calibration == "proxy":
            if num_classes is None or dim is None:
                raise ShapeError("calibration by proxy needs num_classes and dim")
            self.proxies = new_proxies(num_classes, dim)
        elif calibration == "pair":
            self.pairs: nn.Module = PairCalibration(
                pair_alpha, pair_beta, rank.level, rank.include_self, rank.chunk
            )
        elif calibration == "pair-pooled":
            self.pairs = PooledCalibration(
                pair_alpha, pair_beta, rank.level, rank.include_self, rank.chunk
            )
        else:
            raise ShapeError(f"calibration is {calibration!r}; expected proxy, pair or pair-pooled")

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        ids: Tensor | None = None,
        ref_ids: Tensor | None = None,
    ) -> Tensor:
        """As ``RankLoss.forward``; proxies see the batch alone, pairs also the references."""
        given = (embeddings, labels, ref_embeddings, ref_labels, ids, ref_ids)
        rank: Tensor = self.rank(*given)
        if self.calibration == "proxy":
            other = proxy_calibration(embeddings, finest_ids(labels), self.proxies, self.eta)
        else:
            other = self.pairs(*given)
        return (1.0 - self.lam) * rank + self.lam * other


class ROADMAP(RobustDecomposable):
    """Sup-AP with calibration (Eq. 12). By proxy as in the paper's tables unless told otherwise.

    Example:
        >>> import torch
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
        >>> import torch
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
        >>> import torch
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
    ) -> None:
        rank = SupHAP(num_levels, alpha, include_self, step, weights, chunk)
        super().__init__(rank, lam, "proxy", num_classes, dim, eta)


class RODNDCG(RobustDecomposable):
    """Sup-NDCG with proxies of the finest classes (Eq. 25).

    Example:
        >>> import torch
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
