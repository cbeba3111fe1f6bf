"""Read a sheet of values: what each row says, and what is wrong with it.

Of the columns that are only there to be read, one is held to what it was: a label that is not its
key's tells of columns that were sorted apart from each other, and every decision would go to a
wrong value. All others are spoilt by spreadsheets as a matter of course (``0,25``), and decide
nothing; where they differ, a note says so.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hgld.artifacts import DECISIONS, KINDS
from hgld.config import nearest
from hgld.hierarchy.blanks import single_blanks
from hgld.hierarchy.decisions import PLACING, Decision
from hgld.hierarchy.sheets.evidence import has_changed
from hgld.hierarchy.sheets.spreadsheet import Row, Sheet
from hgld.tasks import say

__all__ = ["Value", "Wanted", "as_wanted", "keyed", "read_values"]

EDITABLE = ("decision", "supercategory", "kind", "note")
NEEDED = ("key", *EDITABLE)
HINTED = 20  # unknown keys for which the nearest is looked up, among thousands
COMPARED = ("landmarks", "images", "cluster")  # read-only cells that are told of when they differ


@dataclass(frozen=True)
class Value:
    """A value, or a decision without one: what the sheet's row of this key is held against."""

    key_type: str
    label: str
    evidence: str
    in_force: Decision | None
    cells: Mapping[str, object]


@dataclass(frozen=True)
class Wanted:
    """What a row of the sheet says, made whole from the taxonomy.

    ``confirmed``: it says again what holds, though the value is not what it was.
    """

    decision: str
    supercategory: str
    kind: str
    why: str
    confirmed: bool = field(default=False, compare=False)


def read_values(
    sheet: Sheet, values: Mapping[str, Value], kinds: Mapping[str, str]
) -> tuple[dict[str, Wanted], list[tuple[int, str]]]:
    """What the rows of a sheet of values (``keyed``) say, and what is wrong with them."""
    sheet.require(NEEDED)
    faults = _key_faults(sheet.rows, values)
    wanted: dict[str, Wanted] = {}
    for row in sheet.rows:
        value = values.get(row["key"])
        spoilt = row.damaged(EDITABLE) + (_mismatch(row, value) if value else [])
        found = _untouched(row, value, kinds) or _read_decision(row, kinds)
        if isinstance(found, Wanted):
            wanted[row["key"]] = found
        elif found:
            spoilt.append(found)
        faults += [(row.number, fault) for fault in spoilt]
    _say_differences(sheet, values)
    return wanted, faults


def keyed(sheet: Sheet) -> Sheet:
    """The sheet; one without keys has its labels as such, which are those of values without id."""
    if "key" in sheet.columns or "instance_of" not in sheet.columns:
        return sheet
    rows = [Row(row.number, {**row.cells, "key": row["instance_of"]}) for row in sheet.rows]
    return replace(sheet, columns=[*sheet.columns, "key"], rows=rows)


def _mismatch(row: Row, value: Value) -> list[str]:
    """A label that is not its key's, or a value that has become another since the sheet."""
    label = single_blanks(value.label)
    if row["instance_of"] and label and row["instance_of"] != label:
        why = f"{label!r}, the label of {row['key']}; was a column sorted or pasted by itself?"
        return [row.fault("instance_of", why)]
    if row["evidence"] and row["decision"] and has_changed(row["evidence"], value.evidence):
        now = f"{value.evidence!r}; the value has changed since this sheet was written"
        return [row.fault("evidence", now)]
    return []


def _untouched(row: Row, value: Value | None, kinds: Mapping[str, str]) -> Wanted | None:
    """The decision in force, where the row says it word for word: it need not fit any more."""
    decision = value.in_force if value else None
    wanted = as_wanted(decision, kinds)
    if value is None or decision is None or wanted is None:
        return None
    then = (decision.decision, decision.supercategory, decision.kind, single_blanks(decision.why))
    same = tuple(row[column] for column in EDITABLE) == then
    return replace(wanted, confirmed=_confirms(row, value, decision)) if same else None


