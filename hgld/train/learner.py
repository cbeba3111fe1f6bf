"""One training step: embed, compute the loss of the whole batch, backpropagate.

The loss is differentiated with respect to the embeddings alone; the model's own backward pass
follows. So the time of the loss can be measured, the embeddings of many processes or of many small
parts of a batch enter one loss, and the loss of a half-precision model is computed in float32.

Backbone (with its pooling), head and proxies have separate learning rates. A rate is computed from
the number of the step alone, so a run that resumes needs no scheduler state.
"""

import math
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import SGD, Adam, AdamW, Optimizer

from hgld.config import RunOptions, TrainOptions
from hgld.errors import HgldError
from hgld.model import ImageModel
from hgld.model.devices import PRECISIONS, autocast, is_short_of_memory
from hgld.ranking.memory import MemoryBank
from hgld.ranking.multistage import backward_in_parts
from hgld.tasks import say
from hgld.train.ranks import ALONE, Ranks

Part = Literal["backbone", "head", "proxies"]
MOMENTUM = 0.9


def build_optimizers(model: ImageModel, loss: nn.Module, run: RunOptions) -> list[Optimizer]:
    """Build one optimiser, or two if the proxies use a different kind."""
    head = list(model.head.parameters()) if model.head else []
    own = _group("backbone", backbone_of(model), run) + _group("head", head, run)
    proxies = _group("proxies", list(loss.parameters()), run)
    if not proxies or run.proxy_optimizer == run.optimizer:
        return [_optimizer(run.optimizer, own + proxies)]
    return [_optimizer(run.optimizer, own), _optimizer(run.proxy_optimizer, proxies)]


def backbone_of(model: ImageModel) -> list[nn.Parameter]:
    """The parameters that stand still in the warm-up: of the backbone, with its pooling."""
    return [*model.backbone.parameters(), *(model.pool.parameters() if model.pool else ())]


def set_rates(optimizers: list[Optimizer], run: RunOptions, step: int) -> None:
    """Set the learning rate of every part for a step."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(run, group["part"], step)


def learning_rate(run: RunOptions, part: Part, step: int) -> float:
    """Learning rate of a part in a step, counted from 0.

    During warm-up the backbone is frozen and the other parts have their full rate; the schedule
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


class NotANumber(Exception):
    """The loss of a batch is nan or infinite."""


