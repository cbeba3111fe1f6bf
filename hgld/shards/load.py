"""Load planned batches for training, and all images in index order for embedding.

Two readers produce the same batches: ``indexed`` reads any sample by its offset, ``stream`` reads
whole shards from front to back and holds the images that coming steps need. Worker processes read,
decode and transform ahead for both. The augmentation of an image depends on its step and on its
place in the global batch, never on the process that loads it.
"""

import atexit
import os
import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, groupby
from math import comb
from multiprocessing.process import BaseProcess
from multiprocessing.util import _exit_function, get_temp_dir  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C import _remove_worker_pids
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from hgld.artifacts import hash_file
from hgld.errors import DamagedImage, HgldError, InvalidData, Resumable, UsageError
from hgld.shards.batches import (
    BatchPlan,
    GlobalBatch,
    part_of_rank,
    require_rank,
    step_seed,
)
from hgld.shards.cache import CACHE_GB
from hgld.shards.damaged import DamagedImages, exceeded, spare_rows
from hgld.shards.image_table import ImageTable
from hgld.shards.index import require_columns
from hgld.shards.read import Batch, ShardImages, Transform, stack_images
from hgld.shards.sampling import (
    BatchOptions,
    Samples,
    count_classes,
    count_groups,
    count_rows,
    parents_of,
    require_count,
)
from hgld.shards.stream import reads_per_byte, stream_batches
from hgld.stopping import handled, held_back, ignore_requests
from hgld.storage import RemoteFolder, as_folder, read_ahead
from hgld.tasks import say_or_warn
from hgld.words import some_of

Reader = Literal["indexed", "stream"]
Filled = tuple[Any, np.ndarray, GlobalBatch, set[int]]  # first the images, or their ring's slot
Item = TypeVar("Item", bound=tuple[Any, ...])
DIED = (
    "a process that loads images died (out of memory, or killed); the same command resumes from "
    "the last checkpoint; lower train.workers if it happens again"
)
AHEAD = 2  # batches that each worker prepares ahead


@dataclass(frozen=True)
class LoadedBatch:
    """One rank's part of a batch.

    Attributes:
        images: (B, ...) of this rank.
        rows: (B,) their row numbers; for a damaged image its replacement's; -1 is padding.
        planned: the batch of all ranks, as it was planned.
    """

    images: Tensor
    rows: Tensor
    planned: GlobalBatch


