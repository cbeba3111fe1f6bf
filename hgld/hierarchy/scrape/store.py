"""Facts that the scrape has learnt, in one SQLite file, so that a killed run resumes.

A batch is one transaction, synced to the disk before the next is asked for; only facts read out of
whole answers get here. When each was retrieved stays here and reaches no output. A fact that is to
be asked for again is marked as outdated and stays until the new one takes its place, so a refresh
that is stopped goes on as well. SQLite does not notice a changed bit in a fact, so each has a
digest of its kind, key and content; a fact with another digest is dropped and asked for again.
``Facts`` keeps those in use at hand, so that a long way costs few look-ups.

A lock of the kernel (see ``hgld.file_lock``) keeps a second process out, not a row of the
database: a row outlives a killed owner, and nothing shows for sure whether its process is alive.
"""

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from errno import ENOSPC
from hashlib import blake2b
from pathlib import Path
from typing import Any

from hgld.errors import DISK_FULL, HgldError, Resumable, UsageError
from hgld.file_lock import hold
from hgld.hierarchy.scrape.answers import Item, Page, Statement
from hgld.hierarchy.scrape.client import on_this_machine
from hgld.hierarchy.scrape.route import Fact, Known, Redirect, SomeFact
from hgld.tasks import say
from hgld.words import count_text, single_blanks

VERSION = 3  # of what a fact holds; a store of another version starts over
DAY_S = 86400
DUMPS = "dump "  # begins the name of a server that is files

