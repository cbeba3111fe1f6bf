from tests.mediawiki.patience import early_requests, pause_of


def line(came_s: float, word: str = "ok") -> dict[str, float | str]:
    """A request that was answered within a tenth of a second."""
    return {"came": came_s * 1e9, "answered": (came_s + 0.1) * 1e9, "word": word}


def test_a_request_that_comes_too_early_is_seen() -> None:
    log = [line(0, "429 2"), line(2.05), line(3, "429 date 5"), line(7.05, "lag 7"), line(13)]
    assert early_requests(log) == [log[1], log[3]]


def test_a_clock_that_runs_faster_makes_pauses_shorter() -> None:
    log = [line(0, "429 2"), line(2.05)]
    assert early_requests(log, speed=2) == []


def test_only_answers_that_ask_for_a_pause_have_one() -> None:
    words = ["ok", "cut", "html", "503", "503 20", "429 7", "429 date 7", "lag 9"]
    assert [pause_of(word) for word in words] == [0, 0, 0, 0, 20, 7, 6, 5]
