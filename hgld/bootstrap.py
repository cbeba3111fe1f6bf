"""Bootstrap confidence intervals of means: over queries or whole classes, and over training seeds.

Queries of one class are not independent: a model tends to be right or wrong on all photos of a
landmark. For classes that the model never saw, whole classes are therefore drawn, each with all
its queries (cluster bootstrap); the statistic is the mean over the queries drawn.

Seeds are not drawn. Their spread is added as Student's t with S - 1 degrees of freedom, in units
of the standard error. Three seeds are too few to draw from: the mean of a draw never leaves the
range of the three, so if seeds dominate, such an interval misses the true mean in a fifth of the
cases (measured in tests/test_bootstrap.py); the t interval misses it in a twentieth.

The paired t-test over the seeds alone is that of the papers: it ignores the spread of the queries.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from hgld.lazy import lazy_module

stats = lazy_module("scipy.stats")

DRAWS = 2_000
CONFIDENCE = 0.95
BLOCK_CELLS = 1 << 23  # counts held at a time: 64 MB
ROUNDING = 1e-12  # smaller differences of means are none
T_SAMPLE = 1 << 17  # values of t from which its quantiles are estimated


def count_draws(units: int, draws: int = DRAWS, seed: int = 0) -> Iterator[np.ndarray]:
    """Draw U of U units with replacement, ``draws`` times.

    Yields:
        (r, U) float64 count of each unit in each of the next r draws.

    Example:
        >>> [block.sum(axis=1).tolist() for block in count_draws(3, draws=2)]
        [[3.0, 3.0]]
    """
    chance = np.random.default_rng(seed)
    step = max(1, BLOCK_CELLS // units)
    for start in range(0, draws, step):
        rows = range(min(step, draws - start))
        # bincount is ten times faster than chance.multinomial for 100,000 units
        drawn = [np.bincount(chance.integers(units, size=units), minlength=units) for _ in rows]
        yield np.stack(drawn).astype(np.float64)


def resample_means(
    values: np.ndarray, classes: np.ndarray | None = None, *, draws: int = DRAWS, seed: int = 0
) -> np.ndarray:
    """Return the means of resampled queries or classes.

    All columns share the draws, so the difference of two columns is that of a paired bootstrap. The
    classes are numbered by their first query, so that their names do not decide what is drawn.

    Args:
        values: (Q, C); nan if a query has no value.
        classes: (Q,) class of each query, drawn with all its queries; None: draw each query alone.
        draws: number of resamples.
        seed: of the draws.

    Returns:
        (draws, C); nan if a draw has no value, and for a column with values in one unit only,
        whose spread is unknown.

    Example:
        >>> values = np.array([[0.0], [0.5], [1.0]])
        >>> resample_means(values, np.array(["a", "a", "b"]), draws=200).max()
        np.float64(1.0)
        >>> np.isnan(resample_means(values, np.array(["a", "a", "a"]))).all()
        np.True_
    """
    known = ~np.isnan(values)
    sums, counts = np.where(known, values, 0.0), known.astype(np.float64)
    if classes is not None:
        numbers = pd.factorize(classes)[0]
        order = np.argsort(numbers, kind="stable")
        starts = np.unique(numbers[order], return_index=True)[1]
        sums = np.add.reduceat(sums[order], starts, axis=0)
        counts = np.add.reduceat(counts[order], starts, axis=0)
    # most columns lack the same queries: multiply each pattern of missing values only once
    _, first, pattern = np.unique(
        np.packbits(known, axis=0), axis=1, return_index=True, return_inverse=True
    )
    counts_once = np.ascontiguousarray(counts[:, first])
    with np.errstate(invalid="ignore"):  # no value drawn: 0 / 0
        means = np.concatenate(
            [
                (drawn @ sums) / (drawn @ counts_once)[:, pattern.reshape(-1)]
                for drawn in count_draws(len(sums), draws, seed)
            ]
        )
    means[:, (counts > 0).sum(axis=0) < 2] = np.nan
    return means


def find_ends(
    resampled: np.ndarray, by_seed: np.ndarray | None = None, share: float = CONFIDENCE
) -> np.ndarray:
    """Return the ends of confidence intervals of means, or of means over training seeds.

    Args:
        resampled: (draws, M) from ``resample_means``; with several seeds, the mean over them.
        by_seed: (S, M) mean of each seed, whose spread is added; None or S = 1: the spread is
            unknown and not part of the interval.
        share: fraction of the draws inside the interval.

    Returns:
        (2, M) lower and upper ends; nan for a metric without draws.

    Example:
        >>> find_ends(np.array([[0.5], [0.5]])).tolist()
        [[0.5], [0.5]]
    """
    if by_seed is not None and len(by_seed) > 1:
        error = by_seed.std(axis=0, ddof=1) / np.sqrt(len(by_seed))
        resampled = resampled + _draw_t(len(by_seed) - 1, len(resampled))[:, None] * error
    tail = (1 - share) / 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column of nan alone
        ends: np.ndarray = np.nanquantile(resampled, [tail, 1 - tail], axis=0)
    return ends


def paired_t_test(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Test the means of two runs over the seeds that both have by the paired t-test.

    Args:
        a: (S, M) means of each seed and metric.
        b: (S, M), of the same seeds.

    Returns:
        (M,) t, positive if b is higher, and (M,) two-sided p; nan for a metric without values, or
        if all seeds have one difference. None for one seed, whose spread is unknown.

    Example:
        >>> t, p = paired_t_test(np.array([[0.1], [0.2]]), np.array([[0.2], [0.5]]))
        >>> t.round(1).tolist(), p.round(2).tolist()
        ([2.0], [0.3])
    """
    if len(a) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # seeds of one difference, or none
        found = stats.ttest_rel(b, a, axis=0)
    # of equal differences: their spread is 0 or rounding alone, so that t is inf or any number
    known = np.ptp(b - a, axis=0) > ROUNDING
    return np.where(known, found.statistic, np.nan), np.where(known, found.pvalue, np.nan)


