"""What a table must hold: its columns, numbers where numbers belong, allowed values, unique keys.

Each check raises one InvalidData that names the file, the row as a spreadsheet counts it, what was
found and what was expected; both the reading of a CSV and the writing of a table go through them.
Where a row stands in a file only its reader knows: it says so by ``row_of``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pandas as pd

from hgld.errors import InvalidData
from hgld.words import nearest

__all__ = [
    "INT64",
    "ColumnType",
    "RowOf",
    "in_table",
    "no_number",
    "pandas_types",
    "require_columns",
    "require_numbers",
    "require_unique",
    "require_values",
]

ColumnType = Literal["int", "text", "float"]
RowOf = Callable[[int], int]  # a row's place, from 0 on -> its number as a spreadsheet counts

INT64 = 2**63  # the first number that an int64 column does not hold


def in_table(place: int) -> int:
    """The number of a row under a header, as a spreadsheet counts."""
    return place + 2


def pandas_types(columns: Mapping[str, ColumnType]) -> dict[str, str]:
    """Column -> its type in pandas."""
    names = {"int": "int64", "text": "str", "float": "float64"}
    return {name: names[column_type] for name, column_type in columns.items()}


def require_columns(found: Iterable[str], wanted: Mapping[str, ColumnType], path: Path) -> None:
    """Every column is there; of a missing one the nearest is named."""
    names = [str(name) for name in found]
    missing = [name for name in wanted if name not in names]
    if missing:
        fault = f"column '{missing[0]}' is missing; it has {', '.join(names)}"
        fault += nearest(missing[0], names)
        raise InvalidData(f"{path}: " + fault.replace("\n", " "))


def require_numbers(
    table: pd.DataFrame, columns: Mapping[str, ColumnType], path: Path, row_of: RowOf = in_table
) -> None:
    """What pandas would fail to convert, or cut to a whole number, is told with its row."""
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
    """The fault of a cell, in a row as a spreadsheet counts, that is no number of its type."""
    expected = "a whole number" if column_type == "int" else "a number"
    return InvalidData(f"{path} row {row}: {column} is {found!r}; expected {expected}")


def require_values(
    table: pd.DataFrame,
    column: str,
    allowed: Sequence[str],
    path: Path,
    row_of: RowOf = in_table,
) -> None:
    """Every cell of the column is one of the allowed."""
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
    """No two rows have the same key."""
    again = table.duplicated(list(key))
    if again.any():
        row = int(again.to_numpy().argmax())
        names = " ".join(f"{name} {table[name].iloc[row]}" for name in key)
        raise InvalidData(f"{path} row {row_of(row)}: {names} stands there twice; keep one row")
