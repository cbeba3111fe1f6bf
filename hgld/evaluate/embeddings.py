"""Cache of the embeddings of queries and gallery, one file for each model and shard.

A stopped run resumes at the next shard, and a change of metrics computes no embedding again. Each
shard is a task for any worker process. On a CPU, each thread embeds small batches with one
compute thread, so the number of processes and cores changes no byte. Each file is sealed with a
hash of its bytes, the model and the images; a damaged or misplaced file is computed again.
"""

import io
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch

from hgld.artifacts import map_sealed, write_sealed
from hgld.config import EvaluateOptions
from hgld.errors import Resumable
from hgld.evaluate.given import read_given, require_finite, unit_rows
from hgld.evaluate.mapped_vectors import MappedVectors
from hgld.evaluate.models import Encoder, Model, loaded
from hgld.evaluate.name_queries import embed_prompts
from hgld.evaluate.sides import Rows, Side
from hgld.model.custom import CustomNetwork
from hgld.model.devices import (
    autocast,
    choose_device,
    enough_memory,
    kept_memory,
    require_precision,
    worker_device,
)
from hgld.ray_tasks import FileRange, FileTask, Reserve
from hgld.shards.index import photo_columns
from hgld.shards.location import tar_folder
from hgld.shards.read import ShardImages, stack_images
from hgld.tasks import map_tasks, say, track
from hgld.words import share_text

REVISION = 3  # increase when the same model and shard give other embeddings than before
TOGETHER = 8  # batch size of one thread
TEXTS = "names-"  # start of the names of files of class names
_keeping = WeakKeyDictionary[torch.nn.Module, bool]()  # networks of a user that take turns


@dataclass(frozen=True)
class EmbeddingStore:
    """Store of the embeddings of each model and shard, computed on first use."""

    state: Path
    options: EvaluateOptions

    def embed(self, model: Model, sides: Sequence[Side]) -> dict[str, MappedVectors]:
        """Return split -> (N, D) unit vectors of its samples, mapped from their files.

        Raises:
            InvalidData: embeddings are nan or infinite, or a given file lacks some.
        """
        if model.kind == "given":
            given = read_given(Path(model.source))
            return {
                side.split: MappedVectors((unit_rows(given.of(side.image_ids)),)) for side in sides
            }
        key = self._key(model)
        texts = {side.split: self._texts(model, key, side) for side in sides if side.names}
        tasks = {side.split: self._tasks(model, key, side) for side in sides if not side.names}
        every = {task.path: task for part in tasks.values() for task in part}
        found = {path: task.read() for path, task in every.items()}
        if waiting := [every[path] for path, vectors in found.items() if vectors is None]:
            self._run(waiting)
            found |= {task.path: task.read() for task in waiting}
        mapped = texts | {
            split: MappedVectors(tuple(_found(found[task.path], task.path) for task in own))
            for split, own in tasks.items()
        }
        for side in sides:
            whose = f"{model.stage}: model {model.name}, split {side.split}"
            require_finite(mapped[side.split], whose, side.name_row)
        return mapped

    def waiting(self, model: Model, side: Side) -> Iterator[Rows]:
        """Yield the rows of each file of a side that is not embedded yet, in order."""
        tasks = self._tasks(model, self._key(model), side)
        return (task.rows for task in tasks if task.read() is None)

    def keep_only(self, models: Sequence[Model], sides: Iterable[Side] = ()) -> None:
        """Remove the embeddings of other models and, if sides are given, of all other images."""
        kept = {self._folder(self._key(model)).name for model in models if model.kind != "given"}
        keys = {key for side in sides for _, key in side.parts()}
        for path in (self.state / "embeddings").glob("*"):
            if path.name not in kept:
                shutil.rmtree(path)
            for file in path.glob("*.npy") if keys else ():
                if file.stem not in keys and not file.stem.startswith(TEXTS):
                    file.unlink()

    def _key(self, model: Model) -> str:
        precision = self.options.precision
        return model.key() + ("" if precision == "float32" else f" {precision}")

    def _folder(self, key: str) -> Path:
        return self.state / "embeddings" / sha256(f"{REVISION} {key}".encode()).hexdigest()[:32]

    def _texts(self, model: Model, key: str, side: Side) -> MappedVectors:
        """Return the (N, D) embeddings of class names, computed in this process on first use."""
        of_texts = repr((tuple(side.names), tuple(self.options.prompts)))
        name = f"{TEXTS}{sha256(of_texts.encode()).hexdigest()[:32]}"
        path, holds = self._folder(key) / f"{name}.npy", f"{REVISION} {key} {name}"
        vectors = map_sealed(path, holds)
        if vectors is None:
            # with a cluster, this machine may have no GPU
            device = "auto" if self.options.ray else self.options.device
            encoder = model.load_text(choose_device(device))
            buffer = io.BytesIO()
            np.save(buffer, embed_prompts(encoder, side.names, self.options.prompts))
            write_sealed(path, buffer.getbuffer(), holds)
            vectors = map_sealed(path, holds)
        return MappedVectors((_found(vectors, path),))

    def _tasks(self, model: Model, key: str, side: Side) -> list["EmbedTask"]:
        """Return one task for each file of images, in the order of the rows."""
        # once: at a URL it asks whether the tars are still those of the index
        folder, place = self._folder(key), tar_folder(side.folder)
        return [
            EmbedTask(model, key, place, rows, folder / f"{part}.npy", self.options)
            for rows, part in side.parts()
        ]

    def _run(self, tasks: list["EmbedTask"]) -> None:
        options, start, label = self.options, time.perf_counter(), tasks[0].label
        if options.ray is not None:
            located = [replace(task, model=task.model.located()) for task in tasks]
            reserve = reserve_of(options)
            times = map_tasks(embed_or_keep, located, label, cluster=options.ray, reserve=reserve)
        else:
            choose_device(options.device)  # raises before worker processes are started
            if options.processes > 1 and len(tasks) > 1:
                times = map_tasks(embed_or_keep, tasks, label, options.processes)
            else:
                times = [embed_or_keep(task) for task in tasks]
            loaded.cache_clear()
        images = sum(count for count, _, _ in times)
        if images:
            loading = sum(loading_s for _, loading_s, _ in times)
            network = sum(network_s for *_, network_s in times)
            share = loading / (loading + network)
            say(
                f"{label}: {images:,} images, {images / (time.perf_counter() - start):,.0f} "
                f"images/s; reading and decoding {share_text(share)} of the time, the network "
                f"{share_text(1 - share)}"
            )


