"""Lists of training images to leave out (``collect.exclude``) or to keep (``collect.only``).

They apply before ``collect`` holds classes out of the training split, so they also name images of
classes that it holds out; images that the data set itself puts into another split stay.

A model trained on the landmarks of an evaluation set is measured too high. Such overlaps are
published as lists of images, RGLDv2-clean as the list of those that stay; `hgld evaluations
duplicates` and `hgld labels suspects` write lists of the former kind. A list with a column
``decision`` leaves out the rows whose decision is "drop". Of landmarks, the rows of the index id
space are left aside: there the same number is another landmark.
"""

from collections.abc import Collection
from pathlib import Path

import pandas as pd

from hgld.artifacts import SPACE_OF_SPLIT, ColumnType, read_csv, read_header, row_in_file
from hgld.config import CollectOptions
from hgld.errors import InvalidData
from hgld.sources.tables import drop_where
from hgld.tasks import say
from hgld.words import verb_text

IMAGES = ("image_id", "id", "images")  # the first one present is used
LISTS = (("exclude", "in"), ("only", "not in"))  # option, and how an image that it drops relates
DECISION = "decision"
INDEX_SPLITS = tuple(split for split, space in SPACE_OF_SPLIT.items() if space == "index")


def list_columns(path: Path, option: str, landmarks: bool = False) -> dict[str, ColumnType]:
    """Return the columns to read from a list and their types.

    Args:
        path: the list.
        option: "exclude" or "only".
        landmarks: whether the list may name landmarks.

    Returns:
        First the column that names the images, or ``landmark_id`` if there is none; then, if the
        list has them, ``split`` of landmarks, and ``decision`` of a list of ``exclude``.

    Raises:
        InvalidData: the file is missing, a workbook or without such a column, or a decision is
            another word.
    """
    if path.suffix in (".xlsx", ".ods"):
        raise InvalidData(f"{path}: a workbook; save its first sheet as CSV")
    header = read_header(path, IMAGES)
    # In a sheet of suspect classes the column images is their number.
    of_classes = {DECISION, "landmark_id"} <= {*header}
    names = IMAGES[: -1 if of_classes else None] + ("landmark_id",) * landmarks
    column = next((name for name in names if name in header), None)
    if column is None:
        raise InvalidData(
            f"{path}: its columns are {', '.join(header) or 'none'}; expected a list of images "
            f"with one of {', '.join(names)}"
        )
    columns: dict[str, ColumnType] = {column: "int" if column == "landmark_id" else "text"}
    if column == "landmark_id" and "split" in header:
        columns["split"] = "text"
    if option == "exclude" and DECISION in header:
        words = read_csv(path, {DECISION: "text"})[DECISION].str.strip().str.lower()
        wrong = ~words.isin(["", "keep", "drop"])
        if wrong.any():
            place = int(wrong.argmax())
            raise InvalidData(
                f"{path} row {row_in_file(path, place)}: the decision is {words[place]!r}; "
                "expected drop (leave the image out), keep or nothing"
            )
        columns[DECISION] = "text"
    return columns


def report_strange(path: Path, columns: Collection[str], strange: int, count: int) -> None:
    """Send a notice of the ids of a list that fit no image: they would do nothing, silently."""
    dropped = f" with drop in the column {DECISION}" if DECISION in columns else ""
    if strange == count:
        say(f"{path}: names no training image of this data set{dropped}; expected the ids of "
            "images.parquet")  # fmt: skip
    elif strange:
        are = verb_text(strange, "are")
        say(f"{path}: {strange:,} of {count:,} ids{dropped} {are} of no training image here")


def leave_out(rows: pd.DataFrame, options: CollectOptions) -> pd.DataFrame:
    """Return the rows with the reason ``excluded`` at training images that a list leaves out.

    Args:
        rows: path or image_id, split, reason (empty: it is taken) and detail.
        options: with the lists.

    Raises:
        InvalidData: a list is missing or has no column of images.
    """
    ids = rows["image_id" if "image_id" in rows else "path"]
    for option, relation in LISTS:
        for path in getattr(options, option):
            columns = list_columns(path, option)
            table, column = read_csv(path, columns), next(iter(columns))
            if DECISION in columns:
                table = table[table[DECISION].str.strip().str.lower() == "drop"]
            listed = table[column]
            listed = listed.str.split().explode() if column == "images" else listed
            trained = rows["split"].isin(["train", "validation"])
            given = set(listed) - {""}
            report_strange(path, columns, len(given - set(ids[trained])), len(given))
            drop = (ids.isin(listed) == (option == "exclude")) & trained
            rows = drop_where(rows, drop, "excluded", f"{relation} {path.name}")
    return rows
