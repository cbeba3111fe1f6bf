"""Vectors that are clustered, and clusters of the rows of a matrix.

The vectors are those of texts, photos or both; values of one ancestor share one. They are clustered
by k-means, Ward's or average linkage, and so are the centres, for levels above. One thread
computes, and the seed is fixed, so that the same rows give the same clusters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from hgld.artifacts import Vectors
from hgld.config import ClusterOptions
from hgld.errors import UsageError
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.scrape.ancestors import shared_ancestors


@dataclass(frozen=True)
class Clustered:
    """Labels (N,) in 0..k-1 and the inertia: the sum of squared distances to the centres."""

    labels: np.ndarray
    inertia: float


def join_vectors(
    label_vectors: Vectors, image_vectors: Vectors | None, options: ClusterOptions
) -> Vectors:
    """Return the unit vectors of the values that ``cluster.on`` names.

    text         t
    images       p
    text+images  [sqrt(1 - w) t, sqrt(w) p], w = ``image_weight``

    With both, squared distances are the weighted mean of those of texts and of photos. A value
    without photos has the photo vector of the value of nearest text that has one.

    Args:
        label_vectors: t (N, D) of all values.
        image_vectors: p (M, E) of the values with photos; None for text.
        options: on and image_weight.

    Example:
        >>> texts, photos = np.array([[1.0, 0.0], [0.8, 0.6]]), np.array([[0.0, 1.0]])
        >>> join_vectors(Vectors(["cat", "lynx"], texts, {}), Vectors(["cat"], photos, {}),
        ...     ClusterOptions(on="images")).vectors.tolist()
        [[0.0, 1.0], [0.0, 1.0]]
    """
    if image_vectors is None:
        return label_vectors
    texts = np.asarray(label_vectors.vectors, dtype=np.float64)
    place = image_vectors.row_of
    rows = np.flatnonzero([key in place for key in label_vectors.ids])
    nearest = rows[(texts @ texts[rows].T).argmax(axis=1)]
    donors = [
        place.get(key, place[label_vectors.ids[near]])
        for key, near in zip(label_vectors.ids, nearest, strict=True)
    ]
    photos = np.asarray(image_vectors.vectors, dtype=np.float64)[donors]
    made_by = {**label_vectors.made_by, "images": image_vectors.made_by.get("encoder", "")}
    if options.on == "images":
        return Vectors(label_vectors.ids, photos, made_by)
    share = options.image_weight
    both = np.hstack([np.sqrt(1 - share) * texts, np.sqrt(share) * photos])
    return Vectors(label_vectors.ids, both, made_by)


def ancestor_groups(class_ids: Sequence[str], ancestry: pd.DataFrame, most_hops: int) -> np.ndarray:
    """Return the group (N,) of each value, 0..G-1: those with the same nearest shared ancestor.

    The nearest class that is above another value too decides, of several the one above fewest
    values. A class is 0 steps above itself. A value that shares none is alone.

    Args:
        class_ids: of the values; empty for values without one.
        ancestry: item_id and above of each statement.
        most_hops: most steps up.

    Example:
        >>> ancestry = pd.DataFrame({"item_id": ["fox", "wolf", "pie"],
        ...     "above": ["canid", "canid", "dish"]})
        >>> ancestor_groups(["fox", "pie", "wolf", ""], ancestry, 1).tolist()
        [0, 1, 0, 2]
    """
    shared, below = shared_ancestors(class_ids, ancestry, most_hops)
    keys = [
        min((hops, below[ancestor], ancestor) for ancestor, hops in found.items())[2]
        if found
        else f"row {row}"
        for row, found in enumerate(shared)
    ]
    groups, _ = pd.factorize(np.array(keys, dtype=object))
    return groups


def hold_together(
    values: pd.DataFrame, vectors: Vectors, ancestry: pd.DataFrame, most_hops: int
) -> Vectors:
    """Return the vectors with those of each group of values replaced by their mean.

    Args:
        values: class_id and instance_of.
        vectors: of the values.
        ancestry: as for ``ancestor_groups``.
        most_hops: most steps up.
    """
    class_of = dict(zip(value_keys(values), values["class_id"], strict=True))
    groups = ancestor_groups([class_of.get(key, "") for key in vectors.ids], ancestry, most_hops)
    return replace(vectors, vectors=means_of(vectors.vectors, groups)[groups])


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


def _draw_more(vectors: np.ndarray, clusters: int, seed: int, starts: np.ndarray) -> np.ndarray:
    """``starts`` and rows drawn with chances as the squared distance to the nearest centre."""
    random = np.random.default_rng(seed)
    centres = list(starts)
    distance = np.min([((vectors - centre) ** 2).sum(axis=1) for centre in centres], axis=0)
    while len(centres) < clusters:
        row = random.choice(len(vectors), p=distance / distance.sum())
        centres.append(vectors[row])
        distance = np.minimum(distance, ((vectors - vectors[row]) ** 2).sum(axis=1))
    return np.stack(centres)


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
        options: method, seed and restarts; of several runs that of least inertia counts.
        starts: (S, D) first centres of k-means, S at most ``clusters``; the others are drawn.

    Example:
        >>> rows = np.array([[0.0], [1.0], [9.0]])
        >>> find_clusters(rows, 2, ClusterOptions(method="ward")).labels.tolist()
        [0, 0, 1]
    """
    from sklearn.cluster import AgglomerativeClustering, KMeans

    if options.method != "k-means" and len(vectors) == clusters:
        return Clustered(np.arange(clusters), 0.0)  # scikit-learn refuses a single row
    # Sums in another order differ in the last bit, which can move a value between clusters.
    with threadpool_limits(limits=1):
        if options.method != "k-means":
            labels = AgglomerativeClustering(clusters, linkage=options.method).fit_predict(vectors)
            centres = means_of(vectors, labels)
            return Clustered(labels, float(((vectors - centres[labels]) ** 2).sum()))
        seed, restarts = options.seed, options.restarts
        if starts is None or not len(starts):
            models = [KMeans(clusters, n_init=restarts, random_state=seed)]
        else:
            drawn = (_draw_more(vectors, clusters, seed + i, starts) for i in range(restarts))
            models = [KMeans(clusters, init=init, n_init=1, random_state=seed) for init in drawn]
        runs = [Clustered(model.fit_predict(vectors), float(model.inertia_)) for model in models]
    return min(runs, key=lambda run: run.inertia)


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
