"""Feeds planned batches to a training loop through torch's DataLoader.

Two readers give the same batches: ``indexed`` reads any sample at its place, ``stream`` reads
whole shards from front to back and holds what coming steps need. ``PlainImages`` is for passes
over all samples, where nothing but their number matters.
"""

from collections.abc import Iterator
from hashlib import sha256
from multiprocessing.util import get_temp_dir
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from hgld.errors import HgldError, InvalidData, UsageError
from hgld.shards.batches import BatchOptions, Samples, order_shards
from hgld.shards.damaged import DamagedImages
from hgld.shards.deal import count_rows
from hgld.shards.decode import Decoder, Transform
from hgld.shards.files import local_folder
from hgld.shards.held import HeldImages
from hgld.shards.index import require_columns, whole_numbers
from hgld.shards.read import ShardImages, checksums_of
from hgld.shards.sampling import count_groups
from hgld.shards.sequence import BatchSequence, EpochPlan
from hgld.shards.sequential import SequentialFile, join_location, open_location
from hgld.tasks import say_or_warn

__all__ = ["BatchLoader", "PlainImages", "reads_per_byte"]

Batch = tuple[Tensor, Tensor, Tensor]
Reader = Literal["indexed", "stream"]
Found = tuple[Batch, set[int]] | HgldError  # a batch and the damaged rows that are known


