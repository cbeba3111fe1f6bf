"""Cluster the rows of a matrix: k-means, Ward's or average linkage, and levels above clusters.

One thread computes, and the seed is fixed, so that the same rows give the same clusters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from hgld.config import ClusterOptions
from hgld.errors import UsageError


@dataclass(frozen=True)
class Clustered:
    """Labels (N,) in 0..k-1 and the inertia: the sum of squared distances to the centres."""

    labels: np.ndarray
    inertia: float


def k_means(
    vectors: np.ndarray,
    clusters: int,
    *,
    seed: int,
    restarts: int,
    starts: np.ndarray | None = None,
) -> Clustered:
    """The best of ``restarts`` runs over the rows of ``vectors`` (N, D).

    Args:
        vectors: (N, D) float64 with at least ``clusters`` different rows.
        clusters: number of clusters.
        seed: of the drawn centres.
        restarts: runs from other draws, of which that of least inertia counts.
        starts: (S, D) first centres, S at most ``clusters``; the others are drawn.
    """
    import sklearn.cluster  # noqa: F401  before the limit, which holds for loaded libraries only

    # Sums in another order differ in the last bit, which can move a value between clusters.
    with threadpool_limits(limits=1):
        if starts is None or not len(starts):
            runs = [_fit(vectors, clusters, restarts, seed, "k-means++")]
        else:
            centres = (_draw_more(vectors, clusters, seed + i, starts) for i in range(restarts))
            runs = [_fit(vectors, clusters, 1, seed, start) for start in centres]
    return min(runs, key=lambda run: run.inertia)


def count_different(vectors: np.ndarray) -> int:
    """Number of different rows."""
    return len(np.unique(vectors, axis=0)) if len(vectors) else 0


def nearest_to_mean(vectors: np.ndarray, rows: Sequence[int] | np.ndarray) -> int:
    """The medoid: of these rows the one nearest to their mean direction, the first among equals.

    Example:
        >>> nearest_to_mean(np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), [0, 1, 2])
        1
    """
    chosen = vectors[rows]
    # Rounded, so that values at equal distance are equal and the first one wins.
    distance = np.linalg.norm(chosen - chosen.mean(axis=0), axis=1).round(6)
    return int(np.asarray(rows)[distance.argmin()])


def _fit(
    vectors: np.ndarray, clusters: int, restarts: int, seed: int, init: "str | np.ndarray"
) -> Clustered:
    from sklearn.cluster import KMeans

    model = KMeans(clusters, n_init=restarts, random_state=seed, init=init)
    labels = model.fit_predict(vectors)
    return Clustered(labels, float(model.inertia_))


def _draw_more(vectors: np.ndarray, clusters: int, seed: int, starts: np.ndarray) -> np.ndarray:
    """``starts`` and rows drawn with chances as the squared distance to the nearest centre."""
    random = np.random.default_rng(seed)
    centres = list(starts)
    distance = np.min([_squared(vectors, centre) for centre in centres], axis=0)
    while len(centres) < clusters:
        row = random.choice(len(vectors), p=distance / distance.sum())
        centres.append(vectors[row])
        distance = np.minimum(distance, _squared(vectors, vectors[row]))
    return np.stack(centres)


def _squared(vectors: np.ndarray, centre: np.ndarray) -> np.ndarray:
    squared: np.ndarray = ((vectors - centre) ** 2).sum(axis=1)
    return squared


def find_clusters(
    vectors: np.ndarray,
    clusters: int,
    options: ClusterOptions,
    starts: np.ndarray | None = None,
) -> Clustered:
    """Cluster the rows of ``vectors`` (N, D) by ``options.method``.

    Args:
        vectors: (N, D) float64 with at least ``clusters`` different rows.
        clusters: number of clusters.
        options: method, seed and restarts.
        starts: (S, D) first centres of k-means.

    Example:
        >>> rows = np.array([[0.0], [1.0], [9.0]])
        >>> find_clusters(rows, 2, ClusterOptions(method="ward")).labels.tolist()
        [0, 0, 1]
    """
    if options.method == "k-means":
        return k_means(
            vectors, clusters, seed=options.seed, restarts=options.restarts, starts=starts
        )
    if len(vectors) == clusters:  # scikit-learn refuses a single row
        return Clustered(np.arange(clusters), 0.0)
    from sklearn.cluster import AgglomerativeClustering

    with threadpool_limits(limits=1):
        model = AgglomerativeClustering(clusters, linkage=options.method)
        labels = model.fit_predict(vectors)
    centres = means_of(vectors, labels)
    return Clustered(labels, float(((vectors - centres[labels]) ** 2).sum()))


def means_of(vectors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The mean of the rows of each label 0..K-1, (K, D)."""
    return np.stack([vectors[labels == label].mean(axis=0) for label in range(labels.max() + 1)])


def nest(centres: np.ndarray, options: ClusterOptions) -> list[np.ndarray]:
    """Cluster the centres of the level below, for each level above the finest.

    Args:
        centres: (K, D) of the finest level.
        options: the numbers of clusters in ``above``.

    Returns:
        Labels (K,) of the finest level's clusters at each level, coarse to fine.

    Raises:
        UsageError: a level has more clusters than there are different centres below it.

    Example:
        >>> rows = np.array([[0.0], [1.0], [6.0], [9.0]])
        >>> [labels.tolist() for labels in nest(rows, ClusterOptions(
        ...     levels=("a", "b", "c"), above=(2, 3), clusters=4, method="ward"))]
        [[0, 0, 1, 1], [0, 0, 1, 2]]
    """
    found: list[np.ndarray] = []
    below, place = centres, np.arange(len(centres))  # place: of each finest cluster in ``below``
    for level, clusters in zip(options.levels[-2::-1], options.above[::-1], strict=False):
        different = count_different(below)
        if clusters > different:
            raise UsageError(
                f"cluster.above asks for {clusters} clusters at level '{level}', but the level "
                f"below has only {different} different ones; set it to {different} or less"
            )
        # Numbered by their first row, since the method's own numbers mean nothing.
        labels, _ = pd.factorize(find_clusters(below, clusters, options).labels)
        below, place = means_of(below, labels), labels[place]
        found.insert(0, place)
    return found
