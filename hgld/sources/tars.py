"""Where each file of a tar lies, so that images are read in place and never extracted.

Only headers are read, by jumping from one to the next; the data between them is not touched. What
was found is kept by the tar's name, size and time, so that the next run does not open the 600 tars
of GLDv2 again, and a scan that was killed goes on where it stopped.
"""

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from zlib import adler32

import pandas as pd

from hgld.artifacts import atomic_path
from hgld.errors import InvalidData
from hgld.tasks import track

__all__ = ["BLOCK", "Member", "index_tars", "scan_tar"]

BLOCK = 512
END = bytes(BLOCK)
FILES = (b"0", b"\0", b"7")
LONG_NAME, EXTENDED = b"L", b"x"
ADLER = 65_521  # the modulus of Adler-32
DAMAGED = "fetch it again (delete it first)"


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
    total = path.stat().st_size
    if total == 0:
        raise InvalidData(f"{path}: the file is empty; expected a tar; {DAMAGED}")
    handle = os.open(path, os.O_RDONLY)
    try:
        yield from _scan(handle, path, total)
    finally:
        os.close(handle)


def _index_tar(tar: Path, folder: Path, state: Path) -> pd.DataFrame:
    """From the scan that is kept, or scanned and kept."""
    facts, name = tar.stat(), tar.relative_to(folder).as_posix()
    key = sha256(f"{name}\n{facts.st_size}\n{facts.st_mtime_ns}".encode()).hexdigest()
    kept = state / "tars" / f"{key[:32]}.parquet"
    if kept.exists():
        return pd.read_parquet(kept)
    members = list(scan_tar(tar))
    table = pd.DataFrame(
        {
            "image_id": [m.name.rpartition("/")[2].partition(".")[0] for m in members],
            "path": name,
            "offset": [m.offset for m in members],
            "size_bytes": [m.size_bytes for m in members],
        }
    )
    with atomic_path(kept) as temporary:
        table.to_parquet(temporary, index=False)
    return table


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
        if kind == LONG_NAME:
            name = _text(os.pread(handle, here, data))
        elif kind == EXTENDED:
            name, size = _read_extended(os.pread(handle, here, data), name)
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
    try:
        return int(digits, 8) if digits else 0
    except ValueError:
        return None


def _name(header: bytes) -> str:
    """The name, after its prefix where the POSIX format has one."""
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{_text(header[:100])}" if prefix else _text(header[:100])


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")


def _read_extended(data: bytes, name: str) -> tuple[str, int]:
    """Path and size from the records ``LENGTH KEY=VALUE`` of a pax header; -1: no size."""
    size = -1
    while data:
        length, _, _ = data.partition(b" ")
        record, data = data[len(length) + 1 : int(length) - 1], data[int(length) :]
        key, _, value = record.partition(b"=")
        if key == b"path":
            name = value.decode("utf-8", "replace")
        elif key == b"size":
            size = int(value)
    return name, size
