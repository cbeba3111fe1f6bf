"""Any image folder with a CSV of labels, so that other hierarchical data can go the same road.

The CSV has ``path`` (relative to the source folder), then one column a level, coarse to fine, with
any names; ``split``, ``author``, ``license``, ``title`` and ``url`` are optional and no levels. The
finest level plays the landmark's part. Its classes are numbered by sorted name; a class with images
on the index side stands in the index id space too, under the same number.
"""

import json
import os
from collections.abc import Hashable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd

from hgld.artifacts import SPACE_OF_SPLIT, SPLITS, read_csv
from hgld.config import CollectOptions, LabelOptions, StageContext, nearest
from hgld.errors import InvalidData
from hgld.sources.open_set import draw_splits
from hgld.sources.tables import ABOUT, UNKNOWN, columns_of, level_columns, table_of

__all__ = ["collect", "read_hierarchy"]

IMAGE_ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}
SHOWN_FAULTS = 10

Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]


def collect(source: Path, *, options: CollectOptions, context: StageContext) -> Tables:
    """List the classes and images of a folder.

    A row is one image; its id is its path. Without a ``split`` column all images are ``train``, of
    which ``options.evaluation_share`` of the finest classes become ``evaluation``, drawn by the
    hash of seed and class name.

    Dropped, with a reason: ``empty label`` (no finest class), ``duplicate`` (the first row is
    kept), ``not in folder``, ``not in csv`` (an image file that no row names).

    Returns:
        landmarks, images, queries (none), images_dropped.

    Raises:
        InvalidData: no level column, a class under two parents, a path that leaves the folder, a
            split that does not exist.
    """
    file = context.source.labels_csv
    rows, levels = _read_labels(source, file)
    has_splits = "split" in rows
    rows = _judge(rows, levels[-1], source, file)
    taken = rows[rows["reason"] == ""]
    images = _images(taken, levels[-1], source, options, has_splits)
    dropped = pd.concat([rows[rows["reason"] != ""], _strangers(rows, source, file)])
    dropped = _join_repeats(dropped.rename(columns={"path": "image_id"}))
    return (
        _landmarks(images, taken, levels[-1]),
        images[columns_of("images")],
        table_of("queries").empty(),
        dropped[columns_of("images_dropped")],
    )


