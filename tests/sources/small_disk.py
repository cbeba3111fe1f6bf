"""A folder on a small disk of its own."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sources.file_server import Files

__all__ = ["asked_of_read_only", "small_disk"]


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Callable[[], None]]:
    """Mount a disk of so many bytes at the folder; yields what makes it large.

    Only root can mount; without it the test is skipped, and says so.
    """
    if os.geteuid() != 0:
        pytest.skip("a full disk needs root, to mount a small one")
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True
    )
    if done.returncode:
        pytest.skip(f"a full disk needs a mount, which is refused here: {done.stderr.decode()}")
    try:
        yield lambda: _grow(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def asked_of_read_only(
    fetch: Callable[[], None], folder: Path, files: Files
) -> list[tuple[str, str]]:
    """What a second fetch asks for, whose folder cannot be written any more."""
    with small_disk(folder, 1_000_000):
        fetch()
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        files.asked.clear()
        fetch()
    return files.asked


def _grow(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)
