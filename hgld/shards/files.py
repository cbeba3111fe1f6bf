"""Reads byte ranges of many files by offset (pread), each file opened once.

Images lie in hundreds of large tars that are never unpacked, and in the shards written from
them: one read of a known place is all that an image costs. A reader reopens its files in a
process that was forked from its own, since such processes may not share an open file.
"""

import os
from collections import OrderedDict
from pathlib import Path

from hgld.errors import InvalidData

__all__ = ["FileReader"]


class FileReader:
    """Open files below one folder; the longest unused are closed beyond ``limit``."""

    def __init__(self, folder: Path, limit: int = 512) -> None:
        self.folder = folder
        self.limit = limit
        self._handles: OrderedDict[str, int] = OrderedDict()
        self._process = os.getpid()

    def read(self, path: str, offset: int, size: int) -> bytes:
        """``size`` bytes of the file ``path`` (relative to the folder) from ``offset`` on.

        Raises:
            InvalidData: no such file, or it ends too early.
        """
        data = os.pread(self._handle(path), size, offset)
        if len(data) == size:
            return data
        while 0 < len(data) < size:  # the kernel may give less at a time, above 2 GB
            more = os.pread(self._handle(path), size - len(data), offset + len(data))
            if not more:
                break
            data += more
        if len(data) != size:
            raise InvalidData(
                f"{self.folder / path}: ends {size - len(data)} bytes before byte "
                f"{offset + size}, where its index has {size} bytes of an image; the file is "
                "truncated, get it again"
            )
        return data

    def read_into(self, path: str, offset: int, into: memoryview) -> None:
        """Fill ``into`` with the file's bytes from ``offset`` on; as ``read``, without a copy."""
        count = os.preadv(self._handle(path), [into], offset)
        if count < len(into):
            into[count:] = self.read(path, offset + count, len(into) - count)

    def close(self) -> None:
        """Close all files."""
        while self._handles:
            os.close(self._handles.popitem()[1])

    def _handle(self, path: str) -> int:
        if self._process != os.getpid():
            self._handles, self._process = OrderedDict(), os.getpid()
        if path in self._handles:
            self._handles.move_to_end(path)
            return self._handles[path]
        if len(self._handles) >= self.limit:
            os.close(self._handles.popitem(last=False)[1])
        self._handles[path] = self._open(path)
        return self._handles[path]

    def _open(self, path: str) -> int:
        try:
            return os.open(self.folder / path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise InvalidData(
                f"{self.folder / path}: no such file, although an index names it; bring it back, "
                "or run again the stage that lists or writes these files"
            ) from None

    def __getstate__(self) -> dict[str, object]:
        return {"folder": self.folder, "limit": self.limit}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __del__(self) -> None:
        if self._process == os.getpid():
            self.close()
