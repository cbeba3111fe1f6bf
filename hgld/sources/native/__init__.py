"""Sources in their published layout: Stanford Online Products, iNaturalist, CUB-200-2011, DyML.

Each data set has a module that parses its files and returns a ``Listing``; the conversion of a
listing to tables is common to all and is here. Every line of the files ends in exactly one table:
``images``, or ``images_dropped`` with reason, file and line. The splits are the data set's own: its
files define the classes that are held out for evaluation.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from hgld.artifacts import SPACE_OF_SPLIT, columns_of, declared_table, size_of_file
from hgld.config import CollectOptions, LabelOptions, SourceOptions, StageContext
from hgld.errors import UsageError
from hgld.sources.native import cub, dyml, inaturalist, sop
from hgld.sources.native.listing import CLASS, Listing
from hgld.sources.open_set import describe_splits, split_classes
from hgld.sources.tables import drop_unlisted, join_repeats, with_credits
from hgld.tasks import say

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
    become the split ``validation``, drawn within each coarsest class.

    Dropped, with a reason: ``duplicate`` (the first line is kept), ``is a query`` (a gallery image
    with the bytes of a query), ``not in folder``, ``not in list`` (an image file that no line
    names), and the files that ``drop_unlisted`` lists.

    Returns:
        landmarks, images, queries (none), images_dropped.

    Raises:
        InvalidData: a file is missing or has another form.
        UsageError: classes are to be held out for evaluation, but the data set has its own split.
    """
    for name in ("evaluation_share", "evaluation_classes"):
        if getattr(options, name):
            raise UsageError(
                f"collect.{name} is set, but {context.source.kind} has its own evaluation split; "
                "remove it (validation_share may be set)"
            )
    listing = READERS[context.source.kind](source, context.source)
    rows = _judge(_hold_out(listing, options), source)
    taken = rows[rows["reason"] == ""]
    unlisted = drop_unlisted(
        source,
        set(rows["path"]),
        IMAGE_ENDINGS,
        "not in list",
        f"no line in {', '.join(rows['file'].unique())}",
    )
    dropped = pd.concat([rows[rows["reason"] != ""], unlisted])
    dropped = dropped.rename(columns={"path": "image_id"})
    images = with_credits(taken.assign(image_id=taken["path"], offset=0), taken)
    say(describe_splits(taken))
    assert len(rows) == len(taken) + (rows["reason"] != "").sum(), "lines in = out + dropped"
    return (
        _landmarks(taken, listing),
        images[columns_of("images")].reset_index(drop=True),
        declared_table("queries").empty(),
        join_repeats(dropped)[columns_of("images_dropped")],
    )


def read_hierarchy(
    source: Path, landmarks: pd.DataFrame, *, options: LabelOptions, context: StageContext
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the label path of each class, on the data set's own levels.

    Returns:
        hierarchy; and label_dropped, with ``not in list`` if the files no longer have the class.
    """
    listing = READERS[context.source.kind](source, context.source)
    paths = listing.classes.rename(columns={"space": "split"}).drop(columns="name")
    found = landmarks.merge(paths, on=["split", "landmark_id"], how="left", indicator=True)
    known = found["_merge"] == "both"
    labels = found[known][list(listing.levels)].to_dict("records")
    hierarchy = found[known].assign(path=[json.dumps(path, ensure_ascii=False) for path in labels])
    detail = f"no line of the {context.source.kind} files has this class"
    gone = found[~known].assign(reason="not in list", detail=detail)
    return hierarchy[columns_of("hierarchy")], gone[columns_of("label_dropped")]


def _hold_out(listing: Listing, options: CollectOptions) -> pd.DataFrame:
    """Return the lines with some of the training classes moved to validation."""
    rows, classes = listing.images, listing.classes
    ids = rows.loc[rows["split"] == "train", "landmark_id"].unique()
    trained = classes[(classes["space"] == "train") & classes["landmark_id"].isin(ids)]
    keys = trained["landmark_id"].astype(str).tolist()
    splits = split_classes(keys, options, trained[listing.levels[0]])
    moved = trained["landmark_id"][splits == "validation"]
    moves = (rows["split"] == "train") & rows["landmark_id"].isin(moved)
    return rows.assign(split=rows["split"].mask(moves, "validation"))


def _judge(rows: pd.DataFrame, source: Path) -> pd.DataFrame:
    """Return size, reason and detail of each line; the reason of a taken image is empty."""
    rows = rows.reset_index(drop=True)
    place = rows["file"] + " line " + rows["line"].astype("str")
    sizes, faults = zip(*(size_of_file(source / path) for path in rows["path"]), strict=True)
    again, absent = rows.duplicated(["split", "path"]), np.array(sizes) < 0
    first = place.groupby([rows["split"], rows["path"]]).transform("first")
    reason = pd.Series("", index=rows.index, dtype="str")
    reason = reason.mask(absent, "not in folder").mask(again, "duplicate")
    detail = (pd.Series(faults) + "; " + place).mask(
        again, "again in " + place + ", first in " + first
    )
    if "copy_of" in rows:
        copy = (rows["copy_of"].fillna("") != "") & (reason == "")
        reason = reason.mask(copy, "is a query")
        detail = detail.mask(copy, place + " has the bytes of " + rows["copy_of"].astype("str"))
    return rows.assign(size_bytes=sizes, reason=reason, detail=detail.where(reason != "", ""))


def _landmarks(taken: pd.DataFrame, listing: Listing) -> pd.DataFrame:
    """Return one row for each class with images, in the id space of its split."""
    spaces = taken["split"].map(SPACE_OF_SPLIT).astype("str")
    found = taken.assign(space=spaces)[CLASS].drop_duplicates()
    table = found.merge(listing.classes[[*CLASS, "name"]], on=CLASS, how="left")
    table = table.rename(columns={"space": "split"}).assign(commons_url="")
    return table[columns_of("landmarks")]
