"""Read shards from front to back, and hold the images that coming batches need.

A spinning disk and a remote store are many times faster this way. The memory that a reader needs
depends on the plan and on the size of the photos: a few hundred open runs are 150 MB of small ones,
and batches of few groups take five times as much, since their runs wait for each other. The memory
of a worker should depend on neither, so everything beyond a limit goes into a temporary file.

The file is in the folder that ``TMPDIR`` names, else in /tmp. That should be on a disk: in a
container /tmp may be in memory, and then the limit has no effect.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from tempfile import TemporaryFile, gettempdir
from typing import IO

import numpy as np

from hgld.errors import DISK_FULL, Resumable
from hgld.shards.batches import BatchPlan
from hgld.shards.files import SequentialFile
from hgld.shards.read import ShardImages
from hgld.shards.sampling import BatchOptions
from hgld.storage import is_web

IN_MEMORY = 96 << 20  # bytes of all images together
LEAST_PLACE = 1 << 12


def stream_batches(
    images: ShardImages, plan: BatchPlan, epoch: int, batches: Sequence[np.ndarray]
) -> Iterator[dict[int, bytes]]:
    """Yield the JPEGs of each batch by row number, all from one pass over the shards.

    Only images that later batches of these need are held: at most those of the plan's open runs.

    Args:
        images: the samples and their offsets.
        plan: of the order "shards".
        epoch: epoch of the batches; it decides the order in which shards are read.
        batches: row numbers of each, in the order of their steps; -1 is padding.
    """
    lane_of, turn_of = plan.shard_order(epoch)
    lanes: dict[int, Iterator[tuple[int, bytes]]] = {}
    needed = np.unique(np.concatenate(batches))
    needed = needed[needed >= 0]
    lane = lane_of[images.shards[needed]]
    # It has no name in the folder, so a killed process leaves no file behind.
    try:
        temporary = TemporaryFile(buffering=0)  # noqa: SIM115 - closed below
    except OSError as error:
        raise _no_room(error) from None
    with temporary as file:
        held = HeldImages(file)
        for rows in batches:
            wanted = [row for row in rows.tolist() if row >= 0]
            for row in wanted:
                own = int(lane_of[images.shards[row]])
                if own not in lanes:
                    lanes[own] = _read_lane(images, needed[lane == own], turn_of)
                while row not in held:
                    held.put(*next(lanes[own]))
            yield {row: held.take(row) for row in set(wanted)}


def _read_lane(
    images: ShardImages, rows: np.ndarray, turn_of: np.ndarray
) -> Iterator[tuple[int, bytes]]:
    """Yield the given samples of a lane, shard by shard in reading order."""
    rows = rows[np.lexsort((images.places[rows, 0], turn_of[images.shards[rows]]))]
    if images.is_remote and not is_web(images.folder):
        yield from images.stream(rows)
        return
    # A web server may not know ranges; the system reads its one answer ahead.
    for part in np.split(rows, np.flatnonzero(np.diff(images.shards[rows])) + 1):
        with closing(SequentialFile(images.location(int(images.shards[part[0]])))) as file:
            place, jpeg = [-1, 0], b""
            for row in part.tolist():
                if images.places[row].tolist() != place:  # rows may be of one image
                    place = images.places[row].tolist()
                    jpeg = file.take(*place)
                yield row, jpeg


def reads_per_byte(options: BatchOptions, world_size: int, workers: int) -> float:
    """Number of times that each byte of the shards is read, over all stream readers.

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


class HeldImages:
    """JPEGs by row number, in memory up to a limit, then in ``file`` (temporary, unbuffered)."""

    def __init__(self, file: IO[bytes], in_memory: int = IN_MEMORY) -> None:
        self._file = file
        self._room = in_memory
        self._here: dict[int, bytes] = {}
        self._there: dict[int, tuple[int, int]] = {}  # place in the file, size
        self._gaps: defaultdict[int, list[int]] = defaultdict(list)  # free places of each length
        self._end = 0

    def __contains__(self, row: int) -> bool:
        return row in self._here or row in self._there

    def put(self, row: int, jpeg: bytes) -> None:
        """Hold an image.

        Raises:
            Resumable: the disk of the temporary file is full.
        """
        if len(jpeg) <= self._room:
            self._here[row] = jpeg
            self._room -= len(jpeg)
        else:
            length = _length_of(len(jpeg))
            if self._gaps[length]:
                place = self._gaps[length].pop()
            else:
                place, self._end = self._end, self._end + length
            self._file.seek(place)
            left = memoryview(jpeg)
            try:
                while left:  # a nearly full disk accepts only a part
                    left = left[self._file.write(left) :]
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                raise _no_room(error) from None
            self._there[row] = place, len(jpeg)

    def take(self, row: int) -> bytes:
        """Return an image and release its memory or its part of the file."""
        if row in self._here:
            jpeg = self._here.pop(row)
            self._room += len(jpeg)
            return jpeg
        place, size = self._there.pop(row)
        self._gaps[_length_of(size)].append(place)
        self._file.seek(place)
        return self._file.read(size)


def _no_room(error: OSError) -> Resumable:
    """The error for a full disk of temporary files, or a folder that is gone."""
    return Resumable(
        f"{gettempdir()}: no space left for the images that coming batches need "
        f"({error.strerror}); set TMPDIR to a folder on a disk with room and go on from the last "
        "saved state"
    )


def _length_of(size: int) -> int:
    """Bytes reserved for an image, a power of two, so that others of similar size can reuse them.

    Example:
        >>> _length_of(5000), _length_of(8192)
        (8192, 8192)
    """
    return max(LEAST_PLACE, 1 << (size - 1).bit_length())
