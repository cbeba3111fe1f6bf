"""The pages, workbook and sheets that a reviewer works on, and the range of numbers of clusters.

Each is made from the tables of the work folder and holds its lock meanwhile. What loads
scikit-learn is imported by the functions that need it.
"""

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import pandas as pd

from hgld.artifacts import atomic_path, declared_table, hash_file, write_csv, write_file
from hgld.artifacts.cells import guard_columns, unguard
from hgld.pipeline.edits import copy_beside
from hgld.pipeline.run import Runner
from hgld.review.comments import threads_of

if TYPE_CHECKING:
    from hgld.artifacts import Vectors
    from hgld.review.suggestions import ValueModel

WORKBOOK, WORKBOOK_MARK = "review.xlsx", ".state/review/review.xlsx.sha256"
PAGE_READS = (  # tables that the review page shows besides the sheet and photos
    "clusters",
    "cluster_summary",
    "label_vectors",
    "taxonomy",
    "landmark_values",
    "landmarks",
)


def write_page(runner: Runner, stage: str) -> Path:
    """Write the page of the review or of the links, made from their inputs.

    ``review.html`` has the rows of the sheet, ``link_review.html`` the classes without an item,
    their photos and candidates. ``review.csv`` is neither read nor changed, so edits in it are
    kept. Only photos that the pipeline would export are shown, since a page is passed on to other
    people.
    """
    name, render = {
        "review": ("review.html", render_review),
        "link": ("link_review.html", render_link_page),
    }[stage]
    path = runner.workspace.work / name
    with runner.alone():
        write_file(path, render(runner))
    return path


def render_link_page(runner: Runner, live: Mapping[str, Any] | None = None) -> str:
    """Return the page of links; ``live`` is for the page of a server."""
    from hgld.review.review_page import render_links

    workspace = runner.workspace
    return render_links(
        runner.read("link_review", "link"),
        link_photos(runner),
        options=workspace.pipeline.review,
        source=workspace.source,
        title=workspace.pipeline.title or workspace.pipeline_file.stem,
        name=workspace.pipeline_file.stem,
        command=f"hgld link {workspace.words} --apply link_review.csv",
        live=live,
    )


def link_photos(runner: Runner) -> pd.DataFrame:
    """Return the photos of the page of links: those that the pipeline would export, by class."""
    from hgld.review.review_page import photos_of_classes

    landmarks = runner.read("landmarks", "link")
    names = runner.read("link_review", "link")["name"].map(unguard)
    return photos_of_classes(
        landmarks[landmarks["name"].isin(names)],
        shown_images(runner),
        per_class=runner.workspace.pipeline.review.page_photos,
    )


def suggest_clusters(runner: Runner, text: str) -> tuple[dict[str, pd.DataFrame], Path]:
    """Measure a range of cluster counts as CSV and PNG, and the levels above if they are set.

    Returns:
        A table for each level, fine to coarse, and the path of the PNG, which draws the finest.
    """
    from hgld.hierarchy.cluster_choice import draw_range, in_range, measure_levels, measure_range
    from hgld.hierarchy.vector_clusters import hold_together

    options = runner.workspace.pipeline.cluster
    numbers = in_range(text)
    path = runner.workspace.work / "cluster_range.png"
    deep = options.above or options.levels != type(options)().levels
    with runner.alone():
        values = runner.read("values", "cluster")
        vectors = vectors_of_clusters(runner, runner.read("label_vectors", "cluster"))
        if options.holds_together:
            ancestry = runner.read("ancestry", "cluster")
            vectors = hold_together(values, vectors, ancestry, options.ancestry)
        measured = measure_range(values, vectors, numbers, options)
        levels = measure_levels(values, vectors, options) if deep else {}
        found = {options.levels[-1]: measured, **levels}
        tables = [table.assign(level=name) for name, table in found.items()]
        write_csv(pd.concat(tables) if deep else measured, path.with_suffix(".csv"))
        with atomic_path(path) as temporary:
            draw_range(measured, options.clusters, temporary)
    return found, path


def vectors_of_clusters(runner: Runner, label_vectors: "Vectors") -> "Vectors":
    """Return the vectors that the cluster stage clusters: of texts, photos or both."""
    from hgld.hierarchy.vector_clusters import join_vectors

    options = runner.workspace.pipeline.cluster
    has_photos = "image_vectors" in runner.stage("cluster").reads
    photos = runner.read("image_vectors", "cluster") if has_photos else None
    return join_vectors(label_vectors, photos, options)


def blind_sheet(runner: Runner, seed: int, hints: bool) -> pd.DataFrame:
    """Return the review sheet for an annotator who must not see other decisions."""
    from hgld.review import sheets

    names = ("clusters", "landmark_values", "landmarks", "taxonomy", "decisions", "class_hints")
    tables = read_tables(runner, *names, "class_labels")
    return sheets.blind_sheet(*tables, seed=seed, hints=hints)


