"""Read published hierarchical labels: H-GLDv2's official files, or third-party cuts of them.

The official files have five columns; a cut that is going round has only the three that matter
here. Both come with blanks at the end of labels, CRLF line ends, and rows without a label.
"""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from hgld.artifacts import KINDS, ColumnType, read_csv
from hgld.config import LEVEL_NAMES, LabelOptions, StageContext, nearest
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.blanks import single_blanks_all
from hgld.hierarchy.columns import columns_of, table_of

__all__ = ["hierarchy_of", "read_published"]

BY_LANDMARK = ["split", "landmark_id"]
NEEDED: dict[str, ColumnType] = {
    "landmark_id": "int",
    "hierarchical_label": "text",
    "natural_or_human_made": "text",
}
COLUMNS = columns_of("train_labels")
OPTIONAL = ("category", "supercategory")  # the Commons page, and the "instance of" value


def read_published(
    source: Path, landmarks: pd.DataFrame, *, options: LabelOptions, context: StageContext
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """One row a landmark before; one row of ``hierarchy`` or of ``label_dropped`` after.

    A landmark is dropped as ``not_published`` where the files do not have it and as ``no_label``
    where its label or kind is blank. Rows that are no landmark of this run are left out.

    Returns:
        ``train_labels``, ``index_labels``, ``hierarchy``, ``label_dropped``.

    Raises:
        UsageError: no file is named.
        InvalidData: no such file or column, an id twice, a kind that does not exist, a label that
            has two kinds.
    """
    files = {"train": options.train_csv, "index": options.index_csv}
    tables = [_read_file(source / name, split) for split, name in files.items() if name]
    if not tables:
        raise UsageError("label.train_csv and label.index_csv are both empty; name a file to read")
    found = landmarks.merge(pd.concat(tables), on=BY_LANDMARK, how="left", indicator="where")
    known = found["where"] == "both"
    labelled = found["hierarchical_label"].ne("") & found["natural_or_human_made"].ne("") & known
    labels = found[labelled]
    category = labels["category"].where(labels["category"] != "", labels["commons_url"])
    labels = labels.assign(category=category)
    dropped = [
        _dropped(found[~known], "not_published", "not in the published file"),
        _dropped(found[known & ~labelled], "no_label", "its published label is blank"),
    ]
    train, index = (labels[labels["split"] == split][COLUMNS] for split in files)
    return train, index, _hierarchy(labels), pd.concat(dropped)


def hierarchy_of(labels: pd.DataFrame) -> pd.DataFrame:
    """``hierarchy`` of landmarks with the columns split, landmark_id, kind, supercategory."""
    columns = [labels[name] for name in (*BY_LANDMARK, "kind", "supercategory")]
    rows = [
        {"split": split, "landmark_id": landmark_id, "path": _path(kind, name, split, landmark_id)}
        for split, landmark_id, kind, name in zip(*columns, strict=True)
    ]
    return table_of("hierarchy", rows)


def _path(kind: str, supercategory: str, split: str, landmark_id: int) -> str:
    classes = (kind, supercategory, f"{split}:{landmark_id}")
    return json.dumps(dict(zip(LEVEL_NAMES, classes, strict=True)), ensure_ascii=False)


def _hierarchy(labels: pd.DataFrame) -> pd.DataFrame:
    words = {"natural_or_human_made": "kind", "hierarchical_label": "supercategory"}
    return hierarchy_of(labels[[*BY_LANDMARK, *words]].rename(columns=words))


def _dropped(found: pd.DataFrame, reason: str, detail: str) -> pd.DataFrame:
    return found[BY_LANDMARK].assign(reason=reason, detail=detail)


def _read_file(path: Path, split: str) -> pd.DataFrame:
    """The file in all published columns, blank where it does not have one, with its split."""
    there = [name for name in OPTIONAL if name in _header(path)]
    columns: dict[str, ColumnType] = {**NEEDED, **dict.fromkeys(there, "text")}
    table = read_csv(path, columns)
    texts = {name: single_blanks_all(table[name]) for name in columns if columns[name] == "text"}
    table = table.assign(**texts, **{name: "" for name in OPTIONAL if name not in there})
    _check(table, path)
    return table[COLUMNS].assign(split=split)


def _header(path: Path) -> Sequence[str]:
    """Column names, or nothing where there is no such file (reading it says so)."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        return next(csv.reader(file), [])


def _check(table: pd.DataFrame, path: Path) -> None:
    kinds, names = table["natural_or_human_made"], table["hierarchical_label"]
    wrong = ~kinds.isin(["", *KINDS])
    if wrong.any():
        kind = kinds[wrong].iloc[0]
        expected = f"natural_or_human_made is {kind!r}; expected {' or '.join(KINDS)}"
        raise InvalidData(f"{path} row {_row(wrong)}: {expected}{nearest(kind, KINDS)}")
    again = table["landmark_id"].duplicated()
    if again.any():
        landmark_id = table["landmark_id"][again].iloc[0]
        raise InvalidData(
            f"{path} row {_row(again)}: landmark_id {landmark_id} stands there twice; keep one row"
        )
    filled = (kinds != "") & (names != "")
    first = kinds[filled].groupby(names[filled]).transform("first").reindex(kinds.index)
    torn = filled & (kinds != first)
    if torn.any():
        raise InvalidData(
            f"{path} row {_row(torn)}: '{names[torn].iloc[0]}' is {kinds[torn].iloc[0]} here and "
            f"{first[torn].iloc[0]} above; a label has one kind"
        )


def _row(faulty: "pd.Series[bool]") -> int:
    """Number of the first such row as a spreadsheet counts."""
    return int(faulty.to_numpy().argmax()) + 2
