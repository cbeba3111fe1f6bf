"""What an evaluation found: values of each query, and what is to be said about them."""

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hgld.ranking import levels as grades

__all__ = ["Result"]


@dataclass(frozen=True)
class Result:
    """Values of each query, under the names that were asked for.

    Args:
        per_query: name -> (Q,) float64; nan where the query has nothing to find.
        queries: Q.
        gallery: G.
        inverted: queries where Eq. 20 gives a finer level less relevance than a coarser one.
    """

    per_query: dict[str, Tensor]
    queries: int
    gallery: int
    inverted: int = 0
    skipped: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        missing = {name: int(v.isnan().sum()) for name, v in self.per_query.items()}
        object.__setattr__(self, "skipped", missing)

    @classmethod
    def of(cls, names: list[str], values: np.ndarray[Any, Any], counts: Tensor) -> "Result":
        """From (Q, M) values and the (Q, L + 1) counts of each query."""
        per_query = {
            name: torch.from_numpy(np.ascontiguousarray(values[:, i]))
            for i, name in enumerate(names)
        }
        inverted = grades.inverted_queries(grades.relevance_table(counts), counts)
        return cls(per_query, len(values), int(counts.sum(1).max()), inverted)

    def mean(self) -> dict[str, float]:
        """Mean of each metric over the queries that have a value; nan where none has one."""
        return {name: float(values.nanmean()) for name, values in self.per_query.items()}

    def to_json(self) -> str:
        """Means, skipped queries and sizes, as JSON with sorted keys; a mean of none is null."""
        means = {n: None if math.isnan(v) else v for n, v in self.mean().items()}
        content = {
            "gallery": self.gallery,
            "inverted": self.inverted,
            "mean": means,
            "queries": self.queries,
            "skipped": self.skipped,
        }
        return json.dumps(content, indent=2, sort_keys=True)
