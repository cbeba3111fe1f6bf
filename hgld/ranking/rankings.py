"""Rankings of a gallery, and any metric of them.

A ranking holds the shared level of the image at each rank, which is all that a metric needs. So a
gallery is ranked once, and other cut-offs, alphas or levels are computed from the same ranking.
``measure`` is the one implementation of the metrics, whatever device found the ranking.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking import levels as grades
from hgld.ranking.names import MetricName, parse

__all__ = ["Ranking", "Result", "h_rank_plus", "measure", "rank_columns", "values_of"]

Array = np.ndarray[Any, Any]


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


@dataclass(frozen=True)
class Ranking:
    """Images that each query finds, rank by rank.

    Args:
        levels: (Q, G) int8 shared level of the image at each rank; an image that is not in the
            query's gallery (the query itself) comes last, as -1.
        counts: (Q, L + 1) int64 gallery images on each level, level 0 first.
        first: (Q, K) int32 gallery rows of the first K ranks; K is 0 unless they were asked for.

    Example:
        >>> ranking = Ranking.of(torch.tensor([[1, 0, 2]]), num_levels=2)
        >>> ranking.evaluate(["AP:1", "R@1:2"]).mean()
        {'AP:1': 0.8333333333333333, 'R@1:2': 0.0}
    """

    levels: Array
    counts: Array
    first: Array

    @classmethod
    def of(cls, ranked: Tensor, num_levels: int) -> "Ranking":
        """Make a ranking from (Q, G) levels in ranked order, as ``rank_columns`` orders them."""
        grades.check_levels(ranked, num_levels)
        levels = ranked.to("cpu", torch.int8)
        counts = grades.count_levels(levels, num_levels)
        return cls(levels.numpy(), counts.numpy(), np.empty((len(levels), 0), np.int32))

    @classmethod
    def join(cls, blocks: Iterable["Ranking"]) -> "Ranking":
        """Make one ranking from those of some queries after the other."""
        arrays = zip(*((b.levels, b.counts, b.first) for b in blocks), strict=True)
        return cls(*map(np.concatenate, arrays))

    def evaluate(self, names: Sequence[str], level_names: Sequence[str] | None = None) -> Result:
        """Compute any metrics of this ranking, as ``metrics.evaluate`` does.

        Args:
            names: metrics by name.
            level_names: (L,) names of the levels, coarse to fine; 1..L unless given.

        Returns:
            Values of each query; its gallery does not count a query taken out of it.

        Raises:
            ShapeError: there are not L level names.
            UsageError: a name says no metric or no level.
        """
        return measure([self], names, level_names, stacklevel=3)

    def to_arrays(self) -> dict[str, Array]:
        """Return arrays to save, e.g. with ``numpy.savez_compressed``."""
        return {"levels": self.levels, "counts": self.counts, "first": self.first}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> "Ranking":
        """Make a ranking from what ``to_arrays`` gave.

        Raises:
            ShapeError: arrays are missing or do not fit together.
        """
        missing = {"levels", "counts", "first"} - set(arrays)
        if missing:
            raise ShapeError(f"a ranking without {', '.join(sorted(missing))}")
        ranking = cls(*(np.asarray(arrays[name]) for name in ("levels", "counts", "first")))
        if not len(ranking.levels) == len(ranking.counts) == len(ranking.first):
            raise ShapeError("a ranking whose levels, counts and first differ in number")
        return ranking


def rank_columns(scores: Tensor, levels: Tensor) -> Tensor:
    """(Q, G) columns by score, best first; images not in the gallery (level -1) go last.

    Among equal scores the less relevant comes first, whatever the gallery's order, so that no
    metric gains by ties and none depends on how the gallery was stored; then the lower column.

    Example:
        >>> rank_columns(torch.tensor([[0.5, 0.5, 0.9]]), torch.tensor([[2, 1, 0]])).tolist()
        [[2, 1, 0]]
    """
    finite = scores.masked_fill(levels < 0, -torch.inf)
    by_level = levels.argsort(dim=1, stable=True)
    by_score = finite.gather(1, by_level).argsort(dim=1, descending=True, stable=True)
    return by_level.gather(1, by_score)


def measure(
    rankings: Iterable[Ranking],
    names: Sequence[str],
    level_names: Sequence[str] | None = None,
    *,
    stacklevel: int = 2,
) -> Result:
    """Compute any metrics of the rankings of some queries after the other, as one result.

    Args:
        rankings: over one gallery; each is dropped before the next is asked for.
        names: metrics by name.
        level_names: (L,) names of the levels, coarse to fine; 1..L unless given.
        stacklevel: of the warning that a finer level weighs less than a coarser one.

    Raises:
        ShapeError: there are not L level names.
        UsageError: a name says no metric or no level.

    Example:
        >>> halves = (Ranking.of(torch.tensor([row]), 1) for row in ([1, 0], [0, 1]))
        >>> measure(halves, ["AP"]).per_query["AP"].tolist()
        [1.0, 0.5]
    """
    parsed = [parse(name) for name in names]
    values, inverted, gallery = [], 0, 0
    for ranking in rankings:
        num_levels = ranking.counts.shape[1] - 1
        level_names = tuple(level_names or map(str, range(1, num_levels + 1)))
        if len(level_names) != num_levels:
            raise ShapeError(f"{len(level_names)} level names for {num_levels} levels")
        counts = torch.from_numpy(ranking.counts)
        specs, tables = _plan(parsed, level_names, counts)
        values.append(values_of(ranking.levels, ranking.counts, specs, tables))
        inverted += grades.inverted_queries(grades.relevance_table(counts), counts)
        gallery = max(gallery, int(counts.sum(1).max()))
    table = torch.from_numpy(np.concatenate(values))
    if inverted:
        grades.warn_of_inverted(inverted, len(table), stacklevel + 1)
    per_query = {name: table[:, i].clone() for i, name in enumerate(names)}
    return Result(per_query, len(table), gallery, inverted)


def values_of(levels: Array, counts: Array, specs: Array, tables: Array) -> Array:
    """(Q, M) values of metrics of ranked levels.

    Args:
        levels: (Q, G) integers by rank; -1, at the end: not in the gallery.
        counts: (Q, L + 1) int64 images of each level.
        specs: (M, 4) int64 of each metric: kind, level, cut-off (0 none), table.
        tables: (Q, T, L + 1) float64 relevance of each level for each query.
    """
    from hgld.ranking.kernels.device import over_rows
    from hgld.ranking.kernels.metrics_cpu import measure_rows

    values = np.empty((len(levels), len(specs)))
    discounts = _discounts(levels.shape[1])

    def work(part: slice) -> None:
        measure_rows(levels[part], counts[part], specs, tables[part], *discounts, values[part])

    over_rows(work, len(levels))
    return values


def _plan(
    names: Sequence[MetricName], level_names: tuple[str, ...], counts: Tensor
) -> tuple[Array, Array]:
    """Metrics by name as ``specs`` and ``tables`` of ``values_of``."""
    keys = [name.relevance_key(len(level_names)) for name in names]
    found = list(dict.fromkeys(keys))
    specs = [
        [name.kind, name.at_level(level_names), name.k or 0, found.index(key)]
        for name, key in zip(names, keys, strict=True)
    ]
    tables = [_table_for(key, counts) for key in found] or [counts.new_zeros(counts.shape).double()]
    return np.array(specs, np.int64).reshape(-1, 4), torch.stack(tables, 1).numpy()


def _table_for(key: tuple[float, ...], counts: Tensor) -> Tensor:
    """(Q, L + 1) relevance by level, of ``MetricName.relevance_key``."""
    if key[0] >= 0:
        return grades.relevance_table(counts, key[0])
    return grades.weighted_table(counts, torch.tensor(key[1:], dtype=torch.float64))


@lru_cache(maxsize=2)
def _discounts(size: int) -> tuple[Array, Array, Array]:
    """By rank up to ``size``, from 0: 1 / log2(1 + r), its sums, and sums of 1 / r."""
    logs = np.zeros(size + 2)
    logs[1:] = 1.0 / np.log2(np.arange(2, len(logs) + 1))
    harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, len(logs)))])
    return logs, np.cumsum(logs), harmonic


def h_rank_plus(levels: Array, tables: Array) -> Array:
    """H-rank+ (Eq. 18) at each rank, (Q, G) float64; 0 where the image there is not relevant.

    Args:
        levels: (Q, G) integers by rank.
        tables: (Q, L + 1) float64 relevance by level.
    """
    from hgld.ranking.kernels.device import over_rows
    from hgld.ranking.kernels.metrics_cpu import h_rank_plus_rows

    shared = np.empty(levels.shape)
    over_rows(lambda part: h_rank_plus_rows(levels[part], tables[part], shared[part]), len(levels))
    return shared
