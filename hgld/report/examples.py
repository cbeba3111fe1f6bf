"""Selection of the example queries of the report, with the images that each of them found.

Shown are the best, the worst and some random queries of one model, and those with the largest
difference between two models. Random ones are drawn by a hash of the image id, so that they do not
change if other images are added or removed. Every photo has its classes, title, author and licence
as far as they are known.
"""

import json
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from hgld.artifacts import SPACE_OF_SPLIT
from hgld.artifacts.ranking_file import RankingFile
from hgld.credit import UNKNOWN, Credit
from hgld.shards.index import level_columns
from hgld.shards.read import read_image

__all__ = [
    "Example",
    "ExampleGroup",
    "ExamplePhoto",
    "Found",
    "FoundByModel",
    "Images",
    "by_chance",
    "choose_differing",
    "choose_queries",
    "class_paths",
    "find_examples",
    "landmark_names",
]

THUMBNAIL = 288  # pixels; shown at half of that


@dataclass(frozen=True)
class ExamplePhoto:
    """A small copy of an image, its classes fine to coarse, and its attribution."""

    image: Image.Image
    classes: tuple[str, ...]
    credit: Credit


@dataclass(frozen=True)
class Found:
    """A gallery image at its rank, and the level that it shares with the query."""

    photo: ExamplePhoto
    rank: int
    level: int


@dataclass(frozen=True)
class FoundByModel:
    """The images that a model found for a query, and the value of the query."""

    model: str
    value: float
    found: tuple[Found, ...]


@dataclass(frozen=True)
class Example:
    """A query and what it found by each model."""

    photo: ExamplePhoto
    results: tuple[FoundByModel, ...]


@dataclass(frozen=True)
class ExampleGroup:
    """Examples that were chosen for the same reason."""

    name: str
    examples: tuple[Example, ...]


def find_examples(
    chosen: Mapping[str, Sequence[str]],
    rankings: Mapping[str, RankingFile],
    values: pd.DataFrame,
    queries: "Images",
    gallery: "Images",
    images: int,
) -> list[ExampleGroup]:
    """The chosen queries with what each model found for them.

    Args:
        chosen: group -> ids of its queries.
        rankings: model -> its ranking.
        values: image_id -> value of the query by each of these models.
        queries: images of the queries' split.
        gallery: images of the gallery's split.
        images: gallery images of each query.

    Raises:
        InvalidData: a ranking cannot be read.
    """
    ids = [image_id for group in chosen.values() for image_id in group]
    lists = {
        model: dict(zip(ids, ranking.first(ids, images), strict=True)) if ids else {}
        for model, ranking in rankings.items()
    }

    def result(image_id: str, model: str) -> FoundByModel:
        found = tuple(
            Found(gallery.photo(other), rank, level)
            for rank, (other, level) in enumerate(lists[model][image_id], start=1)
        )
        return FoundByModel(model, float(values[model][image_id]), found)

    def example(image_id: str) -> Example:
        results = tuple(result(image_id, model) for model in rankings)
        return Example(queries.photo(image_id), results)

    return [ExampleGroup(name, tuple(map(example, group))) for name, group in chosen.items()]


def choose_queries(
    values: "pd.Series[float]", groups: Mapping[str, Hashable], count: int
) -> dict[str, list[str]]:
    """Return ids of the best, worst and random queries, from different groups if possible.

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


def choose_differing(
    differences: "pd.Series[float]", groups: Mapping[str, Hashable], count: int
) -> dict[str, list[str]]:
    """Ids of the queries with the largest gain and loss, and random ones.

    Example:
        >>> choose_differing(pd.Series({"a": 0.2, "b": 0.1}), {"a": 1, "b": 1}, 3)
        {'gain': ['a'], 'random': ['b']}
    """
    chosen = choose_queries(differences, groups, count)
    parts = {
        "gain": [i for i in chosen.get("best", ()) if differences[i] > 0],
        "loss": [i for i in chosen.get("worst", ()) if differences[i] < 0],
    }
    known = [i for i in differences.dropna().index if not any(i in part for part in parts.values())]
    parts["random"] = by_chance(known)[: count // 3]
    return {name: ids for name, ids in parts.items() if ids}


def class_paths(hierarchy: pd.DataFrame) -> dict[tuple[str, int], tuple[str, ...]]:
    """(id space, landmark_id) -> names of its classes, coarse to fine."""
    keys = zip(hierarchy["split"], hierarchy["landmark_id"], strict=True)
    paths = (tuple(str(name) for name in json.loads(path).values()) for path in hierarchy["path"])
    return dict(zip(keys, paths, strict=True))


def landmark_names(landmarks: pd.DataFrame) -> dict[str, str]:
    """Return finest class as in label paths, ``train:139`` -> name, if it is known."""
    rows = landmarks[~landmarks["name"].isin(["", UNKNOWN])]
    keys = rows["split"] + ":" + rows["landmark_id"].astype(str)
    return dict(zip(keys, rows["name"], strict=True))


class Images:
    """The images of one split, or of several (``A+B``), as photos with their classes."""

    def __init__(
        self,
        shards: Path,
        index: pd.DataFrame,
        split: str,
        paths: Mapping[tuple[str, int], tuple[str, ...]],
        names: Mapping[str, str],
    ) -> None:
        self.shards = shards
        splits = split.split("+")
        rows = index[index["split"].isin(splits)]
        self.rows = rows.set_index("image_id", drop=False)
        self.landmarks = dict(zip(rows["image_id"], rows["landmark_id"], strict=True))
        self.space = SPACE_OF_SPLIT[splits[0]]
        self.paths = paths
        self.names = names

    def photo(self, image_id: str) -> ExamplePhoto:
        """A small copy of the image, with its classes and its attribution."""
        row: Any = self.rows.loc[image_id]
        image = read_image(self.shards, row)
        image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
        *above, finest = self.path(image_id)
        return ExamplePhoto(image, (self.names.get(finest, finest), *above[::-1]), Credit.of(row))

    def groups(self) -> dict[str, tuple[str, ...]]:
        """image_id -> the classes above its finest one, or that one if it is the only one."""
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
    """Return the first ids of different groups; if there are too few groups, fill up in order."""
    seen: set[Hashable] = set()
    first: list[str] = []
    others: list[str] = []
    for i in ids:
        (others if groups[i] in seen else first).append(i)
        seen.add(groups[i])
    return (first + others)[:count]


def by_chance(ids: Collection[str]) -> list[str]:
    """Return the ids in a random order that does not depend on the other ids of the set."""
    return sorted(ids, key=lambda i: sha256(i.encode()).digest())
