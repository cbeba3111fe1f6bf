"""The columns of an index that reading and planning need, in files if there are many images.

A table of pandas takes 100 to 250 bytes of memory an image: for 100 million images 10 GB or more in
each rank. Columns of more than ``MANY`` images are therefore in temporary files without a name, in
the folder that TMPDIR names. The files are mapped: the system reads the pages that are used, shares
them among forked workers, and takes them back when memory is short.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from mmap import MADV_DONTNEED
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO, Self

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import ArrayLike, DTypeLike

from hgld.artifacts import BOX
from hgld.errors import Resumable
from hgld.shards.index import (
    labels_of,
    read_blocks,
    read_manifest,
    require_columns,
    whole_numbers,
)
from hgld.shards.schema import IMAGE_CRC32, PLACES, numbered_levels

MANY = 1 << 24  # images; columns of more are in files
PIECE = 1 << 20  # rows read at a time
KEY = pa.schema([("key", pa.large_string())])


@dataclass(frozen=True)
class ImageTable:
    """Keys, places, labels and runs of images, by row number.

    Attributes:
        keys: (N,) texts of Arrow.
        names: of the shards, sorted.
        shards: (N,) number of each row's shard in ``names``.
        places: (N, 2) offset and size in bytes of each image in its shard.
        labels: (N, L) class numbers, coarse to fine.
        crc32: (N,) of the bytes of each image; None if the index has none.
        runs: (N,) run of each sample in its shard; None if it is not known.
        boxes: (N, 4) part of the photo that is the image, as ``BOX``; None: the whole photo.
    """

    keys: pd.api.extensions.ExtensionArray
    names: list[str]
    shards: np.ndarray
    places: np.ndarray
    labels: np.ndarray
    crc32: np.ndarray | None = None
    runs: np.ndarray | None = None
    boxes: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.places)

    @classmethod
    def read(cls, folder: Path | str, split: str) -> "ImageTable":
        """Read the images of a split from the index, and check their rows as ``read_index`` does.

        Memory holds some hundred thousand rows at a time. The files of more than ``MANY`` images
        take 34 bytes an image, 4 for each level, and the key. Workers share them.

        Args:
            folder: of the shards, or its URL.
            split: such as "train"; of one that the shards lack there are no images.

        Raises:
            MissingInput, InvalidData: as ``read_index``.
            Resumable: the disk is full, or the folder of temporary files is gone.

        Example:
            >>> from hgld.shards import BatchLoader, BatchOptions
            >>> def batches(folder, transform):
            ...     images = ImageTable.read(folder, "train")
            ...     return BatchLoader(folder, images, transform, BatchOptions(64, 4), seed=0)
        """
        manifest = read_manifest(folder)
        own = [one for one in manifest["shards"] if one["split"] == split and one["samples"]]
        names, count = sorted(one["file"] for one in own), sum(one["samples"] for one in own)
        levels = numbered_levels(len(manifest["levels"]))
        # The places of all members are read, since the check needs them.
        columns = ["key", "shard", "split", "run", *PLACES, IMAGE_CRC32, *levels]
        with ExitStack() as stack:

            def column(dtype: DTypeLike, *width: int) -> Column:
                return stack.enter_context(Column(count, dtype, *width))

            shards, runs = column(np.min_scalar_type(-len(names))), column(np.int32)
            places, labels = column(np.int64, 2), column(np.int32, len(levels))
            crc32, keys = column(np.uint32), column(np.uint8)  # keys: an Arrow file
            with pa.ipc.new_file(keys.file, KEY) as writer:
                for rows in read_blocks(folder, names, columns):
                    shards.append(pd.Categorical(rows["shard"], names).codes)
                    places.append(rows[["offset", "size_bytes"]])
                    labels.append(rows[levels])
                    runs.append(rows["run"])
                    if IMAGE_CRC32 in rows:
                        crc32.append(rows[IMAGE_CRC32])
                    with _room(keys.file.tell()):
                        writer.write_table(pa.table([pa.array(rows["key"])], KEY))
            texts = pa.ipc.open_file(pa.py_buffer(keys.array())).read_all()["key"]
            checked = crc32.array()
            return cls(
                pd.arrays.ArrowStringArray(texts),
                names,
                shards.array(),
                places.array(),
                labels.array(),
                checked if len(checked) else None,
                runs.array(),
            )

    @classmethod
    def of_rows(cls, rows: pd.DataFrame) -> "ImageTable":
        """Build from rows of the index, in their order; without runs if the rows have none.

        Raises:
            InvalidData: a column is missing, or does not hold whole numbers.
            Resumable: the disk is full, or the folder of temporary files is gone.
        """
        require_columns(rows, ["key", "shard"])
        labels, names, shards = classes_and_shards(rows)
        return cls(
            rows["key"].array,
            names,
            shards,
            in_file(whole_numbers(rows, ["offset", "size_bytes"])),
            labels,
            in_file(whole_numbers(rows, [IMAGE_CRC32])[:, 0]) if IMAGE_CRC32 in rows else None,
            runs_of(rows) if "run" in rows else None,
            in_file(rows[list(BOX)].to_numpy(np.float64)) if {*BOX} <= {*rows} else None,
        )

    def take(self, rows: np.ndarray) -> "ImageTable":
        """Return some rows, in the order given."""
        arrays = ("shards", "places", "labels", "crc32", "runs", "boxes")
        found = {name: array[rows] for name in arrays if (array := getattr(self, name)) is not None}
        return replace(self, keys=self.keys.take(rows), **found)


def classes_and_shards(rows: pd.DataFrame) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Return classes (N, L) of rows of the index, names of their shards, and (N,) numbers of them.

    Raises:
        InvalidData: a column is missing, or does not hold whole numbers.
        Resumable: the disk is full, or the folder of temporary files is gone.
    """
    shard, labels = rows["shard"].astype("category"), labels_of(rows)
    low, high = (labels.min(), labels.max()) if labels.size else (0, 0)
    bounds = np.iinfo(np.int32)
    short = labels.astype(np.int32) if bounds.min <= low <= high <= bounds.max else labels
    names = [str(name) for name in shard.cat.categories]
    return in_file(short), names, in_file(shard.cat.codes.to_numpy())


