"""Finds the members of any tar, faster than Python's tarfile by a factor of ten and more.

The file is read in pieces of 1 MB that stay in the processor's cache; compiled code walks from
header to header and skips the data. Long names (GNU and PAX) and sizes above 8 GB (GNU) are
understood; a sparse file is refused, and an archive that stops inside a member is an error.

A tar may come from anybody, so the compiled code, which checks no bounds, trusts no number in it:
each header must have the right checksum and a size that is not negative.
"""

import re
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
GOES_ON, END, BROKEN = 0, 1, 2  # why a walk over headers stopped
NUMBERS = 3  # of a header found: its place in the piece, size of the data, type
MOST_BYTES = 1 << 52  # no file is larger, and sums of such sizes fit in 64 bits
LONGEST_HEADER = 1 << 20  # bytes of an extended header; a name has a few hundred
CONTROL = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]")  # they would break a name over lines


class Member(NamedTuple):
    """One file in a tar: its name, where its headers and its data start, size of its data."""

    name: str
    start: int
    offset: int
    size_bytes: int


def scan_tar(path: Path) -> Iterator[Member]:
    """The regular files of a tar, in their order.

    Raises:
        InvalidData: not a tar, an archive that ends inside a member, a sparse file, or a name that
            is not UTF-8 or has control characters.
    """
    total = path.stat().st_size
    piece = np.empty(PIECE, np.uint8)
    found = np.empty((PIECE // BLOCK, NUMBERS), np.int64)
    place, start = 0, -1
    extended: dict[bytes, bytes] = {}
    with path.open("rb", buffering=0) as file:
        while place < total:
            file.seek(place)
            length = file.readinto(piece.data) or 0
            count, used, verdict = _walk(piece, length, found)
            if verdict == BROKEN or (verdict == GOES_ON and used == 0):
                raise InvalidData(f"{path}: byte {place + used} is no tar header; the file is "
                                  "damaged or no tar")  # fmt: skip
            for header, size, kind in found[:count].tolist():
                at = place + header
                if at + BLOCK + size > total:
                    raise InvalidData(f"{path}: ends inside the member at byte {at}; truncated")
                start = at if start < 0 else start
                if kind in (LONG_NAME, PAX):
                    extended |= _read_extended(path, at, size, kind)
                    continue
                if kind == SPARSE or any(key.startswith(b"GNU.sparse") for key in extended):
                    raise InvalidData(f"{path}: byte {at}: sparse members cannot be read")
                if kind in (REGULAR, OLD):
                    if extended.get(b"size", b"%d" % size) != b"%d" % size:
                        raise InvalidData(f"{path}: byte {at}: PAX members above 8 GB cannot be "
                                          "read; pack the tar in the GNU format")  # fmt: skip
                    name = extended.get(b"path") or _short_name(piece[header : header + BLOCK])
                    yield Member(_text(name, path, at), start, at + BLOCK, size)
                extended, start = {}, -1
            if verdict == END:
                return
            place += used


def file_at(path: Path, offset: int, size: int) -> bytes:
    """A few bytes of a file."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


@compiled
def _walk(piece: np.ndarray, length: int, found: np.ndarray) -> tuple[int, int, int]:
    """Fill ``found`` with the headers that are whole in the piece.

    Returns:
        How many, the place of the next header, which may be beyond the piece, and why it stopped.
    """
    place, count = np.int64(0), 0
    while place + 512 <= length and count < len(found):
        if piece[place] == 0:
            return count, int(place), END
        if not (piece[place + 257] == 117 and piece[place + 258] == 115):  # "us" of "ustar"
            return count, int(place), BROKEN
        size = _size(piece[place + 124 : place + 136])
        if size < 0 or not _has_right_sum(piece[place : place + 512]):
            return count, int(place), BROKEN
        found[count, 0], found[count, 1], found[count, 2] = place, size, piece[place + 156]
        count += 1
        place += 512 + (size + 511) // 512 * 512
    return count, int(place), GOES_ON


@compiled
def _size(field: np.ndarray) -> int:
    """A number in octal digits, or in base 256 if the first bit is set; -1 if it is neither."""
    number = np.int64(0)
    if field[0] & 0x80:
        if field[0] != 0x80:  # negative, or beyond 88 bits
            return -1
        for i in range(1, len(field)):
            number = number * 256 + np.int64(field[i])
            if number > MOST_BYTES:
                return -1
        return int(number)
    for i in range(len(field)):
        if 48 <= field[i] <= 55:
            number = number * 8 + np.int64(field[i]) - 48
        elif field[i] != 0 and field[i] != 32:
            return -1
    return int(number)


@compiled
def _has_right_sum(header: np.ndarray) -> bool:
    """Whether a header has the checksum that it states, of bytes with or without a sign."""
    total, negative = np.int64(0), np.int64(0)
    for i in range(512):
        byte = np.int64(header[i]) if i < 148 or i >= 156 else np.int64(32)
        total += byte
        negative += byte >= 128
    stated = _size(header[148:156])
    return bool(stated == total or stated == total - 256 * negative)


def _short_name(header: np.ndarray) -> bytes:
    data = header.tobytes()
    name, prefix = data[:100].partition(b"\0")[0], data[345:500].partition(b"\0")[0]
    is_posix = data[257:263] == b"ustar\0"
    return prefix + b"/" + name if prefix and is_posix else name


def _text(name: bytes, path: Path, at: int) -> str:
    """A member's name as text."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        text = "\n"
    if CONTROL.search(text):
        raise InvalidData(
            f"{path}: byte {at}: the member's name {name[:100]!r} is not UTF-8 or has control "
            "characters; pack the tar with other names"
        )
    return text


def _read_extended(path: Path, at: int, size: int, kind: int) -> dict[bytes, bytes]:
    """What a header says of the next member, such as its path: a GNU name, or PAX records."""
    wrong = InvalidData(
        f"{path}: byte {at}: the extended header cannot be read; the tar is damaged"
    )
    if size > LONGEST_HEADER:
        raise wrong
    data = file_at(path, at + BLOCK, size)
    if kind == LONG_NAME:
        return {b"path": data.partition(b"\0")[0]}
    found: dict[bytes, bytes] = {}
    while data:  # PAX records: "LENGTH KEY=VALUE\n"
        digits = re.match(rb"\d{1,7} ", data)
        length = int(digits[0]) if digits else 0
        if digits is None or not digits.end() < length <= len(data):
            raise wrong
        key, _, value = data[digits.end() : length - 1].partition(b"=")
        found[key] = value
        data = data[length:]
    return found
