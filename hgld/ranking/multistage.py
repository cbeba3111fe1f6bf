"""A loss over any batch size at the memory of a small one (Revaud et al. 2019, Algorithm 1).

Stage 1 embeds the batch in parts without keeping what backward needs; stage 2 finds the loss of all
embeddings and its gradient by them; stage 3 embeds each part again and sends its share of the
gradient through the model. The gradients equal those of one big batch where each image's embedding
is its own (batch-norm in training mode takes its statistics from a part, in any such scheme).

Both passes have to see the same network: each part's random state is kept and put back, so dropout
and augmentation inside the model repeat, and batch-norm's running statistics move once, in the
second pass. What else a forward pass moves (the vectors of spectral norm, numpy's random numbers)
is not put back. The paper embeds in evaluation mode in stage 1; here the mode stays, since dropout
would otherwise differ between the passes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hgld.errors import ShapeError

__all__ = ["backward_in_parts"]


@dataclass(frozen=True)
class _RandomState:
    """Random state of the CPU and of one GPU, to be put back."""

    cpu: Tensor
    gpu: Tensor | None
    device: torch.device

    @classmethod
    def now(cls, device: torch.device) -> "_RandomState":
        gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        return cls(torch.get_rng_state(), gpu, device)

    def restore(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.gpu is not None:
            torch.cuda.set_rng_state(self.gpu, self.device)


def backward_in_parts(
    model: nn.Module,
    parts: Sequence[Tensor],
    loss: Callable[[Tensor], Tensor],
    scale: Callable[[Tensor], Tensor] | None = None,
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Tensor:
    """Gradients of the loss of all parts together, added to the parameters of the model.

    Under DistributedDataParallel gradients are exchanged once, with the last part. ``loss`` may
    gather the embeddings of all processes; what it returns is treated as in one big batch.

    Args:
        model: images -> (n, D) embeddings.
        parts: batches of images, in order; together they are the batch.
        loss: (B, D) embeddings -> one number; its own parameters (proxies) get gradients too.
        scale: of the loss before backward, e.g. ``GradScaler.scale``.
        autocast: context of both passes through the model, e.g. ``lambda: torch.autocast("cuda")``.

    Returns:
        The loss, unscaled and detached.

    Raises:
        ShapeError: there are no parts.

    Example:
        >>> model, images = torch.nn.Linear(2, 2), torch.eye(2)
        >>> value = backward_in_parts(model, list(images.split(1)), lambda e: e.square().sum())
        >>> model.weight.grad.shape
        torch.Size([2, 2])
    """
    if not parts:
        raise ShapeError("no parts to embed; expected at least one batch of images")
    device = next((p.device for p in model.parameters()), parts[0].device)
    states, pieces = [], []
    with torch.no_grad(), _frozen_statistics(model), autocast():
        for part in parts:
            states.append(_RandomState.now(device))
            pieces.append(model(part))
    embeddings = torch.cat(pieces).detach().requires_grad_()
    value = loss(embeddings)
    torch.autograd.backward([value if scale is None else scale(value)])
    if embeddings.grad is None:
        raise ShapeError("the loss does not depend on the embeddings; nothing to learn")
    gradients = torch.split(embeddings.grad, [len(piece) for piece in pieces])
    after = _RandomState.now(device)
    for i, (part, state, gradient) in enumerate(zip(parts, states, gradients, strict=True)):
        state.restore()
        with _exchange(model, last=i == len(parts) - 1):
            with autocast():
                again = model(part)
            again.backward(gradient.to(again.dtype))
    after.restore()
    return value.detach()


def _exchange(model: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Processes exchange gradients with the last part alone."""
    if isinstance(model, DistributedDataParallel) and not last:
        held: AbstractContextManager[None] = model.no_sync()
        return held
    return nullcontext()


@contextmanager
def _frozen_statistics(model: nn.Module) -> Iterator[None]:
    """Running statistics of normalisation layers stay as they are within."""
    kept = {
        name: buffer.clone()
        for name, buffer in model.named_buffers()
        if name.rpartition(".")[2] in ("running_mean", "running_var", "num_batches_tracked")
    }
    try:
        yield
    finally:
        buffers = dict(model.named_buffers())
        for name, value in kept.items():
            buffers[name].copy_(value)
