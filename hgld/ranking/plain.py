"""Ranks and rank losses from all pairs, in plain torch, a few queries at a time.

This is the equations as they stand in the papers: for each positive k the differences s_j - s_k to
the whole gallery. It runs on any device and takes any relevance; the kernels are held against it.
A query's loss depends on its own row of scores alone, so the gradient of all losses is one (Q, G)
table and forward and backward are done together (``row_loss``).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from hgld.ranking.steps import Step

__all__ = [
    "Goal",
    "RankFunction",
    "first_derivative",
    "gain_table",
    "ideal_dcg",
    "plain_loss",
    "row_loss",
]

PAIRS_AT_ONCE = 1 << 22
NO_FORWARD_MODE = (
    "rank losses find value and gradient in one pass and have no forward-mode derivative (jvp, "
    "jacfwd, hessian); use backward, torch.func.grad, vjp or jacrev"
)
KINDS = {"ratio": 0, "dcg": 1, "recall": 2}  # numbers by which the kernels know them


@dataclass(frozen=True)
class Goal:
    """What is made of the ranks R_k of the positives of a query.

    Args:
        kind: ``ratio`` 1 - sum_k Hrank+(k) / R_k / sum_k rel_k (AP, H-AP); ``dcg``
            1 - sum_k rel_k / log2(1 + R_k) / ideal; ``recall``
            1 - mean_K sum_k sigma((K - R_k) / temperature) / min(K, P).
        step: H-minus.
        smooth: the step stands for every H, so that higher levels count softly too.
        ks: the K of ``recall``.
        temperature: of ``recall``, in ranks.
        clip: ``recall`` counts at most K positives (reference [28]).
    """

    kind: Literal["ratio", "dcg", "recall"]
    step: Step
    smooth: bool = False
    ks: tuple[int, ...] = ()
    temperature: float = 1.0
    clip: bool = False

    @property
    def number(self) -> int:
        """The kind, as the kernels know it."""
        return KINDS[self.kind]


class RankFunction(torch.autograd.Function):
    """Base of the autograd functions of rank losses; refuses forward mode in one line.

    Value and gradient are computed in one pass, so only reverse mode has a derivative.
    """

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Raise RuntimeError with what to use instead."""
        raise RuntimeError(NO_FORWARD_MODE)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        """Raise it, too: torch batches the tangents of jacfwd before it asks for ``jvp``."""
        raise RuntimeError(NO_FORWARD_MODE)


