"""The training loop: batches, embeddings, loss, step.

Every step is a pure function of the state before it and of (data, options, seed, step): the
batch, the augmentation and any dropout are drawn from the step's own seed, and the learning rates
are computed from its number. A run that is stopped at any step and resumed therefore ends in the
same bytes as an uninterrupted run (on CPU), and no random state has to be saved.
"""

from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from hgld.artifacts import Json, hash_file
from hgld.config import RunOptions, StageContext, TrainOptions
from hgld.errors import HgldError, Resumable
from hgld.model import ImageModel, build_image_model, save_model
from hgld.model.devices import enough_memory, is_slow, kept_memory
from hgld.model.image import load_weights
from hgld.model.model_folder import RUNS
from hgld.shards.batches import step_seed
from hgld.shards.damaged import DamagedImages
from hgld.shards.load import LoadedBatch
from hgld.stopping import stop_requests
from hgld.tasks import say, track
from hgld.train.data import TrainingData
from hgld.train.learner import Learner, NotANumber
from hgld.train.objective import build_loss
from hgld.train.preconditions import require_starts
from hgld.train.ranks import Ranks, current, give_orders, take_orders
from hgld.train.runs import BAD_BATCH, UNDECODABLE, Pace, RunFolder, deterministic
from hgld.train.whitening import whiten_head
from hgld.words import count_text


def train_models(shards: Path, *, options: TrainOptions, context: StageContext, out: Path) -> None:
    """Train each run of the options, with each seed, into a folder of its name.

    A run that is already finished for the same shards and options is left unchanged; one that was
    stopped or damaged resumes from its last checkpoint. Other folders in ``out`` are not touched. A
    run that starts from another one trains after it, and again whenever that gets other weights.
    Processes that torchrun started share each batch; rank 0 writes the files.

    Args:
        shards: folder of the training images and their labels.
        options: of the trainer and of each run.
        context: not used; a run keeps its unfinished work in its own folder.
        out: receives NAME/model.safetensors, config.json, metrics.jsonl and hidden files, and
            runs.json with the names in the order of the options and, for runs with several seeds,
            the names of their models.

    Raises:
        HgldError: the loss is nan or infinite (the batch's keys are kept), or out of memory.
        InvalidData: not a single batch can be made of the split, or more images are damaged than
            undecodable_budget allows each run, over all its processes and resumes.
        Resumable: SIGTERM, SIGINT or SIGHUP; the same call resumes.
        UsageError: the split has no images, or options do not fit together, to the labels or to a
            model that a run starts from.
    """
    ranks = current()
    data = TrainingData.read(shards, options)
    given = options.brought_paths().get("backbone")
    weights = hash_file(given) if given else ""
    models = {
        model: _seeded_run(data, options, run, seed, out / model, weights)
        for run, models in options.models().items()
        for model, seed in models.items()
    }
    batch = f"{options.classes_per_batch} x {options.images_per_class}"
    with enough_memory(
        f"out of memory with train.dim = {options.dim}, train.image_size = {options.image_size}, "
        f"train.workers = {options.workers} and batches of {batch} images; lower one of them"
    ):
        for name in _open_runs(data, options, models, out) if ranks.leads else take_orders():
            _train_run(data, models[name], ranks)
    if ranks.leads:
        seeded = {run: list(found) for run, found in options.models().items() if run not in found}
        names = {"runs": list(models), **({"seeds": seeded} if seeded else {})}
        Json(RUNS).write(names, out / RUNS)


@dataclass(frozen=True)
class _SeededRun:
    """One run with one seed."""

    options: TrainOptions
    run: RunOptions
    folder: RunFolder


def _seeded_run(
    data: TrainingData, options: TrainOptions, run: str, seed: int, path: Path, weights: str
) -> _SeededRun:
    found, own = options.runs[run], options.model_copy(update={"seed": seed})
    start = found.init_folder
    if found.init_from and start is None:  # a run: its model of the same seed
        models = options.models()[found.init_from].items()
        start = path.parent / next(model for model, other in models if other == seed)
    files = RunFolder(path, data.fingerprint(own, found), data.count_whole, weights, start)
    return _SeededRun(own, found, files)


