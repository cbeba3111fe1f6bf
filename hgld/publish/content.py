"""What goes into a release, as plain tables: the same for every road that leads to labels.

The card, the Croissant document and the figures are made from this alone, so that none of them can
tell another story than the files.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from hgld.artifacts import ARTIFACTS, ID_SPACES, SPACE_OF_SPLIT, SPLITS, ColumnType, Table
from hgld.config import PublishOptions, StageContext
from hgld.shards.index import read_index, read_manifest

__all__ = [
    "Group",
    "Photos",
    "Release",
    "Road",
    "Sheet",
    "artifact_table",
    "classes_of_labels",
    "classes_of_paths",
    "sheet_of_paths",
]

Road = Literal["decisions", "published", "folder"]
LICENSE_OF_GLDV2 = "cc-by-4.0"
_KEY_COLUMNS: dict[str, ColumnType] = {"split": "text", "landmark_id": "int"}


@dataclass(frozen=True)
class Sheet:
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
    """A supercategory (or the level above the finest): landmarks by id space, and images."""

    name: str
    kind: str
    landmarks: Mapping[str, int]
    images: int

    @property
    def all_landmarks(self) -> int:
        """Landmarks of all id spaces."""
        return sum(self.landmarks.values())


@dataclass(frozen=True)
class Release:
    """All that a release tells.

    Attributes:
        road: where the labels come from.
        sheets: the tables that are released, labels first.
        classes: one row a labelled landmark: split, landmark_id, kind, group; the last two are
            empty where the hierarchy has no such level.
        dropped: landmarks without a label, and why.
        agreement: what two annotators agree on; empty where it was not measured.
        photos: None where labels alone are released.
    """

    options: PublishOptions
    context: StageContext
    road: Road
    sheets: Sequence[Sheet]
    classes: pd.DataFrame
    dropped: pd.DataFrame
    agreement: Mapping[str, Any]
    photos: Photos | None

    @property
    def made(self) -> bool:
        """Whether the landmarks are those of the made world."""
        return self.context.source.kind == "toy"

    @property
    def license(self) -> str:
        """Of the labels, as Hugging Face names licences; empty where nobody said."""
        return self.options.license or ("" if self.road == "folder" else LICENSE_OF_GLDV2)

    @property
    def reviewers(self) -> list[str]:
        """Who decided."""
        found = [sheet.rows["who"] for sheet in self.sheets if sheet.name == "decisions"]
        return sorted(set(found[0])) if found else []

    @property
    def spaces(self) -> list[str]:
        """The id spaces of landmarks: both of GLDv2's, or those that a folder has."""
        return [s for s in ID_SPACES if self.road != "folder" or (self.classes["split"] == s).any()]

    def sheet(self, name: str) -> Sheet | None:
        """The table of this name, where it is released."""
        return next((sheet for sheet in self.sheets if sheet.name == name), None)

    @cached_property
    def groups(self) -> list[Group]:
        """Landmarks and images of each supercategory that has any, by name."""
        classes = self.classes[self.classes["group"] != ""]
        counts = classes.groupby(["group", "kind", "split"]).size()
        images = self._count_images(classes)
        names = sorted({(str(group), str(kind)) for group, kind, _ in counts.index})
        return [
            Group(
                name,
                kind,
                {space: int(counts.get((name, kind, space), 0)) for space in self.spaces},
                images.get((name, kind), 0),
            )
            for name, kind in names
        ]

    def _count_images(self, classes: pd.DataFrame) -> dict[tuple[str, str], int]:
        if self.photos is None:
            return {}
        index = self.photos.index
        spaces = index["split"].map(SPACE_OF_SPLIT)
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


def artifact_table(name: str) -> Table:
    """The table that the data flow knows by this name."""
    table = ARTIFACTS[name]
    assert isinstance(table, Table)
    return table


def classes_of_labels(labels: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """``Release.classes`` of label tables by id space; rows without a label are left out."""
    names = {"natural_or_human_made": "kind", "hierarchical_label": "group"}
    parts = [
        table[["landmark_id", *names]].rename(columns=names).assign(split=space)
        for space, table in labels.items()
    ]
    classes = pd.concat(parts, ignore_index=True)
    return classes[classes["group"] != ""]


def classes_of_paths(hierarchy: pd.DataFrame) -> pd.DataFrame:
    """``Release.classes`` of label paths with any levels."""
    paths = [list(json.loads(path).values()) for path in hierarchy["path"]]
    return hierarchy[["split", "landmark_id"]].assign(
        kind=[path[0] if len(path) > 2 else "" for path in paths],
        group=[path[-2] if len(path) > 1 else "" for path in paths],
    )


def sheet_of_paths(hierarchy: pd.DataFrame) -> Sheet:
    """Label paths as a table with one column a level."""
    paths = [json.loads(path) for path in hierarchy["path"]]
    levels = dict.fromkeys(name for path in paths[:1] for name in path)
    keys = ("split", "landmark_id")
    columns: dict[str, ColumnType] = {**_KEY_COLUMNS, **dict.fromkeys(levels, "text")}
    rows = hierarchy[list(keys)].assign(**{name: [p[name] for p in paths] for name in levels})
    return Sheet("labels", Table("labels.csv", columns, keys), rows)
