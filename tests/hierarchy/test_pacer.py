import pytest

from hgld.hierarchy.wiki.pacer import Pacer, pause_before


def test_the_pacer_keeps_requests_apart() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    pacer = Pacer(2, sleep, lambda: now[0])
    times = []
    for _ in range(3):
        pacer.wait()
        times.append(now[0])
    assert times == [0.0, 0.5, 1.0]


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
