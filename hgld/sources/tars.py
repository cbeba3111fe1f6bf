"""Finds where each file of a tar is, so that images are read in place and never extracted.

Only headers are read, by jumping from one to the next; the data between them is not touched. The
result is kept with the tar's name, size and times and a checksum, so that the next run does not
open the 600 tars of GLDv2 again, and a scan that was killed resumes. A kept scan that is damaged,
or of another tar, is made again. No number in a tar is trusted: it may come from anybody.
"""

import os
import re
from collections.abc import Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import NamedTuple
from zlib import adler32

import pandas as pd

from hgld.artifacts import atomic_path, size_of_file
from hgld.errors import InvalidData
from hgld.tasks import track

__all__ = ["BLOCK", "Member", "index_tars", "scan_tar"]

BLOCK = 512
END = bytes(BLOCK)
FILES = (b"0", b"\0", b"7")
LONG_NAME, EXTENDED = b"L", b"x"
ADLER = 65_521  # the modulus of Adler-32
LONGEST_HEADER = 1 << 20  # bytes of an extended header; a name has a few hundred
DAMAGED = "fetch it again (delete it first)"
OCTAL = re.compile(rb"[0-7]*")
RECORD = re.compile(rb"([1-9]\d{0,6}) ([^=]+)=")  # of an extended header: LENGTH KEY=VALUE


class Member(NamedTuple):
    """One file in a tar: its name, where its first byte lies, how many there are."""

    name: str
    offset: int
    size_bytes: int


def index_tars(folder: Path, pattern: str, state: Path) -> pd.DataFrame:
    """The files in all tars that match: image_id, path (of the tar), offset, size_bytes.

    Args:
        folder: the source folder, to which pattern and path are relative.
        pattern: such as ``train/images_*.tar``; empty: there are none.
        state: where earlier scans are kept.

    Raises:
        InvalidData: no tar matches; a tar is empty, cut short or no tar.
    """
    tars = sorted(folder.glob(pattern)) if pattern else []
    if pattern and not tars:
        raise InvalidData(
            f"{folder}: no tar matches '{pattern}'; mend the pattern, or set it to '' where this "
            "part is not there"
        )
    parts = [_index_tar(tar, folder, state) for tar in track(tars, "Reading tars", len(tars))]
    columns = {"image_id": "str", "path": "str", "offset": "int64", "size_bytes": "int64"}
    empty = pd.DataFrame(columns=list(columns)).astype(columns)
    return pd.concat([empty, *parts], ignore_index=True).astype(columns)


def scan_tar(path: Path) -> Iterator[Member]:
    """The files in a tar, in its order, by its headers alone.

    Raises:
        InvalidData: the tar is empty, cut short, compressed or no tar.
    """
    total, fault = size_of_file(path)
    if fault:
        raise InvalidData(f"{path}: {fault}; expected a tar")
    if total == 0:
        raise InvalidData(f"{path}: the file is empty; expected a tar; {DAMAGED}")
    handle = os.open(path, os.O_RDONLY)
    try:
        yield from _scan(handle, path, total)
    finally:
        os.close(handle)


def _index_tar(tar: Path, folder: Path, state: Path) -> pd.DataFrame:
    """Read the scan that is kept; else scan the tar and keep the result."""
    facts, name = tar.stat(), tar.relative_to(folder).as_posix()
    identity = f"{name}\n{facts.st_size}\n{facts.st_mtime_ns}\n{facts.st_ctime_ns}\n".encode()
    kept = state / "tars" / f"{sha256(os.fsencode(name)).hexdigest()[:32]}.scan"
    table = _read_kept(kept, identity)
    if table is not None:
        return table
    members = list(scan_tar(tar))
    table = pd.DataFrame(
        {
            "image_id": [m.name.rpartition("/")[2].partition(".")[0] for m in members],
            "path": name,
            "offset": [m.offset for m in members],
            "size_bytes": [m.size_bytes for m in members],
        }
    )
    buffer = BytesIO()
    table.to_parquet(buffer, index=False)
    with atomic_path(kept) as temporary:
        temporary.write_bytes(_checksum(identity, buffer.getvalue()) + buffer.getvalue())
    return table


