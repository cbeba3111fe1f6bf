"""Picks the queries that the report shows, and what each of them found.

The best, the worst and some random queries of one model. The random ones are drawn by a hash of
the image's id, so that they stay the same whatever else is in the set. Every photo comes with its
title, author and licence, and is never shown without them.
"""

import io
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from hgld.artifacts import SPACE_OF_SPLIT
from hgld.credit import Credit
from hgld.report.rankings import Ranking, by_chance
from hgld.shards.files import FileReader
from hgld.shards.index import level_columns

__all__ = [
    "Example",
    "ExampleGroup",
    "Found",
    "Images",
    "Photo",
    "choose_queries",
    "class_paths",
    "find_examples",
]

THUMBNAIL = 288  # pixels; shown at half of that


@dataclass(frozen=True)
class Photo:
    """A small copy of an image, and to whom it is owed."""

    image: Image.Image
    credit: Credit


@dataclass(frozen=True)
class Found:
    """A gallery image at its rank, and the level that it shares with the query."""

    photo: Photo
    rank: int
    level: int
    path: tuple[str, ...]


@dataclass(frozen=True)
class Example:
    """A query, its classes coarse to fine, its value, and the first images that it found."""

    photo: Photo
    path: tuple[str, ...]
    value: float
    found: tuple[Found, ...]


@dataclass(frozen=True)
class ExampleGroup:
    """Examples that were chosen for the same reason: best, worst or random."""

    name: str
    examples: tuple[Example, ...]


def find_examples(
    ranking: Ranking,
    values: "pd.Series[float]",
    queries: "Images",
    gallery: "Images",
    *,
    count: int,
    images: int,
) -> list[ExampleGroup]:
    """The chosen queries of a model, each with its first images.

    Args:
        ranking: of the model.
        values: image_id -> value of the query, by which best and worst are meant.
        queries: images of the queries' split.
        gallery: images of the gallery's split.
        count: queries in all.
        images: gallery images of each query.

    Raises:
        InvalidData: the ranking cannot be read.
    """
    chosen = choose_queries(values, queries.groups(), count)
    ids = [image_id for group in chosen.values() for image_id in group]
    lists = dict(zip(ids, ranking.first(ids, images), strict=True)) if ids else {}

    def example(image_id: str) -> Example:
        found = tuple(
            Found(gallery.photo(other), rank, level, gallery.path(other))
            for rank, (other, level) in enumerate(lists[image_id], start=1)
        )
        photo, path = queries.photo(image_id), queries.path(image_id)
        return Example(photo, path, float(values[image_id]), found)

    return [ExampleGroup(name, tuple(map(example, group))) for name, group in chosen.items()]


def choose_queries(
    values: "pd.Series[float]", groups: Mapping[str, Hashable], count: int
) -> dict[str, list[str]]:
    """Ids of the best, worst and random queries; no query twice, one a group where it goes.

    Example:
        >>> values = pd.Series({"a": 0.9, "b": 0.1, "c": 0.5})
        >>> choose_queries(values, {"a": "lake", "b": "church", "c": "lake"}, 3)
        {'best': ['a'], 'worst': ['b'], 'random': ['c']}
    """
    known = values.dropna()
    ids = [str(i) for i in known.index]
    up = sorted(ids, key=lambda i: (known[i], i))
    down = sorted(ids, key=lambda i: (-known[i], i))
    mixed = by_chance(ids)
    chosen: dict[str, list[str]] = {}
    for number, (name, order) in enumerate((("best", down), ("worst", up), ("random", mixed))):
        taken = {i for group in chosen.values() for i in group}
        share = (count + 2 - number) // 3
        chosen[name] = _spread([i for i in order if i not in taken], groups, share)
    return {name: ids for name, ids in chosen.items() if ids}


def class_paths(hierarchy: pd.DataFrame) -> dict[tuple[str, int], tuple[str, ...]]:
    """(id space, landmark_id) -> names of its classes, coarse to fine."""
    keys = zip(hierarchy["split"], hierarchy["landmark_id"], strict=True)
    paths = (tuple(str(name) for name in json.loads(path).values()) for path in hierarchy["path"])
    return dict(zip(keys, paths, strict=True))


class Images:
    """The images of one split, or of several (``A+B``), as photos with their classes."""

    def __init__(
        self,
        shards: Path,
        index: pd.DataFrame,
        split: str,
        paths: Mapping[tuple[str, int], tuple[str, ...]],
    ) -> None:
        self.reader = FileReader(shards)
        splits = split.split("+")
        rows = index[index["split"].isin(splits)]
        self.rows = rows.set_index("image_id", drop=False)
        self.landmarks = dict(zip(rows["image_id"], rows["landmark_id"], strict=True))
        self.space = SPACE_OF_SPLIT[splits[0]]
        self.paths = paths

    def photo(self, image_id: str) -> Photo:
        """A small copy of the image, with its attribution."""
        row: Any = self.rows.loc[image_id]
        data = self.reader.read(row["shard"], int(row["offset"]), int(row["size_bytes"]))
        image = Image.open(io.BytesIO(data))
        image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
        return Photo(image, Credit.of(row))

    def groups(self) -> dict[str, tuple[str, ...]]:
        """image_id -> the classes above its finest one, or that one where there is no other."""
        return {i: self.path(i)[:-1] or self.path(i) for i in self.landmarks}

    def paths_by_labels(self) -> dict[tuple[int, ...], tuple[str, ...]]:
        """Numbers of the classes, coarse to fine -> their names."""
        columns = level_columns(self.rows)
        rows = self.rows.drop_duplicates(columns)
        labels = map(tuple, rows[columns].to_numpy().tolist())
        return {numbers: self.path(i) for numbers, i in zip(labels, rows.index, strict=True)}

    def path(self, image_id: str) -> tuple[str, ...]:
        """Names of the image's classes, coarse to fine."""
        return self.paths[self.space, self.landmarks[image_id]]


def _spread(ids: Sequence[str], groups: Mapping[str, Hashable], count: int) -> list[str]:
    """The first ids of different groups; the first of the others where those do not suffice."""
    seen: set[Hashable] = set()
    first: list[str] = []
    others: list[str] = []
    for i in ids:
        (others if groups[i] in seen else first).append(i)
        seen.add(groups[i])
    return (first + others)[:count]
