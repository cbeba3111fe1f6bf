import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import pytest

from hgld.config import ScrapeOptions
from hgld.errors import HgldError, Resumable, UsageError
from hgld.hierarchy.scrape import client as client_module
from hgld.hierarchy.scrape.answers import read_items
from hgld.hierarchy.scrape.client import ApiClient, on_this_machine, user_agent
from tests.drip import dripping
from tests.hierarchy.small_wiki import Fault, Wiki
from tests.listening import heard

CONTACT = "someone@example.org"
OPTIONS = ScrapeOptions(contact=CONTACT)
QUESTION = {"ids": "Q1"}


class Client(ApiClient):
    """A client that notes its pauses instead of taking them."""

    def __init__(
        self,
        options: ScrapeOptions = OPTIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pauses: list[float] = []
        super().__init__(options, sleep=self.pauses.append, clock=clock)

    def entity(self, wiki: Wiki) -> Mapping[str, Any]:
        return self.ask(wiki.url, "wbgetentities", QUESTION)


@pytest.fixture
def client() -> Iterator[Client]:
    with Client() as found:
        yield found


@pytest.mark.parametrize("contact", ["", "  ", "me", "@", "jürgen@example.org", "a@b\nX: 1"])
def test_without_a_contact_it_refuses_and_names_the_option(contact: str) -> None:
    with pytest.raises(UsageError, match=r"set scrape\.contact to your e-mail or URL"):
        Client(ScrapeOptions(contact=contact))


def test_the_user_agent_names_program_contact_and_library() -> None:
    assert user_agent("https://example.org/me").startswith("hgld/0.")
    assert "(https://example.org/me) python-requests/" in user_agent("https://example.org/me")


def test_a_good_answer_comes_through_with_maxlag_asked_for(wiki: Wiki, client: Client) -> None:
    wiki.item("Q1")
    assert client.entity(wiki)["success"] == 1
    assert wiki.asked[0]["maxlag"] == "5"
    assert wiki.asked[0]["formatversion"] == "2"
    assert CONTACT in wiki.asked[0]["User-Agent"]


def test_it_pauses_at_least_as_long_as_the_server_asks(wiki: Wiki, client: Client) -> None:
    wiki.faults = [Fault(429, "slow down", {"Retry-After": "37"})]
    client.entity(wiki)
    assert 37.0 <= client.pauses[0] <= 37 * 1.1


def test_it_waits_five_seconds_where_the_server_does_not_say_how_long(
    wiki: Wiki, client: Client
) -> None:
    wiki.faults = [Fault(429), Fault(500)]
    client.entity(wiki)
    assert [5 <= client.pauses[0] <= 5.5, 1 <= client.pauses[1] <= 1.1] == [True, True]


def test_pauses_grow_while_the_server_lags_and_it_never_gives_up(
    wiki: Wiki, client: Client
) -> None:
    lag = '{"error": {"code": "maxlag", "info": "Waiting"}}'
    wiki.faults = [Fault(200, lag, {"Retry-After": "5"})] * 30
    client.entity(wiki)
    assert len(client.pauses) == 30
    assert min(client.pauses) >= 5
    assert client.pauses[29] >= 120


@pytest.mark.parametrize(
    "fault",
    [
        Fault(200, "<!DOCTYPE html><title>Error</title>"),
        Fault(200, '{"entities": {"Q1', cut=True),
        Fault(200, '{"entities": {"Q1'),
        Fault(500),
        Fault(503, "<html>"),
    ],
    ids=["html", "cut body", "cut JSON", "empty 500", "503"],
)
def test_passing_faults_are_asked_again(fault: Fault, wiki: Wiki, client: Client) -> None:
    wiki.faults = [fault, fault]
    assert client.entity(wiki)["success"] == 1
    assert len(wiki.asked) == 3


def test_twenty_failures_in_a_row_stop_the_run_resumably(wiki: Wiki, client: Client) -> None:
    wiki.faults = [Fault(500)] * 25
    with pytest.raises(Resumable, match=r"20 times in a row.*run the same command again"):
        client.entity(wiki)
    assert len(wiki.asked) == 20


def test_a_server_that_is_not_there_is_a_resumable_stop() -> None:
    url = r"http://127\.0\.0\.1:9/api\.php: no connection \(ConnectionError\), 3 times and never"
    with Client() as client, pytest.raises(Resumable, match=url):
        client.ask("http://127.0.0.1:9/api.php", "query", {})
    assert len(client.pauses) == 2


def test_each_pause_is_told_with_its_reason_attempt_and_length(wiki: Wiki, client: Client) -> None:
    wiki.faults = [Fault(500), Fault(429, "slow down", {"Retry-After": "37"}), Fault(500)]
    with heard() as said:
        client.entity(wiki)
    assert said[0] == "127.0.0.1: HTTP 500; attempt 2 in 1 s"
    assert said[1] == f"127.0.0.1: HTTP 429; attempt 3 in {client.pauses[1]:.0f} s"
    assert said[2:] == ["127.0.0.1: HTTP 500; attempt 4 in 2 s"]


def test_a_very_long_pause_is_left_to_the_person(wiki: Wiki, client: Client) -> None:
    wiki.faults = [Fault(429, "", {"Retry-After": "86400"})]
    with pytest.raises(Resumable, match="asks for a pause of 24 h 0 min"):
        client.entity(wiki)
    assert client.pauses == []


def test_a_refusal_stops_with_the_servers_sentence(wiki: Wiki, client: Client) -> None:
    wiki.faults = [Fault(403, "Please set a user-agent and respect our robot policy")]
    with pytest.raises(HgldError, match="HTTP 403: Please set a user-agent"):
        client.entity(wiki)
    assert len(wiki.asked) == 1


def fetch(wiki: Wiki, client: Client, ids: Sequence[str]) -> dict[str, Any]:
    def ask(some: Sequence[str]) -> Mapping[str, Any]:
        question = {"ids": "|".join(some)}
        return client.ask(wiki.url, "wbgetentities", question, may_split=len(some) > 1)

    return client.fetch_batch(ids, ask, read_items)


@pytest.mark.parametrize("error", ["Backend fetch failed", {"code": "never-heard-of"}])
def test_an_unknown_error_stops_at_once_and_is_not_halved(
    error: object, wiki: Wiki, client: Client
) -> None:
    wiki.faults = [Fault(200, json.dumps({"error": error}))]
    with pytest.raises(HgldError, match=r"never-heard-of|Backend fetch failed") as raised:
        fetch(wiki, client, [f"Q{i}" for i in range(1, 51)])
    assert str(raised.value).endswith("what is finished is kept")
    assert (len(wiki.asked), raised.value.exit_code) == (1, 1)


def test_what_a_truncated_result_leaves_out_is_asked_for_again(wiki: Wiki, client: Client) -> None:
    ids = [f"Q{i}" for i in range(1, 51)]
    for item_id in ids:
        wiki.item(item_id, "Q5")
    wiki.most_entities = 28
    assert sorted(fetch(wiki, client, ids)) == sorted(ids)
    assert len(wiki.asked) == 2


def test_a_batch_on_which_the_server_chokes_is_halved(wiki: Wiki, client: Client) -> None:
    wiki.faults = [Fault(500)] * 4
    assert sorted(fetch(wiki, client, ["Q1", "Q2", "Q3"])) == ["Q1", "Q2", "Q3"]
    assert [asked["ids"] for asked in wiki.asked[3:]] == ["Q1|Q2|Q3", "Q1|Q2", "Q3"]


def test_a_server_that_only_asks_to_wait_is_asked_for_the_whole_batch_again(
    wiki: Wiki, client: Client
) -> None:
    wiki.faults = [Fault(429, "", {"Retry-After": "1"})] * 5 + [Fault(500)]
    fetch(wiki, client, ["Q1", "Q2", "Q3"])
    assert {asked["ids"] for asked in wiki.asked} == {"Q1|Q2|Q3"}


def test_a_key_without_an_answer_is_never_taken_for_a_no(wiki: Wiki, client: Client) -> None:
    wiki.most_entities = 0
    with pytest.raises(Resumable, match="answers, but not for 'Q1'"):
        fetch(wiki, client, ["Q1", "Q2"])


def test_a_single_key_without_an_answer_is_asked_for_again(wiki: Wiki, client: Client) -> None:
    wiki.faults = [Fault(200, "{}")] * 3
    assert fetch(wiki, client, ["Q1"]).keys() == {"Q1"}
    for pause, least in zip(client.pauses, (1, 2, 4), strict=True):
        assert least <= pause <= least * 1.1


def test_an_empty_answer_is_a_resumable_stop(wiki: Wiki, client: Client) -> None:
    wiki.faults = [Fault(200, "{}")] * 10
    with pytest.raises(Resumable, match="run the same command again later"):
        fetch(wiki, client, ["Q1", "Q2", "Q3"])


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:80/x", True),
        ("http://localhost/x", True),
        ("http://[::1]:1/", True),
        ("https://www.wikidata.org/w/api.php", False),
        ("http://10.0.0.1/", False),
    ],
)
def test_only_this_machine_is_not_paced(url: str, here: bool) -> None:
    assert on_this_machine(url) is here


