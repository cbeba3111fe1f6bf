"""Selection of the example queries of the report, with the images that each of them found.

Shown are the best, the worst and some random queries of one model, and those with the largest
difference between two models. Random ones are drawn by a hash of the image id, so that they do not
change if other images are added or removed. Every photo has its classes, title, author and licence
as far as they are known.
"""

import json
import textwrap
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from hgld.artifacts import ARTIFACTS, SPACE_OF_SPLIT
from hgld.artifacts.catalogue import declared_table
from hgld.artifacts.ranking_file import RankingFile
from hgld.credit import UNKNOWN, Credit
from hgld.ranking.curves import by_chance
from hgld.shards.files import read_image
from hgld.shards.index import read_index
from hgld.shards.location import tar_folder
from hgld.shards.schema import level_columns

THUMBNAIL = 288  # pixels; shown at half of that
LINE = 24  # pixels from a line of a card to the next
READ = ("hierarchy", "landmarks")  # tables of a work folder


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
    """The images that a model found for a query, and the value of the query.

    Attributes:
        curve: (recall, precision) in percent at each image of the query's finest class, as far as
            the ranking file holds ranks.
    """

    model: str
    value: float
    found: tuple[Found, ...]
    curve: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Example:
    """A query and what it found by each model."""

    photo: ExamplePhoto
    results: tuple[FoundByModel, ...]


def find_examples(
    chosen: Mapping[str, Sequence[str]],
    rankings: Mapping[str, RankingFile],
    values: pd.DataFrame,
    queries: "Images | NameQueries",
    gallery: "Images",
    images: int,
) -> dict[str, list[Example]]:
    """The chosen queries of each group with what each model found for them.

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
    shared = {
        model: dict(zip(ids, ranking.levels(ids), strict=True)) if ids else {}
        for model, ranking in rankings.items()
    }

    def result(image_id: str, model: str) -> FoundByModel:
        ranking, levels = rankings[model], shared[model][image_id]
        found = tuple(
            Found(gallery.photo(other), rank, level)
            for rank, (other, level) in enumerate(ranking.first(image_id, levels, images), start=1)
        )
        counts = ranking.counts[ranking.query_rows[image_id]]  # (L + 1,)
        hits = levels[levels >= 0] == len(counts) - 1  # -1: the query itself
        curve = precision_recall(hits, int(counts[-1]))
        return FoundByModel(model, float(values[model][image_id]), found, curve)

    def example(image_id: str) -> Example:
        results = tuple(result(image_id, model) for model in rankings)
        return Example(queries.photo(image_id), results)

    return {name: [example(image_id) for image_id in group] for name, group in chosen.items()}


def precision_recall(hits: np.ndarray, total: int) -> tuple[tuple[float, float], ...]:
    """Return (recall, precision) in percent at each right image.

    Args:
        hits: bool of each rank, first rank first.
        total: right images in the gallery.

    Example:
        >>> precision_recall(np.array([True, False, True]), 4)
        ((25.0, 100.0), (50.0, 66.7))
    """
    ranks = np.flatnonzero(hits) + 1
    number = np.arange(1, len(ranks) + 1)
    recall, precision = 100 * number / max(total, 1), 100 * number / ranks
    return tuple(zip(recall.round(1).tolist(), precision.round(1).tolist(), strict=True))


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
        self.shards, self.split = shards, split
        rows = index[index["split"].isin(split.split("+"))]
        self.rows = rows.set_index("image_id", drop=False)
        self.landmarks = dict(zip(rows["image_id"], rows["landmark_id"], strict=True))
        spaces = rows["split"].map(SPACE_OF_SPLIT)  # a gallery may join splits of both
        self.spaces = dict(zip(rows["image_id"], spaces, strict=True))
        self.paths = paths
        self.names = names

    @classmethod
    def of_work(cls, work: Path, *splits: str) -> "list[Images]":
        """Open the images of each of these splits of a work folder, or of all that its shards have.

        Raises:
            InvalidData: a file of the work folder is missing or cannot be read.
        """
        tables = [declared_table(name).read(work / declared_table(name).file) for name in READ]
        shards = work / ARTIFACTS["shards"].file
        index, paths, names = read_index(shards), class_paths(tables[0]), landmark_names(tables[1])
        known = sorted(index["split"].unique())
        return [cls(shards, index, split, paths, names) for split in splits or known]

    def unknown(self, ranking: RankingFile) -> list[str]:
        """Ids of the ranked images that are none of these, sorted."""
        return sorted({str(i) for i in ranking.gallery_ids} - self.landmarks.keys())

    def photo(self, image_id: str) -> ExamplePhoto:
        """A small copy of the image, with its classes and its attribution."""
        row: Any = self.rows.loc[image_id]
        image = self.thumbnail(image_id, THUMBNAIL)
        return ExamplePhoto(image, self.named_path(image_id)[::-1], Credit.of(row))

    def thumbnail(self, image_id: str, side: int) -> Image.Image:
        """A copy of the image of at most so many pixels on each side."""
        row: Any = self.rows.loc[image_id]
        image = read_image(self._tars, row)
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        return image

    @cached_property
    def _tars(self) -> Path | str:
        """Place of the tars; at a URL it takes a request, which is not for every photo."""
        return tar_folder(self.shards)

    def paths_by_labels(self) -> dict[tuple[int, ...], tuple[str, ...]]:
        """Numbers of the classes, coarse to fine -> their names."""
        columns = level_columns(self.rows)
        rows = self.rows.drop_duplicates(columns)
        labels = map(tuple, rows[columns].to_numpy().tolist())
        return {numbers: self.path(i) for numbers, i in zip(labels, rows.index, strict=True)}

    def path(self, image_id: str) -> tuple[str, ...]:
        """Names of the image's classes, coarse to fine."""
        return self.paths[self.spaces[image_id], self.landmarks[image_id]]

    def named_path(self, image_id: str) -> tuple[str, ...]:
        """The path with the name of the landmark, if it is known."""
        *above, finest = self.path(image_id)
        return (*above, self.names.get(finest, finest))


