"""Which machine finds the ranks: a kernel where one fits, the plain torch form elsewhere."""

import torch
from torch import Tensor

from hgld.ranking.kernels import loss_gpu
from hgld.ranking.levels import look_up
from hgld.ranking.plain import Goal, plain_loss, row_loss

__all__ = ["fits_cpu", "solve", "solve_any"]

FEWEST_CELLS = 1 << 12  # below, loading a kernel costs more than the pairs


def fits_cpu(scores: Tensor) -> bool:
    """Return whether the CPU kernel takes these scores and they are many enough."""
    wide = scores.dtype in (torch.float32, torch.float64)
    return scores.device.type == "cpu" and wide and scores.numel() >= FEWEST_CELLS


def solve(scores: Tensor, levels: Tensor, table: Tensor, goal: Goal) -> Tensor:
    """(Q,) losses where relevance is a (Q, L + 1) table by level."""

    def find(detached: Tensor) -> tuple[Tensor, Tensor]:
        if loss_gpu.fits(detached, goal):
            return loss_gpu.solve_rows(detached, levels, table, goal)
        if fits_cpu(detached):
            from hgld.ranking.kernels import loss_cpu

            return loss_cpu.solve_rows(detached, levels, table, goal)
        return plain_loss(detached, levels, look_up(table, levels), goal)

    return row_loss(scores, find)


def solve_any(scores: Tensor, levels: Tensor, rel: Tensor, goal: Goal) -> Tensor:
    """(Q,) losses where each pair has a relevance of its own, (Q, G).

    Where it depends on the row and the level alone it is a table after all.
    """
    if loss_gpu.fits(scores, goal):
        return row_loss(scores, lambda detached: loss_gpu.solve_pairs(detached, levels, rel, goal))
    if fits_cpu(scores):
        from hgld.ranking.kernels import loss_cpu

        table = loss_cpu.table_of(levels, rel, max(1, int(torch.max(levels))))
        if table is not None:
            return solve(scores, levels, table, goal)
    return row_loss(scores, lambda detached: plain_loss(detached, levels, rel, goal))