def test_a_server_that_stays_busy_is_told_with_how_long(wiki: Wiki) -> None:
    minutes = count(0.0, 60.0)  # one at each look at the clock
    wiki.faults = [Fault(429, "", {"Retry-After": "1"})] * 3
    with (
        Client(clock=lambda: next(minutes)) as client,
        heard() as said,
    ):
        client.entity(wiki)
    assert ["busy" in line for line in said] == [False, True, True]
    assert "(busy for 3 min)" in said[2]


def test_requests_are_counted_with_those_that_failed(wiki: Wiki, client: Client) -> None:
    wiki.faults = [Fault(500)]
    client.entity(wiki)
    assert client.requests == 2


def test_a_warning_of_the_server_is_told_once(wiki: Wiki, client: Client) -> None:
    warned = {"entities": {}, "warnings": {"main": {"warnings": "Unrecognized parameter: x."}}}
    wiki.faults = [Fault(200, json.dumps(warned))] * 2
    with heard() as said:
        client.entity(wiki)
        client.entity(wiki)
    assert said == ["127.0.0.1 warns: Unrecognized parameter: x."]


@pytest.mark.parametrize("warnings", [[], ["new"], "new", None, {"main": None}, {"main": [7]}])
def test_warnings_of_any_shape_are_taken(warnings: Any, wiki: Wiki, client: Client) -> None:
    wiki.faults = [Fault(200, json.dumps({"entities": {}, "warnings": warnings}))]
    assert client.entity(wiki)["entities"] == {}


