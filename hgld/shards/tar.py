"""Locate the files of any tar, and write tars of samples with reproducible bytes.

Python's tarfile takes several times as long for both. The reader seeks from header to header and
reads no data. A tar may come from an untrusted source: each header must have the right checksum and
a size that fits into the file. The writer gives the bytes of webdataset's TarWriter with a fixed
time, owner and mode (a test compares them), so they depend on nothing but the samples.
"""

import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from zlib import adler32, crc32

from hgld.artifacts import size_of_file
from hgld.errors import InvalidData

__all__ = ["BLOCK", "Member", "ShardFile", "Span", "padding", "scan_tar"]

BLOCK = 512  # size of a header, and the unit that data are padded to
END = bytes(BLOCK)
LONGEST_NAME = 100
FILES = (b"0", b"\0", b"7")
LONG_NAME, EXTENDED, SPARSE = b"L", b"x", b"S"
ADLER = 65_521  # the modulus of Adler-32
LONGEST_HEADER = 1 << 20  # bytes of an extended header; a name needs a few hundred
AGAIN = "fetch it again (delete it first)"
OCTAL = re.compile(rb"[0-7]*")
RECORD = re.compile(rb"([1-9]\d{0,6}) ([^=]+)=")  # of an extended header: LENGTH KEY=VALUE
_SIZE, _CHECKSUM, _REST = 124, 148, 156


def padding(size: int) -> int:
    """Number of zero bytes that pad ``size`` bytes of data.

    Example:
        >>> padding(500), padding(512)
        (12, 0)
    """
    return -size % BLOCK


class Member(NamedTuple):
    """One file in a tar: the offsets of its headers and of its data, and the data's size."""

    name: str
    start: int
    offset: int
    size_bytes: int


def scan_tar(path: Path, *, end_mark: bool = True) -> Iterator[Member]:
    """Yield the regular files of a tar in order; supports long names and sizes (GNU, PAX).

    Args:
        path: the tar.
        end_mark: refuse a tar without the end mark, which was cut short between two members.

    Raises:
        InvalidData: the file is empty, cut short, compressed, damaged or not a tar; a sparse file.
    """
    total, fault = size_of_file(path)
    if fault:
        raise InvalidData(f"{path}: {fault}; expected a tar")
    if total == 0:
        raise InvalidData(f"{path}: the file is empty; expected a tar; {AGAIN}")
    handle = os.open(path, os.O_RDONLY)
    try:
        yield from _scan(handle, path, total, end_mark)
    finally:
        os.close(handle)


def _scan(handle: int, path: Path, total: int, end_mark: bool) -> Iterator[Member]:
    position, start = 0, 0
    records: dict[bytes, bytes] = {}  # extended headers, which apply to the next file
    while (header := os.pread(handle, BLOCK, position)) != END:
        if not header and not end_mark:
            return
        if len(header) < BLOCK:
            raise InvalidData(
                f"{path}: the tar is cut short at byte {total} (no end mark); {AGAIN}"
            )
        _check(header, path, position)
        kind, data = header[156:157], position + BLOCK
        name, field = _name(header, records), header[124:136]
        if b"size" in records and kind in FILES:
            size: int | None = int(records[b"size"])
        else:  # octal digits, or base 256 if the first bit is set
            size = int.from_bytes(field[1:], "big") if field[0] == 0x80 else _octal(field)
        if size is None:
            raise InvalidData(f"{path}: no size in the tar header at byte {position}; {AGAIN}")
        if data + size > total:
            raise InvalidData(
                f"{path}: the tar is cut short at byte {total}, inside '{name}' that ends at byte "
                f"{data + size}; {AGAIN}"
            )
        if kind in (LONG_NAME, EXTENDED) and size > LONGEST_HEADER:
            raise InvalidData(f"{path}: a name of {size} bytes at byte {position}; {AGAIN}")
        if kind == LONG_NAME:
            records[b"path"] = os.pread(handle, size, data).partition(b"\0")[0]
        elif kind == EXTENDED:
            found = _read_records(os.pread(handle, size, data))
            if found is None:
                raise InvalidData(f"{path}: not a PAX header at byte {position}; {AGAIN}")
            records |= found
        elif kind == SPARSE or any(key.startswith(b"GNU.sparse") for key in records):
            raise InvalidData(f"{path}: a sparse file at byte {position}; pack the tar without it")
        elif kind in FILES:
            yield Member(name, start, data, size)
        position = data + size + padding(size)
        if kind not in (LONG_NAME, EXTENDED):
            # Extended headers apply to one file only.
            records, start = {}, position


