"""The content of a release as plain tables, the same for every source of labels.

The card, the Croissant document and the figures are made from this alone, so that they
cannot disagree with the files.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from hgld.artifacts import ID_SPACES, SPACE_OF_SPLIT, SPLITS, ColumnType, Table
from hgld.config import LEVEL_NAMES, PublishOptions, StageContext
from hgld.errors import InvalidData
from hgld.shards.classes import Classes
from hgld.shards.index import read_index, read_manifest

Road = Literal["decisions", "published", "folder"]
LICENSE_OF_GLDV2 = "cc-by-4.0"


@dataclass(frozen=True)
class ReleaseTable:
    """A table of the release: its name, its file and columns, its rows."""

    name: str
    artifact: Table
    rows: pd.DataFrame

    @property
    def file(self) -> str:
        """Name of the file, in the release folder."""
        return self.artifact.file


@dataclass(frozen=True)
class Photos:
    """The exported images, where a release holds them, and what became of the others."""

    folder: Path
    evaluation: Mapping[str, Any]
    dropped: pd.DataFrame
    removals: pd.DataFrame

    @cached_property
    def index(self) -> pd.DataFrame:
        """One row a sample."""
        return read_index(self.folder)

    @cached_property
    def shards(self) -> Sequence[Mapping[str, Any]]:
        """File, split, sha256, bytes and samples of each shard."""
        return list(read_manifest(self.folder)["shards"])


@dataclass(frozen=True)
class Group:
    """A supercategory (or class of the level above the finest): landmarks and images.

    Landmarks are counted by id space, the classes of a folder by split; ``all_landmarks`` counts
    a class of several splits once.
    """

    name: str
    kind: str
    landmarks: Mapping[str, int]
    all_landmarks: int
    images: int


@dataclass(frozen=True)
class Release:
    """The content of a release.

    Attributes:
        road: where the labels come from.
        sheets: the tables that are released, labels first.
        classes: one row a labelled landmark: split, landmark_id, kind, group; the last two are
            empty where the hierarchy has no such level.
        dropped: landmarks without a label, and why.
        agreement: what two annotators agree on; empty where it was not measured.
        photos: None where labels alone are released.
        levels: names of the levels, coarse to fine.
        counts: of a folder: level -> split -> how many classes have images there.
    """

    options: PublishOptions
    context: StageContext
    road: Road
    sheets: Sequence[ReleaseTable]
    classes: pd.DataFrame
    dropped: pd.DataFrame
    agreement: Mapping[str, Any]
    photos: Photos | None
    levels: Sequence[str] = LEVEL_NAMES
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def made(self) -> bool:
        """True if the landmarks are those of the made world."""
        return self.context.source.kind == "toy"

    @property
    def license(self) -> str:
        """Of the labels, as Hugging Face names licences; empty where nobody said."""
        return self.options.license or ("" if self.road == "folder" else LICENSE_OF_GLDV2)

    @property
    def reviewed(self) -> bool:
        """True if the labels were built from decisions, which are released with them."""
        return self.sheet("decisions") is not None

    @property
    def origin(self) -> str:
        """The source of the hierarchy of a folder."""
        return "a CSV" if self.context.source.labels_csv else "the names of the folders of images"

    @property
    def reviewers(self) -> list[str]:
        """Names of the people who decided."""
        decisions = self.sheet("decisions")
        return sorted(set(decisions.rows["who"]) - {""}) if decisions else []

    @property
    def spaces(self) -> list[str]:
        """The id spaces of landmarks, or the splits in which a folder has classes."""
        if self.road != "folder":
            return list(ID_SPACES)
        return [split for split in SPLITS if (self.classes["split"] == split).any()]

    def sheet(self, name: str) -> ReleaseTable | None:
        """The table of this name, where it is released."""
        return next((sheet for sheet in self.sheets if sheet.name == name), None)

    @cached_property
    def groups(self) -> list[Group]:
        """Landmarks and images of each supercategory that has any, by name."""
        classes = self.classes[self.classes["group"] != ""]
        counts = classes.groupby(["group", "kind", "split"]).size()
        # the ids of GLDv2's two spaces are different landmarks
        one = ["landmark_id"] if self.road == "folder" else ["split", "landmark_id"]
        totals = classes.drop_duplicates(["group", "kind", *one]).groupby(["group", "kind"]).size()
        images = self._count_images(classes)
        names = sorted({(str(group), str(kind)) for group, kind, _ in counts.index})
        return [
            Group(
                name,
                kind,
                {space: int(counts.get((name, kind, space), 0)) for space in self.spaces},
                int(totals[name, kind]),
                images.get((name, kind), 0),
            )
            for name, kind in names
        ]

    def _count_images(self, classes: pd.DataFrame) -> dict[tuple[str, str], int]:
        if self.photos is None:
            return {}
        index = self.photos.index
        # A folder has the same class in several splits; GLDv2 numbers classes by id space.
        spaces = index["split"]
        if self.road != "folder":
            spaces = spaces.map(SPACE_OF_SPLIT)
        samples = index[["landmark_id"]].assign(split=spaces).merge(classes)
        pairs = zip(samples["group"], samples["kind"], strict=True)
        return dict(Counter(pairs))

    def dropped_landmarks(self) -> list[tuple[str, str, int]]:
        """Split, reason, how many landmarks have no label."""
        return _count_reasons(self.dropped)

    def dropped_images(self) -> list[tuple[str, str, int]]:
        """Split, reason, how many images were not exported."""
        return _count_reasons(self.photos.dropped) if self.photos else []


def _count_reasons(dropped: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Split, reason, how many; in the order of the splits, then the most first."""
    counts = dropped.groupby(["split", "reason"]).size().reset_index(name="count")
    rows = zip(counts["split"], counts["reason"], counts["count"], strict=True)
    return sorted(rows, key=lambda row: (SPLITS.index(row[0]), -row[2], row[1]))


