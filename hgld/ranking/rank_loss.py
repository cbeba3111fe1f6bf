"""Base classes of rank losses as modules: from embeddings and label paths to one loss.

``Sides`` computes cosines and shared levels. Similarities are cosines: embeddings are scaled to
unit length here, in float32 at least and outside autocast. References (a memory, another machine's
part of the batch) replace the batch as gallery; if they contain the queries themselves, ``ids`` and
``ref_ids`` identify the pairs of an image with itself.

The loss of a query needs only its row of scores, so a chunk of rows is scored, converted into a
gradient and added to the gradient of the embeddings before the next chunk: no (B, B) table is held.
The gradient is computed in the forward pass; backward scales it. There is no second derivative. The
mean is over the queries with a positive. By default a query is its own rank-1 positive, as in the
authors' code; ``include_self=False`` leaves it out.
"""

import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgld.errors import ShapeError
from hgld.ranking import levels as grades
from hgld.ranking.checks import (
    FLOATS,
    NO_PARTNER,
    check_count,
    check_tensors,
    widen,
)
from hgld.ranking.kernels.device import all_finite, blocks_of, pair_scores, whole_products
from hgld.ranking.surrogates import RankFunction, first_derivative

LEAST_LENGTH = 1e-12  # of an embedding; the squares of a shorter one lose digits


