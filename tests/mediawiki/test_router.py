"""The gateway in front of the test wiki: each fault is what its line of the plan says."""

import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.mediawiki.asking import ask, post
from tests.mediawiki.wiki import Wiki, serve_world
from tests.mediawiki.world import World

pytestmark = pytest.mark.slow

PAGE = "<!DOCTYPE html>"


@pytest.fixture(scope="module")
def wiki(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wiki]:
    world = World()
    world.page("St Mary", item="Q1")
    world.item("Q1", en="St Mary")
    with serve_world(template, tmp_path_factory.mktemp("router") / "wiki", world) as wiki:
        yield wiki


def asked(wiki: Wiki, word: str, **more: Any) -> requests.Response:
    wiki.plan([word])
    return post(wiki, action="wbgetentities", ids="Q1", props="labels", **more)


@pytest.mark.parametrize("agent", ["python-requests/2.32", "hgld/1", "Mozilla/5.0 (X11; Linux)"])
def test_a_caller_without_a_contact_is_turned_away(wiki: Wiki, agent: str) -> None:
    answer = post(wiki, agent, action="wbgetentities", ids="Q1")
    assert answer.status_code == 403
    assert "set a user-agent" in answer.text


def test_the_plan_is_followed_line_by_line_and_then_nothing_is_wrong(wiki: Wiki) -> None:
    wiki.plan(["429 37", "ok", "500"])
    answers = [post(wiki, action="wbgetentities", ids="Q1").status_code for _ in range(5)]
    assert answers == [429, 200, 500, 200, 200]
    assert [line["word"] for line in wiki.requests()[-5:]] == ["429 37", "ok", "500", "ok", "ok"]


def test_too_many_requests_tell_the_pause_in_seconds(wiki: Wiki) -> None:
    answer = asked(wiki, "429 37")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "37")


def test_too_many_requests_tell_the_pause_as_a_date(wiki: Wiki) -> None:
    headers = asked(wiki, "429 date 37").headers
    until, now = (parsedate_to_datetime(headers[name]) for name in ("Retry-After", "Date"))
    assert (until - now).total_seconds() in (36, 37)


def test_the_lag_is_told_by_mediawiki_itself(wiki: Wiki) -> None:
    answer = asked(wiki, "lag 7", maxlag=5)
    assert (answer.status_code, answer.headers["Retry-After"]) == (200, "5")
    assert answer.json()["error"]["code"] == "maxlag"
    assert answer.headers["X-Database-Lag"] == "7"


def test_a_lag_that_is_borne_is_none(wiki: Wiki) -> None:
    assert asked(wiki, "lag 4", maxlag=5).json()["success"] == 1


def test_a_cut_answer_breaks_off(wiki: Wiki) -> None:
    with pytest.raises(requests.exceptions.ChunkedEncodingError, match="more expected"):
        asked(wiki, "cut")


def test_half_an_answer_is_no_json(wiki: Wiki) -> None:
    answer = asked(wiki, "half")
    assert answer.status_code == 200
    assert answer.text.startswith('{"entities"')
    with pytest.raises(requests.JSONDecodeError):
        answer.json()


@pytest.mark.parametrize(
    ("word", "status", "pause"), [("html", 200, None), ("503", 503, None), ("503 20", 503, "20")]
)
def test_a_page_comes_instead_of_json(
    wiki: Wiki, word: str, status: int, pause: str | None
) -> None:
    answer = asked(wiki, word)
    assert answer.text.startswith(PAGE)
    assert (answer.status_code, answer.headers.get("Retry-After")) == (status, pause)


def test_a_slow_answer_is_the_truth(wiki: Wiki) -> None:
    start = time.perf_counter()
    assert asked(wiki, "slow 0.2").json()["success"] == 1
    assert time.perf_counter() - start >= 0.2


def test_the_log_tells_what_was_asked_and_when(wiki: Wiki) -> None:
    wiki.plan(["slow 0.1"])
    ask(wiki, action="wbgetentities", ids="Q1|Q2|Q3", props="info|claims")
    line = wiki.requests()[-1]
    assert (line["action"], line["prop"], line["asked"]) == ("wbgetentities", "info|claims", 3)
    assert line["status"] == 200
    assert 0.1e9 <= line["answered"] - line["came"] < 5e9
