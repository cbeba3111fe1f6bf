"""Read a large file as it was downloaded, in blocks of whole lines, and show how far it got.

Dumps come as .gz or .bz2 and hold more than a disk when unpacked, so they are unpacked on the fly;
its first bytes show the format of a file. Progress counts the bytes of the file itself.
"""

import bz2
import gzip
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from hgld.errors import InvalidData
from hgld.tasks import say, track

__all__ = ["read_blocks"]

BLOCK = 1 << 24
LONGEST_LINE = 1 << 28  # bytes; those of Wikimedia have a few million
MB = 1_000_000
NOTE_EVERY_S = 60.0
TOLD_ABOVE = 1 << 30  # bytes of a file that takes long enough to report its speed


def read_blocks(path: Path, label: str) -> Iterator[bytes]:
    """The file's text in blocks that end where a line ends.

    Raises:
        InvalidData: no such file, or its end is missing.
    """
    if not path.is_file():
        raise InvalidData(f"{path}: no such file; see scrape.dump_* in the pipeline file")
    steps = path.stat().st_size // MB + 1
    with path.open("rb") as raw, _opened(raw) as file, _explained(path):
        blocks = _Blocks(path, raw, file)
        for _ in track(blocks.steps(), label, steps):
            if blocks.block:
                yield blocks.block


class _Blocks:
    """Reads on, a block a step or more; ``block`` is the one that was read last."""

    def __init__(self, path: Path, raw: IO[bytes], file: IO[bytes]) -> None:
        self.path, self.raw, self.file = path, raw, file
        self.size = path.stat().st_size
        self.block = b""
        self.start = self.told = time.monotonic()

    def steps(self) -> Iterator[int]:
        """One step a megabyte of the file; each block belongs to one step."""
        rest, step, unpacked = b"", 0, 0
        while data := self.file.read(BLOCK):
            unpacked += len(data)
            cut = data.rfind(b"\n") + 1
            self.block, rest = (rest + data[:cut], data[cut:]) if cut else (b"", rest + data)
            if len(rest) > LONGEST_LINE:  # a packed file of a few kilobytes may hold it
                raise InvalidData(
                    f"{self.path}: a line has more than {LONGEST_LINE >> 20} MB; expected a dump "
                    "of Wikimedia, download it again"
                )
            yield step
            self.block = b""
            here = self.raw.tell() // MB
            yield from range(step + 1, here)
            step = max(step, here)
            self._tell(unpacked)
        self.block = rest
        yield step
        self._tell(unpacked, at_end=True)

    def _tell(self, unpacked: int, at_end: bool = False) -> None:
        now = time.monotonic()
        if self.size < TOLD_ABOVE or (not at_end and now - self.told < NOTE_EVERY_S):
            return
        self.told = now
        done, seconds = self.raw.tell(), max(now - self.start, 1e-9)
        left = (self.size - done) * seconds / max(done, 1)
        say(
            f"{self.path.name}: {done / 1e9:.1f} of {self.size / 1e9:.1f} GB, "
            f"{unpacked / seconds / MB:,.0f} MB/s unpacked, {left / 60:.0f} min to go"
        )


def _opened(raw: IO[bytes]) -> IO[bytes]:
    magic = raw.read(3)
    raw.seek(0)
    if magic[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    if magic == b"BZh":
        return bz2.BZ2File(raw)
    return raw


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidData(f"{path}: is cut short or damaged ({error}); download it again") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise InvalidData(f"{path}: is damaged ({error}); download it again") from None
