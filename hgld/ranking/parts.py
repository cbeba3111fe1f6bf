"""Rank a gallery in parts, one after another or on several machines, with one exact result.

Each part is scored and sorted by itself; its scores and levels by rank, 8 bytes for each pair of
query and image, are then merged. ``rank_in_parts`` ranks a gallery that is larger than memory. It
holds one part and a block of queries at a time, and large arrays in temporary files
(``new_array``), so the disk limits the size of a gallery. ``rank_part`` and ``merge_parts`` are for
parts that are on several machines.

A score has the same bits in every part of 256 images or more on machines of one kind, so the
ranking does not depend on where the gallery is cut.

Example:
    >>> query, labels = torch.eye(2), torch.tensor([[0], [1]])
    >>> parts = [(torch.eye(2)[[0, 0]], torch.tensor([[0], [1]])), (torch.eye(2), labels)]
    >>> merge_parts([rank_part(query, labels, *part) for part in parts]).levels.tolist()
    [[0, 1, 1, 0], [1, 0, 0, 1]]
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking.kernels.device import (
    LEAST_PART,
    MOST_PART,
    Watch,
    blocks_of,
    new_array,
    over_rows,
)
from hgld.ranking.levels import ClassRanges, as_ids, check_side, refuse_unlabelled
from hgld.ranking.rankings import Ranking

Array = np.ndarray[Any, Any]
RUN_CELLS = 1 << 28  # of a block of queries: 2 GB of keys
LEAST_ROWS, MOST_ROWS = 16, 256  # queries at a time; fewer would read the gallery too often


@dataclass(frozen=True)
class RankedPart:
    """The images of a part of a gallery, best first.

    Attributes:
        runs: (Q, g) uint64, of each image the bits of its score in descending order, and its level.
        counts: (Q, L + 1) int64 images on each level, level 0 first, without the query itself.
        first: (Q, K) int32 rows, in the whole gallery, of the first K images.
        start: row of the whole gallery at which the part begins.
    """

    runs: Array
    counts: Array
    first: Array
    start: int = 0


def rank_part(
    query: Tensor,
    query_labels: Tensor,
    part: Tensor,
    part_labels: Tensor,
    own: Tensor | None = None,
    first: int = 0,
    start: int = 0,
) -> RankedPart:
    """Rank a part of the gallery for every query, on the queries' device, in float32.

    Args:
        query: (Q, D) embeddings; the similarity is the inner product.
        query_labels: (Q, L) label paths, coarse to fine.
        part: (g, D) embeddings of a part of the gallery, at most 33 million.
        part_labels: (g, L) label paths.
        own: (Q,) row of this part that is the query itself, -1 if it has none.
        first: number of top ranks for which gallery rows are returned, too.
        start: row of the whole gallery at which the part begins, for ``first``, and so that a part
            is not merged twice.

    Raises:
        ShapeError: embeddings and labels do not fit together, the part is too large, embeddings
            are float64, own has rows of other images, or a score is nan or inf.
    """
    num_levels = as_ids(query_labels, "query_labels").shape[1]
    check_side("query", [query], query_labels, query, num_levels)
    check_side("part", [part], part_labels, query, num_levels)
    refuse_unlabelled(query_labels, part_labels, "query_labels and part_labels")
    if len(part) > MOST_PART:
        raise ShapeError(f"a part of {len(part)} images; cut it into parts of {MOST_PART} or fewer")
    if torch.float64 in (query.dtype, part.dtype):
        raise ShapeError("embeddings are float64, parts are ranked in float32; convert by .float()")
    query = query.detach().float()
    part = part.detach().to(query.device, torch.float32)
    ranges = ClassRanges.of(query_labels, part_labels)
    counts = ranges.counts().cpu().numpy()
    rows = np.full(len(query), -1)
    if own is not None:
        if own.shape != (len(query),):
            raise ShapeError(f"own has shape {tuple(own.shape)}; expected ({len(query)},)")
        rows = as_ids(own[:, None], "own")[:, 0].cpu().numpy()
        _check_own(rows, query_labels.cpu().numpy(), part_labels.cpu().numpy())
    counts[:, -1] -= rows >= 0
    sides = tuple(side.cpu().numpy() for side in (ranges.places(), ranges.starts, ranges.ends))
    runs = np.empty((len(query), len(part)), np.uint64)
    order = np.empty((len(query), min(first, len(part))), np.int32)
    part_sorter(query.device)(query, part, (*sides, rows), runs, order)
    return RankedPart(runs, counts, order + np.int32(start), start)


def _check_own(own: Array, query_labels: Array, part_labels: Array) -> None:
    """Raise ShapeError unless each row is -1, or one of the part with the labels of its query."""
    inside = own >= 0
    size, found = len(part_labels), own[inside]
    if (own < -1).any() or (found >= size).any():
        raise ShapeError(
            f"own has rows from {own.min()} to {own.max()}; expected 0 to {size - 1} within the "
            "part, or -1"
        )
    if (part_labels[found] != query_labels[inside]).any():
        raise ShapeError(
            "own has rows whose part_labels are not query_labels; number the rows within the part"
        )


def merge_parts(parts: Sequence[RankedPart]) -> Ranking:
    """Return the ranking of the whole gallery from those of its parts, in any order.

    It has the gallery rows of as many first ranks as every part was asked for, and of all ranks if
    every part was asked for all of its images.

    Raises:
        ShapeError: there is no part, or the parts are of different queries, or have rows in common.
    """
    from hgld.ranking.kernels.merge_cpu import merge_rows

    if not parts or len({part.counts.shape for part in parts}) != 1:
        raise ShapeError("parts of a gallery for different queries; expected the same queries")
    _require_apart(parts)
    runs = np.concatenate([part.runs for part in parts], 1)
    cuts = np.cumsum([0, *(part.runs.shape[1] for part in parts)])
    levels = np.empty(runs.shape, np.int8)
    over_rows(lambda rows: merge_rows(runs[rows], cuts, levels[rows]), len(runs))
    counts = np.sum([part.counts for part in parts], 0)
    tops = np.concatenate([part.runs[:, : part.first.shape[1]] for part in parts], 1)
    rows = np.concatenate([part.first for part in parts], 1)
    # among equals the lower row comes first
    order = np.take_along_axis(rows, np.lexsort((rows, tops)), 1)
    # beyond the ranks that a part was asked for, another of its images may be next
    asked = [part.first.shape[1] for part in parts if part.first.shape != part.runs.shape]
    order = order[:, : min(asked, default=None)]
    return Ranking(levels, counts, order)


def _require_apart(parts: Sequence[RankedPart]) -> None:
    """Raise ShapeError if parts have gallery rows in common.

    Where no part has a start and none has first rows, only a part that is there twice is known.
    """
    if any(part.start or part.first.size for part in parts):
        spans = sorted((part.start, part.start + part.runs.shape[1]) for part in parts)
        shared = any(stop > start for (_, stop), (start, _) in pairwise(spans))
    else:
        shared = len({id(part.runs) for part in parts}) < len(parts)
    if shared:
        raise ShapeError("parts have gallery rows in common; give rank_part the start of each part")


def rank_in_parts(
    query: Tensor,
    rows_of: Callable[[int, int], Tensor],
    labels: tuple[Tensor, Tensor],
    exclude_self: bool,
    start: int,
    first: int,
    watch: Watch,
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
    for block in watch(blocks_of(len(query), rows)):
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
