"""How sure the means of the metrics are: bootstrap intervals over the queries.

All models and metrics are resampled together, so that intervals of models are of the same
queries; the seed is fixed, so that the same values give the same intervals.
"""

import numpy as np
import pandas as pd

__all__ = ["RESAMPLES", "Intervals", "bootstrap_intervals"]

Intervals = dict[tuple[str, str], tuple[float, float]]  # (model, metric) -> lower, upper end
RESAMPLES = 1000
CONFIDENCE = 0.95
BLOCK_CELLS = 1 << 24


def bootstrap_intervals(
    per_query: pd.DataFrame, resamples: int = RESAMPLES, seed: int = 0
) -> Intervals:
    """The 95 % interval of each mean: percentiles of the means of resampled queries.

    Args:
        per_query: model, image_id, metric and value; a query without a value has no row.
        resamples: how often as many queries are drawn with replacement.
        seed: of the draws.

    Returns:
        For each model and metric with a value the interval's ends.

    Example:
        >>> rows = {"model": "m", "image_id": ["a", "b"], "metric": "AP", "value": [0.5, 0.5]}
        >>> bootstrap_intervals(pd.DataFrame(rows))
        {('m', 'AP'): (0.5, 0.5)}
    """
    if per_query.empty:
        return {}
    table = per_query.pivot(index="image_id", columns=["model", "metric"], values="value")
    values = table.to_numpy(np.float64)  # (Q, M)
    known = ~np.isnan(values)
    chance = np.random.default_rng(seed)
    block = max(1, BLOCK_CELLS // len(values))
    means = []
    for start in range(0, resamples, block):
        counts = _draw(chance, min(block, resamples - start), len(values))  # (R, Q)
        with np.errstate(invalid="ignore"):  # a resample without any value of a rare metric
            means.append((counts @ np.where(known, values, 0.0)) / (counts @ known.astype(float)))
    ends = np.nanquantile(np.concatenate(means), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], 0)
    names = [(str(name[0]), str(name[1])) for name in table.columns.to_list()]
    return {name: (float(ends[0, i]), float(ends[1, i])) for i, name in enumerate(names)}


def _draw(chance: np.random.Generator, resamples: int, queries: int) -> np.ndarray:
    """(R, Q) how often each query was drawn."""
    rows = [
        np.bincount(chance.integers(queries, size=queries), minlength=queries)
        for _ in range(resamples)
    ]
    return np.stack(rows).astype(float)
