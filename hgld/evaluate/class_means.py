"""The mean embedding of each class: enough to draw how the classes lie to each other.

A gallery of 760,000 vectors is too large to be handed on for a picture; the means of some
thousand classes are small, and travel with the ranking.
"""

import numpy as np

__all__ = ["mean_classes"]

CLASSES = 1000  # of more, these many are drawn by a fixed seed: t-SNE grows with their number


def mean_classes(
    vectors: np.ndarray, labels: np.ndarray, limit: int = CLASSES
) -> tuple[np.ndarray, np.ndarray]:
    """Labels and mean vector of each finest class.

    Args:
        vectors: (N, D) unit vectors.
        labels: (N, L) coarse to fine.
        limit: of more classes, this many are drawn at random, the same ones each time.

    Returns:
        (C, L) labels in their order and (C, D) float32 means, not normalised.

    Example:
        >>> vectors = np.array([[1, 0], [0, 1], [0, 1]], np.float32)
        >>> classes, means = mean_classes(vectors, np.array([[0, 5], [0, 5], [1, 2]]))
        >>> classes.tolist(), means.tolist()
        ([[0, 5], [1, 2]], [[0.5, 0.5], [0.0, 1.0]])
    """
    classes, numbers = np.unique(labels, axis=0, return_inverse=True)
    shown = np.arange(len(classes))
    if len(classes) > limit:
        shown = np.sort(np.random.default_rng(0).choice(len(classes), limit, replace=False))
    rows = np.argsort(numbers.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(numbers.ravel()))
    starts = ends - np.diff(ends, prepend=0)
    means = [vectors[rows[starts[c] : ends[c]]].mean(axis=0, dtype=np.float64) for c in shown]
    return classes[shown], np.stack(means).astype(np.float32)
