"""The two sides of a loss: embeddings and label paths in, cosines and shared levels out.

Similarities are cosines: embeddings are scaled to unit length here, in float32 at least and
outside autocast (bfloat16 steps near 1 are 0.4 tau wide). References (a memory, another machine's
part of the batch) replace the batch as gallery; where they hold the queries themselves, ``ids`` and
``ref_ids`` tell which pairs are an image with itself.
"""

import math
import warnings
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hgld.errors import ShapeError
from hgld.ranking import levels as grades
from hgld.ranking.checks import FLOATS, NO_PARTNER, check_tensors, widen
from hgld.ranking.kernels.device import whole_products

__all__ = ["Sides", "check_labels", "unit_vectors"]


@dataclass(frozen=True)
class Sides:
    """Queries and their gallery.

    Args:
        queries: (B, D) unit vectors.
        gallery: (M, D) unit vectors; the same tensor where the batch is its own gallery.
        labels: (B, L) label paths, coarse to fine.
        gallery_labels: (M, L) label paths.
        own: ids of both sides, equal where a pair is an image with itself; None where none can be.
    """

    queries: Tensor
    gallery: Tensor
    labels: Tensor
    gallery_labels: Tensor
    own: tuple[Tensor, Tensor] | None

    @classmethod
    def of(
        cls,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        ids: Tensor | None = None,
        ref_ids: Tensor | None = None,
        num_levels: int | None = None,
    ) -> "Sides":
        """From what a loss is given, after all checks.

        Raises:
            ShapeError: what is given does not fit together.
        """
        references = {"ref_embeddings": ref_embeddings, "ref_labels": ref_labels}
        optional = {**references, "ids": ids, "ref_ids": ref_ids}
        check_tensors(**{name: part for name, part in optional.items() if part is not None})
        queries = unit_vectors(embeddings)
        own = _own_pairs(len(embeddings), ref_embeddings, ids, ref_ids)
        if (ref_embeddings is None) != (ref_labels is None):
            raise ShapeError("one of ref_embeddings and ref_labels alone; expected both or neither")
        gallery = queries if ref_embeddings is None else unit_vectors(ref_embeddings)
        gallery_labels = labels if ref_labels is None else ref_labels
        if queries.shape[1] != gallery.shape[1]:
            raise ShapeError(
                f"embeddings have {queries.shape[1]} dimensions, references {gallery.shape[1]}"
            )
        for name, vectors, paths in (("", queries, labels), ("ref_", gallery, gallery_labels)):
            check_labels(paths, len(vectors), num_levels, name)
        return cls(queries, gallery.to(queries.dtype), labels, gallery_labels, own)

    def levels(self, rows: slice, include_self: bool, at: int | None = None) -> Tensor:
        """(rows, M) shared levels, or whether they reach ``at``: 1 and 0; -1 is left out."""
        levels = grades.shared_levels(self.labels[rows], self.gallery_labels)
        if not include_self and self.own is not None:
            ids, ref_ids = (part.to(levels.device) for part in self.own)
            levels[ids[rows][:, None] == ref_ids[None, :]] = -1
        return levels if at is None else grades.at_least(levels, at)

    def any_partner(self, at: int) -> bool:
        """Whether any query has a positive at a level other than itself."""
        paths = torch.cat([self.labels, self.gallery_labels.to(self.labels)])[:, :at].long()
        classes = torch.unique(paths, dim=0, return_inverse=True)[1]
        queries, gallery = classes[: len(self.labels)], classes[len(self.labels) :]
        positives = torch.bincount(gallery, minlength=len(classes))[queries]
        if self.own is not None:
            ids, ref_ids = (part.to(queries.device) for part in self.own)
            positives = positives - torch.isin(ids, ref_ids).long()
        return bool((positives > 0).any())

    def check_first_batch(self, at: int, hierarchical: bool = False) -> None:
        """Warn of a batch without positive pairs, or of labels whose levels run fine to coarse.

        A module calls this for its first batch alone: a sampler makes the same mistake in every
        batch, and the check sorts all labels.

        Args:
            at: positives share at least this level.
            hierarchical: whether the loss uses all levels, so that their order counts.
        """
        if not self.any_partner(at):
            warnings.warn(NO_PARTNER, stacklevel=4)
        coarser = grades.coarser_column(self.labels) if hierarchical else None
        if coarser is not None:
            warnings.warn(
                f"column {coarser} of the labels is coarser than column {coarser - 1}; the levels "
                "of a path run coarse to fine: labels.flip(1)",
                stacklevel=4,
            )

    def level_or_finest(self, level: int | None) -> int:
        """The level that positives share; None is the finest."""
        if level is not None and not 1 <= level <= self.labels.shape[1]:
            raise ShapeError(f"level is {level}; labels have levels 1..{self.labels.shape[1]}")
        return level or self.labels.shape[1]


