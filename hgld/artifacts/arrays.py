"""Safe reader of untrusted numpy files: no pickles, and memory bounded by the size of the file.

``np.load`` allocates the size that a header states, so 160 bytes can request 32 GB, and a
compressed archive of 2 MB can contain 2 GB of zeros. Here the header is compared with the bytes
that follow it, and an archive may expand to at most 100 times its own size.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile

import numpy as np

__all__ = ["read_array", "read_arrays"]

HELD_AT_MOST = 100  # times the archive's bytes; float embeddings compress to a half at best
SMALL = 1 << 26  # bytes that any archive may expand to
PIECE = 1 << 24
HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_array(path: Path) -> np.ndarray:
    """Read a ``.npy`` file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not an array, holds objects, or ends too early.
    """
    with path.open("rb") as file:
        return _read(file, path.stat().st_size)


def read_arrays(path: Path, names: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Read arrays of a ``.npz`` file by name; missing ones are left out of the result.

    Args:
        path: of the archive.
        names: arrays to read; none: all.

    Raises:
        OSError, BadZipFile: the file cannot be read.
        ValueError: a member is not an array, or its header states more than its bytes.
    """
    most = max(SMALL, HELD_AT_MOST * path.stat().st_size)
    arrays = {}
    with ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if names and name not in names:
                continue
            most -= member.file_size
            if most < 0:
                raise ValueError(f"holds more than {HELD_AT_MOST} times its own size")
            with archive.open(member) as file:
                arrays[name] = _read(file, member.file_size)
    return arrays


def _read(file: IO[bytes], size: int) -> np.ndarray:
    version = np.lib.format.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"an array of version {version}; expected 1.0 or 2.0")
    shape, column_major, dtype = HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("holds Python objects, which are never read")
    stated = math.prod(shape) * dtype.itemsize
    if any(side < 0 for side in shape) or not dtype.itemsize or stated > size - file.tell():
        raise ValueError(f"states {stated:,} bytes of shape {shape}; {size - file.tell():,} follow")
    data = np.empty(stated, np.uint8)
    for start in range(0, stated, PIECE):  # in pieces, since zipfile copies what it reads
        part = data[start : start + PIECE]
        if (found := file.readinto(part.data)) < len(part):  # type: ignore[attr-defined]
            raise ValueError(f"ends after {start + found:,} of {stated:,} bytes")
    array: np.ndarray = data.view(dtype).reshape(shape, order="F" if column_major else "C")
    return array
