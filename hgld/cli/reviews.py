"""The tool group ``hgld reviews``: compare sheets, and let two people annotate independently.

The commands only print and write what ``hgld.hierarchy`` finds. Tables fit 80 columns; ``--json``
gives all of it as data. Nothing heavy is imported before a command runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hgld.cli.arguments import (
    AsJson,
    Opener,
    PipelineFile,
    Settings,
    Work,
    name_to_sign,
    on_pipeline,
    open_runner,
    out_option,
    tool_group,
)
from hgld.cli.output import print_json, print_rows, print_wrapped, progress
from hgld.errors import InvalidData, UsageError
from hgld.words import count_text, share_text, shortened, some_of, verb_text, wrapped

if TYPE_CHECKING:
    import pandas as pd

    from hgld.pipeline.run import Runner
    from hgld.review.annotations import Annotation

WIDTH = 80
SHOWN = 10  # rows of a table on the screen; --json has all
SHOWN_FAULTS = 50
NOTHING = "–"

app = tool_group("reviews", "Log, undo and check decisions; settle conflicts; compare annotators.")


@app.command("diff")
def show_differences(
    before: Annotated[Path, typer.Argument(metavar="A", help="A sheet, or decisions.csv.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Another.")],
    notes: Annotated[
        bool, typer.Option("--notes", help="List values of which only the note differs, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare two sheets: list what B decides differently."""
    from hgld.review.annotations import compare_annotations, read_annotations

    with progress():
        both = read_annotations(before, after)
    found = [d for d in compare_annotations(*both) if notes or not d.in_note_only]
    if as_json:
        shown = ("key", "label", "decision", "supercategory", "kind", "note")
        print_json(
            [
                {
                    side: said and {name: getattr(said, name) for name in shown}
                    for side, said in (("before", d.before), ("after", d.after))
                }
                for d in found
            ]
        )
        return
    for difference in found:
        typer.echo(difference.words)
    typer.echo(f"{count_text(len(found), 'value')} decided differently", err=True)


@app.command("blind")
def write_blind_copy(
    pipeline: PipelineFile,
    out: Annotated[Path, out_option("The copy; the file must not exist.")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="Draws the order of the rows.")],
    no_hints: Annotated[
        bool, typer.Option("--no-hints", help="Leave out clusters, hints and suggestions.")
    ] = False,
    as_page: Annotated[
        bool,
        typer.Option("--html", help="Write a page, without hints, that saves OUT's name.csv."),
    ] = False,
    settings: Settings = None,
    work: Work = None,
) -> None:
    """Write a blind review sheet for one of several annotators.

    It holds no decisions; --seed draws the order of its rows.
    """
    from hgld.artifacts import write_csv
    from hgld.cli.review_pages import blind_sheet, write_blind_page

    _require_new_file(out, ".html" if as_page else ".csv")
    runner = open_runner(pipeline, settings, work)
    if as_page:
        count = write_blind_page(runner, out, seed)
    else:
        with runner.alone():
            sheet = blind_sheet(runner, seed, hints=not no_hints)
        write_csv(sheet, out, spreadsheet=True)
        count = len(sheet)
    typer.echo(f"{count_text(count, 'value')} to decide in {out}", err=True)


