"""What each query finds, rank by rank: from it any hierarchical metric can be computed later."""

from pathlib import Path

import numpy as np
import torch

from hgld.artifacts import atomic_path
from hgld.evaluate.embeddings import Side
from hgld.ranking.levels import shared_levels
from hgld.tasks import track

__all__ = ["rank_levels", "write_ranking"]

FIRST_RANKS = 100  # whose images are kept by row number, for the report
BLOCK_PAIRS = 1 << 24  # scores held at a time


def rank_levels(
    query: np.ndarray,
    query_labels: np.ndarray,
    gallery: np.ndarray,
    gallery_labels: np.ndarray,
    *,
    exclude_self: bool = False,
    first: int = FIRST_RANKS,
) -> tuple[np.ndarray, np.ndarray]:
    """What each query finds, rank by rank.

    Among equal scores the less relevant image ranks first, as in the metrics.

    Args:
        query: (Q, D) unit vectors.
        query_labels: (Q, L) coarse to fine.
        gallery: (G, D) unit vectors.
        gallery_labels: (G, L).
        exclude_self: query and gallery are the same images; an image does not find itself.
        first: ranks for which the gallery row is given too.

    Returns:
        (Q, G) int8 shared levels by rank, the query itself last as -1, and (Q, min(G, first)) int32
        gallery rows of the first ranks.

    Example:
        >>> vectors = np.eye(2, dtype=np.float32)[[0, 1, 0]]
        >>> labels = np.array([[0, 0], [0, 1], [0, 0]])
        >>> rank_levels(vectors, labels, vectors, labels, exclude_self=True)[0].tolist()
        [[2, 1, -1], [1, 1, -1], [2, 1, -1]]
    """
    size = max(1, BLOCK_PAIRS // len(gallery))
    levels = np.empty((len(query), len(gallery)), np.int8)
    order = np.empty((len(query), min(len(gallery), first)), np.int32)
    starts = range(0, len(query), size)
    for start in track(starts, "Ranking", len(starts)):
        rows = slice(start, start + size)
        block = _levels_of(query_labels[rows], gallery_labels)  # (q, G)
        scores = query[rows] @ gallery.T
        if exclude_self:
            own = np.arange(len(scores))
            scores[own, start + own], block[own, start + own] = -np.inf, -1
        ranks = np.lexsort((block, -scores), axis=1)
        levels[rows] = np.take_along_axis(block, ranks, axis=1)
        order[rows] = ranks[:, : order.shape[1]]
    return levels, order


def _levels_of(query_labels: np.ndarray, gallery_labels: np.ndarray) -> np.ndarray:
    pair = (torch.from_numpy(query_labels), torch.from_numpy(gallery_labels))
    return shared_levels(*pair).numpy()


def write_ranking(path: Path, vectors: dict[str, np.ndarray], query: Side, gallery: Side) -> None:
    """Write the ranking of one model, atomically; the same ranking gives the same bytes."""
    levels, order = rank_levels(
        vectors[query.split],
        query.labels,
        vectors[gallery.split],
        gallery.labels,
        exclude_self=query.split == gallery.split,
    )
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            levels=levels,
            order=order,
            query_ids=query.image_ids,
            gallery_ids=gallery.image_ids,
        )