@pytest.mark.parametrize(
    "body", [r'{"a": "\ud800"}', '{"a": NaN}', "[" * 100_000, '{"a": ' + "9" * 5000]
)
def test_what_is_not_sound_json_is_asked_for_again(body: str, wiki: Wiki, client: Client) -> None:
    wiki.faults = [Fault(200, body)]
    assert client.entity(wiki)["success"] == 1
    assert len(wiki.asked) == 2


def test_a_proxy_is_passed_by_on_the_way_to_this_machine(
    wiki: Wiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody answers there
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with Client() as client:
        assert client.entity(wiki)["success"] == 1


def test_a_server_that_has_moved_is_told_with_its_new_place(wiki: Wiki, client: Client) -> None:
    wiki.faults = [Fault(301, "", {"Location": "https://example.org/w/api.php"})]
    with pytest.raises(HgldError, match=r"HTTP 301: it has moved to https://example\.org"):
        client.entity(wiki)


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n{"])
def test_an_answer_that_drips_ends_at_its_deadline_and_is_asked_again(start: bytes) -> None:
    drops = [start, b"X: y\r\n"]
    with (
        dripping(*[drops] * 3) as url,
        Client(ScrapeOptions(contact=CONTACT, answer_timeout=0.1)) as client,
        pytest.raises(Resumable, match=r"no complete answer within 0\.1 s, 3 times"),
    ):
        client.ask(url, "query", {})


def test_an_answer_without_an_end_is_asked_for_again_in_smaller_parts(
    wiki: Wiki, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "LARGEST_ANSWER", 1000)
    wiki.faults = [Fault(200, '{"a": "' + "x" * 2000 + '"}')] * 4
    assert sorted(fetch(wiki, client, ["Q1", "Q2"])) == ["Q1", "Q2"]
    assert [asked["ids"] for asked in wiki.asked[4:]] == ["Q1", "Q2"]


def test_a_client_has_the_manners_of_the_pipeline() -> None:
    options = ScrapeOptions(
        contact="a@example.org", requests_per_second=2, maxlag=1, answer_timeout=7
    )
    with ApiClient(options) as client:
        assert client.pacer.requests_per_second == 2
        assert (client.options.maxlag, client.options.answer_timeout) == (1, 7)
