"""When the next request may be sent: requests keep apart, and further apart for a busy server.

Wikimedia counts what comes from one place, whichever program, pipeline or wiki it is for. So the
time of the next request is in a file that all scrapes of a person on one machine share: several
at once take turns, and one that is started again keeps to a pause that was asked for before.
Times are of a clock that no one sets and that starts over with the machine, by which a pause may
come out longer than asked but never shorter.
"""

import math
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from hgld.errors import DISK_FULL, HgldError, Resumable
from hgld.file_lock import hold
from hgld.home import home_folder
from hgld.http import PAUSE_CAP_S

MOST_PER_SECOND = 3.0  # Wikimedia allows 200 a minute
LEAST_PER_SECOND = 0.1
LONGEST_BACKOFF_S = 120.0
LINE = 60  # bytes of the file


def turn_file() -> Path:
    """The file in which all scrapes of this person note the time of the next request.

    Raises:
        UsageError: XDG_CACHE_HOME is not set, and the user has no home folder.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    cache = named if named.is_absolute() else home_folder("XDG_CACHE_HOME") / ".cache"
    return cache / "hgld" / "next-request"


@dataclass
class Pacer:
    """Keep requests apart, also if the system clock is set; never below a third of a second.

    Args:
        requests_per_second: 3 at most.
        path: the file by which processes take turns.

    Example:
        >>> Pacer(50).requests_per_second
        3.0
    """

    requests_per_second: float
    path: Path = field(default_factory=turn_file)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        fastest = min(self.requests_per_second, MOST_PER_SECOND)
        self._full = self.requests_per_second = max(LEAST_PER_SECOND, fastest)

    def take(self) -> float:
        """Take the next request for this process: 0, or the seconds until one may be sent.

        Raises:
            HgldError: the file cannot be read or written.
            Resumable: the disk is full.
        """
        with self._turn() as file:
            left = self._left(file)
            if left <= 0:
                self._write(file, 1 / self.requests_per_second)
            return left

    def hold_back(self, pause_s: float) -> None:
        """Let no process send a request within so many seconds, however this one ends.

        Raises:
            HgldError: the file cannot be read or written.
            Resumable: the disk is full.
        """
        with self._turn() as file:
            self._write(file, max(pause_s, self._left(file)))

    def slow_down(self) -> None:
        """Halve the rate, down to one request in ten seconds."""
        self.requests_per_second = max(LEAST_PER_SECOND, self.requests_per_second / 2)

    def speed_up(self) -> None:
        """Come back to the full rate, by a twentieth with each good answer."""
        self.requests_per_second = min(self._full, self.requests_per_second * 1.05)

    def _left(self, file: FileIO) -> float:
        """The pause counts from when it was written, or from now on a machine started since."""
        file.seek(0)
        try:
            written, pause = map(float, file.read(LINE).split())
        except ValueError:  # new, or damaged
            return 0.0
        if not (0 <= written < math.inf and 0 <= pause <= PAUSE_CAP_S):  # damaged; also if nan
            return 0.0
        if written > self.clock():
            self._write(file, pause)
            return pause
        return max(0.0, written + pause - self.clock())

    def _write(self, file: FileIO, pause_s: float) -> None:
        file.seek(0)
        file.write(f"{self.clock()} {pause_s}".encode().ljust(LINE))
        file.truncate(LINE)

    @contextmanager
    def _turn(self) -> Iterator[FileIO]:
        """The file, while no other process looks at it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with hold(self.path.with_suffix(".lock"), waiting=lambda _: None):
                self.path.touch()
                with self.path.open("r+b", buffering=0) as file:
                    yield file
        except OSError as error:
            kind = Resumable if error.errno in DISK_FULL else HgldError
            raise kind(
                f"{self.path}: {error.strerror}; by this file all scrapes of this machine take "
                "turns: correct that, or set XDG_CACHE_HOME to a folder that can be written"
            ) from None


def pause_before(times: int, asked_s: float) -> float:
    """Seconds before asking again: at least what the server asks for, never in step with others.

    Args:
        times: failures in a row so far; the pause doubles with each, up to two minutes.
        asked_s: what the server asks for, 0 where it does not.
    """
    backoff = min(LONGEST_BACKOFF_S, 2.0 ** min(times - 1, 10))
    return max(asked_s, backoff, 1.0) * random.uniform(1.0, 1.1)
