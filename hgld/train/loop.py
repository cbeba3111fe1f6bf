"""The trainer: batches, embeddings, loss, step.

Every step is a pure function of the model before it and of (data, options, seed, step): the batch,
the augmentation and any dropout are drawn from the step's own seed, and the learning rate is
computed from its number. So a run that is stopped at any step and started again ends in the very
bytes of a run that was not (on CPU), and no random state has to be kept.
"""

import math
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn

from hgld.artifacts import Json
from hgld.config import RunOptions, StageContext, TrainOptions
from hgld.errors import HgldError, Resumable
from hgld.model import ImageModel, build_image_model, save_model
from hgld.model.weights import choose_device
from hgld.tasks import say, track
from hgld.train.data import TrainingData, step_seed
from hgld.train.objective import build_loss, parameter_groups
from hgld.train.runs import Checkpoints, RunFolder, deterministic, stop_requests

__all__ = ["train_models"]


def train_models(shards: Path, *, options: TrainOptions, context: StageContext, out: Path) -> None:
    """Train each run of the options into a folder of its name.

    A run that is already finished for the same shards and options is left as it is; one that was
    stopped or damaged goes on from its last checkpoint. Folders of runs that are no longer asked
    for go.

    Args:
        shards: folder of the training images and their labels.
        options: of the trainer and of each run.
        context: not used; a run keeps its unfinished work in its own folder.
        out: gets NAME/model.safetensors, config.json, metrics.jsonl and two hidden files, and
            runs.json with the names in the order of the options.

    Raises:
        HgldError: the loss is no number; the batch's keys are kept.
        InvalidData: not one batch can be made of the split.
        Resumable: SIGTERM or SIGINT; the same call goes on.
        UsageError: the split has no images.
    """
    RunFolder.remove_others(out, options.runs)
    data = TrainingData.read(shards, options)
    folders = {
        name: RunFolder(out / name, data.fingerprint(options, run))
        for name, run in options.runs.items()
    }
    open_runs = {name: folder for name, folder in folders.items() if not folder.is_finished()}
    if any(options.runs[name].steps for name in open_runs):
        say(data.describe_coverage(options))
    for name, folder in open_runs.items():
        _train_run(data, options, options.runs[name], folder)
    Json("runs.json").write({"runs": list(options.runs)}, out / "runs.json")


def _train_run(
    data: TrainingData, options: TrainOptions, run: RunOptions, folder: RunFolder
) -> None:
    device = choose_device(options.device)
    model = build_image_model(options, head=run.steps > 0).to(device)
    folder.prepare()
    if run.steps:
        with deterministic(device):
            _train(model, data, options, run, folder)
    facts = {
        "loss": run.loss if run.steps else "pretrained",
        "steps": run.steps,
        "seed": options.seed,
        "split": options.split,
        "classes": len(data.class_labels),
        "levels": data.levels,
        "run": run.model_dump(mode="json"),
        "made_from": folder.fingerprint,
    }
    save_model(model, folder.path, facts)


def _train(
    model: ImageModel,
    data: TrainingData,
    options: TrainOptions,
    run: RunOptions,
    folder: RunFolder,
) -> None:
    """Train the model in place."""
    device = next(model.parameters()).device
    criterion = build_loss(run, data.class_labels, model.dim, options.seed).to(device)
    optimizer = torch.optim.Adam(parameter_groups(model, criterion, run))
    peaks = [group["lr"] for group in optimizer.param_groups]
    checkpoints = Checkpoints(folder, {"model": model, "loss": criterion, "optimizer": optimizer})

    start = checkpoints.resume(device)
    steps = range(start, run.steps)
    batches = iter(data.batches(model.config, options, steps))
    model.train()
    label = f"Training {folder.path.name}"
    with folder.metrics(start) as metrics, stop_requests() as stopping:
        for step in track(steps, label, len(steps)):
            clock = [perf_counter()]
            images, labels, rows = next(batches)  # (B, 3, H, W), (B, L), (B,)
            clock.append(perf_counter())

            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * _cosine(step, run.steps)
            torch.manual_seed(step_seed(options.seed, step, "model"))
            embeddings = _embed(model, images.to(device), options)  # (B, D)
            clock.append(perf_counter())

            optimizer.zero_grad()
            gradient, loss = _differentiate(criterion, embeddings, labels.to(device))
            if not math.isfinite(loss):
                raise _not_a_number(folder, step, data.keys(rows), loss)
            clock.append(perf_counter())

            torch.autograd.backward(embeddings, gradient)
            optimizer.step()
            clock.append(perf_counter())

            read, forward, criterion_s, backward = (
                after - before for before, after in pairwise(clock)
            )
            metrics.write(step + 1, loss, read, forward + backward, criterion_s)
            if stopping() or (step + 1) % options.checkpoint_steps == 0 or step + 1 == run.steps:
                metrics.sync()
                checkpoints.save(step + 1)
            if stopping() and step + 1 < run.steps:
                raise Resumable(
                    f"training {folder.path.name} was stopped after step {step + 1} of "
                    f"{run.steps}; run the same command again to go on"
                )


def _embed(model: ImageModel, images: Tensor, options: TrainOptions) -> Tensor:
    try:
        embeddings: Tensor = model(images)
    except torch.OutOfMemoryError:
        raise HgldError(
            f"out of memory with {len(images)} images of {options.image_size} px in a batch; lower "
            f"train.classes_per_batch (now {options.classes_per_batch})"
        ) from None
    return embeddings


def _differentiate(
    criterion: nn.Module, embeddings: Tensor, labels: Tensor
) -> tuple[Tensor, float]:
    """Gradient (B, D) of the loss by the embeddings, and the loss; the proxies get theirs.

    The model's own backward pass comes after: so the time of the loss is known, and a batch whose
    activations do not fit at once can be embedded in parts.
    """
    leaves = embeddings.detach().requires_grad_()  # (B, D)
    if not bool(torch.isfinite(leaves).all()):
        return torch.zeros_like(leaves), math.nan
    loss = criterion(leaves, labels)
    loss.backward()
    return torch.zeros_like(leaves) if leaves.grad is None else leaves.grad, float(loss.detach())


def _cosine(step: int, steps: int) -> float:
    """Share of the peak learning rate: 1 at the first step, towards 0 at the last.

    Example:
        >>> [round(_cosine(step, 4), 3) for step in range(4)]
        [1.0, 0.854, 0.5, 0.146]
    """
    return 0.5 * (1 + math.cos(math.pi * step / steps))


def _not_a_number(folder: RunFolder, step: int, keys: list[str], loss: float) -> HgldError:
    kept = folder.keep_batch(step + 1, keys)
    return HgldError(
        f"training {folder.path.name}: the loss of step {step + 1} is {loss}; the keys of its "
        f"{len(keys)} images are in {kept}; lower the learning rates (lr, head_lr, proxy_lr)"
    )