def read_hierarchy(
    source: Path, landmarks: pd.DataFrame, *, options: LabelOptions, context: StageContext
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The label path of each landmark, in the CSV's own level names.

    Returns:
        hierarchy; and label_dropped, with ``empty label`` where a coarser level is empty and
        ``not in csv`` where the CSV no longer has the class.
    """
    file = context.source.labels_csv
    rows, levels = _read_labels(source, file)
    rows = rows.drop_duplicates(levels[-1])
    paths = rows.set_index(levels[-1], drop=False)[levels]
    places = pd.Series(rows.index + 2, index=paths.index)
    known = landmarks["name"].isin(paths.index)
    found = landmarks[known].reset_index(drop=True)
    labels = paths.loc[found["name"]].reset_index(drop=True)
    full = (labels != "").all(axis="columns")
    hierarchy = found[full].assign(path=[_as_json(row) for row in labels[full].to_dict("records")])
    partly = found[~full].assign(
        reason="empty label",
        detail=[
            f"{_describe_gap(path, file)} row {places[path[levels[-1]]]}"
            for path in labels[~full].to_dict("records")
        ],
    )
    gone = landmarks[~known].assign(reason="not in csv", detail=f"no row of {file} has this class")
    dropped = pd.concat([partly, gone], ignore_index=True)
    return hierarchy[columns_of("hierarchy")], dropped[columns_of("label_dropped")]


def _read_labels(source: Path, file: str) -> tuple[pd.DataFrame, list[str]]:
    """All rows as stripped text, and the level columns coarse to fine."""
    path = source / file
    header = _read_header(path)
    levels = level_columns(header)
    rows = read_csv(path, dict.fromkeys(["path", *header], "text"))
    if not levels:
        raise InvalidData(
            f"{path}: no level column; expected path, then one column a level coarse to fine"
        )
    if rows.empty:
        raise InvalidData(f"{path}: no rows below the header; expected one row an image")
    rows = rows.apply(lambda column: column.str.strip())
    rows["path"] = rows["path"].str.replace("\\", "/", regex=False).map(os.path.normpath)
    faults = [*_wrong_paths(rows), *_wrong_splits(rows), *_wrong_parents(rows, levels)]
    if faults:
        more = f"; and {len(faults) - SHOWN_FAULTS} more" if len(faults) > SHOWN_FAULTS else ""
        raise InvalidData(f"{path}: " + "; ".join(faults[:SHOWN_FAULTS]) + more)
    return rows, levels


def _read_header(path: Path) -> list[str]:
    """The column names; whether the file can be read is told by ``read_csv``."""
    read_csv(path, {"path": "text"})
    header = pd.read_csv(path, dtype=str, nrows=0, encoding="utf-8-sig")
    return [str(name) for name in header.columns]


def _wrong_paths(rows: pd.DataFrame) -> Iterator[str]:
    for row, path in rows["path"].items():
        if path == "." or PurePosixPath(path).is_absolute() or path.startswith("../"):
            yield f"row {_sheet_row(row)}: path '{path}' is no file inside the folder"


def _wrong_splits(rows: pd.DataFrame) -> Iterator[str]:
    if "split" not in rows:
        return
    for row, split in rows["split"].items():
        if split and split not in SPLITS:
            yield (
                f"row {_sheet_row(row)}: split is '{split}'; expected one of {', '.join(SPLITS)}"
                f"{nearest(split, SPLITS)}"
            )


def _wrong_parents(rows: pd.DataFrame, levels: list[str]) -> Iterator[str]:
    """Each class has one parent; the faults name the first two rows that differ."""
    for coarse, fine in pairwise(levels):
        pairs = rows[rows[fine] != ""].drop_duplicates([coarse, fine])
        for name, group in pairs[pairs[fine].duplicated(keep=False)].groupby(fine):
            (one, first), (two, second) = list(group[coarse].items())[:2]
            if not (first and second):
                empty, full = (two, one) if first else (one, two)
                yield (
                    f"row {_sheet_row(empty)}: {coarse} is empty, but {fine} '{name}' stands under "
                    f"'{first or second}' in row {_sheet_row(full)}; fill it in"
                )
                continue
            yield (
                f"row {_sheet_row(two)}: {fine} '{name}' stands under {coarse} '{second}', but "
                f"under '{first}' in row {_sheet_row(one)}; a class has one parent"
            )


def _sheet_row(index: object) -> int:
    """The row as a spreadsheet counts it."""
    assert isinstance(index, int)
    return index + 2


def _judge(rows: pd.DataFrame, finest: str, source: Path, file: str) -> pd.DataFrame:
    """Reason and detail of each row; empty where its image is taken."""
    absent = ~np.array([(source / path).is_file() for path in rows["path"]], dtype=bool)
    checks = (
        ("duplicate", rows["path"].duplicated(), f"again in {file}, first in row "),
        ("empty label", rows[finest] == "", f"no {finest} in {file} row "),
        ("not in folder", absent, f"no such file; {file} row "),
    )
    places = pd.Series((rows.index + 2).astype(str), index=rows.index)
    first = places.groupby(rows["path"]).transform("first")
    rows = rows.assign(reason="", detail="", split=_splits(rows))
    for reason, applies, detail in checks:
        wrong = applies & (rows["reason"] == "")
        rows["detail"] = rows["detail"].mask(
            wrong, detail + (first if reason == "duplicate" else places)
        )
        rows["reason"] = rows["reason"].mask(wrong, reason)
    return rows


def _splits(rows: pd.DataFrame) -> pd.Series:
    if "split" not in rows:
        return pd.Series("train", index=rows.index, dtype="str")
    return rows["split"].where(rows["split"] != "", "train")


def _strangers(rows: pd.DataFrame, source: Path, file: str) -> pd.DataFrame:
    """Image files in the folder that no row names."""
    named = set(rows["path"])
    found = sorted(path for path in _walk(source) if path not in named)
    return pd.DataFrame(
        {"path": found, "split": "train", "reason": "not in csv", "detail": f"no row in {file}"}
    )


def _join_repeats(dropped: pd.DataFrame) -> pd.DataFrame:
    """One row an image and reason, with the details of all."""
    key = ["split", "image_id", "reason"]
    joined = dropped.groupby(key, sort=False)["detail"].agg("; ".join)
    return joined.reset_index().astype("str")


def _walk(source: Path) -> Iterator[str]:
    for folder, _, files in os.walk(source):
        for file in files:
            if Path(file).suffix.lower() in IMAGE_ENDINGS:
                yield (Path(folder) / file).relative_to(source).as_posix()


def _images(
    taken: pd.DataFrame, finest: str, source: Path, options: CollectOptions, has_splits: bool
) -> pd.DataFrame:
    names = sorted(taken[finest].unique())
    images = pd.DataFrame(
        {
            "image_id": taken["path"],
            "split": taken["split"],
            "landmark_id": taken[finest].map({name: i for i, name in enumerate(names)}),
            "path": taken["path"],
            "offset": 0,
            "size_bytes": [(source / path).stat().st_size for path in taken["path"]],
        }
    )
    for column in ABOUT:
        given = taken.get(column, pd.Series("", index=taken.index, dtype="str"))
        images[column] = given.where(given != "", UNKNOWN)
    if not has_splits:
        shares = (options.evaluation_share, options.validation_share)
        splits = dict(zip(names, draw_splits(names, *shares, options.seed), strict=True))
        images["split"] = taken[finest].map(splits).astype("str")
    return images


def _landmarks(images: pd.DataFrame, taken: pd.DataFrame, finest: str) -> pd.DataFrame:
    """One row a class and id space in which it has images."""
    table = pd.DataFrame(
        {
            "split": images["split"].map(SPACE_OF_SPLIT),
            "landmark_id": images["landmark_id"],
            "name": taken[finest],
            "commons_url": "",
        }
    )
    return table.drop_duplicates(["split", "landmark_id"])[columns_of("landmarks")]


def _as_json(path: Mapping[Hashable, str]) -> str:
    return json.dumps(dict(path), ensure_ascii=False)


def _describe_gap(path: Mapping[Hashable, str], file: str) -> str:
    return f"no {', '.join(str(level) for level, name in path.items() if not name)} in {file}"
