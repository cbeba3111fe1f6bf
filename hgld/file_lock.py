"""File locks between processes; a refused process is shown the owner and the time it took the lock.

The kernel holds the lock (flock) and frees it when the process ends, even by SIGKILL, so a killed
owner never blocks the next one. A forked worker closes its copy of the file: it would keep the lock
for as long as it outlives its parent, some seconds. The text in the file only names the owner.
"""

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from stat import S_ISREG
from time import sleep
from typing import BinaryIO
from weakref import WeakSet

from hgld.errors import HgldError, InvalidData
from hgld.words import single_blanks

TRIES, BETWEEN_TRIES_S = 5, 0.02

SHOWN_BYTES = 200  # of the text in the lock's file

_locks: WeakSet[BinaryIO] = WeakSet()  # lock files of this process


def _close_copies() -> None:
    for file in _locks:
        file.close()


os.register_at_fork(after_in_child=_close_copies)


@contextmanager
def hold(
    path: Path, taken: str = "", else_do: str = "", waiting: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Hold the lock of a file while the block runs.

    Args:
        path: the lock's file; its folder must exist.
        taken: message if another process holds it.
        else_do: alternative to waiting, appended to the message.
        waiting: if given, wait for the lock instead of raising, and pass the message to it.

    Raises:
        HgldError: another process holds it; names the process and the time.
        InvalidData: the path is a folder, a pipe or a device.
    """
    with suppress(FileNotFoundError):  # the owner may delete it at any moment
        if not S_ISREG(path.stat().st_mode):
            raise InvalidData(f"{path}: not a file; move it away")
    with path.open("a+b", buffering=0) as file:
        _locks.add(file)
        for _ in range(TRIES):  # retry: ``is_held`` of another process takes the lock briefly
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                sleep(BETWEEN_TRIES_S)
        else:
            file.seek(0)
            text = (file.read(SHOWN_BYTES) or b"").decode(errors="replace")
            owner = single_blanks(text) or "it does not say who"
            if waiting is None:
                raise HgldError(f"{taken} ({owner}); wait for it, {else_do}".rstrip(", "))
            waiting(f"{taken} ({owner}); waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        who = f"process {os.getpid()} on {socket.gethostname()} since {since}\n"
        with suppress(OSError):  # the name is a courtesy; code that loses data reports a full disk
            file.write(who.encode())
        try:
            yield
        finally:
            file.truncate(0)  # a folder that is shared must not name this machine


def is_held(path: Path) -> bool:
    """Whether a process holds the lock of a file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