@dataclass(frozen=True)
class Sides:
    """Queries and their gallery.

    Args:
        queries: (B, D) unit vectors.
        gallery: (M, D) unit vectors; the same tensor if the batch is its own gallery.
        labels: (B, L) label paths, coarse to fine.
        gallery_labels: (M, L) label paths.
        own: ids of both sides, equal for an image paired with itself; None if there are no such.
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
        level: int | None = None,
    ) -> "Sides":
        """Build the sides from the arguments of a loss, after validation.

        Down to ``level``, the finest that the loss uses (None: all), -1 is refused: images without
        a label would be a class.

        Raises:
            ShapeError: the arguments do not fit together.
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
            _refuse_padding(paths, name)
        names = "labels" if ref_labels is None else "labels and ref_labels"
        grades.refuse_unlabelled(labels[:, :level], gallery_labels[:, :level], names)
        return cls(queries, gallery.to(queries.dtype), labels, gallery_labels, own)

    def levels(self, rows: slice, include_self: bool, at: int | None = None) -> Tensor:
        """(rows, M) shared levels, or 1 and 0 for whether they reach ``at``; -1 is left out."""
        levels = grades.shared_levels(self.labels[rows], self.gallery_labels)
        # by id, not by place: a memory may hold a query at any row
        if not include_self and self.own is not None:
            ids, ref_ids = (part.to(levels.device) for part in self.own)
            levels[ids[rows][:, None] == ref_ids[None, :]] = -1
        return levels if at is None else grades.at_least(levels, at)

    def with_mixtures(self, at: int, seed: int) -> "Sides":
        """Add mixtures of the images of each class to both sides (SiMix, Patel et al. 2022).

        A mixture of two queries that share level ``at`` is s x_i + (1 - s) x_j with s uniform in
        [0, 1]. It is not made a unit vector, so that its similarities are mixed, too.

        Args:
            at: level that two mixed images share.
            seed: draws the shares.
        """
        alike = grades.at_least(grades.shared_levels(self.labels, self.labels), at)
        first, second = torch.triu(alike, diagonal=1).nonzero(as_tuple=True)  # (M,) each
        generator = torch.Generator().manual_seed(seed)
        shares = torch.rand(len(first), 1, generator=generator).to(self.queries)
        mixed = shares * self.queries[first] + (1 - shares) * self.queries[second]  # (M, D)
        # without ids no query is in the gallery: two numbers that differ
        nobody = torch.full((len(self.labels),), -1), torch.full((len(self.gallery_labels),), -2)
        ids, ref_ids = self.own or nobody
        new = torch.arange(len(mixed)) + 1 + max(int(ids.max()), int(ref_ids.max()))
        queries = torch.cat([self.queries, mixed])
        alone = self.gallery is self.queries
        return Sides(
            queries,
            queries if alone else torch.cat([self.gallery, mixed]),
            torch.cat([self.labels, self.labels[first]]),
            torch.cat([self.gallery_labels, self.labels[first].to(self.gallery_labels)]),
            (torch.cat([ids, new.to(ids)]), torch.cat([ref_ids, new.to(ref_ids)])),
        )

    def any_partner(self, at: int) -> bool:
        """Whether any query has a positive other than itself at a level."""
        paths = torch.cat([self.labels, self.gallery_labels.to(self.labels)])[:, :at].long()
        classes = torch.unique(paths, dim=0, return_inverse=True)[1]
        queries, gallery = classes[: len(self.labels)], classes[len(self.labels) :]
        positives = torch.bincount(gallery, minlength=len(classes))[queries]
        if self.own is not None:
            ids, ref_ids = (part.to(queries.device) for part in self.own)
            positives = positives - torch.isin(ids, ref_ids).long()
        return bool((positives > 0).any())

    def check_first_batch(self, at: int, hierarchical: bool = False) -> None:
        """Warn if a batch has no positive pairs, or if its levels run fine to coarse.

        A module checks its first batch only: a sampler makes the same mistake in every batch, and
        the check sorts all labels.

        Args:
            at: positives share at least this level.
            hierarchical: whether the loss uses all levels, so that their order matters.
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
        """The level that positives share; None means the finest."""
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
        lengths = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
        unit: Tensor = wide / lengths.clamp(min=LEAST_LENGTH)
        known = lengths.detach()
        # squares overflow or underflow in the other rows: rescale and repeat
        if not bool(((known >= LEAST_LENGTH) & (known < math.inf)).all()):
            if not all_finite(wide.detach()):
                raise ShapeError("embeddings hold nan or inf; expected finite numbers")
            directed = (wide != 0).any(1, keepdim=True)  # zeros have no direction
            unit = torch.where(directed, F.normalize(_near_one(wide), dim=1), 0.0)
    return unit


def _near_one(embeddings: Tensor) -> Tensor:
    """Scale each row by a power of two, so that squares neither overflow nor underflow."""
    largest = embeddings.detach().abs().amax(1, keepdim=True)
    exponent = torch.frexp(largest).exponent.to(embeddings.dtype)
    half = (exponent / 2).floor()
    # in two steps, since the power of the smallest or largest number is itself none
    return embeddings * torch.exp2(-half) * torch.exp2(half - exponent)


def check_labels(labels: Tensor, images: int, num_levels: int | None, name: str = "") -> None:
    """Raise ShapeError unless labels are one integer path per image with the declared levels."""
    check_tensors(**{f"{name}labels": labels})
    if labels.ndim != 2 or len(labels) != images:
        raise ShapeError(
            f"{name}labels have shape {tuple(labels.shape)}; expected ({images}, levels)"
        )
    if num_levels is not None and labels.shape[1] != num_levels:
        raise ShapeError(f"{name}labels have {labels.shape[1]} levels; num_levels is {num_levels}")
    grades.as_ids(labels, f"{name}labels")


def _refuse_padding(labels: Tensor, name: str) -> None:
    """Raise ShapeError for paths of -1: images without a label would be a class of their own."""
    paths = labels.long()
    if bool((paths[:, -1] < 0).any()) and bool((absent := (paths == -1).all(1)).any()):
        raise ShapeError(
            f"{int(absent.sum())} {name}labels are -1 at all levels, as BatchLoader pads small "
            "classes; leave these images out: (labels >= 0).all(1)"
        )


def _own_pairs(
    batch: int, references: Tensor | None, ids: Tensor | None, ref_ids: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """Ids of both sides, equal if a pair is an image with itself; None if there is no such pair."""
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
    # floats of large ids are equal, so that other images would be left out
    own, others = grades.as_ids(ids[:, None], "ids"), grades.as_ids(ref_ids[:, None], "ref_ids")
    return own[:, 0], others[:, 0]


PairsToLosses = Callable[[Tensor, Tensor], Tensor]
CELLS_AT_ONCE = 1 << 24
ROWS_AT_LEAST = 256


class _Streamed(RankFunction):
    """Sum of the queries' losses, with the gradients of queries and references."""

    @staticmethod
    def forward(
        queries: Tensor,
        references: Tensor,
        levels_of: Callable[[slice], Tensor],
        losses_of: PairsToLosses,
        rows: int,
        wanted: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        # float64, since thousands of losses are added.
        total = torch.zeros((), dtype=torch.float64, device=queries.device)
        counted = torch.zeros((), dtype=torch.int64, device=queries.device)
        d_queries = torch.zeros_like(queries) if wanted else None
        same = references is queries  # then both gradients are added to one tensor
        d_references = d_queries if same or not wanted else torch.zeros_like(references)
        for part in blocks_of(len(queries), rows):
            levels = levels_of(part)
            scores = pair_scores(queries[part], references)  # (rows, G)
            with torch.set_grad_enabled(wanted):
                loss = losses_of(scores.requires_grad_(wanted), levels).sum()
            total += loss.detach().double()
            counted += (levels > 0).any(1).sum()
            if d_queries is not None and d_references is not None and loss.requires_grad:
                gradient = torch.autograd.grad(loss, scores)[0]
                # The chain rule for scores = queries @ references.T.
                d_queries[part].addmm_(gradient, references)
                d_references.addmm_(gradient.T, queries[part])
                del gradient
            del scores, loss
        return total.to(queries.dtype), counted, d_queries, None if same else d_references

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[Tensor | None, ...]) -> None:
        queries, references = inputs[:2]
        ctx.mark_non_differentiable(*(part for part in output[1:] if part is not None))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(queries, references, *output[2:])

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if grad_total is None:
            return (None,) * 6
        queries, references, *gradients = ctx.saved_tensors
        d_queries, d_references = (
            None if gradient is None else first_derivative(gradient * grad_total, side)
            for gradient, side in zip(gradients, (queries, references), strict=True)
        )
        return d_queries, d_references, None, None, None, None


