"""Rows to tables in the declared columns of an artifact, and back."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from hgld.artifacts.catalogue import columns_of, declared_table
from hgld.words import single_blanks


def table_of(name: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The rows as a table artifact; no rows give a table with the right columns and types."""
    return pd.DataFrame(rows, columns=columns_of(name)) if rows else declared_table(name).empty()


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows, each with its cells by column."""
    names = [str(name) for name in table.columns]
    columns = [column.tolist() for _, column in table.items()]  # an eighth of itertuples' time
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def single_blanks_all(column: "pd.Series[str]") -> "pd.Series[str]":
    """``single_blanks`` of each cell; each distinct text is worked on once."""
    return column.map({text: single_blanks(text) for text in column.unique()}).astype("str")
