"""Read a review sheet back, whatever a spreadsheet has made of it, and append what is new.

Spreadsheets change encodings, delimiters and line ends, capitalise words, add blanks and lose
nothing on purpose; people sort, filter and add columns. All of that is read as it was meant. What
cannot be read so is told with row and column, all of it at once, and then nothing is applied.
Rows that are gone or untouched change nothing: to open a value again, write ``unsure``.
"""

import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from hgld.artifacts import DECISIONS, KINDS
from hgld.config import nearest
from hgld.errors import InvalidData
from hgld.hierarchy.blanks import single_blanks
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.columns import table_of
from hgld.hierarchy.decisions import PLACING, Decided, Decision, key_types_of, kinds_of

__all__ = ["apply_sheet", "guard", "unguard"]

EDITABLE = ("decision", "supercategory", "kind", "note")
NEEDED = ("key", *EDITABLE)
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_GUARDED = re.compile(r"'+[=+\-@\t\r]")


@dataclass(frozen=True)
class _Row:
    """One row of the sheet: its number as a spreadsheet counts, and its cells by column."""

    number: int
    cells: Mapping[str, str]

    def fault(self, column: str, expected: str, found: str | None = None) -> str:
        """One line for the report."""
        cell = self.cells[column] if found is None else found
        return f"row {self.number}, column {column}: found {cell!r}; expected {expected}"


@dataclass(frozen=True)
class _Wanted:
    """What a row of the sheet says, made whole from the taxonomy."""

    decision: str
    supercategory: str
    kind: str
    why: str


def guard(cell: str) -> str:
    """The cell so that no spreadsheet takes it for a formula; ``unguard`` undoes it.

    Example:
        >>> guard("=1+1"), guard("'t Hof")
        ("'=1+1", "'t Hof")
    """
    return f"'{cell}" if _FORMULA.match(cell) else cell


def unguard(cell: str) -> str:
    """The cell as it was before ``guard``.

    Example:
        >>> unguard("'=1+1"), unguard("'t Hof")
        ('=1+1', "'t Hof")
    """
    return cell[1:] if _GUARDED.match(cell) else cell


def apply_sheet(
    sheet: Path,
    clusters: pd.DataFrame,
    taxonomy: pd.DataFrame,
    decisions: pd.DataFrame,
    *,
    who: str,
    when: str,
) -> pd.DataFrame:
    """The decisions with a new row for each value whose decision the sheet changes.

    Each new row names in ``supersedes`` the date of the decision that it replaces.

    Raises:
        InvalidData: every fault of the sheet, with row, column, what was found and expected.
    """
    rows = _read_rows(sheet)
    kinds = kinds_of(taxonomy)
    faults = _key_faults(rows, set(value_keys(clusters)))
    wanted: dict[str, _Wanted] = {}
    for row in rows:
        found = _read_decision(row, kinds)
        if isinstance(found, _Wanted):
            wanted[row.cells["key"]] = found
        elif found:
            faults.append((row.number, found))
    if faults:
        raise InvalidData(_report(sheet, faults))
    in_force = dict(zip(value_keys(clusters), Decided(decisions).of_values(clusters), strict=True))
    key_types = dict(zip(value_keys(clusters), key_types_of(clusters), strict=True))
    new = [
        {
            "key": key,
            "key_type": key_types[key],
            **asdict(now),
            "who": who,
            "when": when,
            "supersedes": before.when if (before := in_force[key]) else "",
        }
        for key, now in sorted(wanted.items())
        if now != _as_wanted(in_force[key], kinds)
    ]
    return pd.concat([decisions, table_of("decisions", new)], ignore_index=True)


def _as_wanted(decision: Decision | None, kinds: Mapping[str, str]) -> _Wanted | None:
    """A decision in force as the untouched row of a sheet says it."""
    if decision is None:
        return None
    kind = decision.kind or kinds.get(decision.supercategory, "")
    why = single_blanks(decision.why)
    return _Wanted(decision.decision, decision.supercategory, kind, why)


