"""What all rank losses share as modules: of embeddings and label paths, one number to train on.

A loss of a query needs its row of scores alone, so rows are scored some at a time and the mean is
taken over the queries that have a positive. By default a query is its own rank-1 positive, as in
the authors' code; ``include_self=False`` takes it out.
"""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from hgld.ranking.checks import check_count
from hgld.ranking.sides import Sides
from hgld.ranking.stream import PairsToLosses, mean_over_queries

__all__ = ["RankLoss"]


class RankLoss(nn.Module, ABC):
    """Mean over the queries with a positive of a loss of their scores and levels.

    Args:
        level: positives share at least this level; None is the finest. Hierarchical losses use
            all levels and take none.
        num_levels: levels that the labels must have; None is any number.
        include_self: whether a query counts as its own positive.
        chunk: rows of scores held at a time; None chooses.

    Raises:
        ShapeError: a level or number below 1.
    """

    def __init__(
        self,
        level: int | None = None,
        num_levels: int | None = None,
        include_self: bool = True,
        chunk: int | None = None,
        hierarchical: bool = False,
    ) -> None:
        super().__init__()
        check_count(level=level, num_levels=num_levels, chunk=chunk)
        self.level, self.num_levels = level, num_levels
        self.include_self, self.chunk, self.hierarchical = include_self, chunk, hierarchical
        self._checked = False

    @abstractmethod
    def per_query(self, scores: Tensor, levels: Tensor) -> Tensor:
        """(Q, G) scores and levels -> (Q,) losses, 0 where a query has no positive."""

    def of_batch(self, queries: int) -> PairsToLosses:
        """``per_query`` for some rows of a batch.

        Args:
            queries: B, of the whole batch; losses whose gradient goes by the mean need it.

        Returns:
            (rows, G) scores and levels -> (rows,) losses, 0 where a query has no positive.
        """
        return self.per_query

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        ids: Tensor | None = None,
        ref_ids: Tensor | None = None,
    ) -> Tensor:
        """Mean loss of a batch.

        Args:
            embeddings: (B, D), of any length.
            labels: (B, L) label paths, coarse to fine.
            ref_embeddings: (M, D) gallery in place of the batch.
            ref_labels: (M, L) its label paths.
            ids: (B,) image ids; with ``ref_ids``, which references are a query itself.
            ref_ids: (M,) image ids of the references.

        Returns:
            One number; 0 with a zero gradient where no query has a positive.

        Raises:
            ShapeError: what is given does not fit together.
        """
        given = embeddings, labels, ref_embeddings, ref_labels, ids, ref_ids
        sides = Sides.of(*given, self.num_levels)
        at = sides.level_or_finest(self.level)

        def levels_of(rows: slice) -> Tensor:
            return sides.levels(rows, self.include_self, None if self.hierarchical else at)

        losses_of = self.of_batch(len(embeddings))
        loss = mean_over_queries(sides.queries, sides.gallery, levels_of, losses_of, self.chunk)
        if not self._checked:
            self._checked = True
            sides.check_first_batch(1 if self.hierarchical else at, self.hierarchical)
        return loss
