import csv
from pathlib import Path

import pytest

from hgld.report.charts import Chart
from hgld.report.metrics_table import MetricRow, metrics_latex, metrics_table
from hgld.report.page import arrange

METRICS = ("H-AP", "AP:kind", "AP:fine_class")
COLOURS = ("#000000", "#ffffff")


def row(model: str, *values: float | None, deviations: tuple[float | None, ...] = ()) -> MetricRow:
    ends = tuple(None if value is None else (value - 0.1, value + 0.1) for value in values)
    best = tuple(value == 0.75 for value in values)
    return MetricRow(model, COLOURS, "how", values, deviations or (None,) * len(values), ends, best)


def chart(name: str, height: float, width: float = 5.6) -> Chart:
    return Chart(name, "data", "", "", b"", b"", {}, (width, height))


def test_the_files_of_the_table_hold_what_the_page_shows(report: Path) -> None:
    with (report / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == ["good", "plain"]
    assert float(rows[0]["H-AP"]) == 0.75 and rows[1]["AP:landmark"] == ""
    assert float(rows[0]["H-AP low"]) < 0.5 < float(rows[0]["H-AP high"])
    latex = (report / "metrics.tex").read_text()
    assert r"good & \textbf{75.0} & 90.0 & 50.0 & \textbf{25.0} \\" in latex


def test_latex_groups_levels_below_their_metric_and_escapes_names() -> None:
    lines = metrics_latex(METRICS, [row("a_b", 0.75, None, 0.5)]).splitlines()
    assert lines[2:] == [
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r" & H-AP & \multicolumn{2}{c}{AP} \\",
        r"\cmidrule(lr){3-4}",
        r"model &  & kind & fine\_class \\",
        r"\midrule",
        r"a\_b & \textbf{75.0} & -- & 50.0 \\",
        r" & {\scriptsize 65.0--85.0} &  & {\scriptsize 40.0--60.0} \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_deviations_over_seeds_are_in_both_files() -> None:
    rows = [row("a", 0.5, 0.5, 0.5, deviations=(0.01, 0.02, None))]
    assert r"a & 50.0 $\pm$ 1.0 & 50.0 $\pm$ 2.0 & 50.0 \\" in metrics_latex(METRICS, rows)
    assert metrics_table(METRICS, rows)["AP:kind std"].tolist() == [0.02]


def test_a_correlation_just_below_0_is_0() -> None:
    assert r"a & 0.0 & \textbf{75.0}" in metrics_latex(("CPCC", "H-AP"), [row("a", -0.0004, 0.75)])


def test_columns_of_charts_are_of_like_height_and_wide_ones_stand_between() -> None:
    charts = [chart("a", 3), chart("b", 2.3), chart("c", 5.6), chart("d", 2.5)]
    wide = chart("w", 4, width=11.4)
    names = [
        [[chart.name for chart in column] for column in columns]
        for columns in arrange([*charts, wide, chart("e", 2)])
    ]
    assert names == [[["a", "d"], ["b", "c"]], [["w"]], [["e"]]]
    three = [chart(name, 3) for name in "abc"]
    assert arrange(three) == [[[three[0]], [three[1]]], [[three[2]]]]  # none beside a hole


@pytest.mark.parametrize("depth", [1, 3])
def test_metrics_without_levels_have_one_line_of_names(depth: int) -> None:
    names = ("H-AP", "NDCG", "ASI")[:depth]
    assert "cmidrule" not in metrics_latex(names, [row("a", *[0.5] * depth)])
