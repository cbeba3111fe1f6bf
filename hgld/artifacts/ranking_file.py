"""Ranking files: shared levels and first images of each query of a model, rank by rank.

The levels of a thousand queries over GLDv2's index are 860 million cells, so they are written in
blocks of queries and read row by row; the complete array is never in memory.
"""

import io
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from hgld.artifacts.atomic import atomic_path
from hgld.artifacts.formats import read_arrays
from hgld.errors import InvalidData
from hgld.words import single_blanks

__all__ = ["RankingFile", "write_ranking"]

READ = ("query_ids", "order", "gallery_ids", "classes", "class_means")  # all but the levels
EPOCH = (1980, 1, 1, 0, 0, 0)  # fixed date of the zip members: same ranking, same bytes


@contextmanager
def write_ranking(
    path: Path, query_ids: np.ndarray, gallery_ids: np.ndarray, classes: np.ndarray,
    class_means: np.ndarray,
) -> Iterator[Callable[[np.ndarray, np.ndarray], None]]:  # fmt: skip
    """Write the ranking of one model, atomically; the same ranking gives the same bytes.

    Args:
        path: of the file, .npz.
        query_ids: (Q,) image ids.
        gallery_ids: (G,) image ids.
        classes: (C, L) labels of the gallery's finest classes.
        class_means: (C, D) mean embedding of each.

    Yields:
        A function that appends a block of queries: (q, G) int8 levels by rank, and (q, K) int32
        gallery rows of the first ranks.
    """
    first = []
    with (
        atomic_path(path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
    ):
        with file.open(_member("levels"), "w", force_zip64=True) as member:
            shape = len(query_ids), len(gallery_ids)
            header = {"descr": "|i1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(member, header)

            def add(levels: np.ndarray, order: np.ndarray) -> None:
                member.write(np.ascontiguousarray(levels).data)
                first.append(order)

            yield add
        arrays = {"order": np.concatenate(first), "query_ids": query_ids}
        arrays |= {"gallery_ids": gallery_ids, "classes": classes, "class_means": class_means}
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array, allow_pickle=False)
            file.writestr(_member(name), buffer.getvalue())


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(f"{name}.npy", EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


@dataclass(frozen=True)
class RankingFile:
    """A model's ranking file, read without its levels.

    Attributes:
        path: of the file.
        query_ids: (Q,) image ids.
        order: (Q, at most 100) gallery rows of the first ranks.
        gallery_ids: (G,) image ids.
        classes: (C, L) labels of the finest classes with a mean embedding.
        means: (C, D) mean embedding of each.
    """

    path: Path
    query_ids: np.ndarray
    order: np.ndarray
    gallery_ids: np.ndarray
    classes: np.ndarray
    means: np.ndarray

    @classmethod
    def load(cls, path: Path) -> "RankingFile":
        """Read everything except the levels.

        Raises:
            InvalidData: the file cannot be read.
        """
        try:
            data = read_arrays(path, READ)
            return cls(path, *(data[name] for name in READ))
        except Exception as error:  # zipfile and numpy raise many types for a damaged file
            raise _unreadable(path, error) from None

    @cached_property
    def query_rows(self) -> dict[str, int]:
        """Row of each query, by its image id."""
        return {str(name): row for row, name in enumerate(self.query_ids)}

    def levels(self, queries: Sequence[str]) -> np.ndarray:
        """Return (q, G) int8 shared levels by rank; -1, at the end: not in this query's gallery.

        Raises:
            InvalidData: the file cannot be read.
        """
        wanted = {self.query_rows[query]: place for place, query in enumerate(queries)}
        found: dict[int, np.ndarray] = {}
        for row, levels in enumerate(self._rows(1 + max(wanted, default=-1))):
            if row in wanted:
                found[wanted[row]] = levels
        return np.stack([found[place] for place in range(len(found))])

    def first_levels(self) -> np.ndarray:
        """Return the (Q,) int8 level of each query's first image.

        Raises:
            InvalidData: the file cannot be read.
        """
        return np.array([levels[0] for levels in self._rows(len(self.query_ids))], np.int8)

    def first(self, queries: Sequence[str], images: int) -> list[list[tuple[str, int]]]:
        """Return ids and shared levels of the first images of each query."""
        lists = []
        for query, levels in zip(queries, self.levels(queries), strict=True):
            inside = np.flatnonzero(levels[: self.order.shape[1]] >= 0)[:images]
            ids = map(str, self.gallery_ids[self.order[self.query_rows[query], inside]])
            lists.append(list(zip(ids, map(int, levels[inside]), strict=True)))
        return lists

    def _rows(self, count: int) -> Iterator[np.ndarray]:
        """Yield the levels of the first queries, one row at a time."""
        try:
            with zipfile.ZipFile(self.path) as file, file.open("levels.npy") as member:
                if np.lib.format.read_magic(member) != (1, 0):
                    raise ValueError("levels of an unknown form")
                shape, _, kind = np.lib.format.read_array_header_1_0(member)
                for _ in range(count):
                    row = member.read(shape[1] * kind.itemsize)
                    yield np.frombuffer(row, kind, shape[1])
        except Exception as error:  # zipfile and numpy raise many types for a damaged file
            raise _unreadable(self.path, error) from None


def _unreadable(path: Path, error: Exception) -> InvalidData:
    reason = single_blanks(str(error))
    return InvalidData(f"{path}: not a readable ranking ({reason}); run the evaluate stage again")