def classes_of_labels(labels: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """``Release.classes`` of label tables by id space; rows without a label are left out."""
    names = {"natural_or_human_made": "kind", "hierarchical_label": "group"}
    parts = [
        table[["landmark_id", *names]].rename(columns=names).assign(split=space)
        for space, table in labels.items()
    ]
    classes = pd.concat(parts, ignore_index=True)
    return classes[classes["group"] != ""]


def splits_of_classes(classes: pd.DataFrame, images: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of classes of a folder, one for each split in which the class has images.

    Args:
        classes: id space (``split``) and ``landmark_id``, which may be another class in the other
            space.
        images: their split and landmark_id.

    Returns:
        The rows by landmark_id, with the split in place of the id space.
    """
    pairs = images[["split", "landmark_id"]].drop_duplicates()
    spaces, order = pairs["split"].map(SPACE_OF_SPLIT), pairs["split"].map(SPLITS.index)
    found = pairs.assign(space=spaces, order=order).merge(
        classes.rename(columns={"split": "space"}), on=["space", "landmark_id"]
    )
    # Train first, as people expect, not by letter.
    return found.sort_values(["landmark_id", "order"]).drop(columns=["space", "order"])


def classes_of_paths(paths: Classes, splits: pd.DataFrame) -> pd.DataFrame:
    """``Release.classes`` of label paths with any levels; a row a class and split."""
    rows, depth = paths.landmarks, len(paths.levels)
    classes = rows[["landmark_id"]].assign(
        kind=rows["name_1"] if depth > 2 else "",
        group=rows[f"name_{depth - 1}"] if depth > 1 else "",
    )
    return splits.merge(classes.drop_duplicates("landmark_id"), on="landmark_id")


def count_levels(paths: Classes, splits: pd.DataFrame) -> dict[str, dict[str, int]]:
    """``Release.counts``: level -> split -> how many classes have images there."""
    numbers = paths.landmarks.drop(columns="split")
    groups = splits[["split", "landmark_id"]].merge(numbers, on="landmark_id").groupby("split")
    counts = {
        level: groups[f"level_{depth}"].nunique() for depth, level in enumerate(paths.levels, 1)
    }
    return {
        level: {split: int(of_split[split]) for split in splits["split"].unique()}
        for level, of_split in counts.items()
    }


def sheet_of_paths(paths: Classes, splits: pd.DataFrame) -> ReleaseTable:
    """The classes of a folder: the splits that have images, a number, one column a level.

    Raises:
        InvalidData: a number is one class in the training data and another in the gallery.
    """
    levels, rows = list(paths.levels), paths.landmarks
    numbers = rows.drop_duplicates(["landmark_id", f"level_{len(levels)}"])["landmark_id"]
    twice = numbers[numbers.duplicated()]
    if len(twice):
        raise InvalidData(
            f"hierarchy.csv: number {twice.iloc[0]} is one class in the training data and another "
            "in the gallery; a release has one table of classes: give each its own number"
        )
    number = _number_column(levels)
    classes = rows.drop_duplicates("landmark_id", ignore_index=True)
    joined = splits.groupby("landmark_id")["split"].agg("; ".join)
    names = [f"name_{depth}" for depth, _ in enumerate(levels, 1)]
    rows = classes[names].set_axis(levels, axis="columns")
    rows.insert(0, "split", classes["landmark_id"].map(joined).fillna(""))
    rows.insert(1, number, classes["landmark_id"])
    columns: dict[str, ColumnType] = {"split": "text", number: "int"}
    columns |= dict.fromkeys(levels, "text")
    return ReleaseTable("labels", Table("labels.csv", columns, (number,)), rows)


def sheet_of_images(
    paths: Classes, images: pd.DataFrame, exported: pd.DataFrame | None
) -> ReleaseTable:
    """The images of the classes of a folder: path, split, number and name of the class.

    Args:
        paths: the label paths.
        images: as collected.
        exported: the index of the shards, if only its images are to be listed.
    """
    number, finest = _number_column(paths.levels), paths.levels[-1]
    names = {"split": "space", f"name_{len(paths.levels)}": "name"}
    classes = paths.landmarks[["landmark_id", *names]].rename(columns=names)
    rows = images[["path", "split", "landmark_id", "image_id"]]
    rows = rows.assign(space=rows["split"].map(SPACE_OF_SPLIT))
    rows = rows.merge(classes, on=["space", "landmark_id"])
    if exported is not None:
        rows = rows.merge(exported[["split", "image_id"]], on=["split", "image_id"])
    in_tars = rows["path"].str.endswith(".tar")  # the path names no image, not even a single one
    rows = rows.assign(path=rows["path"].mask(in_tars, rows["image_id"]))
    columns: dict[str, ColumnType] = {"path": "text", "split": "text", number: "int"}
    columns |= {finest: "text"}
    rows = rows[["path", "split", "landmark_id", "name"]].set_axis(list(columns), axis="columns")
    return ReleaseTable("image_table", Table("images.csv", columns, ("path",)), rows)


def _number_column(levels: Sequence[str]) -> str:
    """The column of a class's number: ``class_id``, unless a level has that name."""
    name = "class_id"
    while name in levels:
        name += "_"
    return name
