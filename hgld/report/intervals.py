"""Confidence intervals of the means of metrics, and ties of runs that differ only by chance.

All models and metrics share the resampled queries, so a difference of two runs is paired; the seed
is fixed, so the same values give the same intervals.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from hgld.bootstrap import (
    DRAWS,
    ROUNDING,
    bootstrap_unit,
    find_ends,
    name_classes,
    pair_seeds,
    paired_t_test,
    resample_means,
)
from hgld.errors import InvalidData
from hgld.ranking import lower_is_better

Column = tuple[str, str]  # model and metric


@dataclass(frozen=True)
class Intervals:
    """The 95 % intervals of an evaluation.

    Attributes:
        unit: resampling unit, "classes" or "queries".
        units: number of units.
        ends: (run, metric) -> lower and upper end.
        ties: metric -> the best run and those whose paired difference from it is not significant:
            its interval includes 0, or there is none.
        draws: number of resamples.
        tests: (run, metric) -> p of the paired t-test against the best run, over the seeds that
            both have; without runs of one seed.
    """

    unit: str = "queries"
    units: int = 0
    ends: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    ties: Mapping[str, frozenset[str]] = field(default_factory=dict)
    draws: int = DRAWS
    tests: Mapping[tuple[str, str], float] = field(default_factory=dict)


def measure_intervals(
    per_query: pd.DataFrame, evaluation: Mapping[str, Any], by: str = "auto", draws: int = DRAWS
) -> Intervals:
    """Find the intervals of each run's means, and which runs tie with the best.

    Args:
        per_query: model, image_id, class, metric and value; a query without a value has no row.
        evaluation: protocol, metrics, models and runs.
        by: "classes", "queries", or "auto": classes in the open set.
        draws: number of resamples.

    Raises:
        InvalidData: classes are requested but not recorded.

    Example:
        >>> rows = {"model": "m", "image_id": ["a", "b"], "metric": "AP", "value": [0.5, 0.5]}
        >>> table = pd.DataFrame({**rows, "class": ""})
        >>> found = {
        ...     "protocol": {"classes": {"queries": 2, "trained_on": 2}},
        ...     "metrics": ["AP"],
        ...     "models": {"m": {}},
        ...     "runs": {"m": {"models": ["m"], "mean": {"AP": 0.5}}},
        ... }
        >>> measure_intervals(table, found).ends
        {('m', 'AP'): (0.5, 0.5)}
    """
    if per_query.empty:
        return Intervals()
    # one column for each model and metric, so that all share the resampled queries
    table = per_query.pivot(index="image_id", columns=["model", "metric"], values="value")
    unit = bootstrap_unit([evaluation["protocol"]], by)
    classes = name_classes(per_query, table.index) if unit == "classes" else None
    if unit == "classes" and classes is None:
        raise InvalidData(
            "report.bootstrap is classes, but the evaluation records none; run evaluate again"
        )
    drawn = _Drawn(
        {(str(name[0]), str(name[1])): i for i, name in enumerate(table.columns)},
        table.mean().to_numpy(),
        resample_means(table.to_numpy(np.float64), classes, draws=draws),
    )
    runs = {run: facts["models"] for run, facts in evaluation["runs"].items()}
    ends = {
        (run, metric): (max(interval[0], 0.0), min(interval[1], 1.0))  # metrics are in [0, 1]
        for run, models in runs.items()
        for metric in evaluation["metrics"]
        if (interval := drawn.interval([(model, metric) for model in models])) is not None
    }
    return Intervals(
        unit,
        len(table) if classes is None else len(np.unique(classes)),
        ends,
        {metric: _ties(drawn, evaluation, metric) for metric in evaluation["metrics"]},
        draws,
        {
            (run, metric): p
            for metric in evaluation["metrics"]
            for run, p in _test_against_best(evaluation, metric)
        },
    )


@dataclass(frozen=True)
class _Drawn:
    """Means and resampled means of each model and metric."""

    columns: dict[Column, int]
    means: np.ndarray  # (C,)
    resampled: np.ndarray  # (R, C)

    def interval(
        self, ours: Sequence[Column], theirs: Sequence[Column] = ()
    ) -> tuple[float, float] | None:
        """Return the interval of the mean over seeds, or of the paired difference from another run.

        None if it is unknown, or a column is missing.
        """
        if not ours or not all(column in self.columns for column in (*ours, *theirs)):
            return None
        at, other = ([self.columns[column] for column in side] for side in (ours, theirs))
        by_seed, drawn = self.means[at], self.resampled[:, at]  # (S,) and (R, S)
        if other:
            by_seed, drawn = by_seed - self.means[other], drawn - self.resampled[:, other]
        low, high = find_ends(drawn.mean(axis=1, keepdims=True), by_seed[:, None])[:, 0]
        return None if np.isnan(low) else (float(low), float(high))


def _ties(drawn: _Drawn, evaluation: Mapping[str, Any], metric: str) -> frozenset[str]:
    """Return the best run of a metric, and those that are not significantly worse."""
    known = known_means(evaluation, metric)
    best = best_of(known, metric)
    if best is None:
        return frozenset()

    def may_tie(run: str) -> bool:
        if run in best_runs(known, metric):
            return True
        pairs = _pairs_of(evaluation, best, run)  # seed by seed: their common spread cancels
        if any((name, metric) not in drawn.columns for pair in pairs for name in pair):
            return False  # a metric without values of single queries
        found = drawn.interval(
            [(one, metric) for one, _ in pairs], [(other, metric) for _, other in pairs]
        )
        return found is None or found[0] <= 0 <= found[1]

    return frozenset(run for run in known if may_tie(run))


def _test_against_best(evaluation: Mapping[str, Any], metric: str) -> Iterator[tuple[str, float]]:
    """Yield each run but the best, and p of the paired t-test over the seeds that both have."""
    known, models = known_means(evaluation, metric), evaluation["models"]
    best = best_of(known, metric) or ""  # without a mean, no run follows
    for run in known.keys() - {best}:
        pairs = _pairs_of(evaluation, best, run)
        means = [[[models[name]["mean"][metric] for name in pair]] for pair in pairs]
        sides = np.array(means, np.float64).reshape(-1, 1, 2)  # (S, 1, 2)
        tested = paired_t_test(sides[..., 0], sides[..., 1])
        if tested is not None and not np.isnan(tested[1][0]):
            yield run, float(tested[1][0])


def known_means(evaluation: Mapping[str, Any], metric: str) -> dict[str, float]:
    """Return the mean of each run that has one."""
    means = {run: found["mean"].get(metric) for run, found in evaluation["runs"].items()}
    return {run: mean for run, mean in means.items() if mean is not None}


def best_of(means: Mapping[str, float], metric: str) -> str | None:
    """Return the run with the highest mean, of a distance the lowest; None if there is no mean.

    Example:
        >>> best_of({"a": 0.2, "b": 0.1}, "R@1"), best_of({"a": 0.2, "b": 0.1}, "MS")
        ('a', 'b')
    """
    choose = min if lower_is_better(metric) else max
    return choose(means, key=lambda run: means[run], default=None)


def best_runs(means: Mapping[str, float], metric: str) -> frozenset[str]:
    """Return the best run, and those of the same mean but for rounding.

    Example:
        >>> sorted(best_runs({"a": 0.3, "b": 0.1 + 0.2, "c": 0.1}, "R@1"))
        ['a', 'b']
    """
    best = best_of(means, metric)
    return frozenset(run for run in means if best and abs(means[run] - means[best]) < ROUNDING)


def _pairs_of(evaluation: Mapping[str, Any], best: str, run: str) -> list[tuple[str, str]]:
    """Pair the models of the best run and of another by their seeds."""
    runs, facts = evaluation["runs"], evaluation["models"]
    return pair_seeds(*({name: facts[name] for name in runs[one]["models"]} for one in (best, run)))
