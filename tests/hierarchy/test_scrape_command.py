"""The scrape as a person runs it: the flags, the texts, Ctrl-C, and a second process."""

import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hierarchy.small_wiki import Fault, Wiki
from tests.warm import Command, hgld

URL = "http://commons.wikimedia.org/wiki/Category:"


@pytest.fixture
def folder(tmp_path: Path, wiki: Wiki) -> Path:
    """A work folder with 300 landmarks, of which a third has no page."""
    (tmp_path / "labels").mkdir()
    (tmp_path / "p.toml").write_text('labels = "labels"\n')
    (tmp_path / "work").mkdir()
    rows = [f"train,{i},L{i},{URL}L{i}" for i in range(300)]
    text = "\n".join(["split,landmark_id,name,commons_url", *rows]) + "\n"
    (tmp_path / "work" / "landmarks.csv").write_text(text)
    for i in range(300):
        if i % 3:
            wiki.items_of[f"Category:L{i}"] = f"Q{i + 1}"
            wiki.item(f"Q{i + 1}", "Q16970")
    wiki.label("Q16970", "church building")
    return tmp_path


def command(wiki: Wiki, folder: Path, *more: str) -> list[str]:
    sets = [f"scrape.commons_api={wiki.url}", f"scrape.wikidata_api={wiki.url}"]
    sets += ["scrape.batch_size=10", "scrape.contact=someone@example.org"]
    words = [word for setting in sets for word in ("--set", setting)]
    return ["scrape", str(folder / "p.toml"), "--work", str(folder / "work"), *words, *more]


def run(wiki: Wiki, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return hgld(Path(), *command(wiki, folder, *more))


@contextmanager
def running(wiki: Wiki, folder: Path, requests: int) -> Iterator[subprocess.Popen[str]]:
    """A scrape that is under way: it has sent so many requests and waits for an answer."""
    wiki.faults = [Fault(0)] * requests + [Fault(429, "", {"Retry-After": "300"})]
    with Command(command(wiki, folder), stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + 300
            while len(wiki.asked) <= requests and time.monotonic() < deadline:
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


def test_its_output_says_who_has_labels_why_others_have_none_and_how_to_go_on(
    wiki: Wiki, folder: Path
) -> None:
    done = run(wiki, folder)
    assert done.returncode == 0
    lines = [line.rstrip() for line in done.stderr.splitlines()]
    assert lines[:4] == [
        "          note: 300 titles to look up: about 54 requests",
        "          note: 200 of 300 landmarks have labels, the others:",
        "                      100 no_page                the page does not exist",
        "                misses.csv lists them; hgld scrape ... --retry misses asks again",
    ]
    assert re.fullmatch(r"scrape    300 landmarks in, 200 out, 100 dropped, \d+\.\d s", lines[4])
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80


def test_retry_misses_makes_a_fresh_stage_run(wiki: Wiki, folder: Path) -> None:
    run(wiki, folder)
    wiki.asked.clear()
    wiki.items_of["Category:L0"] = "Q2"
    assert "scrape    fresh" in run(wiki, folder).stderr
    assert wiki.asked == []
    again = run(wiki, folder, "--retry", "misses")
    assert "300 landmarks in, 201 out, 99 dropped" in again.stderr
    assert {title for q in wiki.asked for title in q.get("titles", "").split("|")} <= {
        "", *(f"Category:L{i}" for i in range(0, 300, 3))
    }  # fmt: skip


def test_refresh_makes_a_fresh_stage_run_and_asks_only_for_what_is_older(
    wiki: Wiki, folder: Path
) -> None:
    run(wiki, folder)
    wiki.asked.clear()
    assert "200 out" in run(wiki, folder, "--refresh-older-than", "1").stderr
    assert wiki.asked == []


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--retry", "all"), "scrape.retry: input should be '' or 'misses'"),
        (("--refresh-older-than", "-1"), "scrape.refresh_older_than: input should be greater"),
        (("--retry", "misses", "--set", "scrape.source=table"), 'only scrape.source = "wikimedia"'),
        (("--set", "scrape.contact="), "set scrape.contact to your e-mail or URL"),
        (("--set", "scrape.requests_per_second=4"), "less than or equal to 3"),
    ],
)
def test_what_cannot_be_asked_for_is_told_in_one_line(
    flags: tuple[str, ...], says: str, wiki: Wiki, folder: Path
) -> None:
    done = run(wiki, folder, *flags)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert says in done.stderr
    assert wiki.asked == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_ctrl_c_keeps_whole_batches_and_the_same_command_goes_on(
    number: int, code: int, wiki: Wiki, folder: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    (whole / "work").mkdir(parents=True)
    for name in ("p.toml", "work/landmarks.csv"):
        (whole / name).write_bytes((folder / name).read_bytes())
    own = [sys.executable, "-m", "hgld", *command(wiki, whole)]  # it hashes strings otherwise
    subprocess.run(own, check=True, capture_output=True)
    needed = len(wiki.asked)
    wiki.asked.clear()
    with running(wiki, folder, 12) as process:
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == code
    assert re.search(r"stopped: \d+ of 300 landmarks are looked up and kept", errors)
    assert errors.splitlines()[-1].endswith("the same command goes on from here")
    assert "Traceback" not in errors
    assert run(wiki, folder).returncode == 0
    assert len(wiki.asked) == needed + 1  # the batch under way is asked for twice
    for name in ("instance_of.csv", "misses.csv"):
        assert (folder / "work" / name).read_bytes() == (whole / "work" / name).read_bytes()


def test_a_second_process_is_told_who_is_at_work_and_since_when(wiki: Wiki, folder: Path) -> None:
    with running(wiki, folder, 3) as process:
        second = run(wiki, folder)
        assert second.returncode == 1
        who = rf"another hgld is at work here \(process {process.pid} on .+ since \d{{4}}-"
        assert re.search(who, second.stderr)
        assert second.stderr.count("\n") == 1
    wiki.faults.clear()
    assert run(wiki, folder).returncode == 0  # the killed one does not block


def test_a_disk_that_takes_no_more_stops_it_in_one_line_and_resumably(
    wiki: Wiki, folder: Path
) -> None:
    limited = ["bash", "-c", 'ulimit -f 100; exec "$@"', "bash", sys.executable]
    limited += ["-m", "hgld", *command(wiki, folder)]
    done = subprocess.run(limited, capture_output=True, text=True)
    assert done.returncode == 75
    last = done.stderr.splitlines()[-1]
    assert "run the same command again, finished batches are kept" in last
    assert "Traceback" not in done.stderr
    connection = sqlite3.connect(folder / "work" / ".state" / "scrape" / "scrape.sqlite")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    before = len(wiki.asked)
    again = run(wiki, folder)
    assert "300 landmarks in, 200 out, 100 dropped" in again.stderr
    assert 5 < before < len(wiki.asked) <= 52  # of 51, one was answered but could not be kept