class NameQueries:
    """Class names as queries, with the interface of ``Images``: a photo is a card with the prompt.

    Args:
        gallery: of the evaluation, whose classes are searched for.
        protocol: its levels, and the level of the names and their prompts.
        ranking: its queries, whose ids are the paths of their classes.
    """

    def __init__(self, gallery: Images, protocol: Mapping[str, Any], ranking: RankingFile) -> None:
        facts = protocol["names"]
        self.depth = depth = protocol["levels"].index(facts["level"]) + 1
        known = {"/".join(path[:depth]): path[:depth] for path in gallery.paths.values()}
        self.landmarks = {name: known[name] for name in map(str, ranking.query_ids)}
        self.names, self.prompt = gallery.names, facts["prompts"][0]

    def photo(self, image_id: str) -> ExamplePhoto:
        """Return a card with the first prompt."""
        from hgld.figures import draw_line  # imports matplotlib

        *above, name = self.path(image_id)
        text = self.prompt.replace("{}", self.names.get(name, name))
        card = Image.new("RGB", (THUMBNAIL, THUMBNAIL), "white")
        lines, draw = textwrap.wrap(text, 18), ImageDraw.Draw(card)
        for number, line in enumerate(lines):
            at = THUMBNAIL / 2, THUMBNAIL / 2 + LINE * (number - (len(lines) - 1) / 2) + LINE / 4
            draw_line(draw, at, line, "black", 20, "ms")
        credit = Credit(text, UNKNOWN, UNKNOWN, "", "")
        return ExamplePhoto(card, (self.names.get(name, name), *above[::-1]), credit)

    def path(self, image_id: str) -> tuple[str, ...]:
        """Names of the query's classes, coarse to fine."""
        return self.landmarks[image_id]


def _spread(ids: Sequence[str], groups: Mapping[str, Hashable], count: int) -> list[str]:
    """Return the first ids of different groups; if there are too few groups, fill up in order."""
    seen: set[Hashable] = set()
    first: list[str] = []
    others: list[str] = []
    for i in ids:
        (others if groups[i] in seen else first).append(i)
        seen.add(groups[i])
    return (first + others)[:count]
