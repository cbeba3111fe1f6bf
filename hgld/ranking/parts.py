"""Rank a gallery that is split into parts, on one machine or several, with one exact result.

Each part is scored and sorted where it is; its scores and levels by rank, 8 bytes for each pair of
query and image, are then merged. A score has the same bits in every part of 256 images or more on
machines of one kind, so the ranking does not depend on where the gallery is cut.

Example:
    >>> query, labels = torch.eye(2), torch.tensor([[0], [1]])
    >>> parts = [(torch.eye(2)[[0, 0]], torch.tensor([[0], [1]])), (torch.eye(2), labels)]
    >>> merge_parts([rank_part(query, labels, *part) for part in parts]).levels.tolist()
    [[0, 1, 1, 0], [1, 0, 0, 1]]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking.external_sort import part_sorter
from hgld.ranking.kernels.device import MOST_PART, over_rows
from hgld.ranking.levels import ClassRanges, as_ids, check_side
from hgld.ranking.rankings import Ranking

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class RankedPart:
    """The images of a part of a gallery, best first.

    Attributes:
        runs: (Q, g) uint64, of each image the bits of its score in descending order, and its level.
        counts: (Q, L + 1) int64 images on each level, level 0 first, without the query itself.
        first: (Q, K) int32 rows, in the whole gallery, of the first K images.
    """

    runs: Array
    counts: Array
    first: Array


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
        start: row of the whole gallery at which the part begins, for ``first``.

    Raises:
        ShapeError: embeddings and labels do not fit together, the part is too large, embeddings
            are float64, or a score is nan or inf.
    """
    num_levels = as_ids(query_labels, "query_labels").shape[1]
    check_side("query", [query], query_labels, query, num_levels)
    check_side("part", [part], part_labels, query, num_levels)
    if len(part) > MOST_PART:
        raise ShapeError(f"a part of {len(part)} images; cut it into parts of {MOST_PART} or fewer")
    if torch.float64 in (query.dtype, part.dtype):
        raise ShapeError("embeddings are float64, parts are ranked in float32; convert by .float()")
    query = query.detach().float()
    part = part.detach().to(query.device, torch.float32)
    ranges = ClassRanges.of(query_labels, part_labels)
    counts = ranges.counts().cpu().numpy()
    rows = np.full(len(query), -1) if own is None else own.cpu().numpy()
    counts[:, -1] -= rows >= 0
    sides = tuple(side.cpu().numpy() for side in (ranges.places(), ranges.starts, ranges.ends))
    runs = np.empty((len(query), len(part)), np.uint64)
    order = np.empty((len(query), min(first, len(part))), np.int32)
    part_sorter(query.device)(query, part, (*sides, rows), runs, order)
    return RankedPart(runs, counts, order + np.int32(start))


def merge_parts(parts: Sequence[RankedPart]) -> Ranking:
    """Return the ranking of the whole gallery from those of its parts, in any order.

    It has the gallery rows of as many first ranks as every part was asked for, and of all ranks if
    every part was asked for all of its own.

    Raises:
        ShapeError: there is no part, or the parts are of different queries, or have rows in common.
    """
    from hgld.ranking.kernels.merge_cpu import merge_rows

    if not parts or len({part.counts.shape for part in parts}) != 1:
        raise ShapeError("parts of a gallery for different queries; expected the same queries")
    runs = np.concatenate([part.runs for part in parts], 1)
    cuts = np.cumsum([0, *(part.runs.shape[1] for part in parts)])
    levels = np.empty(runs.shape, np.int8)
    over_rows(lambda rows: merge_rows(runs[rows], cuts, levels[rows]), len(runs))
    counts = np.sum([part.counts for part in parts], 0)
    tops = np.concatenate([part.runs[:, : part.first.shape[1]] for part in parts], 1)
    rows = np.concatenate([part.first for part in parts], 1)
    if not np.diff(np.sort(rows, 1), axis=1).all():
        raise ShapeError("parts have gallery rows in common; give rank_part the start of each part")
    # among equals the lower row comes first
    order = np.take_along_axis(rows, np.lexsort((rows, tops)), 1)
    # beyond the ranks that a part was asked for, another of its images may be next
    asked = [part.first.shape[1] for part in parts if part.first.shape != part.runs.shape]
    order = order[:, : min(asked, default=None)]
    return Ranking(levels, counts, order)