@dataclass(frozen=True)
class EmbedTask(FileTask):
    """Inputs of a process that embeds the images of one file."""

    model: Model
    key: str
    folder: Path | str
    rows: Rows
    path: Path
    options: EvaluateOptions

    @property
    def label(self) -> str:
        """Label of its progress."""
        return f"Embedding with {self.model.name}"

    @property
    def holds(self) -> str:
        """Content of the file for its seal: the model, and the key of the images."""
        return f"{REVISION} {self.key} {self.path.stem}"

    def reads(self) -> Iterator[FileRange]:
        """Ranges of the file that hold the images; none of a file at a URL."""
        if isinstance(self.folder, Path):
            places = self.rows[["shard", "offset", "size_bytes"]]
            for name, start, size in places.itertuples(index=False):
                yield self.folder / name, start, size

    def shares(self) -> list[Path]:
        """The model's files."""
        return self.model.files()

    def writes(self) -> list[Path]:
        """The file of embeddings."""
        return [self.path]

    def moved(self, place: Callable[[Path], Path]) -> Self:
        """Return the task for other folders."""
        folder = place(self.folder) if isinstance(self.folder, Path) else self.folder
        model = self.model.moved(place)
        return replace(self, model=model, folder=folder, path=place(self.path))

    def read(self) -> np.ndarray | None:
        """Map the (N, D) embeddings; None if the file is missing or damaged."""
        found = map_sealed(self.path, self.holds)
        if found is None or found.ndim != 2 or found.dtype != np.float32:
            return None
        return found if len(found) == len(self.rows) else None


def reserve_of(options: EvaluateOptions) -> Reserve:
    """Return what a task of the evaluate stage has to itself on a Ray cluster."""
    gpus = options.gpus_per_task
    if gpus is None and options.device != "auto":
        gpus = float(options.device != "cpu")
    return Reserve(options.cpus_per_task, gpus, options.memory_gb_per_task)


def _found(vectors: np.ndarray | None, path: Path) -> np.ndarray:
    if vectors is None:
        raise Resumable(
            f"{path}: was damaged since it was written; run the same command again to have it made "
            "again"
        )
    return vectors


