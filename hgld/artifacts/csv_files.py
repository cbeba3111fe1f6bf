"""Strict reader and canonical writer of CSV files that people and spreadsheets edit.

Files are read in pieces, since GLDv2's largest has almost 1 GB, and first as text, so that no type
is guessed. Faults that pandas accepts silently (a short row, another delimiter) are reported with
their row.
"""

from __future__ import annotations

import csv
import io
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgld.artifacts.atomic import atomic_path, require_file
from hgld.artifacts.table_checks import INT64, ColumnType, in_table, no_number, require_columns
from hgld.errors import InvalidData
from hgld.lazy import lazy_module

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
else:
    np, pd = lazy_module("numpy"), lazy_module("pandas")

PIECE_ROWS = 250_000  # rows parsed at a time
MERGE_MARKS = ("<<<<<<< ", "=======", ">>>>>>> ")  # lines of git around two versions
MOST_COLUMNS = 1_000  # pandas needs minutes and gigabytes for a million
LONGEST_HEADER = 1 << 20  # characters
csv.field_size_limit(2**31 - 1)  # a class of GLDv2 names its images in one cell


def read_csv(
    path: Path, columns: Mapping[str, ColumnType], may_lack: Sequence[str] = ()
) -> pd.DataFrame:
    """Read the named columns of a CSV (UTF-8, with or without BOM, LF or CRLF), each as its type.

    Text columns in ``may_lack`` are empty if the file lacks them. Text stays text: ``None`` or an
    image id of digits only is not converted.

    Raises:
        InvalidData: the file is missing or empty, a column is missing, has no name or occurs
            twice, the delimiter is not a comma, a row has more or fewer cells than the header, or
            a cell of a numeric column is not a number.
    """
    header = read_header(path, columns)
    if "" in columns:  # those of the header
        raise InvalidData(f"{path}: column {header.index('') + 1} has no name; name or remove it")
    twice = [name for name in columns if header.count(name) > 1]
    if twice:
        raise InvalidData(f"{path}: {header.count(twice[0])} columns are called '{twice[0]}'; "
                          "give each a name of its own")  # fmt: skip
    needed = {name: columns[name] for name in columns if name not in may_lack}
    even, pieces = False, []
    for piece in parse_csv(path, columns):
        require_columns(piece.columns, needed, path)
        piece = piece.assign(**{name: "" for name in may_lack if name not in piece})
        if not even and piece.iloc[:, -1].eq("").any():  # pandas fills a short row with empty cells
            _require_even_rows(path)
            even = True
        typed = {name: _convert(piece[name], columns[name], path) for name in columns}
        pieces.append(pd.DataFrame(typed))
    return pd.concat(pieces, ignore_index=True)


def read_header(path: Path, expected: Iterable[str]) -> list[str]:
    """Read the names of the columns without blanks around them; none if the file is empty.

    Args:
        path: the CSV.
        expected: names of columns, for the message if the file is missing.

    Raises:
        InvalidData: the file is missing, the delimiter is not a comma, or too many columns.
    """
    require_file(path)
    if not path.exists():
        raise InvalidData(f"{path}: no such file; expected a CSV with {', '.join(expected)}")
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        start = file.read(LONGEST_HEADER)
    try:
        rows = csv.reader(io.StringIO(start, newline=""))
        filled = (cells for cells in rows if not _is_blank(cells))
        names, first = next(filled, []), next(filled, [])
    except csv.Error:  # an unclosed quote
        names, first = [], []
    if any("\0" in name for name in names):  # UTF-16
        raise InvalidData(f"{path}: not UTF-8 text; save it as CSV in UTF-8")
    if len(names) > MOST_COLUMNS:
        raise InvalidData(
            f"{path}: {len(names):,} columns or more; {MOST_COLUMNS:,} are read at most"
        )
    if len(first) > MOST_COLUMNS:  # pandas would use the surplus cells as row names
        raise InvalidData(
            f"{path} row {rows.line_num}: {len(first)} cells under {len(names)} columns; quote "
            "what holds commas"
        )
    for mark, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(names) == 1 and mark in names[0]:
            raise InvalidData(f"{path}: cells are separated by {name}; save it as CSV with commas")
    if names and names[0].startswith(MERGE_MARKS):
        raise _merge_mark(path, 1, names[0])
    if names and names[0].casefold().startswith("sep="):
        raise InvalidData(
            f"{path} row 1: '{names[0]}' declares the delimiter to Excel; delete the row"
        )
    return [name.strip() for name in names]


