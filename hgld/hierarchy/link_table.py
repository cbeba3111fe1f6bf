"""Reader of a CSV that says which items the classes are."""

from pathlib import Path

import pandas as pd

from hgld.artifacts import ITEM_IDS, columns_of, read_csv, read_header, row_in_file
from hgld.errors import InvalidData

__all__ = ["read_links"]


def read_links(path: Path, column: str) -> pd.DataFrame:
    """Read what a CSV says of classes as rows of ``links``, each with its place in the file.

    Args:
        path: of the CSV; of a class, it may have a row for each image.
        column: with the names.

    Returns:
        One row a class with an id or a page; the index counts the rows below the header from 0.

    Raises:
        InvalidData: no such file or column, or rows of one class that name different items.
    """
    header = read_header(path, [column, *ITEM_IDS])
    columns = [name for name in ITEM_IDS if name in header]
    if not columns:
        raise InvalidData(
            f"{path}: no column {', '.join(ITEM_IDS[:-1])} or {ITEM_IDS[-1]} to link classes by"
        )
    rows = read_csv(path, dict.fromkeys([column, *columns], "text"))
    rows = rows.apply(lambda cells: cells.str.strip())
    rows = rows[(rows[column] != "") & (rows[columns] != "").any(axis=1)].drop_duplicates()
    twice = rows[column].duplicated()
    if twice.any():
        place = rows.index[twice][0]
        raise InvalidData(
            f"{path} row {row_in_file(path, place)}: {column} '{rows.loc[place, column]}' has "
            f"another {' or '.join(columns)} than in a row above; write the same for all its rows"
        )
    rows = rows.rename(columns={column: "name"})
    links: pd.DataFrame = rows.reindex(columns=columns_of("links"), fill_value="")
    return links
