"""Read files from front to back, on this machine or behind a URL.

A spinning disk and a remote store are many times faster without seeks. ``http(s)`` is read as one
long response, other schemes (``s3://`` ...) through fsspec if their driver is installed.
"""

from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

from hgld.errors import HgldError, InvalidData

__all__ = ["SequentialFile", "join_location", "open_location"]

CHUNK = 1 << 20
TIMEOUT_S = 60.0
KEPT = ":/?#[]@!$&'()*+,;=%"  # legal in a URL; blanks and non-ASCII letters are escaped


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
            self._read(min(CHUNK, offset - self._place), offset, size)
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
            return Path(location).open("rb", buffering=CHUNK)
        if scheme in ("http", "https"):
            return cast(BinaryIO, urlopen(quote(location, safe=KEPT), timeout=TIMEOUT_S))
        # Imported here, since only other schemes need it.
        import fsspec  # type: ignore[import-untyped]

        return cast(BinaryIO, fsspec.open(location, "rb", block_size=CHUNK).open())
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