def _open_runs(
    data: TrainingData, options: TrainOptions, models: dict[str, _SeededRun], out: Path
) -> list[str]:
    """Names of the models to train, once all of them are known to be trainable."""
    device = current().device(options.device)
    if others := {path.name for path in out.glob("[!.]*/") if path.is_dir()} - models.keys():
        say(
            f"{out.name}/: not in {'train.only' if options.only else 'train.runs'}, left as they "
            f"are: {', '.join(sorted(others))}; delete what you do not need"
        )
    folders = {name: model.folder for name, model in models.items()}
    names: list[str] = []
    for name, folder in folders.items():  # a run comes behind the one that it starts from
        if folder.start in [folders[other].path for other in names] or not folder.is_finished():
            names.append(name)
    trained = {name: models[name].run for name in names if models[name].run.steps}
    # Every loss is built once before the first run, so that a wrong option costs no training.
    for name, run in trained.items():
        build_loss(run, data.class_labels, options.dim, options.seed)
        _report_idle(name, run)
    require_starts(options, {name: folder.path for name, folder in folders.items()})
    if trained:
        data.require_readable(options, current())  # a wrong URL costs no finished model
        say(data.describe_coverage(options))
        if is_slow(device, options.precision):
            say("train.precision fp16 is many times slower on a CPU; set float32 or bf16")
    give_orders(names)
    return names


def _report_idle(name: str, run: RunOptions) -> None:
    """Report options that begin only after the last step, or are of another schedule."""
    starts = {"warmup_steps": ("the backbone does not train", run.warmup_steps)}
    if run.memory:
        starts["memory_start"] = ("the memory is not used", run.memory_start)
    if run.schedule == "step":
        starts["milestones"] = ("the learning rate never falls", min(run.milestones, default=0))
    for option, (what, start) in starts.items():
        if start >= run.steps:
            say(f"{name}: {what}: {option} is {start:,}, and the run has {run.steps:,} steps")
    if run.schedule == "step" and not run.milestones:
        say(f'{name}: the learning rate never falls: schedule = "step" has no milestones')
    others = {"step": ("milestones", "gamma"), "cosine": ("min_lr", "proxy_min_lr")}
    for schedule, option in ((s, o) for s, found in others.items() for o in found):
        if run.schedule != schedule and getattr(run, option) != getattr(RunOptions(), option):
            say(f'{name}: {option} has no effect: it is of schedule = "{schedule}", not of '
                f'"{run.schedule}"')  # fmt: skip


def _train_run(data: TrainingData, seeded: _SeededRun, ranks: Ranks) -> None:
    options = seeded.options
    device = ranks.device(options.device)
    model = build_image_model(options, head=seeded.run.steps > 0).to(device)
    if ranks.leads:
        seeded.folder.prepare()
    ranks.any(False)  # all ranks wait until rank 0 has prepared the folder
    damaged = DamagedImages(options.undecodable_budget, data.name, speaks=ranks.leads)
    if seeded.run.steps:
        with deterministic(device), kept_memory(device):
            _train(model, data, seeded, ranks, damaged)
    if ranks.leads:
        save_model(model, seeded.folder.path, _facts(data, seeded, damaged))


