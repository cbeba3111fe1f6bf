"""Exact metrics of retrieval as ``torchmetrics.Metric``, for Lightning and other training loops.

States are sums and counts of queries, or embeddings, which torchmetrics gathers from all processes:
the result is that of one process. A sampler that repeats images to fill the last batch of a process
changes it; ``hgld.shards.ImageLoader`` gives each image once.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor

from hgld.errors import HgldError, ShapeError
from hgld.ranking.checks import check_tensors
from hgld.ranking.evaluation import evaluate, rank_blocks
from hgld.ranking.rank_loss import check_labels
from hgld.ranking.rankings import (
    CPCC,
    BlockValues,
    first_ranks,
    name_levels,
    of_queries,
    parse_all,
    warn_if_concerned,
)
from hgld.ranking.structure import cpcc
from hgld.torchvision_operators import install_hook

install_hook()  # torchmetrics imports torchvision
try:
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat
    from torchmetrics.utilities.distributed import gather_all_tensors
except ImportError:
    message = 'hgld.ranking.torchmetrics needs a package: pip install "hgld[train]"'
    raise HgldError(message) from None


class _Retrieval(Metric):
    """Metrics by name, in the precision of the given embeddings.

    A module that holds one may be converted to half precision; gallery and sums would be rounded.
    """

    full_state_update = False

    def __init__(
        self, names: Sequence[str], level_names: Sequence[str] | None, **options: Any
    ) -> None:
        super().__init__(**options)
        parse_all(names)  # checks them
        self.names, self.level_names = tuple(names), level_names

    def _check_names(self, num_levels: int) -> None:
        """Raise unless each metric fits the levels: a wrong name costs no validation."""
        level_names = name_levels(self.level_names, num_levels)
        for name in parse_all(self.names):
            name.require_levels(level_names)

    def _apply(
        self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ""
    ) -> torch.nn.Module:
        """Move all tensors to the device that a conversion gives; they keep their precision."""
        return super()._apply(partial(_move, fn), exclude_state)


class RetrievalFromGallery(_Retrieval):
    """Means over queries that search one fixed gallery.

    Each batch of queries is ranked when it comes, so only sums and counts are kept.

    Args:
        names: metrics by name, as ``hgld.ranking.metrics.evaluate`` takes them.
        gallery: (G, D) embeddings; give unit vectors for cosines.
        gallery_labels: (G, L) label paths, coarse to fine.
        level_names: (L,) names of the levels; default: 1..L.

    Example:
        >>> labels = torch.tensor([[0], [0], [1]])
        >>> metric = RetrievalFromGallery(["R@1", "AP:1"], torch.eye(3), labels)
        >>> metric.update(torch.eye(3)[:2], torch.tensor([[0], [1]]))
        >>> {name: round(float(value), 2) for name, value in metric.compute().items()}
        {'R@1': 0.5, 'AP:1': 0.58}
    """

    gallery: Tensor
    gallery_labels: Tensor
    sums: Tensor
    counts: Tensor
    inverted: Tensor  # (2,) inverted queries, and all

    def __init__(
        self,
        names: Sequence[str],
        gallery: Tensor,
        gallery_labels: Tensor,
        level_names: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(names, level_names, **options)
        check_tensors(gallery=gallery)
        check_labels(gallery_labels, len(gallery), None, "gallery_")
        self._check_names(gallery_labels.shape[1])
        # no buffers: DistributedDataParallel would send them to all processes at each step
        self.gallery, self.gallery_labels = gallery, gallery_labels
        zeros = torch.zeros(len(of_queries(self.names)), dtype=torch.float64)
        self.add_state("sums", zeros, dist_reduce_fx="sum")
        self.add_state("counts", zeros.long(), dist_reduce_fx="sum")
        self.add_state("inverted", torch.zeros(2).long(), dist_reduce_fx="sum")
        # MetricCollection computes metrics as one whose states are equal after the first batch
        self.add_state("identity", torch.tensor([*uuid4().bytes]), dist_reduce_fx="max")

    def _apply(
        self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ""
    ) -> torch.nn.Module:
        """Move the gallery with the states."""
        self.gallery, self.gallery_labels = _move(fn, self.gallery), _move(fn, self.gallery_labels)
        return super()._apply(fn, exclude_state)

    def update(self, query: Tensor, query_labels: Tensor) -> None:
        """Add a batch: (Q, D) embeddings, (Q, L) label paths."""
        if not len(self.sums):  # CPCC alone is of the gallery
            return
        gallery, names = (self.gallery, self.gallery_labels), of_queries(self.names)
        sides = query, query_labels, *gallery
        first, levels = first_ranks(names), self.level_names
        for block in rank_blocks(*sides, first=first, level_names=levels, stacklevel=3):
            found = BlockValues.of(block, names, levels, self.gallery_labels)
            values = torch.from_numpy(found.values).to(self.sums.device)
            self.sums += values.nansum(0)
            self.counts += (~values.isnan()).sum(0)
            self.inverted += self.inverted.new_tensor([found.inverted, len(values)])

    def compute(self) -> dict[str, Tensor]:
        """Mean of each metric over the queries with a value; nan if none has one."""
        warn_if_concerned(self.names, *self.inverted.tolist())
        found = dict(zip(of_queries(self.names), self.sums / self.counts, strict=True))
        if CPCC in self.names:
            found[CPCC] = self.sums.new_tensor(cpcc(self.gallery, self.gallery_labels))
        return found


class MutualRetrieval(_Retrieval):
    """Means over images that each search all others.

    It keeps all embeddings, of all processes when it computes, since a query needs all of them.

    Args:
        names: metrics by name, as ``hgld.ranking.metrics.evaluate`` takes them.
        level_names: (L,) names of the levels, coarse to fine; default: 1..L.

    Raises:
        ShapeError: batches do not fit together; on computing: there are no images.

    Example:
        >>> metric = MutualRetrieval(["R@1"])
        >>> for label in (0, 1):
        ...     metric.update(torch.eye(4)[[label, label]], torch.tensor([[label], [label]]))
        >>> metric.compute()["R@1"].item()
        1.0
    """

    embeddings: list[Tensor]
    labels: list[Tensor]

    def __init__(
        self, names: Sequence[str], level_names: Sequence[str] | None = None, **options: Any
    ) -> None:
        super().__init__(names, level_names, **options)
        self.add_state("embeddings", [], dist_reduce_fx="cat")
        self.add_state("labels", [], dist_reduce_fx="cat")

    def update(self, embeddings: Tensor, labels: Tensor) -> None:
        """Add a batch: (B, D) embeddings, (B, L) label paths."""
        check_tensors(embeddings=embeddings, labels=labels)
        if embeddings.ndim != 2 or labels.ndim != 2 or len(embeddings) != len(labels):
            raise ShapeError(
                f"embeddings have shape {tuple(embeddings.shape)} and labels "
                f"{tuple(labels.shape)}; expected (images, dim) and (images, levels)"
            )
        self._check_names(labels.shape[1])
        _check_alike([*self.embeddings[:1], embeddings], [*self.labels[:1], labels])
        self.embeddings.append(embeddings.detach())
        self.labels.append(labels)

    def compute(self) -> dict[str, Tensor]:
        """Mean of each metric over the images with a value; nan if none has one."""
        if not any(map(len, self.embeddings)):
            raise ShapeError("MutualRetrieval has no images; call update before compute")
        vectors, labels = dim_zero_cat(self.embeddings), dim_zero_cat(self.labels)
        sides = vectors, labels, vectors, labels
        found = evaluate(*sides, self.names, self.level_names, exclude_self=True).mean()
        values = torch.tensor([*found.values()], dtype=torch.float64, device=vectors.device)
        return dict(zip(found, values, strict=True))

    def _sync_dist(
        self, dist_sync_fn: Callable[..., Any] = gather_all_tensors, process_group: Any = None
    ) -> None:
        """Gather the images of all processes.

        torchmetrics gathers tensors of equal types and axes; a process without images has none, so
        it joins with tensors of no rows as another process has them.
        """
        group = process_group or self.process_group
        own = [dim_zero_cat(part) for part in (self.embeddings, self.labels) if part]
        everyone: list[Any] = [None] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(everyone, [part[:0].cpu() for part in own], group)
        if with_images := [*filter(None, everyone)]:
            _check_alike(*zip(*with_images, strict=True))
            own = own or [part.to(self.device) for part in with_images[0]]
            self.embeddings, self.labels = ([part] for part in own)
            super()._sync_dist(dist_sync_fn, process_group)


def _move(fn: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    """Return a tensor on the device that a conversion gives, in its own precision."""
    return tensor.to(fn(tensor.new_zeros(1)).device)


def _check_alike(embeddings: Sequence[Tensor], labels: Sequence[Tensor]) -> None:
    """Raise ShapeError unless all batches have tensors of one type and width."""
    for name, parts in (("embeddings", embeddings), ("labels", labels)):
        kinds = dict.fromkeys(f"(images, {part.shape[1]}) of {part.dtype}" for part in parts)
        if len(kinds) > 1:
            raise ShapeError(f"{name} are {' and '.join(kinds)}; expected the same in all batches")
