"""Ranking files: shared levels and first images of each query of a model, rank by rank.

A file holds the levels of the first ranks, which are written in blocks of queries and read row by
row, and the number of images on each level. The curves of the report need every rank, so they are
measured with the metrics and kept here.
"""

import math
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from hgld.artifacts.atomic import atomic_path
from hgld.artifacts.formats import read_arrays
from hgld.errors import unreadable

READ = ("query_ids", "order", "gallery_ids", "classes", "class_means", "counts")  # not the levels
CURVES = ("precision", "by_alpha", "gaps", "sizes")
AGAIN = "run the evaluate stage again"
EPOCH = (1980, 1, 1, 0, 0, 0)  # fixed date of the zip members: same ranking, same bytes


@contextmanager
def write_ranking(
    path: Path, query_ids: np.ndarray, gallery_ids: Callable[[], Iterable[np.ndarray]], images: int,
    classes: np.ndarray, class_means: np.ndarray, keep: int,
) -> Iterator[Callable[..., None]]:  # fmt: skip
    """Write the ranking of one model, atomically; the same ranking gives the same bytes.

    Args:
        path: of the file, .npz.
        query_ids: (Q,) image ids.
        gallery_ids: returns the image ids of the gallery in parts; called twice.
        images: G, their number.
        classes: (C, L) labels of the gallery's finest classes.
        class_means: (C, D) mean embedding of each.
        keep: number of first ranks whose levels are written.

    Yields:
        A function that appends a block of queries: (q, G) int8 levels by rank, (q, K) int32
        gallery rows of the first ranks, (q, L + 1) int64 images on each level; and, with the last
        block, the arrays of ``hgld.ranking.curves.CurveValues`` by name.
    """
    blocks: dict[str, list[np.ndarray]] = {"order": [], "counts": []}
    more: dict[str, np.ndarray] = {}
    with (
        atomic_path(path) as temporary,
        zipfile.ZipFile(temporary, "w") as file,
    ):
        with file.open(_member("levels"), "w", force_zip64=True) as member:
            shape = len(query_ids), min(keep, images)
            _write_header(member, np.dtype(np.int8), shape)

            def add(
                levels: np.ndarray, order: np.ndarray, counts: np.ndarray, **curves: np.ndarray
            ) -> None:
                member.write(np.ascontiguousarray(levels[:, : shape[1]]).data)
                blocks["order"].append(order)
                blocks["counts"].append(counts)
                more.update({f"curve_{name}": values for name, values in curves.items()})

            yield add
        parts = {**blocks, "query_ids": [query_ids], "gallery_ids": [], "classes": [classes]}
        parts |= {"class_means": [class_means]} | {name: [array] for name, array in more.items()}
        for name, arrays in parts.items():
            read = gallery_ids if name == "gallery_ids" else partial(iter, arrays)
            _write_parts(file, name, read)


def _write_parts(
    file: zipfile.ZipFile, name: str, read: Callable[[], Iterable[np.ndarray]]
) -> None:
    """Write the concatenation of parts, of which one is in memory at a time."""
    facts = [(part.shape, part.dtype) for part in read()]
    shape = sum(shape[0] for shape, _ in facts), *facts[0][0][1:]
    kind = max((kind for _, kind in facts), key=lambda kind: kind.itemsize)  # the longest text
    about = _member(name)
    about.file_size = math.prod(shape) * kind.itemsize  # decides whether it may exceed 4 GB
    with file.open(about, "w") as member:
        _write_header(member, kind, shape)
        for part in read():
            member.write(part.astype(kind, copy=False).tobytes())


def _write_header(member: IO[bytes], kind: np.dtype[Any], shape: tuple[int, ...]) -> None:
    descr = np.lib.format.dtype_to_descr(kind)
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(member, header)


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(f"{name}.npy", EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info._compresslevel = 1  # type: ignore[attr-defined]  # a fifth of the time, 4 % more bytes
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
        counts: (Q, L + 1) gallery images on each level, level 0 first.
        curves: arrays of ``hgld.ranking.curves.CurveValues`` by name.
    """

    path: Path
    query_ids: np.ndarray
    order: np.ndarray
    gallery_ids: np.ndarray
    classes: np.ndarray
    means: np.ndarray
    counts: np.ndarray
    curves: dict[str, np.ndarray]

    @classmethod
    def load(cls, path: Path) -> "RankingFile":
        """Read everything except the levels.

        Raises:
            InvalidData: the file cannot be read.
        """
        try:
            data = read_arrays(path, (*READ, *(f"curve_{name}" for name in CURVES)))
            curves = {name: data[f"curve_{name}"] for name in CURVES}
            names = [item.name for item in fields(cls)][1:-1]
            arrays = {name: data[key] for name, key in zip(names, READ, strict=True)}
            return cls(path=path, curves=curves, **arrays)
        except Exception as error:  # zipfile and numpy raise many types for a damaged file
            raise unreadable(path, "ranking", error, AGAIN) from None

    @cached_property
    def query_rows(self) -> dict[str, int]:
        """Row of each query, by its image id."""
        return {str(name): row for row, name in enumerate(self.query_ids)}

    def levels(self, queries: Sequence[str]) -> np.ndarray:
        """Return (q, K) int8 shared levels of the first ranks; -1: not in this query's gallery.

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

    def first(self, query: str, levels: np.ndarray, images: int) -> list[tuple[str, int]]:
        """Return ids and shared levels of the first images of a query.

        Args:
            query: its id.
            levels: (K,) its row of ``levels``, which takes a pass through the file to read.
            images: number of images at most.
        """
        inside = np.flatnonzero(levels[: self.order.shape[1]] >= 0)[:images]
        ids = map(str, self.gallery_ids[self.order[self.query_rows[query], inside]])
        return list(zip(ids, map(int, levels[inside]), strict=True))

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
            raise unreadable(self.path, "ranking", error, AGAIN) from None


def is_other_npz(path: Path) -> bool:
    """Whether an .npz holds other arrays than a ranking; False if it is damaged."""
    try:
        with zipfile.ZipFile(path) as file:
            return not {"levels.npy", "query_ids.npy"} <= set(file.namelist())
    except zipfile.BadZipFile:
        return False
