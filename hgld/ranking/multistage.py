"""A loss over any batch size at the memory cost of a small one (Revaud et al. 2019, Algorithm 1).

Stage 1 embeds the batch in parts without storing activations; stage 2 computes the loss of all
embeddings and its gradient with respect to them; stage 3 embeds each part again and backpropagates
its share of the gradient. The gradients equal those of one big batch if each image's embedding
depends on that image only (batch-norm in training mode uses the statistics of a part).

Both passes must see the same network: the random state of each part is saved and restored, so
dropout and augmentation inside the model repeat, and batch-norm's running statistics are updated
once, in the second pass. Other state that a forward pass changes (the vectors of spectral norm,
numpy's random numbers) is not restored. The paper uses evaluation mode in stage 1; here the mode is
kept, since dropout would otherwise differ between the passes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hgld.errors import ShapeError


def backward_in_parts(
    model: nn.Module,
    parts: Sequence[Tensor],
    loss: Callable[[Tensor], Tensor],
    scale: Callable[[Tensor], Tensor] | None = None,
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Tensor:
    """Add the gradients of the loss of all parts together to the parameters of the model.

    Under DistributedDataParallel gradients are exchanged once, with the last part. ``loss`` may
    gather the embeddings of all processes; its value is treated as in one big batch.

    Args:
        model: images -> (n, D) embeddings.
        parts: batches of images, in order; together they are the batch.
        loss: (B, D) embeddings -> one number; its own parameters (proxies) get gradients, too.
        scale: applied to the loss before backward, e.g. ``GradScaler.scale``.
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
    on_gpu = device.type == "cuda"
    states, pieces = [], []
    with torch.no_grad(), _frozen_statistics(model), autocast():
        for part in parts:
            gpu = torch.cuda.get_rng_state(device) if on_gpu else None
            states.append((torch.get_rng_state(), gpu))
            pieces.append(model(part))
    embeddings = torch.cat(pieces).detach().requires_grad_()
    value = loss(embeddings)
    torch.autograd.backward([value if scale is None else scale(value)])
    if embeddings.grad is None:
        raise ShapeError("the loss does not depend on the embeddings; nothing to learn")
    gradients = torch.split(embeddings.grad, [len(piece) for piece in pieces])
    # Processes exchange gradients with the last part only, once per batch.
    hold = model.no_sync if isinstance(model, DistributedDataParallel) else nullcontext
    # The caller's random numbers continue as if no part was embedded again.
    with torch.random.fork_rng([device] if on_gpu else []):
        zipped = zip(parts, states, gradients, strict=True)
        for number, (part, (cpu, gpu), gradient) in enumerate(zipped, 1):
            torch.set_rng_state(cpu)
            if gpu is not None:
                torch.cuda.set_rng_state(gpu, device)
            with hold() if number < len(parts) else nullcontext():
                with autocast():
                    again = model(part)
                if again.requires_grad:  # not if the whole model is frozen
                    again.backward(gradient.to(again.dtype))
    return value.detach()


@contextmanager
def _frozen_statistics(model: nn.Module) -> Iterator[None]:
    """Restore the running statistics of normalisation layers on exit."""
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
