"""Rank losses on a CPU: chooses between pairs and the grid, and hands rows to the kernel."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hgld.ranking.plain import Goal
from hgld.ranking.steps import UpperStep
from hgld.ranking.threads import over_rows

if TYPE_CHECKING:
    from hgld.ranking.rules import Rule

Array = np.ndarray[Any, Any]

__all__ = ["fits", "solve_rows", "table_of"]

FEWEST_CELLS = 1 << 12  # below, loading a kernel costs more than the pairs
CELLS_TO_CHOOSE = 1 << 19  # below, pairs always win
SAMPLED_ROWS = 4
DTYPES = torch.float32, torch.float64


def fits(scores: Tensor) -> bool:
    """Whether the kernel takes these scores, and they are many enough."""
    return scores.device.type == "cpu" and scores.dtype in DTYPES and scores.numel() >= FEWEST_CELLS


def solve_rows(scores: Tensor, levels: Tensor, table: Tensor, goal: Goal) -> tuple[Tensor, Tensor]:
    """Losses (Q,) and gradients (Q, G) of CPU scores with relevance by level."""
    from hgld.ranking.rows import loss_rows

    s = scores.detach().contiguous()
    compact = levels.to(torch.int8).contiguous()
    given = s.numpy(), compact.numpy(), _doubles(table)
    losses, gradient = np.empty(len(s)), torch.empty_like(s)
    rule = rule_of(goal, s.shape[1])
    span = grid_span(given[0], given[1], table.shape[1] - 1, rule)

    def work(part: slice) -> None:
        s_part, x_part, t_part = (array[part] for array in given)
        found = losses[part], gradient.numpy()[part]
        loss_rows(s_part, x_part, t_part, rule, *found, span)

    over_rows(work, len(s))
    return torch.from_numpy(losses).to(s.dtype), gradient


def _doubles(table: Tensor) -> Array:
    return table.detach().to("cpu", torch.float64).contiguous().numpy()


def rule_of(goal: Goal, size: int) -> "Rule":
    """The goal in numbers, for rows of this many scores."""
    from hgld.ranking.rules import Rule

    step = goal.step
    straight = 0.0, 0.0, 0.0, 1.0  # the sigmoid has neither a slope, an edge nor a jump
    if isinstance(step, UpperStep):
        straight = step.rho, step.delta, step.start, step.end
    rho, delta, jump, end = map(float, straight)
    return Rule(
        kind=goal.number,
        smooth=goal.smooth,
        soft=not isinstance(step, UpperStep),
        tau=float(step.tau),
        rho=rho,
        delta=delta,
        jump=jump,
        end=end,
        ks=np.array(goal.ks, dtype=np.float64),
        temperature=float(goal.temperature),
        clip=goal.clip,
        discounts=_discounts(size + 1) if goal.kind == "dcg" else np.zeros(1),
    )


@lru_cache(maxsize=4)
def _discounts(size: int) -> Array:
    """Running sums of 1 / log2(1 + rank), from 0."""
    places = np.arange(2, size + 1, dtype=np.float64)
    return np.concatenate([[0.0], np.cumsum(1.0 / np.log2(places))])


def grid_span(scores: Array, levels: Array, num_levels: int, rule: "Rule") -> float:
    """Widest range of a row over tau where the grid is the cheaper way; 0 where it is not.

    Costs in ns of a row, measured: pairs cost what lies in the windows; the grid costs each score
    and each node.
    """
    from hgld.ranking.grid import LEAST_DELTA, nodes_for
    from hgld.ranking.sums import DOUBLE

    if scores.size < CELLS_TO_CHOOSE or scores.dtype != np.float32:
        return 0.0
    if not rule.soft and rule.delta < LEAST_DELTA * rule.tau:
        return 0.0
    span = float((scores.max(1) - scores.min(1)).max()) / rule.tau
    if span > DOUBLE:
        return 0.0
    some = np.linspace(0, len(scores) - 1, SAMPLED_ROWS).astype(np.int64)
    visits, pairs = _count_pairs(scores[some], levels[some], num_levels, rule)
    by_pairs = 28.0 * visits + 0.17 * pairs
    fields = num_levels + rule.smooth
    by_nodes = 10.0 * scores.shape[1] + 20.0 * visits + 22.0 * fields * nodes_for(span)
    return span if by_nodes < by_pairs else 0.0


def _count_pairs(
    scores: Array, levels: Array, num_levels: int, rule: "Rule"
) -> tuple[float, float]:
    """Windows of a row, and the pairs in them: means over the given rows."""
    from hgld.ranking.rows import REACH

    visits, pairs = 0, 0
    below = REACH[scores.dtype] * rule.tau
    above = below if rule.soft else rule.delta
    for row, level in zip(scores, levels, strict=True):
        by_level = [np.sort(row[level == v]) for v in range(num_levels + 1)]
        for at, targets in enumerate(by_level[1:], 1):
            for sources in by_level if rule.smooth else by_level[:at]:
                high = np.searchsorted(sources, targets + above)
                pairs += int((high - np.searchsorted(sources, targets - below)).sum())
                visits += len(targets)
    return visits / len(scores), pairs / len(scores)


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
