"""The tool group ``hgld labels``: compare two sets of labels, explain one landmark's, check a file.

The commands only print what ``hgld.hierarchy`` finds. Tables fit 80 columns; ``--json`` gives all
of it as data. Nothing heavy is imported before a command runs.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from hgld.cli.output import print_json, print_rows, progress, require_other, write_sheets
from hgld.errors import InvalidData, MissingInput, UsageError
from hgld.words import columns_of, nearest, padded, plural_text, share_text, some_of

if TYPE_CHECKING:
    import pandas as pd

    from hgld.hierarchy.label_comparison import LabelComparison
    from hgld.pipeline.lock import Workspace
    from hgld.report.examples import ExamplePhoto, Images

HEAD = 13  # columns of the heads before a text
LABEL = 24  # columns of a label
PATH = 24  # columns of a label path
TYPICAL = 2  # photos of a class

app = tool_group("labels", "Compare, explain and check hierarchical labels.")

Split = Annotated[
    str, typer.Option("--split", metavar="SPLIT", help="Split of the ids: train or index.")
]


@app.command("compare")
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A label file, work folder or release.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one, or a reference.")],
    split: Split = "",
    rows: Annotated[int, typer.Option("--rows", min=0, help="Rows of each table.")] = 20,
    out: Annotated[Path | None, out_option("Write the labels of each landmark as CSV.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two sets of labels by level: same, moved, lost, added."""
    from hgld.artifacts import write_csv
    from hgld.hierarchy.label_comparison import compare_labels, read_labels

    _check_split(split)
    require_other(out, a, b)
    found = compare_labels(read_labels(a, split), read_labels(b, split))
    if out is not None:
        write_csv(found.landmarks, out)
    if as_json:
        print_json({"A": str(a), "B": str(b), **found.to_json()})
        return
    print_rows([("A", str(a)), ("B", str(b)), *_counts(found)], HEAD)
    _print_tables(found, rows)


@app.command("explain")
def explain(
    pipeline: PipelineFile,
    landmark: Annotated[
        str, typer.Argument(metavar="LANDMARK", help="split:id, an id, a name or a Commons URL.")
    ],
    split: Split = "",
    settings: Settings = None,
    work: Work = None,
    as_json: AsJson = False,
) -> None:
    """Show how a landmark came to its path, or why it has none."""
    from hgld.hierarchy.explain import explain, find_landmark

    _check_split(split)
    workspace = open_workspace(pipeline, settings, work)
    tables = _tables(workspace)
    found = find_landmark(tables["landmarks"], landmark, split)
    steps = explain(found, tables, workspace.pipeline.labels, workspace.pipeline.source.class_noun)
    if as_json:
        print_json([{"step": step.head, **step.facts} for step in steps])
        return
    print_rows(((step.head, step.text) for step in steps), HEAD)


