"""Ranges of each query's own classes in a gallery sorted by label path.

Sorted by path, coarse to fine, every class is one range of places, and the ranges of a query are
nested. So a level is found by comparing places, no label is compared again, and how many images a
query has on each level is known before anything is ranked.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["ClassRanges"]


@dataclass(frozen=True)
class ClassRanges:
    """Nested ranges of places, on the device of the labels.

    Args:
        order: (G,) gallery rows in the order of their paths.
        starts: (Q, L) int32 first place of the query's class at each level, coarse to fine.
        ends: (Q, L) int32 place after the last.
        own: (Q,) int32 place of the query itself, -1 where it is not in the gallery.
    """

    order: Tensor
    starts: Tensor
    ends: Tensor
    own: Tensor

    @classmethod
    def of(
        cls, query_labels: Tensor, gallery_labels: Tensor, exclude_self: bool = False
    ) -> "ClassRanges":
        """Find the ranges of (Q, L) query paths among (G, L) gallery paths.

        Example:
            >>> found = ClassRanges.of(torch.tensor([[1, 1]]), torch.tensor([[1, 1], [0, 0]]))
            >>> found.starts.tolist(), found.ends.tolist(), found.order.tolist()
            ([[1, 1]], [[2, 2]], [1, 0])
        """
        size = len(gallery_labels)
        every = torch.cat([gallery_labels.long(), query_labels.long()])
        by_path = torch.arange(len(every), device=every.device)
        for column in every.T.flip(0):  # the coarsest label counts most
            by_path = by_path[column[by_path].argsort(stable=True)]
        paths, rows = every[by_path], by_path.argsort()[size:]
        from_gallery = by_path < size
        before = torch.cat([from_gallery.new_zeros(1).long(), from_gallery.cumsum(0)])
        new = torch.zeros(len(paths), dtype=torch.bool, device=paths.device)
        new[0] = True
        starts, ends = [], []
        places = torch.arange(len(paths), device=paths.device)
        for level in range(every.shape[1]):
            new[1:] |= paths[1:, level] != paths[:-1, level]
            head = torch.where(new, places, 0).cummax(0).values
            after = torch.where(new, places, len(paths)).flip(0).cummin(0).values.flip(0)
            tail = torch.cat([after[1:], after.new_full((1,), len(paths))])
            starts.append(before[head[rows]])
            ends.append(before[tail[rows]])
        order = by_path[from_gallery]
        own = torch.full_like(rows, -1)
        if exclude_self:
            own = order.argsort()[: len(rows)]
        return cls(order, torch.stack(starts, 1).int(), torch.stack(ends, 1).int(), own.int())

    def places(self) -> Tensor:
        """(G,) int32 place of each gallery image."""
        found = torch.empty_like(self.order, dtype=torch.int32)
        found[self.order] = torch.arange(len(found), dtype=torch.int32, device=found.device)
        return found

    def counts(self) -> Tensor:
        """(Q, L + 1) int64 images on each level, level 0 first, without the query itself."""
        widths = (self.ends - self.starts).long()
        whole = widths.new_full((len(widths), 1), len(self.order))
        edges = torch.cat([whole, widths, widths.new_zeros(len(widths), 1)], 1)
        found = edges[:, :-1] - edges[:, 1:]
        found[:, -1] -= (self.own >= 0).long()
        return found
