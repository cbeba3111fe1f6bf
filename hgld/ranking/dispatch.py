"""Which machine finds the ranks: a kernel where one fits, the plain torch form elsewhere."""

import torch
from torch import Tensor

from hgld.ranking import cpu, gpu
from hgld.ranking.levels import look_up
from hgld.ranking.plain import Goal, plain_loss, row_loss

__all__ = ["solve", "solve_any"]


def solve(scores: Tensor, levels: Tensor, table: Tensor, goal: Goal) -> Tensor:
    """(Q,) losses where relevance is a (Q, L + 1) table by level."""

    def find(detached: Tensor) -> tuple[Tensor, Tensor]:
        if gpu.fits(detached, goal):
            return gpu.solve_rows(detached, levels, table, goal)
        if cpu.fits(detached):
            return cpu.solve_rows(detached, levels, table, goal)
        return plain_loss(detached, levels, look_up(table, levels), goal)

    return row_loss(scores, find)


def solve_any(scores: Tensor, levels: Tensor, rel: Tensor, goal: Goal) -> Tensor:
    """(Q,) losses where each pair has a relevance of its own, (Q, G).

    Where it depends on the row and the level alone it is a table after all.
    """
    if gpu.fits(scores, goal):
        return row_loss(scores, lambda detached: gpu.solve_pairs(detached, levels, rel, goal))
    if cpu.fits(scores):
        table = cpu.table_of(levels, rel, max(1, int(torch.max(levels))))
        if table is not None:
            return solve(scores, levels, table, goal)
    return row_loss(scores, lambda detached: plain_loss(detached, levels, rel, goal))
