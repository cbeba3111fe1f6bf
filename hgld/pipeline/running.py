"""Progress file of the running stage of a work folder, read by ``hgld status`` in another process.

The runner keeps a small file while a stage runs. The file is valid only while the lock of the work
folder is held: a killed process leaves the file, but not the lock.
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

Item = TypeVar("Item")
EVERY_S = 1.0  # least time between two writes of the file
STARTING = "starting"  # label while inputs are read and libraries are imported


@dataclass(frozen=True)
class RunningStage:
    """A running stage.

    Attributes:
        stage: its name.
        since: start, ISO 8601 with the time zone.
        label: of the current part; empty: it reports no progress.
        done: finished items of that part.
        total: number of items; None: unknown.
        seconds: time since the part began.
        before: items of the part that were finished when it began.
    """

    stage: str
    since: str
    label: str = ""
    done: int = 0
    total: int | None = None
    seconds: float = 0.0
    before: int = 0

    def describe(self) -> str:
        """Return start time and progress in one line."""
        began = datetime.fromisoformat(self.since).astimezone()
        today = began.date() == datetime.now().astimezone().date()
        since = f"since {began:%H:%M}" if today else f"since {began:%Y-%m-%d %H:%M}"
        if not self.label:
            return since
        if self.label == STARTING:
            return f"{since}; {self.label}"
        how_far = progress_text(self.done, self.total, self.seconds, self.before)
        return f"{since}; {self.label}: {how_far}"


def read_running(work: Path) -> RunningStage | None:
    """Return the stage that runs in the work folder now; None if there is none."""
    if not is_held(work / ".lock"):
        return None
    try:
        return RunningStage(**json.loads(_path(work).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # between two stages, or from another version
        return None


@contextmanager
def record_running(work: Path, stage: str) -> Iterator[Callable[[], None]]:
    """Keep the progress file while the block runs.

    The label is "starting" until the yielded function is called or progress is reported.
    """
    running = RunningStage(stage, datetime.now().astimezone().isoformat(timespec="seconds"))
    written = 0.0

    def watch(items: Iterable[Item], label: Label, total: int | None, done: int) -> Iterator[Item]:
        nonlocal written
        began, shown = monotonic(), False
        for number, item in enumerate(items, done):
            if (now := monotonic()) - written >= EVERY_S:
                name = label if isinstance(label, str) else label()
                how_far = (name, number, total, now - began, done)
                _write(work, RunningStage(stage, running.since, *how_far))
                written, shown = now, True
            yield item
        if shown:  # what follows may take long and report nothing
            _write(work, running)

    _write(work, replace(running, label=STARTING))
    try:
        with also_watched_by(watch):
            yield lambda: _write(work, running)
    finally:
        with suppress(OSError):
            _path(work).unlink()


def forget_running(work: Path) -> None:
    """Delete the file of a killed run; the caller holds the lock, which makes the file valid."""
    _path(work).unlink(missing_ok=True)


def _path(work: Path) -> Path:
    return work / ".state" / "running.json"


def _write(work: Path, running: RunningStage) -> None:
    """Replace the file; a full disk must not stop the stage here."""
    temporary = _path(work).with_name(".running.json.tmp")
    with suppress(OSError):
        temporary.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(asdict(running)), encoding="utf-8")
        temporary.replace(_path(work))
