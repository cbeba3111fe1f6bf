"""Writer of the report: one self-contained HTML page, and its figures and table as files.

The page shows the data and the protocol, the best model, and examples of its mistakes. All pictures
are embedded, once for light and once for dark screens; they are also written as files for slides
and papers (PNG, SVG, PDF), and the table as CSV and LaTeX. Same input, same bytes.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.artifacts import atomic_folder, write_csv
from hgld.artifacts.ranking_file import RankingFile
from hgld.config import ReportOptions, StageContext
from hgld.errors import InvalidData
from hgld.report.charts import SECTIONS, Chart, draw_charts
from hgld.report.class_table import ClassTable
from hgld.report.counts import Counts, by_split
from hgld.report.examples import Images, NameQueries, landmark_names
from hgld.report.galleries import find_galleries
from hgld.report.intervals import measure_intervals
from hgld.report.latex import frame_latex
from hgld.report.metrics_table import (
    explain_metrics,
    first_metric,
    inverted_queries,
    metric_rows,
    metrics_latex,
    metrics_table,
    skipped_queries,
)
from hgld.report.plans import ChartData
from hgld.report.rendering import render_page, save_sheets, save_table
from hgld.shards.index import read_index, read_manifest
from hgld.shards.schema import level_columns

WORDS = 1.1  # height of a chart's title and caption in inches
GAP = 2.5  # most inches by which a column is higher than the one beside it


def arrange(charts: Sequence[Chart]) -> list[list[list[Chart]]]:
    """Return rows of the page: each is one chart, or two columns of similar height."""
    rows = []
    for wide, some in groupby(charts, key=lambda chart: chart.wide):
        if wide:
            rows += [[[chart]] for chart in some]
        else:
            rows += _balance(list(some))
    return rows


def _balance(charts: list[Chart]) -> list[list[list[Chart]]]:
    """Split the charts into two columns of most similar height; the first chart stays first.

    If one column is much higher, the last chart has a row of its own instead.
    """
    if len(charts) == 1:
        return [[charts]]

    def columns(sides: tuple[int, ...]) -> list[list[Chart]]:
        placed = list(zip(charts, (0, *sides), strict=True))
        return [[chart for chart, side in placed if side == column] for column in (0, 1)]

    def gap(sides: tuple[int, ...]) -> float:
        heights = [sum(chart.size[1] + WORDS for chart in column) for column in columns(sides)]
        # rounded, so that equal layouts tie in spite of float errors and the first one is taken
        return round(abs(heights[0] - heights[1]), 6)

    # a report has a dozen charts at most, so all ways to share them are tried
    best = min(product((0, 1), repeat=len(charts) - 1), key=gap)
    if gap(best) > GAP:
        return [*_balance(charts[:-1]), [charts[-1:]]]
    return [columns(best)]


def write_report(
    hierarchy: pd.DataFrame,
    shards: Path,
    models: Path,
    evaluation: Mapping[str, Any],
    per_query: pd.DataFrame,
    ranked_levels: Path,
    landmarks: pd.DataFrame,
    *,
    options: ReportOptions,
    context: StageContext,
    out: Path,
) -> None:
    """Fill ``out`` with ``report.html``, its figures and its table as files.

    Args:
        hierarchy: classes of each landmark, for the names and the histogram.
        shards: the images and their index.
        models: one folder for each run, with ``metrics.jsonl`` if it was trained.
        evaluation: protocol, metrics, and means of each model.
        per_query: value of each metric for each query.
        ranked_levels: one ranking file for each model.
        landmarks: names of the finest classes.
        options: number of examples and other content.
        context: for the title and the date.
        out: the report's folder, which is replaced completely.

    Raises:
        InvalidData: a ranking or a ``metrics.jsonl`` cannot be read; hierarchy, shards and rankings
            were not made from each other.
    """
    index = read_index(shards)
    levels = tuple(str(name) for name in read_manifest(shards)["levels"])
    counts = Counts(hierarchy, index, levels)
    counts.require_classes()
    protocol, names = evaluation["protocol"], landmark_names(landmarks)
    rankings = {
        name: RankingFile.load(ranked_levels / f"{name}.npz") for name in evaluation["models"]
    }
    gallery = Images(shards, index, protocol["gallery"], counts.paths, names)
    for ranking in rankings.values():
        if unknown := gallery.unknown(ranking):
            raise InvalidData(
                f"{ranking.path}: ranks images that are not in the shards, such as {unknown[0]}; "
                "run evaluate again"
            )
    queries: Images | NameQueries
    if "names" in protocol:
        queries = NameQueries(gallery, protocol, next(iter(rankings.values())))
    else:
        queries = Images(shards, index, protocol["query"], counts.paths, names)
    measured = ChartData(
        evaluation,
        levels,
        measure_intervals(per_query, evaluation, options.bootstrap),
        rankings,
        queries,
        gallery,
    )
    galleries = list(find_galleries(per_query, measured, options))
    metrics, rows = evaluation["metrics"], metric_rows(evaluation, measured.intervals)
    metric = first_metric(evaluation)
    with atomic_folder(out) as folder:
        sheets = partial(save_sheets, folder, galleries, measured.query_levels, metric)
        charts = draw_charts(measured, counts, models, options.vector_figures, meanwhile=sheets)
        sections = {
            title: [c for c in charts if c.section == name] for name, title in SECTIONS.items()
        }
        for chart in charts:
            (folder / f"{chart.name}.png").write_bytes(chart.light)
            (folder / f"{chart.name}-dark.png").write_bytes(chart.dark)
            for form, content in chart.vectors.items():
                (folder / f"{chart.name}.{form}").write_bytes(content)
            if chart.table is not None:
                save_table(folder, chart.name, chart.table)
        classes = ClassTable.of(per_query, measured)
        table = classes.long_table()
        write_csv(table, folder / "classes.csv")
        table = table.rename(columns={"low": "mean low", "high": "mean high"})
        (folder / "classes.tex").write_text(frame_latex(table), encoding="utf-8")
        write_csv(metrics_table(metrics, rows), folder / "metrics.csv")
        latex = metrics_latex(metrics, rows)
        (folder / "metrics.tex").write_text(latex, encoding="utf-8")
        page = render_page(
            "report.html",
            title=context.title or "Hierarchical retrieval",
            now=context.now,
            levels=measured.query_levels,
            class_counts=[  # of classes with images
                (n, int(index[column].nunique()))
                for n, column in zip(levels, level_columns(index), strict=True)
            ],
            splits=[
                (split, len(rows), rows["landmark_id"].nunique()) for split, rows in by_split(index)
            ],
            images=len(index),
            protocol=protocol,
            metrics=metrics,
            meanings=explain_metrics(metrics),
            rows=rows,
            intervals=measured.intervals,
            seeds=describe_seeds(measured),
            skipped=skipped_queries(evaluation),
            inverted=inverted_queries(evaluation),
            sections={title: arrange(some) for title, some in sections.items() if some},
            metric=metric,
            classes=classes.page_data(),
            colours=[row.colours for row in rows],
            galleries=galleries,
        )
        (folder / "report.html").write_text(page, encoding="utf-8")


def describe_seeds(measured: ChartData) -> str:
    """A sentence on the spread between training seeds; empty if no run was trained."""
    models = measured.evaluation["models"]
    trained = [
        len(run["models"]) for run in measured.runs.values() if models[run["models"][0]]["steps"]
    ]
    if not trained:
        return ""
    if max(trained) == 1:
        return "Each model has one training seed: the spread between seeds is not in the intervals."
    alone = " of those with several seeds; one seed alone says nothing of it"
    text = f"The spread between training seeds is in the intervals{alone if 1 in trained else ''}."
    if 2 in trained:
        text += (
            " Two seeds hardly show this spread, so their intervals reach 12.7 standard errors to "
            "each side; those of three seeds reach 4.3."
        )
    return text
