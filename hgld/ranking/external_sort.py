"""Rank a gallery that is larger than memory: sort it part by part, and merge the sorted parts.

Memory holds one part of the gallery and a block of queries. Every part is scored and sorted by
itself; its scores and levels by rank are the runs that ``merge_rows`` merges. A score has the same
bits in every part, so the ranking does not depend on where the gallery is cut.

Large arrays are in temporary files (``new_array``): the disk limits the size of a gallery.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hgld.ranking.kernels.device import MOST_PART, new_array, over_rows
from hgld.ranking.levels import ClassRanges

Array = np.ndarray[Any, Any]
RUN_CELLS = 1 << 28  # of a block of queries: 2 GB of keys
LEAST_PART = 256  # for fewer images, BLAS adds the products of a pair in another order
LEAST_ROWS, MOST_ROWS = 16, 256  # queries at a time; fewer would read the gallery too often


def rank_in_parts(
    query: Tensor,
    rows_of: Callable[[int, int], Tensor],
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
        rows_of: returns gallery rows a to b - 1, (b - a, D), on the device and in the dtype of
            ``query``.
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
    part = min(max(part, LEAST_PART), MOST_PART - LEAST_PART)  # the last may be longer by so many
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
            sort_part(here, rows_of(a, b), sides, runs[:, a:b], order)
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