def embed_or_keep(task: EmbedTask) -> tuple[int, float, float]:
    """Write the file of embeddings if it is missing or damaged.

    Returns:
        Number of images, 0 if the file was intact, and seconds of the threads: on reading and
        decoding or waiting for it, and in the network.
    """
    if task.read() is not None:
        return 0, 0.0, 0.0
    model, options = task.model, task.options
    device = worker_device(options.device)
    require_precision(device, options.precision)
    encoder = loaded(model, task.key, device)

    @torch.inference_mode()
    def embed(photos: torch.Tensor) -> np.ndarray:
        with autocast(device, options.precision):
            found = encoder.network(photos.to(device)).float().cpu().numpy()
        # rounded lengths are not quite 1
        return found if options.precision == "float32" else unit_rows(found)

    helps = {
        "evaluate": f"lower evaluate.batch_size (it is {options.batch_size}, of a GPU) or "
        f"evaluate.processes (it is {options.processes}); finished shards are kept",
        "MODEL": "give --device cpu, or a smaller model; finished photos are kept",
    }.get(
        model.stage,
        f'set {model.stage}.device = "cpu", or {model.option_name} to a smaller model; '
        "finished photos are kept",
    )
    message = f"{model.stage}: out of memory while embedding with {model.name}; {helps}"
    batches = _embed_in_threads if device.type == "cpu" else _embed_read_ahead
    with enough_memory(message), kept_memory(device):
        vectors, loading_s, network_s = zip(*batches(task, encoder, embed), strict=True)
        buffer = io.BytesIO()
        np.save(buffer, np.concatenate(vectors))
    write_sealed(task.path, buffer.getbuffer(), task.holds)
    return len(task.rows), sum(loading_s), sum(network_s)


Embed = Callable[[torch.Tensor], np.ndarray]  # photos (n, 3, H, W) -> vectors (n, D)
Batches = Iterator[tuple[np.ndarray, float, float]]  # vectors, seconds: loading, in the network


def _embed_in_threads(task: EmbedTask, encoder: Encoder, embed: Embed) -> Batches:
    """Yield embeddings of a few photos at a time; each thread reads, decodes and computes."""
    network = encoder.network
    images = ShardImages(task.folder, photo_columns(task.rows), encoder.transform)
    together = 1 if encoder.own_size else TOGETHER
    starts = range(0, len(images), together)
    images.read_bytes(0)  # opens the file before several threads use it

    turns: AbstractContextManager[Any] = nullcontext()

    def embed_few(start: int) -> tuple[np.ndarray, float, float]:
        times = [time.perf_counter()]
        numbers = range(start, min(start + together, len(images)))
        fetched = images.fetch(numbers)  # of a URL several at a time; none of a local folder
        photos = stack_images([images.load(n, fetched.get(n)) for n in numbers])
        times.append(time.perf_counter())
        with turns:
            found = embed(photos)
        return found, times[1] - times[0], time.perf_counter() - times[1]

    def embed_all(pool: ThreadPoolExecutor) -> Batches:
        nonlocal turns
        # a network of a user may keep what a call found
        is_custom = any(isinstance(module, CustomNetwork) for module in network.modules())
        alone = 2 if is_custom and network not in _keeping else 0
        if alone:  # the first call may set what all others need
            yield from map(embed_few, starts[:1])
            before = [dict(vars(module)) for module in network.modules()]
            yield from map(embed_few, starts[1:alone])
            if len(starts) > 1:
                _keeping[network] = _keeps_calls(network, before)
        if _keeping.get(network):
            turns = Lock()
        yield from pool.map(embed_few, starts[alone:])

    # single-threaded workers; over all processes, one for each core
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(max(1, cores // task.options.processes))
    try:
        yield from track(embed_all(pool), task.label, len(starts))
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(cores)


def _embed_read_ahead(task: EmbedTask, encoder: Encoder, embed: Embed) -> Batches:
    """Yield embeddings of a batch; the next is read and decoded while the network computes."""
    from hgld.shards.load import ImageLoader  # imports numba, for batches

    loader = ImageLoader(
        task.folder,
        photo_columns(task.rows),
        encoder.transform,
        batch_size=1 if encoder.own_size else task.options.batch_size,
        workers=task.options.workers,
    )
    with closing(iter(loader)) as batches, ThreadPoolExecutor(1) as ahead:
        waiting = ahead.submit(next, batches, None)
        for _ in track(range(len(loader)), task.label, len(loader)):
            start = time.perf_counter()
            batch = waiting.result()
            assert batch is not None  # as many as the loader has
            waiting = ahead.submit(next, batches, None)
            middle = time.perf_counter()
            yield embed(batch[0]), middle - start, time.perf_counter() - middle
        waiting.result()


def _keeps_calls(network: torch.nn.Module, before: list[dict[str, Any]]) -> bool:
    """Whether a network keeps what a call found: in a hook, or in an attribute that it changed.

    Threads that call it at once would take each other's.
    """
    after = [vars(module) for module in network.modules()]
    return (
        any(one["_forward_hooks"] or one["_forward_pre_hooks"] for one in after)
        or [one.keys() for one in before] != [one.keys() for one in after]
        or any(
            one[name] is not other[name]
            for one, other in zip(before, after, strict=True)
            for name in one
        )
    )
