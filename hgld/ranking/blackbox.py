"""Losses with exact ranks and the blackbox gradient (Rolinek et al. 2020).

The forward pass ranks exactly. For the gradient, the scores are moved by lambda against the slope
of the loss with respect to the ranks and ranked again; the gradient is the difference of the ranks
(Algorithm 1). The size of the move decides what is learned, so it is computed from the loss as in
the paper, the mean over the queries of a batch: later factors (a GradScaler's, a weight, chunks of
rows) scale the gradient and change nothing else. Ranks are divided by the gallery size, since
lambda = 4 was tuned for that; ``ranks="count"`` leaves them undivided, as Algorithm 1 is printed,
and needs a lambda larger by the gallery size to learn the same. The margin is the paper's shift by
half a margin either way (Eq. 14), always the same; the authors' code draws it at random.
"""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking.checks import (
    check_choice,
    check_count,
    check_finite,
    check_positive,
    check_tensors,
)
from hgld.ranking.levels import at_least, check_pairs
from hgld.ranking.surrogates import row_loss

Ranks = Literal["share", "count"]


def blackbox_ap(
    scores: Tensor,
    levels: Tensor,
    lam: float = 4.0,
    margin: float = 0.02,
    queries: int | None = None,
    ranks: Ranks = "share",
) -> Tensor:
    """AP loss of each query with exact ranks and the blackbox gradient (Eq. 21, 22).

    Args:
        scores: (Q, G) similarities.
        levels: (Q, G); positives are levels > 0, -1 is not in the gallery.
        lam: lambda of Algorithm 1.
        margin: positives are shifted down and negatives up by half of it.
        queries: queries in the mean, if these rows are only some of them; default: Q.
        ranks: "share", divided by the gallery size (lambda 4 was tuned for it), or "count".

    Returns:
        (Q,) in [0, 1], 1 - AP of the shifted scores; 0 if a query has no positive.

    Raises:
        ShapeError: scores and levels differ in shape or are out of range, lam is not above 0,
            margin is not finite, queries is below 1, or ranks has another value.

    Example:
        >>> blackbox_ap(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 0]])).tolist()
        [0.5]
    """

    def cost(rank: Tensor, rank_plus: Tensor, positive: Tensor, _: Tensor) -> Tensor:
        found = positive.sum(1)
        loss = 1.0 - torch.where(positive, rank_plus / rank, 0.0).sum(1) / found.clamp(min=1)
        return torch.where(found > 0, loss, 0.0)

    return _of_ranks(scores, levels, cost, lam, margin, queries, ranks)


def blackbox_recall(
    scores: Tensor,
    levels: Tensor,
    lam: float = 4.0,
    margin: float = 0.02,
    weight: Literal["log", "loglog"] = "log",
    queries: int | None = None,
    ranks: Ranks = "share",
) -> Tensor:
    """Recall loss of each query (Eq. 20): mean over positives of l(r), r = negatives above it.

    l(r) = log(1 + r) for weights 1/K, applied twice (``loglog``) for 1/(K log K).

    Args:
        scores: (Q, G) similarities.
        levels: (Q, G); positives are levels > 0, -1 is not in the gallery.
        lam: lambda of Algorithm 1.
        margin: positives are shifted down and negatives up by half of it.
        weight: how the weights decay over K.
        queries: queries in the mean, if these rows are only some of them; default: Q.
        ranks: "share", divided by the gallery size (lambda 4 was tuned for it), or "count".

    Returns:
        (Q,) >= 0; 0 if a query has no positive.

    Raises:
        ShapeError: weight is neither "log" nor "loglog"; otherwise as ``blackbox_ap``.

    Example:
        >>> blackbox_recall(torch.tensor([[0.9, 0.5]]), torch.tensor([[0, 1]]))
        tensor([0.6931])
    """
    check_choice("log", "loglog", weight=weight)

    def cost(rank: Tensor, rank_plus: Tensor, positive: Tensor, size: Tensor) -> Tensor:
        outrun = torch.where(positive, (rank - rank_plus) * size, 0.0).clamp(min=0.0)
        each = outrun.log1p() if weight == "log" else outrun.log1p().log1p()
        return each.sum(1) / positive.sum(1).clamp(min=1)

    return _of_ranks(scores, levels, cost, lam, margin, queries, ranks)


def blackbox_ap_all_classes(
    scores: Tensor, labels: Tensor, lam: float = 4.0, margin: float = 0.02
) -> Tensor:
    """AP_C (Eq. 23): one AP over all (image, class) pairs, for detection; one number.

    Args:
        scores: (N, C) score of each class for each image or box.
        labels: (N, C) 1 if the class is right, 0 if wrong, -1 to leave it out.
        lam: lambda of Algorithm 1.
        margin: the score margin.

    Returns:
        One number in [0, 1]; 0 if no class is right for any image.

    Raises:
        ShapeError: as ``blackbox_ap``.

    Example:
        >>> labels = torch.tensor([[1, 0], [0, 1]])
        >>> blackbox_ap_all_classes(torch.tensor([[0.9, 0.2], [0.1, 0.8]]), labels).item()
        0.0
    """
    return blackbox_ap(scores.reshape(1, -1), labels.reshape(1, -1), lam, margin)[0]


