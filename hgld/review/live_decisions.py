"""Decisions that several people make at the same time, and who of them must hear of what.

The files of the labels folder stay the only truth: a decision is appended there before anybody
hears of it, and what another program writes there (a sheet that is applied, a git merge) is found
by watching the files. So a server can be killed at any time, and two can serve one labels folder.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Event, Lock
from typing import Any

from hgld.artifacts import file_stamp
from hgld.errors import HgldError

LOOK_S = 0.2  # between two looks at the files
State = Mapping[str, Mapping[str, Any]]  # part -> key -> its facts as JSON; a key is never removed


class LiveDecisions:
    """State of the files, and a version for each change of a key.

    Args:
        files: files whose change is looked for.
        read: returns the state of the files.

    Example:
        >>> live = LiveDecisions([], lambda: {"rows": {"Q1": {"decision": "keep"}}})
        >>> at = live.now()
        >>> live.since(at, 0.0)[1], live.since("", 0.0)[1]["rows"]
        ({}, {'Q1': {'decision': 'keep'}})
    """

    def __init__(self, files: Sequence[Path], read: Callable[[], State]) -> None:
        self.files, self.read = files, read
        self.run = secrets.token_hex(4)  # versions of another run mean nothing
        self.people = Counter[str]()  # name -> open pages
        self._version = 0
        self._parts: dict[str, dict[str, tuple[int, Any]]] = {}
        self._seen: object = None
        self._reading, self._news = Lock(), Condition()
        self.refresh()

    def now(self) -> str:
        """Return the name of the present version."""
        return f"{self.run}:{self._version}"

    def refresh(self) -> None:
        """Read the files if they changed, and wake those who wait for news.

        Raises:
            HgldError: a file cannot be read; the state stays as it was.
        """
        with self._reading:
            seen = [file_stamp(path) for path in self.files]
            if seen == self._seen:
                return
            state = self.read()
            with self._news:
                self._seen = seen  # taken before reading, so a later change is found again
                self._version += 1
                for part, facts in state.items():
                    known = self._parts.setdefault(part, {})
                    for key, fact in facts.items():
                        if key not in known or known[key][1] != fact:
                            known[key] = self._version, fact
                self._news.notify_all()

    def since(self, at: str, wait_s: float) -> tuple[str, State]:
        """Return the present version, and what is newer than a version; wait for news.

        Args:
            at: a version; everything is newer than one of another run.
            wait_s: longest wait in seconds.
        """
        run, _, number = at.partition(":")
        before = int(number) if run == self.run and number.isdecimal() else -1
        with self._news:
            if before == self._version:
                self._news.wait(wait_s)
            parts = {
                part: {key: fact for key, (at, fact) in facts.items() if at > before}
                for part, facts in self._parts.items()
            }
            return self.now(), {part: facts for part, facts in parts.items() if facts}

    @contextmanager
    def present(self, who: str) -> Iterator[None]:
        """Count a person among those who are here while the block runs."""
        self._count(who, 1)
        try:
            yield
        finally:
            self._count(who, -1)

    def _count(self, who: str, pages: int) -> None:
        with self._news:
            self.people[who] += pages
            self.wake()

    def wake(self) -> None:
        """Wake those who wait, although no decision changed."""
        with self._news:
            self._version += 1
            self._news.notify_all()

    def watch(self, stopped: Event, notice: Callable[[str], None]) -> None:
        """Look for changes of the files until ``stopped``; report an unreadable file once."""
        said = ""
        while not stopped.wait(LOOK_S):
            try:
                self.refresh()
                said = ""
            except (HgldError, OSError) as error:
                if str(error) != said:
                    notice(f"{error}; the page shows the decisions of before")
                said = str(error)
