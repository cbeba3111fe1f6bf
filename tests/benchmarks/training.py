"""Measures the trainer: its loader, the model replaced by nothing, and the parts of a step.

The loader has to give batches as fast as the same number of processes read, decode and augment the
same images with nothing around it: no batches, no seeds, no hand-over. Compared are the processor
seconds of all processes, those of starting them taken off, since other work shares the machine.
A step is measured in elapsed seconds, by the trainer itself.
``python -m tests.benchmarks.training`` prints it.
"""

import json
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch

from hgld.config import RunOptions, SourceOptions, StageContext, TrainOptions
from hgld.model.model_folder import ImageConfig
from hgld.model.transforms import training_transform
from hgld.shards.batches import BatchPlan
from hgld.shards.read import ShardImages
from hgld.tasks import watched_by
from hgld.train import train_models
from hgld.train.data import TrainingData, batch_options
from hgld.train.runs import RunFolder
from tests.benchmarks.meters import PROCESSES, Row, fastest, from_process
from tests.benchmarks.shards import make_source, write_shards

CONFIG = ImageConfig("none", "none", 8, 224, (0.5,) * 3, (0.5,) * 3, "bilinear", True, "")
BATCH = 64
Way = Callable[[TrainingData, TrainOptions, int], None]


def loader(steps: int = 40, side: int = 320) -> dict[str, Any]:
    """Processor time of the trainer's loader and of the bare work, a process a core."""
    cores = len(os.sched_getaffinity(0))
    options = TrainOptions(classes_per_batch=16, images_per_class=4, workers=cores)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards = write_shards(folder, "shards", make_source(folder / "source", 1600, side))
        data = TrainingData.read(shards, options)
        ways: dict[str, Way] = {"loader": _through_loader, "bare": _bare}
        lengths = (cores, cores + steps)
        works = {
            (way, length): partial(run, data, options, length)
            for way, run in ways.items()
            for length in lengths
        }
        least = fastest(works, clock=cpu_seconds, warm_up=False)
        start = time.perf_counter()
        _through_loader(data, options, steps)
        wall = time.perf_counter() - start
    cpu = {way: least[way, lengths[1]] - least[way, lengths[0]] for way in ways}
    return {
        "cores": cores,
        "cpu_ms_an_image": {way: round(s / steps / BATCH * 1e3, 3) for way, s in cpu.items()},
        "images_per_s": round(steps * BATCH / wall),
        "loader, of bare": round(cpu["bare"] / cpu["loader"], 3),
    }


def step(steps: int = 6, images: int = 640, side: int = 224, **changes: Any) -> dict[str, float]:
    """Seconds of training steps by part; without the first, which loads, and the last, which saves.

    What is left beside the trainer's own timings is logging: its files, pace and progress.
    """
    options = TrainOptions(
        backbone="offline:efficientnet-lite0", dim=256, image_size=128, classes_per_batch=16,
        images_per_class=4, workers=len(os.sched_getaffinity(0)), device="cpu",
        runs={"happier": RunOptions(loss="HAPPIER", steps=steps)},
    ).model_copy(update=changes)  # fmt: skip
    ends: list[float] = []

    def watch(items: Iterable[Any], label: str, total: int | None, done: int) -> Iterator[Any]:
        for item in items:
            yield item
            if label.startswith("Training"):
                ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards = write_shards(folder, "shards", make_source(folder / "source", images, side))
        context = StageContext("2026-01-01", folder / "state", SourceOptions(folder=folder), folder)
        with watched_by(watch, lambda _: None):
            train_models(shards, options=options, context=context, out=folder / "models")
        seconds = RunFolder(folder / "models" / "happier", "").seconds(1, steps - 1)
    whole = ends[-2] - ends[0]
    return {**seconds, "logging": whole - seconds["all"], "all": whole}


def cpu_seconds() -> float:
    """Of this process and those that it has started and that have ended."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(who)[:2]) for who in whose)


def _through_loader(data: TrainingData, options: TrainOptions, steps: int) -> None:
    for _ in data.loader(CONFIG, options).load(range(steps)):
        pass  # the model that is nothing


def _bare(data: TrainingData, options: TrainOptions, steps: int) -> None:
    plan = BatchPlan(data.samples, batch_options(options), seed=options.seed)
    batches = [plan.at(step).rows.tolist() for step in range(steps)]
    context = get_context("fork")
    workers = [
        context.Process(target=_work, args=(data, batches[number :: options.workers]))
        for number in range(options.workers)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not any(worker.exitcode for worker in workers), "the bare work failed"


def _work(data: TrainingData, batches: list[list[int]]) -> None:
    """Read, decode, augment, drop."""
    torch.set_num_threads(1)
    images = ShardImages(data.folder, data.images, training_transform(CONFIG))
    for batch in batches:
        for row in batch:
            images[row]


def rows() -> list[Row]:
    """As rows of the table, with the bound that they should keep."""
    found = [from_process("-m", "tests.benchmarks.training") for _ in range(PROCESSES)]
    of_bare = median(measured["loader, of bare"] for measured in found)
    what = f"training's loader, {found[0]['cores']} processes, of its bare work"
    whole = step()
    beside = ("data", "loss", "optimizer", "logging")
    shares = {part: 100 * whole[part] / whole["all"] for part in beside}
    name = f"training step B={BATCH}"
    return [
        Row(what, of_bare, "x", 0.9, aim=0.95),
        Row(f"{name}, all but the model", sum(shares.values()), "%", aim=3),
        *(Row(f"  its {part}", share, "%") for part, share in shares.items()),
    ]


if __name__ == "__main__":
    print(json.dumps(loader()))
