"""Metrics of each class, at every level: the mean over its queries, with an interval.

The page has one table that is searched and sorted in place; the same rows are written as CSV and
LaTeX. Intervals are Student's t of a ratio of sums over queries; above the finest level over the
finest classes if the report draws classes, since queries of one landmark are not independent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from hgld.bootstrap import CONFIDENCE
from hgld.report.plans import ChartData

CELLS = 240_000  # numbers in the page: about 2 MB
Path = tuple[str, ...]


@dataclass(frozen=True)
class ClassTable:
    """Means of the queries of each class.

    Attributes:
        paths: of the classes, each coarse to fine; a class comes after the one that holds it.
        queries: (C,) number of queries.
        names: of the metrics and runs, in the order of the columns.
        means: (C, M) in [0, 1], of several seeds the mean over them; nan if one has no value.
        ends: (2, C, M) of the 95 % intervals; nan if unknown, as of MS of several seeds, which have
            values of different queries.
        levels: names of the levels of the queries' classes, coarse to fine.
        shown: finest class -> its name, if known.
    """

    paths: Sequence[Path]
    queries: np.ndarray
    names: Sequence[tuple[str, str]]
    means: np.ndarray
    ends: np.ndarray
    levels: Sequence[str]
    shown: Mapping[str, str]

    @classmethod
    def of(cls, per_query: pd.DataFrame, measured: ChartData) -> "ClassTable":
        """Measure the classes of the queries.

        Args:
            per_query: model, image_id, metric and value.
            measured: runs, metrics and images of the evaluation.
        """
        queries = measured.queries
        # one column for each metric and model; a query without a value is nan
        values = per_query.pivot(index="image_id", columns=["metric", "model"], values="value")
        # The official protocol has queries that are not among the shards.
        values = values[values.index.isin(list(queries.landmarks))]
        paths = [queries.path(str(image)) for image in values.index]
        names = [(m, run) for m in measured.evaluation["metrics"] for run in measured.runs]
        columns = []
        uneven: dict[int, np.ndarray] = {}  # of MS: each seed has values of the queries it misses
        for i, (metric, run) in enumerate(names):  # means over the seeds
            keys = [(metric, model) for model in measured.runs[run]["models"]]
            seeds = values.reindex(columns=keys).to_numpy()  # (Q, S); of a seed without values nan
            columns.append(seeds.mean(axis=1))
            if (np.isnan(seeds).any(axis=1) & ~np.isnan(seeds).all(axis=1)).any():
                uneven[i] = seeds
        table = np.stack(columns, axis=1) if columns else np.empty((len(values), 0))
        found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        classes: list[Path] = []
        levels = measured.query_levels
        finest = pd.factorize(pd.Series(paths, dtype=object))[0]
        for depth in range(1, len(levels) + 1):
            numbers, own = pd.factorize(pd.Series([p[:depth] for p in paths], dtype=object))
            by_class = measured.intervals.unit == "classes" and depth < len(levels)
            units = finest if by_class else np.arange(len(paths))
            means, ends = class_means(table, numbers, units)
            for i, seeds in uneven.items():  # as the mean of a run: over the means of its seeds
                means[:, i] = class_means(seeds, numbers, units)[0].mean(axis=1)
                ends[:, :, i] = np.nan
            found.append((np.bincount(numbers), means, ends))
            classes += own.tolist()
        order = sorted(range(len(classes)), key=lambda i: (len(classes[i]), classes[i]))
        counts = np.concatenate([one[0] for one in found])[order]
        means = np.concatenate([one[1] for one in found])[order]
        ends = np.concatenate([one[2] for one in found], axis=1)[:, order]
        paths = [classes[i] for i in order]
        return cls(paths, counts, names, means, ends, levels, queries.names)

    @cached_property
    def _labels(self) -> dict[str, list[Any]]:
        """The columns that name a class."""
        names = class_columns(self.paths, self.levels, self.shown)
        return {**names, "queries": self.queries.tolist()}

    def long_table(self) -> pd.DataFrame:
        """Return one row for each class, metric and run, with the ends of its interval."""
        labels = pd.DataFrame(self._labels)
        return pd.concat(
            [
                labels.assign(
                    metric=metric, model=run, mean=self.means[:, i], low=self.ends[0, :, i],
                    high=self.ends[1, :, i],
                )
                for i, (metric, run) in enumerate(self.names)
            ],
            ignore_index=True,
        )  # fmt: skip

    def page_data(self) -> dict[str, Any]:
        """Return the rows for the page, in percent; of large tables the first metrics only."""
        runs = len({run for _, run in self.names})
        kept = max(1, CELLS // max(1, 3 * runs * len(self.paths))) * runs
        cells = np.stack([self.means, *self.ends], axis=2)[:, :kept]  # (C, M, 3)
        labels = zip(*self._labels.values(), strict=True)
        percent = [
            [[None if np.isnan(v) else round(100 * v, 1) for v in cell] for cell in row.tolist()]
            for row in cells
        ]
        return {
            "levels": list(self.levels),
            "metrics": list(dict.fromkeys(name for name, _ in self.names[:kept])),
            "runs": list(dict.fromkeys(run for _, run in self.names)),
            "rows": [[*words, row] for words, row in zip(labels, percent, strict=True)],
        }


def class_columns(
    paths: Sequence[Path], levels: Sequence[str], shown: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return the columns that name classes: level, class, and the classes above it.

    Example:
        >>> class_columns([("nature", "q1")], ("kind", "type"), {"q1": "lake"})
        {'level': ['type'], 'class': ['lake'], 'within': ['nature']}
    """
    return {
        "level": [levels[len(path) - 1] for path in paths],
        "class": [shown.get(path[-1], path[-1]) for path in paths],
        "within": [" > ".join(path[:-1]) for path in paths],
    }


