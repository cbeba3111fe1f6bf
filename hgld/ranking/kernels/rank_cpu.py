"""Levels by rank of a query's gallery, by one sort of all scores, in numba.

A key consists of, from the top: the score's bin among 2^23 even steps of the row's range, the
score's 32 bits in descending order, and 8 bits of level. Ranks are therefore exact for float32, and
among equal scores the less relevant comes first.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hgld.compiled import Array, fast, inner, kernel, part
from hgld.ranking.kernels.device import (
    COLUMN_BITS,
    LEAST_ROWS,
    Watch,
    blocks_of,
    not_finite,
    over_rows,
    score_rows,
)
from hgld.ranking.kernels.sort import BELOW, BITS, sort_keys

if TYPE_CHECKING:
    from hgld.ranking.levels import ClassRanges

BLOCK_CELLS = 1 << 26  # 256 MB of scores
BLOCK_ROWS = 256
PLACES = (1 << (BITS - BELOW)) - 64  # margin, so that rounding up stays below 2^23
ABSENT = (1 << BELOW) - 1  # the query itself in a run: after all images, and its level is -1


def rank_blocks(
    query: Tensor,
    gallery: Tensor,
    classes: "ClassRanges",
    first: int,
    watch: Watch,
) -> Iterator[tuple[Array, Array, Array]]:
    """Rank float32 embeddings: yield the fields of ``Ranking`` for blocks of queries.

    Raises:
        ShapeError: a score is nan or inf.
    """
    counts, places = classes.counts().numpy(), classes.places().numpy()
    starts, ends = classes.starts.numpy(), classes.ends.numpy()
    size = len(places)
    rows = max(1, min(BLOCK_ROWS, BLOCK_CELLS // size, len(query)))
    scores = query.new_empty(rows, size)
    for block in watch(blocks_of(len(query), rows)):
        here = scores[: block.stop - block.start]
        score_rows(query[block], gallery, here)
        levels = np.empty(here.shape, np.int8)
        order = np.empty((len(here), min(first, size)), np.int32)
        place = classes.own[block]
        own = torch.where(place >= 0, classes.order[place], -1).numpy()
        rank_scores(here, (places, starts[block], ends[block], own), levels, order)
        yield levels, counts[block], order
        del levels, order  # free this block before the next is computed


def sort_part(
    query: Tensor, gallery: Tensor, sides: tuple[Array, ...], runs: Array, order: Array
) -> None:
    """Write the runs of a block of queries, (q, g), and the columns of the first ranks, (q, K).

    Args:
        query: (q, D).
        gallery: (g, D), a part of it.
        sides: places (g,), starts and ends (q, L), own columns (q,), as for ``rank_rows``.
        runs: written.
        order: written.

    Raises:
        ShapeError: a score is nan or inf.
    """
    places, *of_queries = sides
    step = max(LEAST_ROWS, BLOCK_CELLS // len(gallery))
    scores = query.new_empty(min(step, len(query)), len(gallery))
    for block in blocks_of(len(query), step):
        here = scores[: block.stop - block.start]
        score_rows(query[block], gallery, here)
        own_sides = places, *(side[block] for side in of_queries)
        rank_scores(here, own_sides, runs[block], order[block])


def rank_scores(scores: Tensor, sides: tuple[Array, ...], levels: Array, first: Array) -> None:
    """``rank_rows`` on all threads; ``sides`` are its places, starts, ends and own columns.

    Raises:
        ShapeError: a score is nan or inf.
    """
    places, *of_queries = sides

    def work(rows: slice) -> None:
        given = scores.numpy()[rows], places, *(side[rows] for side in of_queries)
        rank_rows(*given, levels[rows], first[rows])

    try:
        over_rows(work, len(scores))
    except ValueError:  # raised by the kernel, which reads every score anyway
        raise not_finite() from None


@kernel
def rank_rows(
    scores: Array,
    places: Array,
    starts: Array,
    ends: Array,
    own: Array,
    levels: Array,
    first: Array,
) -> None:
    """Write the levels by rank, and the columns of the first ranks, of rows of scores.

    Args:
        scores: (Q, G) float32.
        places: (G,) int32 place of each gallery image when sorted by label path.
        starts: (Q, L) first place of the query's own class at each level, coarse to fine.
        ends: (Q, L) place after the last.
        own: (Q,) column of the query itself, -1 if it is not in the gallery.
        levels: (Q, G) int8, written; -1 at the end for the query itself. If uint64: runs for
            ``merge_rows``, with the score and the level of each image, the query itself ``ABSENT``.
        first: (Q, K) int32 columns, written.

    Raises:
        ValueError: a score is nan or infinite.
    """
    size = scores.shape[1]
    keys, more = np.empty(size, np.uint64), np.empty(size, np.uint64)
    marks, span = np.empty(size, np.uint8), np.empty(2, np.int32)
    for i in range(scores.shape[0]):
        row, present = scores[i], size
        if not find_span(row.view(np.int32), span):
            raise ValueError("scores hold nan or inf")
        marks[:] = 0  # levels, from places in the nested ranges of the query's classes
        for v in range(starts.shape[1]):
            width = np.uint32(ends[i, v] - starts[i, v])
            add_level(places, np.uint32(starts[i, v]), width, marks)
        fill_keys(row, row.view(np.uint32), marks, span.view(np.float32), keys)
        if own[i] >= 0:
            present -= 1
            keys[own[i]] = keys[present]
            levels[i, present] = ABSENT if levels.itemsize == 8 else -1
        sort_keys(keys[:present], more[:present])
        read_levels(keys[:present], levels[i])
        if first.shape[1]:
            find_first(row.view(np.uint32), marks, own[i], keys[:present], more, first[i])


@fast
def read_levels(keys: Array, levels: Array) -> None:
    """Write the level of each sorted key; with its score if there is room for both."""
    if levels.itemsize == 8:
        for j in range(keys.shape[0]):
            levels[j] = keys[j] & np.uint64(ABSENT)
    else:
        for j in range(keys.shape[0]):
            levels[j] = np.int8(keys[j] & np.uint64(0xFF))


@inner
def find_first(bits: Array, marks: Array, own: int, keys: Array, more: Array, first: Array) -> None:
    """Write the columns of the first ranks: sort the scores down to the last of them with columns.

    A column does not fit into a key, so the few that are requested are sorted once more.
    """
    wanted = min(first.shape[0], keys.shape[0])
    if first.shape[0] > wanted:
        first[wanted] = own
    if wanted == 0:
        return
    last = (keys[wanted - 1] >> np.uint64(8)) & np.uint64(0xFFFFFFFF)
    m = 0
    for j in range(bits.shape[0]):
        down = np.uint64(falling(bits[j]))
        if down <= last and j != own:
            mark = np.uint64(marks[j]) << np.uint64(COLUMN_BITS)
            more[m] = (down << np.uint64(32)) | mark | np.uint64(j)
            m += 1
    more[:m].sort()
    for j in range(wanted):
        first[j] = np.int32(more[j] & np.uint64((1 << COLUMN_BITS) - 1))


@part
def falling(bits: np.uint32) -> np.uint32:
    """Map the 32 bits of a score to ones that decrease as scores increase; -0.0 equals 0.0."""
    b = bits if bits != np.uint32(0x80000000) else np.uint32(0)
    return b if b >= np.uint32(0x80000000) else b ^ np.uint32(0x7FFFFFFF)


@fast
def find_span(bits: Array, span: Array) -> bool:
    """Write smallest and largest score, by their bits; False if one is nan or inf.

    If the lower bits of negative scores are inverted, bits increase with the scores; nan and inf
    are beyond all finite numbers.
    """
    low, high = np.int32(0x7FFFFFFF), np.int32(-0x80000000)
    for j in range(bits.shape[0]):
        b = bits[j]
        rising = b ^ ((b >> np.int32(31)) & np.int32(0x7FFFFFFF))
        low, high = min(low, rising), max(high, rising)
    span[0] = low ^ ((low >> np.int32(31)) & np.int32(0x7FFFFFFF))
    span[1] = high ^ ((high >> np.int32(31)) & np.int32(0x7FFFFFFF))
    return bool(high < np.int32(0x7F800000) and low > np.int32(-0x7F800001))


@fast
def add_level(places: Array, start: int, width: int, levels: Array) -> None:
    """Add 1 to the level of each image in a range of places."""
    for j in range(places.shape[0]):
        levels[j] += np.uint8(np.uint32(places[j]) - start < width)


@inner
def fill_keys(scores: Array, bits: Array, levels: Array, span: Array, keys: Array) -> None:
    """Pack the bin in the range, the descending score and the level of each image into one key."""
    low, high = span[0], span[1]
    scale = np.float32(PLACES) / (high - low) if high > low else np.float32(0.0)
    scale = min(scale, np.float32(1e30))
    for j in range(scores.shape[0]):
        step = np.uint32(np.int32((high - scores[j]) * scale))
        keys[j] = (
            (np.uint64(step) << np.uint64(BELOW))
            | (np.uint64(falling(bits[j])) << np.uint64(8))
            | np.uint64(levels[j])
        )
