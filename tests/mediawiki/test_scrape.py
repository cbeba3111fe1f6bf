"""The scrape of a real MediaWiki: every landmark ends where it has to, and the way is polite."""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hgld.artifacts import records
from tests.mediawiki.cases import Cases, all_cases
from tests.mediawiki.patience import early_requests
from tests.mediawiki.scraping import Run, prepare_run
from tests.mediawiki.wiki import Wiki, serve_world

pytestmark = pytest.mark.slow

STATUSES = {
    "bad_url",
    "category_without_topic",
    "no_item",
    "no_p31",
    "no_page",
    "only_deprecated",
    "redirect_loop",
    "unknown_value",
}


@pytest.fixture(scope="module")
def cases() -> Cases:
    return all_cases()


@pytest.fixture(scope="module")
def wiki(template: Path, cases: Cases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wiki]:
    folder = tmp_path_factory.mktemp("scraped") / "wiki"
    with serve_world(template, folder, cases.world) as wiki:
        yield wiki


@pytest.fixture(scope="module")
def run(wiki: Wiki, cases: Cases, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished scrape."""
    run = prepare_run(tmp_path_factory.mktemp("scrape"), cases.landmarks)
    done = run.scrape(wiki)
    assert done.returncode == 0, done.stderr
    return run


def test_the_cases_hold_every_status(cases: Cases) -> None:
    assert {miss["reason"] for miss in cases.misses} == STATUSES
    assert len(cases.landmarks) >= 60


def test_every_statement_is_found_and_no_other(run: Run, cases: Cases) -> None:
    assert by_landmark(records(run.output("instance_of"))) == by_landmark(cases.statements)


def test_every_landmark_without_one_has_its_reason(run: Run, cases: Cases) -> None:
    found = records(run.output("misses").drop(columns="detail"))
    assert by_landmark(found) == by_landmark(cases.misses)


def test_each_reason_says_where_it_was_found(run: Run) -> None:
    assert all(row["detail"].strip() for row in records(run.output("misses")))


def test_each_request_names_a_contact_and_asks_for_at_most_fifty(wiki: Wiki, run: Run) -> None:
    requests = wiki.requests()
    assert all("someone@example.org" in line["agent"] for line in requests)
    assert all(line["asked"] <= 50 and line["status"] == 200 for line in requests)


def test_sixty_landmarks_take_a_handful_of_requests(wiki: Wiki, run: Run) -> None:
    actions = Counter(line["action"] for line in wiki.requests())
    assert sum(actions.values()) <= 12, actions


def test_a_second_scrape_asks_nothing(wiki: Wiki, run: Run) -> None:
    before, made = len(wiki.requests()), run.output_bytes()
    done = run.scrape(wiki, "--force")
    assert done.returncode == 0, done.stderr
    assert len(wiki.requests()) == before
    assert run.output_bytes() == made


def test_faults_on_the_way_change_nothing(
    template: Path, wiki: Wiki, cases: Cases, run: Run, tmp_path: Path
) -> None:
    again = prepare_run(tmp_path / "run", cases.landmarks)
    wiki.plan(["429 1", "ok", "html", "ok", "cut", "ok", "half", "ok", "503 1"])
    done = again.scrape(wiki)
    assert done.returncode == 0, done.stderr
    assert again.output_bytes() == run.output_bytes()
    assert early_requests(wiki.requests()) == []


def test_ctrl_c_ends_with_130_and_the_same_command_goes_on(
    wiki: Wiki, cases: Cases, run: Run, tmp_path: Path
) -> None:
    again = prepare_run(tmp_path / "run", cases.landmarks)
    before = len(wiki.requests())
    wiki.plan(["ok", "slow 8"])
    process = again.start(wiki)
    while len(wiki.requests()) == before and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    assert again.scrape(wiki).returncode == 0
    assert again.output_bytes() == run.output_bytes()


def by_landmark(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return sorted(tuple(sorted(row.items())) for row in rows)
