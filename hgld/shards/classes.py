"""Convert the paths of the hierarchy into dense class numbers, one per level, coarse to fine.

A class is identified by its whole path: two groups of one name under different parents are two
classes, so the levels that two samples share are the common prefix of their numbers. Numbers are
the same in every split, since they are derived from the hierarchy alone.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from hgld.artifacts import SPACE_OF_SPLIT
from hgld.errors import InvalidData

PART = 1 << 16  # paths
_DECODER = json.JSONDecoder()  # json.loads makes many short texts slow


@dataclass(frozen=True)
class Classes:
    """The classes of all levels.

    Attributes:
        levels: names of the levels, coarse to fine.
        landmarks: split (the id space), landmark_id, level_1 .. level_L, and one name per level.
        table: level, id, name, parent_id (-1 at the coarsest level).
    """

    levels: tuple[str, ...]
    landmarks: pd.DataFrame
    table: pd.DataFrame

    def find(self, images: pd.DataFrame) -> np.ndarray:
        """Rows of ``landmarks`` for images by split and landmark_id; -1 for those without one.

        Example:
            >>> classes = number_classes(
            ...     pd.DataFrame({"split": "index", "landmark_id": [7], "path": ['{"kind": "a"}']})
            ... )
            >>> classes.find(pd.DataFrame({"split": "test", "landmark_id": [7, 8]})).tolist()
            [0, -1]
        """
        wanted = images["landmark_id"].to_numpy()
        rows = np.full(len(images), -1)
        nowhere = pd.Index([]), np.empty(0, int)
        for split, places in images.groupby("split").indices.items():
            ids, found = self._spaces.get(SPACE_OF_SPLIT.get(str(split)), nowhere)
            rows[places] = np.r_[found, -1][ids.get_indexer(pd.Index(wanted[places]))]
        return rows

    @cached_property
    def _spaces(self) -> dict[str | None, tuple["pd.Index[Any]", np.ndarray]]:
        """Landmark ids of each id space, and their rows."""
        found = self.landmarks.groupby("split").indices.items()
        rows = {str(name): np.asarray(own) for name, own in found}
        ids = self.landmarks["landmark_id"]
        return {name: (pd.Index(ids.iloc[own]), own) for name, own in rows.items()}


def number_classes(hierarchy: pd.DataFrame) -> Classes:
    """Number the classes of each level in the order of their paths.

    Raises:
        InvalidData: no rows; a path is not a JSON object of names, or has other levels.
    """
    if hierarchy.empty:
        raise InvalidData(
            "hierarchy.csv: no rows, so no image has a class; label_dropped.csv has the reasons, "
            "images_dropped.parquet if no image was collected"
        )
    levels, names = _read_paths(hierarchy["path"])
    landmarks = hierarchy[["split", "landmark_id"]].reset_index(drop=True)
    tables: list[pd.DataFrame] = []
    parents = np.zeros(len(landmarks), np.int64)
    for level in range(1, len(levels) + 1):
        name = names.take(pa.array(np.arange(level - 1, len(names), len(levels))))
        # Numbered in the order of their paths, so that the order of the rows changes no number.
        texts = pc.unique(name)
        texts = texts.take(pc.array_sort_indices(texts))
        own = pc.index_in(name, texts).to_numpy().astype(np.int64)
        keys, numbers = np.unique(parents * len(texts) + own, return_inverse=True)
        parent_id = keys // len(texts) if level > 1 else -1
        of_level = {"level": level, "id": np.arange(len(keys))}
        of_level["name"] = texts.take(pa.array(keys % len(texts))).to_pandas()
        tables.append(pd.DataFrame({**of_level, "parent_id": parent_id}))
        landmarks[f"level_{level}"], landmarks[f"name_{level}"] = numbers, name.to_pandas()
        parents = numbers
    return Classes(levels, landmarks, pd.concat(tables, ignore_index=True))


def label_images(images: pd.DataFrame, classes: Classes) -> pd.DataFrame:
    """Give each image the classes of its landmark; nan if the landmark has none.

    Args:
        images: split, landmark_id, and any other columns.
        classes: of all landmarks.

    Returns:
        The images, in their order, with level_1 .. level_L and name_1 .. name_L.
    """
    found = classes.landmarks.drop(columns=["split", "landmark_id"]).reindex(classes.find(images))
    return pd.concat([images.reset_index(drop=True), found.reset_index(drop=True)], axis=1)


def _read_paths(texts: "pd.Series[str]") -> tuple[tuple[str, ...], pa.Array]:
    """Return the levels, and the names of all paths, path after path."""
    kinds: dict[tuple[str, ...], int] = {}
    kind, parts = np.empty(len(texts), np.int32), list[pa.Array]()
    for first in range(0, len(texts), PART):  # few paths at a time are objects of Python
        names: list[str] = []
        for row, text in enumerate(texts.iloc[first : first + PART].tolist(), first):
            try:
                path = _DECODER.decode(text)
            except ValueError:
                path = None
            named = isinstance(path, dict) and all(v and isinstance(v, str) for v in path.values())
            if not (named and path):
                raise InvalidData(
                    f"hierarchy.csv row {row + 2}: path is {text!r}; expected a JSON object of "
                    "level names and classes, coarse to fine"
                )
            kind[row] = kinds.setdefault(tuple(path), len(kinds))
            names += path.values()
        parts.append(pa.array(names, pa.large_string()))
    levels = list(kinds)
    usual = int(np.bincount(kind).argmax())  # the majority is right; an odd row is the error
    if len(levels) > 1:
        row, right = int(np.argmax(kind != usual)), int(np.argmax(kind == usual))
        raise InvalidData(
            f"hierarchy.csv row {row + 2}: levels {', '.join(levels[kind[row]])}; expected "
            f"{', '.join(levels[usual])} as in row {right + 2}"
        )
    return levels[0], pa.concat_arrays(parts)
