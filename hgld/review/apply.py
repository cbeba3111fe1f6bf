"""Apply review sheets: validate them, and append the new decisions.

If any cell is invalid, all faults are reported at once with row and column, and nothing is applied.
Deleted and unchanged rows change nothing: to reopen a value, write ``unsure``. The row of a value
takes precedence over the row of its cluster.

Each new decision supersedes those that its row was made from. If somebody decided the value
otherwise in the meantime, both stay in force and the value is in conflict.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import pandas as pd

from hgld.artifacts import Vectors, hash_file, records, table_of
from hgld.errors import InvalidData
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.decisions import Decided, Decision, answer_of, key_types_of, kinds_of
from hgld.review.clusters import Bulk, Fault, read_bulk
from hgld.review.entries import signature_of
from hgld.review.row_base import EDITABLE, evidence_of
from hgld.review.sheets import earlier_hints, hints_of
from hgld.review.spreadsheet import Sheet, SheetRow
from hgld.review.taxonomy import NO_EDITS, former_kinds, is_taxonomy_sheet, present_names
from hgld.review.values import Value, WantedDecision, as_wanted, keyed, read_values
from hgld.words import count_text, plural_text, share_text, single_blanks, some_of

EXAMPLES = 3  # of each kind of change
MANY = 10  # changes; fewer are never refused
SAID = ("decision", "supercategory", "kind", "why")
ChangeKind = Literal[
    "first decision", "changed", "reopened", "note", "confirmed", "settled", "conflict", "unchanged"
]


@dataclass(frozen=True)
class ValueChange:
    """Effect of a row on its value.

    Attributes:
        before: the decision in force until then, with its rivals.
        kind: ``reopened`` is a change to unsure, ``settled`` ends a conflict, ``conflict`` begins
            or widens one, ``note`` leaves the answer as it was, ``unchanged`` appends no row.
    """

    key: str
    label: str
    kind: ChangeKind
    before: Decision | None
    after: WantedDecision


@dataclass(frozen=True)
class Applied:
    """Decisions and edits of clusters with the new rows at their ends, and the changes by key.

    ``edits`` are the new edits of clusters.
    """

    decisions: pd.DataFrame
    cluster_edits: pd.DataFrame
    changes: Sequence[ValueChange]
    edits: Sequence[Mapping[str, str]] = ()


def apply_sheets(
    files: Mapping[Path, Sequence[Sheet]],
    clusters: pd.DataFrame,
    label_vectors: Vectors,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    cluster_edits: pd.DataFrame,
    class_hints: pd.DataFrame,
    *,
    who: str,
    when: str,
    sure: bool = False,
    taxonomy_edits: pd.DataFrame = NO_EDITS,
) -> Applied:
    """Append a row to ``decisions`` and ``cluster_edits`` for each change in the sheets.

    Sheets of values and of clusters are recognised by their columns; a workbook has both. An edit
    that is in the decisions already is not written again, so a sheet may be applied twice, for
    example after a kill.

    Decisions that seem to have moved to other keys are applied only if the caller is ``sure``. Rows
    with the old name of a supercategory get its present one, if the edits are given.

    Raises:
        InvalidData: all faults of all sheets, with row, column, found and expected value; or,
            unless ``sure``, moved decisions.
    """
    earlier = present_names(taxonomy, taxonomy_edits), former_kinds(taxonomy, taxonomy_edits)
    values = _values(clusters, decisions, class_hints, taxonomy, taxonomy_edits)
    kinds = kinds_of(taxonomy)
    sheets = [sheet for found in files.values() for sheet in found]
    wanted, bulk = _read_all(sheets, values, clusters, label_vectors, kinds, sure, *earlier)
    accepted = {
        key: WantedDecision("keep", supercategory, kinds[supercategory], why, supersedes=made_from)
        for key, (supercategory, why) in bulk.accepted.items()
        if values[key].in_force is None
        for made_from in [tuple(sorted(head.id for head in values[key].heads))]
    }
    together = dict(zip(cluster_edits["key"], cluster_edits["with_key"], strict=True))
    new = [edit for edit in bulk.edits if together.get(edit["key"]) != edit["with_key"]]
    source = ", ".join(path.name for path in files)
    signed = signature_of([hash_file(path) for path in files], who, when, source)
    decided, changes = _decide(decisions, {**accepted, **wanted}, values, kinds, signed)
    new_edits = table_of("cluster_edits", [{**edit, **signed, "follows": ""} for edit in new])
    return Applied(
        decided,
        pd.concat([cluster_edits, new_edits], ignore_index=True),
        changes,
        new,
    )


def apply_choices(
    choices: Sequence[Mapping[str, str]],
    clusters: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    cluster_edits: pd.DataFrame,
    class_hints: pd.DataFrame,
    *,
    who: str,
    when: str,
    source: str,
    sitting: str = "",
    taxonomy_edits: pd.DataFrame = NO_EDITS,
) -> Applied:
    """Append a row to ``decisions`` for each of some rows of ``review.csv``, given as cells.

    Args:
        choices: key, decision, supercategory, kind, note and base of each, each key once. They may
            have the ``evidence`` that was shown; those with the same ``block`` are a separate
            entry, as in a sheet.
        clusters: the values.
        taxonomy: the supercategories.
        decisions: all rows.
        cluster_edits: all rows.
        class_hints: hints of Wikidata's classes.
        who: name that signs them.
        when: date.
        source: name of what they were made in, for the log.
        sitting: choices with the same one, person and date are one entry of the log.
        taxonomy_edits: a choice may have the former name or kind of a supercategory.

    Raises:
        InvalidData: all faults of all choices; nothing is appended.
    """
    values = _values(clusters, decisions, class_hints, taxonomy, taxonomy_edits)
    kinds = kinds_of(taxonomy)
    names = ["key", *EDITABLE, "base"]
    rows = []
    for number, choice in enumerate(choices, 1):
        given = [*names, *(name for name in ("evidence", "block") if name in choice)]
        cells = {name: single_blanks(choice.get(name, "")) for name in given}
        rows.append(SheetRow(number, cells))
    earlier = present_names(taxonomy, taxonomy_edits), former_kinds(taxonomy, taxonomy_edits)
    found = read_values(Sheet(source, names, rows), values, kinds, *earlier)
    if found.faults:
        raise InvalidData(*_report(source, found.faults))
    made_of = [sitting] if sitting else [str(sorted(row.cells.items())) for row in rows]
    signed = signature_of(made_of, who, when, source)
    decided, changes = _decide(decisions, found.wanted, values, kinds, signed)
    return Applied(decided, cluster_edits, changes)


def _read_all(
    sheets: Sequence[Sheet],
    values: Mapping[str, Value],
    clusters: pd.DataFrame,
    label_vectors: Vectors,
    kinds: Mapping[str, str],
    sure: bool,
    present: Mapping[str, tuple[str, str]],
    earlier_kinds: Mapping[str, Collection[str]],
) -> tuple[dict[str, WantedDecision], Bulk]:
    """Read the rows of values and of clusters in all sheets; raise all faults together."""
    sheets = [sheet for sheet in sheets if not is_taxonomy_sheet(sheet)]  # applied before
    of_clusters = [sheet for sheet in sheets if {"action", "cluster"} <= set(sheet.columns)]
    bulk, faults = Bulk({}, []), dict[str, list[Fault]]()
    if of_clusters:
        bulk, faults = read_bulk(of_clusters, clusters, label_vectors, kinds)
    wanted: dict[str, WantedDecision] = {}
    doubts: list[str] = []
    for sheet in [keyed(sheet) for sheet in sheets if sheet not in of_clusters]:
        found = read_values(sheet, values, kinds, present, earlier_kinds)
        expected = "what the other sheet says of this key; apply one of them only"
        faults[sheet.name] = found.faults + [
            (row.number, row.fault("decision", expected))
            for row in sheet.rows
            if (now := found.wanted.get(row["key"])) and wanted.get(row["key"], now) != now
        ]
        if found.moved and not sure:
            doubts.append(
                f"{sheet.name}: {found.moved}, nothing was applied; were columns sorted without "
                "the others? Undo that, or add --yes if the rows are meant so"
            )
        wanted |= found.wanted
    lines = [line for name, faulty in faults.items() if faulty for line in _report(name, faulty)]
    if lines or doubts:
        raise InvalidData(*(lines or doubts))
    return wanted, bulk


def _values(
    clusters: pd.DataFrame,
    decisions: pd.DataFrame,
    class_hints: pd.DataFrame,
    taxonomy: pd.DataFrame,
    taxonomy_edits: pd.DataFrame,
) -> dict[str, Value]:
    """Return key -> value; including decisions without a value, since a sheet may show them."""
    decided, also = Decided(decisions), earlier_hints(class_hints, taxonomy, taxonomy_edits)
    gone = {
        d.key: Value(
            d.key_type,
            label,
            d.evidence,
            decided.history(d.key, label),
            decided.heads(d.key, label),
            {},
        )
        for d in decided.all_heads()
        for label in [d.key if d.key_type == "label" else ""]
    }
    evidences, here = evidence_of(clusters, hints_of(class_hints)), dict[str, Value]()
    rows = zip(
        value_keys(clusters), key_types_of(clusters), evidences, records(clusters), strict=True
    )
    for key, key_type, evidence, row in rows:
        found = row["class_id"], row["instance_of"]
        made = decided.history(*found), decided.heads(*found)
        here[key] = Value(key_type, found[1], evidence, *made, row, key, also.get(key, ()))
    # a copy from before a value had an id names it by its label
    labels = Counter(value.label for value in here.values())
    renamed = {v.label: v for v in here.values() if v.label in gone and labels[v.label] == 1}
    return {**gone, **renamed, **here}  # a current value wins


def describe_changes(applied: Applied) -> list[tuple[str, str]]:
    """Return the number of changes of each kind, and the kind with examples."""
    examples: dict[str, list[str]] = {kind: [] for kind in get_args(ChangeKind)}
    for change in applied.changes:
        after = " ".join(filter(None, (change.after.decision, change.after.supercategory)))
        before = change.before.conflict or change.before.signed if change.before else ""
        text = f"{change.label}: {f'{before} -> ' if before else ''}'{after}'"
        examples[change.kind].append(text)
    del examples["unchanged"]
    for edit in applied.edits:
        text = f"{edit['key']} goes with {edit['with_key']}"
        examples.setdefault(f"cluster {edit['action']}", []).append(text)
    lines = []
    for kind, found in examples.items():
        if found:
            plural = kind in ("first decision", "note", "conflict") and len(found) > 1
            head = plural_text(kind) if plural else kind
            lines.append((f"{len(found):>7,} ", f"{head}: {some_of(found, EXAMPLES, '; ')}"))
    return lines


def require_few_changes(
    changes: Sequence[ValueChange], decisions: pd.DataFrame, largest: float
) -> None:
    """Refuse changes of many decisions in force, as a wrong or badly sorted sheet makes.

    Args:
        changes: of all values of the sheets.
        decisions: all rows before them.
        largest: share of the decisions in force that may change; fewer than ten always may.

    Raises:
        InvalidData: more would change.
    """
    count = sum(change.kind in ("changed", "reopened", "conflict") for change in changes)
    total = sum(decision.decides for decision in Decided(decisions).all())
    if count >= MANY and count > largest * total:
        raise InvalidData(
            f"would change {count:,} of {count_text(total, 'decision')} in force, nothing was "
            f"applied (review.largest_change is {share_text(largest)}); look at them with "
            "--dry-run, then add --yes if they are meant so"
        )


def _decide(
    decisions: pd.DataFrame,
    wanted: Mapping[str, WantedDecision],
    values: Mapping[str, Value],
    kinds: Mapping[str, str],
    signed: Mapping[str, str],
) -> tuple[pd.DataFrame, list[ValueChange]]:
    """Return the decisions with a new row for each change, and the change of each value, by key."""
    changes = [
        ValueChange(key, values[key].label or key, kind, values[key].in_force, now)
        for key, now in sorted(wanted.items())
        for kind in [_kind(now, values[key], kinds, signed["who"])]
    ]
    rows = [
        {
            "key": values[change.key].key or change.key,
            "key_type": values[change.key].key_type,
            **{name: getattr(change.after, name) for name in SAID},
            "supersedes": " ".join(change.after.supersedes),
            "evidence": values[change.key].evidence,
            "undoes": "",
            **signed,
            # a block that the page accepted is a separate entry
            **(
                signature_of([block], signed["who"], signed["when"], block.split()[0])
                if (block := change.after.block)
                else {}
            ),
        }
        for change in changes
        if change.kind != "unchanged"
    ]
    return pd.concat([decisions, table_of("decisions", rows)], ignore_index=True), changes


def _kind(now: WantedDecision, value: Value, kinds: Mapping[str, str], who: str) -> ChangeKind:
    """Return what a wanted decision does to its value."""
    before, made_from = value.in_force, set(now.supersedes)
    current = made_from == {head.id for head in value.heads}
    # applied before, by this person to this state or by anybody as a side of the conflict
    known = [old for old in value.history if old.who == who and set(old.supersedes) == made_from]
    known += [] if current else value.heads
    if now == as_wanted(before, kinds):
        return "confirmed" if now.confirmed else "unchanged"
    if any(now == as_wanted(old, kinds) for old in known):
        return "unchanged"
    answer = answer_of(now.decision, now.supercategory)
    others = {head.answer for head in value.heads if head.id not in made_from} - {answer}
    if others - (set() if made_from else {"open"}):
        return "conflict"
    if before is None:
        return "first decision"
    if before.rivals:
        return "settled"
    if answer == before.answer:
        return "confirmed" if now.confirmed else "note"
    return "reopened" if now.decision == "unsure" else "changed"


def _report(name: str, faults: Sequence[Fault]) -> list[str]:
    """Return the faults in lines, by row."""
    texts = [text for _, text in sorted(faults, key=lambda fault: fault[0])]
    head = f"{name}: {count_text(len(texts), 'fault')}, nothing was applied"
    return [head, *(f"  {text}" for text in texts)]
