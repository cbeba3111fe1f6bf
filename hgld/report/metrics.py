"""The table of metrics: a row a model, the best of each column marked, each column explained.

A model's mean is missing where no query had a value; it then counts as nan and is never the best.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hgld.figures import DARK, LIGHT
from hgld.report.intervals import Intervals

__all__ = [
    "Row",
    "best_model",
    "explain_metrics",
    "first_metric",
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
    "R": "Share of queries with at least one right image among the first k.",
}


@dataclass(frozen=True)
class Row:
    """One model's line in the table of metrics; an interval may be missing."""

    model: str
    colours: tuple[str, str]
    about: str
    values: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...]
    best: tuple[bool, ...]


def metric_rows(evaluation: Mapping[str, Any], intervals: Intervals) -> list[Row]:
    """The table of metrics; the best of each column is marked, several where they are equal."""
    metrics, models = evaluation["metrics"], evaluation["models"]
    best = {metric: _best_value(models, metric) for metric in metrics}
    rows = []
    for number, (name, model) in enumerate(models.items()):
        values = tuple(mean_of(model, metric) for metric in metrics)
        colours = tuple(theme.series[number % len(theme.series)] for theme in (LIGHT, DARK))
        marks = tuple(
            len(models) > 1 and value == best[metric]
            for value, metric in zip(values, metrics, strict=True)
        )
        shown = tuple(None if math.isnan(value) else value for value in values)
        ends = tuple(intervals.get((name, metric)) for metric in metrics)
        rows.append(Row(name, (colours[0], colours[1]), _about(model), shown, ends, marks))
    return rows


def _about(model: Mapping[str, Any]) -> str:
    if not model["steps"]:
        how = "as pretrained" if model["loss"] == "pretrained" else model["loss"]
        return f"{model['backbone']}, {how}"
    return f"{model['backbone']}, {model['loss']}, {model['steps']:,} steps"


def best_model(evaluation: Mapping[str, Any]) -> str | None:
    """The model with the highest mean of the first metric."""
    models, metric = evaluation["models"], first_metric(evaluation)
    best = _best_value(models, metric)
    return next((n for n, m in models.items() if mean_of(m, metric) == best), None)


def _best_value(models: Mapping[str, Any], metric: str) -> float:
    values = [mean_of(model, metric) for model in models.values()]
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def first_metric(evaluation: Mapping[str, Any]) -> str:
    """H-AP where it was measured, else the first that was."""
    metrics: list[str] = evaluation["metrics"]
    return "H-AP" if "H-AP" in metrics else metrics[0]


def skipped_queries(evaluation: Mapping[str, Any]) -> list[str]:
    """A clause for each metric that has no value for some queries."""
    clauses = {
        f"{metric}: {count:,}"
        for model in evaluation["models"].values()
        for metric, count in model["skipped"].items()
        if count
    }
    return sorted(clauses)


def explain_metrics(metrics: Sequence[str]) -> list[tuple[str, str]]:
    """What each kind of metric in the table says."""
    kinds = dict.fromkeys(name.split(":")[0].split("@")[0].split("(")[0] for name in metrics)
    return [(kind, MEANINGS[kind]) for kind in kinds if kind in MEANINGS]


def mean_of(model: Mapping[str, Any], metric: str) -> float:
    """A model's mean of a metric, nan where it has none."""
    value = model["mean"].get(metric)
    return math.nan if value is None else float(value)
