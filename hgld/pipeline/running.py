"""The progress of the running stage of a work folder, for ``hgld status`` beside it.

The runner keeps a small file while a stage runs. It counts only as long as the lock of the work
folder is held: a killed process leaves the file behind, but not the lock.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import TypeVar

from hgld.file_lock import is_held
from hgld.tasks import Label, also_watched_by
from hgld.words import progress_text

__all__ = ["RunningStage", "read_running", "record_running"]

Item = TypeVar("Item")
EVERY_S = 1.0  # the file is written at most so often
STARTING = "starting"  # label while inputs are read and libraries are imported


@dataclass(frozen=True)
class RunningStage:
    """A stage at work.

    Attributes:
        stage: its name.
        since: when it began, ISO 8601 with the time zone.
        label: of the part that it is at; empty: it reports no progress.
        done: items of that part.
        total: None: not known.
    """

    stage: str
    since: str
    label: str = ""
    done: int = 0
    total: int | None = None

    def describe(self) -> str:
        """Since when it runs and how far it is, in one line."""
        began = datetime.fromisoformat(self.since).astimezone()
        today = began.date() == datetime.now().astimezone().date()
        since = f"since {began:%H:%M}" if today else f"since {began:%Y-%m-%d %H:%M}"
        if not self.label:
            return since
        if self.label == STARTING:
            return f"{since}; {self.label}"
        return f"{since}; {self.label}: {progress_text(self.done, self.total)}"


def read_running(work: Path) -> RunningStage | None:
    """The stage that a process runs in the work folder at the moment."""
    if not is_held(work / ".lock"):
        return None
    try:
        return RunningStage(**json.loads(_path(work).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # between two stages, or of another version
        return None


@contextmanager
def record_running(work: Path, stage: str) -> Iterator[Callable[[], None]]:
    """Keep the file of the running stage while the block runs.

    The stage is starting until the function that the block gets is called, or it reports progress.
    """
    running = RunningStage(stage, datetime.now().astimezone().isoformat(timespec="seconds"))
    written = 0.0

    def watch(
        items: Iterable[Item], label: Label, total: int | None, done: int = 0
    ) -> Iterator[Item]:
        nonlocal written
        for number, item in enumerate(items, done):
            if monotonic() - written >= EVERY_S:
                name = label if isinstance(label, str) else label()
                _write(work, replace(running, label=name, done=number, total=total))
                written = monotonic()
            yield item

    _write(work, replace(running, label=STARTING))
    try:
        with also_watched_by(watch):
            yield lambda: _write(work, running)
    finally:
        with suppress(OSError):
            _path(work).unlink()


def _path(work: Path) -> Path:
    return work / ".state" / "running.json"


def _write(work: Path, running: RunningStage) -> None:
    """Replace the file; that a disk takes no more must not stop the stage itself."""
    temporary = _path(work).with_name(".running.json.tmp")
    with suppress(OSError):
        temporary.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(asdict(running)), encoding="utf-8")
        temporary.replace(_path(work))
