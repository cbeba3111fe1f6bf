"""Holds the images that coming batches need: in memory up to a bound, beyond it in a file.

How much a reader has to hold depends on the plan and on the size of the photos: some hundred open
runs are 150 MB of small ones, batches of few groups take five times as much, since their runs wait
for each other. The memory of a worker should depend on neither.

The file lies where Python puts temporary ones: in the folder that ``TMPDIR`` names, else in /tmp.
That should be a disk: in a container /tmp may be memory, and then the bound holds nothing.
"""

from collections import defaultdict
from tempfile import gettempdir
from typing import IO

from hgld.errors import DISK_FULL, Resumable

__all__ = ["HeldImages"]

IN_MEMORY = 96 << 20  # bytes of all images together
LEAST_PLACE = 1 << 12


class HeldImages:
    """JPEGs by row number; ``file`` is an empty temporary one, unbuffered."""

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
            place = self._find_place(_length_of(len(jpeg)))
            self._write(place, jpeg)
            self._there[row] = place, len(jpeg)

    def take(self, row: int) -> bytes:
        """An image, which is held no longer."""
        if row in self._here:
            jpeg = self._here.pop(row)
            self._room += len(jpeg)
            return jpeg
        place, size = self._there.pop(row)
        self._gaps[_length_of(size)].append(place)
        self._file.seek(place)
        return self._file.read(size)

    def _write(self, place: int, jpeg: bytes) -> None:
        self._file.seek(place)
        left = memoryview(jpeg)
        try:
            while left:  # a disk that is nearly full takes a part
                left = left[self._file.write(left) :]
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            raise Resumable(
                f"{gettempdir()}: no space left for the images that coming batches need "
                f"({error.strerror}); set TMPDIR to a folder on a disk with room and go on from "
                "the last saved state"
            ) from None

    def _find_place(self, length: int) -> int:
        if self._gaps[length]:
            return self._gaps[length].pop()
        self._end += length
        return self._end - length


def _length_of(size: int) -> int:
    """Room that an image gets, so that another of about its size may follow it.

    Example:
        >>> _length_of(5000), _length_of(8192)
        (8192, 8192)
    """
    return max(LEAST_PLACE, 1 << (size - 1).bit_length())
