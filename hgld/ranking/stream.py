"""Embeddings to a mean loss, some rows of scores at a time.

Each query needs its row of scores alone, so a chunk of rows is scored, turned into a gradient and
added to the gradient of the embeddings before the next chunk comes: no (B, B) table is held. The
gradient is found in the forward pass; backward scales it. There is no second derivative.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hgld.ranking.kernels.device import whole_products
from hgld.ranking.plain import RankFunction, first_derivative

__all__ = ["PairsToLosses", "mean_over_queries"]

PairsToLosses = Callable[[Tensor, Tensor], Tensor]
CELLS_AT_ONCE = 1 << 24
ROWS_AT_LEAST = 256


class _Streamed(RankFunction):
    """Sum of the queries' losses, with the gradients of queries and references."""

    @staticmethod
    def forward(
        queries: Tensor,
        references: Tensor,
        levels_of: Callable[[slice], Tensor],
        losses_of: PairsToLosses,
        rows: int,
        wanted: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        total = torch.zeros((), dtype=torch.float64, device=queries.device)
        counted = torch.zeros((), dtype=torch.int64, device=queries.device)
        d_queries = torch.zeros_like(queries) if wanted else None
        same = references is queries  # then both gradients add up in one place
        d_references = d_queries if same or not wanted else torch.zeros_like(references)
        for start in range(0, len(queries), rows):
            part = slice(start, start + rows)
            levels = levels_of(part)
            scores = queries[part] @ references.T  # (rows, G)
            loss, gradient = _losses_of_rows(scores, levels, losses_of, wanted)
            total += loss
            counted += (levels > 0).any(1).sum()
            if d_queries is not None and d_references is not None and gradient is not None:
                d_queries[part].addmm_(gradient, references)
                d_references.addmm_(gradient.T, queries[part])
            del scores, gradient
        return total.to(queries.dtype), counted, d_queries, None if same else d_references

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[Tensor | None, ...]) -> None:
        queries, references = inputs[:2]
        ctx.mark_non_differentiable(*(part for part in output[1:] if part is not None))
        ctx.save_for_backward(queries, references, *output[2:])

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        queries, references, *gradients = ctx.saved_tensors
        d_queries, d_references = (
            None if gradient is None else first_derivative(gradient * grad_total, side)
            for gradient, side in zip(gradients, (queries, references), strict=True)
        )
        return d_queries, d_references, None, None, None, None


def _losses_of_rows(
    scores: Tensor, levels: Tensor, losses_of: PairsToLosses, wanted: bool
) -> tuple[Tensor, Tensor | None]:
    """Sum of the losses of a chunk of rows, and its gradient by the scores."""
    if not wanted:
        return losses_of(scores, levels).sum().double(), None
    with torch.enable_grad():
        loss = losses_of(scores.requires_grad_(), levels).sum()
        gradient = torch.autograd.grad(loss, scores)[0] if loss.requires_grad else None
    return loss.detach().double(), gradient


def mean_over_queries(
    queries: Tensor,
    references: Tensor,
    levels_of: Callable[[slice], Tensor],
    losses_of: PairsToLosses,
    chunk: int | None = None,
) -> Tensor:
    """Mean loss over the queries that have a positive.

    Args:
        queries: (Q, D) unit vectors.
        references: (G, D) unit vectors; the same tensor where the batch is its own gallery.
        levels_of: rows of queries -> their (rows, G) levels.
        losses_of: (rows, G) scores and levels -> (rows,) losses, 0 where there is no positive.
        chunk: rows at a time; as many as fit 64 MB of scores (at least 256) unless given.
    """
    rows = chunk or max(ROWS_AT_LEAST, CELLS_AT_ONCE // len(references))
    rows = min(rows, len(queries))
    wanted = torch.is_grad_enabled() and (queries.requires_grad or references.requires_grad)
    with whole_products(queries.device):
        total, counted, *_ = _Streamed.apply(  # type: ignore[no-untyped-call]
            queries, references, levels_of, losses_of, rows, wanted
        )
    mean: Tensor = total / counted.clamp(min=1)
    return mean
