"""Metrics of how well an embedding follows the tree, beside the ranking of single queries."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking.checks import check_tensors
from hgld.ranking.levels import as_ids, shared_levels
from hgld.ranking.rankings import find_winners

__all__ = ["cpcc", "vote_paths"]

ROWS = 512


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
    check_tensors(embeddings=embeddings)
    ids = as_ids(labels)
    if embeddings.ndim != 2 or len(embeddings) != len(ids):
        raise ShapeError(
            f"embeddings have shape {tuple(embeddings.shape)}; expected ({len(ids)}, dim)"
        )
    paths, classes, sizes = torch.unique(
        ids.to(embeddings.device), dim=0, return_inverse=True, return_counts=True
    )
    sums = embeddings.new_zeros(len(paths), embeddings.shape[1], dtype=torch.float64)
    means = sums.index_add(0, classes, embeddings.double()) / sizes[:, None]

    def blocks() -> Iterator[Tensor]:
        for start in range(0, len(paths), ROWS):
            rows = slice(start, start + ROWS)
            exact = "donot_use_mm_for_euclid_dist"  # the product loses digits of near means
            apart = torch.cdist(means[rows], means, compute_mode=exact)
            tree = (ids.shape[1] - shared_levels(paths[rows], paths)).double()
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


def vote_paths(first: Tensor, gallery_labels: Tensor) -> Tensor:
    """Label path that the first images of each query vote for, level by level.

    At each level the class of most images wins, among equals that of the image that ranks first.
    The winners need not be a path of the tree: HC@k is the share of queries for which they are one,
    and HCA@k of those for which they are the query's own path.

    Args:
        first: (Q, K) gallery rows of the first K ranks, as ``Ranking.first``.
        gallery_labels: (G, L) label paths, the ids of a level numbered over all parents.

    Returns:
        (Q, L) the winner of each level.

    Example:
        >>> gallery = torch.tensor([[0, 0], [0, 1], [1, 2], [1, 2]])
        >>> vote_paths(torch.tensor([[0, 1, 2], [2, 0, 3]]), gallery)
        tensor([[0, 0],
                [1, 2]])
    """
    check_tensors(first=first)
    votes = as_ids(gallery_labels, "gallery_labels").to(first.device)[first.long()]  # (Q, K, L)
    images = torch.full((len(votes),), votes.shape[1])
    winners = torch.from_numpy(find_winners(votes.cpu().numpy(), images.numpy()))
    return votes.gather(1, winners.to(votes.device)[:, None])[:, 0]
