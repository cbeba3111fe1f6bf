"""Picks the queries that the report shows, and what each of them found.

The best, the worst and some random queries of one model. The random ones are drawn by a hash of
the image's id, so that they stay the same whatever else is in the set. Every photo comes with its
title, author and licence, and is never shown without them.
"""

import io
import json
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from hgld.artifacts import SPACE_OF_SPLIT
from hgld.errors import InvalidData
from hgld.shards.files import FileReader

__all__ = [
    "Example",
    "ExampleGroup",
    "Found",
    "Images",
    "Photo",
    "choose_queries",
    "class_paths",
    "find_examples",
    "name_license",
]

UNKNOWN = "unknown"  # as the tables of images say it
THUMBNAIL = 288  # pixels; shown at half of that
_CREATIVE_COMMONS = re.compile(
    r"https?://(?:www\.)?creativecommons\.org/(licenses|publicdomain)/([a-z+-]+)/?(\d\.\d)?"
)


@dataclass(frozen=True)
class Photo:
    """A small copy of an image, and to whom it is owed."""

    image: Image.Image
    title: str
    author: str
    license: str
    license_url: str
    url: str

    @property
    def byline(self) -> str:
        """Who made it."""
        return "author unknown" if self.author == UNKNOWN else f"by {self.author}"

    @property
    def terms(self) -> str:
        """Under which licence."""
        return "licence unknown" if self.license == UNKNOWN else self.license


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
    ranking: Path,
    values: "pd.Series[float]",
    queries: "Images",
    gallery: "Images",
    *,
    count: int,
    images: int,
) -> list[ExampleGroup]:
    """The chosen queries of a model, each with its first images.

    Args:
        ranking: the model's file of ranked levels.
        values: image_id -> value of the query, by which best and worst are meant.
        queries: images of the queries' split.
        gallery: images of the gallery's split.
        count: queries in all.
        images: gallery images of each query.

    Raises:
        InvalidData: the ranking cannot be read.
    """
    ranked = _Ranking.load(ranking)

    def example(image_id: str) -> Example:
        found = tuple(
            Found(gallery.photo(other), rank, level, gallery.path(other))
            for rank, (other, level) in enumerate(ranked.first(image_id, images), start=1)
        )
        photo, path = queries.photo(image_id), queries.path(image_id)
        return Example(photo, path, float(values[image_id]), found)

    chosen = choose_queries(values, queries.groups(), count)
    return [ExampleGroup(name, tuple(map(example, ids))) for name, ids in chosen.items()]


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
    mixed = sorted(ids, key=lambda i: sha256(i.encode()).digest())
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


def name_license(text: str) -> tuple[str, str]:
    """A licence's short name and its address, empty where there is none.

    Example:
        >>> name_license("https://creativecommons.org/licenses/by-sa/3.0/")
        ('CC BY-SA 3.0', 'https://creativecommons.org/licenses/by-sa/3.0/')
        >>> name_license("CC0 / public domain")
        ('CC0 / public domain', '')
    """
    found = _CREATIVE_COMMONS.match(text)
    if found is None:
        return text, text if _is_web(text) else ""
    kind, name, version = found.groups()
    if kind == "licenses":
        short = f"CC {name.upper()}"
    else:
        short = {"zero": "CC0", "mark": "Public domain mark"}.get(name, "Public domain")
    return " ".join(part for part in (short, version) if part), text


@dataclass(frozen=True)
class _Ranking:
    levels: np.ndarray  # (Q, G) shared level by rank; -1: not in this query's gallery
    query_rows: Mapping[str, int]
    order: np.ndarray  # (Q, at most 100) gallery rows by rank
    gallery_ids: np.ndarray

    @classmethod
    def load(cls, path: Path) -> "_Ranking":
        try:
            with np.load(path, allow_pickle=False) as data:
                rows = {str(name): row for row, name in enumerate(data["query_ids"])}
                return cls(data["levels"], rows, data["order"], data["gallery_ids"])
        except Exception as error:  # numpy raises whatever the damage leads to
            raise InvalidData(
                f"{path}: not a readable ranking ({error}); run the evaluate stage again"
            ) from None

    def first(self, query: str, images: int) -> list[tuple[str, int]]:
        """Ids and shared levels of the query's first images."""
        row = self.query_rows[query]
        levels = self.levels[row, : self.order.shape[1]]
        inside = np.flatnonzero(levels >= 0)[:images]
        ids = self.gallery_ids[self.order[row, inside]]
        return [(str(i), int(level)) for i, level in zip(ids, levels[inside], strict=True)]


class Images:
    """The images of one split as photos with their classes."""

    def __init__(
        self,
        shards: Path,
        index: pd.DataFrame,
        split: str,
        paths: Mapping[tuple[str, int], tuple[str, ...]],
    ) -> None:
        self.reader = FileReader(shards)
        rows = index[index["split"] == split]
        self.rows = rows.set_index("image_id", drop=False)
        self.landmarks = dict(zip(rows["image_id"], rows["landmark_id"], strict=True))
        self.space = SPACE_OF_SPLIT[split]
        self.paths = paths

    def photo(self, image_id: str) -> Photo:
        """A small copy of the image, with its attribution."""
        row: Any = self.rows.loc[image_id]
        data = self.reader.read(row["shard"], int(row["offset"]), int(row["size_bytes"]))
        image = Image.open(io.BytesIO(data))
        image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
        name, address = name_license(str(row["license"]))
        url = str(row["url"]) if _is_web(str(row["url"])) else ""
        title = str(row["title"]).removeprefix("File:")
        title = f"image {image_id}" if title == UNKNOWN else title
        return Photo(image, title, str(row["author"]), name, address, url)

    def groups(self) -> dict[str, tuple[str, ...]]:
        """image_id -> the classes above its finest one, or that one where there is no other."""
        return {i: self.path(i)[:-1] or self.path(i) for i in self.landmarks}

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


def _is_web(text: str) -> bool:
    return text.startswith(("http://", "https://"))
