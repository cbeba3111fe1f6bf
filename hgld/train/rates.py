"""Optimisers, and the learning rate of each part of the model at each step.

Backbone (with its pooling), head and proxies have separate rates. A rate is computed from the
number of the step alone, so a run that resumes needs no scheduler state.
"""

import math
from typing import Any, Literal

from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from hgld.config import RunOptions
from hgld.model import ImageModel

__all__ = ["build_optimizers", "learning_rate", "set_rates"]

Part = Literal["backbone", "head", "proxies"]
MOMENTUM = 0.9


def build_optimizers(model: ImageModel, loss: nn.Module, run: RunOptions) -> list[Optimizer]:
    """Build one optimiser, or two if the proxies use a different kind."""
    backbone = [*model.backbone.parameters(), *(model.pool.parameters() if model.pool else ())]
    head = list(model.head.parameters()) if model.head else []
    own = _group("backbone", backbone, run) + _group("head", head, run)
    proxies = _group("proxies", list(loss.parameters()), run)
    if not proxies or run.proxy_optimizer == run.optimizer:
        return [_optimizer(run.optimizer, own + proxies)]
    return [_optimizer(run.optimizer, own), _optimizer(run.proxy_optimizer, proxies)]


def set_rates(optimizers: list[Optimizer], run: RunOptions, step: int) -> None:
    """Set the learning rate of every part for a step."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(run, group["part"], step)


def learning_rate(run: RunOptions, part: Part, step: int) -> float:
    """Learning rate of a part in a step, counted from 0.

    During warm-up the backbone's rate is 0 and the other parts have their full rate; the schedule
    starts after it, as in the authors' code. Milestones count from the start of the run.

    Example:
        >>> run = RunOptions(steps=4, lr=1.0, head_lr=2.0)
        >>> [round(learning_rate(run, "backbone", step), 3) for step in range(4)]
        [1.0, 0.854, 0.5, 0.146]
        >>> run = RunOptions(steps=4, schedule="step", milestones=(2, 3), gamma=0.5, warmup_steps=1)
        >>> [learning_rate(run, "backbone", step) / run.lr for step in range(4)]
        [0.0, 1.0, 0.5, 0.25]
    """
    peak = {"backbone": run.lr, "head": run.head_lr, "proxies": run.proxy_lr}[part]
    if step < run.warmup_steps:
        return 0.0 if part == "backbone" else peak
    if run.schedule == "step":
        return float(peak * run.gamma ** sum(step >= milestone for milestone in run.milestones))
    if run.schedule == "constant":
        return peak
    low = run.proxy_min_lr if part == "proxies" else run.min_lr
    share = (step - run.warmup_steps) / (run.steps - run.warmup_steps)
    return low + (peak - low) * (0.5 * (1 + math.cos(math.pi * share)))


def _group(part: Part, parameters: list[nn.Parameter], run: RunOptions) -> list[dict[str, Any]]:
    """The optimiser's parameter group of a part; empty if it has no parameters."""
    decay = run.proxy_weight_decay if part == "proxies" else run.weight_decay
    # The learning rate is set before each step.
    group = {"params": parameters, "lr": 0.0, "weight_decay": decay, "part": part}
    return [group] if parameters else []


def _optimizer(kind: str, groups: list[dict[str, Any]]) -> Optimizer:
    if kind == "sgd":
        return SGD(groups, momentum=MOMENTUM, nesterov=True)
    return AdamW(groups) if kind == "adamw" else Adam(groups)
