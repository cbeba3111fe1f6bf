"""Losses with exact ranks and the blackbox gradient (Rolinek et al. 2020).

The forward pass ranks exactly; the backward pass ranks once more, the scores moved against the
incoming gradient by lambda, and hands on the difference (Algorithm 1). Ranks are divided by the
gallery size inside the ranker, since lambda = 4 was tuned so. The margin is the paper's shift of
half a margin either way (Eq. 14), always the same; the authors' code draws it at random.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking.binary import checked
from hgld.ranking.levels import at_least
from hgld.ranking.steps import check_positive

__all__ = ["ScoreMemory", "blackbox_ap", "blackbox_ap_all_classes", "blackbox_recall"]


class _Rank(torch.autograd.Function):
    """Rank of every score in its row, divided by ``size``; among equals earlier columns last."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, size: Tensor, lam: float) -> Tensor:
        ranks = _ranks(scores) / size
        ctx.save_for_backward(scores, size, ranks)
        ctx.lam = lam
        return ranks

    @staticmethod
    def backward(ctx: Any, grad_ranks: Tensor) -> tuple[Tensor, None, None]:
        scores, size, ranks = ctx.saved_tensors
        moved = _ranks(scores + ctx.lam * grad_ranks) / size
        return -(ranks - moved) / ctx.lam, None, None


def _ranks(scores: Tensor) -> Tensor:
    """1 for the highest of each row, in the dtype of the scores."""
    order = scores.argsort(dim=1, descending=True, stable=True)
    places = torch.arange(1, scores.shape[1] + 1, device=scores.device, dtype=scores.dtype)
    return torch.empty_like(scores).scatter_(1, order, places.expand_as(scores))


def blackbox_ap(scores: Tensor, levels: Tensor, lam: float = 4.0, margin: float = 0.02) -> Tensor:
    """AP loss of each query with exact ranks and the blackbox gradient (Eq. 21, 22).

    Args:
        scores: (Q, G) similarities.
        levels: (Q, G); positives are levels > 0, -1 is not in the gallery.
        lam: lambda of Algorithm 1, for ranks divided by the gallery size.
        margin: positives are shifted down and negatives up by half of it.

    Returns:
        (Q,) in [0, 1], 1 - AP of the shifted scores; 0 where a query has no positive.

    Example:
        >>> blackbox_ap(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 0]])).tolist()
        [0.5]
    """
    rank, rank_plus, positive = _shifted_ranks(scores, levels, lam, margin)
    found = positive.sum(1)
    loss = 1.0 - torch.where(positive, rank_plus / rank, 0.0).sum(1) / found.clamp(min=1)
    return torch.where(found > 0, loss, 0.0)


def blackbox_recall(
    scores: Tensor,
    levels: Tensor,
    lam: float = 4.0,
    margin: float = 0.02,
    weight: Literal["log", "loglog"] = "log",
) -> Tensor:
    """Recall loss of each query (Eq. 20): mean over positives of l(r), r = negatives above it.

    l(r) = log(1 + r) for weights 1/K, applied twice (``loglog``) for 1/(K log K).

    Args: as ``blackbox_ap``; weight is the decay of the weights over K.

    Returns:
        (Q,) >= 0; 0 where a query has no positive.

    Example:
        >>> blackbox_recall(torch.tensor([[0.9, 0.5]]), torch.tensor([[0, 1]]))
        tensor([0.6931])
    """
    if weight not in ("log", "loglog"):
        raise ShapeError(f"weight is {weight!r}; expected 'log' or 'loglog'")
    rank, rank_plus, positive = _shifted_ranks(scores, levels, lam, margin)
    size = (levels >= 0).sum(1, keepdim=True)
    outrun = torch.where(positive, (rank - rank_plus) * size, 0.0).clamp(min=0.0)
    cost = outrun.log1p() if weight == "log" else outrun.log1p().log1p()
    return cost.sum(1) / positive.sum(1).clamp(min=1)


def blackbox_ap_all_classes(
    scores: Tensor, labels: Tensor, lam: float = 4.0, margin: float = 0.02
) -> Tensor:
    """AP_C (Eq. 23): one AP over all (image, class) pairs, for detection; one number.

    Args:
        scores: (N, C) score of each class for each image or box.
        labels: (N, C) 1 where the class is right, 0 where not, -1 to leave out.
        lam: lambda of Algorithm 1.
        margin: the score margin.

    Example:
        >>> labels = torch.tensor([[1, 0], [0, 1]])
        >>> blackbox_ap_all_classes(torch.tensor([[0.9, 0.2], [0.1, 0.8]]), labels).item()
        0.0
    """
    return blackbox_ap(scores.reshape(1, -1), labels.reshape(1, -1), lam, margin)[0]


class ScoreMemory:
    """Scores of the last batches, so that few positives are ranked among many (section 4.3).

    Rows are queries or classes that stay the same; columns of earlier batches come back without
    gradient, in front of nothing they could change: only the current batch learns.

    Args:
        length: how many earlier batches are kept.

    Example:
        >>> memory = ScoreMemory(length=1)
        >>> for value in (0.1, 0.2, 0.3):
        ...     scores, _ = memory.extend(torch.tensor([[value]]), torch.tensor([[1]]))
        >>> scores.shape
        torch.Size([1, 2])
    """

    def __init__(self, length: int) -> None:
        if length < 0:
            raise ShapeError(f"length is {length}; expected a number of batches >= 0")
        self.length = length
        self._kept: list[tuple[Tensor, Tensor]] = []

    def extend(self, scores: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
        """Current (Q, G) scores and levels with those of the earlier batches behind them."""
        if self._kept and self._kept[-1][0].shape[0] != scores.shape[0]:
            raise ShapeError(
                f"memory holds {self._kept[-1][0].shape[0]} rows, the batch {scores.shape[0]}; "
                "a score memory needs the same queries or classes in each batch"
            )
        parts = [(scores, levels), *self._kept]
        entry = (scores.detach().clone(), levels.clone())
        self._kept = [*self._kept, entry][-self.length :] if self.length else []
        return torch.cat([p[0] for p in parts], 1), torch.cat([p[1] for p in parts], 1)


def _shifted_ranks(
    scores: Tensor, levels: Tensor, lam: float, margin: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Ranks among all and among positives, both divided by the gallery size; positive mask."""
    scores, binary = checked(scores, levels, margin=margin), at_least(levels, 1)
    check_positive("lam", lam)
    positive, absent = binary > 0, binary < 0
    shifted = torch.where(positive, scores - margin / 2, scores + margin / 2)
    order = binary.argsort(dim=1, stable=True)  # the less relevant first among equals
    back = order.argsort(dim=1)
    size = (~absent).sum(1, keepdim=True).clamp(min=1).to(scores.dtype)
    every = shifted.masked_fill(absent, -torch.inf).gather(1, order)  # last after any move
    among = shifted.masked_fill(~positive, -torch.inf).gather(1, order)
    rank = _apply(every, size, lam).gather(1, back)
    rank_plus = _apply(among, size, lam).gather(1, back)
    return rank, rank_plus, positive


def _apply(scores: Tensor, size: Tensor, lam: float) -> Tensor:
    ranks: Tensor = _Rank.apply(scores, size, lam)  # type: ignore[no-untyped-call]
    return ranks
