"""Curves of a ranking, and their charts: H-precision, H-AP against alpha, decomposability gap.

All three are computed from the shared levels by rank, without embeddings. For a large gallery they
are measured on a subset of the queries, the same for every model.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from hgld.ranking.levels import RelevanceWarning, look_up, relevance_table
from hgld.ranking.rankings import Ranking, h_rank_plus, measure
from hgld.report.examples import by_chance
from hgld.report.figures import draw_lines
from hgld.report.metrics_table import mean_of
from hgld.report.plans import ChartData, ChartPlan
from hgld.words import level_noun

__all__ = [
    "ALPHAS",
    "RECALLS",
    "Curves",
    "batch_sizes",
    "gaps_by_batch",
    "mean_curves",
    "measure_curves",
    "plan_curves",
    "queries_to_measure",
]

ALPHAS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
RECALLS = (np.arange(100) + 0.5) / 100  # midpoints of 100 steps: their mean is the area
QUERIES = 1000
PAIRS = 1 << 26  # limit of query-image pairs for one model
BLOCK_PAIRS = 1 << 20


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
    """Number of queries that are examined for a gallery of this size.

    Example:
        >>> queries_to_measure(2_000), queries_to_measure(762_000)
        (1000, 88)
    """
    return max(1, min(QUERIES, PAIRS // max(1, gallery)))


def measure_curves(levels: np.ndarray, num_levels: int) -> Curves:
    """The curves of some queries; nan where their gallery is empty.

    Args:
        levels: (Q, G) int8 shared level by rank; -1, at the end: not in the gallery.
        num_levels: L.
    """
    if not levels.shape[1]:
        levels = np.full((len(levels), 1), -1, np.int8)
    size = max(1, BLOCK_PAIRS // levels.shape[1])
    starts = range(0, len(levels), size)
    blocks = [Ranking.of(torch.from_numpy(levels[i : i + size].copy()), num_levels) for i in starts]
    precision = torch.cat([_precision_at_recalls(block) for block in blocks])
    with warnings.catch_warnings():  # the evaluation has already warned of these relevances
        warnings.simplefilter("ignore", RelevanceWarning)
        found = measure(blocks, [f"H-AP(alpha={alpha:g})" for alpha in ALPHAS])
    by_alpha = torch.stack([*found.per_query.values()], 1)
    gaps = gaps_by_batch(levels >= num_levels, batch_sizes(levels.shape[1]))
    return Curves(_means(precision.numpy()), _means(by_alpha.numpy()), gaps)


def mean_curves(curves: Sequence[Curves]) -> Curves:
    """The mean of the curves of several seeds."""
    return Curves(
        np.mean([one.precision for one in curves], axis=0),
        np.mean([one.by_alpha for one in curves], axis=0),
        {size: float(np.mean([one.gaps[size] for one in curves])) for size in curves[0].gaps},
    )


def _precision_at_recalls(ranking: Ranking) -> torch.Tensor:
    """(q, R) H-P (Eq. 31) at the first rank where H-R (Eq. 30) reaches each recall.

    The area below this staircase is H-AP (Eq. 32).
    """
    levels, table = (
        torch.from_numpy(ranking.levels),
        relevance_table(torch.from_numpy(ranking.counts)),
    )
    relevance = look_up(table, levels)  # (q, G)
    total = relevance.sum(1, keepdim=True)
    shared = torch.from_numpy(h_rank_plus(ranking.levels, table.numpy()))
    ranks = torch.arange(1, levels.shape[1] + 1, dtype=torch.float64)
    precision = shared / (ranks * relevance.clamp(min=torch.finfo().tiny))
    recall = relevance.cumsum(1) / total
    wanted = torch.from_numpy(RECALLS).expand(len(levels), -1).contiguous()
    rank = torch.searchsorted(recall.nan_to_num(), wanted).clamp(max=levels.shape[1] - 1)
    return torch.where(total > 0, precision.gather(1, rank), torch.nan)


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
    whole = np.arange(hits.shape[1])[None]
    gaps = {}
    for size in sizes:
        chance = np.random.default_rng(0)
        cut = chance.permutation(hits.shape[1])[: hits.shape[1] // size * size]
        batches = np.sort(cut.reshape(-1, size), axis=1)  # (K, B) ranks
        gaps[size] = float(_means(_mean_ap(hits, batches) - _mean_ap(hits, whole)))
    return gaps


def _mean_ap(hits: np.ndarray, batches: np.ndarray) -> np.ndarray:
    """(Q,) mean AP over the batches with a positive; nan where there is none."""
    values = np.empty(len(hits))
    places = np.arange(1, batches.shape[1] + 1)
    for row, hit in enumerate(hits):
        inside = hit[batches]  # (K, B)
        total = inside.sum(axis=1)
        found = np.where(inside, inside.cumsum(axis=1) / places, 0.0).sum(axis=1)
        ap = found[total > 0] / total[total > 0]
        values[row] = ap.mean() if ap.size else np.nan
    return values


def _means(values: np.ndarray) -> np.ndarray:
    """Mean over the queries that have a value, column by column."""
    known = ~np.isnan(values)
    mean: np.ndarray = np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return np.where(known.any(axis=0), mean, np.nan)


def plan_curves(measured: ChartData) -> Iterator[ChartPlan]:
    """H-P against H-R, H-AP against alpha, and the gap against the batch size."""
    if not measured.rankings:
        return
    queries = by_chance(measured.queries.landmarks)
    some = queries[: queries_to_measure(len(measured.gallery.landmarks))]
    depth = len(measured.levels)
    found = {
        run: mean_curves(
            [measure_curves(_inside(measured.rankings[m].levels(some)), depth) for m in r["models"]]
        )
        for run, r in measured.runs.items()
    }
    of = "" if len(some) == len(queries) else f" Over {len(some):,} of {len(queries):,} queries."
    of += " Means over the seeds of a run." if measured.has_seeds else ""
    yield from _plan_precision(found, measured, of)
    if len(measured.levels) > 1:
        yield from _plan_alpha(found, measured, of)
    yield from _plan_gap(found, measured, of)


def _inside(levels: np.ndarray) -> np.ndarray:
    """Remove the last ranks that are empty for all queries, since the query itself is excluded."""
    return levels[:, : int((levels >= 0).any(axis=0).sum())]


def _plan_precision(
    found: Mapping[str, Curves], measured: ChartData, of: str
) -> Iterator[ChartPlan]:
    """The numbers in the legend are those of the table of metrics, over all queries."""
    at_one = {model: curves.by_alpha[ALPHAS.index(1.0)] for model, curves in found.items()}
    if any(np.isnan(value) for value in at_one.values()):
        return
    kind = "H-" if len(measured.levels) > 1 else ""
    metric = "H-AP" if kind else f"AP:{measured.levels[0]}"
    if metric in measured.evaluation["metrics"]:
        at_one = {name: mean_of(run, metric) for name, run in measured.runs.items()}
        if " Over " in of:
            of = of.replace(" Over ", " Lines over ") + " The numbers are over all."
    lines = {model: (100 * RECALLS, 100 * curves.precision) for model, curves in found.items()}
    labels = {model: f"{model}: {kind}AP {100 * value:.1f}" for model, value in at_one.items()}
    words = "hierarchical " if kind else ""
    axis = (f"{words}recall (%)", f"{words}precision (%)")
    about = f"Precision at the rank where each recall is reached; the area is {kind}AP.{of}"
    draw = partial(draw_lines, lines, labels, list(measured.runs), axis, dots=False, full=True)
    yield ChartPlan("recall", "ranking", _lasting(found), about, draw)


def _lasting(found: Mapping[str, Curves]) -> str:
    """Precision of the best ranking halfway through its recall, as a sentence."""
    best = max(found.values(), key=lambda curves: float(curves.precision.mean()))
    name = next(model for model, curves in found.items() if curves is best)
    half = 100 * float(best.precision[len(RECALLS) // 2])
    return f"Halfway through its recall, {name} is {half:.0f}% precise"


def _plan_alpha(found: Mapping[str, Curves], measured: ChartData, of: str) -> Iterator[ChartPlan]:
    lines = {model: (ALPHAS, 100 * curves.by_alpha) for model, curves in found.items()}
    table = np.nan_to_num(np.stack([curves.by_alpha for curves in found.values()]))  # (M, A)
    leaders = {list(found)[number] for number in table.argmax(axis=0)}
    title = "Which model leads depends on alpha"
    if len(leaders) == 1:
        leader = leaders.pop()
        sure = len(found) > 1 and measured.is_surely_best(leader, "H-AP")
        title = f"{leader} has the highest H-AP at every alpha" if sure else "H-AP against alpha"
    about = (
        f"Above 1, alpha of Eq. 20 favours the {level_noun(measured.levels[-1])}; at 0 all levels "
        f"weigh the same.{of}"
    )
    axis = ("alpha of the relevance", "H-AP (%)")
    labels = {model: model for model in found}
    draw = partial(draw_lines, lines, labels, list(measured.runs), axis)
    yield ChartPlan("alpha", "ranking", title, about, draw)


def _plan_gap(found: Mapping[str, Curves], measured: ChartData, of: str) -> Iterator[ChartPlan]:
    gaps = {
        model: {size: 100 * gap for size, gap in curves.gaps.items() if not np.isnan(gap)}
        for model, curves in found.items()
    }
    if any(len(gap) < 2 for gap in gaps.values()):
        return
    lines = {model: (list(gap), list(gap.values())) for model, gap in gaps.items()}
    smallest = min(size for gap in gaps.values() for size in gap)
    most = max(gap[smallest] for gap in gaps.values())
    title = f"Batches of {smallest} flatter the ranking by up to {most:.0f} points"
    about = (
        f"Mean AP at level {measured.levels[-1]} within random batches of the gallery, minus AP "
        f"over the whole: the decomposability gap.{of}"
    )
    axis = ("images in a batch", "decomposability gap (points of AP)")
    labels = {model: model for model in gaps}
    draw = partial(draw_lines, lines, labels, list(measured.runs), axis, powers=True)
    yield ChartPlan("gap", "ranking", title, about, draw)
