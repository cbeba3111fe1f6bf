"""The rank losses as modules; what each one means stands with its function of scores."""

from typing import Literal

from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking import binary, blackbox, surrogates
from hgld.ranking import levels as grades
from hgld.ranking.rank_loss import RankLoss
from hgld.ranking.steps import Step
from hgld.ranking.stream import PairsToLosses

__all__ = [
    "BlackBoxAP",
    "BlackBoxRecall",
    "SmoothAP",
    "SmoothHAP",
    "SmoothRecall",
    "SoftBinAP",
    "SupAP",
    "SupHAP",
    "SupNDCG",
    "SupRecall",
]


class SmoothAP(RankLoss):
    """Smooth-AP (Brown et al. 2020) at one level.

    Example:
        >>> import torch
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
        >>> import torch
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

    Example:
        >>> import torch
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
    """H-AP with sigmoids for every step (Table X's baseline) over all levels.

    Example:
        >>> import torch
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
        >>> import torch
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
        >>> import torch
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

    Example:
        >>> import torch
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
    ) -> None:
        super().__init__(level, None, include_self, chunk)
        self.ks, self.temperature, self.tau = ks, temperature, tau

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Sigmoid R@k loss of each query."""
        return surrogates.smooth_recall(scores, levels, self.ks, self.temperature, self.tau)


class SoftBinAP(RankLoss):
    """Quantised AP (Revaud et al. 2019) at one level.

    Example:
        >>> import torch
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
        return binary.soft_bin_ap(scores, levels, self.bins, self.low, self.high)


class BlackBoxAP(RankLoss):
    """AP with the blackbox gradient (Rolinek et al. 2020) at one level.

    The gradient is that of the batch's mean, however many rows are held at a time.

    Example:
        >>> import torch
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
    ) -> None:
        super().__init__(level, None, include_self, chunk)
        self.lam, self.margin = lam, margin

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Blackbox AP loss of each query."""
        return self.of_batch(len(scores))(scores, levels)

    def of_batch(self, queries: int) -> PairsToLosses:
        """The same for some rows of a batch of this many queries."""
        return lambda s, x: blackbox.blackbox_ap(s, x, self.lam, self.margin, queries)


class BlackBoxRecall(RankLoss):
    """Recall with the blackbox gradient at one level; the query is left out, as in the paper.

    Example:
        >>> import torch
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
    ) -> None:
        super().__init__(level, None, include_self, chunk)
        self.lam, self.margin, self.weight = lam, margin, weight

    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """Blackbox recall loss of each query."""
        return self.of_batch(len(scores))(scores, levels)

    def of_batch(self, queries: int) -> PairsToLosses:
        """The same for some rows of a batch of this many queries."""
        return lambda s, x: blackbox.blackbox_recall(
            s, x, self.lam, self.margin, self.weight, queries
        )
