"""Ranking of a gallery for each query: one pass gives a model's metrics and its ranking file."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from hgld.artifacts.ranking_file import write_ranking
from hgld.errors import HgldError
from hgld.evaluate.sides import Side
from hgld.model.weights import choose_device, is_short_of_memory
from hgld.ranking.evaluation import rank_blocks
from hgld.ranking.rankings import Ranking, Result, measure
from hgld.tasks import track

__all__ = ["mean_classes", "measure_and_write", "rank_sides"]

FIRST_RANKS = 100  # ranks whose images are kept by row number, for the report
CLASSES = 1000  # at most, drawn with a fixed seed: the cost of t-SNE grows with their number


def measure_and_write(
    path: Path,
    vectors: Mapping[str, np.ndarray],
    query: Side,
    gallery: Side,
    names: Sequence[str],
    levels: Sequence[str],
    device: str = "auto",
) -> Result:
    """Measure one model and write its ranking file, from a single ranking.

    Args:
        path: of the ranking file.
        vectors: split -> (N, D) unit vectors.
        query: query images.
        gallery: gallery images.
        names: of the metrics.
        levels: names, coarse to fine.
        device: auto, cpu, cuda, cuda:1 ...; ranks the gallery.

    Returns:
        The metrics of each query.

    Raises:
        HgldError: the gallery does not fit the device's memory.
    """
    own = gallery.begins_with(query)
    sides = [(vectors[side.split], side.labels) for side in (query, gallery)]
    blocks = rank_sides(*sides, exclude_self=own, first=FIRST_RANKS, device=device, levels=levels)
    classes = mean_classes(vectors[gallery.split], gallery.labels)
    with write_ranking(path, query.image_ids, gallery.image_ids, *classes) as add:

        def written() -> Iterator[Ranking]:
            for block in blocks:
                add(block.levels, block.first)
                yield block

        return measure(written(), names, levels)


def rank_sides(
    query: tuple[np.ndarray, np.ndarray],
    *gallery: tuple[np.ndarray, np.ndarray],
    exclude_self: bool = False,
    first: int = 0,
    device: str = "auto",
    levels: Sequence[str] | None = None,
) -> Iterator[Ranking]:
    """Rank a gallery of one or several parts; yield the rankings in blocks of queries.

    Args:
        query: (Q, D) unit vectors and (Q, L) labels, coarse to fine.
        gallery: the same of each part.
        exclude_self: the gallery begins with the queries; each is excluded from its own ranking.
        first: number of ranks whose gallery rows are returned, too.
        device: auto, cpu, cuda, cuda:1 ...
        levels: names of the levels, for messages.

    Raises:
        HgldError: the gallery does not fit the device's memory.
    """
    place = choose_device(device)
    try:
        sides = [
            (torch.from_numpy(vectors).to(place), torch.from_numpy(labels))
            for vectors, labels in (query, *gallery)
        ]
        yield from rank_blocks(
            *sides[0],
            [vectors for vectors, _ in sides[1:]],
            torch.cat([labels for _, labels in sides[1:]]),
            exclude_self,
            first,
            level_names=levels,
            watch=lambda blocks: track(blocks, "Ranking", len(blocks)),
        )
    except RuntimeError as error:
        # torch raises plain RuntimeError for other faults, too
        if not is_short_of_memory(error):
            raise
        raise HgldError(
            f"evaluate: out of memory while ranking on {place}; rank elsewhere with "
            "evaluate.device, e.g. cpu; embeddings are kept"
        ) from None


def mean_classes(
    vectors: np.ndarray, labels: np.ndarray, limit: int = CLASSES
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and mean vector of each finest class.

    Args:
        vectors: (N, D) unit vectors.
        labels: (N, L) coarse to fine.
        limit: maximum number of classes; of more, a random subset with a fixed seed.

    Returns:
        (C, L) sorted labels and (C, D) float32 means, not normalised.

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
