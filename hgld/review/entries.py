"""Entries of the labels: the rows of one apply, undo, accepted block, or sitting at a page.

The column ``entry`` of decisions.csv, cluster_edits.csv and taxonomy_edits.csv holds the id of the
entry and, after a blank, the name of its source (a file, ``page``, ``sure``, ``rule``,
``taxonomy``, ``undo``, ``redo``). Rows without one, of older files or written by hand, form an
entry for each person and day. Rows have a day but no time: the decisions of a day are in the order
of their file, and edits name in ``follows`` the entry that they come after.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import pandas as pd

from hgld.artifacts import records
from hgld.errors import UsageError
from hgld.hierarchy.decisions import ID_LENGTH, Decided, Decision, short_hash
from hgld.words import count_text, nearest, single_blanks

ROW = "row number"  # as column of an edit: where a row was, from 1 on, if they were not sorted
FIRST = "none"  # in the column follows of edits that were made before anything else


@dataclass(frozen=True)
class Entry:
    """One apply, undo, accepted block, or sitting at a page.

    Attributes:
        number: its place in the log, from 1 on; it may change if branches are merged.
        source: name of the file that was applied, or ``page``, ``sure`` or ``rule`` (a block of
            suggestions or values that end in a noun), ``taxonomy``, ``undo``, ``redo``.
        rows: its decisions.
        edits: its rows of cluster_edits.csv.
        cells: its rows of taxonomy_edits.csv.
    """

    number: int
    id: str
    who: str
    when: str
    source: str
    rows: Sequence[Decision] = field(repr=False)
    edits: Sequence[Mapping[str, str]] = field(repr=False)
    cells: Sequence[Mapping[str, str]] = field(repr=False)

    @property
    def counts(self) -> dict[str, int]:
        """Number of decisions and edits of each kind, the most frequent first."""
        found = Counter(row.decision for row in self.rows)
        found.update(f"cluster {edit['action']}" for edit in self.edits)
        edited = {(row["action"], row["key"]) for row in self.cells if row["table"] == "taxonomy"}
        found.update(f"taxonomy {action}" for action, _ in edited)
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))

    @property
    def names(self) -> list[str]:
        """Supercategories that it edits, "old -> new" if it renames or merges; else its values."""
        found: dict[str, str] = {}
        for row in self.cells:
            if row["table"] == "taxonomy":
                found.setdefault(row["key"], row["key"])
                before, after = single_blanks(row["before"]), single_blanks(row["after"])
                if row["column"] == "supercategory" and before and after:
                    found[row["key"]] = f"{before} -> {after}"
        return [*found.values()] or [*dict.fromkeys(row.key for row in self.rows)]


def list_entries(
    decisions: pd.DataFrame, cluster_edits: pd.DataFrame, taxonomy_edits: pd.DataFrame
) -> list[Entry]:
    """Return all entries, by date and then by their order in the files."""
    found: dict[tuple[str, str, str], tuple[list[Any], list[Any], list[Any]]] = {}
    for row in Decided(decisions).rows():
        found.setdefault((row.entry, row.who, row.when), ([], [], []))[0].append(row)
    for part, table in enumerate((cluster_edits, taxonomy_edits), 1):
        for edit in records(table):
            name = edit["entry"], edit["who"], edit["when"]
            found.setdefault(name, ([], [], []))[part].append(edit)
    entries = [
        Entry(0, name or short_hash(f"{who} {when}", ID_LENGTH), who, when, source, *made)
        for (entry, who, when), made in found.items()
        for name, _, source in [entry.partition(" ")]
    ]
    return [replace(entry, number=i) for i, entry in enumerate(_in_time(entries), 1)]


def _in_time(entries: Sequence[Entry]) -> list[Entry]:
    """Return entries by day, and edits right after the entry that they follow.

    Edits of older files, which name nothing, are the last ones of their day.
    """
    day_of = {entry.id: entry.when for entry in entries}
    later = defaultdict[str, list[Entry]](list)  # id of an entry, or a day -> what follows
    for entry in entries:
        follows = "" if entry.rows else next(iter([*entry.edits, *entry.cells]))["follows"]
        if follows in day_of or follows == FIRST:
            later[follows if day_of.get(follows) == entry.when else entry.when].append(entry)
    placed = {entry.id for after in later.values() for entry in after}
    found = []
    for day, made in groupby(sorted(entries, key=lambda one: one.when), lambda one: one.when):
        waiting = [*later[day], *(entry for entry in made if entry.id not in placed)][::-1]
        while waiting:
            found.append(waiting.pop())
            waiting += later.pop(found[-1].id, [])[::-1]
    return found


def find_entry(entries: Sequence[Entry], asked: str) -> Entry:
    """Return the entry with a number or an id.

    Raises:
        UsageError: there is none.
    """
    for entry in entries:
        if asked in (str(entry.number), entry.id):
            return entry
    near = nearest(asked, [entry.id for entry in entries])
    total = count_text(len(entries), "entry")
    raise UsageError(f"no entry {asked} in the log of {total}; `hgld reviews log` lists them{near}")


def is_taken_back(entry: Entry, entries: Sequence[Entry]) -> bool:
    """Whether an edit of the taxonomy was undone, and not redone since.

    Their records do not name each other: an undo puts the cells back to what they were.
    """

    def cells_of(one: Entry, side: str) -> list[tuple[str, str]]:
        cells = (row for row in one.cells if row["table"] == "taxonomy" and row["column"] != ROW)
        return sorted((row["column"], row[side]) for row in cells)

    names = {row["key"] for row in entry.cells} | {row["after"] for row in entry.cells}
    sides = {"undo": ("after", 1), "redo": ("before", -1)}
    found = 0
    for later in entries[entry.number :]:
        side, sign = sides.get(later.source, ("", 0))
        if sign and later.cells and names.issuperset(
            row["key"] for row in later.cells if row["table"] == "taxonomy"
        ):  # fmt: skip
            found += sign * (cells_of(later, side) == cells_of(entry, "before"))
    return found > 0


def entry_of(made_of: Sequence[str], who: str, when: str, source: str) -> str:
    """Return the cell of the column ``entry``.

    An entry is named after what it was made of and by whom, so that an apply which was killed goes
    on with the same entry.

    Example:
        >>> entry_of(["Q1 drop"], "ann", "2026-01-02", "page")
        'lpaankoj page'
    """
    name = short_hash("\n".join((*made_of, who, when)), ID_LENGTH)
    return single_blanks(f"{name} {source}")


def signature_of(made_of: Sequence[str], who: str, when: str, source: str) -> dict[str, str]:
    """Return the cells who, when and entry of the rows that an entry appends."""
    return {"who": who, "when": when, "entry": entry_of(made_of, who, when, source)}