def class_means(
    values: np.ndarray, classes: np.ndarray, units: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of each class and the ends of its 95 % interval, clipped to [0, 1].

    A mean is a ratio of sums over the units; its variance is that of the units' residuals.

    Args:
        values: (Q, M); nan if a query has no value.
        classes: (Q,) number of the class of each query, from 0.
        units: (Q,) what is independent: queries, or the finest classes with all their queries.

    Returns:
        (C, M) means and (2, C, M) ends; nan without a value, ends also with a single unit.

    Example:
        >>> means, ends = class_means(np.array([[0.4], [0.6]]), np.zeros(2, int), np.arange(2))
        >>> means.tolist(), ends.shape
        ([[0.5]], (2, 1, 1))
    """
    count = classes.max(initial=-1) + 1
    known = ~np.isnan(values)
    _, first, unit = np.unique(units, return_index=True, return_inverse=True)

    def sums(rows: np.ndarray, groups: np.ndarray, size: int) -> np.ndarray:
        total = np.zeros((size, rows.shape[1]))
        np.add.at(total, groups, rows)
        return total

    # the variance of a ratio of sums is that of what each unit adds beyond the common mean
    by_unit = sums(np.where(known, values, 0.0), unit, len(first))  # (U, M)
    counts = sums(known.astype(float), unit, len(first))
    owner = classes[first]
    total = sums(counts, owner, count)
    filled = sums((counts > 0).astype(float), owner, count)  # units with a value
    with np.errstate(invalid="ignore", divide="ignore"):  # a class without a value: 0 / 0
        means = sums(by_unit, owner, count) / total
        rest = by_unit - np.nan_to_num(means)[owner] * counts
        error = np.sqrt(sums(rest**2, owner, count) * filled / (filled - 1)) / total
        reach = stdtrit(filled - 1, (1 + CONFIDENCE) / 2) * error
    return means, np.clip(np.stack([means - reach, means + reach]), 0.0, 1.0)