def write_csv(table: pd.DataFrame, path: Path, spreadsheet: bool = False) -> None:
    """Write UTF-8 with LF, or with BOM and CRLF for a spreadsheet, as ``atomic_path`` does."""
    with atomic_path(path) as temporary:
        table.to_csv(
            temporary,
            index=False,
            encoding="utf-8-sig" if spreadsheet else "utf-8",
            lineterminator="\r\n" if spreadsheet else "\n",
            quoting=csv.QUOTE_MINIMAL,
        )


def edit_csv(
    data: bytes,
    cells: Mapping[int, Mapping[str, str] | None],
    added: Sequence[tuple[int | None, Mapping[str, str]]] = (),
) -> bytes:
    r"""Return a CSV with changed cells and new rows; all other rows keep their bytes.

    A new row goes before the row with its index; without one to its place if the rows are sorted
    by the first column, else to the end.

    Args:
        data: the CSV in UTF-8, with a header.
        cells: index of a row below the header, from 0, blank lines left out -> column -> new cell;
            None removes the row.
        added: index or None, and cells by column, of each new row; other cells are empty.

    Example:
        >>> edit_csv(b"a,b\n1,'x'\n2,y\n", {1: {"b": "z"}}, [(None, {"a": "0"})])
        b"a,b\n0,\n1,'x'\n2,z\n"
        >>> edit_csv(b"a\n1\n2\n", {}, [(1, {"a": "0"})])
        b'a\n1\n0\n2\n'
    """
    head, *rows = _raw_rows(data.decode("utf-8"))
    names = [name.removeprefix("\ufeff").strip() for name in head[1]]
    line_end = "\r\n" if head[0].endswith("\r\n") else "\n"
    edited: list[tuple[str, str]] = []  # first cell of a row, empty for a blank line, and its text
    filled = -1
    for text, row in rows:
        filled += not _is_blank(row)
        change = {} if _is_blank(row) else cells.get(filled, {})
        if change:
            row = [change.get(name, cell) for name, cell in zip(names, row, strict=True)]
            text = _as_line(row, line_end)
        if change is not None:
            edited.append((row[0] if row else "", text))
    for index, new in added:
        filled_at = [i for i, (cell, _) in enumerate(edited) if cell]
        first = [edited[i][0].casefold() for i in filled_at]
        row = [new.get(name, "") for name in names]
        if index is None:
            index = bisect(first, row[0].casefold()) if first == sorted(first) else len(first)
        place = filled_at[index] if index < len(filled_at) else len(edited)
        edited.insert(place, (row[0], _as_line(row, line_end)))
    texts = [head[0], *(text for _, text in edited)]
    ended = [text if text.endswith(("\r", "\n")) else text + line_end for text in texts[:-1]]
    return "".join((*ended, texts[-1])).encode()


def _as_line(row: Sequence[str], line_end: str) -> str:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator=line_end).writerow(row)
    return buffer.getvalue()


def _raw_rows(text: str) -> list[tuple[str, list[str]]]:
    """Return the characters and the cells of each row, line ends included."""
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in io.StringIO(text, newline=""):
            taken.append(line)
            yield line

    found = []
    for cells in csv.reader(lines()):
        found.append(("".join(taken), cells))
        taken.clear()
    return found


def row_in_file(path: Path, place: int) -> int:
    """Return the number of a row in a CSV as a spreadsheet counts, including blank lines.

    pandas skips blank lines, so the file is read again; call this only to report a fault.

    Args:
        path: the CSV; if it is missing, the file is assumed to have no blank lines.
        place: index of the row below the header, from 0.
    """
    return rows_in_file(path, place + 1)[-1]


def rows_in_file(path: Path, count: int) -> list[int]:
    """Return ``row_in_file`` of the first ``count`` rows below the header, read in one pass."""
    rows = enumerate(_rows_as_text(path), 1) if path.is_file() else ()
    filled = (number for number, cells in rows if not _is_blank(cells))
    found = list(islice(filled, 1, count + 1))
    return [*found, *map(in_table, range(len(found), count))]


def faults_by_row(path: Path, faults: Iterable[tuple[int, str]]) -> list[str]:
    """Return faults of a CSV with their rows (``row_in_file``); the file is read once for all.

    Args:
        path: of the CSV.
        faults: index of the row below the header, from 0, and what is wrong there.
    """
    found = list(faults)
    rows = rows_in_file(path, max(place for place, _ in found) + 1) if found else []
    return [f"row {rows[place]}: {fault}" for place, fault in found]