class BatchLoader:
    """The batches of one rank: images (B, ...), labels (B, L), row numbers (B,).

    Where small classes are padded, an image of zeros has labels and row number -1.

    Iterating gives the rest of the current epoch. ``state_dict`` counts the batches that were
    given out, whatever the workers have prepared beyond them, and names the damaged images that
    they met.

    What the reader "stream" needs beyond 100 MB of memory a worker goes into a temporary file, in
    the folder that TMPDIR names, which should be on a disk.

    Args:
        folder: of the shards; a URL for the reader "stream".
        rows: rows of the index.
        transform: makes a tensor of a PIL image in RGB.
        options: what a batch is made of.
        seed: of the training run.
        reader: "indexed" for both orders, "stream" for the order "shards".
        rank: of this process.
        world_size: processes that share each global batch.
        workers: processes that read and decode for this rank; 0: this one.
        undecodable_budget: damaged images that this rank bears with, over all its workers and
            epochs; each is said once, by a warning where no command shows it. Another image of the
            class takes the place, and its row number is given.
    """

    def __init__(
        self,
        folder: Path | str,
        rows: pd.DataFrame,
        transform: Transform,
        options: BatchOptions,
        *,
        seed: int,
        reader: Reader = "indexed",
        rank: int = 0,
        world_size: int = 1,
        workers: int = 0,
        undecodable_budget: int = 0,
    ) -> None:
        _require_reader(reader, folder, options)
        self.sequence = BatchSequence(
            Samples.of_index(rows),
            options,
            seed=seed,
            rank=rank,
            world_size=world_size,
            manifest_sha256=_hash_manifest(folder),
        )
        self.workers = workers
        if reader == "stream" and (times := reads_per_byte(options, world_size, workers)) > 1:
            say_or_warn(
                f"every byte of the shards is read {times:g} times an epoch; more lanes spare that"
            )
        self._reader = reader
        self._folder, self._rows = folder, rows
        self._transform = transform
        self._damaged = DamagedImages(undecodable_budget, self._name)
        self._speaks = rank == 0  # of what the options leave out; said once

    def __len__(self) -> int:
        """Steps of the current epoch."""
        return len(self.sequence.plan(self.sequence.epoch))

    def __iter__(self) -> Iterator[Batch]:
        for found in self._loader():
            if isinstance(found, HgldError):
                raise found
            batch, damaged = found
            self._damaged.hold(damaged)
            self.sequence.advance()
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """The next step to give out, and the damaged images so far."""
        return {**self.sequence.state_dict(), "undecodable": self._damaged.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after the last batch of a saved state."""
        self.sequence.load_state_dict(state)
        if "undecodable" in state:
            self._damaged.load_state_dict(state["undecodable"])

    def _loader(self) -> "DataLoader[Found]":
        if self.workers:  # they hand tensors over through it, and wait for ever where it lacks
            get_temp_dir()
        steps, damaged = range(self.sequence.step, len(self)), self._damaged
        self._tell_groups()
        decoder = Decoder(self._transform, self.sequence.seed, damaged.budget, damaged.rows)
        if self._reader == "indexed":
            images = ShardImages(Path(self._folder), self._rows, self._transform)
            return DataLoader(
                IndexedSteps(images, self.sequence.epoch_plan(), decoder),
                batch_size=None,
                sampler=steps,
                num_workers=self.workers,
                collate_fn=_as_it_is,
            )
        stream = StreamSteps(self._folder, self._rows, self.sequence, decoder, steps)
        return DataLoader(stream, batch_size=None, num_workers=self.workers, collate_fn=_as_it_is)

    def _tell_groups(self) -> None:
        """Say once that groups leave most batches out, as few parents have enough classes."""
        options, samples = self.sequence.options, self.sequence.samples
        if not self._speaks or options.groups_per_batch is None:
            return
        self._speaks = False
        _, size = np.unique(samples.labels[:, -1], return_counts=True)
        possible = count_rows(count_groups(size, options), options.classes_per_batch)
        if 2 * len(self) < possible:
            say_or_warn(
                f"groups_per_batch={options.groups_per_batch} makes {len(self):,} of {possible:,} "
                "batches an epoch: the others find no group with as many classes; "
                "measure_coverage counts what is left out"
            )

    def _name(self, number: int) -> str:
        """Shard and key of a sample."""
        row = self._rows.iloc[number]
        return f"{join_location(self._folder, row['shard'])}: key {row['key']}"


def _require_reader(reader: str, folder: Path | str, options: BatchOptions) -> None:
    if reader not in get_args(Reader):
        expected = ", ".join(get_args(Reader))
        raise UsageError(f"reader is {reader!r}; expected one of {expected}")
    if reader == "stream" and options.order != "shards":
        raise UsageError("the reader 'stream' needs the order 'shards'")
    if reader == "indexed" or isinstance(folder, Path):
        local_folder(folder)


def _as_it_is(found: Any) -> Any:
    return found


def _hash_manifest(folder: Path | str) -> str:
    """What names the shards of a folder or URL; nothing where no manifest lies beside them."""
    try:
        with open_location(join_location(folder, "manifest.json")) as file:
            return sha256(file.read()).hexdigest()
    except InvalidData:
        return ""


class IndexedSteps(Dataset[Found]):
    """Item ``step`` is the batch of that step of the epoch, or the error that a worker met.

    Raised there, it would cross over as pages of traceback.
    """

    def __init__(self, images: ShardImages, plan: EpochPlan, decoder: Decoder) -> None:
        self.images, self.plan, self.decoder = images, plan, decoder

    def __getitem__(self, step: int) -> Found:
        try:
            return self._make(step), set(self.decoder.undecodable)
        except HgldError as error:
            if get_worker_info() is None:
                raise
            return error

    def _make(self, step: int) -> Batch:
        batch = self.plan.batch(step)
        rows = enumerate(batch.mine.tolist())
        jpegs = ((place, self.images.read_bytes(row)) for place, row in rows if row >= 0)
        return self.decoder.batch(batch, jpegs, self.images)


class StreamSteps(IterableDataset[Found]):
    """The batches of some steps, from shards that are read from front to back.

    An error that a worker meets comes last, in the place of a batch.

    A worker gives every n-th step. It holds the images that its coming steps need, as JPEG
    bytes: no more than the plan's open runs, and of these no more in memory than ``HeldImages``.
    """

    def __init__(
        self,
        folder: Path | str,
        rows: pd.DataFrame,
        sequence: BatchSequence,
        decoder: Decoder,
        steps: range,
    ) -> None:
        require_columns(rows, ["key"])
        self.folder, self.decoder, self.steps = folder, decoder, steps
        self.plan = sequence.epoch_plan()
        self.labels = sequence.samples.labels
        self.shard = sequence.samples.shards
        self.names = [str(n) for n in rows["shard"].astype("category").cat.categories]
        self.keys = rows["key"].to_numpy(object)
        self.place = whole_numbers(rows, ["offset", "size_bytes"])
        self.checksums = checksums_of(rows)
        self.lane_of, self.turn_of = order_shards(
            sequence.samples, sequence.options, seed=sequence.seed, epoch=sequence.epoch
        )

    def __iter__(self) -> Iterator[Found]:
        try:
            for batch in self._batches():
                yield batch, set(self.decoder.undecodable)
        except HgldError as error:
            if get_worker_info() is None:
                raise
            yield error

    def _batches(self) -> Iterator[Batch]:
        worker = get_worker_info()
        mine = self.steps if worker is None else self.steps[worker.id :: worker.num_workers]
        lanes: dict[int, Iterator[tuple[int, bytes]]] = {}
        needed = np.unique(self.plan.rows[mine, self.plan.part])
        with TemporaryFile(buffering=0) as file:
            held = HeldImages(file)
            for step in mine:
                batch = self.plan.batch(step)
                rows = {place: row for place, row in enumerate(batch.mine.tolist()) if row >= 0}
                for row in rows.values():
                    lane = int(self.lane_of[self.shard[row]])
                    if lane not in lanes:
                        lanes[lane] = self._read_lane(lane, needed[needed >= 0])
                    while row not in held:
                        held.put(*next(lanes[lane]))
                found = {row: held.take(row) for row in set(rows.values())}
                jpegs = ((place, found[row]) for place, row in rows.items())
                yield self.decoder.batch(batch, jpegs, self)

    def name(self, number: int) -> str:
        """Shard and key of a sample, for an error."""
        return f"{self._location(self.shard[number])}: key {self.keys[number]}"

    def crc32(self, number: int) -> int | None:
        """The CRC-32 that the JPEG of a sample has to have, if the index has it."""
        return self.checksums[number] if self.checksums else None

    def read_bytes(self, number: int) -> bytes:
        """The JPEG of any sample; its shard is read from the front on, so do this seldom."""
        with SequentialFile(self._location(self.shard[number])) as file:
            return file.take(*self.place[number].tolist())

    def _location(self, shard: int) -> str:
        return join_location(self.folder, self.names[shard])

    def _read_lane(self, lane: int, needed: np.ndarray) -> Iterator[tuple[int, bytes]]:
        """The needed samples of a lane, shard after shard in their turn."""
        mine = needed[self.lane_of[self.shard[needed]] == lane]
        mine = mine[np.lexsort((self.place[mine, 0], self.turn_of[self.shard[mine]]))]
        bounds = np.flatnonzero(np.diff(self.shard[mine])) + 1
        for part in np.split(mine, bounds):
            with SequentialFile(self._location(self.shard[part[0]])) as file:
                for row in part.tolist():
                    offset, size = self.place[row].tolist()
                    yield row, file.take(offset, size)


def reads_per_byte(options: BatchOptions, world_size: int, workers: int) -> float:
    """How often all stream readers together read each byte of the shards.

    A worker reads the lanes that its rank's slice of the batch touches.

    Example:
        >>> reads_per_byte(BatchOptions(8, 4, order="shards", lanes=1), 4, 1)
        4.0
        >>> reads_per_byte(BatchOptions(8, 4, order="shards", lanes=4), 4, 1)
        1.0
    """
    size = options.classes_per_batch * options.images_per_class
    lane_of = np.arange(size) // (size // options.lanes)
    rank_of = np.arange(size) // (size // world_size)
    touched = len(np.unique(np.column_stack([lane_of, rank_of]), axis=0))
    return touched * max(1, workers) / options.lanes


class PlainImages(IterableDataset[tuple[Tensor, Tensor, int]]):
    """Every sample exactly once, in the order of the index, shared by ranks and workers.

    For classification and embedding passes; ranks may differ by one sample, and so may the workers
    of a rank.

    Args:
        folder: of the shards.
        rows: rows of the index.
        transform: makes a tensor of a PIL image in RGB.
        rank: of this process.
        world_size: processes that share the samples.
    """

    def __init__(
        self,
        folder: Path | str,
        rows: pd.DataFrame,
        transform: Transform,
        *,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.images = ShardImages(folder, rows, transform)
        self.rank, self.world_size = rank, world_size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, int]]:
        worker = get_worker_info()
        numbers = np.array_split(np.arange(len(self.images)), self.world_size)[self.rank]
        if worker is not None:
            numbers = np.array_split(numbers, worker.num_workers)[worker.id]
        for number, data in self.images.iterate(numbers):
            image = self.images.decode(number, data)
            yield self.images.transform(image), torch.from_numpy(self.images.labels[number]), number
