"""Read many files by offset (pread), or one from front to back, here or behind a URL.

Images are members of hundreds of large tars that are never unpacked, and of the shards written from
them: an image costs one read at a known offset. A forked process reopens the files, since two
processes must not share and close the same file descriptors.
"""

import os
import re
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import BinaryIO, cast
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen
from weakref import WeakSet
from zlib import crc32

from hgld.errors import DamagedImage, HgldError, InvalidData, UsageError

__all__ = [
    "FileReader",
    "SequentialFile",
    "is_url",
    "join_location",
    "local_folder",
    "open_location",
    "require_intact",
]

LARGE = 1 << 20  # bytes of a read
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # a Path of a URL has one slash
TIMEOUT_S = 60.0
KEPT = ":/?#[]@!$&'()*+,;=%"  # legal in a URL; blanks and non-ASCII letters are escaped


def is_url(folder: Path | str) -> bool:
    """Whether a folder is a URL, even one that was converted to a Path.

    Example:
        >>> is_url("s3://bucket/shards"), is_url("work/shards")
        (True, False)
    """
    return URL.match(str(folder)) is not None


def local_folder(folder: Path | str) -> Path:
    """The Path of a folder given as a path or as text.

    Raises:
        UsageError: it is a URL.
    """
    if is_url(folder):
        raise UsageError(
            f'{folder}: a URL needs reader="stream" of BatchLoader, given as text; expected a '
            "folder on this machine"
        )
    return Path(folder)


def require_intact(data: bytes | memoryview, expected: int | None, name: Callable[[], str]) -> None:
    """Check the bytes of an image against the CRC-32 of its row, if it has one.

    Raises:
        DamagedImage: the bytes were changed; ``name`` gives the image's shard and key.
    """
    if expected is not None and crc32(data) != expected:
        raise DamagedImage(
            f"{name()}: the image's bytes were changed (CRC-32), so the shard is damaged; run "
            "`hgld shards verify`"
        )


