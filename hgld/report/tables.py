"""The table of metrics as files: CSV for programs and LaTeX (booktabs) for a paper."""

import re
from collections.abc import Sequence
from itertools import groupby

import pandas as pd

from hgld.report.metrics import MetricRow

__all__ = ["metrics_latex", "metrics_table"]

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
}


def metrics_table(metrics: Sequence[str], rows: Sequence[MetricRow]) -> pd.DataFrame:
    """Return one row for each run: mean in [0, 1], deviation and interval of each metric."""
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
    return pd.DataFrame(columns)


def metrics_latex(metrics: Sequence[str], rows: Sequence[MetricRow]) -> str:
    """Return the table of the page: percent, the best in bold, each interval below its mean."""
    lines = [
        r"% Means in percent, 95 % intervals below; bold: best, or not surely worse.",
        r"% Needs \usepackage{booktabs}.",
        rf"\begin{{tabular}}{{l{'r' * len(metrics)}}}",
        r"\toprule",
        *_head(metrics),
        r"\midrule",
    ]
    for row in rows:
        means = map(_mean, row.values, row.deviations, row.best)
        lines.append(_line([_escape(row.model), *means]))
        if any(row.intervals):
            lines.append(_line(["", *map(_interval, row.intervals)]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _head(metrics: Sequence[str]) -> list[str]:
    """One line of names, or the metrics above their levels."""
    names = [metric.partition(":")[::2] for metric in metrics]
    if not any(level for _, level in names):
        return [_line(["model", *(_escape(name) for name, _ in names)])]
    above, rules, column = [""], [], 2
    for name, group in groupby(names, key=lambda name: name[0]):
        width = len(list(group))
        above.append(
            rf"\multicolumn{{{width}}}{{c}}{{{_escape(name)}}}" if width > 1 else _escape(name)
        )
        if width > 1:
            rules.append(rf"\cmidrule(lr){{{column}-{column + width - 1}}}")
        column += width
    return [_line(above), *rules, _line(["model", *(_escape(level) for _, level in names)])]


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _mean(value: float | None, deviation: float | None, best: bool) -> str:
    if value is None:
        return "--"
    mean = rf"\textbf{{{100 * value:.1f}}}" if best else f"{100 * value:.1f}"
    return mean if deviation is None else rf"{mean} $\pm$ {100 * deviation:.1f}"


def _interval(ends: tuple[float, float] | None) -> str:
    return rf"{{\scriptsize {100 * ends[0]:.1f}--{100 * ends[1]:.1f}}}" if ends else ""


def _escape(text: str) -> str:
    return re.sub(r"[\\~^&%$#_{}]", lambda found: SPECIAL[found[0]], text)
