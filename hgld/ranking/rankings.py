"""A ranking kept: rank and level of every relevant image of every query.

That is all that any metric needs, so other cut-offs, other alphas, other levels are computed from
it without a new search.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking import levels as grades
from hgld.ranking.kernels.compiled import Array, kernel
from hgld.ranking.kernels.device import over_rows
from hgld.ranking.kernels.rank_cpu import rank_row
from hgld.ranking.lists import metric_row
from hgld.ranking.names import MetricName, parse
from hgld.ranking.relevances import relevance_key, table_for
from hgld.ranking.result import Result

__all__ = ["Plan", "Ranking", "rank_rows", "scratch"]


@dataclass(frozen=True)
class Plan:
    """Metrics by name in the form that kernels read.

    Args:
        specs: (M, 4) int64: kind, level, cut-off, table.
        tables: (Q, T, L + 1) float64 relevance of each level for each query.
        logs: 1 / log2(1 + r) at index r, up to the gallery's size.
        discounts: sums of ``logs``.
        harmonic: sums of 1 / r.
    """

    specs: Array
    tables: Array
    logs: Array
    discounts: Array
    harmonic: Array

    @classmethod
    def of(
        cls, names: Sequence[MetricName], level_names: tuple[str, ...], counts: Tensor
    ) -> "Plan":
        """Plan of the metrics for queries with these (Q, L + 1) counts."""
        found: dict[tuple[float, ...], int] = {}
        tables: list[Tensor] = []
        specs: list[list[int]] = []
        for name in names:
            key = relevance_key(name, len(level_names))
            if key not in found:
                found[key] = len(tables)
                tables.append(table_for(key, counts))
            specs.append([name.kind, name.at_level(level_names), name.k or 0, found[key]])
        logs = np.zeros(int(counts.sum(1).max()) + 2)
        harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, len(logs)))])
        logs[1:] = 1.0 / np.log2(np.arange(2, len(logs) + 1))
        every = np.array(specs, np.int64).reshape(-1, 4)
        by_query = (
            torch.stack(tables, 1) if tables else counts.new_zeros(len(counts), 0, 1).double()
        )
        return cls(every, by_query.numpy(), logs, np.cumsum(logs), harmonic)


@dataclass(frozen=True)
class Ranking:
    """Relevant images of all queries, best first, one query after the other.

    Args:
        offsets: (Q + 1,) int64; a query's images are offsets[q]..offsets[q + 1].
        ranks: int32 rank in the whole gallery, from 1, ascending in a query.
        levels: int8 shared level, all above 0.
        counts: (Q, L + 1) int64 gallery images on each level.

    Example:
        >>> ranking = Ranking.of(torch.tensor([[1, 0, 2]]), num_levels=2)
        >>> ranking.evaluate(["AP:1", "R@1:2"]).mean()
        {'AP:1': 0.8333333333333333, 'R@1:2': 0.0}
    """

    offsets: Array
    ranks: Array
    levels: Array
    counts: Array

    @classmethod
    def of(cls, ranked: Tensor, num_levels: int) -> "Ranking":
        """From (Q, G) levels in ranked order, as ``ranked.rank_levels`` gives them."""
        grades.check_levels(ranked, num_levels)
        table = ranked.cpu().numpy()
        rows, columns = np.nonzero(table > 0)
        sizes = np.bincount(rows, minlength=len(table))
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        counts = grades.count_levels(ranked.cpu(), num_levels).numpy()
        found = table[rows, columns].astype(np.int8)
        return cls(offsets, (columns + 1).astype(np.int32), found, counts)

    def evaluate(self, names: Sequence[str], level_names: Sequence[str] | None = None) -> Result:
        """Any metrics of this ranking, as ``metrics.evaluate`` would give them.

        Args:
            names: metrics by name.
            level_names: (L,) names of the levels, coarse to fine; 1..L unless given.

        Returns:
            Values of each query; its gallery does not count a query taken out of it.

        Raises:
            ShapeError: there are not L level names.
            UsageError: a name says no metric or no level.
        """
        parsed = [parse(name) for name in names]
        num_levels = self.counts.shape[1] - 1
        level_names = tuple(level_names or map(str, range(1, num_levels + 1)))
        if len(level_names) != num_levels:
            raise ShapeError(f"{len(level_names)} level names for {num_levels} levels")
        counts = torch.from_numpy(self.counts)
        plan = Plan.of(parsed, level_names, counts)
        values = np.empty((len(self.counts), len(names)))

        def work(part: slice) -> None:
            metrics_of(
                part.start, part.stop, self.offsets, self.ranks, self.levels, self.counts,
                plan.specs, plan.tables, plan.logs, plan.discounts, plan.harmonic, values,
            )  # fmt: skip

        over_rows(work, len(values))
        result = Result.of(list(names), values, counts)
        if result.inverted:
            grades.warn_of_inverted(result.inverted, result.queries)
        return result

    def to_arrays(self) -> dict[str, Array]:
        """Arrays to save, e.g. with ``numpy.savez_compressed``."""
        return {
            "offsets": self.offsets,
            "ranks": self.ranks,
            "levels": self.levels,
            "counts": self.counts,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> "Ranking":
        """What ``to_arrays`` gave.

        Raises:
            ShapeError: arrays are missing or do not fit together.
        """
        missing = {"offsets", "ranks", "levels", "counts"} - set(arrays)
        if missing:
            raise ShapeError(f"a ranking without {', '.join(sorted(missing))}")
        ranking = cls(*(np.asarray(arrays[n]) for n in ("offsets", "ranks", "levels", "counts")))
        total = int(ranking.offsets[-1]) if len(ranking.offsets) else -1
        if not (len(ranking.ranks) == len(ranking.levels) == total == ranking.counts[:, 1:].sum()):
            raise ShapeError("a ranking whose offsets, ranks, levels and counts differ in number")
        return ranking


@kernel
def metrics_of(
    start: int,
    stop: int,
    offsets: Array,
    ranks: Array,
    levels: Array,
    counts: Array,
    specs: Array,
    tables: Array,
    logs: Array,
    discounts: Array,
    harmonic: Array,
    values: Array,
) -> None:
    """Metrics of the queries start..stop from their kept ranks."""
    most = 0
    for q in range(start, stop):
        most = max(most, offsets[q + 1] - offsets[q])
    near, room = np.empty(most, np.int32), np.empty(most, np.int8)
    for q in range(start, stop):
        a, b = offsets[q], offsets[q + 1]
        metric_row(
            ranks[a:b], levels[a:b], counts[q], specs, tables[q], logs, discounts, harmonic, near,
            room, values[q],
        )  # fmt: skip


def scratch(size: int) -> tuple[Array, ...]:
    """Room for one row at a time. numpy asks for huge pages, which scattered writes need."""
    types = (np.uint64, np.uint64, np.int32, np.int32, np.int8, np.int8, np.uint8)
    return tuple(np.empty(size, kind) for kind in types)


@kernel
def rank_rows(
    scores: Array,
    order: Array,
    starts: Array,
    ends: Array,
    own: Array,
    counts: Array,
    specs: Array,
    tables: Array,
    logs: Array,
    discounts: Array,
    harmonic: Array,
    values: Array,
    offsets: Array,
    ranks: Array,
    levels: Array,
    keys: Array,
    more: Array,
    all_ranks: Array,
    near: Array,
    found: Array,
    room: Array,
    marks: Array,
) -> None:
    """Metrics of rows of scores; the ranking is kept too where ``ranks`` has room for it.

    The last seven are ``scratch`` arrays.
    """
    for i in range(scores.shape[0]):
        m = rank_row(
            scores[i], order, starts[i], ends[i], own[i], keys, more, all_ranks, found, marks
        )  # fmt: skip
        if ranks.shape[0]:
            ranks[offsets[i] : offsets[i] + m] = all_ranks[:m]
            levels[offsets[i] : offsets[i] + m] = found[:m]
        if specs.shape[0]:
            metric_row(
                all_ranks[:m], found[:m], counts[i], specs, tables[i], logs, discounts, harmonic,
                near, room, values[i],
            )  # fmt: skip
