"""Curves of a ranking: H-precision at each recall, H-AP against alpha, the decomposability gap.

All three need the level at every rank, so they are measured while the gallery is ranked: for a
large gallery on some of the queries, the same for every model. The report reads curves, so torch,
which takes a second to import, is loaded when they are measured.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

ALPHAS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
RECALLS = (np.arange(100) + 0.5) / 100  # midpoints of 100 steps: their mean is the area
QUERIES = 1000
PAIRS = 1 << 26  # limit of query-image pairs for one model
AT_ONCE = 1 << 20  # query-image pairs, or images of batches, to bound memory
IMAGES = 1 << 24  # of a gallery; of a larger one, the four queries or fewer would tell little


@dataclass(frozen=True)
class CurveValues:
    """Curves of single queries; nan if a query has no value.

    Attributes:
        precision: (Q, 100) H-precision at each of ``RECALLS``.
        by_alpha: (Q, 8) H-AP at each of ``ALPHAS``.
        gaps: (Q, S) decomposability gap of AP at the finest level, for each batch size.
        sizes: (S,) batch sizes.
    """

    precision: np.ndarray
    by_alpha: np.ndarray
    gaps: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, levels: np.ndarray, num_levels: int) -> "CurveValues":
        """Measure (Q, G) int8 shared levels by rank; -1, at the end: not in the gallery."""
        import torch

        from hgld.ranking.kernels.metrics_cpu import precisions_at_recalls
        from hgld.ranking.levels import relevance_table
        from hgld.ranking.rankings import BlockValues, Ranking

        sizes = batch_sizes(levels.shape[1])
        if not len(levels):  # of a very large gallery
            none = [np.empty((0, len(columns))) for columns in (RECALLS, ALPHAS, sizes)]
            return cls(none[0], none[1], none[2], np.array(sizes, np.int64))
        if not levels.shape[1]:
            levels = np.full((len(levels), 1), -1, np.int8)
        precision = np.empty((len(levels), len(RECALLS)))
        names = [*(f"H-AP(alpha={alpha:g})" for alpha in ALPHAS), "AP"]
        size = max(1, AT_ONCE // levels.shape[1])

        def blocks() -> Iterator[BlockValues]:
            for start in range(0, len(levels), size):
                block = Ranking.of(
                    torch.from_numpy(levels[start : start + size].copy()), num_levels
                )
                table = relevance_table(torch.from_numpy(block.counts)).numpy()
                found = precision[start : start + size]
                precisions_at_recalls(block.levels, block.counts, table, RECALLS, found)
                yield BlockValues.of(block, names)

        # without a warning: the evaluation has already warned of these relevances
        *by_alpha, whole = BlockValues.join(blocks(), names).per_query.values()
        gaps = _gaps(levels, num_levels, sizes, whole.numpy())
        return cls(precision, torch.stack(by_alpha, 1).numpy(), gaps, np.array(sizes, np.int64))

    def mean(self) -> "Curves":
        """Return the means over the queries that have a value."""
        gaps = zip(self.sizes.tolist(), _means(self.gaps).tolist(), strict=True)
        return Curves(_means(self.precision), _means(self.by_alpha), dict(gaps))


@dataclass(frozen=True)
class Curves:
    """Means over the queries that have a value.

    Attributes:
        precision: H-precision at each of ``RECALLS``.
        by_alpha: H-AP at each of ``ALPHAS``.
        gaps: batch size -> decomposability gap of AP at the finest level.
    """

    precision: np.ndarray
    by_alpha: np.ndarray
    gaps: dict[int, float]


def queries_to_measure(gallery: int) -> int:
    """Number of queries that are examined for a gallery of this size; 0 if it is very large.

    Example:
        >>> queries_to_measure(2_000), queries_to_measure(762_000), queries_to_measure(40_000_000)
        (1000, 88, 0)
    """
    if gallery > IMAGES:
        return 0
    return max(1, min(QUERIES, PAIRS // max(1, gallery)))


def by_chance(ids: Collection[str]) -> list[str]:
    """Return the ids in a random order that does not depend on the other ids of the set."""
    return sorted(ids, key=lambda i: sha256(i.encode()).digest())


def measure_curves(levels: np.ndarray, num_levels: int) -> Curves:
    """The curves of some queries; nan where their gallery is empty.

    Args:
        levels: (Q, G) int8 shared level by rank; -1, at the end: not in the gallery.
        num_levels: L.
    """
    return CurveValues.of(levels, num_levels).mean()


def batch_sizes(gallery: int) -> list[int]:
    """Powers of two that cut a gallery into two batches or more.

    Example:
        >>> batch_sizes(100)
        [8, 16, 32]
    """
    powers = (1 << exponent for exponent in range(3, 13))
    return [size for size in powers if 2 * size <= gallery]


def gaps_by_batch(hits: np.ndarray, sizes: Sequence[int]) -> dict[int, float]:
    """Batch size -> mean over batches of AP, minus AP of the whole; a mean over the queries.

    The gallery is cut at random with a fixed seed; a rest smaller than a batch and batches without
    a positive are left out.

    Args:
        hits: (Q, G) bool; the image at this rank has the query's class.
        sizes: of the batches.

    Example:
        >>> perfect = np.array([[True, True, False, False]])
        >>> gaps_by_batch(perfect, [2])
        {2: 0.0}
    """
    import torch

    from hgld.ranking.rankings import Ranking

    whole = Ranking.of(torch.from_numpy(hits.astype(np.int8)), 1).evaluate(["AP"]).per_query["AP"]
    return dict(zip(sizes, _means(_gaps(hits, 1, sizes, whole.numpy())).tolist(), strict=True))


def _gaps(levels: np.ndarray, positive: int, sizes: Sequence[int], whole: np.ndarray) -> np.ndarray:
    """(Q, S) gap of each query, for each batch size.

    Args:
        levels: (Q, G) by rank.
        positive: from this level on, an image is positive.
        sizes: of the batches.
        whole: (Q,) AP of the whole gallery.
    """
    from hgld.ranking.kernels.device import new_array

    gaps = np.empty((len(levels), len(sizes)))
    # the same cut for all queries and models, so that their gaps are paired
    # shuffle() takes microseconds an item of a memmap
    order = np.asarray(new_array((levels.shape[1],), np.int32))
    order[:] = np.arange(len(order), dtype=np.int32)
    np.random.default_rng(0).shuffle(order)
    for column, size in enumerate(sizes):
        places = np.arange(1, size + 1)
        sums, counted = np.zeros(len(levels)), np.zeros(len(levels))
        full = order[: len(order) // size * size].reshape(-1, size)  # without the rest
        step = max(1, AT_ONCE // size)
        for start in range(0, len(full), step):
            batches = np.sort(full[start : start + step], axis=1)  # in the order of the ranking
            for row, shared in enumerate(levels):
                inside = shared[batches] >= positive  # (K, B)
                total = inside.sum(axis=1)
                found = np.where(inside, inside.cumsum(axis=1) / places, 0.0).sum(axis=1)
                ap = found[total > 0] / total[total > 0]
                sums[row] += ap.sum()
                counted[row] += len(ap)
        mean = np.divide(sums, counted, out=np.full(len(levels), np.nan), where=counted > 0)
        gaps[:, column] = mean - whole
    return gaps


def _means(values: np.ndarray) -> np.ndarray:
    """Mean over the queries that have a value, column by column."""
    known = ~np.isnan(values)
    mean: np.ndarray = np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return np.where(known.any(axis=0), mean, np.nan)