class FileReader:
    """Open files below one folder; beyond ``limit`` the one opened first is closed."""

    def __init__(self, folder: Path, limit: int = 512) -> None:
        self.folder = folder
        self.limit = limit
        self._handles: dict[str, int] = {}
        _readers.add(self)

    def read(self, path: str, offset: int, size: int) -> bytes:
        """``size`` bytes of the file ``path`` (relative to the folder) from ``offset`` on.

        Raises:
            InvalidData: the file does not exist or ends too early.
            HgldError: reading fails.
        """
        handle = self._handles.get(path)
        if handle is None:
            handle = self._open(path)
        if size > LARGE:  # a wrong size in an index must not allocate gigabytes
            self._require_range(path, offset, size, os.fstat(handle).st_size)
        try:
            data = os.pread(handle, size, offset)
            while len(data) < size:  # the kernel may give less at a time, above 2 GB
                more = os.pread(handle, size - len(data), offset + len(data))
                if not more:
                    self._require_range(path, offset, size, offset + len(data))
                data += more
        except OSError as error:
            raise self._named(error, path) from None
        return data

    def read_image(self, path: str, offset: int, size: int, crc32: int | None, key: str) -> bytes:
        """Read the image of a sample as ``read`` does, and check its CRC-32 if that is known.

        Raises:
            DamagedImage: its bytes were changed.
        """
        data = self.read(path, offset, size)
        require_intact(data, crc32, lambda: f"{self.folder / path}: key {key}")
        return data

    def read_into(self, path: str, offset: int, into: memoryview) -> None:
        """Fill ``into`` with the file's bytes from ``offset`` on; like ``read``, without a copy."""
        handle = self._handles.get(path)
        try:
            count = os.preadv(self._open(path) if handle is None else handle, [into], offset)
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
        return HgldError(f"{self.folder / path}: cannot be read ({error.strerror or error})")

    def _require_range(self, path: str, offset: int, size: int, end: int) -> None:
        """Refuse a range that ends beyond a file's end."""
        if offset + size > end:
            raise InvalidData(
                f"{self.folder / path}: ends {offset + size - end} bytes before byte "
                f"{offset + size}, where its index has {size} bytes of an image; the file is "
                "truncated, get it again"
            )

    def close(self) -> None:
        """Close all files."""
        while self._handles:
            os.close(self._handles.popitem()[1])

    def forget(self) -> None:
        """Drop all descriptors without closing them, as the parent process still uses them."""
        self._handles = {}

    def _open(self, path: str) -> int:
        if len(self._handles) >= self.limit:
            os.close(self._handles.pop(next(iter(self._handles))))
        try:
            # O_NONBLOCK: opening a pipe must not wait for its writer; regular files ignore it.
            handle = os.open(self.folder / path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise InvalidData(
                f"{self.folder / path}: no such file, although an index names it; bring it back, "
                "or run again the stage that lists or writes these files"
            ) from None
        if not S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise InvalidData(
                f"{self.folder / path}: not a regular file; an index names files that hold images"
            )
        self._handles[path] = handle
        return handle

    def __getstate__(self) -> dict[str, object]:
        return {"folder": self.folder, "limit": self.limit}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ends():  # at exit modules are already torn down; the system closes the files
            self.close()


_readers: WeakSet[FileReader] = WeakSet()


def _forget_all() -> None:
    for reader in list(_readers):
        reader.forget()


os.register_at_fork(after_in_child=_forget_all)


def join_location(folder: Path | str, name: str) -> str:
    """Path or URL of a file in a folder.

    Example:
        >>> join_location("https://host/shards/", "train-000000.tar")
        'https://host/shards/train-000000.tar'
    """
    return f"{str(folder).rstrip('/')}/{name}"


class SequentialFile:
    """A file that is read forwards only."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._file = open_location(location)
        self._place = 0

    def take(self, offset: int, size: int) -> bytes:
        """Read ``size`` bytes from ``offset`` on, which must not be before the last read's end.

        Raises:
            InvalidData: the file ends too early.
        """
        # Read and discard, as a stream cannot seek.
        while self._place < offset:
            self._read(min(LARGE, offset - self._place), offset, size)
        return self._read(size, offset, size)

    def _read(self, count: int, offset: int, size: int) -> bytes:
        parts, missing = [], count
        while missing:
            try:
                part = self._file.read(missing)
            except (OSError, HTTPException) as error:
                raise HgldError(
                    f"{self.location}: reading failed at byte {self._place} ({error})"
                ) from None
            if not part:
                raise InvalidData(
                    f"{self.location}: ends at byte {self._place}, but its index has {size} bytes "
                    f"of an image at {offset}; the shard is truncated, get it again"
                )
            parts.append(part)
            missing -= len(part)
            self._place += len(part)
        return b"".join(parts)

    def __enter__(self) -> "SequentialFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def open_location(location: str) -> BinaryIO:
    """Open a path or URL for reading.

    Raises:
        InvalidData: the file does not exist.
        HgldError: it cannot be opened.
    """
    scheme, found, _ = location.partition("://")
    try:
        if not found:
            if Path(location).exists() and not Path(location).is_file():
                raise InvalidData(f"{location}: not a regular file; expected a file of shards")
            return Path(location).open("rb", buffering=LARGE)
        if scheme in ("http", "https"):
            return cast(BinaryIO, urlopen(quote(location, safe=KEPT), timeout=TIMEOUT_S))
        # Imported here, since only other schemes need it.
        import fsspec  # type: ignore[import-untyped]

        return cast(BinaryIO, fsspec.open(location, "rb", block_size=LARGE).open())
    except FileNotFoundError:
        raise _no_such_file(location) from None
    except ImportError as error:
        install = f': pip install "hgld[{scheme}]"' if scheme in ("gs", "s3") else ""
        raise HgldError(
            f"{location}: the package that reads {scheme}:// is not installed ({error}); install it"
            f"{install}, or copy the shards to this machine"
        ) from None
    except (OSError, ValueError, HTTPException) as error:
        if isinstance(error, HTTPError) and error.code == HTTPStatus.NOT_FOUND:
            raise _no_such_file(location) from None
        raise HgldError(f"{location}: cannot be opened ({error})") from None


def _no_such_file(location: str) -> InvalidData:
    return InvalidData(
        f"{location}: no such file, although an index names it; bring it back, or give the folder "
        "that holds it"
    )
