"""k-means on unit vectors: where it starts, and that it ends the same each time.

One thread computes and the seed is fixed, so the same rows give the same clusters on one machine.
Centres that a person's decisions suggest come first; the others are drawn far from them, as
k-means++ does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

__all__ = ["Clustered", "count_different", "k_means", "nearest_to_mean"]


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
    distance = np.linalg.norm(chosen - chosen.mean(axis=0), axis=1).round(6)
    return int(np.asarray(rows)[distance.argmin()])


def _fit(
    vectors: np.ndarray, clusters: int, restarts: int, seed: int, init: "str | np.ndarray"
) -> Clustered:
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
