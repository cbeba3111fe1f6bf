"""Cache of the embeddings of queries and gallery, one file for each model and shard.

A stopped run resumes at the next shard, and a change of metrics computes no embedding again. Each
shard is a task for any worker process. On a CPU, each thread embeds small batches with one
compute thread, so the number of processes and cores changes no byte. Each file is sealed with a
hash of its bytes, the model and the images; a damaged or misplaced file is computed again.
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

REVISION = 3  # increase when the same model and shard give other embeddings than before
TOGETHER = 8  # batch size of one thread


@dataclass(frozen=True)
class EmbeddingStore:
    """Store of the embeddings of each model and shard, computed on first use."""

    state: Path
    options: EvaluateOptions

    def embed(self, model: Model, sides: Sequence[Side]) -> dict[str, np.ndarray]:
        """Return split -> (N, D) unit vectors of its samples.

        Raises:
            InvalidData: embeddings are nan or infinite, or a given file lacks some.
        """
        if model.kind == "given":
            given = read_given(Path(model.source))
            return {side.split: unit_rows(given.of(side.image_ids)) for side in sides}
        key = model.key()
        tasks = {side.split: self._tasks(model, key, side) for side in sides}
        every = {task.path: task for part in tasks.values() for task in part}
        if waiting := [task for task in every.values() if not task.is_done()]:
            self._run(waiting, f"Embedding with {model.name}")
        return {side.split: _read(tasks[side.split], side, model) for side in sides}

    def keep_only(self, models: Sequence[Model]) -> None:
        """Remove the embeddings of other models."""
        kept = {self._folder(model.key()).name for model in models if model.kind != "given"}
        for path in (self.state / "embeddings").glob("*"):
            if path.name not in kept:
                shutil.rmtree(path)

    def _folder(self, key: str) -> Path:
        return self.state / "embeddings" / sha256(f"{REVISION} {key}".encode()).hexdigest()[:32]

    def _tasks(self, model: Model, key: str, side: Side) -> list["EmbedTask"]:
        """Return one task for each file of images, in the order of the rows."""
        folder = self._folder(key)
        return [
            EmbedTask(model, key, part.folder, part.rows, folder / f"{part.key}.npy", self.options)
            for part in side.parts()
        ]

    def _run(self, tasks: list["EmbedTask"], label: str) -> None:
        processes, cluster = self.options.processes, self.options.ray
        choose_device(self.options.device)  # raises before worker processes are started
        if cluster is not None or (processes > 1 and len(tasks) > 1):
            map_tasks(embed_or_keep, tasks, label, processes, cluster)
        else:
            for task in tasks:
                embed_or_keep(task)
        loaded.cache_clear()


@dataclass(frozen=True)
class EmbedTask:
    """Inputs of a process that embeds the images of one file."""

    model: Model
    key: str
    folder: Path
    rows: pd.DataFrame
    path: Path
    options: EvaluateOptions

    @property
    def holds(self) -> str:
        """Content of the file for its seal: the model, and the key of the images."""
        return f"{REVISION} {self.key} {self.path.stem}"

    def is_done(self) -> bool:
        """Whether the file has intact embeddings of all images."""
        return self.read() is not None

    def read(self) -> np.ndarray | None:
        """Return (N, D) embeddings; None if the file is missing or damaged."""
        content = read_sealed(self.path, self.holds)
        if content is None:
            return None
        found = np.load(io.BytesIO(content))
        fits = found.ndim == 2 and found.dtype == np.float32 and len(found) == len(self.rows)
        return np.asarray(found) if fits else None


def embed_or_keep(task: EmbedTask) -> Path:
    """Return the file of embeddings; compute it if it is missing or damaged."""
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
    """Turn an out-of-memory error into one line that names options which need less."""
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
    """Return the device; with several GPUs, worker processes take them in turn."""
    device = choose_device(name)
    # worker processes are numbered from 1; the main process has no number
    number = next(iter(multiprocessing.current_process()._identity), None)
    if device.type == "cuda" and device.index is None and number is not None:
        return torch.device("cuda", (number - 1) % torch.cuda.device_count())
    return device


def _embed(task: EmbedTask, encoder: Encoder, device: torch.device) -> Iterator[np.ndarray]:
    """Yield (n, D) embeddings, one batch of photos after the other."""
    label = f"Embedding with {task.model.name}"
    if device.type == "cpu":
        images = ShardImages(task.folder, task.rows, encoder.transform)
        starts = range(0, len(images), TOGETHER)
        images.read_bytes(0)  # opens the file before several threads use it
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
    """Yield a pool of single-threaded workers; over all processes, one for each core."""
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(max(1, cores // processes))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(cores)


def _read(tasks: Sequence[EmbedTask], side: Side, model: Model) -> np.ndarray:
    """Return the (N, D) embeddings of all tasks, concatenated."""
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
