"""Embeddings of queries and gallery, kept for each model and shard.

A run that was stopped goes on with the next shard, and another set of metrics embeds nothing again.
Shards are tasks that any process may do. A CPU embeds a few photos at a time on each thread, one
thread to them: so neither the number of processes nor that of cores changes a byte. A file is
sealed with the model and the images that it is of, so that one that was damaged, or put in the
place of another, is made again.
"""

import io
import multiprocessing
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from hgld.artifacts import read_sealed, write_sealed
from hgld.config import EvaluateOptions
from hgld.errors import HgldError, Resumable
from hgld.evaluate.given import read_given, require_finite, unit_rows
from hgld.evaluate.models import Encoder, Model, loaded
from hgld.evaluate.sides import Side
from hgld.model.weights import choose_device, is_short_of_memory
from hgld.shards.load import ImageLoader
from hgld.shards.read import ShardImages
from hgld.tasks import map_tasks, track

__all__ = ["EmbeddingStore"]

REVISION = 3  # of the embedding: higher when the same model embeds the same shard otherwise
TOGETHER = 8  # photos that a thread embeds at a time


@dataclass(frozen=True)
class EmbeddingStore:
    """Embeddings of each model and shard, computed when they are first asked for."""

    state: Path
    options: EvaluateOptions

    def embed(self, model: Model, sides: Sequence[Side]) -> dict[str, np.ndarray]:
        """Split -> (N, D) unit vectors of its samples.

        Raises:
            InvalidData: embeddings that are no finite numbers, or are not there (given ones).
        """
        if model.kind == "given":
            given = read_given(Path(model.source))
            return {side.split: unit_rows(given.of(side.image_ids)) for side in sides}
        tasks = {side.split: self._tasks(model, side) for side in sides}
        every = {task.path: task for part in tasks.values() for task in part}
        if waiting := [task for task in every.values() if not task.is_done()]:
            self._run(waiting, f"Embedding with {model.name}")
        return {side.split: _read(tasks[side.split], side, model) for side in sides}

    def keep_only(self, models: Sequence[Model]) -> None:
        """Remove the embeddings of other models."""
        kept = {self._folder(model).name for model in models if model.kind != "given"}
        for path in (self.state / "embeddings").glob("*"):
            if path.name not in kept:
                shutil.rmtree(path)

    def _folder(self, model: Model) -> Path:
        key = sha256(f"{REVISION} {model.key()}".encode()).hexdigest()
        return self.state / "embeddings" / key[:32]

    def _tasks(self, model: Model, side: Side) -> list["EmbedTask"]:
        """One for each file of images, in the order of the rows."""
        folder, key = self._folder(model), model.key()
        return [
            EmbedTask(model, key, part.folder, part.rows, folder / f"{part.key}.npy", self.options)
            for part in side.parts()
        ]

    def _run(self, tasks: list["EmbedTask"], label: str) -> None:
        processes, cluster = self.options.processes, self.options.ray
        choose_device(self.options.device)  # before processes are started for nothing
        if cluster is not None or (processes > 1 and len(tasks) > 1):
            map_tasks(embed_or_keep, tasks, label, processes, cluster)
        else:
            for task in tasks:
                embed_or_keep(task)
        loaded.cache_clear()


@dataclass(frozen=True)
class EmbedTask:
    """All that a process needs to embed the images of one file."""

    model: Model
    key: str
    folder: Path
    rows: pd.DataFrame
    path: Path
    options: EvaluateOptions

    @property
    def holds(self) -> str:
        """What the file is of: the model, and the images by their key."""
        return f"{REVISION} {self.key} {self.path.stem}"

    def is_done(self) -> bool:
        """Whether the embeddings are there, one for each image, as they were written."""
        return self.read() is not None

    def read(self) -> np.ndarray | None:
        """(N, D) embeddings; None unless they are there as they were written."""
        content = read_sealed(self.path, self.holds)
        if content is None:
            return None
        found = np.load(io.BytesIO(content))
        fits = found.ndim == 2 and found.dtype == np.float32 and len(found) == len(self.rows)
        return np.asarray(found) if fits else None


def embed_or_keep(task: EmbedTask) -> Path:
    """The file of embeddings, which is written unless it is there."""
    if not task.is_done():
        device = _own_device(task.options.device)
        encoder = loaded(task.model, task.key, device)
        buffer = io.BytesIO()
        with _memory_told(task):
            np.save(buffer, np.concatenate(list(_embed(task, encoder, device))))
        write_sealed(task.path, buffer.getbuffer(), task.holds)
    return task.path


@contextmanager
def _memory_told(task: EmbedTask) -> Iterator[None]:
    """Say in one line that the memory does not suffice, and what would need less."""
    try:
        yield
    except RuntimeError as error:
        if not is_short_of_memory(error):
            raise
        raise HgldError(
            f"evaluate: out of memory while embedding with {task.model.name}; lower "
            f"evaluate.batch_size (it is {task.options.batch_size}, of a GPU) or "
            f"evaluate.processes (it is {task.options.processes}); finished shards are kept"
        ) from None


def _own_device(name: str) -> torch.device:
    """The device; of several GPUs, each worker process takes the next."""
    device = choose_device(name)
    number = next(iter(multiprocessing.current_process()._identity), None)
    if device.type == "cuda" and device.index is None and number is not None:
        return torch.device("cuda", (number - 1) % torch.cuda.device_count())
    return device


def _embed(task: EmbedTask, encoder: Encoder, device: torch.device) -> Iterator[np.ndarray]:
    """(n, D) embeddings of some photos after the other."""
    label = f"Embedding with {task.model.name}"
    if device.type == "cpu":
        images = ShardImages(task.folder, task.rows, encoder.transform)
        starts = range(0, len(images), TOGETHER)
        images.read_bytes(0)  # the file is open before several threads ask for it
        with _threads(task.options.processes) as pool:
            found = pool.map(lambda start: _embed_few(images, start, encoder), starts)
            yield from track(found, label, len(starts))
        return
    options = task.options
    loader = ImageLoader(
        task.folder,
        task.rows,
        encoder.transform,
        batch_size=options.batch_size,
        workers=options.workers,
    )
    with torch.inference_mode(), closing(iter(loader)) as batches:
        for photos, _, _ in track(batches, label, len(loader)):
            yield encoder.network(photos.to(device)).float().cpu().numpy()


@torch.inference_mode()
def _embed_few(images: ShardImages, start: int, encoder: Encoder) -> np.ndarray:
    stop = min(start + TOGETHER, len(images))
    photos = torch.stack([images[number][0] for number in range(start, stop)])
    found: torch.Tensor = encoder.network(photos)
    return found.float().numpy()


@contextmanager
def _threads(processes: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that compute alone; together with those of other processes, one a core."""
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(max(1, cores // processes))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(cores)


def _read(tasks: Sequence[EmbedTask], side: Side, model: Model) -> np.ndarray:
    """(N, D) embeddings of all tasks, one after the other."""
    vectors, start = np.empty((0, 0), np.float32), 0
    for task in tasks:
        found = task.read()
        if found is None:
            raise Resumable(
                f"{task.path}: was damaged since it was written; run the same command again to "
                "have it made again"
            )
        if not start:
            vectors = np.empty((len(side.rows), found.shape[1]), np.float32)
        vectors[start : start + len(found)] = found
        start += len(found)
    require_finite(vectors, f"evaluate: model {model.name}, split {side.split}", side.image_ids)
    return vectors
