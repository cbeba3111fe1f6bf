"""Read and decode samples of the shards by their offset in the index, in any order.

One pread reads a sample; nothing is unpacked or read in excess, and worker processes share only
the page cache. Adjacent samples that are requested together are read together.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from hgld.errors import DamagedImage
from hgld.images import Undecodable, decode_rgb
from hgld.shards.files import (
    FileReader,
    SequentialFile,
    is_url,
    join_location,
    local_folder,
    require_intact,
)
from hgld.shards.index import labels_of, require_columns, whole_numbers
from hgld.shards.schema import IMAGE_CRC32

__all__ = ["ShardImages", "Transform", "decode_image", "read_image"]

Transform = Callable[[Image.Image], Tensor]

READ_TOGETHER = 1 << 20  # bytes of one read; small enough for the processor's cache
GAP = 16 << 10  # bytes between two samples that are cheaper to read than to skip


def decode_image(data: bytes | memoryview, name: Callable[[], str]) -> Image.Image:
    """Decode an image, upright in RGB.

    Raises:
        DamagedImage: it cannot be decoded; ``name`` gives its shard and key.
    """
    try:
        return decode_rgb(data)
    except Undecodable as error:
        raise DamagedImage(
            f"{name()}: the image cannot be decoded ({error}), so the shard is damaged; run `hgld "
            "shards verify`"
        ) from None


class ShardImages(Dataset[tuple[Tensor, Tensor, int]]):
    """Map-style dataset of (image, labels (L,) int64 coarse to fine, row number).

    Args:
        folder: of the shards.
        rows: rows of the index; row numbers count within them.
        transform: converts a PIL image in RGB to a tensor.
        remote: accept a URL, from which single images are slow to read.

    Attributes:
        labels: (N, L) of all rows.
        shards: (N,) number of each row's shard.
        places: (N, 2) offset and size of each row's image in its shard.
    """

    def __init__(
        self, folder: Path | str, rows: pd.DataFrame, transform: Transform, *, remote: bool = False
    ) -> None:
        require_columns(rows, ["key", "shard"])
        self.folder = str(folder) if remote and is_url(folder) else local_folder(folder)
        self.transform = transform
        self.labels = labels_of(rows)  # (N, L)
        self._files = FileReader(self.folder) if isinstance(self.folder, Path) else None
        self._keys = rows["key"].to_numpy(object)
        shard = rows["shard"].astype("category")
        self._names = [str(name) for name in shard.cat.categories]
        self.shards = shard.cat.codes.to_numpy(np.int64, copy=True)
        self.places = whole_numbers(rows, ["offset", "size_bytes"])  # (N, 2)
        checked = IMAGE_CRC32 in rows
        self._crc32 = array("q", whole_numbers(rows, [IMAGE_CRC32]).tobytes()) if checked else None
        # Plain arrays return a number in a third of numpy's time, and forked workers share them.
        columns = (self.shards, self.places[:, 0], self.places[:, 1])
        self._find = tuple(array("q", column.tobytes()) for column in columns)

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, int]:
        return self.load(number), torch.from_numpy(self.labels[number]), number

    def load(self, number: int, jpeg: bytes | memoryview | None = None) -> Tensor:
        """Load the tensor of a sample; ``jpeg`` saves reading it.

        Raises:
            DamagedImage: the image's bytes were changed, or cannot be decoded.
            InvalidData: the shard does not exist, or ends too early.
        """
        name = partial(self.name, number)
        if jpeg is None and self._files is not None:
            crc32, key = self._crc32[number] if self._crc32 else None, self._keys[number]
            jpeg = self._files.read_image(*self._place(number), crc32, key)
        else:
            jpeg = self.read_bytes(number) if jpeg is None else jpeg
            require_intact(jpeg, self._crc32[number] if self._crc32 else None, name)
        return self.transform(decode_image(jpeg, name))

    def name(self, number: int) -> str:
        """Shard and key of a sample, for error messages."""
        return f"{self.location(int(self.shards[number]))}: key {self._keys[number]}"

    def location(self, shard: int) -> str:
        """Path or URL of a shard."""
        return join_location(self.folder, self._names[shard])

    def read_bytes(self, number: int) -> bytes:
        """Read the JPEG of a sample, without checking its CRC-32.

        Raises:
            InvalidData: the shard does not exist, or ends too early.
        """
        if self._files is not None:
            return self._files.read(*self._place(number))
        with SequentialFile(self.location(int(self.shards[number]))) as file:
            return file.take(*self.places[number].tolist())

    def _place(self, number: int) -> tuple[str, int, int]:
        shard, offset, size = self._find
        return self._names[shard[number]], offset[number], size[number]

    def iterate(self, numbers: Sequence[int] | np.ndarray) -> Iterator[tuple[int, memoryview]]:
        """Yield number and JPEG of samples in shard order; adjacent ones are read together.

        The yielded view is valid until the next sample is requested. No CRC-32 is checked.
        """
        files = FileReader(local_folder(self.folder)) if self._files is None else self._files
        chosen = np.asarray(numbers, np.int64)
        begin, end = self.places[chosen, 0], self.places[chosen].sum(1)
        order = np.lexsort((begin, self.shards[chosen]))
        chosen, begin, end = chosen[order], begin[order], end[order]
        ring = bytearray(READ_TOGETHER)
        for first, last in _stretches(self.shards[chosen], begin, end):
            start, size = int(begin[first]), int(end[last - 1] - begin[first])
            if size > len(ring):
                ring = bytearray(size)
            data = memoryview(ring)[:size]
            files.read_into(self._names[self.shards[chosen[first]]], start, data)
            part = slice(first, last)
            begins, ends = (begin[part] - start).tolist(), (end[part] - start).tolist()
            for number, low, high in zip(chosen[part].tolist(), begins, ends, strict=True):
                yield number, data[low:high]


def _stretches(shard: np.ndarray, begin: np.ndarray, end: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of sorted samples, each to be read at once.

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


def read_image(folder: Path | str, row: "Mapping[str, Any] | pd.Series[Any]") -> Image.Image:
    """Read the image of one row of the index, in RGB.

    Raises:
        InvalidData: it cannot be read or decoded, or its bytes were changed.
    """
    folder = local_folder(folder)
    reader = FileReader(folder)
    place = str(row["shard"]), int(row["offset"]), int(row["size_bytes"])
    data = reader.read_image(*place, row.get(IMAGE_CRC32), row["key"])
    reader.close()
    return decode_image(data, lambda: f"{folder / str(row['shard'])}: key {row['key']}")
