"""Finds the members of any tar, faster than Python's tarfile by a factor of ten and more.

The file is read in pieces of 1 MB that stay in the processor's cache; compiled code walks from
header to header and skips the data. Long names (GNU and PAX) and sizes above 8 GB are
understood; a sparse file is refused, and an archive that stops inside a member is an error.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hgld.errors import InvalidData
from hgld.shards.compiled import compiled
from hgld.shards.tar import BLOCK

__all__ = ["Member", "scan_tar"]

PIECE = 1 << 20
REGULAR, LONG_NAME, PAX, PAX_ALL, SPARSE, OLD = b"0"[0], b"L"[0], b"x"[0], b"g"[0], b"S"[0], 0
NUMBERS = 3  # of a header found: its place in the piece, size of the data, type


class Member(NamedTuple):
    """One file in a tar: its name, where its headers and its data start, size of its data."""

    name: str
    start: int
    offset: int
    size_bytes: int


def scan_tar(path: Path) -> Iterator[Member]:
    """The regular files of a tar, in their order.

    Raises:
        InvalidData: not a tar, an archive that ends inside a member, or a sparse file.
    """
    total = path.stat().st_size
    piece = np.empty(PIECE, np.uint8)
    found = np.empty((PIECE // BLOCK, NUMBERS), np.int64)
    place, name, start = 0, "", -1
    with path.open("rb", buffering=0) as file:
        while place < total:
            file.seek(place)
            length = file.readinto(piece.data) or 0
            count, used = _walk(piece, length, found)
            if used == -1 or (count == 0 and used == 0):
                raise InvalidData(f"{path}: byte {place + max(used, 0)} is no tar header; the "
                                  "file is damaged or no tar")  # fmt: skip
            for header, size, kind in found[:count].tolist():
                at = place + header
                if at + BLOCK + size > total:
                    raise InvalidData(f"{path}: ends inside the member at byte {at}; truncated")
                start = at if start < 0 else start
                if kind in (LONG_NAME, PAX):
                    name = _long_name(file_at(path, at + BLOCK, size), kind) or name
                    continue
                if kind == SPARSE:
                    raise InvalidData(f"{path}: byte {at}: sparse members cannot be read")
                if kind in (REGULAR, OLD):
                    text = name or _short_name(piece[header : header + BLOCK].tobytes())
                    yield Member(text, start, at + BLOCK, size)
                name, start = "", -1
            if used == -2:
                return
            place += used


def file_at(path: Path, offset: int, size: int) -> bytes:
    """A few bytes of a file."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


@compiled
def _walk(piece: np.ndarray, length: int, found: np.ndarray) -> tuple[int, int]:
    """Fill ``found`` with the headers that stand whole in the piece; how many, and bytes used.

    Bytes used may lie beyond the piece where data do; -1 is no header, -2 the archive's end.
    """
    place, count = np.int64(0), 0
    while place + 512 <= length:
        if piece[place] == 0:
            return count, -2
        if not (piece[place + 257] == 117 and piece[place + 258] == 115):  # "us" of "ustar"
            return count, -1
        size = np.int64(0)
        if piece[place + 124] & 0x80:
            for i in range(place + 125, place + 136):
                size = size * 256 + np.int64(piece[i])
        else:
            for i in range(place + 124, place + 136):
                if 48 <= piece[i] <= 55:
                    size = size * 8 + np.int64(piece[i]) - 48
        found[count, 0], found[count, 1], found[count, 2] = place, size, piece[place + 156]
        count += 1
        place += 512 + (size + 511) // 512 * 512
    return count, int(place)


def _short_name(header: bytes) -> str:
    name, prefix = header[:100].partition(b"\0")[0], header[345:500].partition(b"\0")[0]
    is_posix = header[257:263] == b"ustar\0"
    whole = prefix + b"/" + name if prefix and is_posix else name
    return whole.decode("utf-8", "surrogateescape")


def _long_name(data: bytes, kind: int) -> str:
    if kind == LONG_NAME:
        return data.partition(b"\0")[0].decode("utf-8", "surrogateescape")
    while data:  # PAX records: "LENGTH KEY=VALUE\n"
        length = int(data.split(b" ", 1)[0])
        key, _, value = data[:length].split(b" ", 1)[1].rstrip(b"\n").partition(b"=")
        if key == b"path":
            return value.decode("utf-8", "surrogateescape")
        data = data[length:]
    return ""