def interpolated_loss(scores: Tensor, weights: Tensor, lam: float) -> Tensor:
    """The piecewise linear function whose slope is the blackbox gradient (Fig. 1, 5 and 6).

    For the loss L(y) = a . rk(y), linear in the ranks:
    L_lam(y) = a . rk(y + lam a) - (y . rk(y) - y . rk(y + lam a)) / lam. It is continuous, equals L
    where the move by lam a changes no rank, and has the gradient of Algorithm 1.

    Args:
        scores: (..., n) points y.
        weights: (n,) the slopes a.
        lam: lambda; larger values smooth more.

    Returns:
        (...) values; their gradient by ``scores`` is (rk(y + lam a) - rk(y)) / lam.

    Example:
        >>> points = torch.tensor([[0.0, 0.1], [0.0, -0.1], [0.0, -0.3]])
        >>> interpolated_loss(points, torch.tensor([0.0, 1.0]), lam=0.2)
        tensor([1.0000, 1.5000, 2.0000])
    """
    check_tensors(scores=scores, weights=weights)
    check_positive(lam=lam)
    if scores.shape[-1:] != weights.shape:
        raise ShapeError(f"{tuple(weights.shape)} weights for scores {tuple(scores.shape)}")
    flat = scores.reshape(-1, scores.shape[-1])
    before, moved = _ranks(flat.detach()), _ranks(flat.detach() + lam * weights)
    values = moved @ weights - (flat * (before - moved)).sum(1) / lam
    return values.reshape(scores.shape[:-1])


class ScoreMemory:
    """Scores of the last batches, so that few positives are ranked among many (section 4.3).

    Rows are queries or classes that stay the same. Columns of earlier batches are returned without
    gradient, so only the current batch learns.

    Args:
        length: number of earlier batches to keep.

    Example:
        >>> memory = ScoreMemory(length=1)
        >>> for value in (0.1, 0.2, 0.3):
        ...     scores, _ = memory.extend(torch.tensor([[value]]), torch.tensor([[1]]))
        >>> scores.shape
        torch.Size([1, 2])
    """

    def __init__(self, length: int) -> None:
        if length != 0:
            check_count(length=length)
        self.length = length
        self._kept: list[tuple[Tensor, Tensor]] = []

    def extend(self, scores: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
        """Append the scores and levels of the earlier batches to the current (Q, G) ones."""
        if self._kept and self._kept[-1][0].shape[0] != scores.shape[0]:
            raise ShapeError(
                f"memory holds {self._kept[-1][0].shape[0]} rows, the batch {scores.shape[0]}; "
                "a score memory needs the same queries or classes in each batch"
            )
        parts = [(scores, levels), *self._kept]
        entry = (scores.detach().clone(), levels.clone())
        self._kept = [*self._kept, entry][-self.length :] if self.length else []
        return torch.cat([p[0] for p in parts], 1), torch.cat([p[1] for p in parts], 1)


Cost = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def _of_ranks(
    scores: Tensor,
    levels: Tensor,
    cost: Cost,
    lam: float,
    margin: float,
    queries: int | None,
    ranks: Ranks,
) -> Tensor:
    """Loss of each query from its ranks, with the blackbox gradient.

    Args:
        scores: (Q, G) similarities.
        levels: (Q, G); positives are levels > 0, -1 is not in the gallery.
        cost: ranks among all and among positives, both divided by a size, a mask of the positives
            and the size itself -> (Q,) losses.
        lam: as in ``blackbox_ap``.
        margin: as in ``blackbox_ap``.
        queries: as in ``blackbox_ap``.
        ranks: as in ``blackbox_ap``.
    """
    check_choice(*get_args(Ranks), ranks=ranks)
    scores, binary = check_pairs(scores, levels), at_least(levels, 1)
    check_positive(lam=lam)
    check_finite(margin=margin)
    check_count(queries=queries)
    order = binary.argsort(dim=1, stable=True)  # ties: the less relevant ranks first
    binary, back = binary.gather(1, order), order.argsort(dim=1)
    positive, present = binary > 0, binary >= 0
    size = present.sum(1, keepdim=True).clamp(min=1).to(scores.dtype)
    size = size if ranks == "share" else torch.ones_like(size)
    far = lam / (queries or len(scores))  # a query's own part of the mean has slope 1 / queries

    def solve(detached: Tensor) -> tuple[Tensor, Tensor]:
        shifted = detached.gather(1, order) + margin * (0.5 - positive.to(scores.dtype))
        every, among = (shifted.masked_fill(~mask, -torch.inf) for mask in (present, positive))
        before = _ranks(every), _ranks(among)
        # Inference mode allows no autograd, and needs no gradient.
        if torch.is_inference_mode_enabled():
            return cost(before[0] / size, before[1] / size, positive, size), torch.zeros_like(every)
        rank, rank_plus = ((ranks / size).requires_grad_() for ranks in before)
        with torch.enable_grad():
            losses = cost(rank, rank_plus, positive, size)
            slopes = torch.autograd.grad(losses.sum(), (rank, rank_plus))
        moved = _ranks(every + far * slopes[0]), _ranks(among + far * slopes[1])
        gradient = (moved[0] - before[0] + moved[1] - before[1]) / (size * far)
        return losses.detach(), gradient.gather(1, back)

    return row_loss(scores, solve)


def _ranks(scores: Tensor) -> Tensor:
    """Rank of each score in its row, 1 for the highest, ties in column order; dtype of scores."""
    order = scores.argsort(dim=1, descending=True, stable=True)
    places = torch.arange(1, scores.shape[1] + 1, device=scores.device, dtype=scores.dtype)
    return torch.empty_like(scores).scatter_(1, order, places.expand_as(scores))
