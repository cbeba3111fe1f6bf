"""Reads what each query found from a ranking file, only the rows that are shown or measured.

The levels of a thousand queries over GLDv2's index are 860 million cells; they are read row by row
and never held as a whole.
"""

import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from hgld.artifacts import read_arrays
from hgld.errors import InvalidData

__all__ = ["Ranking", "by_chance"]

READ = ("query_ids", "gallery_ids", "order", "classes", "class_means")  # all but the levels


@dataclass(frozen=True)
class Ranking:
    """A model's ranking file.

    Attributes:
        path: of the file.
        query_rows: image_id of a query -> its row.
        order: (Q, at most 100) gallery rows of the first ranks.
        gallery_ids: (G,) image ids.
        classes: (C, L) labels of the finest classes with a mean embedding; none in older files.
        means: (C, D) mean embedding of each.
    """

    path: Path
    query_rows: Mapping[str, int]
    order: np.ndarray
    gallery_ids: np.ndarray
    classes: np.ndarray
    means: np.ndarray

    @classmethod
    def load(cls, path: Path) -> "Ranking":
        """All of the file but the levels.

        Raises:
            InvalidData: it cannot be read.
        """
        none = np.empty((0, 0))
        try:
            data = read_arrays(path, READ)
            rows = {str(name): row for row, name in enumerate(data["query_ids"])}
            classes, means = data.get("classes", none), data.get("class_means", none)
            return cls(path, rows, data["order"], data["gallery_ids"], classes, means)
        except Exception as error:  # zipfile and numpy raise whatever the damage leads to
            raise _unreadable(path, error) from None

    def levels(self, queries: Sequence[str]) -> np.ndarray:
        """(q, G) int8 shared level by rank; -1, at the end: not in this query's gallery."""
        wanted = {self.query_rows[query]: place for place, query in enumerate(queries)}
        found: dict[int, np.ndarray] = {}
        try:
            with zipfile.ZipFile(self.path) as file, file.open("levels.npy") as member:
                if np.lib.format.read_magic(member) != (1, 0):
                    raise ValueError("levels of an unknown form")
                shape, _, kind = np.lib.format.read_array_header_1_0(member)
                for row in range(1 + max(wanted, default=-1)):
                    data = member.read(shape[1] * kind.itemsize)
                    if row in wanted:
                        found[wanted[row]] = np.frombuffer(data, kind, shape[1])
        except Exception as error:  # zipfile and numpy raise whatever the damage leads to
            raise _unreadable(self.path, error) from None
        return np.stack([found[place] for place in range(len(found))])

    def first(self, queries: Sequence[str], images: int) -> list[list[tuple[str, int]]]:
        """Ids and shared levels of the first images of each query."""
        lists = []
        for query, levels in zip(queries, self.levels(queries), strict=True):
            inside = np.flatnonzero(levels[: self.order.shape[1]] >= 0)[:images]
            ids = map(str, self.gallery_ids[self.order[self.query_rows[query], inside]])
            lists.append(list(zip(ids, map(int, levels[inside]), strict=True)))
        return lists


def by_chance(ids: Collection[str]) -> list[str]:
    """The ids in an order that looks random and stays the same whatever else is in the set."""
    return sorted(ids, key=lambda i: sha256(i.encode()).digest())


def _unreadable(path: Path, error: Exception) -> InvalidData:
    return InvalidData(f"{path}: not a readable ranking ({error}); run the evaluate stage again")
