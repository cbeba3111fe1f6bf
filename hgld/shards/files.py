"""Read many files by offset (pread), or one from front to back, here or behind a URL.

Images are members of hundreds of large tars that are never unpacked, and of the shards written from
them: an image costs one read at a known offset. A forked process reopens the files, since two
processes must not share and close the same file descriptors.
"""

import os
import sys
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from stat import S_ISREG
from time import sleep
from typing import TYPE_CHECKING, Any
from weakref import WeakSet
from zlib import crc32

from PIL import Image

from hgld.errors import DamagedImage, HgldError, InvalidData, Resumable
from hgld.images import Undecodable, decode_rgb
from hgld.shards.location import tar_folder
from hgld.shards.schema import IMAGE_CRC32
from hgld.storage import (
    WAITS_S,
    RemoteFolder,
    as_folder,
    is_web,
    join_location,
    open_location,
    require_end,
)

if TYPE_CHECKING:
    import pandas as pd

LARGE = 1 << 20  # bytes of a read
DAMAGED = "so the shard is damaged; run `hgld shards verify`"
OTHER = "so the shard is damaged or was replaced since its index was read; run `hgld shards verify`"


def require_intact(data: bytes | memoryview, expected: int | None, name: Callable[[], str]) -> None:
    """Check the bytes of an image against the CRC-32 of its row, if it has one.

    Raises:
        DamagedImage: the bytes were changed; ``name`` gives the image's shard and key.
    """
    if expected is not None and crc32(data) != expected:
        raise DamagedImage(f"{name()}: the image's bytes were changed (CRC-32), {OTHER}")


def decode_image(data: bytes | memoryview, name: Callable[[], str]) -> Image.Image:
    """Decode an image, upright in RGB.

    Raises:
        DamagedImage: it cannot be decoded; ``name`` gives its shard and key.
    """
    try:
        return decode_rgb(data)
    except Undecodable as error:
        raise DamagedImage(f"{name()}: the image cannot be decoded ({error}), {DAMAGED}") from None


