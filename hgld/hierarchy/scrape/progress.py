"""Progress of the scrape in words: before it starts, during it, and when it is stopped."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import ceil

from hgld.hierarchy.scrape.client import ApiClient
from hgld.tasks import say, track
from hgld.words import count_text, duration_text

__all__ = ["Progress"]

QUESTIONS_OF_A_TITLE = 1.75  # its page, the item of two thirds, topic and redirect of a few
MOST_CLASSES = 6_000  # at full size; a thirtieth of the titles in a part of it
NOTE_EVERY_S = 300.0


class Progress:
    """Count landmarks and requests, and report them.

    Args:
        client: counts its requests.
        landmarks: how many there are.
        clock: seconds; a parameter so that tests need not wait.
    """

    def __init__(
        self, client: ApiClient, landmarks: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.client = client
        self.landmarks = landmarks
        self.clock = clock
        self.start = self.told = clock()
        self.done = 0
        self.known = 0  # landmarks done before anything had to be asked for

    def announce(
        self, titles: int, new_titles: int, batch_size: int, requests_per_second: float | None
    ) -> None:
        """Say how much there is to ask, and how long it will take at this rate (None: unpaced)."""
        if not new_titles:
            return
        requests = ceil(new_titles * QUESTIONS_OF_A_TITLE / batch_size)
        requests += ceil(min(MOST_CLASSES, new_titles / 30) / batch_size)
        known = f", {titles - new_titles:,} of them known" if new_titles < titles else ""
        text = f"{titles:,} titles to look up{known}: about {requests:,} requests"
        if requests_per_second is not None:
            hours = duration_text(requests / requests_per_second)
            text += f",\nat least {hours} at {requests_per_second:g} a second; it may be stopped"
            text += "\nat any time (Ctrl-C), the same command goes on"
        say(text)

    def watch(self, titles: Iterable[str], landmarks_of: Callable[[str], int]) -> None:
        """Go through the titles as they get done, with a step of progress for each landmark."""
        done = (title for title in titles for _ in range(landmarks_of(title)))
        for _ in track(self._count(done), self.label, self.landmarks):
            pass

    def label(self) -> str:
        """Requests and their rate, beside the bar that counts the landmarks."""
        return f"{count_text(self.client.requests, 'request')}, {self.rate():.1f}/s"

    def rate(self) -> float:
        """Requests a second so far."""
        return self.client.requests / max(1e-9, self.clock() - self.start)

    @contextmanager
    def told_when_stopped(self) -> Iterator[None]:
        """Say how far it got where the block is left by an error or Ctrl-C."""
        try:
            yield
        except BaseException:
            say(f"stopped: {self.done:,} of {self.landmarks:,} landmarks are looked up and kept")
            raise

    def _count(self, done: Iterable[str]) -> Iterator[str]:
        for title in done:
            yield title
            self.done += 1
            if not self.client.requests:
                self.known, self.start = self.done, self.clock()
                self.told = self.start
            if self.clock() - self.told > NOTE_EVERY_S:
                self.told = self.clock()
                say(self._note())

    def _note(self) -> str:
        elapsed = self.clock() - self.start
        left = duration_text((self.landmarks - self.done) * elapsed / (self.done - self.known))
        return (
            f"{self.done:,} of {self.landmarks:,} landmarks, {self.client.requests:,} requests,"
            f" {self.rate():.1f}/s,\n{left} to go"
        )