def write_workbook(runner: Runner) -> Path:
    """Write ``review.xlsx``: the sheets, made again from their inputs, with drop-down lists."""
    from hgld.review import workbook

    stage, path = runner.stage("review"), runner.workspace.work / WORKBOOK
    with runner.alone():
        sheets = runner.make(stage)
        if edited_workbook(runner):
            copy = copy_beside(path)
            runner.listener.notice(f"{path.name} held edits; a copy is in {copy.name}")
        with atomic_path(path) as temporary:
            workbook.write_workbook(sheets, runner.read("taxonomy", "review"), temporary)
        accept_workbook(runner, hash_file(path))
    return path


def edited_workbook(runner: Runner) -> list[Path]:
    """Return ``review.xlsx`` if it was saved again since it was written or applied."""
    path, mark = runner.workspace.work / WORKBOOK, runner.workspace.work / WORKBOOK_MARK
    known = mark.is_file() and path.is_file() and mark.read_text() == hash_file(path)
    return [path] if path.is_file() and not known else []


def accept_workbook(runner: Runner, sha256: str) -> None:
    """Take ``review.xlsx`` with this hash as one without edits."""
    mark = runner.workspace.work / WORKBOOK_MARK
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(sha256)


def write_blind_page(runner: Runner, path: Path, seed: int) -> int:
    """Write a blind copy of the sheet, without hints, as a page; return the number of its rows.

    It saves a CSV with the name of the page.
    """
    file, taxonomy = f"{path.stem}.csv", runner.workspace.path("taxonomy")
    with runner.alone():
        sheet = blind_sheet(runner, seed, hints=False)
        command = f"hgld reviews agree {quote(file)} OTHER.csv --taxonomy {quote(str(taxonomy))}"
        page = _render(runner, sheet, command=command, blind_file=file)
        write_file(path, page)
    return len(sheet)


def render_review(runner: Runner, live: Mapping[str, Any] | None = None) -> str:
    """Return the page of the review sheet, both made from their inputs.

    Args:
        runner: of the pipeline and its work folder.
        live: facts for the page of a server (``render_page``).
    """
    sheet, model = suggested_sheet(runner)
    return _render(
        runner,
        guard_columns(sheet),
        command=f"hgld review {runner.workspace.words} --apply review.csv",
        decisions=runner.read("decisions", "review"),
        model=model,
        threads=read_threads(runner),
        live=live,
    )


def read_tables(runner: Runner, *names: str) -> list[Any]:
    """Return inputs of the review stage by name."""
    return [runner.read(name, "review") for name in names]


def read_threads(runner: Runner) -> dict[str, list[list[str]]]:
    """Return value key -> who, when and text of each comment, oldest first."""
    return threads_of(runner.read("comments", "review"), read_clusters(runner))


def read_clusters(runner: Runner) -> Any:
    """Return the clusters, for the labels of classes; empty before the first clustering."""
    table, path = declared_table("clusters"), runner.workspace.path("clusters")
    return table.read(path) if path.is_file() else table.empty()


def suggested_sheet(runner: Runner) -> "tuple[pd.DataFrame, ValueModel | None]":
    """Return the rows of the review sheet from its inputs, and the model of their suggestions."""
    from hgld.review.sheets import fit_decisions, list_values

    read = {name: runner.read(name, "review") for name in runner.stage("review").reads}
    fitted_to = (
        "clusters", "taxonomy", "decisions", "label_vectors", "taxonomy_vectors", "taxonomy_edits",
    )  # fmt: skip
    also = {name: read[name] for name in ("image_vectors", "ancestry") if name in read}
    model = fit_decisions(*(read[name] for name in fitted_to), **also)
    shown = ("clusters", "landmark_values", "landmarks", "taxonomy", "decisions", "class_hints")
    columns = {name: read[name] for name in (*shown, "class_labels")}
    order = runner.workspace.pipeline.review.order
    edits = read["taxonomy_edits"]
    return list_values(**columns, model=model, order=order, taxonomy_edits=edits), model


def _render(runner: Runner, sheet: pd.DataFrame, **facts: Any) -> str:
    """Return the page of a sheet with the tables and photos that belong to it."""
    from hgld.review.review_page import render_page

    workspace = runner.workspace
    tables = {name: runner.read(name, "review") for name in PAGE_READS}
    tables["label_vectors"] = vectors_of_clusters(runner, tables["label_vectors"])
    return render_page(
        sheet,
        **tables,
        images=shown_images(runner),
        options=workspace.pipeline.review,
        source=workspace.source,
        title=workspace.pipeline.title or workspace.pipeline_file.stem,
        name=workspace.pipeline_file.stem,
        levels=workspace.pipeline.cluster.levels,
        noun=workspace.pipeline.source.class_noun,
        **facts,
    )


def shown_images(runner: Runner) -> Any:
    """Return the images that the pipeline would export."""
    from hgld.shards.shard_plan import withhold

    images, removals = read_tables(runner, "images", "removals")
    shown, _ = withhold(images, removals, runner.workspace.pipeline.export.licenses)
    return shown
