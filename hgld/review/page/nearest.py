"""Second nearest cluster of each value, as an alternative to the proposed one.

The distance is that to the cluster's centre, the mean of its values' vectors, as in ``margin``. A
reviewer who doubts a proposal looks there first.
"""

import numpy as np
import pandas as pd

from hgld.artifacts import Vectors
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.vector_clusters import means_of

__all__ = ["find_next_clusters"]


def find_next_clusters(clusters: pd.DataFrame, label_vectors: Vectors) -> dict[str, int]:
    """Return value key -> the nearest cluster except its own; empty for a single cluster.

    Args:
        clusters: class_id, instance_of, cluster; one row for each value.
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
    centres = means_of(vectors, own)
    # (N, K) squared distances without |v|^2, which is constant in a row and leaves argmin unchanged
    squares = (centres**2).sum(axis=1) - 2 * vectors @ centres.T
    squares[np.arange(len(own)), own] = np.inf
    return dict(zip(keyed["key"], numbers[squares.argmin(axis=1)].tolist(), strict=True))
