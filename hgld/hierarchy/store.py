"""What the scrape has learnt so far, in one SQLite file, so that a killed run goes on.

A batch is one transaction, synced to the disk before the next is asked for; only facts read out of
complete answers get here. When each was retrieved stays here and reaches no output.
"""

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hgld.errors import HgldError, Resumable
from hgld.hierarchy.answers import Item, Page, Statement, WikiClass

__all__ = ["Fact", "Store", "open_store"]

Fact = Page | Item | WikiClass

_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (server TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS facts (
    kind TEXT NOT NULL, key TEXT NOT NULL, fact TEXT NOT NULL, retrieved INTEGER NOT NULL,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;
"""


class Store:
    """Facts by key, of three kinds: pages by title, items and classes by id."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def pages(self) -> dict[str, Page]:
        """All pages asked for so far, by asked title."""
        return {key: Page(**fact) for key, fact in self._facts("Page")}

    def items(self) -> dict[str, Item]:
        """All items asked for so far, by asked id."""
        return {key: _item(fact) for key, fact in self._facts("Item")}

    def classes(self) -> dict[str, WikiClass]:
        """All classes asked for so far, by asked id."""
        return {key: WikiClass(**fact) for key, fact in self._facts("WikiClass")}

    def add(self, facts: Mapping[str, Fact]) -> None:
        """Keep a batch: all of it or, if the process dies, nothing of it."""
        now = int(time.time())
        rows = [
            (type(fact).__name__, key, json.dumps(asdict(fact), ensure_ascii=False), now)
            for key, fact in facts.items()
        ]
        with _explained(self._path), self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?)", rows)

    def start_over_unless(self, server: str) -> None:
        """Forget everything that another server said."""
        with _explained(self._path), self._connection:
            known = [row[0] for row in self._connection.execute("SELECT server FROM about")]
            if known != [server]:
                self._connection.execute("DELETE FROM facts")
                self._connection.execute("DELETE FROM about")
                self._connection.execute("INSERT INTO about VALUES (?)", (server,))

    def _facts(self, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        question = "SELECT key, fact FROM facts WHERE kind = ?"
        with _explained(self._path):
            for key, fact in self._connection.execute(question, (kind,)):
                yield key, json.loads(fact)


@contextmanager
def open_store(path: Path, server: str) -> Iterator[Store]:
    """Open the store of what ``server`` said, or start one.

    Raises:
        HgldError: the file is no database.
        Resumable: the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _explained(path):
        connection = sqlite3.connect(path, timeout=10)
    try:
        with _explained(path):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(_SCHEMA)
        store = Store(connection, path)
        store.start_over_unless(server)
        yield store
    finally:
        connection.close()


def _item(fact: Mapping[str, Any]) -> Item:
    statements = tuple(Statement(**statement) for statement in fact["statements"])
    return Item(**{**fact, "statements": statements})


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise Resumable(
            f"{path}: {error}; finished batches are kept, mend that and run the same command again"
        ) from None
    except sqlite3.DatabaseError as error:
        raise HgldError(f"{path}: {error}; delete the file to start the scrape over") from None
