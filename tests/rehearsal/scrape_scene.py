"""A made wiki, the landmarks that lead into it, and the truth that a scrape of them has to find.

The drills beside this file run on it. Hosts on this machine are not paced, so nothing has to be
switched off for them.
"""

import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tests.mediawiki.made import Part, made_parts
from tests.mediawiki.scraping import Run, prepare_run
from tests.mediawiki.wiki import fill_copy

__all__ = [
    "Figures",
    "Scene",
    "count_facts",
    "require_done",
    "require_sound",
    "require_table",
    "set_up",
    "store_of",
]

FOUND = ["split", "landmark_id", "item_id", "order", "class_id"]
MISSED = ["split", "landmark_id", "reason"]

Figures = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """A made wiki in a folder, the landmarks that lead into it, and what has to come out."""

    folder: Path
    landmarks: list[dict[str, Any]]
    found: list[tuple[str, int, str, int, str]]
    missed: list[tuple[str, int, str]]

    @property
    def wiki(self) -> Path:
        return self.folder / "wiki"

    def run(self, name: str) -> Run:
        """A scrape that has not begun."""
        return prepare_run(self.folder / name, self.landmarks)

    def require_truth(self, found: pd.DataFrame, missed: pd.DataFrame) -> None:
        """Every landmark has exactly the statements, or the reason, that it was made with."""
        require_table(found, FOUND, self.found)
        require_table(missed, MISSED, self.missed)


def require_table(table: pd.DataFrame, columns: list[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """A table that a scrape wrote holds exactly these rows."""
    truth = pd.DataFrame(rows, columns=columns).sort_values(columns[:2] + columns[3:4])
    pd.testing.assert_frame_equal(
        table[columns].reset_index(drop=True), truth.reset_index(drop=True)
    )


def set_up(template: Path, folder: Path, landmarks: int, kilobytes: int = 0) -> Scene:
    """Make the wiki; ``kilobytes`` are those of an entity beside what a scrape looks for."""
    scene = Scene(folder, [], [], [])

    def worlds() -> Iterator[Any]:
        for part in made_parts(landmarks, kilobytes):
            _take(scene, part)
            yield part.world

    fill_copy(template, scene.wiki, worlds())
    return scene


def _take(scene: Scene, part: Part) -> None:
    scene.landmarks.extend(part.landmarks)
    scene.found.extend(part.found)
    scene.missed.extend(part.missed)


def store_of(run: Run) -> Path:
    """Where a scrape keeps what it has learnt."""
    return run.work / ".state" / "scrape" / "scrape.sqlite"


def count_facts(run: Run) -> int:
    """How many facts its store holds; 0 where there is none yet."""
    if not store_of(run).exists():
        return 0
    with _copy(run) as store:
        if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'facts'").fetchone():
            return 0
        found: int = store.execute("SELECT count(*) FROM facts").fetchone()[0]
        return found


def require_sound(run: Run) -> None:
    """SQLite itself finds no fault in the store."""
    with _copy(run) as store:
        assert store.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def require_done(done: subprocess.CompletedProcess[str]) -> None:
    """A command ended well."""
    assert done.returncode == 0, done.stderr


@contextmanager
def _copy(run: Run) -> Iterator[sqlite3.Connection]:
    """A copy of the store: a look must not mend it, nor need space on a full disk."""
    with tempfile.TemporaryDirectory() as folder:
        copied = shutil.copytree(store_of(run).parent, Path(folder) / "store")
        with closing(sqlite3.connect(copied / store_of(run).name)) as store:
            yield store