class Learner:
    """A model, its loss, and all state that changes from step to step.

    Args:
        model: in training mode; its parameters are changed in place.
        criterion: the loss, on the model's device.
        levels: number of levels of the labels.
        options: precision and micro_batch.
        run: optimisers, rates, memory.
        ranks: processes that share each batch.

    Attributes:
        parts: the objects that a checkpoint has to save, by name.
        loss_s: seconds that the last step spent in the loss.
        optimizer_s: seconds that it spent in the optimisers (a GPU's work continues beyond them).
        skipped: steps that changed nothing, as gradients were infinite in fp16; the loop resets it.
        remembers: whether the memory bank, if there is one, is in use.
        warms_up: whether the last step left the backbone as it was.
    """

    def __init__(
        self,
        model: ImageModel,
        criterion: nn.Module,
        levels: int,
        options: TrainOptions,
        run: RunOptions,
        ranks: Ranks = ALONE,
    ) -> None:
        self.model, self.criterion, self.run, self.ranks = model, criterion, run, ranks
        self.options, self.loss_s, self.optimizer_s = options, 0.0, 0.0
        weight = next(model.parameters())
        self.device = weight.device
        whole = options.classes_per_batch * options.images_per_class
        part = min(options.micro_batch or whole, whole // ranks.size)
        # batch-norm whose statistics are those of the images that it gets
        counts = any(isinstance(m, _BatchNorm) and m.training for m in model.modules())
        if part < whole and ranks.leads and counts:
            say(
                f"batch-norm is not frozen: it takes its statistics from {part} images at a time, "
                f"so a batch of {whole} at once, by one process, would train another model"
            )
        self.network = ranks.parallel(model)
        self.backbone = [p for p in backbone_of(model) if p.requires_grad]
        self.warms_up = False
        self.optimizers = build_optimizers(model, criterion, run)
        fp16 = options.precision == "fp16"
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=fp16)
        bank = MemoryBank(run.memory, model.dim, levels) if run.memory else None
        self.memory = bank.to(weight) if bank is not None else None
        self.remembers, self.skipped = True, 0

    @property
    def parts(self) -> dict[str, Any]:
        """The objects that a checkpoint has to save, by name."""
        kept: dict[str, Any] = {"model": self.model, "loss": self.criterion, "scaler": self.scaler}
        for number, optimizer in enumerate(self.optimizers):
            kept[f"optimizer_{number}"] = optimizer
        return {**kept, "memory": self.memory} if self.memory is not None else kept

    def learn(self, step: int, images: Tensor, labels: Tensor, rows: Tensor) -> float:
        """Take one step; return the loss of the whole batch.

        Args:
            step: counted from 0; decides the learning rates.
            images: (B / ranks, 3, H, W) bytes, this rank's slice of the batch.
            labels: (B, L) of the whole batch.
            rows: (B,) which images they are.

        Raises:
            HgldError: out of memory.
            NotANumber: the loss is nan or infinite; nothing was changed.
        """
        set_rates(self.optimizers, self.run, step)
        self.remembers = step >= self.run.memory_start
        # No gradient at all: at a rate of 0 it would take two thirds of a step, and enter momentum
        # and Adam's means, which would move the backbone after the warm-up.
        warms_up = step < self.run.warmup_steps
        if warms_up != self.warms_up:
            self.warms_up = warms_up
            for parameter in self.backbone:
                parameter.requires_grad_(not warms_up)
        try:
            there = images.to(self.device, non_blocking=True)
            loss = self.differentiate(there, labels, rows)
        except RuntimeError as error:
            raise self._explain(error, len(images)) from None
        began = perf_counter()
        moved = [
            optimizer
            for optimizer in self.optimizers
            if not self.warms_up or any(g["part"] != "backbone" for g in optimizer.param_groups)
        ]
        for optimizer in moved:
            self.scaler.step(optimizer)
        if moved:
            scale = self.scaler.get_scale()
            self.scaler.update()
            self.skipped += self.scaler.get_scale() < scale
        self.optimizer_s = perf_counter() - began
        return loss

    def differentiate(self, images: Tensor, labels: Tensor, rows: Tensor) -> float:
        """Add the gradient of the batch's loss to model and proxies; return the loss.

        Args:
            images: as in ``learn``, on the device.
            labels: as in ``learn``.
            rows: as in ``learn``.
        """
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        given = labels.to(self.device), rows.to(self.device)
        found: list[float] = []

        def pull(embeddings: Tensor) -> Tensor:
            """(B / ranks, D) gradient of the loss by the embeddings; also sets that of proxies."""
            began = self._clock()
            gradient, loss = self._gradient(embeddings, *given)
            self.loss_s = self._clock() - began
            found.append(loss)
            return gradient

        # DistributedDataParallel waits for the gradient of each parameter
        network = self.model if self.warms_up else self.network
        if self.options.micro_batch is None:
            with self._autocast():
                embeddings = network(images)
            gradient = pull(embeddings).to(embeddings.dtype)
            if embeddings.requires_grad:  # not in a warm-up without a head
                torch.autograd.backward(embeddings, gradient)
        else:
            parts = torch.split(images, self.options.micro_batch)
            backward_in_parts(
                network, parts, lambda e: (e * pull(e)).sum(), autocast=self._autocast
            )
        if self.warms_up:
            self.ranks.average_gradients(self.model)
        return found[0]

    def _gradient(self, embeddings: Tensor, labels: Tensor, rows: Tensor) -> tuple[Tensor, float]:
        half = embeddings.dtype in PRECISIONS.values()
        everyone = self.ranks.gather(embeddings.float() if half else embeddings)  # (B, D)
        # Embeddings that are nan must not enter the memory bank, where later steps would meet them.
        if not bool(torch.isfinite(everyone).all()):
            raise NotANumber("nan")
        # Leaves, so that the loss's backward pass stops at the embeddings.
        leaves = everyone.requires_grad_()
        loss = self._loss(leaves, labels, rows)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise NotANumber(str(value))
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.ranks.same_gradients(self.criterion)
        whole = torch.zeros_like(leaves) if leaves.grad is None else leaves.grad
        return self.ranks.share_of(whole), value

    def _loss(self, embeddings: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        if self.memory is None or not self.remembers:
            alone: Tensor = self.criterion(embeddings, labels)
            return alone
        references, of, _ = self.memory.extend(embeddings, labels, rows)  # (B + M, D), (B + M, L)
        # Ids by place: two copies of an image are two images, as they are without a memory.
        own = torch.arange(len(rows), device=labels.device)
        every = torch.cat([own, own.new_full((len(of) - len(own),), -1)])
        loss: Tensor = self.criterion(embeddings, labels, references, of, own, every)
        if self.run.memory_loss == "mean":
            loss = (loss + self.criterion(embeddings, labels)) / 2
        return loss

    def _autocast(self) -> AbstractContextManager[None]:
        return autocast(self.device, self.options.precision)

    def _clock(self) -> float:
        """Seconds; waits for the GPU first, so that its work counts for the part that queued it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return perf_counter()

    def _explain(self, error: RuntimeError, images: int) -> BaseException:
        """A one-line error if memory is short or a process is gone; any other error unchanged."""
        if self.ranks.lost(error):
            return self.ranks.gone()
        if not is_short_of_memory(error):
            return error
        now = min(self.options.micro_batch or images, images)
        return HgldError(
            f"out of memory with {now} images of {self.options.image_size} px at a time; set "
            f"train.micro_batch = {max(1, now // 2)} (the loss still sees the whole batch), or "
            "lower train.image_size"
        )
