"""Locate the files of any tar, and write tars of samples with reproducible bytes.

Python's tarfile takes several times as long for both. The reader seeks from header to header and
reads no data; a compiled loop parses the headers, and stops at one that changes what follows or is
damaged. A tar may come from an untrusted source: each header must have the right checksum and a
size that fits into the file. The writer gives the bytes of webdataset's TarWriter with a fixed
time, owner and mode (a test compares them), so they depend on nothing but the samples.
"""

import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hgld.artifacts import size_of_file
from hgld.compiled import inner, kernel
from hgld.errors import InvalidData

BLOCK = 512  # size of a header, and the unit that data are padded to
LONGEST_NAME = 100
FILES = (ord("0"), 0, ord("7"))
LONG_NAME, EXTENDED, SPARSE, HARD_LINK, LINK = ord("L"), ord("x"), ord("S"), ord("1"), ord("2")
LONGEST_HEADER = 1 << 20  # bytes of an extended header; a name needs a few hundred
PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")  # gzip ... zip
AGAIN = "fetch it again (delete it first)"
RECORD = re.compile(rb"([1-9]\d{0,6}) ([^=]+)=")  # of an extended header: LENGTH KEY=VALUE
# Webdataset's readers skip other members: hidden files, as macOS packs, README, __meta__/x.json.
IN_SAMPLE = re.compile(r"(?s)(?!__[^/]*__(?:$|/))(.*/)?[^./]+\.[^/]+")
_SIZE, _CHECKSUM, _REST = 124, 148, 156
READ = 1 << 20  # bytes read at a time if files are small
SMALL = 16 << 10  # mean bytes of such files
MORE, ENDED, ODD = 0, 1, 2
HUGE = 1 << 62  # a size that no file has
# Columns of a header: kind, -1 if the checksum is wrong; start in the tar, of the first header of a
# file that has several; offset and size of the data; bounds of name and stem in the bytes read.
KIND, START, OFFSET, SIZE, NAME, NAME_END, STEM, STEM_END = range(8)


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

    @property
    def stem(self) -> str:
        """The name without folder and suffixes, which is the id of an image.

        Example:
            >>> Member("a/b/ab12.jpg", 0, 512, 9).stem
            'ab12'
        """
        return self.name.rpartition("/")[2].partition(".")[0]


def scan_tar(path: Path, *, end_mark: bool = True) -> Iterator[Member]:
    """Yield the regular files of a tar in order; supports long names and sizes (GNU, PAX).

    Args:
        path: the tar.
        end_mark: refuse a tar without the end mark, which was cut short between two members.

    Raises:
        InvalidData: the file is empty, cut short, compressed, damaged or not a tar; it holds a
            sparse file, or a link in place of a part of a sample, whose data are elsewhere.
    """
    for data, rows, name in _scan(path, end_mark):
        for _, start, offset, size, first, stop, _, _ in rows.tolist():
            text = data[first:stop].decode("ascii") if name is None else name
            yield Member(text, start, offset, size)


def list_stems(path: Path) -> pa.Table:
    """List the regular files of a tar: stem (name without folder and suffix), offset, size_bytes.

    Raises:
        InvalidData: as ``scan_tar``.
    """
    texts, lengths = list[bytes](), [np.zeros(1, np.int64)]
    places = [np.empty((0, 2), np.int64)]
    for data, rows, name in _scan(path, end_mark=True):
        places.append(rows[:, OFFSET : SIZE + 1].copy())
        if name is not None:
            texts.append(Member(name, 0, 0, 0).stem.encode())
            lengths.append(np.array([len(texts[-1])]))
            continue
        size = rows[:, STEM_END] - rows[:, STEM]
        ends = size.cumsum()
        # the bytes of all stems, one after the other
        chosen = np.arange(ends[-1]) + np.repeat(rows[:, STEM] - (ends - size), size)
        texts.append(np.frombuffer(data, np.uint8)[chosen].tobytes())
        lengths.append(size)
    found, bounds = np.concatenate(places), np.concatenate(lengths).cumsum().astype(np.int32)
    buffers = pa.py_buffer(bounds), pa.py_buffer(b"".join(texts))
    stems = pa.StringArray.from_buffers(len(found), *buffers)
    return pa.table({"stem": stems, "offset": found[:, 0], "size_bytes": found[:, 1]})


