"""Metrics of whole galleries on a GPU: a block of queries is scored, ranked and measured there.

Of a block comes back how full its fullest bin is, and nothing else before the last one is under
way: sizes are known from the labels alone, since the gallery is sorted by label path first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking.gpu import on, ready
from hgld.ranking.gpu_ranges import Ranges
from hgld.ranking.names import KINDS, MetricName
from hgld.ranking.relevances import relevance_key, table_for
from hgld.ranking.result import Result

__all__ = ["counts", "measure"]

CELLS_AT_ONCE = 1 << 27  # 512 MB of scores
ROWS_AT_ONCE = 1 << 15  # a grid's second side ends at 65,535
ITEMS_AT_ONCE = 1 << 26  # relevant images of a block, 34 bytes each
BINS = 2  # for each relevant image
CROWDED = 128  # relevant images in one bin: above, moving past each other takes longer than a sort
BLOCK = 1024
KEY = (1 << 40) - 1  # bits of a score and of a level


def counts(query: Tensor, gallery: Tensor) -> bool:
    """Whether the kernels rank these embeddings."""
    return query.dtype == gallery.dtype == torch.float32 and ready(query.device)


@dataclass(frozen=True)
class _Plan:
    """Metrics by name in the form that the kernels read."""

    at_level: Tensor  # (M', 5) int32: kind, level, cut-off, table, column
    over_levels: Tensor
    tables: Tensor  # (Q, T, L + 1) float64
    logs: Tensor
    discounts: Tensor
    harmonic: Tensor

    @classmethod
    def of(
        cls, names: Sequence[MetricName], level_names: tuple[str, ...], counts: Tensor
    ) -> "_Plan":
        keys = [relevance_key(name, len(level_names)) for name in names]
        found = list(dict.fromkeys(keys))
        specs: tuple[list[list[int]], list[list[int]]] = [], []
        for i, (name, key) in enumerate(zip(names, keys, strict=True)):
            spec = [name.kind, name.at_level(level_names), name.k or 0, found.index(key), i]
            specs[name.kind > KINDS["TR"]].append(spec)
        at_level, over_levels = (
            torch.tensor(part, dtype=torch.int32, device=counts.device).reshape(-1, 5)
            for part in specs
        )
        tables = [table_for(key, counts) for key in found] or [counts.double()]
        ranks = torch.arange(1, int(counts[0].sum()) + 2, dtype=torch.float64, device=counts.device)
        none = ranks.new_zeros(1)
        logs = torch.cat([none, (ranks + 1.0).log2().reciprocal()])
        harmonic = torch.cat([none, ranks.reciprocal().cumsum(0)])
        by_query = torch.stack(tables, 1).contiguous()
        return cls(at_level, over_levels, by_query, logs, logs.cumsum(0), harmonic)


def measure(
    query: Tensor,
    gallery: Tensor,
    labels: tuple[Tensor, Tensor],
    names: Sequence[MetricName],
    level_names: tuple[str, ...],
    exclude_self: bool,
) -> Result:
    """Values of the metrics of each query, under the names "0", "1", ...

    Raises:
        ShapeError: a score is nan or inf.
    """
    query_labels, gallery_labels = (part.to(query.device) for part in labels)
    ranges = Ranges.of(query_labels, gallery_labels, exclude_self)
    sizes = ranges.counts()
    plan = _Plan.of(names, level_names, sizes)
    gallery = gallery[ranges.order]
    room = (ranges.ends - ranges.starts)[:, 0].long().cpu()
    offsets = torch.cat([room.new_zeros(1), room.cumsum(0)])
    device_offsets = offsets.to(query.device)
    few = sizes.int().contiguous()
    values = query.new_empty(len(query), len(names), dtype=torch.float64)
    faults = torch.zeros(1, dtype=torch.int32, device=query.device)
    for start, stop in pairwise(_blocks(room, len(gallery))):
        part = slice(start, stop)
        scores = query[part] @ gallery.T
        where = ranges.starts[part], ranges.ends[part], ranges.own[part], device_offsets[part]
        base, items, most = int(offsets[start]), int(room[part].sum()), int(room[part].max())
        with on(scores.device):
            ranks, levels = _rank(scores, where, base, items, most, faults)
            _measure(ranks, levels, where[3], base, few[part], plan, part, values)
    if int(faults):
        raise ShapeError("scores hold nan or inf; expected finite embeddings")
    return Result.of([str(i) for i in range(len(names))], values.cpu().numpy(), sizes.cpu())


def _blocks(room: Tensor, gallery: int) -> list[int]:
    """Bounds of the blocks of queries: as many as fit the scores and their relevant images."""
    rows = max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // gallery))
    rows = max(1, min(rows, ITEMS_AT_ONCE // max(1, int(room.max()))))
    return [*range(0, len(room), rows), len(room)]


def _rank(
    scores: Tensor,
    where: tuple[Tensor, Tensor, Tensor, Tensor],
    base: int,
    items: int,
    most: int,
    faults: Tensor,
) -> tuple[Tensor, Tensor]:
    """Ranks (int32) and levels (int8) of the relevant images of a block, row after row."""
    from hgld.ranking import gpu_counting as kernels

    starts, ends, own, offsets = where
    (rows, width), num_levels = scores.shape, starts.shape[1]
    size = {"LEVELS": num_levels, "BINS": BINS}

    def integers(count: int, kind: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(count, dtype=kind, device=scores.device)

    spans, fullest, slots = scores.new_empty(rows, 3), integers(rows), integers(items)
    bins, gaps = integers(BINS * items + rows).zero_(), integers(items).zero_()
    keys, ranked = integers(items, torch.int64), integers(items, torch.int64)
    levels = integers(items, torch.int8)
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
    if int(fullest.max()) > CROWDED:  # as when a model gives one score to all
        ranked = _sorted_by_row(keys, (ends - starts)[:, 0].long(), own)
    elif most:
        kernels.settle_bins[tiles](starts, ends, offsets, bins, fullest, keys, ranked, base, **tile)
    kernels.count_others[(-(-width // BLOCK), rows)](
        scores, starts, ends, offsets, spans, bins, fullest, ranked, gaps, faults, width, base,
        **tile,
    )  # fmt: skip
    kernels.sum_ranks[(rows,)](starts, ends, offsets, bins, ranked, gaps, levels, base, **wide)
    return gaps, levels


def _sorted_by_row(keys: Tensor, sizes: Tensor, own: Tensor) -> Tensor:
    """Keys of one row after the other, each row's in order; one that lacks its query ends empty."""
    rows = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
    keys[(sizes.cumsum(0) - 1)[own >= 0]] = KEY  # beyond all others of its row
    return ((rows << KEY.bit_length()) | keys).sort().values & KEY


def _measure(
    ranks: Tensor,
    levels: Tensor,
    offsets: Tensor,
    base: int,
    counts: Tensor,
    plan: _Plan,
    part: slice,
    values: Tensor,
) -> None:
    """Values of a block's metrics, into its rows of ``values``."""
    from hgld.ranking import gpu_measuring as kernels

    rows, num_levels = len(counts), counts.shape[1] - 1
    given = ranks, levels, offsets, counts
    if len(plan.at_level):
        kernels.measure_level[(rows, len(plan.at_level))](
            *given, plan.at_level, values[part], base, values.shape[1], LEVELS=num_levels,
            BLOCK=BLOCK,
        )  # fmt: skip
    if len(plan.over_levels):
        steps = 1 << num_levels.bit_length()
        kernels.measure_levels[(rows, len(plan.over_levels))](
            *given, plan.over_levels, plan.tables[part], plan.logs, plan.discounts, plan.harmonic,
            values[part], base, values.shape[1], len(plan.logs) - 1, plan.tables.shape[1],
            LEVELS=num_levels, STEPS=steps, BLOCK=max(32, BLOCK // steps),
        )  # fmt: skip
