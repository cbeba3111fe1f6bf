"""Sup-losses on a CPU: chooses between the window and the grid, and hands rows to the kernels."""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hgld.ranking.plain import Goal
from hgld.ranking.steps import UpperStep
from hgld.ranking.threads import over_rows

Array = np.ndarray[Any, Any]

__all__ = ["fits", "solve_rows", "table_of"]

FEWEST_CELLS = 1 << 12  # below, loading a kernel costs more than the pairs
CELLS_TO_CHOOSE = 1 << 20  # below, the window always wins
SAMPLED_ROWS = 8
REACH = {torch.float32: 28.0, torch.float64: 35.0}  # W / tau
KINDS = {"ratio": 0, "dcg": 1, "recall": 2}


def fits(scores: Tensor, goal: Goal) -> bool:
    """Whether a kernel knows this goal, and the scores are many enough."""
    return (
        scores.device.type == "cpu"
        and not goal.smooth
        and not goal.clip
        and scores.dtype in REACH
        and scores.numel() >= FEWEST_CELLS
    )


def solve_rows(scores: Tensor, levels: Tensor, table: Tensor, goal: Goal) -> tuple[Tensor, Tensor]:
    """Losses (Q,) and gradients (Q, G) of CPU scores with relevance by level."""
    from hgld.ranking.windowed import sup_rows

    s = scores.detach().contiguous()
    compact = levels.to(torch.int8).contiguous()
    given: tuple[Any, ...] = s.numpy(), compact.numpy(), _doubles(table)
    losses, gradient = np.empty(len(s)), torch.empty_like(s)
    step, ks = _numbers(goal), np.array(goal.ks, dtype=np.float64)
    discounts = _discounts(s.shape[1] + 1) if goal.kind == "dcg" else np.zeros(1)
    fixed: tuple[Any, ...] = KINDS[goal.kind], step, ks, goal.temperature, discounts
    span = _grid_span(s.numpy(), compact.numpy(), table.shape[1] - 1, goal)
    if span is not None:
        from hgld.ranking.grid import grid_rows

        found = losses, gradient.numpy(), span
        grid_rows(*given, *fixed, *found)  # type: ignore[call-arg]
    else:
        reach = REACH[s.dtype]

        def work(part: slice) -> None:
            rows = (array[part] for array in given)
            sup_rows(*rows, *fixed, losses[part], gradient.numpy()[part], reach)

        over_rows(work, len(s))
    return torch.from_numpy(losses).to(s.dtype), gradient


def _doubles(table: Tensor) -> Array:
    return table.detach().to("cpu", torch.float64).contiguous().numpy()


def _numbers(goal: Goal) -> Array:
    """tau, rho, delta, jump at 0, value beyond delta; rho -1 is the plain sigmoid."""
    step = goal.step
    if isinstance(step, UpperStep):
        return np.array([step.tau, step.rho, step.delta, step.start, step.end])
    return np.array([step.tau, -1.0, 0.0, 0.0, 1.0])


@lru_cache(maxsize=4)
def _discounts(size: int) -> Array:
    """Running sums of 1 / log2(1 + rank), from 0."""
    places = np.arange(2, size + 1, dtype=np.float64)
    return np.concatenate([[0.0], np.cumsum(1.0 / np.log2(places))])


def _grid_span(
    scores: Array,
    levels: Array,
    num_levels: int,
    goal: Goal,
) -> float | None:
    """Widest range of a row where the grid is the cheaper kernel; None where it is not.

    Costs in ns of a row, measured: both sort; the window pays for each pair in it, the grid for
    each score and the matrix product between its nodes.
    """
    from hgld.ranking.grid import LEAST_DELTA, WIDEST, nodes_for

    step = goal.step
    if scores.size < CELLS_TO_CHOOSE or scores.dtype != np.float32:
        return None
    if not isinstance(step, UpperStep) or step.delta < LEAST_DELTA * step.tau:
        return None
    span = float((scores.max(1) - scores.min(1)).max())
    if span > WIDEST * step.tau:
        return None
    some = np.linspace(0, len(scores) - 1, SAMPLED_ROWS).astype(np.int64)
    size = scores.shape[1]
    positives, pairs = _count_pairs(scores[some], levels[some], num_levels, step)
    window = 14.0 * size + 45.0 * positives + 0.2 * pairs
    grid = 30.0 * size + 45.0 * positives + 0.1 * num_levels * nodes_for(span, step.tau) ** 2
    return span if grid < window else None


def _count_pairs(
    scores: Array,
    levels: Array,
    num_levels: int,
    step: UpperStep,
) -> tuple[float, float]:
    """Positives of a row, and its pairs in the window: means over the given rows."""
    positives, pairs = 0, 0
    for row, level in zip(scores, levels, strict=True):
        for at in range(1, num_levels + 1):
            sources, targets = np.sort(row[(level < at) & (level >= 0)]), row[level == at]
            low = np.searchsorted(sources, targets - REACH[torch.float32] * step.tau)
            pairs += int((np.searchsorted(sources, targets + step.delta) - low).sum())
            positives += len(targets)
    return positives / len(scores), pairs / len(scores)


def table_of(levels: Tensor, rel: Tensor, num_levels: int) -> Tensor | None:
    """(Q, L + 1) relevance by level where it is a function of the level in each row, else None."""
    columns = [torch.zeros(len(levels), dtype=torch.float64)]
    for level in range(1, num_levels + 1):
        here = levels == level
        low = torch.where(here, rel, torch.inf).amin(1).double()
        high = torch.where(here, rel, -torch.inf).amax(1).double()
        if bool((low < high).any()):
            return None
        columns.append(torch.where(torch.isfinite(low), low, 0.0))
    return torch.stack(columns, 1)
