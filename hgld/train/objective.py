"""What is minimised, and at which rate each part of the model learns."""

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import nn

from hgld.config import RunOptions, nearest
from hgld.errors import UsageError
from hgld.model import ImageModel
from hgld.ranking import losses
from hgld.ranking.steps import UpperStep

__all__ = ["build_loss", "parameter_groups"]


def build_loss(run: RunOptions, class_labels: np.ndarray, dim: int, seed: int) -> nn.Module:
    """The loss of a run, with its proxies drawn from the seed.

    Args:
        run: loss and loss_options.
        class_labels: (C, L) labels of each class, coarse to fine.
        dim: length of an embedding.
        seed: of the proxies.

    Raises:
        UsageError: the loss has no such option.
    """
    maker = getattr(losses, run.loss)
    accepted = inspect.signature(maker).parameters
    facts = {
        "num_levels": class_labels.shape[1],
        "num_classes": len(class_labels),
        "dim": dim,
        "class_labels": torch.from_numpy(class_labels),
    }
    given = {name: value for name, value in facts.items() if name in accepted}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        loss: nn.Module = maker(**given, **_free_options(run, accepted))
    return loss


def _free_options(run: RunOptions, accepted: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """The run's own options of the loss; those of its step (tau, rho ...) are put into one."""
    own = [n for n, p in accepted.items() if isinstance(p.default, int | float)]
    of_step = [field.name for field in fields(UpperStep)] if "step" in accepted else []
    for name in run.loss_options:
        if name not in own + of_step:
            raise UsageError(
                f"train.runs: the loss {run.loss} has no option '{name}'"
                f"{nearest(name, own + of_step)}; it has {', '.join(own + of_step)}"
            )
    options: dict[str, Any] = {n: v for n, v in run.loss_options.items() if n in own}
    step = {n: v for n, v in run.loss_options.items() if n in of_step}
    return {**options, "step": UpperStep(**step)} if step else options


def parameter_groups(model: ImageModel, loss: nn.Module, run: RunOptions) -> list[dict[str, Any]]:
    """Backbone, head and proxies, each with its own learning rate; proxies do not decay."""
    groups = [
        (model.backbone, run.lr, run.weight_decay),
        (model.head, run.head_lr, run.weight_decay),
        (loss, run.proxy_lr, 0.0),
    ]
    return [
        {"params": list(part.parameters()), "lr": lr, "weight_decay": decay}
        for part, lr, decay in groups
        if part is not None and next(part.parameters(), None) is not None
    ]
