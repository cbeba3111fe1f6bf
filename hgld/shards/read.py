"""Read and decode samples of the shards by their offset in the index, in any order.

On this machine one pread reads a sample; nothing is unpacked or read in excess, and worker
processes share only the page cache. Adjacent samples that are requested together are read together.

At a URL a request costs as much as a megabyte, so ranges of 2 MB are fetched, several at a time,
and kept on disk (``hgld.shards.cache``). If the cache cannot hold all of them, a range is one run,
whose other images are wanted by batches that come soon.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from torch.utils.data._utils.collate import default_collate_fn_map

from hgld.errors import DamagedImage, InvalidData, UsageError
from hgld.images import WHOLE_SIDE, OutsidePhoto, cut_out
from hgld.shards.cache import CACHE_GB, RangeCache
from hgld.shards.files import FileReader, decode_image, require_intact
from hgld.shards.image_table import ImageTable, bounds_of_shards, in_file
from hgld.shards.location import tar_folder
from hgld.storage import join_location

Transform = Callable[[Image.Image], Tensor]


class Batch(tuple[Tensor, Tensor, Any]):
    """Images, labels, and row numbers or keys; one batch that a DataLoader does not batch again."""


def _pass_on(batches: list[Batch], *, collate_fn_map: object = None) -> Batch:
    """Collate batches as a DataLoader with its default ``batch_size`` of 1 does."""
    if len(batches) > 1:
        raise UsageError("each item is a whole batch already; give DataLoader batch_size=None")
    return batches[0]


default_collate_fn_map[Batch] = _pass_on

READ_TOGETHER = 1 << 20  # bytes of one read; small enough for the processor's cache
GAP = 16 << 10  # bytes between two samples that are cheaper to read than to skip
FETCHED_TOGETHER = 2 << 20  # bytes of one request, which costs as much as its round trip
FETCHED_GAP = 256 << 10  # the same as GAP, for a request


class ShardImages(Dataset[tuple[Tensor, Tensor, int]]):
    """Map-style dataset of (image, labels (L,) int64 coarse to fine, row number).

    Args:
        folder: of the shards, or its URL.
        rows: rows of the index, or ImageTable.read; row numbers count within them. With the columns
            ``BOX``, the image is the part of the photo in the box.
        transform: converts a PIL image in RGB to a tensor.
        cache_gb: for a URL: size in GB of the cache on this machine's disk.

    Raises:
        UsageError: cache_gb is negative or not finite.

    Attributes:
        labels: (N, L) of all rows.
        shards: (N,) number of each row's shard.
        places: (N, 2) offset and size of each row's image in its shard.
    """

    def __init__(
        self,
        folder: Path | str,
        rows: pd.DataFrame | ImageTable,
        transform: Transform,
        *,
        cache_gb: float = CACHE_GB,
    ) -> None:
        if not 0 <= cache_gb * 1e9 < inf:
            raise UsageError(f"cache_gb is {cache_gb}; expected a number of GB, 0 or more")
        self.folder = tar_folder(folder)
        self.transform = transform
        table = rows if isinstance(rows, ImageTable) else ImageTable.of_rows(rows)
        self.labels, self.shards, self.places = table.labels, table.shards, table.places
        remote = isinstance(self.folder, str)
        self._files = None if remote else FileReader(self.folder)
        self._keys, self._names = table.keys, table.names
        self._crc32, self._boxes = table.crc32, table.boxes
        self._cache = RangeCache(str(self.folder), cache_gb) if remote else None
        if remote:
            self._ranges, self._range_of = self._cut_ranges(cache_gb * 1e9)

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, int]:
        return self.load(number), torch.from_numpy(self.labels[number].astype(np.int64)), number

    def load(self, number: int, jpeg: bytes | memoryview | None = None) -> Tensor:
        """Load the tensor of a sample; ``jpeg`` saves reading it.

        Raises:
            DamagedImage: the image's bytes were changed, or cannot be decoded.
            InvalidData: the shard does not exist, or ends too early; a box has no pixel of its
                photo.
        """
        name = partial(self.name, number)
        crc32 = None if self._crc32 is None else self._crc32.item(number)
        jpeg = self.read_bytes(number) if jpeg is None else jpeg
        try:
            require_intact(jpeg, crc32, name)
        except DamagedImage:
            if self._cache is None:
                raise
            # The damage may be that of one answer or of the cache's disk.
            shard, offset, size = self._ranges[self._range_of[number]].tolist()
            self._cache.require_unchanged(self._names[shard])
            self._cache.drop((self._names[shard], offset, size))
            jpeg = self.read_bytes(number)
            require_intact(jpeg, crc32, name)
        image = decode_image(jpeg, name)
        if self._boxes is not None:
            image = cut_box(image, self._boxes[number].tolist(), name)
        return self.transform(image)

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
            # Of numpy, item is quickest, and it works on a map.
            offset, size = self.places.item(number, 0), self.places.item(number, 1)
            return self._files.read(self._names[self.shards.item(number)], offset, size)
        return next(bytes(jpeg) for _, jpeg in self.iterate([number]))

    @property
    def is_remote(self) -> bool:
        """Whether the shards are at a URL."""
        return self._cache is not None

    def fetch(self, numbers: Sequence[int] | np.ndarray) -> dict[int, bytes]:
        """JPEGs by number from a URL, several requests at a time; empty for a local folder."""
        remote = numbers if self.is_remote else []
        return {number: bytes(jpeg) for number, jpeg in self.iterate(remote)}

    def iterate(self, numbers: Sequence[int] | np.ndarray) -> Iterator[tuple[int, memoryview]]:
        """Yield number and JPEG of samples in shard order; adjacent ones are read together.

        The yielded view is valid until the next sample is requested. No CRC-32 is checked.
        """
        chosen = np.asarray(numbers, np.int64)
        chosen = chosen[np.lexsort((self.places[chosen, 0], self.shards[chosen]))]
        if self._files is None:
            yield from self._iterate_fetched(chosen)
            return
        begin, end = self.places[chosen, 0], self.places[chosen].sum(1)
        ring = bytearray(READ_TOGETHER)
        for first, last in _stretches(self.shards[chosen], begin, end):
            start, size = int(begin[first]), int(end[last - 1] - begin[first])
            if size > len(ring):
                ring = bytearray(size)
            data = memoryview(ring)[:size]
            self._files.read_into(self._names[self.shards[chosen[first]]], start, data)
            part = slice(first, last)
            begins, ends = (begin[part] - start).tolist(), (end[part] - start).tolist()
            for number, low, high in zip(chosen[part].tolist(), begins, ends, strict=True):
                yield number, data[low:high]

    def stream(self, numbers: np.ndarray) -> Iterator[tuple[int, bytes]]:
        """Yield number and JPEG of samples of a URL in the order given, reading ahead.

        Adjacent samples are read together; nothing is kept on disk.
        """
        assert self._cache is not None
        begin, end = self.places[numbers, 0], self.places[numbers].sum(1)
        shards = self.shards[numbers]
        parts = _stretches(shards, begin, end, FETCHED_TOGETHER, FETCHED_GAP)
        wanted = [
            (self._names[shards[first]], int(begin[first]), int(end[last - 1] - begin[first]))
            for first, last in parts
        ]
        with closing(self._cache.stream(wanted)) as fetched:
            for (first, last), data in zip(parts, fetched, strict=True):
                start = int(begin[first])
                for place in range(first, last):
                    jpeg = data[begin[place] - start : end[place] - start]
                    yield int(numbers[place]), bytes(jpeg)  # a view would hold the whole range

    def _cut_ranges(self, cached_bytes: float) -> tuple[np.ndarray, np.ndarray]:
        """(R, 3) shard, offset and size of the ranges to fetch, and (N,) the range of each row."""
        if not len(self):
            return np.empty((0, 3), np.int64), np.empty(0, np.int32)
        apart = self.labels.shape[1] > 0 and self.places[:, 1].sum() > cached_bytes
        ranges, range_of, count = list[np.ndarray](), np.empty(len(self), np.int32), 0
        bounds = bounds_of_shards(self.shards)
        for number in np.argsort(self.shards[bounds[:-1]]).tolist():
            rows = np.arange(bounds[number], bounds[number + 1])
            rows = rows[np.lexsort((self.places[rows, 0], self.shards[rows]))]
            shard, begin, end = self.shards[rows], self.places[rows, 0], self.places[rows].sum(1)
            runs = self.labels[rows, -1] if apart else None
            parts = np.array(_stretches(shard, begin, end, FETCHED_TOGETHER, FETCHED_GAP, runs))
            firsts, lasts = parts[:, 0], parts[:, 1] - 1
            ranges.append(
                np.column_stack([shard[firsts], begin[firsts], end[lasts] - begin[firsts]])
            )
            range_of[rows] = np.repeat(np.arange(count, count + len(parts)), lasts - firsts + 1)
            count += len(parts)
        return np.concatenate(ranges), in_file(range_of)

    def _iterate_fetched(self, numbers: np.ndarray) -> Iterator[tuple[int, memoryview]]:
        assert self._cache is not None
        # Sorted like the ranges, so the samples of a range are adjacent.
        wanted, firsts = np.unique(self._range_of[numbers], return_index=True)
        ranges = [(self._names[s], at, size) for s, at, size in self._ranges[wanted].tolist()]
        parts = [part.tolist() for part in np.split(numbers, firsts)[1:]]
        places = [
            [(low - start, size) for low, size in self.places[part].tolist()]
            for (_, start, _), part in zip(ranges, parts, strict=True)
        ]
        with closing(self._cache.read(list(zip(ranges, places, strict=True)))) as fetched:
            for part, jpegs in zip(parts, fetched, strict=True):
                yield from zip(part, jpegs, strict=True)


def _stretches(
    shard: np.ndarray,
    begin: np.ndarray,
    end: np.ndarray,
    most: int = READ_TOGETHER,
    gap: int = GAP,
    run: np.ndarray | None = None,
) -> list[tuple[int, int]]:
    """Ranges of sorted samples, each to be read at once; ``run`` separates them further.

    Example:
        >>> near, far = np.array([0, 900, 1 << 20]), np.array([800, 1000, 1 << 21])
        >>> _stretches(np.array([0, 0, 0]), near, far)
        [(0, 2), (2, 3)]
    """
    apart = (shard[1:] != shard[:-1]) | (begin[1:] - end[:-1] > gap)
    if run is not None:
        apart |= run[1:] != run[:-1]
    bounds = [0, *(np.flatnonzero(apart) + 1).tolist(), len(begin)]
    ranges = []
    for first, stop in pairwise(bounds):
        while first < stop:
            fits = np.searchsorted(end[first:stop], begin[first] + most, side="right")
            last = first + max(1, int(fits))
            ranges.append((first, last))
            first = last
    return ranges


def cut_box(image: Image.Image, box: Sequence[float], name: Callable[[], str]) -> Image.Image:
    """Return the part of a photo in a box; its ``info`` has the longer side of the photo.

    Raises:
        InvalidData: nothing of the photo is in the box; ``name`` gives its shard and key.
    """
    image.info[WHOLE_SIDE] = max(image.size)
    try:
        return cut_out(image, box)
    except OutsidePhoto as error:
        raise InvalidData(f"{name()}: {error}") from None


def stack_images(images: Sequence[Tensor]) -> Tensor:
    """Return (B, ...) images of a batch.

    Raises:
        UsageError: the transform returned something else than tensors of one shape.
    """
    if others := [type(one).__name__ for one in images if not isinstance(one, Tensor)]:
        raise UsageError(f"the transform returned {others[0]}; expected a torch.Tensor")
    shapes = list(dict.fromkeys(tuple(one.shape) for one in images))
    if len(shapes) > 1:
        raise UsageError(
            f"the transform returned tensors of shapes {shapes[0]} and {shapes[1]}; a batch needs "
            "one shape: resize and crop photos to one size"
        )
    return torch.stack(list(images))
