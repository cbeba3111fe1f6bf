"""Losses with the call of pytorch-metric-learning, for loops that are written for its losses."""

from torch import Tensor, nn

from hgld.errors import ShapeError
from hgld.ranking.checks import check_tensors
from hgld.ranking.rank_loss import takes_references


class MetricLearningLoss(nn.Module):
    """A loss of this package that is called as ``loss(embeddings, labels, indices_tuple, ...)``.

    Args:
        loss: any module of ``hgld.ranking.losses``.

    Raises:
        ShapeError: the loss is a name or a class instead of a module.

    Example:
        >>> import torch
        >>> from hgld.ranking.losses import SupAP
        >>> loss = MetricLearningLoss(SupAP())
        >>> loss(torch.eye(3)[[0, 0, 1]], torch.tensor([0, 0, 1])).item() < 1e-6
        True
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        if not isinstance(loss, nn.Module):
            raise ShapeError(
                f"loss is {loss!r}; expected a module such as hgld.ranking.losses.SupAP()"
            )
        self.loss = loss
        self.takes_references = takes_references(loss)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: tuple[Tensor, ...] | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """Loss of a batch, one number.

        Args:
            embeddings: (B, D).
            labels: (B,) classes, or (B, L) label paths, coarse to fine.
            indices_tuple: pairs or triplets of a miner; only None is possible.
            ref_emb: (M, D) gallery to use instead of the batch.
            ref_labels: (M,) or (M, L).

        Raises:
            ShapeError: there are mined pairs, or references that the loss cannot use.
        """
        if indices_tuple is not None:
            raise ShapeError(
                "indices_tuple is given, but these losses rank all pairs of a batch; call without "
                "a miner"
            )
        if ref_emb is None and ref_labels is None:
            found: Tensor = self.loss(embeddings, _as_paths(labels))
            return found
        if not self.takes_references:
            raise ShapeError(
                f"{type(self.loss).__name__} learns from the batch alone; ref_emb: None"
            )
        others = None if ref_labels is None else _as_paths(ref_labels)
        return self.loss(embeddings, _as_paths(labels), ref_emb, others)  # type: ignore[no-any-return]


def _as_paths(labels: Tensor) -> Tensor:
    """(B, L) label paths of labels of one or more levels."""
    check_tensors(labels=labels)
    return labels[:, None] if labels.ndim == 1 else labels
