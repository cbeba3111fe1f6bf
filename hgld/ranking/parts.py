"""Rank a gallery that is split into parts, on one machine or several, with one exact result.

A rank is a count of the images above, and counts can be added. First every part returns its
relevant images with their scores; merged and sorted they are the positives of each query. Then
every part counts its other images between neighbouring positives; the counts of all parts are
added. The result is the ranking of the whole gallery, regardless of the number and order of the
parts, if a pair's score is bit-identical in both steps (the same parts, the same kind of machine).

Example:
    >>> query, labels = torch.eye(2), torch.tensor([[0], [1]])
    >>> parts = [(torch.eye(2)[[0, 0]], torch.tensor([[0], [1]])), (torch.eye(2), labels)]
    >>> positives = join([positives_of(query, labels, *part) for part in parts])
    >>> counts = [count_others(positives, query, labels, *part) for part in parts]
    >>> rank_parts(positives, counts).levels.tolist()
    [[0, 1, 1, 0], [1, 0, 0, 1]]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking.checks import check_scores, widen
from hgld.ranking.kernels.device import whole_products
from hgld.ranking.levels import shared_levels
from hgld.ranking.rankings import Ranking

__all__ = ["Positives", "count_others", "join", "positives_of", "rank_parts"]

Array = np.ndarray[Any, Any]
ROWS = 64


@dataclass(frozen=True)
class Positives:
    """Relevant images of each query, best first (among equals the less relevant).

    Args:
        offsets: (Q + 1,) start of each query's positives.
        scores: float32 or float64.
        levels: int8, above 0.
        others: (Q,) images that are not relevant, not counting the query itself.
        num_levels: L.
        images: G, counting the query itself.
    """

    offsets: Array
    scores: Array
    levels: Array
    others: Array
    num_levels: int
    images: int


def positives_of(
    query: Tensor,
    query_labels: Tensor,
    part: Tensor,
    part_labels: Tensor,
    own: Tensor | None = None,
) -> Positives:
    """First step, for each part: collect its relevant images with their scores.

    Args:
        query: (Q, D) embeddings.
        query_labels: (Q, L) label paths.
        part: (g, D) embeddings of a part of the gallery.
        part_labels: (g, L) label paths.
        own: (Q,) row of this part that is the query itself, -1 if it has none.
    """
    found, others = [], []
    for scores, levels in _rows(query, query_labels, part, part_labels, own):
        at = np.flatnonzero(levels > 0)
        found.append((scores[at], levels[at]))
        others.append(int((levels == 0).sum()))
    return _sorted(found, others, query_labels.shape[1], len(part))


def join(parts: Sequence[Positives]) -> Positives:
    """Merge the positives of all parts."""
    if not parts or len({len(part.offsets) for part in parts}) != 1:
        raise ShapeError("parts of a gallery for different queries; expected the same queries")
    found = []
    for q in range(len(parts[0].others)):
        cuts = [(p, slice(p.offsets[q], p.offsets[q + 1])) for p in parts]
        scores = np.concatenate([p.scores[cut] for p, cut in cuts])
        found.append((scores, np.concatenate([p.levels[cut] for p, cut in cuts])))
    others = sum(part.others for part in parts)
    images = sum(part.images for part in parts)
    return _sorted(found, np.asarray(others), parts[0].num_levels, images)


def _sorted(
    found: list[tuple[Array, Array]], others: Any, num_levels: int, images: int
) -> Positives:
    ordered = []
    for scores, levels in found:
        # The last key sorts first: by score, then the less relevant.
        order = np.lexsort((levels, -scores))
        ordered.append((scores[order], levels[order]))
    sizes = np.array([len(scores) for scores, _ in found], np.int64)
    return Positives(
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate([scores for scores, _ in ordered]),
        np.concatenate([levels for _, levels in ordered]),
        np.asarray(others, np.int64),
        num_levels,
        images,
    )


def count_others(
    positives: Positives,
    query: Tensor,
    query_labels: Tensor,
    part: Tensor,
    part_labels: Tensor,
    own: Tensor | None = None,
) -> Array:
    """Second step, for each part: count its other images between neighbouring positives.

    Returns:
        int64, one count per positive, to be added over parts: images that rank above it but not
            above the previous positive.
    """
    counts = np.zeros(len(positives.scores), np.int64)
    rows = _rows(query, query_labels, part, part_labels, own)
    for (a, b), (scores, levels) in zip(pairwise(positives.offsets), rows, strict=True):
        # an equal score ranks above the positive: the less relevant comes first
        spots = np.searchsorted(-positives.scores[a:b], -scores[levels == 0], side="left")
        counts[a:b] += np.bincount(spots, minlength=b - a + 1)[: b - a]
    return counts


def rank_parts(positives: Positives, counts: Sequence[Array]) -> Ranking:
    """Build the ranking of the whole gallery from the joined positives and all parts' counts."""
    between = np.sum(np.stack(list(counts)), 0)
    per_level = np.zeros((len(positives.others), positives.num_levels + 1), np.int64)
    per_level[:, 0] = positives.others
    for q, (a, b) in enumerate(pairwise(positives.offsets)):
        per_level[q, 1:] = np.bincount(positives.levels[a:b], minlength=per_level.shape[1])[1:]
    sizes = per_level.sum(1)
    ranked = np.where(np.arange(positives.images) < sizes[:, None], 0, -1).astype(np.int8)
    for q, (a, b) in enumerate(pairwise(positives.offsets)):
        ranked[q, np.arange(b - a) + np.cumsum(between[a:b])] = positives.levels[a:b]
    return Ranking(ranked, per_level, np.empty((len(sizes), 0), np.int32))


def _rows(
    query: Tensor, query_labels: Tensor, part: Tensor, part_labels: Tensor, own: Tensor | None
) -> Any:
    """Yield scores and levels of each query against a part, as numpy; -1 is the query itself."""
    wide = widen(part)
    for start in range(0, len(query), ROWS):
        rows = slice(start, start + ROWS)
        levels = shared_levels(query_labels[rows], part_labels)
        if own is not None:
            for i, column in enumerate(own[rows].tolist()):
                if column >= 0:
                    levels[i, column] = -1
        with whole_products(query.device):
            scores = torch.mm(widen(query[rows]), wide.T) + 0.0
        check_scores(scores)
        yield from zip(scores.cpu().numpy(), levels.cpu().numpy(), strict=True)
