"""Schema checks of a table: columns, numeric types, allowed values and unique keys.

Each check raises one InvalidData that names the file, the row as a spreadsheet counts it, the found
and the expected value. Both reading a CSV and writing a table run them. Only the reader knows the
line of a row in its file, so it passes ``row_of``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hgld.errors import InvalidData
from hgld.lazy import lazy_module
from hgld.words import nearest

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazy_module("pandas")

ColumnType = Literal["int", "text", "float", "optional float"]  # empty: nan
RowOf = Callable[[int], int]  # index of a row from 0 -> its number as a spreadsheet counts

INT64 = 2**63  # the first integer outside int64


def in_table(place: int) -> int:
    """Return the number of a row as a spreadsheet counts: from 1, including the header."""
    return place + 2


def pandas_types(columns: Mapping[str, ColumnType]) -> dict[str, str]:
    """Return column -> pandas dtype."""
    names = {"int": "int64", "text": "str", "float": "float64", "optional float": "float64"}
    return {name: names[column_type] for name, column_type in columns.items()}


def require_columns(found: Iterable[str], wanted: Mapping[str, ColumnType], path: Path) -> None:
    """Require every column; for a missing one, suggest the most similar name."""
    names = [str(name) for name in found]
    missing = [name for name in wanted if name not in names]
    if missing:
        raise InvalidData(
            f"{path}: column '{missing[0]}' is missing; it has {', '.join(names)}"
            + nearest(missing[0], names)
        )


def require_numbers(
    table: pd.DataFrame, columns: Mapping[str, ColumnType], path: Path, row_of: RowOf = in_table
) -> None:
    """Refuse cells that pandas could not convert or would truncate; the error names the row."""
    types = pandas_types(columns)
    for name, column_type in columns.items():
        if column_type == "text" or str(table[name].dtype) == types[name]:
            continue
        numbers = pd.to_numeric(table[name], errors="coerce").astype("float64")
        whole = (numbers % 1 == 0) & (numbers.abs() < INT64)
        fits = whole if column_type == "int" else numbers.notna() | table[name].isna()
        if not fits.all():
            row = int(fits.to_numpy().argmin())
            raise no_number(path, row_of(row), name, table[name].iloc[row], column_type)


def no_number(
    path: Path, row: int, column: str, found: object, column_type: ColumnType
) -> InvalidData:
    """Return the error for a cell that is not a number of its type."""
    expected = "a whole number" if column_type == "int" else "a number"
    return InvalidData(f"{path} row {row}: {column} is {found!r}; expected {expected}")


def require_values(
    table: pd.DataFrame,
    column: str,
    allowed: Sequence[str],
    path: Path,
    row_of: RowOf = in_table,
) -> None:
    """Require every cell of a column to be an allowed value."""
    wrong = ~table[column].isin(list(allowed))
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        value = table[column].iloc[row]
        raise InvalidData(
            f"{path} row {row_of(row)}: {column} is {value!r}; expected one of "
            + ", ".join(name or "(empty)" for name in allowed)
            + nearest(str(value), allowed)
        )


def require_unique(
    table: pd.DataFrame, key: Sequence[str], path: Path, row_of: RowOf = in_table
) -> None:
    """Require that no two rows have the same key."""
    again = table.duplicated(list(key))
    if again.any():
        row = int(again.to_numpy().argmax())
        names = " ".join(f"{name} {table[name].iloc[row]}" for name in key)
        raise InvalidData(f"{path} row {row_of(row)}: {names} stands there twice; keep one row")