def _train(
    model: ImageModel, data: TrainingData, seeded: _SeededRun, ranks: Ranks, damaged: DamagedImages
) -> None:
    """Train the model in place; add the images that had to be replaced to ``damaged``."""
    options, run, folder = seeded.options, seeded.run, seeded.folder
    device = next(model.parameters()).device
    criterion = build_loss(run, data.class_labels, model.dim, options.seed).to(device)
    if folder.start is not None and not folder.has_checkpoint:
        load_weights(model, folder.start)
        if ranks.leads:
            say(f"{folder.path.name}: starts from {folder.start.name}")
    elif options.head_init == "pca_whitening" and not folder.has_checkpoint:
        whiten_head(model, data, options, damaged)
    model.train()
    learner = Learner(model, criterion, len(data.levels), options, run, ranks)
    state = {**learner.parts, UNDECODABLE: damaged}

    start = folder.resume(state, device)
    if len({*ranks.collect(start)}) > 1:
        raise ranks.told(
            HgldError(
                f"{folder.path}: the processes find different checkpoints in it; the work folder "
                "has to be shared by all machines"
            )
        )
    steps = range(start, run.steps)
    loader = data.loader(model.config, options, ranks, damaged)
    pace = Pace(folder, start, run.steps)
    with (
        folder.metrics(start, options.tensorboard) if ranks.leads else nullcontext() as metrics,
        stop_requests() as ask,
        closing(loader.load(steps)) as batches,
    ):
        label = f"Training {folder.path.name}"
        label += f" from {folder.start.name}" if folder.start else ""
        for step in track(steps, label, run.steps, start):
            began = perf_counter()
            batch = _next_batch(batches, damaged, ranks)
            images = batch.planned.rows  # (B,) of all ranks
            if not damaged.rows.isdisjoint(images.tolist()):  # a replacement has its own number
                images = np.concatenate(ranks.collect(batch.rows.numpy()))
            rows = torch.from_numpy(images)
            labels = torch.from_numpy(data.labels[images].astype(np.int64))  # (B, L)
            read = perf_counter()

            done = step + 1
            # Seeded by step, so that a resumed run draws the same dropout, and by rank, so that
            # ranks draw different ones.
            purpose = "model" if ranks.leads else f"model {ranks.rank}"
            torch.manual_seed(step_seed(options.seed, step, purpose))
            try:
                loss = learner.learn(step, batch.images, labels, rows)
            except NotANumber as found:
                if ranks.leads:
                    kept = {"step": done, "keys": data.keys(rows.tolist())}
                    Json(BAD_BATCH).write(kept, folder.path / BAD_BATCH)
                raise ranks.told(
                    HgldError(
                        f"training {folder.path.name}: the loss of step {done} is {found}; the "
                        f"keys of its {len(rows)} images are in {folder.path / BAD_BATCH}; lower "
                        "the learning rates (lr, head_lr, proxy_lr)"
                    )
                ) from None

            seconds = {
                "data": read - began,
                "model": perf_counter() - read - learner.loss_s - learner.optimizer_s,
                "loss": learner.loss_s,
                "optimizer": learner.optimizer_s,
            }
            if metrics is not None:  # in the process that leads
                metrics.write(done, loss, seconds)
                pace.tell(done, batch.planned.epoch, len(rows))
            # All ranks stop after the same step, even if only one received a signal.
            stop = ranks.any(ask())
            if stop or done % options.checkpoint_steps == 0 or done == run.steps:
                if metrics is not None:
                    metrics.sync()
                    folder.save(done, state)
                    _report_skipped(folder.path.name, learner, done)
                # No process ends before the checkpoint is saved; a request may come until then.
                stop = ranks.any(stop or ask())
            if stop:
                raise ranks.told(
                    Resumable(
                        f"training {folder.path.name} was stopped after step {done} of "
                        f"{run.steps}; run the same command again to go on"
                    )
                )


def _report_skipped(name: str, learner: Learner, done: int) -> None:
    """Report the steps in fp16 that changed nothing since the last report."""
    if learner.skipped:
        say(
            f"{name}: {count_text(learner.skipped, 'step')} up to step {done:,} changed nothing: "
            "gradients were infinite in fp16, whose scale is lower now; if many are, use bf16"
        )
        learner.skipped = 0


def _next_batch(
    batches: Iterator[LoadedBatch], damaged: DamagedImages, ranks: Ranks
) -> LoadedBatch:
    """Fetch the next batch on all ranks, and merge the damaged images that they found.

    Raises:
        HgldError: raised on any rank; rank 0 reports it, and all ranks end.
    """
    known = len(damaged.rows)
    fault: HgldError | None = None
    try:
        batch = next(batches)
    except HgldError as error:
        fault = error
    if ranks.any(fault is not None or len(damaged.rows) > known):
        found = ranks.collect((fault, damaged.rows))
        fault = next((fault for fault, _ in found if fault is not None), None)
        try:
            damaged.hold(set[int]().union(*(rows for _, rows in found)))
        except HgldError as error:
            fault = fault or error
    if fault is not None:
        raise ranks.told(fault) from None
    return batch


def _facts(data: TrainingData, seeded: _SeededRun, damaged: DamagedImages) -> dict[str, object]:
    """Facts of a model for config.json, beside its architecture."""
    options, run, folder = seeded.options, seeded.run, seeded.folder
    keys = data.keys(sorted(damaged.rows))
    # The recipe is all that decides the model, except the seed.
    recipe = data.fingerprint(options.model_copy(update={"seed": 0}), run)
    return {
        "loss": run.loss if run.steps else "pretrained",
        "steps": run.steps,
        "seed": options.seed,
        "split": options.split,
        "classes": len(data.class_labels),
        "levels": data.levels,
        # A folder by its name: the same model is made of it in any place.
        "run": run.model_dump(mode="json") | {"init_from": Path(run.init_from).name},
        "made_from": folder.fingerprint,
        **({"init_sha256": folder.start_sha256} if folder.start else {}),
        **({"recipe": recipe} if run.steps else {}),
        **({"undecodable": {"images": len(keys), "keys": keys}} if keys else {}),
    }
