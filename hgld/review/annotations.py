"""Annotations of one person, read from a review sheet or a file of decisions, and their diff.

A value is identified by its key, or by its label if the file has no keys. In a file of decisions,
those in force count; a conflict counts as undecided. A textual diff of two such CSVs also shows
changed blanks, order and counts; that of ``compare_annotations`` only the values whose decision
changed. ``hgld.review.agreement`` measures how far two people agree.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import pandas as pd

from hgld.artifacts import DECISIONS, columns_of, table_of
from hgld.errors import InvalidData
from hgld.hierarchy.decisions import PLACING, Decided, kinds_of
from hgld.review.spreadsheet import Sheet, SheetRow, plain_digits, read_sheets
from hgld.review.taxonomy import present_names
from hgld.tasks import say
from hgld.words import count_text, nearest

WEIGHTS = ("images", "landmarks", "count")  # the first one present is used


@dataclass(frozen=True)
class Annotation:
    """Annotation of one value.

    Attributes:
        cells: all cells of its row, by column.
        weight: number of its images (or landmarks, or uses); 0 if unknown.
        unit: name of the counted thing.
    """

    key: str
    label: str
    decision: str
    supercategory: str
    kind: str
    note: str
    weight: float
    unit: str
    cells: Mapping[str, str]

    @property
    def place(self) -> str:
        """Supercategory, or the reason for none in brackets; empty if undecided."""
        return self.supercategory if self.decision in PLACING else self._why_none

    @property
    def kind_place(self) -> str:
        """Kind, or the reason for none in brackets; empty if undecided."""
        return self.kind if self.decision in PLACING else self._why_none

    @property
    def said(self) -> tuple[str, ...]:
        """Decision, supercategory, kind and note."""
        return self.decision, self.supercategory, self.kind, self.note

    @property
    def words(self) -> str:
        """The annotation as text."""
        return " ".join(filter(None, (self.decision or "open", self.supercategory)))

    @property
    def _why_none(self) -> str:
        return f"({self.decision})" if self.decision else ""


@dataclass(frozen=True)
class Disagreement:
    """A value whose annotation differs between two files; None: the file does not have it."""

    before: Annotation | None
    after: Annotation | None

    @property
    def in_note_only(self) -> bool:
        """Whether the decision is the same and only the note differs."""
        return bool(self.before and self.after and self.before.said[:-1] == self.after.said[:-1])

    @property
    def words(self) -> str:
        """One line: the value, the old and the new annotation."""
        one = self.after or self.before
        assert one is not None
        before = self.before.words if self.before else "not there"
        after = self.after.words if self.after else "not there"
        name = one.label if one.label == one.key else f"{one.label} ({one.key})"
        if before == after and self.before and self.after:  # another kind, or another note
            kinds = [side.kind or "empty" for side in (self.before, self.after)]
            if kinds[0] != kinds[1]:
                return f"{name}: {after}, kind {' -> '.join(kinds)}"
            return f"{name}: {after}, note '{self.before.note}' -> '{self.after.note}'"
        why = f" ({one.note})" if self.after and one.note else ""
        return f"{name}: {before} -> {after}{why}"


def read_annotations(*paths: Path) -> list[dict[str, Annotation]]:
    """Read the annotations of each file by key, in order; by label if one of them has no keys.

    Capitals of a supercategory are ignored: its first spelling in these files counts.

    Raises:
        InvalidData: a file is missing, lacks a column, has an unknown decision, or two
            contradictory rows of a value.
    """
    sheets = [read_sheets(path)[0] for path in paths]
    keyed = all("key" in sheet.columns for sheet in sheets)
    sides = [_annotations(sheet, by_label=not keyed) for sheet in sheets]
    spelled: dict[str, str] = {}
    for one in chain.from_iterable(side.values() for side in sides):
        spelled.setdefault(one.supercategory.casefold(), one.supercategory)
    return [
        {key: replace(one, supercategory=spelled[one.supercategory.casefold()])
         for key, one in side.items()}
        for side in sides
    ]  # fmt: skip


def _annotations(sheet: Sheet, by_label: bool) -> dict[str, Annotation]:
    """Return the annotations by key; by label on request, or if the sheet has no keys."""
    by_label = by_label and "instance_of" in sheet.columns  # otherwise, keys may be labels
    name = "instance_of" if by_label or "key" not in sheet.columns else "key"
    sheet.require((name, "decision", "supercategory"))
    rows = sheet.rows
    if "supersedes" in sheet.columns:  # a file of decisions: those in force, blank for a conflict
        cells = [{column: row[column] for column in columns_of("decisions")} for row in rows]
        blank = dict.fromkeys(("decision", "supercategory", "kind", "why"), "")
        rows = [
            replace(row, cells={**row.cells, **blank}) if decision.rivals else row
            for decision in Decided(table_of("decisions", cells)).all()
            for row in [sheet.rows[decision.place]]
        ]
    found: dict[str, Annotation] = {}
    faults = []
    for row in rows:
        if fault := _fault(row, name, found):
            faults.append(fault)
        found[row[name]] = _annotation(row, row[name])
    if faults:
        head = f"{sheet.name}: {count_text(len(faults), 'fault')}"
        raise InvalidData(head, *(f"  {fault}" for fault in faults))
    return found


def weigh(
    annotations: Mapping[str, Annotation], counts: Mapping[str, Annotation]
) -> dict[str, Annotation]:
    """Return the annotations with the weights of the same values in another file."""
    return {
        key: replace(one, weight=(c := counts.get(key, one)).weight, unit=c.unit)
        for key, one in annotations.items()
    }


def complete(
    annotations: Mapping[str, Annotation], taxonomy: pd.DataFrame, recorded: pd.DataFrame
) -> dict[str, Annotation]:
    """Return the annotations with present names of supercategories, and their kinds.

    Args:
        annotations: by value; a notice names supercategories that the taxonomy never had.
        taxonomy: its table.
        recorded: its edits; renamed and merged supercategories have the name of today.
    """
    kinds, present = kinds_of(taxonomy), present_names(taxonomy, recorded)
    names = {name.casefold(): now for name, (now, _) in present.items()}
    said = {one.supercategory for one in annotations.values() if one.supercategory}
    if unknown := sorted(name for name in said if name.casefold() not in names):
        near = nearest(unknown[0].casefold(), names)
        say(f"{count_text(len(unknown), 'name')} not in taxonomy.csv, such as '{unknown[0]}'{near}")
    spelled = {
        key: names.get(one.supercategory.casefold(), one.supercategory)
        for key, one in annotations.items()
    }
    return {
        key: replace(one, supercategory=spelled[key], kind=kinds.get(spelled[key], one.kind))
        for key, one in annotations.items()
    }


def _fault(row: SheetRow, name: str, found: Mapping[str, Annotation]) -> str:
    decision = row["decision"].casefold()
    if not row[name]:
        return row.fault(name, "the value that the row is about")
    if row[name] in found and found[row[name]].cells != row.cells:
        return row.fault(name, "each value once, or the same row again")
    if decision and decision not in DECISIONS:
        return row.fault("decision", f"one of {', '.join(DECISIONS)}, or nothing", DECISIONS)
    if decision in PLACING and not row["supercategory"]:
        return row.fault("supercategory", f"a name, since the decision is {decision}")
    return ""


def _annotation(row: SheetRow, key: str) -> Annotation:
    unit = next((name for name in WEIGHTS if row[name]), "")
    count = plain_digits(row[unit])
    return Annotation(
        key,
        row["instance_of"] or key,
        row["decision"].casefold(),
        row["supercategory"],
        row["kind"].casefold(),
        row["note"] or row["why"],
        float(count) if count.isdecimal() else 0.0,
        unit,
        row.cells,
    )


def compare_annotations(
    before: Mapping[str, Annotation], after: Mapping[str, Annotation]
) -> Iterator[Disagreement]:
    """Return the values whose annotation differs, by key."""
    for key in sorted(before.keys() | after.keys()):
        one, other = before.get(key), after.get(key)
        if one is None or other is None or one.said != other.said:
            yield Disagreement(one, other)
