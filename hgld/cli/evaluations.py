"""The tool group ``hgld evaluations``: measure embeddings, compare evaluations, export rankings.

The commands only print what ``hgld.evaluate`` finds. Tables fit 80 columns; ``--json`` gives all of
it as data. Nothing heavy is imported before a command runs.
"""

import math
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from hgld.cli.arguments import AsJson, out_option
from hgld.cli.output import print_json, progress, require_other, write_table
from hgld.words import count_text

if TYPE_CHECKING:
    from hgld.evaluate.compare import Comparison
    from hgld.evaluate.given import Given
    from hgld.evaluate.measured_files import FileResult

__all__ = ["app"]

NAME = 34  # columns of a metric's name
IMAGE = 34  # columns of an image's id
METRIC = 24  # columns of a metric's name beside many numbers


class By(StrEnum):
    """Units that the bootstrap draws."""

    auto = "auto"
    classes = "classes"
    queries = "queries"


app = typer.Typer(
    name="evaluations",
    help="Measure embeddings, compare evaluations, export rankings.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

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
            metavar="[GALLERY]",
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
        typer.Option("--gallery-labels", metavar="FILE", help="Of GALLERY; default: --labels."),
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
    out: Annotated[Path | None, out_option("Write a CSV with a row for each query.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure embeddings with labels, exactly, without a pipeline.

    .npz: vectors, and ids and labels (images, levels) where there are any. .parquet: embedding (a
    list), image_id, and a column a level, coarse to fine. .npy: embeddings alone; labels then come
    from another file, in the same order, or with a column image_id or path.
    """
    from hgld.evaluate.measured_files import measure_files

    require_other(out, query, gallery, labels, gallery_labels)
    with progress():
        other = None if gallery is None else _read_side(gallery, gallery_labels or labels)
        found = measure_files(
            _read_side(query, labels), other, metric or (), level or (), cosine=not dot
        )
    if out is not None:
        write_table(found.per_query(), out)
    if as_json:
        print_json(found.facts())
    else:
        _print_measures(found)


@app.command("compare")
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="Work folder or pipeline file, :MODEL.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Likewise.")],
    metric: Annotated[
        str, typer.Option("--metric", metavar="NAME", help="Metric that sorts the queries.")
    ] = "",
    rows: Annotated[int, typer.Option("--rows", min=0, help="Queries to show.")] = 5,
    by: Annotated[
        By, typer.Option("--by", help="What the bootstrap draws; auto: classes in the open set.")
    ] = By.auto,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Draws the bootstrap.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare two models or runs query by query, with intervals.

    A run that was trained with several seeds is compared seed by seed.
    """
    from hgld.evaluate.compare import compare as compare_measured
    from hgld.evaluate.results import open_measured

    found = compare_measured(open_measured(a), open_measured(b), metric, by=by, seed=seed)
    if as_json:
        print_json({"a": a, "b": b, **found.facts()})
        return
    typer.echo(f"A  {a}\nB  {b}")
    for line in _describe(found, rows):
        typer.echo(line)


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
    from hgld.evaluate.export import VECTOR_FORMATS, export_lines, write_vectors
    from hgld.evaluate.results import open_measured

    ranks = _depth(depth)
    with progress():
        measured = open_measured(place)
        if form not in VECTOR_FORMATS:
            _write_lines(export_lines(measured, form, ranks, at_least), out)
            return
        paths = write_vectors(measured, form, out or Path())
    for path in paths:
        typer.echo(path)


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
    queries = count_text(len(found.per_query), "query", "queries")
    typer.echo(f"{queries}{missing if found.missing else ''}")


@app.command("revisited")
def revisited(
    query: Query,
    gallery: Annotated[Path, typer.Argument(metavar="GALLERY", help="Likewise.")],
    answers: Annotated[
        Path, typer.Option("--answers", metavar="FILE", help="JSON: qimlist, imlist, gnd.")
    ],
    as_json: AsJson = False,
) -> None:
    """Measure Revisited Oxford or Paris, by its rule for junk.

    The published answers are pickles, which can run any code, so they are not read. If you trust
    yours, turn it to JSON once: python -c "import json, pickle, sys;
    json.dump(pickle.load(open(sys.argv[1], 'rb')), open('gnd.json', 'w'), default=lambda a:
    a.tolist())" gnd_roxford5k.pkl
    """
    from hgld.evaluate.given import read_given
    from hgld.evaluate.revisited import Answers, score_revisited

    found = score_revisited(read_given(query), read_given(gallery), Answers.read(answers))
    if as_json:
        print_json({n: {"mAP": s.mean, "mP": s.precision} for n, s in found.items()})
        return
    typer.echo(f"{'':<10}{'mAP':>8}{'mP@1':>8}{'mP@5':>8}{'mP@10':>8}{'queries':>9}")
    for name, one in found.items():
        numbers = "".join(f"{_percent(v):>8}" for v in (one.mean, *one.precision.values()))
        queries = sum(not math.isnan(value) for value in one.values)
        typer.echo(f"{name:<10}{numbers}{queries:>9,}")


def _read_side(path: Path, labels: Path | None) -> "Given":
    from hgld.evaluate.given import read_given, read_labels

    given = read_given(path)
    return given if labels is None else given.with_labels(read_labels(labels), labels)


def _print_measures(found: "FileResult") -> None:
    result = found.result
    against = "all others" if found.open_set else f"{result.gallery:,} gallery images"
    queries = count_text(result.queries, "query", "queries")
    typer.echo(f"{queries} against {against}; {' > '.join(found.levels)}")
    for level, count in found.unmatched.items():
        if count:
            what = "another image" if found.open_set else "an image"
            have = "query has" if count == 1 else "queries have"
            typer.echo(f"{count:,} {have} not {what} of their {level} in the gallery")
    typer.echo(f"\n{'metric':<{NAME}}{'mean':>7}{'queries':>10}   95 % interval")
    for name, mean in result.mean().items():
        counted = result.queries - result.skipped[name]
        interval = found.intervals[name]
        ends = "-" if interval is None else " to ".join(map(_percent, interval))
        typer.echo(f"{name:<{NAME}}{_percent(mean):>7}{counted:>10,}   {ends}")
    typer.echo(f"intervals over {count_text(len(set(found.classes)), 'class', 'classes')}")


def _describe(found: "Comparison", rows: int) -> Iterator[str]:
    """Describe a comparison in lines."""
    for remark in found.remarks:
        yield from wrap(f"note: {remark}", 79, subsequent_indent="      ")
    yield (
        f"{count_text(len(found.by_query), 'query', 'queries')} in both; "
        f"only in A {found.only[0]:,}, "
        f"only in B {found.only[1]:,}"
    )
    head = f"{'A':>7}{'B':>7}{'B - A':>8}  {'95 % interval':<18}{'better/worse':>13}"
    yield f"\n{'metric':<{METRIC}}{head}"
    for row in found.differences:
        ends = f"{100 * row.low:+.1f} to {100 * row.high:+.1f}" + " *" * row.is_sure
        interval = "-" if math.isnan(row.low) else ends
        numbers = f"{_percent(row.a):>7}{_percent(row.b):>7}{100 * row.difference:>+8.1f}"
        counts = f"{row.gained:,}/{row.lost:,}"
        yield f"{row.metric:<{METRIC}}{numbers}  {interval:<18}{counts:>13}"
    over = f" and {found.seeds} seeds" if found.seeds > 1 else ""
    yield f"95 % intervals over {found.units:,} {found.unit}{over}; * leaves out 0"
    gained = found.by_query[found.by_query["difference"] > 0].head(rows)
    lost = found.by_query[found.by_query["difference"] < 0].iloc[::-1].head(rows)
    for title, part in (("gained most", gained), ("lost most", lost)):
        if len(part):
            yield f"\n{f'{title} ({found.metric})':<{IMAGE}}{'A':>7}{'B':>7}{'B - A':>8}"
        for one in part.to_dict("records"):
            values = f"{_percent(one['a']):>7}{_percent(one['b']):>7}"
            yield f"{one['image_id']:<{IMAGE}}{values}{100 * one['difference']:>+8.1f}"
    seeds = f", {found.seeds} seeds" if found.seeds > 1 else ""
    yield f"\n{'first image found' + seeds:<{IMAGE}}{'A':>7}{'B':>7}{'B - A':>8}"
    for one in found.severity.to_dict("records"):
        counts = f"{one['a']:>7,}{one['b']:>7,}{one['b'] - one['a']:>+8,}"
        yield f"{one['first_image']:<{IMAGE}}{counts}"


def _depth(text: str) -> int | None:
    """Return the number of ranks; None: all."""
    from hgld.errors import UsageError

    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--depth {text}: expected a number from 1, or all")
    return int(text)


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.1f}"


def _write_lines(lines: Iterable[str], out: Path | None) -> None:
    from hgld.artifacts import atomic_path

    if out is None:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return
    with atomic_path(out) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
