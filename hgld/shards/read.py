"""Reads samples of the shards by their place in the index, in any order.

One pread finds a sample; nothing is unpacked, nothing is read that is not asked for, and worker
processes share only the page cache. Neighbours that are asked for together are read together.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from hgld.shards.decode import Transform, decode_image
from hgld.shards.files import FileReader, local_folder
from hgld.shards.index import labels_of, require_columns, whole_numbers
from hgld.shards.schema import IMAGE_CRC32, require_intact

__all__ = ["ShardImages", "checksums_of", "read_image"]

READ_TOGETHER = 1 << 20  # bytes of one read; it stays in the processor's cache
GAP = 16 << 10  # bytes between neighbours that are cheaper to read than to skip


class ShardImages(Dataset[tuple[Tensor, Tensor, int]]):
    """Samples of the index as (image, labels (L,) int64 coarse to fine, row number).

    Args:
        folder: of the shards.
        rows: rows of the index; an item's row number counts in them.
        transform: makes a tensor of a PIL image in RGB.
    """

    def __init__(self, folder: Path | str, rows: pd.DataFrame, transform: Transform) -> None:
        require_columns(rows, ["key", "shard"])
        self.folder = local_folder(folder)
        self.transform = transform
        self.labels = labels_of(rows)  # (N, L)
        self._files = FileReader(self.folder)
        self._keys = rows["key"].to_numpy(object)
        shard = rows["shard"].astype("category")
        self._shards = [str(name) for name in shard.cat.categories]
        self._shard = shard.cat.codes.to_numpy(np.int64, copy=True)
        self._place = whole_numbers(rows, ["offset", "size_bytes"])  # (N, 2)
        self._crc32 = checksums_of(rows)
        # Plain arrays give a number in a third of numpy's time, and are shared by forked workers.
        columns = (self._shard, self._place[:, 0], self._place[:, 1])
        self._find = tuple(array("q", column.tobytes()) for column in columns)

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, int]:
        image = self.decode(number, self.read_bytes(number))
        return self.transform(image), torch.from_numpy(self.labels[number]), number

    def decode(self, number: int, data: bytes | memoryview) -> Image.Image:
        """The image of a sample's bytes, in RGB.

        Raises:
            InvalidData: they are not what was written, or cannot be decoded.
        """
        require_intact(data, self.crc32(number), self.name(number))
        return decode_image(data, self.name(number))

    def crc32(self, number: int) -> int | None:
        """The CRC-32 that the JPEG of a sample has to have, if the index has it."""
        return self._crc32[number] if self._crc32 else None

    def name(self, number: int) -> str:
        """Shard and key of a sample, for an error."""
        shard = self.folder / self._shards[self._shard[number]]
        return f"{shard}: key {self._keys[number]}"

    def read_bytes(self, number: int) -> bytes:
        """The JPEG of a sample."""
        shard, offset, size = self._find
        return self._files.read(self._shards[shard[number]], offset[number], size[number])

    def iterate(self, numbers: Sequence[int] | np.ndarray) -> Iterator[tuple[int, memoryview]]:
        """Number and JPEG of some samples in the order of the shards, neighbours in one read.

        A view holds until the next sample is asked for.
        """
        chosen = np.asarray(numbers, np.int64)
        begin, end = self._place[chosen, 0], self._place[chosen].sum(1)
        order = np.lexsort((begin, self._shard[chosen]))
        chosen, begin, end = chosen[order], begin[order], end[order]
        ring = bytearray(READ_TOGETHER)
        for first, last in _stretches(self._shard[chosen], begin, end):
            start, size = int(begin[first]), int(end[last - 1] - begin[first])
            if size > len(ring):
                ring = bytearray(size)
            data = memoryview(ring)[:size]
            self._files.read_into(self._shards[self._shard[chosen[first]]], start, data)
            part = slice(first, last)
            begins, ends = (begin[part] - start).tolist(), (end[part] - start).tolist()
            for number, low, high in zip(chosen[part].tolist(), begins, ends, strict=True):
                yield number, data[low:high]


def _stretches(shard: np.ndarray, begin: np.ndarray, end: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of sorted places that one read each shall fetch.

    Example:
        >>> near, far = np.array([0, 900, 1 << 20]), np.array([800, 1000, 1 << 21])
        >>> _stretches(np.array([0, 0, 0]), near, far)
        [(0, 2), (2, 3)]
    """
    apart = (shard[1:] != shard[:-1]) | (begin[1:] - end[:-1] > GAP)
    bounds = [0, *(np.flatnonzero(apart) + 1).tolist(), len(begin)]
    ranges = []
    for first, stop in pairwise(bounds):
        while first < stop:
            fits = np.searchsorted(end[first:stop], begin[first] + READ_TOGETHER, side="right")
            last = first + max(1, int(fits))
            ranges.append((first, last))
            first = last
    return ranges


def checksums_of(rows: pd.DataFrame) -> "array[int] | None":
    """CRC-32 of the image of each row, if the rows have it."""
    if IMAGE_CRC32 not in rows:
        return None
    return array("q", whole_numbers(rows, [IMAGE_CRC32]).tobytes())


def read_image(folder: Path | str, row: "Mapping[str, Any] | pd.Series[Any]") -> Image.Image:
    """The image of one row of the index, in RGB.

    Raises:
        InvalidData: it cannot be read or decoded, or its bytes were changed.
    """
    folder = local_folder(folder)
    reader = FileReader(folder)
    data = reader.read(str(row["shard"]), int(row["offset"]), int(row["size_bytes"]))
    reader.close()
    name = f"{folder / str(row['shard'])}: key {row['key']}"
    require_intact(data, int(row[IMAGE_CRC32]) if IMAGE_CRC32 in row else None, name)
    return decode_image(data, name)
