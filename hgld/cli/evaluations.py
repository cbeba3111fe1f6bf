"""The tool group ``hgld evaluations``: measure embeddings, compare evaluations, export rankings.

The commands only print what ``hgld.evaluate`` finds. Tables fit 80 columns; ``--json`` gives all of
it as data. Nothing heavy is imported before a command runs.
"""

import math
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.arguments import (
    AsJson,
    Model,
    Page,
    PipelineFile,
    Settings,
    Work,
    open_workspace,
    out_option,
    tool_group,
)
from hgld.cli.output import print_json, progress, require_other, write_sheets
from hgld.errors import HgldError, UsageError
from hgld.words import columns_of, count_text, padded, percent_text, verb_text

if TYPE_CHECKING:
    from hgld.evaluate.compare import Comparison
    from hgld.evaluate.given import Given
    from hgld.evaluate.measured_files import DrawnResult, FileResult
    from hgld.evaluate.results import MeasuredRun

NAME = 34  # columns of a metric's name
IMAGE = 34  # columns of an image's id
METRIC = 24  # columns of a metric's name beside many numbers
_percent = partial(percent_text, unknown="-")


class By(StrEnum):
    """Units that the bootstrap draws."""

    auto = "auto"
    classes = "classes"
    queries = "queries"


app = tool_group("evaluations", "Measure embeddings, compare evaluations, export rankings.")

Query = Annotated[Path, typer.Argument(metavar="QUERY", help="Embeddings: .npy, .npz or .parquet.")]
Place = Annotated[
    str, typer.Argument(metavar="PLACE[:MODEL]", help="Work folder or pipeline file, and model.")
]