class FileReader:
    """Open files below one folder; beyond ``limit`` the one opened first is closed.

    All are closed with the last reference to the reader. At a URL each read is a request.
    """

    def __init__(self, folder: Path | str, limit: int = 512) -> None:
        self.folder = as_folder(folder)
        self.limit = limit
        self._remote = RemoteFolder(self.folder) if isinstance(self.folder, str) else None
        self._handles: dict[str, int] = {}
        _readers.add(self)

    def read(self, path: str, offset: int, size: int) -> bytes:
        """``size`` bytes of the file ``path`` (relative to the folder) from ``offset`` on.

        Raises:
            InvalidData: the file does not exist or ends too early.
            HgldError: reading fails.
        """
        if self._remote is not None:
            return self._remote.read_range(path, offset, size)
        handle = self._open(path)
        if size > LARGE:  # a wrong size in an index must not allocate gigabytes
            self._require_range(path, offset, size, os.fstat(handle).st_size)
        try:
            data = os.pread(handle, size, offset)
            while len(data) < size:  # the kernel may give less at a time, above 2 GB
                more = os.pread(handle, size - len(data), offset + len(data))
                if not more:
                    end = min(os.fstat(handle).st_size, offset + len(data))
                    self._require_range(path, offset, size, end)
                data += more
        except OSError as error:
            raise self._named(error, path) from None
        return data

    def read_image(self, row: "Mapping[str, Any] | pd.Series[Any]") -> bytes:
        """Read the image of a row of the index as ``read`` does; check its CRC-32 if it has one.

        Raises:
            DamagedImage: its bytes were changed.
        """
        path = str(row["shard"])
        data = self.read(path, int(row["offset"]), int(row["size_bytes"]))
        name = f"{self.folder}/{path}: key {row['key']}"
        require_intact(data, row.get(IMAGE_CRC32), lambda: name)
        return data

    def read_into(self, path: str, offset: int, into: memoryview) -> None:
        """Fill ``into`` with a local file's bytes from ``offset`` on; ``read`` without a copy."""
        handle = self._open(path)
        try:
            count = os.preadv(handle, [into], offset)
        except OSError as error:
            raise self._named(error, path) from None
        if count < len(into):
            into[count:] = self.read(path, offset + count, len(into) - count)

    def crc32(self, path: str, offset: int, size: int) -> int:
        """Return the CRC-32 of a range of a file, however large."""
        found = 0
        for start in range(offset, offset + size, LARGE):
            found = crc32(self.read(path, start, min(LARGE, offset + size - start)), found)
        return found

    def _named(self, error: OSError, path: str) -> HgldError:
        """A read error with the file's path, as an OSError of a descriptor has only a number."""
        return HgldError(f"{self.folder}/{path}: cannot be read ({error.strerror or error})")

    def _require_range(self, path: str, offset: int, size: int, end: int) -> None:
        """Refuse a range that ends beyond a file's end."""
        if offset + size > end:
            raise InvalidData(
                f"{self.folder}/{path}: ends {offset + size - end} bytes before byte "
                f"{offset + size}, where its index has {size} bytes of an image; the file is "
                "truncated, get it again"
            )

    def close(self) -> None:
        """Close all files."""
        while self._handles:
            os.close(self._handles.popitem()[1])

    def _open(self, path: str) -> int:
        """Return the descriptor of a file, which is opened on its first read."""
        if path in self._handles:
            return self._handles[path]
        if len(self._handles) >= self.limit:
            os.close(self._handles.pop(next(iter(self._handles))))
        try:
            # O_NONBLOCK: opening a pipe must not wait for its writer; regular files ignore it.
            handle = os.open(Path(self.folder, path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise InvalidData(
                f"{self.folder}/{path}: no such file, although an index names it; bring it back, "
                "or run again the stage that lists or writes these files"
            ) from None
        except OSError as error:
            raise self._named(error, path) from None
        if not S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise InvalidData(
                f"{self.folder}/{path}: not a regular file; an index names files that hold images"
            )
        self._handles[path] = handle
        return handle

    def __reduce__(self) -> tuple[Any, ...]:
        return FileReader, (self.folder, self.limit)

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ends():  # at exit modules are already torn down; the system closes the files
            self.close()


_readers: WeakSet[FileReader] = WeakSet()


def _forget_handles() -> None:
    """In a forked process: drop all descriptors without closing them; the parent uses them."""
    for reader in list(_readers):
        reader._handles = {}


os.register_at_fork(after_in_child=_forget_handles)


class SequentialFile:
    """A file that is read forwards only.

    If the answer of a web server breaks off, the rest of it is requested.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        self._file = open_location(location)
        self._place = 0

    def take(self, offset: int, size: int) -> bytes:
        """Read ``size`` bytes from ``offset`` on, which must not be before the last read's end.

        Raises:
            InvalidData: the file ends too early.
            HgldError: reading fails; ``Resumable`` if it is at a web server.
        """
        # Read and discard, as a stream cannot seek.
        while self._place < offset:
            self._read(min(LARGE, offset - self._place), offset, size)
        return self._read(size, offset, size)

    def _read(self, count: int, offset: int, size: int) -> bytes:
        data, waits = b"", iter(WAITS_S)
        while len(data) < count:
            try:
                more = self._file.read(count - len(data))
                if not more:
                    require_end(self._file)
            except (OSError, HTTPException) as error:
                fault = f"{self.location}: reading failed at byte {self._place} ({error})"
                if not is_web(self.location):
                    raise HgldError(fault) from None
                if (wait := next(waits, None)) is None:
                    raise Resumable(f"{fault}; the same command resumes later") from None
                sleep(wait)
                self._file.close()
                self._file = open_location(self.location, self._place)
                continue
            if not more:
                raise InvalidData(
                    f"{self.location}: ends at byte {self._place}, but its index has {size} bytes "
                    f"of an image at {offset}; the shard is truncated, get it again"
                )
            data += more
            self._place += len(more)
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_image(folder: Path | str, row: "Mapping[str, Any] | pd.Series[Any]") -> Image.Image:
    """Read the image of one row of the index, in RGB.

    Raises:
        InvalidData: it cannot be read or decoded, or its bytes were changed.
    """
    reader = FileReader(tar_folder(folder))
    data = reader.read_image(row)
    where = join_location(reader.folder, str(row["shard"]))
    return decode_image(data, lambda: f"{where}: key {row['key']}")
