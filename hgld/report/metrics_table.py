"""The table of metrics, on the page, as CSV and as LaTeX: a row for each run, the best marked.

All runs that are not significantly worse than the best one are marked, too; if these are all runs,
none is marked. A mean without any query value is nan and never the best.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pandas as pd

from hgld.figures import DARK, LIGHT
from hgld.ranking import lower_is_better
from hgld.report.intervals import Intervals, best_of, best_runs, known_means
from hgld.report.latex import booktabs, escape_latex, latex_row
from hgld.words import count_text, percent_text

MEANINGS = {
    "H-AP": "Hierarchical average precision: how well the ranking puts nearer classes first, "
    "where an image of a coarser common class earns part of the credit.",
    "NDCG": "Normalised discounted cumulative gain: finer common classes count exponentially more, "
    "later ranks logarithmically less.",
    "ASI": "Average set intersection: how much of the ideal ranking's first k images is among the "
    "first k, averaged over k.",
    "AP": "Average precision where an image is right if it shares the class at that level.",
    "mAP": "Average precision of the first k ranks only.",
    "AHD": "Mean distance of the first k images in the tree, as a share of its height; lower is "
    "better.",
    "CPCC": "Correlation between the distances of class means and those of the classes in the "
    "tree, from -1 to 1.",
    "MRR": "1 over the rank of the first right image, in a mean over the queries.",
    "MS": "Mistake severity: distance in the tree of those first images that are wrong, as a share "
    "of its height; lower is better.",
    "HC": "Hierarchical consistency: share of queries for which the classes that most of the first "
    "k images have, level by level, are a path of the tree.",
    "HCA": "Hierarchical consistent accuracy: share of queries for which those classes are the "
    "query's own, at all levels at once.",
    "hF": "Harmonic mean of hP and hR.",
    "hP": "Share of the labels of the first k images, at all levels, that are the query's.",
    "hR": "Share of the query's labels in the gallery, at all levels, that the first k have.",
    "H-P": "Hierarchical precision: share of right images among the first k, where each counts by "
    "its relevance, at most that of the image at rank k.",
    "H-R": "Share of all relevance in the gallery that the first k images have.",
    "HOPS": "Hierarchically ordered preference score: how near the ranking is to the order by "
    "level.",
    "P": "Share of right images among the first k.",
    "mMP": "Share of right images among the first k, or among as many as there are right ones.",
    "TR": "Share of the right images that are among the first k, or of as many as fit there.",
    "wAP": "Average precision at each level, in a weighted mean over the levels.",
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
        tests: p of the paired t-test over the seeds against the best run; None if there is none.
    """

    model: str
    colours: tuple[str, str]
    about: str
    values: tuple[float | None, ...]
    deviations: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...]
    best: tuple[bool, ...]
    tests: tuple[float | None, ...] = ()

    @property
    def has_deviation(self) -> bool:
        """True for a run of several seeds."""
        return any(value is not None for value in self.deviations)


def metric_rows(evaluation: Mapping[str, Any], intervals: Intervals) -> list[MetricRow]:
    """The table of metrics."""
    metrics, models, runs = evaluation["metrics"], evaluation["models"], evaluation["runs"]
    marked, rows = list[Collection[str]](), list[MetricRow]()
    for metric in metrics:  # without query values, the mean decides
        ties = intervals.ties.get(metric, best_runs(known_means(evaluation, metric), metric))
        marked.append(() if len(ties) == len(runs) else ties)
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
                tuple(intervals.tests.get((name, metric)) for metric in metrics),
            )
        )
    return rows


def _about(model: Mapping[str, Any], seeds: int) -> str:
    how = "as pretrained" if model["loss"] == "pretrained" else model["loss"]
    about = f"{model['backbone']}, {how}"
    if model["steps"]:
        about += f", {count_text(model['steps'], 'step')}"
    return f"{about}, {seeds} seeds" if seeds > 1 else about


def best_run(evaluation: Mapping[str, Any]) -> str | None:
    """The run with the best mean of the first metric."""
    metric = first_metric(evaluation)
    return best_of(known_means(evaluation, metric), metric)


def first_metric(evaluation: Mapping[str, Any]) -> str:
    """Return H-AP if it was measured, else the first metric of queries that is not a distance."""
    metrics: list[str] = evaluation["metrics"]
    rising = [metric for metric in metrics if not lower_is_better(metric) and metric != "CPCC"]
    return "H-AP" if "H-AP" in metrics else [*rising, *metrics][0]


def skipped_queries(evaluation: Mapping[str, Any]) -> list[str]:
    """Return a clause for each metric without a value for queries that have no right image."""
    clauses = {
        f"{metric}: {count:,}"
        for model in evaluation["models"].values()
        for metric, count in model["skipped"].items()
        if count and metric != "MS"  # whose queries without a value include those found right
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


def metrics_table(metrics: Sequence[str], rows: Sequence[MetricRow]) -> pd.DataFrame:
    """Return one row for each run: mean in [0, 1], deviation, interval and p of each metric."""
    columns: dict[str, list[object]] = {
        "model": [row.model for row in rows],
        "about": [row.about for row in rows],
    }
    for number, metric in enumerate(metrics):
        ends = [row.intervals[number] or (None, None) for row in rows]
        columns[metric] = [row.values[number] for row in rows]
        if any(row.has_deviation for row in rows):
            columns[f"{metric} std"] = [row.deviations[number] for row in rows]
        columns[f"{metric} low"] = [low for low, _ in ends]
        columns[f"{metric} high"] = [high for _, high in ends]
        if any(p is not None for row in rows for p in row.tests):
            columns[f"{metric} p"] = [row.tests[number] for row in rows]
    return pd.DataFrame(columns)


def metrics_latex(metrics: Sequence[str], rows: Sequence[MetricRow]) -> str:
    """Return the table of the page: percent, the best in bold, each interval below its mean."""
    notes = [
        "Means in percent, 95 % intervals below; bold: best, or not surely worse; none if all are.",
        r"Needs \usepackage{booktabs}.",
    ]
    lines = list[str]()
    for row in rows:
        means = map(_mean, row.values, row.deviations, row.best)
        lines.append(latex_row([escape_latex(row.model), *means]))
        if any(row.intervals):
            ends = [
                r and rf"{{\scriptsize {'--'.join(map(percent_text, r))}}}" for r in row.intervals
            ]
            lines.append(latex_row(["", *(cell or "" for cell in ends)]))
    return booktabs(notes, "l" + "r" * len(metrics), _head(metrics), lines)


def _head(metrics: Sequence[str]) -> list[str]:
    """One line of names, or the metrics above their levels."""
    names = [metric.partition(":")[::2] for metric in metrics]
    if not any(level for _, level in names):
        return [latex_row(["model", *(escape_latex(name) for name, _ in names)])]
    above, rules, column = [""], [], 2
    for name, group in groupby(names, key=lambda name: name[0]):
        width = len(list(group))
        above.append(
            rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(name)}}}"
            if width > 1
            else escape_latex(name)
        )
        if width > 1:
            rules.append(rf"\cmidrule(lr){{{column}-{column + width - 1}}}")
        column += width
    return [
        latex_row(above),
        *rules,
        latex_row(["model", *(escape_latex(level) for _, level in names)]),
    ]


def _mean(value: float | None, deviation: float | None, best: bool) -> str:
    if value is None:
        return "--"
    mean = rf"\textbf{{{percent_text(value)}}}" if best else percent_text(value)
    return mean if deviation is None else rf"{mean} $\pm$ {percent_text(deviation)}"
