"""Page that compares two models query by query in pictures: the largest gains and losses.

A mean hides where two models differ; the first images of both, side by side, show it. The tables
of the comparison are written beside the page as CSV and LaTeX.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from hgld.artifacts import atomic_folder, require_folder
from hgld.artifacts.ranking_file import RankingFile
from hgld.config import ReportOptions
from hgld.errors import InvalidData
from hgld.ranking import lower_is_better
from hgld.report.examples import Images, NameQueries, find_examples
from hgld.report.galleries import Gallery
from hgld.report.rendering import render_page, save_sheets, save_table

PAGE = "comparison.html"


def write_comparison(
    out: Path,
    sides: tuple[Images | NameQueries, Images],
    rankings: Mapping[str, RankingFile],
    queries: pd.DataFrame,
    tables: Mapping[str, pd.DataFrame],
    *,
    metric: str,
    levels: Sequence[str],
    remarks: Sequence[str] = (),
    about: str = "",
    rows: int = 5,
) -> Path:
    """Write a folder with ``comparison.html``, its tables and its sheets of photos.

    Args:
        out: a new folder, or that of an earlier comparison, which is replaced.
        sides: images of the queries and of the gallery.
        rankings: the names of A and B -> their rankings.
        queries: image_id, the names of A and B, and difference (B - A) of the metric.
        tables: ``metrics`` and ``first-image``, as ``hgld.report.latex.frame_cells`` takes them.
        metric: of the queries.
        levels: names of the levels of the queries' classes, coarse to fine.
        remarks: what the reader must know of the two measurements.
        about: what was measured.
        rows: queries of each kind.

    Returns:
        The page.

    Raises:
        InvalidData: A or B found images that are not in the shards of A.
        UsageError: the folder holds other files.
    """
    names = [f"{name}.{form}" for name in (*tables, "queries") for form in ("csv", "tex")]
    require_folder(out, PAGE, "comparison-gain.png", "comparison-loss.png", *names)
    a, b = rankings
    for ranking in rankings.values():
        if missing := sides[1].unknown(ranking):
            raise InvalidData(
                f"{ranking.path}: {missing[0]} is not among the images of A; pictures need two "
                "evaluations of the same shards"
            )
    ordered = queries.sort_values(["difference", "image_id"], ascending=[False, True])
    # an official query without a label is in no ranking
    ranked = rankings[a].query_rows.keys() & rankings[b].query_rows.keys()
    shown = ordered[ordered["image_id"].isin(ranked)]
    higher = shown.loc[shown["difference"] > 0, "image_id"].head(rows).tolist()
    lower = shown.loc[shown["difference"] < 0, "image_id"].iloc[::-1].head(rows).tolist()
    chosen = {"gain": higher, "loss": lower}
    if lower_is_better(metric):
        chosen = {"gain": lower, "loss": higher}
    values = queries.set_index("image_id")[[a, b]]
    found = find_examples(
        {name: ids for name, ids in chosen.items() if ids},
        rankings, values, *sides, ReportOptions().grid_images,
    )  # fmt: skip
    gallery = Gallery(
        "comparison",
        "Queries of the largest difference",
        f"Sorted by the difference of their {metric}, each with the first images of both.",
        {"gain": f"Better under {b}", "loss": f"Better under {a}"},
        found,
    )
    with atomic_folder(out) as folder:
        save_sheets(folder, [gallery], levels, metric)
        for name, table in {**tables, "queries": ordered}.items():
            save_table(folder, name, table)
        page = render_page(
            PAGE, a=a, b=b, tables=tables, metric=metric, levels=levels,
            remarks=remarks, about=about, gallery=gallery,
        )  # fmt: skip
        (folder / PAGE).write_text(page, encoding="utf-8")
    return out / PAGE


def write_tables(out: Path, tables: Mapping[str, pd.DataFrame]) -> Path:
    """Write a folder with the tables of a comparison that has no photos, as CSV and LaTeX.

    Args:
        out: a new folder, or that of an earlier call, which is replaced.
        tables: by name, as ``hgld.report.latex.frame_cells`` takes them.

    Returns:
        The folder.

    Raises:
        UsageError: the folder holds other files.
    """
    require_folder(out, *(f"{name}.{form}" for name in tables for form in ("csv", "tex")))
    with atomic_folder(out) as folder:
        for name, table in tables.items():
            save_table(folder, name, table)
    return out
