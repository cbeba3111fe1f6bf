"""Where each query's own classes lie in a gallery sorted by label path.

Sorted by path, coarse to fine, every class is one range of places, and the ranges of a query are
nested. So a level is told by comparing places, no label is compared again, and how many images a
query has on each level is known before anything is ranked.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hgld.ranking.kernels.compiled import Array

__all__ = ["ClassRanges"]


@dataclass(frozen=True)
class ClassRanges:
    """Nested ranges of places.

    Args:
        order: (G,) int32 place of each gallery image.
        starts: (Q, L) int64 first place of the query's class at each level, coarse to fine.
        ends: (Q, L) int64 place after the last.
        own: (Q,) int64 gallery column of the query itself, -1 where it is not in it.
    """

    order: Array
    starts: Array
    ends: Array
    own: Array

    @classmethod
    def of(
        cls, query_labels: Tensor, gallery_labels: Tensor, exclude_self: bool = False
    ) -> "ClassRanges":
        """Ranges of (Q, L) query paths among (G, L) gallery paths."""
        gallery, query = (
            labels.cpu().numpy().astype(np.int64) for labels in (gallery_labels, query_labels)
        )
        every = np.concatenate([gallery, query])
        by_path = np.lexsort(every.T[::-1])  # the coarsest label counts most
        paths = every[by_path]
        from_gallery = by_path < len(gallery)
        before = np.concatenate([[0], np.cumsum(from_gallery)])  # gallery images before a row
        order = np.empty(len(gallery), np.int32)
        order[by_path[from_gallery]] = np.arange(len(gallery), dtype=np.int32)
        rows = by_path[~from_gallery] - len(gallery)
        starts = np.empty((len(query), every.shape[1]), np.int64)
        ends = np.empty_like(starts)
        new = np.zeros(len(paths), bool)
        new[0] = True
        for level in range(every.shape[1]):
            new[1:] |= paths[1:, level] != paths[:-1, level]
            heads = np.flatnonzero(new)
            group = np.cumsum(new)[~from_gallery] - 1
            starts[rows, level] = before[heads][group]
            ends[rows, level] = before[np.append(heads[1:], len(paths))][group]
        own = np.arange(len(query)) if exclude_self else np.full(len(query), -1)
        return cls(order, starts, ends, own.astype(np.int64))

    def counts(self) -> Tensor:
        """(Q, L + 1) images on each level, level 0 first, without the query itself."""
        widths = self.ends - self.starts
        edges = np.concatenate(
            [np.full((len(widths), 1), len(self.order)), widths, np.zeros((len(widths), 1))], 1
        )
        counts = (edges[:, :-1] - edges[:, 1:]).astype(np.int64)
        counts[:, -1] -= self.own >= 0
        return torch.from_numpy(counts)