def _confirms(row: Row, value: Value, decision: Decision) -> bool:
    """Whether a person wrote ``decided`` over the status of a decision that is out of date."""
    was_stale = has_changed(decision.evidence, value.evidence)
    return was_stale and row["status"].casefold() == "decided" and row["evidence"] == value.evidence


def _read_decision(row: Row, kinds: Mapping[str, str]) -> "Wanted | str | None":
    """What the row says, or what is wrong with it; None where it says nothing."""
    decision = row["decision"].casefold()
    if not decision:
        filled = [name for name in EDITABLE[1:] if row[name]]
        expected = f"keep, move, drop or unsure, since {' and '.join(filled)} is filled in"
        return row.fault("decision", expected) if filled else None
    if decision not in DECISIONS:
        return row.fault("decision", f"one of {', '.join(DECISIONS)}") + nearest(
            decision, DECISIONS
        )
    if decision == "drop":
        return Wanted(decision, "", "", row["note"])
    return _read_place(row, decision, kinds)


def _read_place(row: Row, decision: str, kinds: Mapping[str, str]) -> "Wanted | str":
    """The supercategory and kind of a row; ``unsure`` may leave them empty."""
    kind = row["kind"].casefold()
    if kind and kind not in KINDS:
        return row.fault("kind", f"{' or '.join(KINDS)}, or nothing") + nearest(kind, KINDS)
    if not row["supercategory"] and decision not in PLACING:
        return Wanted(decision, "", kind, row["note"])
    names = {name.casefold(): name for name in kinds}
    name = names.get(row["supercategory"].casefold())
    if name is None:
        near = nearest(row["supercategory"].casefold(), names)
        return row.fault("supercategory", "a name that is in taxonomy.csv") + near
    if kind and kind != kinds[name]:
        return row.fault("kind", f"{kinds[name]!r}, which '{name}' is in taxonomy.csv")
    return Wanted(decision, name, kinds[name], row["note"])


def _key_faults(rows: Sequence[Row], known: Collection[str]) -> list[tuple[int, str]]:
    """Keys that are no value of this run, or that stand there twice."""
    seen: dict[str, int] = {}
    faults: list[tuple[int, str]] = []
    for row in rows:
        key = row["key"]
        if key not in known:
            near = nearest(key, sorted(known)) if len(faults) < HINTED else ""
            fault = row.fault("key", "the key of a value in clusters.csv") + near
            faults.append((row.number, fault))
        elif key in seen:
            fault = row.fault("key", f"each key once; it stands in row {seen[key]} too")
            faults.append((row.number, fault))
        seen.setdefault(key, row.number)
    return faults


def as_wanted(decision: Decision | None, kinds: Mapping[str, str]) -> Wanted | None:
    """A decision in force as the untouched row of a sheet says it."""
    if decision is None:
        return None
    kind = decision.kind or kinds.get(decision.supercategory, "")
    why = single_blanks(decision.why)
    return Wanted(decision.decision, decision.supercategory, kind, why)


def _say_differences(sheet: Sheet, values: Mapping[str, Value]) -> None:
    for column in COMPARED:
        rows = [
            row.number
            for row in sheet.rows
            if (value := values.get(row["key"]))
            and row[column]
            and column in value.cells
            and _digits(row[column]) != str(value.cells[column])
        ]
        if rows:
            say(
                f"{sheet.name}: {column} differs from clusters.csv in {len(rows)} rows, the first "
                f"is row {rows[0]}; the column is only there to be read and changes nothing"
            )


def _digits(number: str) -> str:
    """A whole number without what a spreadsheet puts between its digits."""
    whole = re.sub(r"[.,]0{1,2}$", "", "".join(number.split()))
    return re.sub(r"[.,']", "", whole)
