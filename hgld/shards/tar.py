"""Writes samples as tar members whose bytes depend on nothing but the samples.

The bytes are those of webdataset's TarWriter with a fixed time, owner and mode (a test compares
them); they are put together here because Python's tarfile spends on each member several times
what copying an image costs.
"""

import tarfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

__all__ = ["BLOCK", "ShardFile", "Span", "padding"]

BLOCK = 512  # a header, and the unit to which data are padded
LONGEST_NAME = 100
_SIZE, _CHECKSUM, _REST = 124, 148, 156


def padding(size: int) -> int:
    """Zero bytes that follow ``size`` bytes of data.

    Example:
        >>> padding(500), padding(512)
        (12, 0)
    """
    return -size % BLOCK


class Span(NamedTuple):
    """Where a sample lies in its shard, in bytes: its whole, its checksum, each member's data."""

    extent_bytes: int
    crc32: int
    offsets: list[int]


class ShardFile:
    """One tar on its way to disk; ``sha256`` and ``size_bytes`` hold once it is finished."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=1 << 20)
        self._digest = sha256()
        self.size_bytes = 0

    @property
    def sha256(self) -> str:
        """Hash of all bytes written so far."""
        return self._digest.hexdigest()

    def add(self, key: str, members: Sequence[tuple[str, bytes]]) -> Span:
        """Append the members of a sample, each a suffix and its data, in their order."""
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
        """Append members that are tar bytes already."""
        self._digest.update(members)
        self.size_bytes += len(members)
        self._file.write(members)

    def finish(self) -> None:
        """Write the end of the archive."""
        end = 2 * BLOCK
        self.append(bytes(end + -(self.size_bytes + end) % tarfile.RECORDSIZE))
        self._file.flush()

    def close(self) -> None:
        """Close the file, whatever state the archive is in."""
        self._file.close()


def _template() -> bytes:
    member = tarfile.TarInfo("")
    member.mode, member.uname, member.gname = 0o444, "hgld", "hgld"
    return member.tobuf(tarfile.USTAR_FORMAT)


_TEMPLATE = _template()
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
