"""Tasks that tests run on a Ray cluster.

A worker imports the module of its task, so this one imports no torch: a worker starts in a second.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from hgld.errors import InvalidData
from hgld.ray_tasks import FileRange

__all__ = ["Reverse", "die_twice", "gpu", "granted", "look", "reverse", "wait"]


@dataclass(frozen=True)
class Reverse:
    """Write the end of a file backwards; with ``bad``, complain about the file instead."""

    source: Path
    key: Path
    out: Path
    bad: bool = False

    def reads(self) -> list[FileRange]:
        return [(self.source, 5, 3)]

    def shares(self) -> list[Path]:
        return [self.key]

    def writes(self) -> list[Path]:
        return [self.out]

    def moved(self, place: Callable[[Path], Path]) -> Self:
        paths = {name: place(getattr(self, name)) for name in ("source", "key", "out")}
        return replace(self, **paths)


def reverse(task: Reverse) -> bytes:
    if task.bad:
        raise InvalidData(f"{task.source}: is bad")
    task.out.parent.mkdir(parents=True, exist_ok=True)
    found = task.source.read_bytes()
    task.out.write_bytes(task.key.read_bytes() + found[:4:-1])
    return found


def die_twice(task: tuple[int, str]) -> int:
    """Square a number; the workers that first get 2 are killed."""
    number, folder = task
    if number == 2 and len(died := list(Path(folder).iterdir())) < 2:
        Path(folder, str(len(died))).touch()
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(10)
    return number**2


def granted(_: int) -> dict[str, float]:
    import ray

    found: dict[str, float] = ray.get_runtime_context().get_assigned_resources()
    return found


def gpu(folder: str) -> str | None:
    """GPUs that the task has; with a folder, once two workers have such a task."""
    if folder:
        Path(folder, str(os.getpid())).touch()
    until = time.monotonic() + 300
    while folder and len(list(Path(folder).iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def wait(path: str) -> None:
    """Wait until the node is lost."""
    Path(path).touch()
    time.sleep(600)


def look(folder: Path) -> tuple[bool, str, str]:
    return folder.exists(), str(Path.home()), str(Path.cwd())
