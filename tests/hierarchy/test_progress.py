from collections.abc import Iterator

import pytest

from hgld.config import ScrapeOptions
from hgld.errors import Resumable
from hgld.hierarchy.scrape.client import ApiClient
from hgld.hierarchy.scrape.wikimedia import Progress
from tests.listening import heard


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def said() -> Iterator[list[str]]:
    with heard() as lines:
        yield lines


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> Iterator[Progress]:
    with ApiClient(ScrapeOptions(contact="someone@example.org")) as client:
        yield Progress(client, 203_094, clock)


def test_it_says_before_it_starts_how_long_it_will_take(
    progress: Progress, said: list[str]
) -> None:
    progress.announce(203_094, 203_094, 50, 1.5)
    assert said == [
        "203,094 titles to look up: about 7,229 requests,\n"
        "at least 1 h 20 min at 1.5 a second; it may be stopped\n"
        "at any time (Ctrl-C), the same command goes on"
    ]


def test_it_says_what_is_known_already(progress: Progress, said: list[str]) -> None:
    progress.announce(1000, 100, 10, None)
    assert said == ["1,000 titles to look up, 900 of them known: about 19 requests"]


def test_where_all_is_known_nothing_is_announced(progress: Progress, said: list[str]) -> None:
    progress.announce(1000, 0, 50, 1.5)
    assert said == []


def test_every_five_minutes_it_says_how_far_it_is(
    progress: Progress, clock: Clock, said: list[str]
) -> None:
    def titles() -> Iterator[str]:
        for name in "abcdef":
            clock.now += 110
            progress.client.requests += 165
            yield name

    progress.landmarks = 60
    progress.watch(titles(), lambda title: 10)
    assert said == [
        "21 of 60 landmarks, 495 requests, 1.5/s,\n10 min 13 s to go",  # 39 x 330 s / 21
        "51 of 60 landmarks, 990 requests, 1.5/s,\n1 min 56 s to go",  # 9 x 660 s / 51
    ]


def test_what_was_known_before_does_not_shorten_what_is_to_go(
    progress: Progress, clock: Clock, said: list[str]
) -> None:
    def titles() -> Iterator[str]:
        yield from "ab"  # from the store
        clock.now += 400
        progress.client.requests += 600
        yield from "cd"

    progress.landmarks = 100
    progress.watch(titles(), lambda title: 1)
    assert said == ["3 of 100 landmarks, 600 requests, 1.5/s,\n10 h 47 min to go"]  # 97 x 400 s


def test_what_is_known_and_takes_long_to_go_through_is_no_rate(
    progress: Progress, clock: Clock, said: list[str]
) -> None:
    def titles() -> Iterator[str]:
        for name in "ab":
            clock.now += 400
            yield name

    progress.watch(titles(), lambda title: 1)
    assert said == []


def test_the_bar_shows_requests_and_their_rate(progress: Progress, clock: Clock) -> None:
    clock.now += 100
    progress.client.requests = 140
    assert progress.label() == "140 requests, 1.4/s"


def test_a_stop_on_the_way_is_told_with_what_is_kept(progress: Progress, said: list[str]) -> None:
    def titles() -> Iterator[str]:
        yield from ("a", "b")
        raise Resumable("the server is gone")

    with pytest.raises(Resumable), progress.told_when_stopped():
        progress.watch(titles(), lambda title: 1)
    assert said == ["stopped: 2 of 203,094 landmarks are looked up and kept"]
