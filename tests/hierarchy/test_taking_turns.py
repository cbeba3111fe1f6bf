"""Scrapes in processes of their own, against a server that is paced: together they are polite."""

import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from hgld.config import ScrapeOptions
from hgld.errors import HgldError, Resumable
from hgld.hierarchy.scrape.client import ApiClient, TooMuchAsked
from hgld.hierarchy.scrape.pacer import Pacer, turn_file
from tests.hierarchy.small_wiki import Fault, Wiki
from tests.listening import heard
from tests.waiting import wait_for
from tests.warm import Command, hgld

OPTIONS = ScrapeOptions(contact="a@example.org")
QUESTION = {"titles": "A", "prop": "pageprops"}
URL = "http://commons.wikimedia.org/wiki/Category:"
TICK_S = 0.02  # of two clocks that are read in different processes
HELD_S = 4.0  # until the first of two scrapes may begin, longer than both take to start


@pytest.fixture(autouse=True)
def own_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither waits for scrapes of whoever runs the tests, nor holds them up."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def started(wiki: Wiki, tmp_path: Path) -> Iterator[tuple[float, list[subprocess.Popen[str]]]]:
    """When two scrapes of two work folders were held back, and both, which wait for a start."""
    hgld(tmp_path, "--version")  # by now the process that forks commands has its libraries
    held = time.monotonic()
    Pacer(3).hold_back(HELD_S)
    processes = [start(wiki, folder_of(tmp_path, name)) for name in ("one", "two")]
    yield held, processes
    for process in processes:
        process.kill()
        process.communicate()


def folder_of(tmp_path: Path, name: str, landmarks: int = 4) -> Path:
    folder = tmp_path / name
    (folder / "labels").mkdir(parents=True)
    (folder / "work").mkdir()
    (folder / "p.toml").write_text('labels = "labels"\n')
    rows = [f"train,{i},L{i},{URL}{name}{i}" for i in range(landmarks)]
    text = "\n".join(["split,landmark_id,name,commons_url", *rows]) + "\n"
    (folder / "work" / "landmarks.csv").write_text(text)
    return folder


def start(wiki: Wiki, folder: Path, rate: float = 3) -> subprocess.Popen[str]:
    sets = [f"scrape.{name}={wiki.paced_url}" for name in ("commons_api", "wikidata_api")]
    sets += ["scrape.contact=a@example.org", "scrape.batch_size=1"]
    words = [
        word for one in (*sets, f"scrape.requests_per_second={rate}") for word in ("--set", one)
    ]
    command = ["scrape", str(folder / "p.toml"), "--work", str(folder / "work"), *words]
    return Command(command, stderr=subprocess.PIPE, text=True)


def gaps(times: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def test_two_scrapes_at_once_send_no_more_than_three_requests_a_second(
    wiki: Wiki, started: tuple[float, list[subprocess.Popen[str]]]
) -> None:
    held, processes = started
    assert [process.wait(300) for process in processes] == [0, 0]
    assert sorted(asked["titles"][9:12] for asked in wiki.asked) == ["one"] * 4 + ["two"] * 4
    # a busy machine may serve the first one late, but sends the last one not before its turn
    assert wiki.came[-1] - held > HELD_S + 7 / 3 - TICK_S


def test_a_scrape_killed_in_a_pause_leaves_it_to_the_next(wiki: Wiki, tmp_path: Path) -> None:
    wiki.faults = [Fault(429, "slow down", {"Retry-After": "4"})]
    folder = folder_of(tmp_path, "one", landmarks=1)
    killed = start(wiki, folder)
    wait_for(lambda: bool(wiki.came) and float(turn_file().read_text().split()[1]) >= 4)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    again = start(wiki, folder_of(tmp_path, "two", landmarks=1))
    _, errors = again.communicate(timeout=300)
    assert again.returncode == 0, errors
    assert min(gaps(wiki.came)) > 4 - TICK_S


def test_a_long_pause_is_kept_by_a_command_that_is_run_too_early(wiki: Wiki) -> None:
    wiki.faults = [Fault(429, "slow down", {"Retry-After": "86400"})]
    with ApiClient(OPTIONS) as client, pytest.raises(Resumable, match="of 24 h 0 min"):
        client.ask(wiki.paced_url, "query", {})
    for _ in range(3):
        with (
            ApiClient(OPTIONS) as client,
            pytest.raises(Resumable, match=r"(24 h 0|23 h 59) min more"),
        ):
            client.ask(wiki.paced_url, "query", {})
    assert len(wiki.asked) == 1


def test_a_pause_that_is_left_over_is_told_and_kept(wiki: Wiki) -> None:
    now = [1000.0]
    clock = partial(now.__getitem__, 0)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    Pacer(3, clock=clock).hold_back(120)
    with (
        ApiClient(OPTIONS, sleep=sleep, clock=clock) as client,
        heard() as said,
    ):
        client.ask(wiki.paced_url, "query", QUESTION)
    assert (said, now[0]) == (["0.0.0.0: a pause that was asked for lasts for 2 min more"], 1120)


def test_ctrl_c_in_a_pause_of_its_own_leaves_it_to_the_next(wiki: Wiki) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    wiki.faults = [Fault(429)]  # does not say how long, so five seconds
    clock = partial(float, 1000)  # stands still, since a busy machine takes its time
    with (
        ApiClient(OPTIONS, sleep=interrupt, clock=clock) as client,
        pytest.raises(KeyboardInterrupt),
    ):
        client.ask(wiki.paced_url, "query", QUESTION)
    assert 5 <= Pacer(3, clock=clock).take() <= 5.5


@pytest.mark.parametrize("status", [413, 403, 500, 200])
def test_whatever_asks_for_a_pause_gets_it_before_the_next_request(status: int, wiki: Wiki) -> None:
    wiki.faults = [Fault(status, "{}", {"Retry-After": "1.5"})]
    for _ in range(2):
        with ApiClient(OPTIONS) as client:
            try:
                client.ask(wiki.paced_url, "query", QUESTION)
            except (TooMuchAsked, HgldError):
                continue
    assert gaps(wiki.came)[0] > 1.5 - TICK_S