def unit_vectors(embeddings: Tensor) -> Tensor:
    """(B, D) embeddings scaled to unit length, in float32 at least."""
    check_tensors(embeddings=embeddings)
    if embeddings.ndim != 2 or 0 in embeddings.shape:
        raise ShapeError(f"embeddings have shape {tuple(embeddings.shape)}; expected (images, dim)")
    if embeddings.dtype not in FLOATS:
        raise ShapeError(f"embeddings are {embeddings.dtype}; expected floats")
    with whole_products(embeddings.device):
        wide = widen(embeddings)
        unit = F.normalize(wide, dim=1)
        flat = unit.detach().flatten()
        lengths = float(torch.dot(flat, flat))  # their squares, summed
        if not math.isfinite(lengths):
            raise ShapeError("embeddings hold nan or inf; expected finite numbers")
        if abs(lengths - len(unit)) > 0.5:
            directed = (wide != 0).any(1, keepdim=True)  # a zero has no direction, nor a gradient
            unit = torch.where(directed, F.normalize(_near_one(wide), dim=1), 0.0)
    return unit


def _near_one(embeddings: Tensor) -> Tensor:
    """Rows times a power of two each, so that squares neither overflow nor vanish."""
    largest = embeddings.detach().abs().amax(1, keepdim=True)
    exponent = torch.frexp(largest).exponent.clamp(-100, 126)
    return embeddings * torch.exp2(-exponent.to(embeddings.dtype))


def check_labels(labels: Tensor, images: int, num_levels: int | None, name: str = "") -> None:
    """Raise ShapeError unless labels are one integer path an image with the declared levels."""
    check_tensors(**{f"{name}labels": labels})
    if labels.ndim != 2 or len(labels) != images:
        raise ShapeError(
            f"{name}labels have shape {tuple(labels.shape)}; expected ({images}, levels)"
        )
    if num_levels is not None and labels.shape[1] != num_levels:
        raise ShapeError(f"{name}labels have {labels.shape[1]} levels; num_levels is {num_levels}")
    grades.as_ids(labels, f"{name}labels")


def _own_pairs(
    batch: int, references: Tensor | None, ids: Tensor | None, ref_ids: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """Ids of both sides, equal where a pair is an image with itself; None where none can be."""
    images = batch if references is None else len(references)
    if references is None:
        ids = torch.arange(batch) if ids is None else ids
        ref_ids = ids if ref_ids is None else ref_ids
    if (ids is None) != (ref_ids is None):
        raise ShapeError("one of ids and ref_ids alone; with references expected both or neither")
    if ids is None or ref_ids is None:
        return None
    if ids.shape != (batch,) or ref_ids.shape != (images,):
        raise ShapeError(
            f"ids have shape {tuple(ids.shape)} for {batch} queries, ref_ids "
            f"{tuple(ref_ids.shape)} for {images} references; expected one for each"
        )
    return ids, ref_ids
