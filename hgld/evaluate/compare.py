"""Two evaluations side by side, query by query: is the one better, by how much, and where.

Both were measured on the same queries, so what counts is the difference of each query: its mean
over resampled queries (a paired bootstrap) tells how sure the difference is, where intervals of
each alone would hide it behind what queries differ in anyway.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from hgld.errors import InvalidData, UsageError
from hgld.evaluate.ranking import read_top_levels
from hgld.evaluate.results import Measured

__all__ = ["Comparison", "Difference", "bootstrap_interval", "compare"]

DRAWS_AT_ONCE = 1 << 22  # queries drawn at a time


@dataclass(frozen=True)
class Difference:
    """A metric in both, over the queries that have a value in both.

    Attributes:
        metric: its name.
        queries: how many have a value in both.
        a: mean in A.
        b: mean in B.
        difference: B - A.
        low: lower end of the interval of the difference.
        high: upper end.
        gained: queries that are better in B.
        lost: queries that are worse in B.
    """

    metric: str
    queries: int
    a: float
    b: float
    difference: float
    low: float
    high: float
    gained: int
    lost: int

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves out 0."""
        return not self.low <= 0 <= self.high


@dataclass(frozen=True)
class Comparison:
    """All that is said of two evaluations.

    Attributes:
        differences: one a metric.
        metric: by which queries are told.
        by_query: image_id, a, b, difference of that metric, the greatest gain first.
        severity: level that the first image shares with the query, its name, queries in a and b;
            the finest level is right, all others are mistakes.
        only: queries that only A, only B has.
        remarks: in what the two were not measured alike.
    """

    differences: tuple[Difference, ...]
    metric: str
    by_query: pd.DataFrame
    severity: pd.DataFrame
    only: tuple[int, int]
    remarks: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """All of it, to print as JSON."""
        return {
            "differences": [{**asdict(row), "sure": row.is_sure} for row in self.differences],
            "metric": self.metric,
            "queries": self.by_query.to_dict("records"),
            "first_image": self.severity.to_dict("records"),
            "only_in": {"a": self.only[0], "b": self.only[1]},
            "remarks": list(self.remarks),
        }


def compare(
    a: Measured, b: Measured, metric: str = "", *, seed: int = 0, draws: int = 10_000
) -> Comparison:
    """Compare two models on the queries that both have.

    Args:
        a: the one.
        b: the other; a positive difference is its gain.
        metric: by which queries are told; default: H-AP where both have it, else the first.
        seed: of the bootstrap.
        draws: of the bootstrap.

    Raises:
        InvalidData: no query or no metric in common, or another number of levels.
        UsageError: not both have the metric.
    """
    if len(a.protocol["levels"]) != len(b.protocol["levels"]):
        counts = [", ".join(side.protocol["levels"]) for side in (a, b)]
        raise InvalidData(f"A was measured on other levels ({counts[0]}) than B ({counts[1]})")
    values = a.values(), b.values()
    shared = values[0].index.intersection(values[1].index)
    metrics = [m for m in a.metrics if all(m in table for table in values)]
    if shared.empty or not metrics:
        what = "metric" if len(shared) else "query"
        raise InvalidData(
            f"{a.folder} and {b.folder} have no {what} in common; were they measured on one set?"
        )
    chosen = metric or ("H-AP" if "H-AP" in metrics else metrics[0])
    if chosen not in metrics:
        raise UsageError(f"not both have the metric '{chosen}'; both have {', '.join(metrics)}")
    pairs = {m: (values[0].loc[shared, m], values[1].loc[shared, m]) for m in metrics}
    rows = [_differ(m, one, other, seed, draws) for m, (one, other) in pairs.items()]
    told = pd.DataFrame({"a": values[0][chosen], "b": values[1][chosen]}).dropna()
    told = told.assign(difference=told["b"] - told["a"]).rename_axis("image_id").reset_index()
    told = told.sort_values(["difference", "image_id"], ascending=[False, True], ignore_index=True)
    only = len(values[0]) - len(shared), len(values[1]) - len(shared)
    return Comparison(
        tuple(rows), chosen, told, _severity(a, b, shared), only, tuple(_remarks(a, b))
    )


def bootstrap_interval(
    differences: np.ndarray, seed: int = 0, draws: int = 10_000, share: float = 0.95
) -> tuple[float, float]:
    """Where the mean lies in that share of draws with replacement.

    Example:
        >>> bootstrap_interval(np.array([0.5, 0.5, 0.5]))
        (0.5, 0.5)
    """
    random = np.random.default_rng(seed)
    size = len(differences)
    step = max(1, DRAWS_AT_ONCE // size)
    means = [
        differences[random.integers(0, size, (min(step, draws - start), size))].mean(axis=1)
        for start in range(0, draws, step)
    ]
    tail = (1 - share) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return float(low), float(high)


def _differ(
    metric: str, a: "pd.Series[float]", b: "pd.Series[float]", seed: int, draws: int
) -> Difference:
    both = pd.DataFrame({"a": a, "b": b}).dropna()
    differences = (both["b"] - both["a"]).to_numpy(np.float64)
    low, high = bootstrap_interval(differences, seed, draws) if len(both) else (np.nan, np.nan)
    return Difference(
        metric,
        len(both),
        float(both["a"].mean()),
        float(both["b"].mean()),
        float(differences.mean()) if len(both) else np.nan,
        low,
        high,
        int((differences > 0).sum()),
        int((differences < 0).sum()),
    )


def _severity(a: Measured, b: Measured, shared: pd.Index) -> pd.DataFrame:
    """Queries by the level that their first image shares with them, the finest first."""
    names = [str(name) for name in a.protocol["levels"]]
    counts = [_count_first(side, shared, len(names)) for side in (a, b)]
    levels = range(len(names), -1, -1)
    labels = [f"same {names[level - 1]}" if level else f"another {names[0]}" for level in levels]
    columns = {"level": list(levels), "first_image": labels}
    return pd.DataFrame({**columns, "a": counts[0][::-1], "b": counts[1][::-1]})


def _count_first(side: Measured, shared: pd.Index, num_levels: int) -> np.ndarray:
    ids = side.ranked("query_ids")["query_ids"]
    first = read_top_levels(side.ranking)[:, 0]
    kept = first[pd.Index(ids).isin(shared)]
    return np.bincount(kept[kept >= 0], minlength=num_levels + 1)


def _remarks(a: Measured, b: Measured) -> Iterator[str]:
    for what in ("name", "query", "gallery", "gallery_images", "levels"):
        one, other = a.protocol.get(what), b.protocol.get(what)
        if one != other:
            yield f"not measured alike: {what} is {one} in A, {other} in B"
