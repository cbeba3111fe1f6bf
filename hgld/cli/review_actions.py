"""Actions on the review of a run: apply sheets, undo decisions, write a workbook or a page.

Each action holds the lock of the work folder, so that no sheet is read while a stage writes it.
Decisions and edits of clusters are only appended: their files keep every row and column. Several
work folders may share them, so an action that appends also locks the labels folder, from reading
to writing.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import pandas as pd

from hgld.artifacts import (
    ARTIFACTS,
    atomic_files,
    atomic_path,
    declared_table,
    edit_csv,
    finish_files,
    hash_file,
    parse_csv,
)
from hgld.cli.output import write_table
from hgld.errors import InvalidData, MissingInput, UsageError
from hgld.file_lock import hold
from hgld.pipeline.edits import copy_beside
from hgld.pipeline.lock import judge
from hgld.pipeline.run import Runner
from hgld.pipeline.stages import Stage, load_function
from hgld.words import nearest

if TYPE_CHECKING:
    from hgld.review.apply import Applied
    from hgld.review.entries import Entry
    from hgld.review.spreadsheet import Sheet
    from hgld.review.taxonomy import Taxonomy, TaxonomyEdit

__all__ = [
    "PAGE_READS",
    "add_comment",
    "apply_review",
    "blind_sheet",
    "conflict_sheet",
    "edit_taxonomy",
    "edited_words",
    "list_decided",
    "list_entries",
    "preview_review",
    "read_taxonomy",
    "read_threads",
    "redo_decisions",
    "render_sheet",
    "save_choices",
    "shown_images",
    "suggest_clusters",
    "undo_decisions",
    "undo_entry",
    "undo_saved",
    "write_blind_page",
    "write_review_page",
    "write_workbook",
]

EDITS_CHANGED = (f"{ARTIFACTS['cluster_edits'].file} changed",)
LOGGED = ("decisions", "cluster_edits", "taxonomy_edits")
PAGE_READS = (  # tables that the review page shows besides the sheet and photos
    "clusters",
    "cluster_summary",
    "label_vectors",
    "taxonomy",
    "landmark_values",
    "landmarks",
)


def apply_review(
    runner: Runner,
    who: str,
    sheets: Sequence[Path] = (),
    sure: bool = False,
) -> "Applied":
    """Add the decisions of review sheets to the decisions; return the changes.

    Without ``sheets``, all sheets of the work folder that a person changed are applied. If clusters
    are edited, the cluster stage runs again, unless it is stale for another reason too. A sheet
    that is saved again meanwhile is kept, as one with edits that are not applied.

    Args:
        runner: of the pipeline and its work folder.
        who: name that signs each decision.
        sheets: files to apply.
        sure: apply doubtful decisions too (see ``apply_sheets``), and any number of changes.

    Raises:
        InvalidData: all faults of all sheets, doubtful decisions, or more changes than
            ``review.largest_change``; nothing was applied.
    """
    stage, workspace = runner.stage("review"), runner.workspace
    with runner.alone():
        before = runner.lock.hashes(stage.writes, workspace)  # taken before the sheets are read
        paths = sheets or _edited_sheets(runner, stage)
        with _labels_held(runner):
            files = load_function("hgld.review.spreadsheet:read_files")(paths)
            applied, decisions, edits, taxonomy = _apply_files(runner, files, who, sure)
            if not sure:
                require = load_function("hgld.review.apply:require_few_changes")
                require(applied.changes, decisions, workspace.pipeline.review.largest_change)
            reasons = judge(runner.stage("cluster"), runner.lock, workspace).reasons
            if taxonomy is not None:
                counts = _write_taxonomy(runner, taxonomy, who)
                runner.listener.notice(f"the taxonomy is edited: {edited_words(counts)}")
            _append(runner, "decisions", decisions, applied.decisions)
            edited = _append(runner, "cluster_edits", edits, applied.cluster_edits)
            comments = load_function("hgld.review.comments:read_comments")
            _comment(runner, comments(chain.from_iterable(files.values())), who)
        done = [path.resolve() for path in paths]
        for name in stage.writes:
            if workspace.path(name).resolve() in done:
                runner.lock.accept(stage, name, before[name])
        cluster = runner.stage("cluster")
        killed = reasons == EDITS_CHANGED or runner.lock.is_unfinished(cluster)  # an apply was
        if killed or (edited and not reasons):
            runner.run_if_needed(cluster)
        elif edited:
            runner.listener.notice("clusters are edited; the next `hgld run` makes them again")
    return applied


def preview_review(runner: Runner, who: str, sheets: Sequence[Path] = ()) -> list[str]:
    """Return what applying the sheets would change, counted by kind with examples, in lines.

    Raises:
        InvalidData: all faults of all sheets, or doubtful decisions.
    """
    from hgld.review.apply import describe_changes, require_few_changes
    from hgld.review.spreadsheet import read_files

    with runner.alone():
        paths = sheets or _edited_sheets(runner, runner.stage("review"))
        applied, decisions, _, taxonomy = _apply_files(runner, read_files(paths), who, sure=False)
    lines = describe_changes(applied)
    if taxonomy is not None:
        counts = {name: len(rows) + len(new) for name, (rows, new) in taxonomy.changes().items()}
        lines.append(f"the taxonomy: {edited_words(counts)}")
    lines = lines or ["nothing would change"]
    try:
        largest = runner.workspace.pipeline.review.largest_change
        require_few_changes(applied.changes, decisions, largest)
    except InvalidData as refused:
        lines.append(f"without --yes: {refused}")
    return lines


def _apply_files(
    runner: Runner, files: "Mapping[Path, Sequence[Sheet]]", who: str, sure: bool
) -> "tuple[Applied, pd.DataFrame, pd.DataFrame, Taxonomy | None]":
    """Return the sheets as applied, the decisions and edits of clusters before, and the taxonomy.

    The taxonomy is None unless a sheet edits it; the decisions that follow it count as before.
    """
    names = ("clusters", "label_vectors", "taxonomy", "decisions", "cluster_edits", "class_hints")
    inputs = [runner.read(name, runner.stage("review")) for name in names]
    taxonomy = _edit_by_sheets(runner, chain.from_iterable(files.values()))
    if taxonomy is not None:  # the values are read with the new names
        rows = _taxonomy_rows(runner, taxonomy, who)["decisions"]
        inputs[2] = taxonomy.table
        inputs[3] = pd.concat([inputs[3], rows], ignore_index=True)
    apply = load_function("hgld.review.apply:apply_sheets")
    applied = apply(files, *inputs, who=who, when=runner.now, sure=sure)
    return applied, inputs[3], inputs[4], taxonomy


def save_choices(
    runner: Runner, choices: Sequence[Mapping[str, str]], who: str, source: str
) -> "Applied":
    """Add single decisions as one entry, while no other hgld adds any.

    Only the labels folder is locked, so that pages can save while a stage runs.

    Args:
        runner: of the pipeline and its work folder.
        choices: key, decision, supercategory, kind, note and base of each (``apply_choices``).
        who: name that signs each decision.
        source: name of what they were made in, for the log.

    Raises:
        InvalidData: all faults of all choices; nothing was added.
    """
    stage = runner.stage("review")
    names = ("clusters", "taxonomy", "decisions", "cluster_edits", "class_hints")
    with _labels_held(runner):
        inputs = [runner.read(name, stage) for name in names]
        apply = load_function("hgld.review.apply:apply_choices")
        applied: Applied = apply(choices, *inputs, who=who, when=runner.now, source=source)
        _append(runner, "decisions", inputs[2], applied.decisions)
    return applied


def add_comment(runner: Runner, key: str, text: str, who: str) -> None:
    """Append a comment on a value.

    Raises:
        UsageError: the sheet has no such value, or the text is empty.
    """
    known = load_function("hgld.hierarchy.clean:value_keys")(_clusters(runner)).tolist()
    if key not in known:
        raise UsageError(f"no value {key} in clusters.csv{nearest(key, known)}")
    if not text.strip():
        raise UsageError("a comment needs a text")
    with _labels_held(runner):
        _comment(runner, [(key, text)], who)


def _comment(runner: Runner, said: Sequence[tuple[str, str]], who: str) -> None:
    if said:
        before = runner.read("comments", runner.stage("review"))
        append = load_function("hgld.review.comments:append_comments")
        _append(runner, "comments", before, append(before, said, who=who, when=runner.now))


def read_threads(runner: Runner) -> dict[str, list[list[str]]]:
    """Return value key -> who, when and text of each comment, oldest first."""
    comments = runner.read("comments", runner.stage("review"))
    threads: dict[str, list[list[str]]] = load_function("hgld.review.comments:threads_of")(comments)
    return threads


def undo_saved(runner: Runner, entry: str, who: str) -> list[str]:
    """Take a save of a page back; return what was changed since and stays.

    It does as ``undo_entry``, but locks the work folder only to take back an edit of the taxonomy.
    """
    from hgld.review.entries import find_entry

    if find_entry(list_entries(runner), entry).cells:
        return undo_entry(runner, entry, who, "")[1]
    with _labels_held(runner):
        return _take_back(runner, find_entry(list_entries(runner), entry), who, "")


def _take_back(runner: Runner, entry: "Entry", who: str, why: str) -> list[str]:
    """Take back the decisions and edits of clusters of an entry; return what stays."""
    stage = runner.stage("review")
    tables = [runner.read(name, stage) for name in LOGGED[:2]]
    undo = load_function("hgld.review.undo:undo_entry")
    undone = undo(*tables, _clusters(runner), entry, who=who, when=runner.now, why=why)
    _append(runner, "decisions", tables[0], undone.decisions)
    _append(runner, "cluster_edits", tables[1], undone.cluster_edits)
    return list(undone.left)


@contextmanager
def _labels_held(runner: Runner) -> Iterator[None]:
    """Hold the lock of the labels folder; wait for other work folders that hold it."""
    labels = runner.workspace.pipeline.labels
    labels.mkdir(parents=True, exist_ok=True)
    taken = f"{labels}: another hgld is adding decisions"
    with hold(labels / ".lock", taken, waiting=runner.listener.notice):
        if finish_files(labels):
            runner.listener.notice(f"{labels}: finished the edit of the taxonomy that was stopped")
        yield


def _edited_sheets(runner: Runner, stage: Stage) -> list[Path]:
    """Return the sheets in the work folder that a person changed."""
    sheet = runner.workspace.path("review")
    if not sheet.exists():
        raise MissingInput(f"{sheet}: does not exist; `hgld review` writes it")
    names = [n for n in stage.writes if not runner.lock.is_own(stage, n, runner.workspace)]
    return [path for name in names if (path := runner.workspace.path(name)).is_file()]


def _append(runner: Runner, name: str, before: pd.DataFrame, after: pd.DataFrame) -> int:
    """Append the new rows of a table to its file; return their number."""
    table, rows = declared_table(name), after.iloc[len(before) :]
    if len(rows):
        table.append(rows, runner.workspace.path(name))
    return len(rows)


def undo_decisions(runner: Runner, keys: Sequence[str], who: str, why: str) -> None:
    """Append, for each value, the decision that held before its last one."""
    _change_decisions(runner, "undo_decisions", keys, who, why)


def redo_decisions(runner: Runner, keys: Sequence[str], who: str, why: str) -> None:
    """Append, for each value, the decision that its last undo took back."""
    _change_decisions(runner, "redo_decisions", keys, who, why)


def _change_decisions(
    runner: Runner, function: str, keys: Sequence[str], who: str, why: str
) -> None:
    with runner.alone(), _labels_held(runner):
        decisions = runner.read("decisions", runner.stage("review"))
        change = load_function(f"hgld.review.undo:{function}")
        after = change(decisions, _clusters(runner), keys, who=who, when=runner.now, why=why)
        _append(runner, "decisions", decisions, after)


def list_entries(runner: Runner) -> "list[Entry]":
    """Return the entries of the log: all applies, saves and undos of the labels folder."""
    stage = runner.stage("review")
    tables = [runner.read(name, stage) for name in LOGGED]
    entries: list[Entry] = load_function("hgld.review.entries:list_entries")(*tables)
    return entries


def undo_entry(
    runner: Runner, asked: str, who: str, why: str, redo: bool = False
) -> "tuple[Entry, list[str]]":
    """Take an entry back; return it, and what was changed since and stays.

    Args:
        runner: of the pipeline and its work folder.
        asked: number or id of the entry; empty: the last undo that can be taken back.
        who: name that signs the undo.
        why: reason.
        redo: take back an undo only.

    Raises:
        UsageError: there is no such entry, or it is no undo where one is needed.
        InvalidData: nothing of it is in force.
    """
    from hgld.review.entries import find_entry
    from hgld.review.undo import find_undo

    stage = runner.stage("review")
    with runner.alone(), _labels_held(runner):
        entries = list_entries(runner)
        if asked:
            entry = find_entry(entries, asked)
        else:
            decisions, edits = (runner.read(name, stage) for name in LOGGED[:2])
            entry = find_undo(decisions, edits, _clusters(runner), entries)
        if redo and entry.source != "undo":
            raise UsageError(f"entry {entry.number} ({entry.id}) is no undo; `hgld reviews undo`")
        if entry.cells:
            taxonomy = _open_taxonomy(runner)
            try:
                stays = taxonomy.undo(entry.cells, entry.rows)
            except InvalidData as fault:
                raise InvalidData(f"entry {entry.number} stays as it is: {fault}") from None
            _write_taxonomy(runner, taxonomy, who, "redo" if entry.source == "undo" else "undo")
            return entry, stays
        return entry, _take_back(runner, entry, who, why)


def conflict_sheet(runner: Runner) -> pd.DataFrame:
    """Return the rows of the review sheet that are in conflict, made again from its inputs."""
    with runner.alone():
        sheet: pd.DataFrame = runner.make(runner.stage("review"))["review"]
    return sheet[sheet["status"] == "conflict"]


def _clusters(runner: Runner) -> Any:
    """Return the clusters, for the labels of classes; empty before the first clustering."""
    table, path = declared_table("clusters"), runner.workspace.path("clusters")
    return table.read(path) if path.is_file() else table.empty()


def edit_taxonomy(runner: Runner, edits: "Sequence[TaxonomyEdit]", who: str) -> dict[str, int]:
    """Edit the taxonomy and all that names its supercategories; return table -> changed rows.

    An edit that the record shows as made, and that still holds, is not made again: after a kill,
    the same call completes it.

    Raises:
        InvalidData: all edits that cannot be made; none is.
    """
    with runner.alone(), _labels_held(runner):
        taxonomy = _open_taxonomy(runner)
        recorded = runner.read("taxonomy_edits", runner.stage("review"))
        taxonomy.make([edit for edit in edits if not taxonomy.is_made(edit, recorded)])
        return _write_taxonomy(runner, taxonomy, who)


def edited_words(counts: Mapping[str, int]) -> str:
    """Return which files an edit of the taxonomy changed, as text."""
    changed = (f"{table}.csv {count:,}" for table, count in counts.items() if count)
    return "rows changed: " + (", ".join(changed) or "none")


def _edit_by_sheets(runner: Runner, sheets: "Iterable[Sheet]") -> "Taxonomy | None":
    """Return the taxonomy as sheets edit it; None if they do not."""
    from hgld.review.taxonomy import read_taxonomy_edits

    stage = runner.stage("review")
    edits = read_taxonomy_edits([*sheets], runner.read("taxonomy", stage))
    if not edits:
        return None
    taxonomy, recorded = _open_taxonomy(runner), runner.read("taxonomy_edits", stage)
    taxonomy.make([edit for edit in edits if not taxonomy.is_made(edit, recorded)])
    return taxonomy if taxonomy.record else None


def read_taxonomy(runner: Runner) -> list[dict[str, Any]]:
    """Return the supercategories with the number of decisions, class roots and overrides."""
    taxonomy = _open_taxonomy(runner)
    rows = taxonomy.state["taxonomy"].values()
    return [{**row, **taxonomy.users(row["supercategory"])} for row in rows]


def list_decided(runner: Runner, name: str) -> list[dict[str, str]]:
    """Return key and label of the values that are decided as a supercategory."""
    keys = _open_taxonomy(runner).decided_as(name)
    clusters = _clusters(runner)
    labels = dict(zip(clusters["class_id"], clusters["instance_of"], strict=True))
    return [{"key": key, "label": labels.get(key, "")} for key in keys]


def _open_taxonomy(runner: Runner) -> "Taxonomy":
    from hgld.review.taxonomy import EDITED, Taxonomy

    stage, tables = runner.stage("review"), {}
    for name in EDITED:
        runner.read(name, stage)  # checks it
        path = runner.workspace.path(name)
        if path.is_file():  # with the columns that people added
            tables[name] = pd.concat(parse_csv(path, declared_table(name).columns))
    return Taxonomy(tables, runner.read("decisions", stage))


def _taxonomy_rows(
    runner: Runner, taxonomy: "Taxonomy", who: str, source: str = "taxonomy"
) -> dict[str, pd.DataFrame]:
    """Return the rows that an edit of the taxonomy appends, as one entry."""
    from hgld.review.entries import entry_of

    recorded = len(runner.read("taxonomy_edits", runner.stage("review")))
    made_of = [str(recorded), *map(str, taxonomy.record)]  # the same edit may be made twice
    return taxonomy.new_rows(who, runner.now, entry_of(made_of, who, runner.now, source))


def _write_taxonomy(
    runner: Runner, taxonomy: "Taxonomy", who: str, source: str = "taxonomy"
) -> dict[str, int]:
    """Write all changed files together; return table -> number of changed rows."""
    appended = _taxonomy_rows(runner, taxonomy, who, source)
    counts: dict[str, int] = {}
    with atomic_files(runner.workspace.pipeline.labels) as folder:
        for name, (changed, added) in taxonomy.changes().items():
            counts[name] = len(changed) + len(added)
            path = runner.workspace.path(name)
            if counts[name]:
                (folder / path.name).write_bytes(edit_csv(path.read_bytes(), changed, added))
        for name, rows in appended.items():
            path = runner.workspace.path(name)
            if len(rows):
                if path.exists():
                    shutil.copyfile(path, folder / path.name)
                declared_table(name).append(rows, folder / path.name)
    return {**counts, "decisions": len(appended["decisions"])}


def suggest_clusters(runner: Runner, text: str) -> tuple[pd.DataFrame, tuple[int, str], Path]:
    """Measure a range of cluster counts as CSV and PNG; return also the best one and why."""
    stage, options = runner.stage("cluster"), runner.workspace.pipeline.cluster
    module = "hgld.hierarchy.cluster_choice"
    numbers = load_function(f"{module}:in_range")(text)
    path = runner.workspace.work / "cluster_range.png"
    with runner.alone():
        inputs = [runner.read(name, stage) for name in ("values", "label_vectors")]
        measured = load_function(f"{module}:measure_range")(*inputs, numbers, options)
        write_table(measured, path.with_suffix(".csv"))
        with atomic_path(path) as temporary:
            load_function(f"{module}:draw_range")(measured, options.clusters, temporary)
    return measured, load_function(f"{module}:suggested")(measured), path


def blind_sheet(runner: Runner, seed: int, hints: bool) -> pd.DataFrame:
    """Return the review sheet for an annotator who must not see other decisions."""
    with runner.alone():
        return _blind_sheet(runner, seed, hints)


def _blind_sheet(runner: Runner, seed: int, hints: bool) -> pd.DataFrame:
    names = ("clusters", "landmark_values", "landmarks", "taxonomy", "decisions", "class_hints")
    tables = [runner.read(name, runner.stage("review")) for name in names]
    blind = load_function("hgld.review.blind:blind_sheet")
    sheet: pd.DataFrame = blind(*tables, seed=seed, hints=hints)
    return sheet


def write_workbook(runner: Runner) -> Path:
    """Write ``review.xlsx``: the sheets, made again from their inputs, with drop-down lists."""
    stage, work = runner.stage("review"), runner.workspace.work
    path, mark = work / "review.xlsx", work / ".state" / "review" / "review.xlsx.sha256"
    with runner.alone():
        sheets = runner.make(stage)
        write = load_function("hgld.review.workbook:write_workbook")
        if path.exists() and not (mark.exists() and mark.read_text() == hash_file(path)):
            copy = copy_beside(path)
            runner.listener.notice(f"{path.name} held edits; a copy is in {copy.name}")
        with atomic_path(path) as temporary:
            write(sheets, runner.read("taxonomy", stage), temporary)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(hash_file(path))
    return path


def write_review_page(runner: Runner) -> Path:
    """Write ``review.html``: the rows of the sheet, made again from its inputs, as one page.

    ``review.csv`` is neither read nor changed, so edits in it are kept. Only photos that the
    pipeline would export are shown, since a page is passed on to other people.
    """
    stage, workspace = runner.stage("review"), runner.workspace
    path = workspace.work / "review.html"
    with runner.alone():
        page = render_sheet(
            runner,
            runner.make(stage)["review"],
            command=f"hgld review {workspace.words} --apply review.csv",
            decisions=runner.read("decisions", stage),
            threads=read_threads(runner),
        )
        with atomic_path(path) as temporary:
            temporary.write_text(page, encoding="utf-8")
    return path


def write_blind_page(runner: Runner, path: Path, seed: int) -> int:
    """Write a blind copy of the sheet, without hints, as a page; return the number of its rows.

    It saves a CSV with the name of the page.
    """
    file, taxonomy = f"{path.stem}.csv", runner.workspace.path("taxonomy")
    with runner.alone():
        sheet = _blind_sheet(runner, seed, hints=False)
        command = f"hgld reviews agree {quote(file)} OTHER.csv --taxonomy {quote(str(taxonomy))}"
        page = render_sheet(runner, sheet, command=command, blind_file=file)
        with atomic_path(path) as temporary:
            temporary.write_text(page, encoding="utf-8")
    return len(sheet)


def render_sheet(runner: Runner, sheet: pd.DataFrame, **facts: Any) -> str:
    """Return the page of a sheet with the tables and photos that belong to it."""
    stage, workspace = runner.stage("review"), runner.workspace
    page: str = load_function("hgld.review.page:render_page")(
        sheet,
        *(runner.read(name, stage) for name in PAGE_READS),
        shown_images(runner),
        options=workspace.pipeline.review,
        source=workspace.source,
        title=workspace.pipeline.title or workspace.work.name,
        taxonomy_vectors=runner.read("taxonomy_vectors", stage),
        **facts,
    )
    return page


def shown_images(runner: Runner) -> Any:
    """Return the images that the pipeline would export."""
    stage = runner.stage("review")
    images, removals = (runner.read(name, stage) for name in ("images", "removals"))
    withhold = load_function("hgld.shards.shard_plan:withhold")
    shown, _ = withhold(images, removals, runner.workspace.pipeline.export.licenses)
    return shown
