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

    Only root can mount; without it the test is skipped, and fails in CI.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        message = f"no disk can be mounted here ({done.stderr.strip()}); run as root"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    try:
        yield lambda: _grow(folder)
    finally:
        subprocess.run(["umount", folder], check=True)


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
