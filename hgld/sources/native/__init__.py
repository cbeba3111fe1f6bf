"""Sources in their published layout: products, species, cars, clothes, landmarks, faces.

Each data set has a module that parses its files and returns a ``Listing``; the conversion of a
listing to tables is common to all and is here. Every line of the files ends in exactly one table:
``images``, or ``images_dropped`` with reason, file and line. The splits are the data set's own: its
files define the classes that are held out for evaluation.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from hgld.artifacts import BOX, SPACE_OF_SPLIT, columns_of, declared_table, size_of_file
from hgld.config import CollectOptions, LabelOptions, SourceOptions, StageContext
from hgld.errors import UsageError
from hgld.sources.exclusion import leave_out
from hgld.sources.listing import CLASS, Listing
from hgld.sources.native import (
    cub,
    dyml,
    ilias,
    in_shop,
    inaturalist,
    sfm_120k,
    sop,
    uned,
    vehicle_id,
    vggface2,
)
from hgld.sources.open_set import describe_splits, split_classes
from hgld.sources.tables import (
    Tables,
    drop_unlisted,
    drop_where,
    join_repeats,
    landmarks_of,
    report_missing,
    with_credits,
)
from hgld.tasks import say

__all__ = ["collect", "read_hierarchy"]

READERS: Mapping[str, Callable[[Path, SourceOptions], Listing]] = {
    "sop": sop.read,
    "inaturalist": inaturalist.read,
    "cub": cub.read,
    "dyml": dyml.read,
    "in_shop": in_shop.read,
    "vehicle_id": vehicle_id.read,
    "sfm_120k": sfm_120k.read,
    "vggface2": vggface2.read,
    "ilias": ilias.read,
    "uned": uned.read,
}


def collect(source: Path, *, options: CollectOptions, context: StageContext) -> Tables:
    """List the classes and images of a data set in its own layout.

    A row is one image; its id is its path, unless it is in a tar. With the columns ``BOX``, the
    image is that part of its photo. ``options.validation_share`` of the training classes become the
    split ``validation``, drawn within each coarsest class.

    Dropped, with a reason: ``duplicate`` (the first line is kept), ``is a query`` (a gallery image
    with the bytes of a query), ``not in folder``, ``excluded`` (see ``hgld.sources.exclusion``),
    ``not in list`` (an image file that no line names), and the files that ``drop_unlisted`` lists.
    A notice has the number of images that are not in the folder.

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
    rows, classes = listing.images, listing.classes
    # Some of the training classes are moved to validation.
    ids = rows.loc[rows["split"] == "train", "landmark_id"].unique()
    trained = classes[(classes["space"] == "train") & classes["landmark_id"].isin(ids)]
    groups = trained[listing.levels[0]] if len(listing.levels) > 1 else None
    splits = split_classes(trained["landmark_id"].astype(str).tolist(), options, groups)
    moved = trained["landmark_id"][splits == "validation"]
    moves = (rows["split"] == "train") & rows["landmark_id"].isin(moved)
    rows = rows.assign(split=rows["split"].mask(moves, "validation"))
    rows = leave_out(_judge(rows, source), options)
    taken = rows[rows["reason"] == ""]
    lists = rows.loc[rows["file"] != rows["path"], "file"].unique()  # a tar is its own list
    unlisted = drop_unlisted(
        source, set(rows["path"]), "not in list", f"no line in {', '.join(lists)}"
    )
    unlisted = unlisted.rename(columns={"path": "image_id"})
    dropped = pd.concat([rows[rows["reason"] != ""], unlisted])
    images = with_credits(taken, taken)
    if len(taken):
        say(describe_splits(taken))
    missing = rows[rows["reason"] == "not in folder"]
    places = missing["file"] + " line " + missing["line"].astype("str")
    report_missing(missing["path"].set_axis(places), len(rows), source)
    boxes = [name for name in BOX if name in taken]
    if boxes:
        say(f"each image is the part of its photo in the box of images.parquet ({boxes[0]} ...)")
    keys = pd.MultiIndex.from_arrays([taken["split"].map(SPACE_OF_SPLIT), taken["landmark_id"]])
    names = classes.set_index(CLASS)["name"].reindex(keys).set_axis(taken.index)
    return (
        landmarks_of(taken, names),
        images[[*columns_of("images"), *boxes]].reset_index(drop=True),
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


def _judge(rows: pd.DataFrame, source: Path) -> pd.DataFrame:
    """Return size, reason and detail of each line; the reason of a taken image is empty."""
    rows = rows.reset_index(drop=True)
    # Only photos of tars have these; a file that is one photo is named by its path.
    own = rows.reindex(columns=["image_id", "offset", "size_bytes"])
    rows = rows.assign(
        image_id=own["image_id"].astype("object").fillna(rows["path"]).astype("str"),
        offset=own["offset"].fillna(0).astype("int64"),
        size_bytes=own["size_bytes"].fillna(-1).astype("int64"),
    )
    place = rows["file"] + " line " + rows["line"].astype("str")
    known = rows["size_bytes"] >= 0
    found = (
        (size, "") if is_known else size_of_file(source / path)
        for path, size, is_known in zip(rows["path"], rows["size_bytes"], known, strict=True)
    )
    sizes, faults = zip(*found, strict=True)
    rows = rows.assign(size_bytes=sizes, reason="", detail="")
    again = rows.duplicated(["split", "image_id"])
    first = place.groupby([rows["split"], rows["image_id"]]).transform("first")
    rows = drop_where(rows, again, "duplicate", "again in " + place + ", first in " + first)
    absent = pd.Series(faults) + "; " + place
    rows = drop_where(rows, rows["size_bytes"] < 0, "not in folder", absent)
    if "copy_of" in rows:
        copy = rows["copy_of"].fillna("")
        rows = drop_where(rows, copy != "", "is a query", place + " has the bytes of " + copy)
    return rows
