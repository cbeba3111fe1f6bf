"""Cross-batch memory (Wang et al. 2020): embeddings of the last batches as further references.

While a model changes slowly, its embeddings of a few batches ago are still good references. The
memory is a queue: the newest entries replace the oldest. The current batch comes first, with its
gradient; stored embeddings have none.
"""

import torch
from torch import Tensor, nn

from hgld.errors import ShapeError
from hgld.ranking.checks import check_count, check_tensors
from hgld.ranking.levels import as_ids
from hgld.ranking.rank_loss import check_labels


class MemoryBank(nn.Module):
    """A queue of embeddings with their label paths and image ids.

    Args:
        size: number of embeddings to keep.
        dim: D.
        num_levels: L.

    Example:
        >>> bank = MemoryBank(size=2, dim=1, num_levels=1)
        >>> for value in (1.0, 2.0, 3.0):
        ...     found, _, _ = bank.extend(torch.tensor([[value]]), torch.tensor([[0]]))
        >>> found[:, 0].tolist()
        [3.0, 2.0, 1.0]
    """

    embeddings: Tensor
    labels: Tensor
    ids: Tensor

    def __init__(self, size: int, dim: int, num_levels: int) -> None:
        super().__init__()
        check_count(size=size, dim=dim, num_levels=num_levels)
        self.size = size
        self.register_buffer("embeddings", torch.empty(0, dim))
        self.register_buffer("labels", torch.empty(0, num_levels, dtype=torch.int64))
        self.register_buffer("ids", torch.empty(0, dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.ids)

    def extend(
        self, embeddings: Tensor, labels: Tensor, ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the references for a batch: itself, then the memory, newest first. Then store it.

        A stored embedding of an image that is in the batch again is replaced by the new one.

        Args:
            embeddings: (B, D) with gradient.
            labels: (B, L) label paths.
            ids: (B,) image ids >= 0; without them, repeated images are not recognised.

        Returns:
            (B + M, D) embeddings, (B + M, L) labels and (B + M,) ids for a loss's references; the
            first B ids are the batch's own (negative if none were given).
        """
        check_tensors(embeddings=embeddings, **({} if ids is None else {"ids": ids}))
        dim, num_levels = self.embeddings.shape[1], self.labels.shape[1]
        if embeddings.ndim != 2 or embeddings.shape[1] != dim:
            raise ShapeError(
                f"embeddings have shape {tuple(embeddings.shape)}; expected (images, {dim})"
            )
        check_labels(labels, len(embeddings), num_levels)
        own = self._own_ids(embeddings, ids)
        # The new embedding of an image is the better one.
        other = ~torch.isin(self.ids, own)
        kept = (self.embeddings[other], self.labels[other], self.ids[other])
        batch = (embeddings, labels.to(kept[1].dtype), own)
        found = [torch.cat([new, old.to(new.dtype)]) for new, old in zip(batch, kept, strict=True)]
        # detached, so that no graph of an earlier batch stays alive
        self.embeddings = found[0][: self.size].detach().to(self.embeddings.dtype).clone()
        self.labels, self.ids = found[1][: self.size].clone(), found[2][: self.size].clone()
        self.ids[self.ids < 0] = torch.iinfo(torch.int64).min  # never equal to a later batch's own
        return found[0], found[1], found[2]

    def _own_ids(self, embeddings: Tensor, ids: Tensor | None) -> Tensor:
        if ids is None:
            return -1 - torch.arange(len(embeddings), device=embeddings.device)
        if ids.shape != embeddings.shape[:1] or bool((ids < 0).any()):
            raise ShapeError("ids: expected one number >= 0 for each image of the batch")
        return as_ids(ids[:, None], "ids")[:, 0]

    def _load_from_state_dict(self, state_dict, prefix, *args):  # type: ignore[no-untyped-def]
        """Accept a saved memory of any fill level, as the buffers grow during training."""
        for name in ("embeddings", "labels", "ids"):
            if prefix + name in state_dict:
                own, saved = getattr(self, name), state_dict[prefix + name]
                setattr(self, name, own.new_empty(len(saved), *own.shape[1:]))
        super()._load_from_state_dict(state_dict, prefix, *args)
