from collections.abc import Callable
from pathlib import Path

import pytest

from hgld.errors import HgldError
from hgld.hierarchy.scrape.pacer import Pacer, pause_before, turn_file


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def wait(self, pacer: Pacer) -> float:
        """Go on to when the next request may be sent."""
        while (left := pacer.take()) > 0:
            self.now += left
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pacer_at(tmp_path: Path, clock: Clock) -> Callable[[float], Pacer]:
    """Makes pacers that share one file and one clock, as processes do."""
    return lambda rate: Pacer(rate, tmp_path / "cache" / "turn", clock)


def test_the_pacer_keeps_requests_apart(pacer_at: Callable[[float], Pacer], clock: Clock) -> None:
    pacer = pacer_at(2)
    assert [clock.wait(pacer) for _ in range(3)] == [1000.0, 1000.5, 1001.0]


def test_several_pacers_together_are_no_faster_than_one(
    pacer_at: Callable[[float], Pacer], clock: Clock
) -> None:
    pacers = [pacer_at(2) for _ in range(3)]
    times = [clock.wait(pacer) for pacer in pacers * 2]
    assert times == [1000.0, 1000.5, 1001.0, 1001.5, 1002.0, 1002.5]


def test_a_pause_that_one_was_asked_for_holds_for_the_next(
    pacer_at: Callable[[float], Pacer], clock: Clock
) -> None:
    pacer_at(3).hold_back(60)
    clock.now += 20
    assert pacer_at(3).take() == 40
    assert clock.wait(pacer_at(3)) == 1060


def test_a_shorter_pause_does_not_end_a_longer_one(
    pacer_at: Callable[[float], Pacer], clock: Clock
) -> None:
    pacer = pacer_at(3)
    pacer.hold_back(60)
    pacer.hold_back(5)
    assert pacer.take() == 60
    clock.now += 59
    pacer.hold_back(5)
    assert pacer.take() == 5


def test_a_pause_outlives_a_restart_of_the_machine_and_then_ends(
    pacer_at: Callable[[float], Pacer], clock: Clock
) -> None:
    pacer_at(3).hold_back(60)
    clock.now = 10.0  # as the machine's clock starts over
    assert pacer_at(3).take() == 60
    clock.now += 20
    assert pacer_at(3).take() == 40
    clock.now += 40
    assert pacer_at(3).take() == 0


@pytest.mark.parametrize(
    "content", [b"\xff" * 200, b"nan 5", b"0 inf", b"0 nan", b"0 1e300", b"-1e300 5", b"inf 5"]
)
def test_a_file_that_says_nothing_holds_nobody_back(
    content: bytes, pacer_at: Callable[[float], Pacer], clock: Clock
) -> None:
    pacer = pacer_at(2)
    pacer.path.parent.mkdir()
    pacer.path.write_bytes(content)
    assert [clock.wait(pacer), clock.wait(pacer)] == [1000.0, 1000.5]


@pytest.mark.parametrize(
    ("named", "folder"), [("", "home/.cache"), ("here", "home/.cache"), ("/x", "/x")]
)
def test_the_turn_is_one_for_all_folders_that_a_scrape_may_be_started_in(
    named: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", named)
    assert Pacer(1).path == turn_file() == tmp_path / folder / "hgld" / "next-request"


def test_where_no_turn_can_be_kept_nothing_is_sent_and_the_way_out_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    pacer = Pacer(1, tmp_path / "file" / "turn")
    with pytest.raises(HgldError, match=r"File exists; .* set XDG_CACHE_HOME to a folder"):
        pacer.take()


def test_the_pacer_halves_its_rate_and_comes_back() -> None:
    pacer = Pacer(2)
    pacer.slow_down()
    assert pacer.requests_per_second == 1
    for _ in range(20):
        pacer.speed_up()
    assert pacer.requests_per_second == 2


def test_the_pacer_never_goes_below_one_request_in_ten_seconds() -> None:
    pacer = Pacer(1.5)
    for _ in range(50):
        pacer.slow_down()
    assert pacer.requests_per_second == 0.1


@pytest.mark.parametrize(("asked", "rate"), [(1.5, 1.5), (3, 3), (50, 3), (0, 0.1)])
def test_no_rate_is_above_three_a_second(asked: float, rate: float) -> None:
    assert Pacer(asked).requests_per_second == rate


@pytest.mark.parametrize(
    ("times", "asked_s", "least"), [(1, 0, 1), (2, 0, 2), (5, 0, 16), (30, 0, 120), (1, 300, 300)]
)
def test_pauses_double_and_are_never_shorter_than_asked_for(
    times: int, asked_s: float, least: float
) -> None:
    assert least <= pause_before(times, asked_s) <= least * 1.1
