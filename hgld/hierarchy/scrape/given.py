"""Bring in "instance of" values from a CSV that a person has.

Such a CSV has one value for a landmark and no Wikidata ids; what the other stages want to know of
a statement is filled in as plainly unknown: no item, no class id, revision 0.
"""

import pandas as pd

from hgld.artifacts import ColumnType, columns_of, read_csv, row_in_file
from hgld.config import ScrapeOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.columns import single_blanks_all
from hgld.hierarchy.scrape.endings import tell_reasons

__all__ = ["read_given"]


def read_given(
    landmarks: pd.DataFrame, *, options: ScrapeOptions, context: StageContext
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row a landmark before; its row of ``instance_of``, or of ``misses``, after.

    A landmark is missed with the reason ``not_in_table`` or ``no_value`` (an empty cell). Rows of
    the CSV for landmarks that are not in this run are left out.

    Raises:
        UsageError: ``scrape.table`` is not set.
        InvalidData: no such file or column, an id that is not a number, or occurs twice.
    """
    given = _read_table(options)
    found = landmarks.merge(given, on=["split", "landmark_id"], how="left")
    absent = found["instance_of"].isna()
    empty = found["instance_of"].eq("") & ~absent
    misses = pd.concat(
        [
            _missed(found[absent], "not_in_table", f"no such {options.table_id} in the table"),
            _missed(found[empty], "no_value", f"{options.table_value} is empty"),
        ]
    )
    tell_reasons(len(landmarks), misses["reason"], "in the table")
    statements = found[~absent & ~empty].assign(
        item_id="", revision=0, order=0, class_id="", rank="normal", qualifiers="{}"
    )
    return statements[columns_of("instance_of")], misses


def _read_table(options: ScrapeOptions) -> pd.DataFrame:
    """The CSV as split, landmark_id, instance_of."""
    if options.table is None:
        raise UsageError('scrape.table is not set; scrape.source = "table" needs the CSV\'s path')
    columns: dict[str, ColumnType] = {options.table_id: "int", options.table_value: "text"}
    table = read_csv(options.table, columns).set_axis(["landmark_id", "instance_of"], axis=1)
    again = table["landmark_id"].duplicated()
    if again.any():
        row = int(again.to_numpy().argmax())
        raise InvalidData(
            f"{options.table} row {row_in_file(options.table, row)}: {options.table_id} "
            f"{table['landmark_id'].iloc[row]} stands there twice; keep one row"
        )
    return table.assign(
        split=options.table_split, instance_of=single_blanks_all(table["instance_of"])
    )


def _missed(found: pd.DataFrame, reason: str, detail: str) -> pd.DataFrame:
    return found.assign(reason=reason, detail=detail)[columns_of("misses")]
