"""Metrics of whole galleries on a GPU: each block of queries is scored, ranked and measured there.

Per block, the GPU sends back only how full its fullest bin is, and the next block starts before the
last one is done: sizes are known from the labels alone, since the gallery is sorted by label path
first. That sort (``Ranges``) is on the GPU too: with a million images, a CPU would take longer to
sort than the GPU for the whole evaluation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking.kernels.device import has_triton
from hgld.ranking.kernels.loss_gpu import on
from hgld.ranking.names import KINDS, MetricName
from hgld.ranking.relevances import relevance_key, table_for
from hgld.ranking.result import Result

__all__ = ["Ranges", "counts", "measure"]

CELLS_AT_ONCE = 1 << 27  # 512 MB of scores
ROWS_AT_ONCE = 1 << 15  # a grid's second side ends at 65,535
ITEMS_AT_ONCE = 1 << 26  # relevant images of a block, 34 bytes each
BINS = 2  # for each relevant image
CROWDED = 128  # relevant images in one bin: above, moving past each other takes longer than a sort
BLOCK = 1024
KEY = (1 << 40) - 1  # bits of a score and of a level


def counts(query: Tensor, gallery: Tensor) -> bool:
    """Whether the kernels rank these embeddings."""
    return query.dtype == gallery.dtype == torch.float32 and has_triton(query.device)


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
    from hgld.ranking.kernels import rank_triton as kernels

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
    from hgld.ranking.kernels import rank_triton as kernels

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


@dataclass(frozen=True)
class Ranges:
    """Where each query's own classes lie in a gallery sorted by label path, as ``ClassRanges``.

    Args:
        order: (G,) gallery rows in the order of their paths.
        starts: (Q, L) int32 first place of the query's class at each level, coarse to fine.
        ends: (Q, L) int32 place after the last.
        own: (Q,) int32 place of the query itself, -1 where it is not in the gallery.
    """

    order: Tensor
    starts: Tensor
    ends: Tensor
    own: Tensor

    @classmethod
    def of(cls, query_labels: Tensor, gallery_labels: Tensor, exclude_self: bool) -> "Ranges":
        """Ranges of (Q, L) query paths among (G, L) gallery paths, on their device.

        Example:
            >>> found = Ranges.of(torch.tensor([[1, 1]]), torch.tensor([[1, 1], [0, 0]]), False)
            >>> found.starts.tolist(), found.ends.tolist(), found.order.tolist()
            ([[1, 1]], [[2, 2]], [1, 0])
        """
        size = len(gallery_labels)
        every = torch.cat([gallery_labels, query_labels]).long()
        by_path = torch.arange(len(every), device=every.device)
        for column in every.T.flip(0):  # the coarsest label counts most
            by_path = by_path[column[by_path].argsort(stable=True)]
        paths, rows = every[by_path], by_path.argsort()[size:]
        from_gallery = by_path < size
        before = torch.cat([from_gallery.new_zeros(1).long(), from_gallery.cumsum(0)])
        new = torch.zeros(len(paths), dtype=torch.bool, device=paths.device)
        new[0] = True
        starts, ends = [], []
        places = torch.arange(len(paths), device=paths.device)
        for level in range(every.shape[1]):
            new[1:] |= paths[1:, level] != paths[:-1, level]
            head = torch.where(new, places, 0).cummax(0).values
            after = torch.where(new, places, len(paths)).flip(0).cummin(0).values.flip(0)
            tail = torch.cat([after[1:], after.new_full((1,), len(paths))])
            starts.append(before[head[rows]])
            ends.append(before[tail[rows]])
        order = by_path[from_gallery]
        own = torch.full_like(rows, -1)
        if exclude_self:
            own = order.argsort()[: len(rows)]
        return cls(order, _narrow(starts), _narrow(ends), own.int())

    def counts(self) -> Tensor:
        """(Q, L + 1) int64 images on each level, level 0 first, without the query itself."""
        widths = (self.ends - self.starts).long()
        whole = widths.new_full((len(widths), 1), len(self.order))
        edges = torch.cat([whole, widths, widths.new_zeros(len(widths), 1)], 1)
        found = edges[:, :-1] - edges[:, 1:]
        found[:, -1] -= (self.own >= 0).long()
        return found


def _narrow(columns: list[Tensor]) -> Tensor:
    return torch.stack(columns, 1).int().contiguous()