@app.command("measure")
def measure(
    query: Query,
    gallery: Annotated[
        Path | None,
        typer.Argument(
            metavar="GALLERY",
            help="Likewise; default: each query looks through all others.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option("--labels", metavar="FILE", help="Labels of QUERY: .csv, .parquet, .npy."),
    ] = None,
    gallery_labels: Annotated[
        Path | None,
        typer.Option(
            "--gallery-labels", metavar="FILE", help="Of GALLERY; default: --labels by id."
        ),
    ] = None,
    level: Annotated[
        list[str] | None,
        typer.Option("--level", metavar="NAME", help="Label column, coarse to fine; repeatable."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="NAME", help="H-AP, NDCG, AP:NAME, R@1 ...; repeatable."),
    ] = None,
    dot: Annotated[bool, typer.Option("--dot", help="Inner product instead of cosine.")] = False,
    draws: Annotated[
        int | None,
        typer.Option("--draws", metavar="N", min=1, help="Draw one image a class as gallery."),
    ] = None,
    out: Annotated[Path | None, out_option("Write a CSV with a row for each query.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure embeddings with labels, exactly, without a pipeline.

    .npz: vectors, and ids and labels (images, levels) where there are any. .parquet: embedding (a
    list), image_id, and a column a level, coarse to fine. .npy: embeddings alone; labels then come
    from another file, in the same order, or with a column image_id or path.

    With --draws N, one image of each class is the gallery and all others query it, N times (for
    VehicleID 10): mean and standard deviation of each metric; --out has a row for each draw.
    """
    from hgld.artifacts import write_csv
    from hgld.evaluate.measured_files import FileResult, measure_draws, measure_files

    require_other(out, query, gallery, labels, gallery_labels)
    if gallery is None and gallery_labels is not None:
        raise UsageError(f"--gallery-labels {gallery_labels}: there is no GALLERY to label")
    if draws is not None and gallery is not None:
        raise UsageError(f"--draws takes the galleries from {query}; leave out {gallery}")
    found: FileResult | DrawnResult
    with progress("measure"):
        side, other = _read_sides(query, labels, gallery, gallery_labels)
        names = metric or (), level or ()
        if draws is None:
            found = measure_files(side, other, *names, cosine=not dot)
        else:
            found = measure_draws(side, draws, *names, cosine=not dot)
    if out is not None:
        write_csv(found.table(), out)
    if as_json:
        print_json(found.facts())
    elif isinstance(found, FileResult):
        _print_measures(found)
    else:
        _print_draws(found)


@app.command("embed")
def embed(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model's folder, timm:MODEL, python:... .")
    ],
    images: Annotated[Path, typer.Option("--images", metavar="FOLDER", help="The photos.")],
    out: Annotated[Path, out_option("Write the embeddings here.", metavar="FOLDER")],
    answers: Annotated[
        Path | None,
        typer.Option("--answers", metavar="FILE", help="gnd_roxford5k.pkl: query and gallery."),
    ] = None,
    ijb_c: Annotated[
        Path | None,
        typer.Option("--ijb-c", metavar="FOLDER", help="IJB-C's lists: the faces in their boxes."),
    ] = None,
    max_side: Annotated[
        int | None,
        typer.Option("--max-side", metavar="N", min=16, help="Own size, at most N pixels a side."),
    ] = None,
    scale: Annotated[
        list[float] | None,
        typer.Option("--scale", metavar="X", help="Factor of this size; repeatable, for a mean."),
    ] = None,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Leave out photos that cannot be decoded.")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Write the embeddings of a folder of photos by any model.

    They are photos.npz, whose ids are paths in the folder; with --answers query.npz (the part of
    each query's photo in its box) and gallery.npz, for "revisited", with --ijb-c faces.npz, for
    "ijb-c". The same command resumes. photos_dropped.csv lists what --skip-damaged left out.

    Landmarks are measured with --max-side 1024 and --scale 0.7071 --scale 1 --scale 1.4142.
    """
    from hgld.config import EvaluateOptions, ModelOptions, checked_options
    from hgld.evaluate.ijb_c import FaceProtocol
    from hgld.evaluate.photo_files import embed_photos, photos_in
    from hgld.evaluate.revisited import Answers

    more = {"max_side": max_side, "scales": scale}
    chosen = checked_options(ModelOptions, model, source=model, **more)
    options = checked_options(EvaluateOptions, "--device", device=device)
    if answers is not None and ijb_c is not None:
        raise UsageError("--answers and --ijb-c are lists of different data sets; give one")
    listed = "--answers" if answers is not None else "--ijb-c" if ijb_c is not None else ""
    if skip_damaged and listed:
        raise UsageError(f"--skip-damaged: {listed} needs all its photos; replace damaged ones")
    if answers is not None:
        photos = Answers.read(answers).photos()
    elif ijb_c is not None:
        photos = FaceProtocol.read(ijb_c).photos()
    else:
        photos = {"photos": photos_in(images)}
    with progress("embed"):
        skip = None if listed else skip_damaged
        paths = embed_photos(chosen, images, photos, out, options, skip)
    for path in paths:
        typer.echo(path)


@app.command("compare")
def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="Work folder or pipeline file, :MODEL; or a CSV that measure --out wrote.",
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="Likewise.")],
    metric: Annotated[
        str, typer.Option("--metric", metavar="NAME", help="Metric that sorts the queries.")
    ] = "",
    rows: Annotated[int, typer.Option("--rows", min=0, help="Queries to show.")] = 5,
    by: Annotated[
        By, typer.Option("--by", help="What the bootstrap draws; auto: classes in the open set.")
    ] = By.auto,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Draws the bootstrap.")] = 0,
    out: Annotated[
        Path | None,
        out_option("Write a page with the photos of these queries.", metavar="FOLDER"),
    ] = None,
    fail_if_worse: Annotated[
        bool, typer.Option("--fail-if-worse", help="Exit code 1 if B is surely worse in a metric.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare two models or runs query by query, with intervals.

    A run that was trained with several seeds is compared seed by seed. --out makes a page,
    comparison.html, of the queries of largest gain and loss under both, with tables as CSV and
    LaTeX. It needs the shards, hierarchy.csv and landmarks.csv of A's work folder.

    Two CSVs of measure --out, one for each model, are compared by image id, or by row if the
    embeddings have no ids; the bootstrap then draws classes, and --out writes the tables alone.
    """
    from hgld.evaluate.compare import compare as compare_measured
    from hgld.evaluate.results import open_measured, read_measured

    first, second = (
        read_measured(Path(text)) if text.endswith(".csv") else open_measured(text)
        for text in (a, b)
    )
    found = compare_measured(first, second, metric, by=by, seed=seed)
    written = "" if out is None else _write_comparison((first, second), found, rows, out)
    if as_json:
        print_json({"a": a, "b": b, **found.facts()})
    else:
        typer.echo(f"A  {a}\nB  {b}")
        for line in _describe(found, rows):
            typer.echo(line)
        if written:
            typer.echo(written)
    worse = ", ".join(row.metric for row in found.differences if row.is_worse)
    if fail_if_worse and worse:
        raise HgldError(f"{b}: worse than {a} in {worse}; their intervals leave out 0")


@app.command("map")
def map_embeddings(
    place: Place,
    out: Annotated[Path, out_option("Write the page and the table here.", metavar="FOLDER")],
    points: Annotated[
        int, typer.Option("--points", min=4, max=20_000, help="If more, draw these many.")
    ] = 20_000,
) -> None:
    """Write a map of a model's embeddings, and its table.

    map.html is a page of up to 20,000 images by t-SNE: zoom, search, colour by level, a photo or
    a name under the pointer. map.parquet holds the same images for embedding-atlas and FiftyOne.
    """
    import numpy as np

    from hgld.evaluate.embedded import open_embedded
    from hgld.evaluate.results import open_measured
    from hgld.report.embedding_map import MapSide, write_map
    from hgld.report.examples import Images

    with progress("map"):
        measured = open_measured(place)
        found = open_embedded(measured)
        # queries that the gallery begins with are shown once
        more = np.arange(found.gallery.own_queries(found.query), len(found.query.image_ids))
        rows = {found.gallery.split: np.arange(len(found.gallery.image_ids))}
        rows |= {found.query.split: more} if len(more) and not found.query.names else {}
        images = Images.of_work(measured.folder, *rows)
        used = {side.split: side for side in (found.query, found.gallery)}
        sides = [
            MapSide(photos, used[name].image_ids[shown], found.vectors[name][shown])
            for photos, (name, shown) in zip(images, rows.items(), strict=True)
        ]
        paths = write_map(out, sides, found.levels, title=measured.run, points=points)
    for path in paths:
        typer.echo(path)


@app.command("export")
def export(
    place: Place,
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="One of those above.")
    ] = "trec-run",
    depth: Annotated[
        str,
        typer.Option("--depth", metavar="N", help="Ranks of each query, or all."),
    ] = "100",
    at_least: Annotated[
        int, typer.Option("--at-least", min=1, help="trec-qrels: the coarsest level, 1 is all.")
    ] = 1,
    out: Annotated[
        Path | None,
        out_option("Write to this file; npz and parquet to this folder.", metavar="PATH"),
    ] = None,
) -> None:
    """Write a ranking or embeddings for other programs.

    trec-run, trec-qrels, kaggle: lines of text, by default on stdout. White space, comma, quote
    and % in an id are percent-encoded (a%20b.jpg; urllib.parse.unquote restores it). A ranking
    deeper than the 100 kept ranks is computed again from the kept embeddings.

    npz, parquet: embeddings, by default in the current folder, as MODEL-SPLIT.npz or .parquet, in
    the order of the shards' index, with ids and class numbers; "measure" reads them.
    """
    from hgld.artifacts import atomic_path
    from hgld.evaluate.export import VECTOR_FORMATS, export_lines, write_vectors
    from hgld.evaluate.results import open_measured

    if depth != "all" and (not depth.isdecimal() or int(depth) < 1):
        raise UsageError(f"--depth {depth}: expected a number from 1, or all")
    ranks = None if depth == "all" else int(depth)
    with progress("export"):
        measured = open_measured(place)
        if form in VECTOR_FORMATS:
            for path in write_vectors(measured, form, out or Path()):
                typer.echo(path)
            return
        lines = (f"{line}\n" for line in export_lines(measured, form, ranks, at_least))
        if out is None:
            sys.stdout.writelines(lines)
            return
        with atomic_path(out) as temporary, temporary.open("w", encoding="utf-8") as file:
            file.writelines(lines)


@app.command("score")
def score(
    submission: Annotated[Path, typer.Argument(metavar="SUBMISSION", help="CSV: id,images.")],
    solution: Annotated[
        Path, typer.Argument(metavar="SOLUTION", help="GLDv2's retrieval_solution_v2.1.csv.")
    ],
    as_json: AsJson = False,
) -> None:
    """Compare a GLDv2 submission with the official answers: mAP@100."""
    from hgld.evaluate.export import read_lines
    from hgld.ranking.interchange import kaggle_score, read_kaggle

    found = kaggle_score(read_kaggle(read_lines(submission)), read_lines(solution))
    counts = {"queries": len(found.per_query), "missing": len(found.missing)}
    if as_json:
        print_json({"mAP@100": found.mean, **counts, "ignored": len(found.ignored)})
        return
    for usage, mean in found.mean.items():
        typer.echo(f"{'mAP@100 ' + usage:<{NAME}}{100 * mean:>7.2f}")
    missing = f"; {len(found.missing):,} are not in the submission and count 0"
    queries = count_text(len(found.per_query), "query")
    typer.echo(f"{queries}{missing if found.missing else ''}")
    if not any(found.per_query.values()):  # no error: the solution does not list the gallery
        typer.echo("no relevant image is found; compare the ids with the solution, and the order")


@app.command("revisited")
def revisited(
    query: Query,
    gallery: Annotated[Path, typer.Argument(metavar="GALLERY", help="Likewise.")],
    answers: Annotated[
        Path,
        typer.Option("--answers", metavar="FILE", help="gnd_roxford5k.pkl, or the same as JSON."),
    ],
    trained_on: Annotated[
        Path | None,
        typer.Option(
            "--trained-on", metavar="PLACE", help="Training set: pipeline file or work folder."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure Revisited Oxford or Paris, by its rule for junk.

    The published answers are a pickle, gnd_roxford5k.pkl or gnd_rparis6k.pkl. A pickle that holds
    anything but data is refused, since it could run any code.

    GLDv2 contains landmarks of both sets: a warning says so, unless --trained-on names a training
    set that was reduced to a list of images without them (collect.only).
    """
    from hgld.evaluate.given import read_given
    from hgld.evaluate.revisited import Answers, describe_overlap, score_revisited

    if line := describe_overlap(trained_on):
        typer.echo(line, err=True)
    found = score_revisited(read_given(query), read_given(gallery), Answers.read(answers))
    if as_json:
        print_json({n: {"mAP": s.mean, "mP": s.precision} for n, s in found.items()})
        return
    typer.echo(f"{'':<10}{'mAP':>8}{'mP@1':>8}{'mP@5':>8}{'mP@10':>8}{'queries':>9}")
    for name, one in found.items():
        numbers = "".join(f"{_percent(v):>8}" for v in (one.mean, *one.precision.values()))
        queries = sum(not math.isnan(value) for value in one.values)
        typer.echo(f"{name:<10}{numbers}{queries:>9,}")


@app.command("ijb-c")
def ijb_c(
    faces: Annotated[Path, typer.Argument(metavar="FACES", help="faces.npz of embed --ijb-c.")],
    protocols: Annotated[
        Path, typer.Option("--protocols", metavar="FOLDER", help="IJB-C's lists, ijbc_*.csv.")
    ],
    as_json: AsJson = False,
) -> None:
    """Measure faces on IJB-C: pairs, identification, retrieval.

    TAR@FAR of pairs of templates (1:1); rank-k and TPIR@FPIR of probes in two galleries (1:N); and
    the AP of photos and videos that search each other (Brown et al. 2020). A - says that there are
    too few pairs or strangers for a rate.
    """
    from hgld.evaluate.given import read_given
    from hgld.evaluate.ijb_c import FaceProtocol, score_faces

    values, counts = score_faces(read_given(faces), FaceProtocol.read(protocols))
    if as_json:
        print_json({**values, **counts})
        return
    for name, value in values.items():
        typer.echo(f"{name:<{NAME}}{_percent(value):>7}")
    typer.echo("; ".join(f"{count:,} {name}" for name, count in counts.items()))


def _write_comparison(
    sides: tuple["MeasuredRun", "MeasuredRun"], found: "Comparison", rows: int, out: Path
) -> str:
    """Write the page, or the tables of two CSVs, and return a line that names it."""
    from hgld.bootstrap import pair_seeds
    from hgld.report.comparison import write_comparison, write_tables
    from hgld.report.examples import Images, NameQueries

    names = [side.run for side in sides]
    # columns of one name would be one column
    if names[0] == names[1]:
        names = [f"{side.run} ({side.folder.name})" for side in sides]
    if names[0] == names[1]:
        names = [f"{name} {letter}" for name, letter in zip(names, "AB", strict=True)]
    tables = found.tables(*names)
    by_query = found.by_query.rename(columns=dict(zip("ab", names, strict=True)))
    if sides[0].given is not None:
        return f"tables: {write_tables(out, {'metrics': tables['metrics'], 'queries': by_query})}"
    pair = pair_seeds(sides[0].models, sides[1].models)[0]
    first = [side.of_model(name) for side, name in zip(sides, pair, strict=True)]
    protocol = sides[0].protocol
    about = _shared(found, protocol["query"])
    about += f"; 95 % intervals of the difference over {found.drawn}"
    if found.seeds > 1:
        about += (
            f" and {found.seeds} seeds, of which the photos show the first; t and p are of the "
            "paired t-test over the seeds"
        )
    levels: list[str] = protocol["levels"]
    queries: Images | NameQueries
    if "names" in protocol:
        (gallery,) = Images.of_work(sides[0].folder, protocol["gallery"])
        queries = NameQueries(gallery, protocol, first[0].ranking)
        levels = levels[: queries.depth]
    else:
        queries, gallery = Images.of_work(sides[0].folder, protocol["query"], protocol["gallery"])
    page = write_comparison(
        out,
        (queries, gallery),
        {name: side.ranking for name, side in zip(names, first, strict=True)},
        by_query,
        tables,
        metric=found.metric,
        levels=levels,
        remarks=found.remarks,
        about=f"{about}.",
        rows=rows,
    )
    return f"page: {page}"


@app.command("duplicates")
def duplicates(
    pipeline: PipelineFile,
    cosine: Annotated[
        float, typer.Option("--cosine", min=-1, max=1, help="Least similarity of a pair.")
    ] = 0.95,
    between: Annotated[
        str,
        typer.Option(
            "--between", metavar="A,B", help="Compare the images of these splits instead."
        ),
    ] = "",
    count: Annotated[
        int, typer.Option("--count", min=1, help="Pairs of each image at most, the nearest.")
    ] = 10,
    model: Model = "",
    rows: Annotated[int, typer.Option("--rows", min=0, help="Pairs to show.")] = 20,
    out: Annotated[Path | None, out_option("Write all pairs: .csv or .xlsx.")] = None,
    page: Page = None,
    settings: Settings = None,
    work: Work = None,
    as_json: AsJson = False,
) -> None:
    """List training images that almost equal evaluation images.

    Each image of the other splits is compared with all images of train and validation, or each
    image of B with those of A (--between index,test; train,train compares within a split). Nothing
    is dropped: the list is one that collect.exclude accepts.
    """
    from hgld.evaluate.neighbours import TRAINED, embed_splits, find_duplicates

    workspace = open_workspace(pipeline, settings, work)
    options, shards = workspace.pipeline.evaluate, workspace.path("shards")
    pair = [name.strip() for name in between.split(",")] if between else []
    if between and len(pair) != 2:
        raise UsageError(f"--between {between}: expected two splits, as in index,test")
    with progress("duplicates"):
        splits = embed_splits(workspace.work, shards, model, options, sorted(set(pair)))
        found = find_duplicates(splits, cosine, count, options.device, pair)
    if out is not None:
        write_sheets({"duplicates": found}, out)
    shown = found.head(rows).to_dict("records")
    if page is not None:
        from hgld.artifacts import write_file
        from hgld.report.examples import Images
        from hgld.report.rendering import render_page  # imports matplotlib

        photos = {images.split: images for images in Images.of_work(workspace.work)}
        role, rows_of_photos = "" if pair else "trained on: ", []
        for row in shown:
            split, other = row["split"], row["evaluated_split"]
            trained = role + split, photos[split].photo(row["image_id"])
            evaluated = other, photos[other].photo(row["evaluated_id"])
            rows_of_photos.append((f"cosine {row['cosine']:.4f}", [trained, evaluated]))
        within = f"within {pair[0]}" if len(set(pair)) == 1 else "between splits"
        title, lead = f"Near-duplicates {within}", f"Pairs with a cosine of at least {cosine:g}."
        html = render_page("photo_rows.html", title=title, lead=lead, rows=rows_of_photos)
        write_file(page, html)
    if as_json:
        print_json(found.to_dict("records"))
        return
    for row in shown:
        name = f"{row['evaluated_split']}/{row['evaluated_id']}"
        typer.echo(f"{row['cosine']:.4f}  {name}  =  {row['split']}/{row['image_id']}")
    kind = f"{pair[1]} image" if pair else "evaluation image"
    compared = {*pair[1:]} or {*splits} - {*TRAINED}
    images = count_text(sum(len(splits[name][0]) for name in compared), kind)
    paired = len(found[["evaluated_split", "evaluated_id"]].drop_duplicates())
    pairs_text = count_text(len(found), "pair")
    typer.echo(f"{pairs_text} with {paired:,} of {images}, cosine {cosine:g} or more")


def _read_sides(
    query: Path, labels: Path | None, gallery: Path | None, its_labels: Path | None
) -> "tuple[Given, Given | None]":
    """Read both sides; the gallery has the query's labels by id, or by row if it is its file."""
    from hgld.evaluate.given import IDS, read_given, read_labels, report_unmeasured

    side = read_given(query)
    other = None if gallery is None else read_given(gallery)
    if other is not None and its_labels is not None:
        table = read_labels(its_labels)
        other = other.with_labels(table, its_labels)
        report_unmeasured(table, its_labels, other)
    if labels is None:
        return side, other
    table = read_labels(labels)
    side = side.with_labels(table, labels)
    if gallery is None or other is None or its_labels is not None:
        report_unmeasured(table, labels, side)
        return side, other
    if gallery.samefile(query) or (other.ids is not None and {*IDS} & {*table}):
        report_unmeasured(table, labels, side, other)
        return side, other.with_labels(table, labels)
    if other.labels is None:
        raise UsageError(
            f"--labels {labels}: are those of {query} by row, and {gallery} is another file; give "
            "its labels by --gallery-labels, or ids in both"
        )
    return side, other


def _print_measures(found: "FileResult") -> None:
    result = found.result
    against = "all others" if found.open_set else f"{result.gallery:,} gallery images"
    queries = count_text(result.queries, "query")
    typer.echo(f"{queries} against {against}; {' > '.join(found.levels)}")
    for level, count in found.unmatched.items():
        if count:
            what = "other image" if found.open_set else "image"
            whose = "query has no {} of its" if count == 1 else "queries have no {} of their"
            typer.echo(f"{count:,} {whose.format(what)} {level} in the gallery")
            # A column beside the levels, such as the name of a file, is taken for the finest one.
            if count == result.queries and (above := found.levels[: found.levels.index(level)]):
                words = " ".join(f"--level {name}" for name in above)
                typer.echo(f"if {level} is no level: {words}")
    width = _widest(result.mean(), NAME)
    typer.echo(f"\n{'metric':<{width}}{'mean':>7}{'queries':>10}   95 % interval")
    for name, mean in result.mean().items():
        of_queries = name in result.skipped
        counted = f"{result.queries - result.skipped[name]:,}" if of_queries else "-"
        interval = found.intervals.get(name)
        ends = "-" if interval is None else " to ".join(map(_percent, interval))
        typer.echo(f"{padded(name, width)}{_percent(mean):>7}{counted:>10}   {ends}")
    typer.echo(f"in percent; intervals over {count_text(found.units, 'class')}")


def _print_draws(found: "DrawnResult") -> None:
    queries = count_text(found.queries, "query")
    images = count_text(found.gallery, "gallery image")
    typer.echo(f"{queries} against {images}, one a class; {' > '.join(found.levels)}")
    draws, names = found.draws, [str(name) for name in found.draws]
    width = _widest(names, NAME)
    typer.echo(f"\n{'metric':<{width}}{'mean':>7}{'deviation':>11}")
    for name, mean, deviation in zip(names, draws.mean(), draws.std(), strict=True):
        typer.echo(f"{padded(name, width)}{_percent(mean):>7}{_percent(deviation):>11}")
    typer.echo(f"in percent, over {count_text(len(found.draws), 'draw')}")


def _shared(found: "Comparison", split: str = "") -> str:
    """Return the number of queries in both, and of those with a value of the metric."""
    of, known = f" of {split}" * bool(split), len(found.by_query)
    text = f"{count_text(found.shared, 'query')}{of} in both"
    have = verb_text(known, "have")
    return text + f", of which {known:,} {have} a value of {found.metric}" * (known < found.shared)


def _describe(found: "Comparison", rows: int) -> Iterator[str]:
    """Describe a comparison in lines."""
    from hgld.ranking import lower_is_better

    for remark in found.remarks:
        yield from wrap(f"note: {remark}", 79, subsequent_indent="      ")
    only = f"only in A {found.only[0]:,}, only in B {found.only[1]:,}"
    yield from wrap(f"{_shared(found)}; {only}", 79)
    head = f"{'A':>7}{'B':>7}{'B - A':>8}  {'95 % interval':<18}{'better/worse':>13}"
    head += f"{'p':>8}" * (found.seeds > 1)
    # beside p, names have less room, so that the usual ones fit 80 columns
    least = METRIC - 8 * (found.seeds > 1)
    width = _widest([row.metric for row in found.differences], least)
    yield f"\n{'metric':<{width}}{head}"
    for row in found.differences:
        ends = f"{100 * row.low:+z.1f} to {100 * row.high:+z.1f}" + " *" * row.is_sure
        interval = "-" if math.isnan(row.low) else ends
        gain = "-" if math.isnan(row.difference) else f"{100 * row.difference:+z.1f}"
        numbers = f"{_percent(row.a):>7}{_percent(row.b):>7}{gain:>8}"
        counts = f"{row.gained:,}/{row.lost:,}"
        p = "" if row.p is None else f"{'-' if math.isnan(row.p) else format(row.p, '.2g'):>8}"
        yield f"{padded(row.metric, width)}{numbers}  {interval:<18}{counts:>13}{p}"
    over = f" and {found.seeds} seeds" if found.seeds > 1 else ""
    yield f"in percent; 95 % intervals over {found.drawn}{over}; * leaves out 0"
    if found.seeds > 1:
        yield f"p: paired t-test of the means of {found.seeds} seeds alone"
    rose = found.by_query[found.by_query["difference"] > 0].head(rows)
    fell = found.by_query[found.by_query["difference"] < 0].iloc[::-1].head(rows)
    gained, lost = (fell, rose) if lower_is_better(found.metric) else (rose, fell)
    parts = {f"gained most ({found.metric})": gained, f"lost most ({found.metric})": lost}
    width = _widest([*parts, *rose["image_id"], *fell["image_id"]], IMAGE)
    for title, part in parts.items():
        if len(part):
            yield f"\n{title:<{width}}{'A':>7}{'B':>7}{'B - A':>8}"
        for one in part.to_dict("records"):
            values = f"{_percent(one['a']):>7}{_percent(one['b']):>7}"
            yield f"{padded(one['image_id'], width)}{values}{100 * one['difference']:>+8.1f}"
    seeds = f", {found.seeds} seeds" if found.seeds > 1 else ""
    if found.severity.empty:  # without rankings
        return
    width = _widest(found.severity["first_image"], IMAGE)
    yield f"\n{'first image found' + seeds:<{width}}{'A':>7}{'B':>7}{'B - A':>8}"
    for one in found.severity.to_dict("records"):
        counts = f"{one['a']:>7,}{one['b']:>7,}{one['b'] - one['a']:>+8,}"
        yield f"{padded(one['first_image'], width)}{counts}"


def _widest(names: Iterable[str], least: int) -> int:
    """Return the columns of a table's names, with a blank behind the longest."""
    return max([least, *(columns_of(name) + 1 for name in names)])
