"""Writes the report: one HTML page that needs no network, and its pictures as PNG files.

The page is for a person who wants to know what was measured on what, which model is best and how
its mistakes look. All pictures are inside the page, once for light and once for dark screens;
beside it they lie as files for slides. Same input, same bytes.
"""

import io
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup
from PIL import Image

from hgld.artifacts import atomic_folder
from hgld.config import ReportOptions, StageContext
from hgld.figures import LIGHT
from hgld.report.charts import SECTIONS, Chart, draw_charts
from hgld.report.counts import Counts, by_split
from hgld.report.examples import ExampleGroup, Images, Photo, find_examples
from hgld.report.intervals import RESAMPLES, bootstrap_intervals
from hgld.report.metrics import (
    best_model,
    explain_metrics,
    first_metric,
    metric_rows,
    skipped_queries,
)
from hgld.report.plans import Measured
from hgld.report.rankings import Ranking
from hgld.report.sheets import Cell, draw_retrievals
from hgld.shards.index import level_columns, read_index, read_manifest

__all__ = ["write_report"]

FRAMES = {"same": "#2f9e5b", "near": "#e8962e", "far": "#b3665e"}  # also in report.html
QUERY_FRAME = "#3565c9"


def write_report(
    hierarchy: pd.DataFrame,
    shards: Path,
    models: Path,
    evaluation: Mapping[str, Any],
    per_query: pd.DataFrame,
    ranked_levels: Path,
    *,
    options: ReportOptions,
    context: StageContext,
    out: Path,
) -> None:
    """Fill ``out`` with ``report.html`` and the pictures in it as PNG files.

    Args:
        hierarchy: classes of each landmark, for the names and the histogram.
        shards: the images and their index.
        models: a folder a run, with its ``metrics.jsonl`` where it was trained.
        evaluation: protocol, metrics, and means of each model.
        per_query: value of each metric for each query.
        ranked_levels: a ranking file a model.
        options: how much is shown.
        context: gives the date.
        out: the report's folder; it is replaced as a whole.

    Raises:
        InvalidData: a ranking or a ``metrics.jsonl`` cannot be read.
    """
    index = read_index(shards)
    levels = tuple(str(name) for name in read_manifest(shards)["levels"])
    counts = Counts(hierarchy, index, levels)
    protocol = evaluation["protocol"]
    measured = Measured(
        evaluation,
        levels,
        bootstrap_intervals(per_query),
        {name: Ranking.load(ranked_levels / f"{name}.npz") for name in evaluation["models"]},
        Images(shards, index, protocol["query"], counts.paths),
        Images(shards, index, protocol["gallery"], counts.paths),
    )
    groups = _examples(per_query, measured, options)
    charts = draw_charts(measured, counts, models)
    with atomic_folder(out) as folder:
        _save_pictures(folder, charts, groups, levels)
        page = _render(
            now=context.now,
            levels=levels,
            class_counts=_class_counts(index, levels),
            splits=_splits(index),
            images=len(index),
            protocol=protocol,
            metrics=evaluation["metrics"],
            meanings=explain_metrics(evaluation["metrics"]),
            rows=metric_rows(evaluation, measured.intervals),
            intervals=bool(measured.intervals),
            resamples=RESAMPLES,
            skipped=skipped_queries(evaluation),
            sections=_by_section(charts),
            best=best_model(evaluation),
            metric=first_metric(evaluation),
            groups=groups,
        )
        (folder / "report.html").write_text(page, encoding="utf-8")


def _examples(
    per_query: pd.DataFrame, measured: Measured, options: ReportOptions
) -> list[ExampleGroup]:
    """What the best model found, by its first metric; nothing where there is no model."""
    model = best_model(measured.evaluation)
    if model is None or not options.grid_queries:
        return []
    return find_examples(
        measured.rankings[model],
        _values_of(per_query, model, first_metric(measured.evaluation)),
        measured.queries,
        measured.gallery,
        count=options.grid_queries,
        images=options.grid_images,
    )


def _by_section(charts: Sequence[Chart]) -> dict[str, list[Chart]]:
    """Heading -> its charts, without headings that have none."""
    found = {title: [c for c in charts if c.section == name] for name, title in SECTIONS.items()}
    return {title: some for title, some in found.items() if some}


def _save_pictures(
    folder: Path, charts: Sequence[Chart], groups: Sequence[ExampleGroup], levels: Sequence[str]
) -> None:
    for chart in charts:
        (folder / f"{chart.name}.png").write_bytes(chart.light)
        (folder / f"{chart.name}-dark.png").write_bytes(chart.dark)
    for group in groups:
        sheet = draw_retrievals(_sheet(group, levels), LIGHT)
        (folder / f"retrieval-{group.name}.png").write_bytes(sheet)


def _class_counts(index: pd.DataFrame, levels: Sequence[str]) -> list[tuple[str, int]]:
    """Level and number of its classes that have images, coarse to fine."""
    columns = level_columns(index)
    return [(n, int(index[column].nunique())) for n, column in zip(levels, columns, strict=True)]


def _splits(index: pd.DataFrame) -> list[tuple[str, int, int]]:
    """Split, its images, its finest classes."""
    return [(split, len(rows), rows["landmark_id"].nunique()) for split, rows in by_split(index)]


def _values_of(per_query: pd.DataFrame, model: str, metric: str) -> "pd.Series[float]":
    rows = per_query[(per_query["model"] == model) & (per_query["metric"] == metric)]
    return rows.set_index("image_id")["value"]


def _sheet(group: ExampleGroup, levels: Sequence[str]) -> list[tuple[str, list[Cell]]]:
    """The group's examples as rows of a picture."""
    rows = []
    for example in group.examples:
        cells = [_cell(example.photo, QUERY_FRAME, "query")]
        for found in example.found:
            frame = FRAMES[frame_of(found.level, levels)]
            words = f"{found.rank}. {verdict_of(found.level, levels)}"
            cells.append(_cell(found.photo, frame, words))
        rows.append((" › ".join(example.path[:-1]) or example.path[-1], cells))
    return rows


def _cell(photo: Photo, colour: str, verdict: str) -> Cell:
    credit = photo.credit
    return Cell(photo.image, colour, verdict, (credit.title, credit.byline, credit.terms))


def frame_of(level: int, levels: Sequence[str]) -> str:
    """The kind of frame for a shared level: same finest class, the one above it, or less.

    Example:
        >>> [frame_of(level, ("kind", "supercategory", "landmark")) for level in (3, 2, 1, 0)]
        ['same', 'near', 'far', 'far']
    """
    if level == len(levels):
        return "same"
    return "near" if level == len(levels) - 1 and level > 0 else "far"


def verdict_of(level: int, levels: Sequence[str]) -> str:
    """The shared level in words.

    Example:
        >>> verdict_of(2, ("kind", "supercategory", "landmark"))
        'same supercategory'
        >>> verdict_of(0, ("kind", "supercategory", "landmark"))
        'another kind'
    """
    return f"same {levels[level - 1]}" if level else f"another {levels[0]}"


def _render(**facts: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hgld"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(png=_png_source, jpeg=_jpeg_source, percent=_percent)
    environment.globals.update(frame_of=frame_of, verdict_of=verdict_of)
    return environment.get_template("report.html").render(**facts)


def _png_source(data: bytes) -> Markup:
    return Markup(f"data:image/png;base64,{b64encode(data).decode()}")


def _jpeg_source(image: Image.Image) -> Markup:
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=82, optimize=True)
    return Markup(f"data:image/jpeg;base64,{b64encode(buffer.getvalue()).decode()}")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"