@app.command("check")
def check(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A published label file, or labels.csv of a release."),
    ],
    out: Annotated[
        Path | None, out_option("Write it again with its own columns and line ends.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a published label file and count its labels."""
    from hgld.hierarchy.label_file import read_label_file

    found = read_label_file(file)
    if found.cells.empty:
        raise InvalidData(
            f"{file}: has no row below its header; expected one for each {found.noun}"
        )
    if out is not None:
        found.write(out)
    if as_json:
        print_json({"file": str(file), **found.counts()})
    else:
        typer.echo(found.describe())


@app.command("tree")
def tree(
    file: Annotated[
        Path,
        typer.Argument(metavar="TREE", help="A work folder, or a file of a hierarchy."),
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="paths, edges, tree, newick, node-link, features, taxonomy or sheet.",
        ),
    ] = None,
    out: Annotated[Path | None, out_option("File to write.")] = None,
    classes: Annotated[
        Path | None,
        typer.Option(
            "--classes", metavar="CSV", help="Classes to look up: column class, optionally id."
        ),
    ] = None,
    depths: Annotated[
        str, typer.Option("--depths", metavar="2,4", help="Depths of their coarse labels; 1: root.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Write a hierarchy in another format, or coarse labels from it.

    It reads paths (hierarchy.csv), edges (CSV), JSON trees, Newick, networkx's node-link JSON,
    WordNet (data.noun), ImageNet (wordnet.is_a.txt), GBIF (Taxon.tsv) and OpenImages (JSON).
    """
    from hgld.artifacts import read_csv, read_header, rows_in_file
    from hgld.hierarchy.class_tree import cut_tree, describe_tree
    from hgld.hierarchy.tree_formats import FORMATS, read_names, read_tree, write_tree

    if form is not None and form not in FORMATS:
        raise UsageError(f"--to {form}: expected {', '.join(FORMATS)}{nearest(form, FORMATS)}")
    if (form is None) != (out is None):
        raise UsageError("--to and --out go together: the format and the file to write")
    texts = depths.split(",") if depths else []
    numbers = [int(text) for text in texts if text.strip().isdecimal()]
    rises = len(numbers) == len(texts) and all(numbers) and numbers == sorted({*numbers})
    if not rises:
        raise UsageError(f"--depths {depths}: expected numbers from coarse to fine, such as 2,4")
    if (classes is None) != (not numbers):
        raise UsageError("--classes and --depths go together: the classes, and depths such as 2,4")
    with progress():
        found, left = read_tree(file), dict[str, str]()
        if classes is not None:
            names = ["class", *({"id"} & {*read_header(classes, ["class"])})]
            table = read_csv(classes, dict.fromkeys(names, "text"))
            ids = table["id"].tolist() if "id" in table else []
            wanted = table["class"].tolist()
            lines = rows_in_file(classes, len(table))
            found, left = cut_tree(found, wanted, numbers, ids, *read_names(file), rows=lines)
    if form is not None and out is not None:
        require_other(out, file)
        write_tree(found, form, out)
    if as_json:
        print_json({"classes": len(found), "levels": list(found.graph["levels"]), "left_out": left})
        return
    typer.echo(describe_tree(found))
    for name, why in left.items():
        typer.echo(f"left out: {name}: {why}", err=True)


@app.command("suspects")
def suspects(
    pipeline: PipelineFile,
    split: Annotated[
        str, typer.Option("--split", metavar="SPLIT", help="Of the images.")
    ] = "train",
    model: Model = "",
    neighbours: Annotated[
        int, typer.Option("--neighbours", min=1, help="Nearest images that vote.")
    ] = 10,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Rows to show.")] = 20,
    out: Annotated[
        Path | None, out_option("Write all: .xlsx, or .csv and FILE-classes.csv.")
    ] = None,
    page: Page = None,
    settings: Settings = None,
    work: Work = None,
    as_json: AsJson = False,
) -> None:
    """List images and classes that their embedding contradicts.

    The most suspect come first. In the file of --out write drop into the column decision of wrong
    ones: collect.exclude leaves these out, and only these. Nothing is changed here.
    """
    import pandas as pd

    from hgld.evaluate.neighbours import embed_splits, suspect_tables
    from hgld.report.examples import Images

    workspace = open_workspace(pipeline, settings, work)
    options, shards = workspace.pipeline.evaluate, workspace.path("shards")
    with progress("suspects"):
        side, vectors = embed_splits(workspace.work, shards, model, options, [split])[split]
        photos = {images.split: images for images in Images.of_work(workspace.work)}
        found = side.read(["image_id", "split", "landmark_id"])
        shown = zip(found["split"], found["image_id"], strict=True)
        names = pd.Series([" > ".join(photos[of].named_path(i)) for of, i in shown], dtype=str)
        images, classes = suspect_tables(
            found, vectors, side.labels, names, neighbours, options.device
        )
    if out is not None:
        sheets = {
            title: table.assign(decision="")[["decision", *table.columns]]
            for title, table in (("images", images), ("classes", classes))
        }
        write_sheets(sheets, out)
    if page is not None:
        from hgld.artifacts import write_file
        from hgld.report.rendering import render_page  # imports matplotlib

        lead = "The most suspect images, each beside typical photos of both classes."
        photo_rows = _photo_rows(images, rows, photos)
        html = render_page("photo_rows.html", title="Suspect labels", lead=lead, rows=photo_rows)
        write_file(page, html)
    if as_json:
        tables = {"images": images, "classes": classes}
        print_json({name: table.to_dict("records") for name, table in tables.items()})
        return
    for title, table, key in (("image", images, "image_id"), ("class", classes, "landmark_id")):
        typer.echo(f"{title:<18}{'score':>6}  {'path':<26}{'elsewhere':<26}".rstrip())
        for row in table.head(rows).to_dict("records"):
            score = f"{row['score']:.2f}" if pd.notna(row["score"]) else "-"
            name = _within(str(row[key]), 17, keep_end=True)
            paths = (
                _within(row.get(column, ""), PATH, keep_end=True)
                for column in ("path", "elsewhere")
            )
            typer.echo(f"{name} {score:>6}  {'  '.join(paths)}".rstrip())
        typer.echo("")
    typer.echo(f"{len(images):,} images, {len(classes):,} classes")


def _within(text: str, width: int, keep_end: bool = False) -> str:
    """Return a text in so many columns; "…" is for its end, or its beginning, if it is wider."""
    while columns_of(text) > width:
        text = f"…{text[2:]}" if keep_end else f"{text[:-2]}…"
    return padded(text, width)


def _photo_rows(
    images: "pd.DataFrame", count: int, photos: "Mapping[str, Images]"
) -> "list[tuple[str, list[tuple[str, ExamplePhoto]]]]":
    """Return a heading and captioned photos for each of the first images: it and typical ones."""
    typical = images.iloc[::-1].groupby("path").head(TYPICAL)
    by_path = {
        path: list(zip(group["split"], group["image_id"], strict=True))
        for path, group in typical.groupby("path")
    }
    found = []
    for row in images.head(count).to_dict("records"):
        own = row["split"], row["image_id"]
        shown = [(f"score {row['score']:.2f}", own)]
        for name in ("path", "elsewhere"):
            shown += [(row[name], at) for at in by_path[row[name]] if at[1] != own[1]]
        captioned = [(caption, photos[split].photo(i)) for caption, (split, i) in shown]
        found.append((f"{row['path']}, or {row['elsewhere']}?", captioned))
    return found


def _check_split(split: str) -> None:
    from hgld.artifacts import ID_SPACES

    if split and split not in ID_SPACES:
        raise UsageError(f"--split {split}: expected {' or '.join(ID_SPACES)}")


def _tables(workspace: "Workspace") -> dict[str, Any]:
    """Read the tables that this pipeline has made so far, by artifact name.

    Those of other landmarks than now are left out, with a notice: a new class gives others its
    number.
    """
    from hgld.artifacts import ARTIFACTS
    from hgld.hierarchy.explain import TABLES
    from hgld.pipeline.lock import Lock
    from hgld.pipeline.stages import active_stages

    stages = active_stages(workspace.pipeline)
    used = {name for stage in stages for name in (*stage.reads, *stage.writes)}
    paths = {name: workspace.path(name) for name in TABLES if name in used}
    if not paths["landmarks"].is_file():
        raise MissingInput(
            f"{paths['landmarks']}: does not exist; run `hgld collect {workspace.words}` "
            "first, or name the run's folder with --work"
        )
    lock = Lock.load(workspace)
    now = lock.hash("landmarks")
    made = ((stage, lock.stages.get(stage.name, {}).get("inputs", {})) for stage in stages)
    of_others = {
        name: paths.pop(name)
        for stage, inputs in made
        if inputs.get("landmarks", now) != now
        for name in stage.writes
        if name in paths and paths[name].is_file()
    }
    if of_others:
        files = some_of([path.name for path in of_others.values()], 3)
        again = f"`hgld run {workspace.words} --until label` makes them again"
        typer.echo(f"{files} left out, older than {paths['landmarks'].name}; {again}", err=True)
    return {name: ARTIFACTS[name].read(path) for name, path in paths.items() if path.is_file()}


def _counts(found: "LabelComparison") -> Iterable[tuple[str, str]]:
    n = found.counts()
    yield plural_text(found.noun), f"A {n['a']:,}, B {n['b']:,}, both {n['both']:,}"
    yield "", f"only in A (lost) {n['lost']:,}, only in B (added) {n['added']:,}"
    if found.as_published:
        yield "same label", _share(n["same"], n["both"])
        yield "same kind", _share(n["same_kind"], n["both"])
    else:
        shares = [f"{level}: {_share(same, n['both'])}" for level, same in found.levels.items()]
        yield "same", "\n".join(shares)
        for level, side in found.levels_of_one.items():
            yield "other level", f"{level}: only in {side}"
    if found.other_page and found.noun == "class":
        have = "class of both has" if found.other_page == 1 else "classes of both have"
        text = f"{found.other_page:,} {have} another name in A than in B"
        yield "other name", f"{text}: names repeat, so numbers were compared"
    elif found.other_page:
        have = "landmark of both has" if found.other_page == 1 else "landmarks of both have"
        text = f"{found.other_page:,} {have} another Commons page in A than in B"
        yield "other page", f"{text}: their ids may not mean the same"


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({share_text(part / whole, 1)})" if whole else "none in common"


def _print_tables(found: "LabelComparison", rows: int) -> None:
    def in_column(label: str) -> str:
        return f"{_within(label, LABEL - 1)} "

    labels = found.supercategories()
    changed = labels[labels[["left", "came", "lost", "added"]].sum(axis=1) > 0]
    columns = [str(name) for name in labels if name != "label"]
    level = "label" if found.as_published else [*found.levels][-1]
    if len(changed) and rows:
        heads = (name.upper() if len(name) == 1 else name for name in columns)  # A and B
        typer.echo("\n" + in_column(level) + "".join(f"{head:>8}" for head in heads))
    for row in changed.head(rows).to_dict("records"):
        numbers = "".join(f"{row[name]:>8,}" for name in columns)
        typer.echo(in_column(row["label"]) + numbers)
    rest = "labels" if found.as_published else f"of {level}"
    _print_more(len(changed) - rows, f"{rest} that changed")
    pairs = found.confusions()
    if len(pairs) and rows:
        typer.echo(f"\n{'A says':<{LABEL}}{'B says':<{LABEL}}{plural_text(found.noun):>9}")
    for row in pairs.head(rows).to_dict("records"):
        typer.echo(
            in_column(row["label_a"]) + in_column(row["label_b"]) + f"{row['landmarks']:>9,}"
        )
    _print_more(len(pairs) - rows, "pairs")


def _print_more(left: int, what: str) -> None:
    if left > 0:
        typer.echo(f"{left:,} more {what}: --rows, or --json for all")