@lru_cache(maxsize=8)
def _draw_t(freedom: int, draws: int) -> np.ndarray:
    """Return (draws,) evenly spaced quantiles of Student's t in random order.

    With plain random draws, a few extreme values would decide the ends of an interval.
    """
    chance = np.random.default_rng(0)
    sample = chance.standard_t(freedom, T_SAMPLE)
    return chance.permutation(np.quantile(sample, (np.arange(draws) + 0.5) / draws))


def pair_seeds(
    a: Mapping[str, Mapping[str, Any]], b: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, str]]:
    """Pair the models of two runs by the seed that they were trained with.

    A model that was not trained, or whose seed is not recorded, pairs with all of the other run, as
    do two runs of one model each.

    Args:
        a: model -> facts of ``report.json``.
        b: likewise.

    Returns:
        Pairs of models; none if both have seeds and share none.

    Example:
        >>> pair_seeds({"a": {"seed": 0}, "b": {"seed": 1}}, {"c": {"seed": 1}, "d": {"seed": 2}})
        [('b', 'c')]
        >>> pair_seeds({"a": {"seed": 0}, "b": {"seed": 1}}, {"pretrained": {}})
        [('a', 'pretrained'), ('b', 'pretrained')]
    """
    seeds = [{facts.get("seed"): name for name, facts in side.items()} for side in (a, b)]
    if any(None in side for side in seeds) or len(a) == len(b) == 1:
        return [(one, other) for one in a for other in b]
    return [(name, seeds[1][seed]) for seed, name in seeds[0].items() if seed in seeds[1]]


def bootstrap_unit(protocols: Sequence[Mapping[str, Any]], wanted: str = "auto") -> str:
    """Return "classes" or "queries", the resampling unit for these evaluations.

    "auto" is classes if no model was trained on one of them (open set).

    Example:
        >>> bootstrap_unit([{"classes": {"queries": 24, "trained_on": 0}}])
        'classes'
        >>> bootstrap_unit([{"classes": {"queries": 24, "trained_on": 3}}])
        'queries'
    """
    if wanted != "auto":
        return wanted
    seen = any(protocol["classes"]["trained_on"] for protocol in protocols)
    return "queries" if seen else "classes"


def name_classes(per_query: pd.DataFrame, queries: pd.Index) -> np.ndarray | None:
    """Return the (Q,) finest class of each query; a query without a label is a separate class.

    Args:
        per_query: with the columns image_id and class.
        queries: image ids.

    Returns:
        None if no class is recorded.
    """
    recorded = per_query.drop_duplicates("image_id").set_index("image_id")["class"]
    classes = recorded.loc[queries]
    if not classes.any():
        return None
    return np.array([name or f"query {query}" for query, name in classes.items()])
