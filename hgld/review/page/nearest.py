"""Which other cluster a value might belong to.

By the distance to a cluster's centre, the mean of its values' vectors, as ``margin`` counts it: a
person who doubts a proposal wants to look first where the value would have gone otherwise.
"""

import numpy as np
import pandas as pd

from hgld.artifacts import Vectors
from hgld.hierarchy.clean import value_keys

__all__ = ["find_next_clusters"]


def find_next_clusters(clusters: pd.DataFrame, label_vectors: Vectors) -> dict[str, int]:
    """Value key -> the nearest cluster but its own; nothing where there is one cluster only.

    Args:
        clusters: class_id, instance_of, cluster; one row a value.
        label_vectors: unit vectors by value key; values without a vector are left out.

    Example:
        >>> clusters = pd.DataFrame({"class_id": ["Q1", "Q2", "Q3"], "cluster": [0, 1, 2],
        ...     "instance_of": ["pond", "lake", "mine"]})
        >>> vectors = np.array([[1, 0], [0.8, 0.6], [0, 1]])
        >>> find_next_clusters(clusters, Vectors(["Q1", "Q2", "Q3"], vectors, {}))
        {'Q1': 1, 'Q2': 0, 'Q3': 1}
    """
    row_of = {key: row for row, key in enumerate(label_vectors.ids)}
    keyed = clusters.assign(key=value_keys(clusters))
    keyed = keyed[keyed["key"].isin(list(row_of))]
    numbers, own = np.unique(keyed["cluster"].to_numpy(), return_inverse=True)
    if len(numbers) < 2:
        return {}
    vectors = label_vectors.vectors[[row_of[key] for key in keyed["key"]]].astype(np.float64)
    centres = _means(vectors, own, len(numbers))
    squares = (centres**2).sum(axis=1) - 2 * vectors @ centres.T  # (N, K), but for a constant a row
    squares[np.arange(len(own)), own] = np.inf
    return dict(zip(keyed["key"], numbers[squares.argmin(axis=1)].tolist(), strict=True))


def _means(vectors: np.ndarray, own: np.ndarray, count: int) -> np.ndarray:
    """Mean (count, D) of each cluster's vectors."""
    sums = np.zeros((count, vectors.shape[1]))
    np.add.at(sums, own, vectors)
    return np.asarray(sums / np.bincount(own, minlength=count)[:, None])