class _FirstDerivative(RankFunction):
    """A gradient as it is, bound to what it depends on; its own backward raises RuntimeError."""

    @staticmethod
    def forward(gradient: Tensor, given: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        raise RuntimeError("rank losses have no second derivative")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        # torch.func.jacrev batches the gradient; the binding does not depend on its shape
        return first_derivative(*inputs), in_dims[0]


def first_derivative(gradient: Tensor, given: Tensor) -> Tensor:
    """A gradient that a backward pass returns; to differentiate it again raises RuntimeError.

    The gradient was computed in the forward pass and kept as a constant, so a second derivative
    would be silently 0. ``torch.func.grad`` and ``create_graph=True`` build its graph and may.

    Args:
        gradient: of the loss by ``given``.
        given: an input of the loss.
    """
    if not torch.is_grad_enabled():
        return gradient
    bound: Tensor = _FirstDerivative.apply(gradient, given)  # type: ignore[no-untyped-call]
    return bound


class _RowLoss(RankFunction):
    """Losses of the rows with their gradient, found together; backward only scales its rows.

    The gradient is an output, since ``torch.func`` lets ``setup_context`` see outputs alone.
    """

    @staticmethod
    def forward(
        scores: Tensor, solve: Callable[..., tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        return solve(scores)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1], inputs[0])

    @staticmethod
    def backward(ctx: Any, grad_losses: Tensor, _: Tensor) -> tuple[Tensor, None]:
        gradient, scores = ctx.saved_tensors
        return first_derivative(gradient * grad_losses[:, None], scores), None


def row_loss(scores: Tensor, solve: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    """(Q, G) scores -> (Q,) losses, where ``solve`` gives losses and d loss_i / d scores_i."""
    losses: Tensor = _RowLoss.apply(scores, solve)[0]  # type: ignore[no-untyped-call]
    return losses


def plain_loss(scores: Tensor, levels: Tensor, rel: Tensor, goal: Goal) -> tuple[Tensor, Tensor]:
    """Losses (Q,) and their gradients (Q, G), a few rows at a time.

    Args:
        scores: (Q, G) float32 or float64.
        levels: (Q, G) shared levels; -1 is not in the gallery.
        rel: (Q, G) relevance or gain, 0 where the level is 0 or -1.
        goal: what is made of the ranks.
    """
    losses = scores.new_zeros(len(scores))
    gradient = torch.zeros_like(scores)
    most = int((levels > 0).sum(1).max())
    rows = max(1, PAIRS_AT_ONCE // max(1, most * scores.shape[1]))
    for start in range(0, len(scores), rows):
        part = slice(start, start + rows)
        with torch.enable_grad():
            chunk = scores[part].detach().requires_grad_()
            found = _loss_of_rows(chunk, levels[part], rel[part], goal)
            losses[part] = found.detach()
            if found.requires_grad:
                gradient[part] = torch.autograd.grad(found.sum(), chunk)[0]
    return losses, gradient


def _loss_of_rows(scores: Tensor, levels: Tensor, rel: Tensor, goal: Goal) -> Tensor:
    """Losses of a chunk of rows, from (rows, P, G) pairs."""
    positive = levels > 0
    counts = positive.sum(1)
    most = int(counts.max())
    if not most:
        return (scores * 0.0).sum(1)
    which = positive.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :most]
    real = positive.gather(1, which)  # (rows, P): shorter rows are padded
    rank, h_rank = _ranks(scores, levels, rel.to(scores.dtype), which, goal)
    gain = rel.to(scores.dtype).gather(1, which) * real
    metric = _metric(rank, h_rank, gain, real, counts, goal)
    return torch.where(counts > 0, 1.0 - metric, metric * 0.0)


def _ranks(
    scores: Tensor, levels: Tensor, rel: Tensor, which: Tensor, goal: Goal
) -> tuple[Tensor, Tensor]:
    """Rank R_k with the stand-in step and H-rank+ of each listed positive: two (rows, P)."""
    t = scores[:, None, :] - scores.gather(1, which)[:, :, None]  # (rows, P, G): s_j - s_k
    level_k = levels.gather(1, which)[:, :, None]
    present = (levels >= 0)[:, None, :]
    shared = torch.minimum(rel[:, None, :], rel.gather(1, which)[:, :, None])
    if goal.smooth:
        columns = torch.arange(scores.shape[1], device=scores.device)
        others = present & (columns != which[:, :, None])
        soft = goal.step(t) * others
        return 1.0 + soft.sum(2), rel.gather(1, which) + (shared * soft).sum(2)
    above = (t >= 0) & present  # holds k itself
    lower = (levels[:, None, :] < level_k) & present
    rank_plus = (above & ~lower).sum(2)
    rank_minus = torch.where(lower, goal.step(t), 0.0).sum(2)
    return rank_plus + rank_minus, (shared * above).sum(2)


def _metric(
    rank: Tensor, h_rank: Tensor, gain: Tensor, real: Tensor, counts: Tensor, goal: Goal
) -> Tensor:
    """Metric of each row from its (rows, P) ranks."""
    rank = torch.where(real, rank, 1.0)
    if goal.kind == "ratio":
        total = gain.sum(1)
        return torch.where(real, h_rank / rank, 0.0).sum(1) / torch.where(total > 0, total, 1.0)
    if goal.kind == "dcg":
        best = gain.sort(1, descending=True).values
        places = torch.arange(2, best.shape[1] + 2, device=best.device, dtype=best.dtype)
        ideal = (best / places.log2()).sum(1)
        return (gain / torch.log2(1.0 + rank)).sum(1) / torch.where(ideal > 0, ideal, 1.0)
    recalls = []
    for k in goal.ks:
        found = (torch.sigmoid((k - rank) / goal.temperature) * real).sum(1)
        found = found.clamp(max=k) if goal.clip else found
        recalls.append(found / counts.clamp(min=1, max=k))
    return torch.stack(recalls).mean(0)


def ideal_dcg(gains: Tensor, counts: Tensor) -> Tensor:
    """DCG of the best order, from (L + 1,) gains growing with the level and (Q, L + 1) counts."""
    size = int(counts[:, 1:].sum(1).max())
    places = torch.arange(2, size + 2, dtype=torch.float64, device=counts.device)
    until = torch.cat([places.new_zeros(1), places.log2().reciprocal().cumsum(0)])
    ends = counts[:, 1:].flip(1).cumsum(1)  # finest first
    starts = ends - counts[:, 1:].flip(1)
    return ((until[ends] - until[starts]) * gains[1:].flip(0)).sum(1)


def gain_table(num_levels: int) -> Tensor:
    """Gain 2^l - 1 of levels 0..L, float64."""
    return torch.tensor([math.exp2(level) - 1.0 for level in range(num_levels + 1)]).double()