@app.command("agree")
def show_agreement(
    one: Annotated[Path, typer.Argument(metavar="A", help="The sheet of one annotator.")],
    other: Annotated[Path, typer.Argument(metavar="B", help="The sheet of the other.")],
    more: Annotated[
        list[Path] | None,
        typer.Argument(metavar="C", help="Of further ones.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        out_option("Write the disagreements of two as a sheet, the values of more as CSV."),
    ] = None,
    counts: Annotated[
        Path | None,
        typer.Option(
            "--counts", metavar="SHEET", help="Weigh values by this sheet's images or count."
        ),
    ] = None,
    taxonomy: Annotated[
        Path | None,
        typer.Option("--taxonomy", metavar="FILE", help="Fill in kinds from this taxonomy.csv."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Draws the bootstrap.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare annotators: agreement, kappa, confusions.

    Three and more are compared by Krippendorff's alpha and value by value; they need not have
    decided the same values.

    Redirect --json to labels/SET/agreement.json for the card of a release.
    """
    import pandas as pd

    from hgld.artifacts import hash_file, write_csv
    from hgld.review.agreement import disagreements, measure_agreement, measure_alpha

    files = (one, other, *(more or ()))
    if more and counts is not None:
        raise UsageError("--counts weighs the values of two annotators; leave it out")
    names = _names(files)
    with progress():
        sides = dict(zip(names, _read_annotators(files, counts, taxonomy), strict=True))
        two = (sides[names[0]], sides[names[1]], (names[0], names[1]))
        found = measure_alpha(sides, seed=seed) if more else measure_agreement(*two, seed=seed)
    found |= {"sha256": dict(zip(names, map(hash_file, files), strict=True))}
    if out is not None:
        _require_new_file(out)
        table = pd.DataFrame(_by_value(found)) if more else disagreements(*two)
        write_csv(table, out, spreadsheet=True)
    if as_json:
        print_json(found)
        return
    for line in _describe_alpha(found) if more else _describe(found):
        typer.echo(line)


def _by_value(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the agreement on each value of three and more, with their answers as text."""
    return [
        {**row, "answers": "; ".join(f"{name} {n}" for name, n in row["answers"].items())}
        for row in found["by_value"]
    ]


def _describe_alpha(found: Mapping[str, Any]) -> Iterator[str]:
    """Describe the result of three and more in lines of at most 80 columns."""
    values = count_text(found["values"], "value")
    yield f"{values} decided by two or more of {', '.join(found['annotators'])}"[:WIDTH]
    yield f"\n{'':<26}{'agreement':>10}{'alpha':>9}{'95 % interval':>19}"
    for row in found["measures"]:
        alpha, interval = _number(row["alpha"]), _interval(row)
        share = share_text(row["agreement"], 1)
        yield f"{row['of']:<26}{share:>10}{alpha:>9}{interval:>19}"
    yield f"\n{'pair':<52}{'values':>10}{'kappa':>9}"
    for row in found["pairs"]:
        kappa = _number(row["kappa"])
        pair = f"{' and '.join(row['annotators'])}, {row['of']}"
        yield f"{pair[:51]:<52}{row['values']:>10,}{kappa:>9}"
    disputed = [row for row in _by_value(found) if row["agreement"] < 1]
    yield "\nmost disputed" if disputed else "\nnothing is disputed"
    for row in disputed[:SHOWN]:
        share = share_text(row["agreement"])
        yield shortened(f"{share:>6}  {row['label']}: {row['answers']}", WIDTH)


def _read_annotators(
    files: "Sequence[Path]", counts: Path | None, taxonomy: Path | None
) -> "Sequence[Mapping[str, Annotation]]":
    """Read the annotations of all, weighed and completed from the given files."""
    from hgld.artifacts import declared_table
    from hgld.review.annotations import complete, read_annotations, weigh

    # together with the counts: if one of the files has no keys, all go by the labels
    sides = list(read_annotations(*files, *([counts] if counts else [])))
    if counts is not None:
        weights = sides.pop()
        sides = [weigh(side, weights) for side in sides]
    if taxonomy is None:
        return sides
    kinds, recorded = declared_table("taxonomy").read(taxonomy), _recorded_edits(taxonomy)
    return [complete(side, kinds, recorded) for side in sides]


def _recorded_edits(taxonomy: Path) -> "pd.DataFrame":
    """Read the edits of the taxonomy from the file beside it, if there is one."""
    from hgld.artifacts import declared_table

    edits = declared_table("taxonomy_edits")
    path = taxonomy.with_name(edits.file)
    return edits.read(path) if path.is_file() else edits.empty()


Keys = Annotated[list[str] | None, typer.Argument(metavar="KEY...", help="Keys as in review.csv.")]
ByEntry = Annotated[
    str | None,
    typer.Option("--apply", metavar="N", help="The entry with this number or id in the log."),
]


@app.command("log")
def show_log(
    pipeline: PipelineFile, settings: Settings = None, work: Work = None, as_json: AsJson = False
) -> None:
    """List each apply, save and undo: who, when, what."""
    from hgld.cli.review_actions import list_entries

    entries = list_entries(open_runner(pipeline, settings, work))
    if as_json:
        names = ("number", "id", "who", "when", "source", "counts")
        print_json([{name: getattr(entry, name) for name in names} for entry in entries])
        return
    for entry in entries:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in entry.counts.items())
        head = f"{entry.number:>4}  {entry.id}  {entry.when:<10}  {entry.who or 'somebody'}"
        named = f" ({some_of(entry.names, 2)})" if entry.names else ""
        text = f"{head}{f', {entry.source}' if entry.source else ''}: {counts}{named}"
        typer.echo("\n".join(wrapped(text, 80, indent=6)))


@app.command("undo")
@on_pipeline
def undo(
    opener: Opener,
    keys: Keys = None,
    entry: ByEntry = None,
    why: Annotated[str, typer.Option("--why", help="Reason, for decisions.csv.")] = "taken back",
) -> None:
    """Undo the last decision on values, or an entry of the log.

    What held before is appended again; nothing is deleted.
    """
    if bool(keys) == (entry is not None):
        raise UsageError("undo takes either keys of values or --apply N, an entry of the log")
    _take_back(opener(), keys or [], entry or "", why)


@app.command("redo")
@on_pipeline
def redo(
    opener: Opener,
    keys: Keys = None,
    entry: ByEntry = None,
    why: Annotated[str, typer.Option("--why", help="Reason, for decisions.csv.")] = "made again",
) -> None:
    """Undo an undo: the last one, or that of values or an entry.

    A value that was decided again since keeps its decision.
    """
    if keys and entry is not None:
        raise UsageError("redo takes either keys of values or --apply N, an undo of the log")
    _take_back(opener(), keys or [], entry or "", why, redo=True)


def _take_back(
    runner: "Runner", keys: Sequence[str], asked: str, why: str, redo: bool = False
) -> None:
    """Undo or redo the last decision on values, or without keys an entry of the log."""
    from hgld.cli.review_actions import undo_decisions, undo_entry

    who = name_to_sign(runner.workspace)
    if keys:
        undo_decisions(runner, keys, who, why, redo)
        done = "made again" if redo else "taken back"
        typer.echo(f"{count_text(len(set(keys)), 'decision')} {done}", err=True)
        return
    entry, left = undo_entry(runner, asked, who, why, redo)
    typer.echo(f"entry {entry.number} ({entry.id}) taken back", err=True)
    for line in left[:SHOWN]:
        typer.echo(f"  changed since, stays as it is: {line}", err=True)
    if len(left) > SHOWN:
        typer.echo(f"  and {len(left) - SHOWN:,} more", err=True)


@app.command("conflicts")
def show_conflicts(
    pipeline: PipelineFile,
    out: Annotated[Path | None, out_option("Write a sheet that settles them.")] = None,
    settings: Settings = None,
    work: Work = None,
    as_json: AsJson = False,
) -> None:
    """Show values that people decided differently, all sides.

    To settle them, fill in the sheet (or their rows in review.csv) and apply it.
    """
    from hgld.artifacts import write_csv
    from hgld.artifacts.cells import unguard
    from hgld.cli.review_actions import conflict_sheet

    if out is not None:
        _require_new_file(out)
    runner = open_runner(pipeline, settings, work)
    with progress():
        sheet = conflict_sheet(runner)
    texts = {name: sheet[name].map(unguard) for name in ("key", "instance_of")}
    shown = sheet.assign(**texts)[["key", "instance_of", "landmarks", "images", "conflict"]]
    rows = shown.to_dict("records")
    if as_json:
        from hgld.hierarchy.decisions import sides_of

        sides = sides_of(runner.read("decisions", "review"), shown)
        print_json([{**row, "sides": sides[row["key"]]} for row in rows])
    else:
        for row in rows:
            typer.echo(f"{row['key']} {row['instance_of']}:")
            print_rows([("", row["conflict"])], 4)
    if out is not None and len(sheet):
        write_csv(sheet, out, spreadsheet=True)
        then = f"fill in {out}, then `hgld review {runner.workspace.words} {out} --apply`"
        print_wrapped(then, 4, err=True)
    typer.echo(f"{count_text(len(sheet), 'value')} in conflict", err=True)


@app.command("check")
def check(
    target: Annotated[
        Path,
        typer.Argument(metavar="FILE|PIPELINE", help="decisions.csv, or a pipeline that has one."),
    ],
    as_json: AsJson = False,
) -> None:
    """Check decisions for conflicts and unknown names.

    For hooks of git and for CI: the exit code is 3 if there are any, or ids in supersedes or undoes
    that no row has. taxonomy.csv and its edits are read from the same folder.
    """
    from hgld.artifacts import declared_table, rows_in_file
    from hgld.config import load_pipeline
    from hgld.hierarchy.decisions import check_decisions
    from hgld.review.taxonomy import present_names

    is_pipeline = target.suffix == ".toml"
    path = load_pipeline(target, ()).labels / "decisions.csv" if is_pipeline else target
    beside = path.parent / "taxonomy.csv"
    decisions, taxonomy = (
        declared_table("decisions").read(path),
        declared_table("taxonomy").read(beside),
    )
    renamed = present_names(taxonomy, _recorded_edits(beside))
    faults = check_decisions(decisions, taxonomy, {old: now for old, (now, _) in renamed.items()})
    numbers = rows_in_file(path, len(decisions)) if faults else []  # reads the file again
    rows = [{"row": numbers[at], "fault": fault} for at, fault in faults]
    if as_json:
        print_json({"file": str(path), "rows": len(decisions), "faults": rows})
    if faults:
        first = [f"row {row['row']}: {row['fault']}" for row in rows[:SHOWN_FAULTS]]
        more = [f"and {len(faults) - len(first):,} more"] if len(faults) > len(first) else []
        raise InvalidData(f"{path}: {count_text(len(faults), 'fault')}", *first, *more)
    if not as_json:
        typer.echo(f"{path}: {count_text(len(decisions), 'row')}, no conflict", err=True)


@app.command("comments")
@on_pipeline
def show_comments(
    opener: Opener,
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="A key as in review.csv.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--add", metavar="TEXT", help="Add a comment on KEY.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the comments on values, or add one.

    A comment decides nothing. It is signed, dated and kept in comments.csv of the labels folder.
    """
    from hgld.cli.review_actions import add_comment, require_value
    from hgld.cli.review_pages import read_threads

    if text is not None and key is None:
        raise UsageError("--add needs the KEY of a value")
    runner = opener()
    if text is not None and key is not None:
        add_comment(runner, key, text, name_to_sign(runner.workspace))
    threads = read_threads(runner)
    if key is not None and key not in threads:
        require_value(runner, key)
        typer.echo(f"no comment on {key}", err=True)
    shown = {name: said for name, said in threads.items() if key in (None, name)}
    if as_json:
        names = ("who", "when", "text")
        said = ((name, one) for name, thread in shown.items() for one in thread)
        print_json([{"key": name, **dict(zip(names, one, strict=True))} for name, one in said])
        return
    for name, thread in shown.items():
        for who, when, words in thread:
            typer.echo(f"{name}  {when}  {who}: {words}")


def _describe(found: Mapping[str, Any]) -> Iterator[str]:
    """Describe the result in lines of at most 80 columns."""
    a, b = found["annotators"]
    yield f"{count_text(found['values'], 'value')} decided by both, a: {a}, b: {b}"
    for name, count in found["one_alone"].items():
        if count:
            are = verb_text(count, "are")
            yield f"{count_text(count, 'value')} decided by {name} alone {are} left out"
    yield ""
    yield f"{'':<26}{'agreement':>10}{'kappa':>9}{'95 % interval':>19}{'AC1':>9}"
    for row in found["measures"]:
        head = row["of"] + (f", by {row['by']}" if row["by"] != "values" else "")
        kappa, interval = _number(row["kappa"]), _interval(row)
        share = share_text(row["agreement"], 1)
        line = f"{head:<26}{share:>10}{kappa:>9}{interval:>19}{row['ac1']:>9.3f}"
        yield line + (f"\n  {row['note']}" if row["note"] else "")
    yield "\nmost confused" if found["confused"] else "\nnothing is confused"
    for row in found["confused"][:SHOWN]:
        pair, examples = " or ".join(row["pair"]), ", ".join(row["examples"])
        yield shortened(f"{row['values']:>5}  {pair}: {examples}", WIDTH)
    yield f"\n{'supercategory':<34}{'a':>7}{'b':>7}{'both':>7}{'both of either':>17}"
    for row in found["supercategories"]:
        counts = "".join(f"{row[name]:>7}" for name in ("a", "b", "both"))
        yield f"{row['supercategory'][:33]:<34}{counts}{share_text(row['share']):>17}"


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}"


def _interval(row: Mapping[str, Any]) -> str:
    return NOTHING if row["low"] is None else f"{row['low']:.3f} to {row['high']:.3f}"


def _names(files: "Sequence[Path]") -> list[str]:
    """Return the names of the annotators: of their files, or of the folders if two files agree.

    Raises:
        UsageError: a file is given twice, or two folders agree, too; results by name would keep one
            of the two.
    """
    places = [file.resolve() for file in files]
    for number, file in enumerate(files):
        if places[number] in places[:number]:
            raise UsageError(f"{file}: is given twice; expected a sheet of each annotator")
    names = [file.stem for file in files]
    if len(set(names)) == len(names):
        return names
    names = [file.resolve().parent.name for file in files]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise UsageError(f"two annotators would be called {name}; rename the files")
    return names


def _require_new_file(path: Path, ending: str = ".csv") -> None:
    """Refuse a file that is there, and a name with the ending of another kind of file."""
    if path.exists():
        raise UsageError(f"{path}: is there already, and may hold someone's work; choose another")
    if path.suffix.casefold() in {".csv", ".html", ".xlsx", ".ods"} - {ending}:
        raise UsageError(f"--out {path}: expected a name that ends in {ending}")
