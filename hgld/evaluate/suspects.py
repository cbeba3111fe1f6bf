"""Suspect labels: images and classes whose embedding disagrees with their label path.

Two views that fail differently are joined. The nearest images vote: each image is left out of its
own vote, as in cross-validation with as many folds as images. The class means compete: an image is
compared with the mean of its own class without itself, and with the mean of every other class. The
score joins both. Classes are judged in the same way, as points at their means, by the class
above them.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from hgld.errors import UsageError
from hgld.evaluate.given import unit_rows
from hgld.evaluate.mapped_vectors import ROWS_AT_ONCE, MappedVectors
from hgld.evaluate.neighbours import Vectors, nearest
from hgld.evaluate.ranking import mean_classes


@dataclass(frozen=True)
class Suspects:
    """Agreement of each of N labelled points with its class; nan if it is alone in its class.

    Attributes:
        score: (N,) suspicion, the mean of both standard scores: 0 is usual, larger more suspect.
        votes: (N,) share of the nearest points in its class, minus the largest share of another.
        margin: (N,) cosine with the mean of its class, without itself, minus the largest one with
            the mean of another class.
        elsewhere: (N,) row of a point of that other class.
    """

    score: np.ndarray
    votes: np.ndarray
    margin: np.ndarray
    elsewhere: np.ndarray


def find_suspects(
    vectors: Vectors, labels: np.ndarray, count: int = 10, device: str = "auto"
) -> Suspects:
    """Judge each point by its nearest points and by the class means.

    Args:
        vectors: (N, D) unit vectors.
        labels: (N, L) class numbers, coarse to fine; a class has one parent.
        count: nearest points that vote.
        device: that ranks: auto, cpu or cuda.

    Raises:
        UsageError: fewer than two classes, or no class of two points.

    Example:
        >>> vectors = unit_rows(np.array([[9, 1], [9, 0], [9, 1], [1, 9], [0, 9], [1, 9.0]]))
        >>> labels = np.array([[0], [0], [1], [1], [1], [1]])
        >>> find_suspects(vectors, labels, count=2).score.argmax()
        np.int64(2)
    """
    classes, first, own, sizes = np.unique(
        labels, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    if len(classes) < 2 or sizes.max() < 2:
        raise UsageError(
            f"{len(labels)} images of {len(classes)} classes; expected at least three images of "
            "two classes, two of them of one class, since a label is judged by other images"
        )
    pieces, own = MappedVectors.of(vectors), own.ravel()
    rows, _ = nearest(pieces, pieces, count + 1, device)  # each point finds itself, too
    _, means = mean_classes(pieces, labels, limit=len(classes))
    # two, since the nearest mean may be that of the own class
    near, cosines = nearest(pieces, unit_rows(means), 2, device)
    is_own = near[:, 0] == own
    other = np.where(is_own, near[:, 1], near[:, 0])
    margin = _with_own(pieces, means, own, sizes) - np.where(is_own, cosines[:, 1], cosines[:, 0])
    votes = np.where(np.isnan(margin), np.nan, _votes(rows, own))
    return Suspects(-(_standard(votes) + _standard(margin)) / 2, votes, margin, first[other])


def suspect_tables(
    rows: pd.DataFrame,
    vectors: Vectors,
    labels: np.ndarray,
    names: "pd.Series[str]",
    count: int = 10,
    device: str = "auto",
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rank the images of a split, and its classes, the most suspect first.

    Args:
        rows: (N,) images: image_id, split, landmark_id.
        vectors: (N, D) unit vectors.
        labels: (N, L) class numbers, coarse to fine.
        names: (N,) label path of each image as text.
        count: nearest images, or classes, that vote.
        device: that ranks.

    Returns:
        Images: image_id, split, landmark_id, path, elsewhere (the path it seems to belong to),
        score, votes, margin. Classes: split, landmark_id, path, images, and if there are levels
        above the finest one elsewhere, score, votes and margin of the mean, else the mean score of
        the images.
    """
    found = find_suspects(vectors, labels, count, device)
    images = rows[["image_id", "split", "landmark_id"]].assign(
        path=names.to_numpy(),
        elsewhere=names.to_numpy()[found.elsewhere],
        score=found.score.round(4),
        votes=found.votes.round(4),
        margin=found.margin.round(4),
    )
    paths, means = mean_classes(vectors, labels, limit=len(labels))
    _, first, own, sizes = np.unique(
        labels, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    score = np.bincount(own.ravel(), np.nan_to_num(found.score)) / sizes
    classes = images.iloc[first][["split", "landmark_id", "path"]].assign(
        images=sizes, score=score.round(4)
    )
    _, siblings = np.unique(paths[:, -2:-1], axis=0, return_counts=True)
    if len(siblings) > 1 and siblings.max() > 1:
        # A class is judged by the levels above it, since its finest level is the class itself.
        above = find_suspects(unit_rows(means), paths[:, :-1], count, device)
        classes = classes.assign(
            score=above.score.round(4),
            elsewhere=[path.rpartition(" > ")[0] for path in names.iloc[first[above.elsewhere]]],
            votes=above.votes.round(4),
            margin=above.margin.round(4),
        )
    images = images.sort_values(["score", "image_id"], ascending=[False, True], ignore_index=True)
    keys = ["score", "split", "landmark_id"]
    return images, classes.sort_values(keys, ascending=[False, True, True], ignore_index=True)


def _votes(rows: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return (N,) share of the nearest points in the class of each, minus the largest other one."""
    others = rows != np.arange(len(own))[:, None]
    others[others.all(axis=1), -1] = False  # more than K equal points: the last one leaves instead
    near = own[rows[others].reshape(len(own), -1)]  # (N, K)
    shares = (near[:, :, None] == near[:, None]).mean(axis=2)  # of each neighbour's class
    is_own = near == own[:, None]
    return np.asarray(is_own.mean(axis=1) - np.where(is_own, 0, shares).max(axis=1))


def _with_own(
    pieces: MappedVectors, means: np.ndarray, own: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """Return (N,) cosine of each point with the mean of the others of its class; nan: no others."""
    found = np.full(len(own), np.nan)
    for start in range(0, len(own), ROWS_AT_ONCE):
        at = np.arange(start, min(start + ROWS_AT_ONCE, len(own)))
        points, n = pieces[at].astype(np.float64), sizes[own[at]]
        rest = means[own[at]] * n[:, None] - points
        length = np.linalg.norm(rest, axis=1)
        cosine = np.einsum("nd,nd->n", points, rest) / np.maximum(length, 1e-12)
        found[at] = np.where(n > 1, cosine, np.nan)
    return found


def _standard(values: np.ndarray) -> np.ndarray:
    """Return values in standard deviations from their mean; nan stays."""
    return np.asarray((values - np.nanmean(values)) / max(float(np.nanstd(values)), 1e-12))