def runs_of(rows: pd.DataFrame) -> np.ndarray:
    """Return the (N,) run of each row of the index; raises as ``classes_and_shards``."""
    return in_file(whole_numbers(rows, ["run"])[:, 0].astype(np.int32))


def bounds_of_shards(shards: np.ndarray) -> np.ndarray:
    """Return the first row of each shard and the number of rows; 0 and that if rows are mixed.

    Args:
        shards: (N,) number of each row's shard, 0 or more.

    Example:
        >>> bounds_of_shards(np.array([1, 1, 0])), bounds_of_shards(np.array([1, 0, 1]))
        (array([0, 2, 3]), array([0, 3]))
    """
    changes = np.flatnonzero(shards[1:] != shards[:-1]) + 1
    bounds = np.concatenate([[0], changes, [len(shards)]])
    mixed = len(np.unique(shards[bounds[:-1]])) < len(bounds) - 1
    return np.array([0, len(shards)]) if mixed else bounds


class Column:
    """A column that is written part by part: in memory, or of many rows in a temporary file.

    Closing it keeps its array.

    Args:
        count: of rows that are expected.
        dtype: of a number.
        width: numbers in a row; none: the column has one dimension.

    Attributes:
        file: to write to.

    Raises:
        Resumable: the disk is full, or the folder of temporary files is gone.
    """

    def __init__(self, count: int, dtype: DTypeLike, *width: int) -> None:
        self._dtype, self._shape = np.dtype(dtype), (-1, *width)
        if count <= MANY:
            self.file: IO[bytes] = BytesIO()
            return
        size = count * self._dtype.itemsize * int(np.prod(width))
        with _room(size):
            self.file = TemporaryFile()  # noqa: SIM115 - closed by __exit__
            try:
                os.posix_fallocate(self.file.fileno(), 0, size)
            except OSError:
                self.file.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not isinstance(self.file, BytesIO):  # its memory is that of the array
            self.file.close()

    def append(self, values: ArrayLike) -> None:
        """Write the next rows."""
        part = np.ascontiguousarray(values, self._dtype)
        with _room(self.file.tell() + part.nbytes):
            self.file.write(part.data)

    def array(self) -> np.ndarray:
        """Return the rows that were written; of many, a map of them that is read only."""
        if isinstance(self.file, BytesIO):
            return np.frombuffer(self.file.getbuffer(), self._dtype).reshape(self._shape)
        size = self.file.tell()
        with _room(size):
            self.file.flush()
        found = np.memmap(self.file, self._dtype, "r", shape=(size // self._dtype.itemsize,))
        return found.reshape(self._shape)


def in_file(array: np.ndarray) -> np.ndarray:
    """Return the array, or a map of it in a temporary file if it has many rows.

    Raises:
        Resumable: the disk is full, or the folder of temporary files is gone.
    """
    if len(array) <= MANY:
        return array
    with Column(len(array), array.dtype, *array.shape[1:]) as column:
        for part in pieces(array):
            column.append(part)
        return column.array()


@contextmanager
def _room(size: int) -> Iterator[None]:
    """Name the folder of temporary files in the error of a full disk or a missing folder."""
    try:
        yield
    except OSError as error:
        raise Resumable(
            f"{gettempdir()}: no room for {size / 1e9:.1f} GB of the images' columns "
            f"({error.strerror}); make room, or set TMPDIR to a folder on a larger disk"
        ) from None


def pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows in order, some at a time; of a map, give the memory of its pages back."""
    for first in range(0, len(array), PIECE):
        yield array[first : first + PIECE]
        # not of a copy of a map, nor of pages that hold changes
        if getattr(array, "mode", None) == "r":
            array._mmap.madvise(MADV_DONTNEED)  # type: ignore[attr-defined]
