"""The relevance behind a metric's name, as a table of levels for each query."""

import torch
from torch import Tensor

from hgld.errors import UsageError
from hgld.ranking import levels as grades
from hgld.ranking.names import MetricName

__all__ = ["relevance_key", "table_for"]


def relevance_key(name: MetricName, num_levels: int) -> tuple[float, ...]:
    """What the relevance behind a metric depends on: alpha of Eq. 20, or weights of Property 1."""
    if name.metric != "wAP":
        return (1.0 if name.alpha is None else name.alpha,)
    weights = name.weights or (1.0 / num_levels,) * num_levels
    if len(weights) != num_levels or abs(sum(weights) - 1.0) > 1e-6:
        raise UsageError(
            f"metric {name}: {len(weights)} weights with sum {sum(weights):g}; "
            f"expected one for each of {num_levels} levels, with sum 1"
        )
    return (-1.0, *weights)


def table_for(key: tuple[float, ...], counts: Tensor) -> Tensor:
    """(Q, L + 1) relevance by level."""
    if key[0] >= 0:
        return grades.relevance_table(counts, key[0])
    weights = torch.tensor(key[1:], dtype=torch.float64, device=counts.device)
    return grades.weighted_table(counts, weights)