def _read_kept(kept: Path, identity: bytes) -> pd.DataFrame | None:
    """Return a kept scan; None if there is none, or if it is damaged or of another tar."""
    if not kept.is_file():
        return None
    data = kept.read_bytes()
    checksum, content = data[: sha256().digest_size], data[sha256().digest_size :]
    if checksum != _checksum(identity, content):
        return None
    return pd.read_parquet(BytesIO(content))


def _checksum(identity: bytes, content: bytes) -> bytes:
    return sha256(identity + content).digest()


def _scan(handle: int, path: Path, total: int) -> Iterator[Member]:
    position, name, size = 0, "", -1  # name and size of an extended header hold for the next file
    while (header := os.pread(handle, BLOCK, position)) != END:
        if len(header) < BLOCK:
            raise InvalidData(
                f"{path}: the tar is cut short at byte {total} (no end mark); {DAMAGED}"
            )
        _check(header, path, position)
        kind, data = header[156:157], position + BLOCK
        here = size if size >= 0 and kind in FILES else _number(header[124:136], path, position)
        if data + here > total:
            raise InvalidData(
                f"{path}: the tar is cut short at byte {total}, inside "
                f"'{name or _name(header)}' that ends at byte {data + here}; {DAMAGED}"
            )
        if kind in (LONG_NAME, EXTENDED) and here > LONGEST_HEADER:
            raise InvalidData(f"{path}: a name of {here} bytes at byte {position}; {DAMAGED}")
        if kind == LONG_NAME:
            name = _text(os.pread(handle, here, data))
        elif kind == EXTENDED:
            found = _read_extended(os.pread(handle, here, data), name)
            if found is None:
                raise InvalidData(f"{path}: not a PAX header at byte {position}; {DAMAGED}")
            name, size = found
        else:
            if kind in FILES:
                yield Member(name or _name(header), data, here)
            name, size = "", -1
        position = data + (here + BLOCK - 1) // BLOCK * BLOCK


def _check(header: bytes, path: Path, position: int) -> None:
    """The sum that every tar header carries of itself."""
    digits = header[148:156]  # the sum is made with blanks in their place
    stated = _octal(digits)
    found = adler32(header) & 0xFFFF  # 1 + the sum of all bytes, in a tenth of the time of sum()
    if stated is None or found != (1 + stated + sum(digits) - 8 * ord(" ")) % ADLER:
        if header[:2] == b"\x1f\x8b":
            raise InvalidData(f"{path}: compressed; images are read in place, so gunzip it")
        raise InvalidData(f"{path}: not a tar header at byte {position}; {DAMAGED}")


def _number(field: bytes, path: Path, position: int) -> int:
    """A size in octal digits, or in base 256 where the first bit is set."""
    number = int.from_bytes(field[1:], "big") if field[0] == 0x80 else _octal(field)
    if number is None:
        raise InvalidData(f"{path}: no size in the tar header at byte {position}; {DAMAGED}")
    return number


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    return int(digits or b"0", 8) if OCTAL.fullmatch(digits) else None


def _name(header: bytes) -> str:
    """The name, after its prefix where the POSIX format has one."""
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{_text(header[:100])}" if prefix else _text(header[:100])


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")


def _read_extended(data: bytes, name: str) -> tuple[str, int] | None:
    """Return path and size (-1: none) from the records of a PAX header; None if it is damaged."""
    size, place = -1, 0
    while place < len(data):
        record = RECORD.match(data, place)
        end = place + int(record[1]) if record else 0
        if record is None or record.end() >= end or data[end - 1 : end] != b"\n":
            return None
        value = data[record.end() : end - 1]
        if record[2] == b"path":
            name = value.decode("utf-8", "replace")
        elif record[2] == b"size":
            if not re.fullmatch(rb"\d{1,18}", value):
                return None
            size = int(value)
        place = end
    return name, size
