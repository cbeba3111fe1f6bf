"""Metrics of how well an embedding follows the tree, beside the ranking of single queries."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking.checks import check_tensors
from hgld.ranking.kernels.device import blocks_of
from hgld.ranking.levels import as_ids, shared_levels

Array = np.ndarray[Any, Any]
ROWS = 512


@dataclass(frozen=True)
class ClassSums:
    """Sums of the embeddings of each finest class, all that CPCC needs of a gallery.

    Args:
        paths: (C, L) label path of each class, coarse to fine.
        sums: (C, D) float64 sum of its embeddings.
        sizes: (C,) int64 number of its images.

    Example:
        >>> paths = torch.tensor([[0, 0], [0, 1], [1, 2], [1, 2]])
        >>> halves = (ClassSums.of(torch.eye(4)[i : i + 2], paths[i : i + 2]) for i in (0, 2))
        >>> whole = ClassSums.join(halves)
        >>> whole.sizes.tolist(), whole.cpcc() == cpcc(torch.eye(4), paths)
        ([1, 1, 2], True)
    """

    paths: Tensor
    sums: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, embeddings: Tensor | Sequence[Tensor], labels: Tensor) -> "ClassSums":
        """Add up the embeddings of a gallery, on their device.

        Args:
            embeddings: (N, D), in one piece or several; used as they are.
            labels: (N, L) label paths of all pieces, coarse to fine; a row with -1, of an image
                without a label, is of no class.

        Raises:
            ShapeError: embeddings and labels differ in number.
        """
        pieces = [embeddings] if isinstance(embeddings, Tensor) else list(embeddings)
        for piece in pieces:
            check_tensors(embeddings=piece)
        ids = as_ids(labels).to(pieces[0].device)
        if any(piece.ndim != 2 for piece in pieces) or sum(map(len, pieces)) != len(ids):
            shapes = ", ".join(str(tuple(piece.shape)) for piece in pieces)
            raise ShapeError(f"embeddings have shape {shapes}; expected ({len(ids)}, dim)")
        # few rows at a time become float64
        rows = [part for piece in pieces for part in torch.split(piece, ROWS)]
        found = cls._added(ids, rows, torch.ones_like(ids[:, 0]))
        known = (found.paths != -1).all(dim=1)
        return cls(found.paths[known], found.sums[known], found.sizes[known])

    @classmethod
    def join(cls, parts: Iterable["ClassSums"]) -> "ClassSums":
        """Return the sums of a gallery from those of its parts, e.g. of several processes."""
        paths, sums, sizes = zip(*((p.paths, p.sums, p.sizes) for p in parts), strict=True)
        return cls._added(torch.cat(paths), sums, torch.cat(sizes))

    @classmethod
    def _added(cls, paths: Tensor, pieces: Sequence[Tensor], sizes: Tensor) -> "ClassSums":
        """Add up the rows of each path, in their order."""
        found, classes = torch.unique(paths, dim=0, return_inverse=True)
        sums = pieces[0].new_zeros(len(found), pieces[0].shape[1], dtype=torch.float64)
        for rows, piece in zip(classes.split([*map(len, pieces)]), pieces, strict=True):
            sums.index_add_(0, rows, piece.detach().double())
        return cls(found, sums, sizes.new_zeros(len(found)).index_add(0, classes, sizes))

    def cpcc(self) -> float:
        """Return the cophenetic correlation, see ``cpcc``; nan if it has none."""
        paths, means = self.paths, self.sums / self.sizes[:, None]

        def blocks() -> Iterator[Tensor]:
            for rows in blocks_of(len(paths), ROWS):
                exact = "donot_use_mm_for_euclid_dist"  # the product loses digits of near means
                apart = torch.cdist(means[rows], means, compute_mode=exact)
                tree = (paths.shape[1] - shared_levels(paths[rows], paths)).double()
                numbers = torch.arange(len(paths), device=apart.device)
                upper = numbers[rows, None] < numbers[None]
                yield torch.stack([apart[upper], tree[upper]])

        pairs = len(paths) * (len(paths) - 1) / 2
        if not pairs:
            return math.nan
        # Two passes: sums of squares about the mean keep all digits.
        centre = sum((block.sum(1) for block in blocks()), start=means.new_zeros(2)) / pairs
        spread = means.new_zeros(2, 2)
        for block in blocks():
            apart = block - centre[:, None]
            spread += apart @ apart.T
        scale = math.sqrt(float(spread[0, 0]) * float(spread[1, 1]))
        return float(spread[0, 1]) / scale if scale else math.nan


def cpcc(embeddings: Tensor, labels: Tensor) -> float:
    """Cophenetic correlation of an embedding and its tree (Zeng et al. 2023).

    The Pearson correlation, over all pairs of finest classes, of the Euclidean distance of their
    means and their distance in the tree, L - level. It compares classes only: it does not see how
    far the images of a class are scattered, nor any ranking.

    Args:
        embeddings: (N, D), used as they are; give unit vectors if the model is compared by cosines.
        labels: (N, L) label paths, coarse to fine.

    Returns:
        A number in [-1, 1]; nan if all distances of either kind are equal, e.g. of two classes.

    Raises:
        ShapeError: embeddings and labels differ in number.

    Example:
        >>> paths = torch.tensor([[0, 0], [0, 1], [1, 2]])
        >>> round(cpcc(torch.tensor([[0.0, 1.0], [0.0, 4.0], [4.0, 0.0]]), paths), 3)
        0.818
    """
    return ClassSums.of(embeddings, labels).cpcc()


def vote_paths(first: Tensor, gallery_labels: Tensor) -> Tensor:
    """Label path that the first images of each query vote for, level by level.

    At each level the class of most images wins, among equals that of the image that ranks first.
    The winners need not be a path of the tree. HC@k of a query is 1 if they are one, else 0; HCA@k
    is 1 if they are the query's own path, else 0. The means are shares of queries, in [0, 1];
    without a relevant gallery image, or for HCA@k one of its finest class, a query has no value.
    Images without a label (-1) do not vote; if no image votes at a level, both are 0.
    Among equal scores the less relevant image ranks first, so that ties gain no vote; among images
    of one score and level, of classes that differ, the order of the gallery decides who votes.

    Args:
        first: (Q, K) gallery rows of the first K ranks, as ``Ranking.first``.
        gallery_labels: (G, L) label paths, the ids of a level numbered over all parents.

    Returns:
        (Q, L) the winner of each level; -1 if no image votes.

    Raises:
        ShapeError: first has no rows, or rows that gallery_labels has not.

    Example:
        >>> gallery = torch.tensor([[0, 0], [0, 1], [1, 2], [1, 2]])
        >>> vote_paths(torch.tensor([[0, 1, 2], [2, 0, 3]]), gallery)
        tensor([[0, 0],
                [1, 2]])
    """
    check_tensors(first=first)
    paths = as_ids(gallery_labels, "gallery_labels").to(first.device)
    if first.ndim != 2 or 0 in first.shape or first.is_floating_point():
        raise ShapeError(
            f"first is {first.dtype} of shape {tuple(first.shape)}; expected integers (queries, K)"
        )
    low, high = int(first.min()), int(first.max())
    if low < 0 or high >= len(paths):
        raise ShapeError(f"first has rows {low} to {high}; gallery_labels has {len(paths)}")
    votes = paths[first.long()]  # (Q, K, L)
    images = torch.full((len(votes),), votes.shape[1])
    winners = torch.from_numpy(find_winners(votes.cpu().numpy(), images.numpy()))
    return votes.gather(1, winners.to(votes.device)[:, None])[:, 0]


def find_winners(paths: Array, images: Array) -> Array:
    """(Q, L) rank, from 0, of the first image of the class that most images vote for.

    Among classes with equally many votes the one whose image ranks first wins.

    Args:
        paths: (Q, K, L) int64 label paths of the first ranks; -1: the image does not vote.
        images: (Q,) int64 number of ranks that have an image; the others do not vote.
    """
    from hgld.ranking.kernels.device import over_rows
    from hgld.ranking.kernels.metrics_cpu import vote_rows

    winners = np.zeros((paths.shape[0], paths.shape[2]), np.int64)
    over_rows(lambda part: vote_rows(paths[part], images[part], winners[part]), len(paths))
    return winners
