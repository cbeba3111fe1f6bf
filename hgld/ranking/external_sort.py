"""Rank a gallery that is larger than memory: sort it part by part, and merge the sorted parts.

Memory holds one part of the gallery and a block of queries. Every part is scored and sorted by
itself; its scores and levels by rank are the runs that ``merge_rows`` merges. A score has the same
bits in every part, so the ranking does not depend on where the gallery is cut.

Large arrays live in temporary files without a name, which the system writes to disk when memory is
short: the disk limits the size of a gallery.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hgld.errors import HgldError
from hgld.ranking.kernels.device import COLUMN_BITS, over_rows
from hgld.ranking.levels import ClassRanges

__all__ = ["MOST_PART", "largest_part", "new_array", "part_sorter", "rank_in_parts", "rows_of"]

Array = np.ndarray[Any, Any]
IN_MEMORY = 1 << 24  # bytes of an array
MOST_PART = (1 << COLUMN_BITS) - 1  # the kernels number the images of a part
PART_IMAGES = 1 << 20  # on a CPU: 2 GB of 512 dimensions
RUN_CELLS = 1 << 28  # of a block of queries: 2 GB of keys
LEAST_PART = 256  # for fewer images, BLAS adds the products of a pair in another order
LEAST_ROWS, MOST_ROWS = 16, 256  # queries at a time; fewer would read the gallery too often


def largest_part(device: torch.device, dim: int) -> int:
    """Return the number of gallery images that are ranked at once on a device.

    On a GPU the part and its copy by class take at most half of the free memory.

    Example:
        >>> largest_part(torch.device("cpu"), 512)
        1048576
    """
    if device.type != "cuda":
        return PART_IMAGES
    return max(1, min(MOST_PART, torch.cuda.mem_get_info(device)[0] // (16 * dim)))


def rows_of(gallery: Sequence[Tensor], first: int, stop: int, like: Tensor) -> Tensor:
    """Return rows of a gallery in pieces as one tensor, on the device and in the dtype of ``like``.

    Example:
        >>> rows_of([torch.zeros(2, 1), torch.ones(2, 1)], 1, 3, torch.zeros(0)).tolist()
        [[0.0], [1.0]]
    """
    found, start = [], 0
    for piece in gallery:
        a, b = max(first - start, 0), min(stop - start, len(piece))
        if a < b:
            found.append(piece[a:b].detach().to(like.device, like.dtype))
        start += len(piece)
    return found[0] if len(found) == 1 else torch.cat(found)


def rank_in_parts(
    query: Tensor,
    gallery: Sequence[Tensor],
    labels: tuple[Tensor, Tensor],
    exclude_self: bool,
    start: int,
    first: int,
    watch: Callable[[Sequence[slice]], Iterable[slice]],
    part: int,
) -> Iterator[tuple[Array, Array, Array]]:
    """Rank float32 embeddings: yield the fields of ``Ranking`` for blocks of queries.

    Args:
        query: (Q, D) embeddings; their device scores and sorts.
        gallery: (G, D) embeddings, in pieces; on any device, or mapped files.
        labels: (Q, L) and (G, L) label paths.
        exclude_self: the queries are in the gallery.
        start: gallery row of the first of them.
        first: number of top ranks for which gallery rows are returned, too.
        watch: wraps the blocks of queries.
        part: gallery images at a time.

    Raises:
        ShapeError: a score is nan or inf.
    """
    from hgld.ranking.kernels.merge_cpu import merge_rows

    sort_part = part_sorter(query.device)
    query_labels, gallery_labels = labels
    size, num_levels = gallery_labels.shape
    part = min(max(part, LEAST_PART), MOST_PART)
    cuts = np.array([*range(0, max(1, size - LEAST_PART), part), size])
    places = new_array((size,), np.int32)
    bounds = np.empty((len(cuts) - 1, 2, len(query), num_levels), np.int32)
    counts = np.zeros((len(query), num_levels + 1), np.int64)
    for number, (a, b) in enumerate(pairwise(cuts)):
        ranges = ClassRanges.of(query_labels, gallery_labels[a:b])
        places[a:b] = ranges.places().cpu()
        bounds[number] = ranges.starts.cpu(), ranges.ends.cpu()
        counts += ranges.counts().cpu().numpy()
    counts[:, -1] -= int(exclude_self)

    rows = max(LEAST_ROWS, min(MOST_ROWS, RUN_CELLS // size))
    for block in watch(
        [slice(at, min(at + rows, len(query))) for at in range(0, len(query), rows)]
    ):
        here = query[block]
        runs, tops, columns = new_array((len(here), size), np.uint64), [], []
        for number, (a, b) in enumerate(pairwise(cuts)):
            own = np.arange(block.start, block.stop) + (start - a)
            own[(own >= b - a) | (not exclude_self)] = -1
            sides = places[a:b], *bounds[number, :, block], np.maximum(own, -1)
            order = np.empty((len(here), min(first, b - a)), np.int32)
            sort_part(here, rows_of(gallery, a, b, query), sides, runs[:, a:b], order)
            tops.append(runs[:, a : a + order.shape[1]])
            columns.append(order + np.int32(a))
        levels = new_array((len(here), size), np.int8)

        def work(part: slice, runs: Array = runs, levels: Array = levels) -> None:
            merge_rows(runs[part], cuts, levels[part])

        over_rows(work, len(here))
        # stable, and parts are in order: among equals the lower row comes first
        best = np.argsort(np.concatenate(tops, 1), 1, kind="stable")[:, :first]
        order = np.take_along_axis(np.concatenate(columns, 1), best, 1)
        del runs, tops, work
        yield levels, counts[block], order
        del levels


def part_sorter(device: torch.device) -> Callable[..., None]:
    """Return ``sort_part`` of the kernels for a device."""
    if device.type == "cpu":
        from hgld.ranking.kernels.rank_cpu import sort_part
    else:
        from hgld.ranking.kernels.rank_gpu import sort_part
    return sort_part


def new_array(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray[Any, Any]:
    """Return an array of arbitrary content, in a file below ``TMPDIR`` if it is large.

    Raises:
        HgldError: the disk is full.

    Example:
        >>> new_array((2, 3), np.int8).shape
        (2, 3)
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size <= IN_MEMORY:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:
        try:
            # reserved at once: a full disk would otherwise end the process by a signal
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise HgldError(
                f"{tempfile.gettempdir()}: no room for {size / 1e9:.1f} GB while ranking "
                f"({error.strerror}); set TMPDIR to a folder on a larger disk"
            ) from None
        return np.memmap(file, dtype, "r+", shape=shape)