def _read_decision(row: _Row, kinds: Mapping[str, str]) -> "_Wanted | str | None":
    """What the row says, or what is wrong with it; None where it says nothing."""
    cells = row.cells
    decision, note = cells["decision"].casefold(), cells["note"]
    if not decision:
        filled = [name for name in EDITABLE[1:] if cells[name]]
        expected = f"keep, move, drop or unsure, since {' and '.join(filled)} is filled in"
        return row.fault("decision", expected) if filled else None
    if decision not in DECISIONS:
        return row.fault("decision", f"one of {', '.join(DECISIONS)}") + nearest(
            decision, DECISIONS
        )
    if decision == "drop":
        return _Wanted(decision, "", "", note)
    return _read_place(row, decision, kinds)


def _read_place(row: _Row, decision: str, kinds: Mapping[str, str]) -> "_Wanted | str":
    """The supercategory and kind of a row; ``unsure`` may leave them empty."""
    cells = row.cells
    kind = cells["kind"].casefold()
    if kind and kind not in KINDS:
        return row.fault("kind", f"{' or '.join(KINDS)}, or nothing") + nearest(kind, KINDS)
    if not cells["supercategory"] and decision not in PLACING:
        return _Wanted(decision, "", kind, cells["note"])
    names = {name.casefold(): name for name in kinds}
    name = names.get(cells["supercategory"].casefold())
    if name is None:
        near = nearest(cells["supercategory"].casefold(), names)
        return row.fault("supercategory", "a name that is in taxonomy.csv") + near
    if kind and kind != kinds[name]:
        return row.fault("kind", f"{kinds[name]!r}, which '{name}' is in taxonomy.csv")
    return _Wanted(decision, name, kinds[name], cells["note"])


def _key_faults(rows: Sequence[_Row], known: Collection[str]) -> list[tuple[int, str]]:
    """Keys that are no value of this run, or that stand there twice."""
    seen: dict[str, int] = {}
    faults = []
    for row in rows:
        key = row.cells["key"]
        if key not in known:
            expected = "the key of a value in clusters.csv"
            faults.append((row.number, row.fault("key", expected) + nearest(key, sorted(known))))
        elif key in seen:
            fault = row.fault("key", f"each key once; it stands in row {seen[key]} too")
            faults.append((row.number, fault))
        seen.setdefault(key, row.number)
    return faults


def _report(sheet: Path, faults: Sequence[tuple[int, str]]) -> str:
    lines = [text for _, text in sorted(faults, key=lambda fault: fault[0])]
    count = f"{len(lines)} fault" + ("s" if len(lines) > 1 else "")
    return f"{sheet}: {count}, nothing was applied\n  " + "\n  ".join(lines)


def _read_rows(sheet: Path) -> list[_Row]:
    """The sheet's rows that hold anything, with blanks and formula guards taken off."""
    table = _parse(_decode(sheet))
    start = 1 if table and table[0] and table[0][0].startswith("sep=") else 0
    header = [single_blanks(name).casefold() for name in (table[start] if table[start:] else [])]
    for column in NEEDED:
        if column not in header:
            raise InvalidData(
                f"{sheet}: column '{column}' is missing; it has {', '.join(header) or 'nothing'}"
                + nearest(column, header)
            )
    places = {name: header.index(name) for name in NEEDED}
    return [
        _Row(number, {name: _cell(row, place) for name, place in places.items()})
        for number, row in enumerate(table[start + 1 :], start + 2)
        if any(cell.strip() for cell in row)
    ]


def _cell(row: Sequence[str], place: int) -> str:
    return single_blanks(unguard(row[place].strip())) if place < len(row) else ""


def _decode(sheet: Path) -> str:
    if not sheet.is_file():
        raise InvalidData(f"{sheet}: no such file; `hgld review` writes it")
    data = sheet.read_bytes()
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise InvalidData(
            f"{sheet}: not UTF-8 text (byte {error.start}); save it as CSV in UTF-8"
        ) from None


def _parse(text: str) -> list[list[str]]:
    """Rows of cells, by the delimiter that gives the first line with a ``key`` most columns."""
    lines = text.splitlines()[:2]
    header = next((line for line in lines if not line.startswith("sep=")), "")
    delimiter = max(",;\t", key=header.count)
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
