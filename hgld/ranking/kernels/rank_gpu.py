"""Rank whole galleries on a GPU: each block of queries is scored and ranked there.

Sizes are known from the labels alone, since the gallery is first sorted by label path. The GPU
returns the level at each rank, one byte per pair; the metrics are computed from it on the CPU, as
for any other ranking.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hgld.ranking.kernels.device import (
    COLUMN_BITS,
    Watch,
    blocks_of,
    check_scores,
    not_finite,
    whole_products,
)
from hgld.ranking.kernels.loss_gpu import on

if TYPE_CHECKING:
    from hgld.ranking.levels import ClassRanges

CELLS_AT_ONCE = 1 << 27  # 512 MB of scores
ROWS_AT_ONCE = 1 << 15  # CUDA limits the second dimension of a grid to 65,535
ITEMS_AT_ONCE = 1 << 26  # relevant images of a block, 33 bytes each
BINS = 2  # per relevant image
CROWDED = 128  # relevant images in one bin; above, comparing them pairwise is slower than a sort
BLOCK = 1024
KEY = (1 << 40) - 1  # bits of a score and of a level


def rank_blocks(
    query: Tensor,
    gallery: Tensor,
    ranges: "ClassRanges",
    first: int,
    watch: Watch,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rank float32 embeddings: yield the fields of ``Ranking`` for blocks of queries.

    Raises:
        ShapeError: a score is nan or inf.
    """
    counts = ranges.counts().cpu().numpy()
    sorted_gallery = gallery[ranges.order]
    room = (ranges.ends - ranges.starts)[:, 0].long().cpu()
    offsets = torch.cat([room.new_zeros(1), room.cumsum(0)])
    device_offsets = offsets.to(query.device)
    # as large as scores and relevant images fit in memory
    most = min(CELLS_AT_ONCE // len(sorted_gallery), ITEMS_AT_ONCE // max(1, int(room.max())))
    for block in watch(blocks_of(len(room), max(1, min(ROWS_AT_ONCE, most)))):
        with whole_products(query.device):
            scores = query[block] @ sorted_gallery.T
        where = ranges.starts[block], ranges.ends[block], ranges.own[block], device_offsets[block]
        sizes = int(offsets[block.start]), int(room[block].sum()), int(room[block].max())
        with on(scores.device):
            levels, faults = _rank(scores, where, *sizes)
            order = _first(scores, where, ranges.order, min(first, scores.shape[1]))
        if int(faults):
            raise not_finite()
        yield levels.cpu().numpy(), counts[block], order.cpu().numpy()


def _rank(
    scores: Tensor,
    where: tuple[Tensor, Tensor, Tensor, Tensor],
    base: int,
    items: int,
    most: int,
) -> tuple[Tensor, Tensor]:
    """Levels by rank of a block, (q, G) int8, and whether a score is nan or inf, (1,) int32."""
    from hgld.ranking.kernels import rank_triton as kernels

    starts, ends, own, offsets = where
    (rows, width), num_levels = scores.shape, starts.shape[1]
    size = {"LEVELS": num_levels, "BINS": BINS}

    def integers(count: int, kind: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(count, dtype=kind, device=scores.device)

    spans, fullest, slots = scores.new_empty(rows, 3), integers(rows), integers(items)
    bins, gaps = integers(BINS * items + rows).zero_(), integers(items).zero_()
    keys, ranked = integers(items, torch.int64), integers(items, torch.int64)
    levels, faults = torch.zeros_like(scores, dtype=torch.int8), integers(1).zero_()
    # A query that is in the gallery comes last in its own ranking.
    levels[own >= 0, -1] = -1
    wide = {**size, "BLOCK": 4 * BLOCK, "num_warps": 8}
    tile = {**size, "BLOCK": BLOCK, "num_warps": 4}
    tiles = -(-most // BLOCK), rows
    kernels.span_scores[(rows,)](scores, starts, ends, own, spans, width, **wide)
    if most:
        kernels.count_bins[tiles](
            scores, starts, ends, own, offsets, spans, bins, slots, width, base, **tile
        )
    kernels.start_bins[(rows,)](starts, ends, offsets, bins, fullest, base, **wide)
    if most:
        kernels.fill_bins[tiles](
            scores, starts, ends, own, offsets, spans, bins, slots, keys, width, base, **tile
        )
    if int(fullest.max()) > CROWDED:  # e.g. if a model gives all images one score
        ranked = _sorted_by_row(keys, (ends - starts)[:, 0].long(), own)
    elif most:
        kernels.settle_bins[tiles](starts, ends, offsets, bins, fullest, keys, ranked, base, **tile)
    kernels.count_others[(-(-width // BLOCK), rows)](
        scores, starts, ends, offsets, spans, bins, fullest, ranked, gaps, faults, width, base,
        **tile,
    )  # fmt: skip
    kernels.sum_ranks[(rows,)](
        starts, ends, offsets, bins, ranked, gaps, levels, width, base, **wide
    )
    return levels, faults


def _first(
    scores: Tensor, where: tuple[Tensor, Tensor, Tensor, Tensor], order: Tensor, count: int
) -> Tensor:
    """(q, K) int32 gallery rows of the first ranks, from scores sorted by label path."""
    if not count:
        return torch.empty(len(scores), 0, dtype=torch.int32)
    place = torch.arange(scores.shape[1], dtype=torch.int32, device=scores.device)
    down, level = _keys(scores, place, *where[:3])
    found = ((down << 32) | (level << COLUMN_BITS) | order).topk(count, dim=1, largest=False).values
    return (found & ((1 << COLUMN_BITS) - 1)).int()


def _keys(
    scores: Tensor, place: Tensor, starts: Tensor, ends: Tensor, own: Tensor
) -> tuple[Tensor, Tensor]:
    """Return (q, g) int64 numbers that decrease as scores increase, -2^31 to 2^31, and the levels.

    The query itself has the largest number.
    """
    level = torch.zeros_like(scores, dtype=torch.int64)
    for start, end in zip(starts.T[:, :, None], ends.T[:, :, None], strict=True):
        level += (place >= start) & (place < end)
    bits = (scores + 0.0).view(torch.int32).long()  # + 0.0 turns -0.0 into 0.0
    down = torch.where(bits < 0, bits & 0x7FFFFFFF, -1 - bits)
    return down.masked_fill_(place == own[:, None], (1 << 31) - 1), level


def sort_part(
    query: Tensor,
    gallery: Tensor,
    sides: tuple[np.ndarray, ...],
    runs: np.ndarray,
    order: np.ndarray,
) -> None:
    """Write the runs of a part of a gallery and the columns of its first ranks.

    Arguments and keys are those of ``rank_cpu.sort_part``.
    """
    place, starts, ends, own = (torch.from_numpy(side).to(query.device) for side in sides)
    own = torch.where(own >= 0, place[own.clamp(min=0)], -1)
    columns = torch.arange(len(gallery), device=query.device)
    rows = max(1, CELLS_AT_ONCE // (4 * len(gallery)))  # a sort takes more memory than the scores
    for block in blocks_of(len(query), rows):
        with whole_products(query.device):
            scores = query[block] @ gallery.T
        check_scores(scores)
        down, level = _keys(scores, place, starts[block], ends[block], own[block])
        level.masked_fill_(place == own[block, None], 0xFF)
        if order.shape[1]:
            mark = level.clamp(max=0x7F)
            keys = (down << 32) | (mark << COLUMN_BITS) | columns
            found = keys.topk(order.shape[1], dim=1, largest=False).values
            order[block] = (found & ((1 << COLUMN_BITS) - 1)).int().cpu().numpy()
        keys = (((down + (1 << 31)) << 8) | level).sort(dim=1).values
        runs[block] = keys.cpu().numpy().view(np.uint64)


def _sorted_by_row(keys: Tensor, sizes: Tensor, own: Tensor) -> Tensor:
    """Sort the keys within each row; rows without their query end with an empty key."""
    rows = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
    keys[(sizes.cumsum(0) - 1)[own >= 0]] = KEY  # beyond all others of its row
    return ((rows << KEY.bit_length()) | keys).sort().values & KEY
