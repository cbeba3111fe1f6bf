"""From a listing to the tables that every source delivers.

Every line of a data set's own files ends in exactly one place: in ``images``, or in
``images_dropped`` with its reason, the file and the line. The splits are the data set's own: what
is held out for evaluation stands in its files, and is not drawn here.
"""

import json
import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path

import pandas as pd

from hgld.artifacts import SPACE_OF_SPLIT
from hgld.config import CollectOptions, LabelOptions, SourceOptions, StageContext
from hgld.errors import UsageError
from hgld.sources.native import cub, dyml, inaturalist, sop
from hgld.sources.native.listing import CLASS, Listing
from hgld.sources.open_set import hold_out
from hgld.sources.tables import ABOUT, UNKNOWN, columns_of, table_of

__all__ = ["collect", "read_hierarchy"]

READERS: Mapping[str, Callable[[Path, SourceOptions], Listing]] = {
    "sop": sop.read,
    "inaturalist": inaturalist.read,
    "cub": cub.read,
    "dyml": dyml.read,
}
IMAGE_ENDINGS = {".jpeg", ".jpg", ".png"}

Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]


def collect(source: Path, *, options: CollectOptions, context: StageContext) -> Tables:
    """List the classes and images of a data set in its own layout.

    A row is one image; its id is its path. ``options.validation_share`` of the training classes
    become the split ``validation``, drawn by the hash of seed and class number.

    Dropped, with a reason: ``duplicate`` (the first line is kept), ``is a query`` (a gallery image
    with the bytes of a query, which stands among the queries), ``not in folder``, ``not in list``
    (an image file that no line names).

    Returns:
        landmarks, images, queries (none), images_dropped.

    Raises:
        InvalidData: a file is missing or has another form.
        UsageError: an evaluation share: the data set has its own split.
    """
    if options.evaluation_share:
        raise UsageError(
            f"collect.evaluation_share is {options.evaluation_share:g}, but {context.source.kind} "
            "has its own evaluation split; leave it at 0 (validation_share may be set)"
        )
    listing = _read(source, context)
    rows = _judge(_hold_out(listing.images, options), source)
    taken = rows[rows["reason"] == ""]
    dropped = pd.concat([rows[rows["reason"] != ""], _strangers(rows, source)])
    dropped = dropped.rename(columns={"path": "image_id"})
    assert len(rows) == len(taken) + (rows["reason"] != "").sum(), "lines in = out + dropped"
    return (
        _landmarks(taken, listing),
        _images(taken, source),
        table_of("queries").empty(),
        _join_repeats(dropped)[columns_of("images_dropped")],
    )


def read_hierarchy(
    source: Path, landmarks: pd.DataFrame, *, options: LabelOptions, context: StageContext
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The label path of each class, on the data set's own levels.

    Returns:
        hierarchy; and label_dropped, with ``not in list`` where the files no longer have the class.
    """
    listing = _read(source, context)
    paths = listing.classes.rename(columns={"space": "split"}).drop(columns="name")
    found = landmarks.merge(paths, on=["split", "landmark_id"], how="left", indicator=True)
    known = found["_merge"] == "both"
    labels = found[known][list(listing.levels)].to_dict("records")
    hierarchy = found[known].assign(path=[_as_json(path) for path in labels])
    detail = f"no line of the {context.source.kind} files has this class"
    gone = found[~known].assign(reason="not in list", detail=detail)
    return hierarchy[columns_of("hierarchy")], gone[columns_of("label_dropped")]


def _read(source: Path, context: StageContext) -> Listing:
    return READERS[context.source.kind](source, context.source)


def _hold_out(rows: pd.DataFrame, options: CollectOptions) -> pd.DataFrame:
    """Training classes for validation; the draw of a class depends on no other."""
    ids = rows["landmark_id"].drop_duplicates()
    drawn = ids[hold_out([f"validation:{i}" for i in ids], options.validation_share, options.seed)]
    moves = (rows["split"] == "train") & rows["landmark_id"].isin(drawn)
    return rows.assign(split=rows["split"].mask(moves, "validation"))


def _judge(rows: pd.DataFrame, source: Path) -> pd.DataFrame:
    """Size, reason and detail of each line; the reason is empty where its image is taken."""
    rows = rows.reset_index(drop=True)
    place = rows["file"] + " line " + rows["line"].astype("str")
    sizes = pd.Series([_size(source / path) for path in rows["path"]], dtype="int64")
    again, absent = rows.duplicated(["split", "path"]), sizes < 0
    first = place.groupby([rows["split"], rows["path"]]).transform("first")
    reason = pd.Series("", index=rows.index, dtype="str")
    reason = reason.mask(absent, "not in folder").mask(again, "duplicate")
    detail = ("no such file; " + place).mask(again, "again in " + place + ", first in " + first)
    if "copy_of" in rows:
        copy = (rows["copy_of"].fillna("") != "") & (reason == "")
        reason = reason.mask(copy, "is a query")
        detail = detail.mask(copy, place + " has the bytes of " + rows["copy_of"].astype("str"))
    return rows.assign(size_bytes=sizes, reason=reason, detail=detail.where(reason != "", ""))


def _size(path: Path) -> int:
    """Bytes of a file; -1: there is none."""
    try:
        return path.stat().st_size if path.is_file() else -1
    except OSError:
        return -1


def _strangers(rows: pd.DataFrame, source: Path) -> pd.DataFrame:
    """Image files below the source folder that no line names."""
    named = set(rows["path"])
    found = sorted(path for path in _walk(source) if path not in named)
    detail = f"no line in {', '.join(rows['file'].unique())}"
    return pd.DataFrame(
        {"path": found, "split": "train", "reason": "not in list", "detail": detail}
    )


def _walk(source: Path) -> Iterator[str]:
    for folder, _, files in os.walk(source):
        for file in files:
            if Path(file).suffix.lower() in IMAGE_ENDINGS:
                yield (Path(folder) / file).relative_to(source).as_posix()


def _join_repeats(dropped: pd.DataFrame) -> pd.DataFrame:
    """One row an image and reason, with the details of all."""
    key = ["split", "image_id", "reason"]
    joined = dropped.groupby(key, sort=False)["detail"].agg("; ".join)
    return joined.reset_index().astype("str")


def _images(taken: pd.DataFrame, source: Path) -> pd.DataFrame:
    images = taken.assign(image_id=taken["path"], offset=0)
    for column in ABOUT:
        given = images.get(column, pd.Series(UNKNOWN, index=images.index, dtype="str"))
        images[column] = given.fillna(UNKNOWN).replace("", UNKNOWN)
    return images[columns_of("images")].reset_index(drop=True)


def _landmarks(taken: pd.DataFrame, listing: Listing) -> pd.DataFrame:
    """One row a class that has images, in the id space of its split."""
    spaces = taken["split"].map(SPACE_OF_SPLIT).astype("str")
    found = taken.assign(space=spaces)[CLASS].drop_duplicates()
    table = found.merge(listing.classes[[*CLASS, "name"]], on=CLASS, how="left")
    table = table.rename(columns={"space": "split"}).assign(commons_url="")
    return table[columns_of("landmarks")]


def _as_json(path: Mapping[Hashable, str]) -> str:
    return json.dumps(dict(path), ensure_ascii=False)
