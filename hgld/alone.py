"""Hold a place against a second process, and tell it who is there and since when.

The lock is the kernel's: it goes with its process, however that ends, so a killed owner never
blocks the next. The text in the file only names the owner.
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from hgld.errors import HgldError

__all__ = ["hold"]


@contextmanager
def hold(path: Path, taken: str, else_do: str = "") -> Iterator[None]:
    """Hold the lock of a file while the block runs.

    Args:
        path: the lock's file; its folder must be there.
        taken: what to say where another process holds it.
        else_do: what else can be done than to wait.

    Raises:
        HgldError: another process holds it; says which, and since when.
    """
    with path.open("a+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().decode().strip() or "it does not say who"
            raise HgldError(f"{taken} ({owner}); wait for it, {else_do}".rstrip(", ")) from None
        file.truncate(0)
        since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        who = f"process {os.getpid()} on {socket.gethostname()} since {since}\n"
        with suppress(OSError):  # a full disk is told of where something is lost
            file.write(who.encode())
        yield