def mean_over_queries(
    queries: Tensor,
    references: Tensor,
    levels_of: Callable[[slice], Tensor],
    losses_of: PairsToLosses,
    rows: int,
) -> Tensor:
    """Mean loss over the queries that have a positive.

    Args:
        queries: (Q, D) unit vectors.
        references: (G, D) unit vectors; the same tensor if the batch is its own gallery.
        levels_of: rows of queries -> their (rows, G) levels.
        losses_of: (rows, G) scores and levels -> (rows,) losses, 0 if there is no positive.
        rows: of queries at a time.
    """
    rows = min(rows, len(queries))
    wanted = torch.is_grad_enabled() and (queries.requires_grad or references.requires_grad)
    with whole_products(queries.device):
        total, counted, *_ = _Streamed.apply(  # type: ignore[no-untyped-call]
            queries, references, levels_of, losses_of, rows, wanted
        )
    mean: Tensor = total / counted.clamp(min=1)
    return mean


def takes_references(loss: nn.Module) -> bool:
    """Whether a loss accepts references beyond the batch."""
    return "ref_embeddings" in inspect.signature(loss.forward).parameters


class BatchLoss(nn.Module, ABC):
    """One number from a batch, compared with itself or with references.

    Args:
        level: positives share at least this level; None: the finest. Hierarchical losses use
            all levels and ignore it.
        num_levels: levels that the labels must have; None: any number.
        include_self: whether a query counts as its own positive.
        hierarchical: whether the loss uses all levels.

    Raises:
        ShapeError: a level or count is below 1.
    """

    def __init__(
        self, level: int | None, num_levels: int | None, include_self: bool, hierarchical: bool
    ) -> None:
        super().__init__()
        check_count(level=level, num_levels=num_levels)
        self.level, self.num_levels = level, num_levels
        self.include_self, self.hierarchical = include_self, hierarchical
        self._checked = False

    @abstractmethod
    def of_sides(self, sides: Sides, at: int | None) -> Tensor:
        """The loss of queries and gallery; positives share level ``at``, None: all levels count."""

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        ids: Tensor | None = None,
        ref_ids: Tensor | None = None,
    ) -> Tensor:
        """Loss of a batch.

        Args:
            embeddings: (B, D), of any length.
            labels: (B, L) label paths, coarse to fine.
            ref_embeddings: (M, D) gallery to use instead of the batch.
            ref_labels: (M, L) its label paths.
            ids: (B,) image ids; with ``ref_ids`` they identify references that are a query itself.
            ref_ids: (M,) image ids of the references.

        Returns:
            One number; 0 with a zero gradient if no query has a positive.

        Raises:
            ShapeError: the arguments do not fit together.
        """
        given = embeddings, labels, ref_embeddings, ref_labels, ids, ref_ids
        sides = Sides.of(*given, self.num_levels, self.level)
        at = None if self.hierarchical else sides.level_or_finest(self.level)
        # The first batch only, as a sampler repeats its mistakes and the check sorts all labels.
        if not self._checked:
            self._checked = True
            sides.check_first_batch(at or 1, self.hierarchical)
        return self.of_sides(sides, at)


class RankLoss(BatchLoss):
    """Mean loss over the queries with a positive; subclasses define the loss of a query.

    Args: as ``BatchLoss``; chunk is the rows of scores held at a time, None: chosen by size.
    """

    def __init__(
        self,
        level: int | None = None,
        num_levels: int | None = None,
        include_self: bool = True,
        chunk: int | None = None,
        hierarchical: bool = False,
    ) -> None:
        super().__init__(level, num_levels, include_self, hierarchical)
        check_count(chunk=chunk)
        self.chunk = chunk

    @abstractmethod
    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """(Q, G) scores and levels -> (Q,) losses, 0 if a query has no positive."""

    def of_batch(self, count: Callable[[], int]) -> PairsToLosses:
        """The function ``per_query`` for some rows of a batch.

        Args:
            count: returns how many queries of the batch have a positive, so how many are in the
                mean; for losses whose gradient depends on it.

        Returns:
            (rows, G) scores and levels -> (rows,) losses, 0 if a query has no positive.
        """
        return self.per_query

    def relevant(self, levels: Tensor) -> Tensor:
        """Return (rows, G) shared levels, or 0 for an image that is not relevant to the loss."""
        return levels

    def extend(self, sides: Sides, at: int) -> Sides:
        """Return the queries and gallery to rank; a loss may add some to those of the batch."""
        return sides

    def of_sides(self, sides: Sides, at: int | None) -> Tensor:
        """Mean of ``per_query``, some rows at a time."""
        sides = self.extend(sides, at or 1)
        rows = self.chunk or max(ROWS_AT_LEAST, CELLS_AT_ONCE // len(sides.gallery))

        def levels_of(part: slice) -> Tensor:
            return self.relevant(sides.levels(part, self.include_self, at))

        def count() -> int:
            parts = blocks_of(len(sides.queries), rows)
            return sum(int((levels_of(part) > 0).any(1).sum()) for part in parts)

        losses_of = self.of_batch(count)
        return mean_over_queries(sides.queries, sides.gallery, levels_of, losses_of, rows)
