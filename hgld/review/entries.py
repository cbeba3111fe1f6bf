"""Entries of the labels: the rows that one apply, save or undo wrote together.

The column ``entry`` of decisions.csv, cluster_edits.csv and taxonomy_edits.csv holds the id of the
entry and, after a blank, the name of its source (a file, ``page``, ``taxonomy``, ``undo``,
``redo``). Rows without one, of older files or written by hand, form an entry for each person and
day.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from hgld.errors import UsageError
from hgld.hierarchy.columns import records
from hgld.hierarchy.decisions import ID_LENGTH, Decided, Decision, short_hash
from hgld.words import count_text, nearest, single_blanks

__all__ = ["Entry", "entry_of", "find_entry", "list_entries"]


@dataclass(frozen=True)
class Entry:
    """One apply, save or undo.

    Attributes:
        number: its place in the log, from 1 on; it may change if branches are merged.
        source: name of the file that was applied, or ``page``, ``taxonomy``, ``undo``, ``redo``.
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
    dated = sorted(found.items(), key=lambda pair: pair[0][2])
    return [
        Entry(number, name or short_hash(f"{who} {when}", ID_LENGTH), who, when, source, *made)
        for number, ((entry, who, when), made) in enumerate(dated, 1)
        for name, _, source in [entry.partition(" ")]
    ]


def find_entry(entries: Sequence[Entry], asked: str) -> Entry:
    """Return the entry with a number or an id.

    Raises:
        UsageError: there is none.
    """
    for entry in entries:
        if asked in (str(entry.number), entry.id):
            return entry
    near = nearest(asked, [entry.id for entry in entries])
    total = count_text(len(entries), "entry", "entries")
    raise UsageError(f"no entry {asked} in the log of {total}; `hgld reviews log` lists them{near}")


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