class BatchLoader(IterableDataset[Batch]):
    """The batches of one rank: images (B, ...), labels (B, L), row numbers (B,).

    For padding of small classes, the image is zeros and labels and row number are -1.

    Iterating yields the rest of the current epoch; ``load`` yields any steps. ``state_dict`` counts
    the batches that were yielded, not those that workers have prepared beyond them, and includes
    the damaged images found. A state can be loaded with any number of workers and ranks.

    It is an ``IterableDataset``: ``DataLoader(loader)`` and torchdata's ``StatefulDataLoader`` pass
    its batches on, without more workers. Lightning and Accelerate take the loader itself and save
    its state; ``examples/`` has a script for each.

    The reader "stream" holds up to 100 MB per worker in memory and the rest in a temporary file, in
    the folder that TMPDIR names, which should be on a disk.

    Args:
        folder: of the shards, or its URL.
        rows: rows of the index, or ImageTable.read, which holds many images in files.
        transform: converts a PIL image in RGB to a tensor; may use torch's random numbers on the
            CPU.
        options: composition of a batch.
        seed: of the training run.
        reader: "indexed" for both orders, "stream" for the order "shards".
        rank: of this process.
        world_size: processes that share each global batch; default: 1, with a warning if
            torch.distributed has several processes, which would all train on the same images.
        workers: processes that read and decode for this rank; 0: the calling process.
        undecodable_budget: damaged images that this rank tolerates, over all its workers and
            epochs; each is reported once, by a warning outside of a command. It is replaced by
            another image of its class, whose row number is returned.
        damaged: known damaged images, to which new ones are added; default: none, with the budget.
        cache_gb: for a URL and the reader "indexed": size in GB of the cache on this machine's
            disk, which all its processes share; 0: no cache.
        image_shape: (C, H, W), if the transform returns bytes of this shape. Workers then write
            into one shared ring buffer, which saves copies between processes; images are valid
            until the next batch is requested.

    Raises:
        UsageError: arguments do not fit together; while loading: an image is not of image_shape.
        Resumable: while loading: a worker died, or the disk of temporary files is full.
        InvalidData: while loading: not a single batch can be made, or more images are damaged
            than the budget allows.
    """

    def __init__(
        self,
        folder: Path | str,
        rows: pd.DataFrame | ImageTable,
        transform: Transform,
        options: BatchOptions,
        *,
        seed: int,
        reader: Reader = "indexed",
        rank: int = 0,
        world_size: int | None = None,
        workers: int = 0,
        undecodable_budget: int = 0,
        damaged: DamagedImages | None = None,
        cache_gb: float = CACHE_GB,
        image_shape: tuple[int, int, int] | None = None,
    ) -> None:
        if reader not in get_args(Reader):
            expected = ", ".join(get_args(Reader))
            raise UsageError(f"reader is {reader!r}; expected one of {expected}")
        if reader == "stream" and options.order != "shards":
            raise UsageError("the reader 'stream' needs the order 'shards'")
        require_count("workers", workers, least=0)
        manifest_sha256 = _hash_manifest(folder)
        if not isinstance(rows, ImageTable):
            require_columns(rows, ["level_1", "run"])
            splits = [*rows["split"].unique()] if "split" in rows else []
            if "train" in splits and len(splits) > 1:
                say_or_warn(
                    f"the images to train on are of the splits {some_of(splits, 3)}; "
                    "rows.query(\"split == 'train'\") leaves out those of the evaluation"
                )
            rows = ImageTable.of_rows(rows)  # once: the reader and the plan share its columns
        self._images = ShardImages(folder, rows, transform, cache_gb=cache_gb)
        self.plan = BatchPlan(
            Samples.of_index(rows), options, seed=seed, manifest_sha256=manifest_sha256
        )
        world_size = processes_of(world_size, "BatchLoader")
        self._part = part_of_rank(self.plan.batch_size, rank, world_size)
        times = reads_per_byte(options, world_size, workers) if reader == "stream" else 1
        if times > 1 and rank == 0:
            say_or_warn(
                f"every byte of the shards is read {times:g} times an epoch; more lanes spare that"
            )
        self._reader, self._workers, self._image_shape = reader, workers, image_shape
        self._damaged = damaged or DamagedImages(undecodable_budget, self._images.name)
        self._next = 0  # next step to yield, counted through all epochs
        self._reports_groups = rank == 0 and options.groups_per_batch is not None

    def __len__(self) -> int:
        """Steps of the current epoch."""
        return len(self._epoch())

    def __iter__(self) -> Iterator[Batch]:
        # a copy of this loader, whose place is lost after each epoch
        _refuse_worker("BatchLoader", ", and the same epoch again and again")
        with closing(self.load(range(self._next, self._epoch().stop))) as batches:
            for batch in batches:
                self._next += 1
                rows = batch.rows.numpy()
                labels = np.where(rows[:, None] >= 0, self._images.labels[rows], np.int64(-1))
                yield Batch((batch.images, torch.from_numpy(labels), batch.rows))

    def load(self, steps: Sequence[int]) -> Generator[LoadedBatch]:
        """Yield the batches of some steps, counted through all epochs; leaves the state as is."""
        self._report_groups()
        ring, damaged = self._new_ring(), self._damaged
        parts = self._images, self.plan, self._part, self._reader, steps, ring
        work = _BatchWorker(*parts, damaged.budget, set(damaged.rows))
        with closing(_load_ahead(work, len(steps), self._workers)) as loaded:
            for images, rows, planned, met in loaded:
                damaged.hold(met)
                if ring is not None:
                    images = ring[images]
                yield LoadedBatch(images, torch.from_numpy(rows), planned)

    def _new_ring(self) -> Tensor | None:
        """Shared memory of (slots, B, C, H, W) bytes that workers fill, stored channels-last.

        Decoders and the model use that layout, so no copy has to reorder the bytes.
        """
        if self._image_shape is None:
            return None
        channels, height, width = self._image_shape
        # One slot is in use, one was just used, and each worker fills or has filled AHEAD slots.
        slots, images = AHEAD * self._workers + 2, self._part.stop - self._part.start
        ring = torch.empty(slots, images, height, width, channels, dtype=torch.uint8)
        with _room_to_share(ring.nbytes):
            ring.share_memory_()  # type: ignore[no-untyped-call]
        return ring.permute(0, 1, 4, 2, 3)

    def state_dict(self) -> dict[str, Any]:
        """The next step to yield, and the damaged images so far."""
        return {**self.plan.state_of(self._next), "undecodable": self._damaged.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume after the last batch of a saved state.

        Raises:
            InvalidData: it was saved with other shards, batch options or another seed, or its step
                does not exist.
        """
        self._next = self.plan.step_of(state)
        if "undecodable" in state:
            self._damaged.load_state_dict(state["undecodable"])

    def _epoch(self) -> range:
        return self.plan.steps_of(self.plan.epoch_of(self._next))

    def _report_groups(self) -> None:
        """Report once if most batches are lost, because few parents have enough classes."""
        if not self._reports_groups:
            return
        self._reports_groups = False
        options, samples = self.plan.options, self.plan.samples
        groups, each = options.groups_per_batch or 1, options.batches_per_combination
        if each is not None:
            there = np.count_nonzero(count_classes(parents_of(samples.labels))[1])
            possible = least = comb(there, groups) * each
        else:
            _, size = count_classes(samples.labels[:, -1])
            counts = count_groups(size[size > 0], options)
            possible = count_rows(counts, options.classes_per_batch)
            least = -(-possible // 2)
        if len(self) < least:
            say_or_warn(
                f"groups_per_batch={groups} makes {len(self):,} of {possible:,} "
                "batches an epoch: the others find no group with as many classes; "
                "measure_coverage counts what is left out"
            )


def _refuse_worker(loader: str, harm: str = "") -> None:
    """Refuse to iterate over a loader, which has workers itself, in a worker of a DataLoader."""
    worker: Any = get_worker_info()
    if worker is not None:
        raise UsageError(
            f"a worker of a DataLoader would load all batches{harm}; give num_workers=0, and "
            f"workers to {loader}"
        )


def processes_of(world_size: int | None, loader: str) -> int:
    """Return the number of processes that share a batch; of None 1, and warn if there are several.

    Args:
        world_size: as given.
        loader: what it was given to.
    """
    if world_size is not None:
        return world_size
    joined = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    if joined > 1 and dist.get_rank() == 0:
        say_or_warn(
            f"each of {joined} processes loads all images of each batch; give {loader} rank and "
            "world_size (world_size=1 if this is meant)"
        )
    return 1


def _hash_manifest(folder: Path | str) -> str:
    """SHA-256 of the manifest of a folder or URL; empty if there is none."""
    found = as_folder(folder)
    if isinstance(found, Path):
        path = found / "manifest.json"
        return hash_file(path) if path.is_file() else ""
    try:
        # read, not downloaded: a download asks by HEAD, whose refusal does not give its reason
        return sha256(RemoteFolder(found).read("manifest.json")).hexdigest()
    except InvalidData:
        return ""


@dataclass
class _BatchWorker:
    """Read, decode and transform the batches of the steps that a worker is given.

    Attributes:
        damaged: row numbers of all damaged images known to this worker.
    """

    images: ShardImages
    plan: BatchPlan
    part: slice
    reader: Reader
    steps: Sequence[int]
    ring: Tensor | None
    budget: int
    damaged: set[int]

    def __call__(self, numbers: range) -> Iterator[Filled]:
        """Yield the batches of the steps at these indices of ``steps``."""
        if self.reader == "indexed":
            planned = ((number, self.plan.at(self.steps[number])) for number in numbers)
            if not self.images.is_remote:
                yield from (self._fill(number, batch, {}) for number, batch in planned)
                return

            def fetch(place: tuple[int, GlobalBatch]) -> tuple[int, GlobalBatch, dict[int, bytes]]:
                rows = place[1].rows[self.part]
                return *place, self.images.fetch(rows[rows >= 0])

            # The next batch is fetched while this one is decoded.
            with closing(read_ahead(fetch, planned, ahead=AHEAD)) as fetched:
                for number, batch, held in fetched:
                    yield self._fill(number, batch, held)
            return
        for epoch, found in groupby(numbers, lambda n: self.plan.epoch_of(self.steps[n])):
            places = list(found)
            batches = [self.plan.at(self.steps[number]) for number in places]
            rows = [batch.rows[self.part] for batch in batches]
            jpegs = stream_batches(self.images, self.plan, epoch, rows)
            for number, batch, held in zip(places, batches, jpegs, strict=True):
                yield self._fill(number, batch, held)

    def _fill(self, number: int, batch: GlobalBatch, jpegs: Mapping[int, bytes]) -> Filled:
        # A copy, since replacements must not change the plan's rows.
        rows = batch.rows[self.part].copy()
        slot = 0 if self.ring is None else number % len(self.ring)
        images: Any = [None] * len(rows) if self.ring is None else self.ring[slot]
        promised = () if self.ring is None else tuple(self.ring.shape[2:])
        # Seeded per image, so that the augmentation does not depend on workers or ranks.
        with torch.random.fork_rng(devices=[]):
            for place, row in enumerate(rows.tolist()):
                if row < 0:
                    continue
                at = self.part.start + place
                seed = step_seed(self.plan.seed, batch.step, f"augmentation {at}")
                torch.default_generator.manual_seed(seed)
                rows[place], image = self._image(batch, at, jpegs.get(row))
                # The ring would round it to bytes, or repeat it to fill its slot.
                if promised and (image.dtype, tuple(image.shape)) != (torch.uint8, promised):
                    raise UsageError(
                        f"the transform returned {image.dtype} of shape {tuple(image.shape)}; "
                        f"image_shape {promised} promises torch.uint8 of this shape; correct one "
                        "of the two"
                    )
                images[place] = image
            if (rows < 0).any():
                # As an image of this part or, if the part is all padding, of the batch.
                places = np.flatnonzero(batch.rows >= 0).tolist()
                others = (self._image(batch, at)[1] for at in places)
                blank = torch.zeros_like(next(i for i in chain(images, others) if i is not None))
                for place in np.flatnonzero(rows < 0).tolist():
                    images[place] = blank
        filled = stack_images(images) if self.ring is None else slot
        return filled, rows, batch, set(self.damaged)

    def _image(self, batch: GlobalBatch, at: int, jpeg: bytes | None = None) -> tuple[int, Tensor]:
        """Row number and tensor of a cell of the batch; the replacement's if it is damaged."""
        planned = int(batch.rows[at])
        spare = spare_rows(batch, at, self.images.labels, self.plan.seed)
        for row in chain([planned], spare):
            try:
                return row, self.images.load(row, jpeg)
            except DamagedImage as error:
                self.damaged.add(row)
                if len(self.damaged) > self.budget:
                    raise exceeded(str(error), len(self.damaged), self.budget) from None
            jpeg = None  # is not the spare's
        raise InvalidData(f"{self.images.name(planned)}: no image of its class can be decoded")


def _row_numbers(numbers: Sequence[int] | np.ndarray, count: int) -> np.ndarray:
    """Return (n,) row numbers; refuse a mask, which would be read as rows 0 and 1."""
    found = np.asarray(numbers) if len(numbers) else np.empty(0, np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        mask = ": np.flatnonzero(numbers)" if found.dtype.kind == "b" else ""
        raise UsageError(
            f"numbers are {found.dtype} of shape {found.shape}; expected row numbers{mask}"
        )
    if found.size and not 0 <= found.min() <= found.max() < count:
        raise UsageError(
            f"numbers run from {found.min()} to {found.max()}; the rows are 0 to {count - 1}"
        )
    return found.astype(np.int64)


class ImageLoader(IterableDataset[Batch]):
    """Every image once, in row order: images (n, ...), labels (n, L), row numbers (n,).

    For classification and embedding passes. Images that are adjacent in a shard are read together.
    ``DataLoader(loader)`` passes its batches on, without more workers.

    Args:
        folder: of the shards.
        rows: rows of the index, or ImageTable.read.
        transform: converts a PIL image in RGB to a tensor.
        batch_size: most images in a batch.
        numbers: row numbers of the images to load; default: all.
        rank: of this process.
        world_size: processes that share the images; their shares differ by one image at most.
        workers: processes that read and decode for this rank; 0: the calling process.
        damaged: records the damaged images, which are left out; default: the first one is raised.

    Raises:
        UsageError: batch_size, numbers, rank or workers are impossible.
        DamagedImage: while iterating: an image was changed, or cannot be decoded.
        InvalidData: while iterating: more images are damaged than the budget of ``damaged`` allows.
        Resumable: while iterating: a worker died.

    Example:
        >>> from hgld.shards import read_index
        >>> def mean_colour(folder, transform):
        ...     loader = ImageLoader(folder, read_index(folder), transform, batch_size=64)
        ...     return torch.stack([images.mean((0, 2, 3)) for images, _, _ in loader]).mean(0)
    """

    def __init__(
        self,
        folder: Path | str,
        rows: pd.DataFrame | ImageTable,
        transform: Transform,
        *,
        batch_size: int,
        numbers: Sequence[int] | np.ndarray | None = None,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 0,
        damaged: DamagedImages | None = None,
    ) -> None:
        require_count("batch_size", batch_size)
        require_count("workers", workers, least=0)
        require_rank(rank, world_size)
        self._images = ShardImages(folder, rows, transform)
        wanted = _row_numbers(np.arange(len(rows)) if numbers is None else numbers, len(rows))
        own = np.array_split(wanted, world_size)[rank]
        self._batches = np.split(own, range(batch_size, len(own), batch_size))
        self._workers, self._damaged = workers, damaged

    def __len__(self) -> int:
        """Batches of this rank."""
        return len(self._batches)

    def __iter__(self) -> Generator[Batch]:
        _refuse_worker("ImageLoader")
        with closing(_load_ahead(self._read, len(self), self._workers)) as loaded:
            for images, rows, met in loaded:
                if self._damaged is not None:
                    self._damaged.hold(met)
                if len(rows):
                    labels = torch.from_numpy(self._images.labels[rows].astype(np.int64))
                    yield Batch((images, labels, torch.from_numpy(rows)))

    def _read(self, numbers: range) -> Iterator[tuple[Tensor, np.ndarray, list[int]]]:
        batches = [self._batches[number] for number in numbers]
        read: Any = map(self._images.iterate, batches)
        if self._images.is_remote:
            read = (jpegs.items() for jpegs in read_ahead(self._images.fetch, batches, AHEAD))
        for wanted, jpegs in zip(batches, read, strict=True):
            found: dict[int, Tensor] = {}
            damaged = []
            for row, jpeg in jpegs:
                try:
                    found[row] = self._images.load(row, jpeg)
                except DamagedImage:
                    if self._damaged is None:
                        raise
                    damaged.append(row)
            rows = wanted[[row in found for row in wanted.tolist()]]
            images = [found[row] for row in rows.tolist()]
            yield stack_images(images) if images else torch.empty(0), rows, damaged


class _WorkAhead(IterableDataset[Any]):
    """In worker i of n, the items that ``work`` makes of the numbers i, i + n, i + 2n ...

    An error is yielded as the last item: raised, it would arrive as pages of traceback.
    """

    def __init__(self, work: Callable[[range], Iterator[Any]], count: int) -> None:
        self.work, self.count = work, count

    def __iter__(self) -> Iterator[Any]:
        worker: Any = get_worker_info()
        try:
            for item in self.work(range(worker.id, self.count, worker.num_workers)):
                for part in item:
                    if isinstance(part, Tensor):
                        # the queue does so in a thread, and loses the item if there is no room
                        with _room_to_share(part.nbytes):
                            part.share_memory_()  # type: ignore[no-untyped-call]
                yield item
        except HgldError as error:
            yield error


@contextmanager
def _room_to_share(size: int) -> Iterator[None]:
    """Raise an error that names the place if there is no room for so many bytes.

    Raises:
        HgldError: there is none.
    """
    try:
        yield
    except RuntimeError as error:
        if "unable to allocate shared memory" not in str(error):
            raise
        raise HgldError(
            f"/dev/shm, which workers pass images through, has no room for {size / 1e6:,.1f} MB "
            "more; make it larger (docker run --shm-size=8g), or lower the batch or the workers"
        ) from None


def _load_ahead(
    work: Callable[[range], Iterator[Item]], count: int, workers: int
) -> Generator[Item]:
    """Yield the items that ``work`` makes of 0 .. count - 1, prepared ahead by workers.

    Ends the workers when it is closed or exhausted. Torch would raise the death of a worker at any
    line of the main process, and would shut workers down while a stop request can interrupt it.
    Here a death is raised when the next item is requested, or while it is awaited: a worker that is
    killed amid its answer never ends it.

    Raises:
        HgldError: a worker raised it.
        Resumable: a worker died.
    """
    if not workers:
        yield from work(range(count))
        return
    get_temp_dir()  # workers pass tensors through it, and hang if it does not exist
    loader = DataLoader(
        _WorkAhead(work, count),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=AHEAD,
        collate_fn=_as_it_is,
        worker_init_fn=_begin_worker,
    )
    items: Any = None
    try:
        with held_back():
            items = iter(loader)
            _remove_worker_pids(id(items))  # whose deaths torch would raise
            items._worker_pids_set = False
        for _ in range(count):  # on a further request torch would shut the workers down itself
            with handled(lambda *_: _require_alive(items._workers), [signal.SIGCHLD]):
                _require_alive(items._workers)
                found = next(items)
            if isinstance(found, HgldError):
                raise found
            yield found
    except RuntimeError as error:
        if "DataLoader worker (pid" not in str(error):  # raised in a worker: "Caught ... in ..."
            raise
        raise Resumable(DIED) from None
    finally:
        with held_back():
            if items is not None:
                items._shutdown_workers()  # waits for seconds, and ends the others by SIGTERM
                for worker in items._workers:  # ignored: Python would wait for them as it ends
                    worker.kill()


def _require_alive(workers: Sequence[BaseProcess]) -> None:
    if any(worker.exitcode not in (None, 0) for worker in workers):
        raise Resumable(DIED)


def _begin_worker(_: int) -> None:
    """Ignore stop requests, and end as a forked process does: without Python's own ending.

    In a spawned process that ending would kill the thread that passes tensors on while it copies
    one, and the process would abort: "terminate called without an active exception".
    """
    ignore_requests()
    atexit.register(os._exit, 0)
    # Called before it, to wait for a thread that passes on the last item, and that holds a lock of
    # all workers: from Python 3.13 on, forked processes call what is registered here, too.
    atexit.register(_exit_function)


def _as_it_is(found: Any) -> Any:
    """Keep arrays: as tensors they would be passed in shared memory, one file each."""
    return found
