"""Actions on the review of a run: apply sheets, undo decisions, edit the taxonomy.

Each action holds the lock of the work folder, so that no sheet is read while a stage writes it.
Decisions and edits of clusters are only appended: their files keep every row and column. Several
work folders may share them, so an action that appends also locks the labels folder, from reading
to writing. What loads scikit-learn is imported by the actions that need it.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from hgld.artifacts import (
    ARTIFACTS,
    Json,
    atomic_files,
    declared_table,
    edit_csv,
    hash_file,
    parse_csv,
)
from hgld.cli.review_pages import (
    WORKBOOK,
    accept_workbook,
    edited_workbook,
    read_clusters,
    read_tables,
    suggested_sheet,
    vectors_of_clusters,
)
from hgld.config import KIND_SEPARATOR
from hgld.errors import InvalidData, MissingInput, UsageError
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.decisions import kinds_of
from hgld.hierarchy.kinds import is_of_levels
from hgld.pipeline.lock import judge
from hgld.pipeline.run import Runner
from hgld.pipeline.stages import load_function
from hgld.review import undo
from hgld.review.comments import append_comments, read_comments
from hgld.review.entries import FIRST, Entry, entry_of, find_entry, is_taken_back
from hgld.review.entries import list_entries as entries_of
from hgld.review.identities import Identities, Names
from hgld.review.spreadsheet import Sheet, read_files, read_sheets
from hgld.review.taxonomy import (
    EDITED,
    Taxonomy,
    TaxonomyEdit,
    distinct_names,
    numbered_names,
    present_names,
    proposed_name,
    read_taxonomy_edits,
    rename_above,
)
from hgld.tasks import say
from hgld.words import nearest, some_of

if TYPE_CHECKING:
    from hgld.review.apply import Applied

EDITS_CHANGED = (f"{ARTIFACTS['cluster_edits'].file} changed",)
LOGGED = ("decisions", "cluster_edits", "taxonomy_edits")


def apply_review(
    runner: Runner,
    who: str,
    sheets: Sequence[Path] = (),
    sure: bool = False,
) -> "Applied":
    """Add the decisions of review sheets to the decisions; return the changes.

    Without ``sheets``, all sheets of the work folder that a person changed are applied,
    also its workbook. If clusters are edited, the cluster stage runs again, unless it is stale for
    another reason too. A sheet that is saved again meanwhile is kept, as one with edits that are
    not applied.

    Args:
        runner: of the pipeline and its work folder.
        who: name that signs each decision.
        sheets: files to apply.
        sure: apply doubtful decisions too (see ``apply_sheets``), and any number of changes.

    Raises:
        InvalidData: all faults of all sheets, doubtful decisions, or more changes than
            ``review.largest_change``; nothing was applied.
    """
    from hgld.review.apply import require_few_changes

    stage, workspace = runner.stage("review"), runner.workspace
    with runner.alone():
        before = runner.lock.hashes(stage.writes)  # taken before the sheets are read
        paths = sheets or _edited_sheets(runner)
        books = {path.resolve(): hash_file(path) for path in edited_workbook(runner)}
        with runner.hold_labels():
            files = read_files(paths)
            applied, decisions, edits, taxonomy = _apply_files(runner, files, who, sure)
            if not sure:
                largest = workspace.pipeline.review.largest_change
                require_few_changes(applied.changes, decisions, largest)
            reasons = judge(runner.stage("cluster"), runner.lock).reasons
            if taxonomy is not None:
                counts = _write_taxonomy(runner, taxonomy, who)
                runner.listener.notice(f"the taxonomy is edited: {edited_words(counts)}")
            _append(runner, "decisions", decisions, applied.decisions)
            edited = _append(runner, "cluster_edits", edits, applied.cluster_edits)
            _comment(runner, read_comments(chain.from_iterable(files.values())), who)
        done = [path.resolve() for path in paths]
        for name in stage.writes:
            if workspace.path(name).resolve() in done:
                runner.lock.accept(stage, name, before[name])
        for path, sha256 in books.items():
            if path in done:
                accept_workbook(runner, sha256)
        cluster = runner.stage("cluster")
        killed = reasons == EDITS_CHANGED or runner.lock.is_unfinished(cluster)  # an apply was
        if killed or (edited and not reasons):
            runner.run_if_needed(cluster)
        elif edited:
            runner.listener.notice("clusters are edited; the next `hgld run` makes them again")
    return applied


def apply_link_sheet(runner: Runner, who: str, path: Path | None = None) -> int:
    """Add the items that a person wrote into the sheet of links; return the number of new rows.

    Args:
        runner: of the pipeline and its work folder.
        who: name that signs each row.
        path: of the sheet; None: that of the work folder.

    Raises:
        InvalidData: cells that name no item; nothing was applied.
    """
    stage, workspace = runner.stage("link"), runner.workspace
    own = workspace.path("link_review")
    with runner.alone():
        before = runner.lock.hashes(stage.writes)
        sheet, *_ = read_sheets(path or own)  # a workbook may have empty ones behind it
        sheet.require(("name", "qid"))
        rows = [(row.number, row.cells) for row in sheet.rows]
        added = save_links(runner, rows, who, path or own)
        if path is None or path.resolve() == own.resolve():
            runner.lock.accept(stage, "link_review", before["link_review"])
    return added


def save_links(
    runner: Runner, rows: Sequence[tuple[int, Mapping[str, str]]], who: str, path: Path
) -> int:
    """Add answers about links while no other hgld adds any; return the number of new rows.

    Args:
        runner: of the pipeline and its work folder.
        rows: number, and name, qid and note of each (``apply_links``).
        who: name that signs each row.
        path: of what they are from, for errors.

    Raises:
        InvalidData: cells that name no item; nothing was added.
    """
    with runner.hold_labels():
        links = runner.read("links", "link")
        apply = load_function("hgld.hierarchy.link_table:apply_links")
        after = apply(rows, links, who=who, when=runner.now, path=path)
        return _append(runner, "links", links, after)


def preview_review(
    runner: Runner, who: str, sheets: Sequence[Path] = (), sure: bool = False
) -> tuple[list[tuple[str, str]], InvalidData | None]:
    """Return what applying the sheets would change, and why ``apply_review`` would refuse it.

    The changes are counted by kind, with examples.

    Raises:
        InvalidData: all faults of all sheets, or doubtful decisions.
    """
    from hgld.review.apply import describe_changes, require_few_changes

    with runner.alone():
        paths = sheets or _edited_sheets(runner)
        applied, decisions, _, taxonomy = _apply_files(runner, read_files(paths), who, sure)
    lines = describe_changes(applied)
    if taxonomy is not None:
        counts = {name: len(rows) + len(new) for name, (rows, new) in taxonomy.changes().items()}
        lines.append(("", f"the taxonomy: {edited_words(counts)}"))
    try:
        if not sure:
            largest = runner.workspace.pipeline.review.largest_change
            require_few_changes(applied.changes, decisions, largest)
    except InvalidData as refused:
        return lines, refused
    return lines or [("", "nothing would change")], None


def _apply_files(
    runner: Runner, files: Mapping[Path, Sequence[Sheet]], who: str, sure: bool
) -> "tuple[Applied, pd.DataFrame, pd.DataFrame, Taxonomy | None]":
    """Return the sheets as applied, the decisions and edits of clusters before, and the taxonomy.

    The taxonomy is None unless a sheet edits it; the decisions that follow it count as before.
    """
    from hgld.review.apply import apply_sheets

    names = ("clusters", "label_vectors", "decisions", "cluster_edits", "class_hints")
    clusters, vectors, decisions, cluster_edits, hints = read_tables(runner, *names)
    vectors = vectors_of_clusters(runner, vectors)
    edits = runner.read("taxonomy_edits", "review")
    taxonomy = _edit_by_sheets(runner, chain.from_iterable(files.values()))
    if taxonomy is None:
        (table,) = read_tables(runner, "taxonomy")
    else:  # the values are read with the new names
        rows = _taxonomy_rows(runner, taxonomy, who)
        table = taxonomy.table
        decisions = pd.concat([decisions, rows["decisions"]], ignore_index=True)
        edits = pd.concat([edits, rows["taxonomy_edits"]], ignore_index=True)
    inputs = (clusters, vectors, table, decisions, cluster_edits, hints)
    signed: dict[str, Any] = {"who": who, "when": runner.now}
    applied = apply_sheets(files, *inputs, **signed, sure=sure, taxonomy_edits=edits)
    return applied, decisions, cluster_edits, taxonomy


def save_choices(
    runner: Runner, choices: Sequence[Mapping[str, str]], who: str, source: str, sitting: str = ""
) -> "Applied":
    """Add single decisions to the entry of their sitting, while no other hgld adds any.

    Only the labels folder is locked, so that pages can save while a stage runs.

    Args:
        runner: of the pipeline and its work folder.
        choices: rows of the sheet (``apply_choices``).
        who: name that signs each decision.
        source: name of what they were made in, for the log.
        sitting: see ``apply_choices``.

    Raises:
        InvalidData: all faults of all choices; nothing was added.
    """
    from hgld.review.apply import apply_choices

    names = ("clusters", "taxonomy", "decisions", "cluster_edits", "class_hints")
    with runner.hold_labels():
        *inputs, edits = read_tables(runner, *names, "taxonomy_edits")
        signed: dict[str, Any] = {"who": who, "when": runner.now, "source": source}
        applied = apply_choices(choices, *inputs, **signed, sitting=sitting, taxonomy_edits=edits)
        _append(runner, "decisions", inputs[2], applied.decisions)
    return applied


def list_sure(runner: Runner, least: float) -> list[dict[str, str]]:
    """Return the choices that accept the suggestions of at least a probability (0 to 1).

    Raises:
        UsageError: a sheet holds edits that are not applied; they would contradict these.
    """
    from hgld.review.sheets import sure_choices

    with runner.alone():
        for path in _edited_sheets(runner):
            raise UsageError(f"{path}: holds edits that are not applied; add --apply")
        return sure_choices(suggested_sheet(runner)[0], least)


def add_comment(runner: Runner, key: str, text: str, who: str) -> None:
    """Append a comment on a value.

    Raises:
        UsageError: there is no such value, or the text is empty.
    """
    require_value(runner, key)
    if not text.strip():
        raise UsageError("a comment needs a text")
    with runner.hold_labels():
        _comment(runner, [(key, text)], who)


def require_value(runner: Runner, key: str) -> None:
    """Raise UsageError if no value has this key."""
    known = value_keys(read_clusters(runner)).tolist()
    if key not in known:
        raise UsageError(f"no value {key} in clusters.csv{nearest(key, known)}")


def _comment(runner: Runner, said: Sequence[tuple[str, str]], who: str) -> None:
    if said:
        before = runner.read("comments", "review")
        after = append_comments(before, said, who=who, when=runner.now)
        _append(runner, "comments", before, after)


def undo_saved(runner: Runner, entry: str, rows: Sequence[str], who: str) -> list[str] | None:
    """Take a save of a page back; return what was changed since and stays.

    None: it is an edit of the taxonomy that somebody took back already.

    It does as ``undo_entry``, but locks the work folder only to take back an edit of the taxonomy.

    Args:
        runner: of the pipeline and its work folder.
        entry: id of the entry that holds the save.
        rows: ids of its decisions; of all of the entry without any.
        who: name that signs the undo.
    """
    entries = list_entries(runner)
    if (asked := find_entry(entries, entry)).cells:
        return None if is_taken_back(asked, entries) else undo_entry(runner, entry, who, "")[1]
    with runner.hold_labels():
        found = find_entry(list_entries(runner), entry)
        part = [row for row in found.rows if row.id in rows] if rows else found.rows
        return _take_back(runner, replace(found, rows=part), who, "")


def _take_back(runner: Runner, entry: Entry, who: str, why: str) -> list[str]:
    """Take back the decisions and edits of clusters of an entry; return what stays."""
    decisions, edits = read_tables(runner, *LOGGED[:2])
    names, signed = _names_to_restore(runner), {"who": who, "when": runner.now, "why": why}
    undone = undo.undo_entry(decisions, edits, read_clusters(runner), entry, names=names, **signed)
    _append(runner, "decisions", decisions, undone.decisions)
    _append(runner, "cluster_edits", edits, undone.cluster_edits)
    return list(undone.left)


def _edited_sheets(runner: Runner) -> list[Path]:
    """Return the sheets in the work folder that a person changed."""
    stage, sheet = runner.stage("review"), runner.workspace.path("review")
    if not sheet.exists():
        raise MissingInput(f"{sheet}: does not exist; `hgld review` writes it")
    names = [n for n in stage.writes if not runner.lock.is_own(stage, n)]
    found = [path for name in names if (path := runner.workspace.path(name)).is_file()]
    found += edited_workbook(runner)
    for path in map(runner.workspace.path, stage.writes):
        for other in (path.with_suffix(".ods"), path.with_suffix(".xlsx")):
            # a spreadsheet saves a CSV so if one does not take care
            newer = other.is_file() and (
                not path.is_file() or other.stat().st_mtime > path.stat().st_mtime
            )
            if newer and other.name != WORKBOOK:
                runner.listener.notice(
                    f"{other} is newer than {path.name} and not read; `hgld review "
                    f"{runner.workspace.words} {other} --apply` applies it"
                )
    return found


def _append(runner: Runner, name: str, before: pd.DataFrame, after: pd.DataFrame) -> int:
    """Append the new rows of a table to its file; return their number."""
    table, rows = declared_table(name), after.iloc[len(before) :]
    if len(rows):
        rows = _following(runner, rows)
        table.append(rows, runner.workspace.path(name))
    return len(rows)


def _following(runner: Runner, rows: pd.DataFrame) -> pd.DataFrame:
    """Return new edits with the last entry of the log, or ``FIRST``; decisions need none."""
    if "follows" not in rows or rows.empty:
        return rows
    return rows.assign(follows=next((entry.id for entry in list_entries(runner)[::-1]), FIRST))


def undo_decisions(
    runner: Runner, keys: Sequence[str], who: str, why: str, redo: bool = False
) -> None:
    """Append, for each value, the decision before its last one, or the one its last undo undid."""
    with runner.alone(), runner.hold_labels():
        decisions = runner.read("decisions", "review")
        names, signed = _names_to_restore(runner), {"who": who, "when": runner.now, "why": why}
        after = undo.undo_decisions(
            decisions, read_clusters(runner), keys, **signed, names=names, redo=redo
        )
        _append(runner, "decisions", decisions, after)


def list_entries(runner: Runner) -> list[Entry]:
    """Return the entries of the log: all applies, saves and undos of the labels folder."""
    return entries_of(*read_tables(runner, *LOGGED))


def undo_entry(
    runner: Runner, asked: str, who: str, why: str, redo: bool = False
) -> tuple[Entry, list[str]]:
    """Take an entry back; return it, and what was changed since and stays.

    Args:
        runner: of the pipeline and its work folder.
        asked: number or id of the entry; empty: the last undo that can be taken back.
        who: name that signs the undo.
        why: reason.
        redo: take back an undo only.

    Raises:
        UsageError: there is no such entry, or it is not the undo that is needed.
        InvalidData: nothing of it is in force.
    """
    with runner.alone(), runner.hold_labels():
        entries = list_entries(runner)
        if asked:
            entry = find_entry(entries, asked)
        else:
            decisions, edits = read_tables(runner, *LOGGED[:2])
            names = _names_to_restore(runner)
            entry = undo.find_undo(decisions, edits, read_clusters(runner), entries, names)
        if redo and entry.source != "undo":
            raise UsageError(f"entry {entry.number} ({entry.id}) is no undo; `hgld reviews undo`")
        if entry.cells:
            taxonomy = _open_taxonomy(runner)
            try:
                stays = taxonomy.undo(entry, entries)
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


def _names_to_restore(runner: Runner) -> Names:
    kinds = kinds_of(runner.read("taxonomy", "review"))
    return Identities(list_entries(runner)).names(kinds)


def edit_taxonomy(runner: Runner, edits: Sequence[TaxonomyEdit], who: str) -> dict[str, int]:
    """Edit the taxonomy and all that names its supercategories; return table -> changed rows.

    An edit that the record shows as made, and that still holds, is not made again: after a kill,
    the same call completes it.

    Raises:
        InvalidData: all edits that cannot be made; none is.
    """
    with runner.alone(), runner.hold_labels():
        taxonomy = _open_taxonomy(runner)
        recorded = runner.read("taxonomy_edits", "review")
        taxonomy.make(taxonomy.to_make(edits, recorded))
        return _write_taxonomy(runner, taxonomy, who)


def renamed_above(runner: Runner, level: str, old: str, new: str) -> list[TaxonomyEdit]:
    """Return the edits that rename a class of a level above the supercategories."""
    taxonomy = runner.read("taxonomy", "review")
    return rename_above(taxonomy, runner.workspace.pipeline.cluster.levels, level, old, new)


def proposed_edits(runner: Runner) -> list[TaxonomyEdit]:
    """Return the edits that take over the clusters as supercategories.

    Each cluster is added whose name neither is nor was a supercategory. Its kind is the path of its
    clusters in the levels above (``distinct_names``). The second cluster of a name is numbered:
    "pizza (2)". If supercategories have an empty kind or one of other levels, as after levels were
    added to the pipeline, only these are described: as the cluster is that holds most of their
    values. Those without values in a cluster are named in a notice.

    Raises:
        UsageError: the levels above are not clustered, or supercategories have a kind of other
            levels and none of them has values in a cluster.
    """
    options = runner.workspace.pipeline.cluster
    levels, again = options.levels, f"`hgld cluster {runner.workspace.words}`"
    if reasons := judge(runner.stage("cluster"), runner.lock).reasons:
        say(f"the clusters are stale ({reasons[0]}); {again} makes them again")
    columns = [f"level_{name}" for name in levels[:-1]]
    summary = runner.read("cluster_summary", "review")
    if not set(columns) <= set(summary):
        above_named = ", ".join(levels[:-1])
        first = "" if options.above else f"set cluster.above to the numbers of {above_named}, and "
        raise UsageError(f"the levels above the clusters are not clustered; {first}run {again}")
    taxonomy = runner.read("taxonomy", "review", other_levels=True)
    present = present_names(taxonomy, runner.read("taxonomy_edits", "review"))
    known = {name.casefold() for name in present}
    filled = summary[summary["values"] > 0]
    names = filled[[*columns, "cluster_name"]].map(proposed_name)
    names["cluster_name"] = numbered_names(names["cluster_name"].tolist())
    largest = names.loc[filled.sort_values("values", ascending=False, kind="stable").index]
    paths = largest.to_numpy().tolist()
    lacking = (n for n, kind in present.values() if columns and not is_of_levels(kind, levels))
    described = [*dict.fromkeys(lacking)]
    by_cluster = dict(zip(filled["cluster"], names.to_numpy().tolist(), strict=True))
    if described:
        found = _clusters_of(runner, described)
        if unknown := [name for name in described if name not in found]:
            fault = (f"no cluster has decided values of {some_of(unknown, 10)}, so that their kind "
                     "stays as it is: describe them (`hgld taxonomy describe` with --kind), or "
                     "remove them")  # fmt: skip
            if not found:
                raise UsageError(fault)
            say(fault)
        own = [[*by_cluster[cluster][:-1], name] for name, cluster in found.items()]
        above = distinct_names(own, levels)
        return [TaxonomyEdit("describe", n, kind=KIND_SEPARATOR.join(above[n])) for n in found]
    above = distinct_names(paths, levels)
    return [
        TaxonomyEdit("add", name, kind=KIND_SEPARATOR.join(above[name]))
        for name in names["cluster_name"]
        if name.casefold() not in known
    ]


def _clusters_of(runner: Runner, names: Iterable[str]) -> dict[str, int]:
    """Return supercategory -> the cluster with most of its decided values, if it has any."""
    clusters = read_clusters(runner)
    cluster_of = dict(zip(value_keys(clusters), clusters["cluster"], strict=True))
    taxonomy, found = _open_taxonomy(runner), dict[str, int]()
    for name in names:
        own = [cluster_of[key] for key in taxonomy.decided_as(name) if key in cluster_of]
        if own:
            found[name] = min(own, key=lambda cluster: (-own.count(cluster), cluster))
    return found


def edited_words(counts: Mapping[str, int]) -> str:
    """Return which files an edit of the taxonomy changed, as text."""
    changed = (f"{table}.csv {count:,}" for table, count in counts.items() if count)
    return "rows changed: " + (", ".join(changed) or "none")


def _edit_by_sheets(runner: Runner, sheets: Iterable[Sheet]) -> Taxonomy | None:
    """Return the taxonomy as sheets edit it; None if they do not."""
    before = runner.read("taxonomy", "review", other_levels=True)
    edits = read_taxonomy_edits([*sheets], before)
    if not edits:
        return None
    taxonomy = _open_taxonomy(runner)
    recorded = runner.read("taxonomy_edits", "review")
    edits = taxonomy.to_make(edits, recorded)
    taxonomy.require_present_classes(edits, recorded)
    taxonomy.make(edits)
    return taxonomy if taxonomy.record else None


def read_taxonomy(runner: Runner) -> list[dict[str, Any]]:
    """Return the supercategories with the number of decisions, class roots and overrides."""
    taxonomy = _open_taxonomy(runner)
    rows = taxonomy.state["taxonomy"].values()
    return [{**row, **taxonomy.users(row["supercategory"])} for row in rows]


def list_decided(runner: Runner, name: str) -> list[dict[str, str]]:
    """Return key and label of the values that are decided as a supercategory."""
    keys = _open_taxonomy(runner).decided_as(name)
    clusters = read_clusters(runner)
    labels = dict(zip(clusters["class_id"], clusters["instance_of"], strict=True))
    return [{"key": key, "label": labels.get(key, "")} for key in keys]


def _open_taxonomy(runner: Runner) -> Taxonomy:
    tables = {}
    for name in EDITED:
        runner.read(name, "review", other_levels=True)  # checks it
        path = runner.workspace.path(name)
        if path.is_file():  # with the columns that people added
            tables[name] = pd.concat(parse_csv(path, declared_table(name).columns))
    decisions = runner.read("decisions", "review")
    return Taxonomy(tables, decisions, runner.workspace.pipeline.cluster.levels)


def _taxonomy_rows(
    runner: Runner, taxonomy: Taxonomy, who: str, source: str = "taxonomy"
) -> dict[str, pd.DataFrame]:
    """Return the rows that an edit of the taxonomy appends, as one entry."""
    recorded = len(runner.read("taxonomy_edits", "review"))
    made_of = [str(recorded), *map(str, taxonomy.record)]  # the same edit may be made twice
    return taxonomy.new_rows(who, runner.now, entry_of(made_of, who, runner.now, source))


def _write_taxonomy(
    runner: Runner, taxonomy: Taxonomy, who: str, source: str = "taxonomy"
) -> dict[str, int]:
    """Write all changed files together; return table -> number of changed rows."""
    from hgld.review.agreement import rename_in_agreement

    appended = _taxonomy_rows(runner, taxonomy, who, source)
    appended = {name: _following(runner, rows) for name, rows in appended.items()}
    counts: dict[str, int] = {}
    agreement = runner.workspace.path("agreement")
    with atomic_files(runner.workspace.pipeline.labels) as folder:
        renames = any(row["column"] == "supercategory" for row in taxonomy.record)
        if agreement.is_file() and renames:
            document = Json(agreement.name, "labels")
            before = runner.read("taxonomy_edits", "review")
            recorded = pd.concat([before, appended["taxonomy_edits"]], ignore_index=True)
            present = {n: now for n, (now, _) in present_names(taxonomy.table, recorded).items()}
            measured = document.read(agreement)
            if (now := rename_in_agreement(measured, present)) != measured:
                document.write(now, folder / agreement.name)
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
