"""Lists of training images to leave out (``collect.exclude``) or to keep (``collect.only``).

A model trained on the landmarks of an evaluation set is measured too high. Such overlaps are
published as lists of images, RGLDv2-clean as the list of those that stay; `hgld evaluations
duplicates` writes a list of the former kind.
"""

from pathlib import Path

import pandas as pd

from hgld.artifacts import read_csv, read_header
from hgld.config import CollectOptions
from hgld.errors import InvalidData
from hgld.tasks import say

__all__ = ["LISTS", "leave_out", "list_column", "report_strange"]

IMAGES = ("image_id", "id", "images")  # the first one present is used
LISTS = (("exclude", "in"), ("only", "not in"))  # option, and how an image that it drops relates


def list_column(path: Path, landmarks: bool = False) -> str:
    """Return the column that names the images of a list, or ``landmark_id`` if there is none.

    Raises:
        InvalidData: the file is missing or has no such column.
    """
    names = IMAGES + ("landmark_id",) * landmarks
    header = read_header(path, IMAGES)
    column = next((name for name in names if name in header), None)
    if column is None:
        raise InvalidData(
            f"{path}: its columns are {', '.join(header) or 'none'}; expected a list of images "
            f"with one of {', '.join(names)}"
        )
    return column


def report_strange(path: Path) -> None:
    """Send a notice of a list that fits no image: it would leave out none, or all, silently."""
    say(f"{path}: names no training image of this data set; expected the ids of images.parquet")


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
            column = list_column(path)
            listed = read_csv(path, {column: "text"})[column]
            listed = listed.str.split().explode() if column == "images" else listed
            trained = rows["split"].isin(["train", "validation"])
            if not ids[trained].isin(listed).any():
                report_strange(path)
            drop = (ids.isin(listed) == (option == "exclude")) & (rows["reason"] == "")
            drop &= trained
            rows = rows.assign(
                reason=rows["reason"].mask(drop, "excluded"),
                detail=rows["detail"].mask(drop, f"{relation} {path.name}"),
            )
    return rows
