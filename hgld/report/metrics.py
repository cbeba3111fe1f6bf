"""The table of metrics: one row for each run, the best of each column marked, columns explained.

All runs that are not significantly worse than the best one are marked, too; if these are all runs,
none is marked. A mean without any query value is nan and never the best.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hgld.figures import DARK, LIGHT
from hgld.report.intervals import Intervals
from hgld.words import count_text

__all__ = [
    "MetricRow",
    "best_run",
    "explain_metrics",
    "first_metric",
    "inverted_queries",
    "mean_of",
    "metric_rows",
    "skipped_queries",
]

MEANINGS = {
    "H-AP": "Hierarchical average precision: how well the ranking puts nearer classes first, "
    "where an image of a coarser common class earns part of the credit.",
    "NDCG": "Normalised discounted cumulative gain: finer common classes count exponentially more, "
    "later ranks logarithmically less.",
    "ASI": "Average set intersection: how much of the ideal ranking's first k images is among the "
    "first k, averaged over k.",
    "AP": "Average precision where an image is right if it shares the class at that level.",
    "mAP": "Average precision of the first k ranks only.",
    "P": "Share of right images among the first k.",
    "mMP": "Share of right images among the first k, or among as many as there are right ones.",
    "R": "Share of queries with at least one right image among the first k.",
}


@dataclass(frozen=True)
class MetricRow:
    """One run's line in the table of metrics.

    Attributes:
        model: name of the run.
        colours: of the run, on light and on dark pages.
        about: backbone, loss and steps.
        values: means; over the seeds if there are several.
        deviations: their standard deviations over the seeds; None for one seed.
        intervals: ends of the 95 % intervals; None if unknown.
        best: whether it is the best, or not significantly worse.
    """

    model: str
    colours: tuple[str, str]
    about: str
    values: tuple[float | None, ...]
    deviations: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...]
    best: tuple[bool, ...]

    @property
    def has_deviation(self) -> bool:
        """True for a run of several seeds."""
        return any(value is not None for value in self.deviations)


def metric_rows(evaluation: Mapping[str, Any], intervals: Intervals) -> list[MetricRow]:
    """The table of metrics."""
    metrics, models, runs = evaluation["metrics"], evaluation["models"], evaluation["runs"]
    marked = [_marked(runs, metric, intervals) for metric in metrics]
    rows = []
    for number, (name, run) in enumerate(runs.items()):
        values = [run["mean"].get(metric) for metric in metrics]
        colours = tuple(theme.series[number % len(theme.series)] for theme in (LIGHT, DARK))
        rows.append(
            MetricRow(
                name,
                (colours[0], colours[1]),
                _about(models[run["models"][0]], len(run["models"])),
                tuple(values),
                tuple(run.get("std", {}).get(metric) for metric in metrics),
                tuple(intervals.ends.get((name, metric)) for metric in metrics),
                tuple(name in best for best in marked),
            )
        )
    return rows


def _marked(runs: Mapping[str, Any], metric: str, intervals: Intervals) -> Collection[str]:
    """Return the best run and those not significantly worse, unless these are all runs."""
    best = _best_value(runs, metric)
    highest = frozenset(name for name, run in runs.items() if mean_of(run, metric) == best)
    ties = intervals.ties.get(metric, highest)  # without query values, the mean decides
    return () if len(ties) == len(runs) else ties


def _about(model: Mapping[str, Any], seeds: int) -> str:
    if not model["steps"]:
        how = "as pretrained" if model["loss"] == "pretrained" else model["loss"]
        return f"{model['backbone']}, {how}"
    about = f"{model['backbone']}, {model['loss']}, {count_text(model['steps'], 'step')}"
    return f"{about}, {seeds} seeds" if seeds > 1 else about


def best_run(evaluation: Mapping[str, Any]) -> str | None:
    """The run with the highest mean of the first metric."""
    runs, metric = evaluation["runs"], first_metric(evaluation)
    best = _best_value(runs, metric)
    return next((name for name, run in runs.items() if mean_of(run, metric) == best), None)


def _best_value(runs: Mapping[str, Any], metric: str) -> float:
    values = [mean_of(run, metric) for run in runs.values()]
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def first_metric(evaluation: Mapping[str, Any]) -> str:
    """Return H-AP if it was measured, else the first metric."""
    metrics: list[str] = evaluation["metrics"]
    return "H-AP" if "H-AP" in metrics else metrics[0]


def skipped_queries(evaluation: Mapping[str, Any]) -> list[str]:
    """Return a clause for each metric without a value for some queries."""
    clauses = {
        f"{metric}: {count:,}"
        for model in evaluation["models"].values()
        for metric, count in model["skipped"].items()
        if count
    }
    return sorted(clauses)


def inverted_queries(evaluation: Mapping[str, Any]) -> int:
    """Return for how many queries the order by level does not have the highest H-AP."""
    by_relevance = any(metric.startswith("H-") for metric in evaluation["metrics"])
    models = evaluation["models"].values()
    return max((int(model["inverted"]) for model in models), default=0) if by_relevance else 0


def explain_metrics(metrics: Sequence[str]) -> list[tuple[str, str]]:
    """Meaning of each kind of metric in the table."""
    kinds = dict.fromkeys(name.split(":")[0].split("@")[0].split("(")[0] for name in metrics)
    return [(kind, MEANINGS[kind]) for kind in kinds if kind in MEANINGS]


def mean_of(run: Mapping[str, Any], metric: str) -> float:
    """Return a run's mean of a metric; nan if it has none."""
    value = run["mean"].get(metric)
    return math.nan if value is None else float(value)