def _scan(path: Path, end_mark: bool) -> Iterator[tuple[bytes, np.ndarray, str | None]]:
    """Yield bytes of a tar with the headers of regular files in them, as rows of ``_walk``.

    The rows are valid until the next are requested. A name that is not ASCII, or not in one field
    of the header, is given, and there is one row.
    """
    total, fault = size_of_file(path)
    if fault:
        raise InvalidData(f"{path}: {fault}; expected a tar")
    if total == 0:
        raise InvalidData(f"{path}: the file is empty; expected a tar; {AGAIN}")
    rows = np.empty((READ // BLOCK, STEM_END + 1), np.int64)
    data, base, position, count = b"", 0, 0, 0
    # Extended headers apply to the next file alone.
    records: dict[bytes, bytes] = {}
    start: int | None = None  # of the first of them
    with path.open("rb", buffering=0) as file:
        while True:
            if position + BLOCK > base + len(data):
                # Small files are read together, large ones are skipped over.
                size, base = READ if position < count * SMALL else BLOCK, position
                data = os.pread(file.fileno(), size, position)
            if not data and not end_mark:
                return
            if len(data) < BLOCK:
                raise InvalidData(
                    f"{path}: the tar is cut short at byte {total} (no end mark); {AGAIN}"
                )
            view = np.frombuffer(data, np.uint8)
            alone = start is not None
            number, position, state = _walk(view, base, position, total, alone, rows)
            if number:
                yield data, rows[:number], None
                count += number
            if state == ENDED:
                return
            if state == MORE:
                continue

            header = data[position - base : position - base + BLOCK]
            kind, size = int(rows[number, KIND]), int(rows[number, SIZE])
            start = position if start is None else start
            text, offset = records.get(b"path"), position + BLOCK
            if not text:  # with the prefix of the POSIX format, if there is one
                text = header[:LONGEST_NAME].partition(b"\0")[0]
                prefix = header[345:500].partition(b"\0")[0]
                if prefix and header[257:263] == b"ustar\0":
                    text = prefix + b"/" + text
            name = text.decode("utf-8", "replace")
            if kind in FILES:
                size = int(records.get(b"size", size))
            fault = ""
            if kind < 0 and header.startswith(PACKED):
                fault = "compressed; images are read in place, so unpack it"
            elif kind < 0:
                fault = f"not a tar header at byte {position}; {AGAIN}"
            elif size < 0:
                fault = f"no size in the tar header at byte {position}; {AGAIN}"
            elif offset + size > total:
                fault = f"the tar is cut short at byte {total}, inside '{name}' that ends at byte "
                fault += f"{offset + size}; {AGAIN}"
            elif kind in (LONG_NAME, EXTENDED) and size > LONGEST_HEADER:
                fault = f"a name of {size} bytes at byte {position}; {AGAIN}"
            elif kind == LONG_NAME:
                records[b"path"] = os.pread(file.fileno(), size, offset).partition(b"\0")[0]
            elif kind == EXTENDED:
                found = _read_records(os.pread(file.fileno(), size, offset))
                fault = f"not a PAX header at byte {position}; {AGAIN}" if found is None else ""
                records |= found or {}
            elif kind == SPARSE or any(key.startswith(b"GNU.sparse") for key in records):
                fault = f"a sparse file at byte {position}; pack the tar without it"
            elif kind in (HARD_LINK, LINK) and IN_SAMPLE.fullmatch(name):
                form, more = ("hard", "") if kind == HARD_LINK else ("symbolic", "--dereference ")
                fault = f"'{name}' is a {form} link at byte {position}, which readers of "
                fault += f"WebDataset skip; pack the tar with tar {more}--hard-dereference"
            elif kind in FILES:
                rows[0, START : SIZE + 1] = start, offset, size
                yield data, rows[:1], name
                count += 1
            if fault:
                raise InvalidData(f"{path}: {fault}")
            position = offset + size + padding(size)
            if kind not in (LONG_NAME, EXTENDED):
                records, start = {}, None


@inner
def _number(data: np.ndarray, start: int, stop: int) -> int:
    """Octal number between blanks or zero bytes; -1 for anything else."""
    value, place = 0, start
    while place < stop and (data[place] == 32 or data[place] == 0):
        place += 1
    while place < stop and 48 <= data[place] < 56:
        value = 8 * value + data[place] - 48
        place += 1
    for rest in range(place, stop):
        if data[rest] != 32 and data[rest] != 0:
            return -1
    return value


@inner
def _size(data: np.ndarray, start: int) -> int:
    """Size in a header: octal digits, or base 256 if the first bit is set; -1 if it is neither."""
    octal: int = _number(data, start, start + 12)
    if data[start] != 0x80:
        return octal
    value = 0
    for place in range(start + 1, start + 12):
        if value >= HUGE >> 8:
            return HUGE
        value = 256 * value + data[place]
    return value


@inner
def _sum(data: np.ndarray) -> tuple[int, int]:
    """Sum of the bytes, and how many are above 127; a loop over a slice is vectorised."""
    summed, high = 0, 0
    for byte in data:
        summed += byte
        high += byte >> 7
    return summed, high


@kernel
def _walk(
    data: np.ndarray, base: int, position: int, total: int, alone: bool, rows: np.ndarray
) -> tuple[int, int, int]:
    """Parse headers of a tar, of which ``data`` are the bytes from ``base`` on.

    Stops before an odd header, whose row is written, too: one with another name or size, one that
    changes what follows, or a damaged one; the first if it is ``alone``.

    Returns:
        Rows of regular files, position of the next header in the tar, and state (MORE, ENDED, ODD).
    """
    number, at = 0, position - base
    while at + BLOCK <= len(data):
        stated, size = _number(data, at + 148, at + 156), _size(data, at + 124)
        before, after = _sum(data[at : at + 148]), _sum(data[at + 156 : at + BLOCK])
        summed, high = before[0] + after[0] + 8 * 32, before[1] + after[1]
        if summed == 256 and not data[at + 148 : at + 156].any():
            return number, base + at, ENDED
        # old writers summed signed bytes
        right = stated == summed or (stated >= 0 and stated + 256 * high == summed)
        kind = np.int64(data[at + 156]) if right else -1
        is_file = kind in FILES
        odd = alone or kind < 0 or size < 0 or base + at + BLOCK + size > total
        odd = odd or kind in (LONG_NAME, EXTENDED, SPARSE, HARD_LINK, LINK)
        start, stop = at, at + LONGEST_NAME
        for place in range(at, at + LONGEST_NAME):
            if data[place] == 0:
                stop = place
                break
            odd = odd or (is_file and data[place] > 127)
            if data[place] == 47:
                start = place + 1
        end = stop
        for place in range(start, stop):
            if data[place] == 46:
                end = place
                break
        row = rows[number]
        row[KIND], row[START], row[OFFSET] = kind, base + at, base + at + BLOCK
        row[SIZE], row[NAME], row[NAME_END], row[STEM], row[STEM_END] = size, at, stop, start, end
        if odd or (is_file and data[at + 345] != 0):
            return number, base + at, ODD
        number += is_file
        at += BLOCK + size + -size % BLOCK
    return number, base + at, MORE


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

    def add(self, key: str, members: Sequence[tuple[str, bytes]]) -> tuple[bytes, list[int]]:
        """Append the members of a sample in order; each is a suffix and its data.

        Returns:
            The bytes of the sample in the shard, and the offset of each member's data.
        """
        parts: list[bytes] = []
        offsets, start = [], self.size_bytes
        for suffix, data in members:
            name, size = f"{key}.{suffix}".encode("ascii"), b"%011o\0" % len(data)
            if len(name) > LONGEST_NAME:
                raise ValueError(
                    f"{key}.{suffix}: a member's name has {LONGEST_NAME} bytes at most"
                )
            checksum = b"%06o\0 " % (_SUM + sum(name) + sum(size))
            parts += (name.ljust(LONGEST_NAME, b"\0"), _BEFORE_SIZE, size, _TIME, checksum, _AFTER)
            parts += (data, bytes(padding(len(data))))
            offsets.append(start + BLOCK)
            start += BLOCK + len(data) + padding(len(data))
        sample = b"".join(parts)
        self.append(sample)
        return sample, offsets

    def append(self, members: bytes) -> None:
        """Append members that are already tar bytes, headers included."""
        self._digest.update(members)
        self.size_bytes += len(members)
        self._file.write(members)

    def facts(self, file: str, split: str, samples: int, runs: int) -> dict[str, Any]:
        """The entry of a finished shard in the manifest."""
        written = {"sha256": self.sha256, "bytes": self.size_bytes}
        return {"file": file, "split": split, **written, "samples": samples, "runs": runs}

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