def parse_csv(path: Path, columns: Mapping[str, ColumnType]) -> Iterator[pd.DataFrame]:
    """Yield all columns of a CSV as text, in pieces; an error names ``columns`` as expected."""
    as_text: dict[str, Any] = {"dtype": str, "keep_default_na": False, "na_filter": False}
    as_text |= {"encoding": "utf-8-sig", "compression": None, "chunksize": PIECE_ROWS}
    try:
        with pd.read_csv(path, **as_text) as pieces:
            for piece in pieces:
                if not isinstance(piece.index, pd.RangeIndex):  # first cells as row names
                    _require_even_rows(path)
                    raise InvalidData(
                        f"{path} row 2: more cells than the header; quote what holds commas"
                    )
                yield piece.set_axis(piece.columns.str.strip(), axis="columns")
    except UnicodeDecodeError:
        raise InvalidData(f"{path}: not UTF-8 text; save it as CSV in UTF-8") from None
    except pd.errors.EmptyDataError:
        expected = f"the columns {', '.join(columns)}" if columns else "a header and rows"
        raise InvalidData(f"{path}: the file is empty; expected {expected}") from None
    except (pd.errors.ParserError, ValueError) as error:
        _require_even_rows(path)
        reason = str(error).strip().removeprefix("Error tokenizing data. C error: ")
        raise InvalidData(f"{path}: not a readable CSV: {reason}") from None


def _convert(column: pd.Series[Any], column_type: ColumnType, path: Path) -> pd.Series[Any]:
    if column_type == "text":
        return column
    if column_type == "optional float":
        filled = column != ""
        return _convert(column.where(filled, "0"), "float", path).where(filled)
    convert: Callable[[str], int | float] = int if column_type == "int" else float
    try:
        cells = column.to_numpy(object)
        numbers = np.fromiter(map(convert, cells), f"{column_type}64")
        if np.isnan(numbers).any() or not _has_plain_digits("".join(cells)):
            raise ValueError
        return pd.Series(numbers, index=column.index, name=column.name)
    except (ValueError, OverflowError):
        row = next(i for i, cell in enumerate(column) if not _converts(cell, convert))
        where = path, row_in_file(path, int(column.index[row])), str(column.name)
        raise no_number(*where, column.iloc[row], column_type) from None


def _has_plain_digits(text: str) -> bool:
    """Return False for numbers that only Python accepts, such as 1_000 or the digit \u0663."""
    return text.isascii() and "_" not in text


def _converts(cell: str, convert: Callable[[str], int | float]) -> bool:
    try:
        number = convert(cell)
    except ValueError:
        return False
    fits = abs(number) < INT64 if convert is int else not np.isnan(number)
    return bool(fits and _has_plain_digits(cell))


def _rows_as_text(path: Path) -> Iterator[list[str]]:
    """Yield the cells of each row; an empty list for a blank line."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        yield from csv.reader(file)


def _is_blank(cells: Sequence[str]) -> bool:
    """Whether pandas skips the row: it is empty or has blanks and tabs only."""
    return not cells or (len(cells) == 1 and cells[0] != "" and not cells[0].strip(" \t"))


def _require_even_rows(path: Path) -> None:
    """Require each row to have as many cells as the header; blank lines are skipped."""
    rows_of_cells = _rows_as_text(path)
    lengths = np.fromiter((0 if _is_blank(row) else len(row) for row in rows_of_cells), np.int64)
    rows = np.flatnonzero(lengths)
    uneven = rows[lengths[rows] != lengths[rows[0]]]
    if uneven.size:
        cells, columns = lengths[uneven[0]], lengths[rows[0]]
        row = next(islice(_rows_as_text(path), int(uneven[0]), None))
        if row[0].startswith(MERGE_MARKS):
            raise _merge_mark(path, int(uneven[0]) + 1, row[0])
        fault = (
            f"{cells} cells under {columns} columns; quote what holds commas"
            if cells > columns
            else f"{cells} of {columns} cells; the row or the file is cut short"
        )
        raise InvalidData(f"{path} row {uneven[0] + 1}: {fault}")


def _merge_mark(path: Path, row: int, mark: str) -> InvalidData:
    return InvalidData(
        f"{path} row {row}: '{mark}' is a mark of a merge in git; choose between the two versions "
        "of the rows, and remove the marks"
    )
