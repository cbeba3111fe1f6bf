"""Propose supercategories: k-means on the unit vectors of the values.

A proposal is only a start for the review, but it has to be the same each time: values are sorted
by key, the seed is fixed, one thread computes, and numbers are rounded to six digits.
"""

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from hgld.artifacts import Vectors
from hgld.config import ClusterOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.columns import columns_of

__all__ = ["propose_clusters"]

DIGITS = 6


def propose_clusters(
    values: pd.DataFrame,
    label_vectors: Vectors,
    *,
    options: ClusterOptions,
    context: StageContext,
) -> pd.DataFrame:
    """One row a value before and after; after, with its cluster.

    ``distance`` is to the centre of the own cluster (Euclidean), ``margin`` how much farther the
    second-nearest centre is (0 where there is one cluster only). Clusters are numbered by their
    landmarks, most first, then by name; a cluster's name is the label of the value nearest to its
    centre.

    Raises:
        UsageError: more clusters are asked for than there are different vectors.
        InvalidData: a value without a vector.
    """
    keys = value_keys(values)
    values = values.iloc[np.argsort(keys.to_numpy(dtype=str), kind="stable")]
    vectors = _rows_for(value_keys(values), label_vectors)
    _require_enough(vectors, options.clusters)
    labels, distances = _k_means(vectors, options)
    return _number_clusters(_describe(values, labels, distances))


def _rows_for(keys: "pd.Series[str]", label_vectors: Vectors) -> np.ndarray:
    """The vectors (N, D) of the keys, in float64."""
    row_of = {key: row for row, key in enumerate(label_vectors.ids)}
    missing = [key for key in keys if key not in row_of]
    if missing:
        raise InvalidData(
            f"label_vectors.npz has no vector for '{missing[0]}' ({len(missing)} of {len(keys)} "
            "values); delete label_vectors.npz and run again"
        )
    rows = [row_of[key] for key in keys]
    return np.asarray(label_vectors.vectors, dtype=np.float64)[rows]


def _require_enough(vectors: np.ndarray, clusters: int) -> None:
    different = len(np.unique(vectors, axis=0)) if len(vectors) else 0
    if clusters > different:
        raise UsageError(
            f"cluster.clusters is {clusters}, but there are only {different} different values to "
            f"cluster; set cluster.clusters to {different} or less"
        )


def _k_means(vectors: np.ndarray, options: ClusterOptions) -> tuple[np.ndarray, np.ndarray]:
    """Labels (N,) and the distances (N, k) to all centres."""
    model = KMeans(options.clusters, n_init=options.restarts, random_state=options.seed)
    with threadpool_limits(limits=1):
        labels = model.fit_predict(vectors)
        distances = model.transform(vectors)
    return labels, distances


def _describe(values: pd.DataFrame, labels: np.ndarray, distances: np.ndarray) -> pd.DataFrame:
    own = distances[np.arange(len(labels)), labels]
    others = distances.copy()
    others[np.arange(len(labels)), labels] = np.inf
    margin = others.min(axis=1) - own if distances.shape[1] > 1 else np.zeros(len(labels))
    return values.assign(
        cluster=labels, distance=np.round(own, DIGITS), margin=np.round(margin, DIGITS)
    )


def _number_clusters(described: pd.DataFrame) -> pd.DataFrame:
    """Ids by landmarks and name instead of k-means' own, which mean nothing."""
    nearest = described.sort_values("distance", kind="stable").groupby("cluster")["instance_of"]
    clusters = pd.DataFrame(
        {
            "cluster_name": nearest.first(),
            "landmarks": described.groupby("cluster")["landmarks"].sum(),
        }
    )
    ordered = clusters.reset_index().sort_values(
        ["landmarks", "cluster_name", "cluster"], ascending=[False, True, True]
    )
    number = {old: new for new, old in enumerate(ordered["cluster"])}
    named = described.assign(cluster_name=described["cluster"].map(clusters["cluster_name"]))
    return named.assign(cluster=named["cluster"].map(number))[columns_of("clusters")]