def _check(header: bytes, path: Path, position: int) -> None:
    """Check the header's checksum; old writers summed signed bytes, so both sums are accepted."""
    digits = header[148:156]  # the checksum is computed with blanks in its own field
    stated = _octal(digits)
    found = adler32(header) & 0xFFFF  # 1 + the sum of all bytes, in a tenth of the time of sum()
    if stated is not None:
        expected = 1 + stated + sum(digits) - 8 * ord(" ")
        if found == expected % ADLER:
            return
        if found == (expected + 256 * sum(byte > 127 for byte in header)) % ADLER:
            return
    if header[:2] == b"\x1f\x8b":
        raise InvalidData(f"{path}: compressed; images are read in place, so gunzip it")
    raise InvalidData(f"{path}: not a tar header at byte {position}; {AGAIN}")


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    return int(digits or b"0", 8) if OCTAL.fullmatch(digits) else None


def _name(header: bytes, records: dict[bytes, bytes]) -> str:
    """The member's name, with the prefix of the POSIX format if there is one."""
    name = records.get(b"path") or header[:LONGEST_NAME].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    if prefix and not records.get(b"path"):
        name = prefix + b"/" + name
    return name.decode("utf-8", "replace")


def _read_records(data: bytes) -> dict[bytes, bytes] | None:
    """Return the records of a PAX header; None if it is damaged."""
    found, place = dict[bytes, bytes](), 0
    while place < len(data):
        record = RECORD.match(data, place)
        end = place + int(record[1]) if record else 0
        if record is None or record.end() >= end or data[end - 1 : end] != b"\n":
            return None
        found[record[2]] = data[record.end() : end - 1]
        place = end
    return found if re.fullmatch(rb"\d{1,18}", found.get(b"size", b"0")) else None


class Span(NamedTuple):
    """Bytes of a sample in its shard: total size, checksum, and offset of each member's data."""

    extent_bytes: int
    crc32: int
    offsets: list[int]


class ShardFile:
    """A tar being written; ``sha256`` and ``size_bytes`` are final after ``finish``."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=1 << 20)
        self._digest = sha256()
        self.size_bytes = 0

    @property
    def sha256(self) -> str:
        """Hash of all bytes written so far."""
        return self._digest.hexdigest()

    def add(self, key: str, members: Sequence[tuple[str, bytes]]) -> Span:
        """Append the members of a sample in order; each is a suffix and its data."""
        parts: list[bytes] = []
        offsets, start = [], self.size_bytes
        for suffix, data in members:
            parts += (_header(f"{key}.{suffix}", len(data)), data, bytes(padding(len(data))))
            offsets.append(start + BLOCK)
            start += BLOCK + len(data) + padding(len(data))
        sample = b"".join(parts)
        self.append(sample)
        return Span(len(sample), crc32(sample), offsets)

    def append(self, members: bytes) -> None:
        """Append members that are already tar bytes, headers included."""
        self._digest.update(members)
        self.size_bytes += len(members)
        self._file.write(members)

    def finish(self) -> None:
        """Write the end of the archive."""
        end = 2 * BLOCK
        self.append(bytes(end + -(self.size_bytes + end) % tarfile.RECORDSIZE))
        self._file.flush()

    def close(self) -> None:
        """Close the file, finished or not."""
        self._file.close()


_MEMBER = tarfile.TarInfo("")
_MEMBER.mode, _MEMBER.uname, _MEMBER.gname = 0o444, "hgld", "hgld"
_TEMPLATE = _MEMBER.tobuf(tarfile.USTAR_FORMAT)
_BEFORE_SIZE = _TEMPLATE[LONGEST_NAME:_SIZE]
_TIME = _TEMPLATE[_SIZE + 12 : _CHECKSUM]
_AFTER = _TEMPLATE[_REST:]
_SUM = sum(_BEFORE_SIZE) + sum(_TIME) + sum(_AFTER) + 8 * 0x20  # the checksum counts as blanks


def _header(name: str, size: int) -> bytes:
    text, digits = name.encode("ascii"), b"%011o\0" % size
    if len(text) > LONGEST_NAME:
        raise ValueError(f"{name}: a member's name has {LONGEST_NAME} bytes at most")
    checksum = b"%06o\0 " % (_SUM + sum(text) + sum(digits))
    name_field = text.ljust(LONGEST_NAME, b"\0")
    return b"".join((name_field, _BEFORE_SIZE, digits, _TIME, checksum, _AFTER))