_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (server TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS facts (
    kind TEXT NOT NULL, key TEXT NOT NULL, fact TEXT NOT NULL, retrieved INTEGER NOT NULL,
    digest TEXT NOT NULL, outdated INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS outdated ON facts (outdated) WHERE outdated;
"""
_AMONG = "kind = ? AND key IN (SELECT value FROM json_each(?))"

MOST_AT_HAND = 20_000


class FactStore:
    """Facts by kind and key: pages and redirects by title, items and classes by id."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def load(self, kind: type[SomeFact], keys: Iterable[str]) -> dict[str, SomeFact]:
        """The facts of those keys that are known and not outdated; damaged ones are dropped."""
        question = f"SELECT key, fact, digest FROM facts WHERE NOT outdated AND {_AMONG}"
        with _explained(self._path), self._connection:
            rows = self._connection.execute(
                question, (kind.__name__, json.dumps(list(keys)))
            ).fetchall()
            sound = {key: fact for key, fact, d in rows if d == _digest(kind.__name__, key, fact)}
            if damaged := [key for key, *_ in rows if key not in sound]:
                drop = "DELETE FROM facts WHERE kind = ? AND key = ?"
                self._connection.executemany(drop, [(kind.__name__, key) for key in damaged])
                found = count_text(len(damaged), "damaged fact")
                say(f"{self._path}: {found}, asked for again")
        facts = {key: json.loads(fact) for key, fact in sound.items()}
        for fact in facts.values() if kind is Item else ():
            fact["statements"] = tuple(Statement(**cells) for cells in fact["statements"])
        return {key: kind(**fact) for key, fact in facts.items()}

    def add(self, facts: Mapping[str, Fact]) -> None:
        """Keep a batch: all of it or, if the process dies, nothing of it."""
        now = int(time.time())
        rows = []
        for key, fact in facts.items():
            kind, text = type(fact).__name__, json.dumps(asdict(fact), ensure_ascii=False)
            rows.append((kind, key, text, now, _digest(kind, key, text)))
        with _explained(self._path), self._connection:
            self._connection.executemany(
                "INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?, 0)", rows
            )

    def outdate(self, keys: Mapping[type[Fact], Iterable[str]]) -> None:
        """Have these facts asked for again."""
        with _explained(self._path), self._connection:
            for kind, some in keys.items():
                question = f"UPDATE facts SET outdated = 1 WHERE {_AMONG}"
                self._connection.execute(question, (kind.__name__, json.dumps(list(some))))

    def outdate_older(self, days: float) -> None:
        """Have all facts asked for again that were retrieved more than so many days ago."""
        limit = int(time.time() - days * DAY_S)
        with _explained(self._path), self._connection:
            self._connection.execute("UPDATE facts SET outdated = 1 WHERE retrieved < ?", (limit,))

    def is_outdated(self) -> bool:
        """True if facts wait to be asked for again, since a refresh was stopped."""
        with _explained(self._path):
            found = self._connection.execute("SELECT 1 FROM facts WHERE outdated LIMIT 1")
            return found.fetchone() is not None

    def forget_outdated(self) -> None:
        """Let go of outdated facts that no landmark leads to any more."""
        with _explained(self._path), self._connection:
            self._connection.execute("DELETE FROM facts WHERE outdated")

    def start_over_unless(self, server: str) -> None:
        """Forget what other dumps or another server on this machine said.

        Raises:
            UsageError: it holds what a server elsewhere said, which took hours to get.
            HgldError: the server's name is damaged; to start over would lose hours of answers.
        """
        about = f"{server} (version {VERSION})"
        with _explained(self._path), self._connection:
            rows = self._connection.execute("SELECT server, digest FROM about").fetchall()
            if any(digest != _digest("about", "", name) for name, digest in rows):
                raise sqlite3.DatabaseError("is damaged")
            known = [name for name, _ in rows]
            if known != [about]:
                before = " ".join(known).partition(" (version")[0]
                if before not in ("", server) and before.startswith(DUMPS):
                    say(
                        f"{self._path}: the dumps are not those of before; they are read from the "
                        "start"
                    )
                elif before not in ("", server) and not any(
                    on_this_machine(f"//{host}") for host in before.split()
                ):
                    raise UsageError(
                        f"{self._path}: holds what {before} said, and now {server} is to be "
                        "asked; give --work another folder, or delete the file to start the "
                        "scrape over"
                    )
                self._connection.execute("DELETE FROM facts")
                self._connection.execute("DELETE FROM about")
                self._connection.execute(
                    "INSERT INTO about VALUES (?, ?)", (about, _digest("about", "", about))
                )


@contextmanager
def open_store(path: Path, server: str) -> Iterator[FactStore]:
    """Open the store of what ``server`` said, or start one.

    Raises:
        HgldError: the file is not a database, or another process is at work on it.
        UsageError: it holds what another server said.
        Resumable: the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with hold(path.with_suffix(".lock"), f"{path}: another scrape is at work on it"):
        with _explained(path):
            connection = sqlite3.connect(path, timeout=10)
        try:
            with _explained(path):
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.text_factory = lambda data: data.decode("utf-8", "replace")  # see load
                connection.executescript(_SCHEMA)
            store = FactStore(connection, path)
            store.start_over_unless(server)
            yield store
        finally:
            connection.close()


def _digest(kind: str, key: str, fact: str) -> str:
    return blake2b(f"{kind}\n{key}\n{fact}".encode(), digest_size=16).hexdigest()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        text = single_blanks(str(error))  # it may quote what is damaged
        # "disk I/O error" also if the index of the log cannot grow: only a full disk prevents that
        code = getattr(error, "sqlite_errorcode", None)  # errors of Python's module have none
        full = "is full" in text or code == sqlite3.SQLITE_IOERR_SHMSIZE
        what = DISK_FULL[ENOSPC] if full else f"{text}; correct that"
        raise Resumable(
            f"{path}: {what} and run the same command again, finished batches are kept"
        ) from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite quotes damaged bytes
        text = single_blanks(str(error))
        raise HgldError(f"{path}: {text}; delete the file to start the scrape over") from None


class Facts:
    """The facts known so far (``hgld.hierarchy.scrape.route.Known``), and a way to add to it."""

    def __init__(self, store: FactStore) -> None:
        self._store = store
        self._at_hand: dict[tuple[type[Any], str], Any] = {}

    def get(self, kind: type[SomeFact], key: str) -> SomeFact | None:
        """The fact of that kind, None where it has yet to be asked for."""
        if (kind, key) not in self._at_hand:
            self._fetch(kind, [key])
        found: SomeFact | None = self._at_hand[kind, key]
        return found

    def preload(self, titles: Iterable[str]) -> None:
        """Take at hand what is known on the way from these titles, in a few look-ups."""
        if len(self._at_hand) > MOST_AT_HAND:
            self._at_hand.clear()
        pages = self._fetch(Page, titles)
        self._fetch(Redirect, (title for title, page in pages.items() if page.moved_softly))
        items = self._fetch(Item, {p.item_id for p in pages.values()} - {""})
        self._fetch(Item, {i.topic_id for i in items.values() if i.is_category} - {""})

    def add(self, found: Mapping[str, SomeFact]) -> None:
        """Keep a batch, in the store first."""
        self._store.add(found)
        self._at_hand.update({(type(fact), key): fact for key, fact in found.items()})

    def _fetch(self, kind: type[SomeFact], keys: Iterable[str]) -> dict[str, SomeFact]:
        keys = list(keys)
        found = self._store.load(kind, keys) if keys else {}
        self._at_hand.update({(kind, key): found.get(key) for key in keys})
        return found


class Trail:
    """Passes facts on and remembers which: what an ending rests on."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self.keys: list[tuple[type[Any], str]] = []

    def get(self, kind: type[SomeFact], key: str) -> SomeFact | None:
        """The fact of a key."""
        self.keys.append((kind, key))
        return self._known.get(kind, key)
