"""The review page of `hgld review --serve`, by real processes and in a real browser."""

import csv
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.hierarchy.test_review_page import Curator, Road, change, hgld, hgld_without_date, road
from tests.object_store import free_port
from tests.waiting import wait_for
from tests.warm import Command

pytestmark = pytest.mark.slow

__all__ = ["road"]  # a fixture


@dataclass
class Server:
    """A running `hgld review --serve`."""

    process: subprocess.Popen[str]
    url: str

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """Send a signal; return the exit code and what it printed on stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors


def start(road: Road, port: int = 0, *more: str) -> Server:
    port = port or free_port()  # nobody else gets it while the server is away
    words = ["review", *road.at, "--serve", "--port", str(port), "--now", "2026-01-01", *more]
    process = Command(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    assert line.startswith("page: "), process.stderr.read()
    return Server(process, line.split()[1])


@contextmanager
def serving(road: Road, port: int = 0, *more: str) -> Iterator[Server]:
    server = start(road, port, *more)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)


@pytest.fixture
def fresh(road: Road, tmp_path: Path) -> Road:
    """A copy of the pipeline of its own; nothing is decided."""
    copy = Road(Path(shutil.copytree(road.folder, tmp_path / "road")))
    (copy.labels / "removals.csv").unlink(missing_ok=True)
    decisions = copy.labels / "decisions.csv"
    decisions.write_text(decisions.read_text("utf-8").splitlines()[0] + "\n", "utf-8")
    return copy


def rows_of(road: Road) -> list[dict[str, str]]:
    with (road.labels / "decisions.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Colleague(Curator):
    """A person at the page of a server, who has given a name."""

    def __init__(self, browser: Any, url: str, name: str, **facts: Any) -> None:
        self.tab = browser.new_context(reduced_motion="reduce", **facts)
        self.address, self.asked, self.said = url, [], list[str]()
        self.open()
        self.view.wait_for_selector("#name")
        self.type(name)
        self.press("Enter")

    def saw(self, selector: str, **facts: Any) -> None:
        """Wait until it is there."""
        self.view.wait_for_selector(selector, state="attached", **facts)

    def saved(self) -> None:
        self.saw('#people[title*="all saved"]')

    def stayed_here(self) -> bool:
        """Whether only the server was asked, and nothing went wrong."""
        elsewhere = [
            url for url in self.asked if not url.startswith((self.address, "data:", "blob:"))
        ]
        return elsewhere == [] and self.said == []


@pytest.fixture
def server(fresh: Road) -> Iterator[Server]:
    with serving(fresh) as running:
        yield running


@pytest.fixture
def ann(chromium: Any, server: Server) -> Colleague:
    return Colleague(chromium, server.url, "Ann")


@pytest.fixture
def ben(chromium: Any, server: Server) -> Colleague:
    return Colleague(chromium, server.url, "Ben")


def test_a_decision_is_saved_as_it_is_made_and_seen_by_others(
    ann: Colleague, ben: Colleague, fresh: Road
) -> None:
    ann.saw('#people[title*="Ben is here"]')
    ann.press("d")
    ben.saw("#row-0 .dot.dropped")
    (row,) = rows_of(fresh)
    assert (row["decision"], row["who"], row["when"]) == ("drop", "Ann", "2026-01-01")
    ben.view.click("#row-0")
    ben.saw("#panel li:has-text('drop Ann, 2026-01-01')")
    ben.press("u")
    ann.saw("#row-0 .dot.unsure")
    assert [row["who"] for row in rows_of(fresh)] == ["Ann", "Ben"]
    assert ann.stayed_here() and ben.stayed_here(), (ann.asked, ann.said, ben.said)


def used_s(process: subprocess.Popen[str]) -> float:
    """CPU seconds of a process, to which other work of the machine adds nothing."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_a_save_takes_less_than_a_second_and_another_page_shows_it_within_one(
    ann: Colleague, ben: Colleague, server: Server
) -> None:
    ann.saw('#people[title*="Ben is here"]')
    used, times = used_s(server.process), []
    for number in range(5):
        ann.press("d")
        ann.saved()
        began = time.perf_counter()
        ben.saw(f"#row-{number} .dot.dropped")
        times.append(time.perf_counter() - began)
    assert used_s(server.process) - used < 5
    assert min(times) < 1, times  # the least, since other work of the machine only adds to it


KEPT_STEPS = """() => Object.entries(localStorage)
  .some(([name, text]) => name.endsWith(" saved") && JSON.parse(text).length == 1)"""


def test_undo_takes_back_one_step_also_after_a_reload(ann: Colleague, fresh: Road) -> None:
    ann.press("d", "d")
    ann.saved()
    ann.press("z")
    ann.saw("#row-1 .dot.open")
    ann.view.wait_for_function(KEPT_STEPS)  # the stream may tell of the undo before its answer does
    ann.load()
    ann.saved()
    ann.saw("#undo:enabled")
    ann.press("z")
    ann.saw("#row-0 .dot.open")
    undone = [row for row in rows_of(fresh) if row["undoes"]]
    assert len(undone) == 2
    assert ann.stayed_here(), ann.said


def test_the_saves_of_one_sitting_are_one_entry_that_is_undone_whole(
    ann: Colleague, ben: Colleague, fresh: Road
) -> None:
    ann.press("d", "d", "d")
    ann.saved()
    ann.press("z")
    ann.saw("#row-2 .dot.open")
    ann.load()
    ann.saved()
    ann.view.click("#row-0")
    ann.press("K")  # decided twice in the sitting
    ann.saw("#row-0 .dot.decided")
    ann.saved()
    ben.view.click("#row-3")
    ben.press("u")
    ben.saved()
    log = json.loads(hgld_without_date("reviews", "log", *fresh.at, "--json").stdout)
    made = [(entry["who"], entry["source"], entry["counts"]) for entry in log]
    assert made[0] == ("Ann", "page", {"drop": 3, "keep": 1})
    assert made[1:] == [("Ann", "undo", {"open": 1}), ("Ben", "page", {"unsure": 1})]
    done = hgld("reviews", "undo", *fresh.at, "--apply", "1", "--set", 'review.who="Ben"')
    assert done.returncode == 0, done.stderr
    for row in range(3):
        ben.saw(f"#row-{row} .dot.open")
    hgld("reviews", "redo", *fresh.at, "--set", 'review.who="Ben"')
    ben.saw("#row-0 .dot.decided")
    ben.saw("#row-1 .dot.dropped")
    ben.saw("#row-2 .dot.open")
    assert ann.stayed_here() and ben.stayed_here(), (ann.said, ben.said)


def test_a_block_of_sure_ones_is_an_entry_that_is_undone_alone(chromium: Any, fresh: Road) -> None:
    with serving(fresh, 0, "--set", "review.sure=0.2") as server:
        ann = Colleague(chromium, server.url, "Ann")
        ann.press("d", "u")
        ann.saved()
        ann.saw("#sure-ones:visible")
        ann.press("S")
        ann.view.wait_for_selector("#bulk[open]")
        ann.press("Enter")
        ann.saved()
        log = hgld_without_date("reviews", "log", *fresh.at, "--json").stdout
        single, block = json.loads(log)
        assert (single["source"], single["counts"]) == ("page", {"drop": 1, "unsure": 1})
        assert (block["source"], block["who"]) == ("sure", "Ann")
        accepted = [row for row in rows_of(fresh) if row["entry"].endswith(" sure")]
        assert len(accepted) == sum(block["counts"].values()) > 2
        assert all(re.match(r"accepted at \d+ %: .+", row["why"]) for row in accepted)
        done = hgld("reviews", "undo", *fresh.at, "--apply", "2", "--set", 'review.who="Ben"')
        assert done.returncode == 0, done.stderr
        ann.saw("#row-2 .dot.open")
        taken = {row["key"]: row["decision"] for row in rows_of(fresh)}
        assert sorted(filter("open".__ne__, taken.values())) == ["drop", "unsure"]


def test_a_note_is_sent_when_its_field_is_left(ann: Colleague, fresh: Road) -> None:
    ann.press("n")
    ann.type("what is it?")
    assert rows_of(fresh) == []
    ann.press("Escape")
    ann.saved()
    assert [(row["decision"], row["why"]) for row in rows_of(fresh)] == [("unsure", "what is it?")]


def test_a_comment_is_seen_by_others_and_decides_nothing(
    ann: Colleague, ben: Colleague, fresh: Road
) -> None:
    ann.press("c")
    from playwright.sync_api import expect

    ann.type("a pond?")
    ann.press("Escape")
    ben.saw(".history li:has-text('a pond?')")
    assert "Ann 2026-01-01 a pond?" in ben.text("#panel")
    assert "a pond?" in (fresh.labels / "comments.csv").read_text("utf-8")
    expect(ann.view.locator("#comment")).to_have_value("")
    assert rows_of(fresh) == []


def test_a_comment_that_is_refused_is_named_and_keeps_no_other_back(
    ann: Colleague, fresh: Road
) -> None:
    ann.saved()
    label = ann.text("#panel h2")
    ann.view.fill("#comment", "x" * 2001)
    ann.press("Escape", "j")
    ann.view.fill("#comment", "a mill?")
    ann.press("Escape")
    ann.saw("#panel li:has-text('a mill?')")
    ann.saw(f"#away:has-text('The comment on {label} is not saved: ')")
    said = (fresh.labels / "comments.csv").read_text("utf-8")
    assert said.count("Ann") == said.count("a mill?") == 1


def test_decisions_made_while_the_server_is_away_are_sent_when_it_is_back(
    ann: Colleague, fresh: Road, server: Server
) -> None:
    ann.press("d")
    ann.saved()
    server.end(signal.SIGKILL)
    ann.saw("#away:not([hidden])")
    ann.press("d", "u")
    assert "2 decisions kept in this browser" in ann.text("#away")
    assert len(rows_of(fresh)) == 1
    with serving(fresh, server.port) as again:
        assert again.url == server.url
        ann.saved()
        assert [row["decision"] for row in rows_of(fresh)] == ["drop", "drop", "unsure"]


def test_a_page_that_is_closed_unsaved_sends_its_decisions_when_it_is_opened_again(
    ann: Colleague, fresh: Road, server: Server
) -> None:
    ann.saved()
    server.end(signal.SIGKILL)
    ann.press("d")
    ann.view.close()
    with serving(fresh, server.port):
        ann.open()
        ann.saved()
        assert [row["who"] for row in rows_of(fresh)] == ["Ann"]


def test_two_tabs_of_one_person_take_no_decision_of_each_other_back(
    ann: Colleague, fresh: Road, server: Server
) -> None:
    ann.saved()
    other = ann.tab.new_page()
    other.goto(server.url)
    other.wait_for_selector("#people[title*='all saved']", state="attached")
    server.end(signal.SIGKILL)
    ann.view.bring_to_front()
    ann.view.click("#row-0")
    ann.press("d")
    other.bring_to_front()
    other.wait_for_selector("#row-0 .dot.dropped", state="attached")
    for row in (0, 1):
        other.click(f"#row-{row}")
        other.keyboard.press("u")
    ann.saw("#row-1 .dot.unsure")
    with serving(fresh, server.port):
        ann.saved()
        other.wait_for_selector("#people[title*='all saved']", state="attached")
        ann.view.wait_for_timeout(2000)  # as long as an undo by the other tab would take
        assert [row["decision"] for row in rows_of(fresh)] == ["unsure", "unsure"]


def test_decisions_that_wait_are_sent_in_the_name_of_who_made_them(
    ann: Colleague, fresh: Road, server: Server
) -> None:
    ann.saved()
    server.end(signal.SIGKILL)
    ann.press("d")
    ann.view.click("#people")
    ann.view.fill("#name", "Ben")  # somebody else at the same browser
    ann.press("Enter")
    ann.press("u")
    assert "1 decision kept in this browser" in ann.text("#away")
    with serving(fresh, server.port):
        ann.saved()
        assert [(row["who"], row["decision"]) for row in rows_of(fresh)] == [("Ben", "unsure")]
        ann.view.click("#people")
        ann.view.fill("#name", "Ann")
        ann.press("Enter")
        ann.saw("#row-0 .dot.dropped")
        ann.saved()
        assert [row["who"] for row in rows_of(fresh)] == ["Ben", "Ann"]


def test_a_decision_on_its_way_stays_if_somebody_else_signs_in_and_goes_if_it_is_undone(
    ann: Colleague, fresh: Road
) -> None:
    held = list[Any]()
    ann.saved()
    ann.view.route("**/decisions", lambda route: held.append(route))

    def send() -> None:
        for _ in range(2400):
            if not held:
                ann.view.wait_for_timeout(50)
        held.pop().continue_()

    ann.press("d")
    ann.view.click("#people")
    ann.view.fill("#name", "Ben")
    ann.press("Enter")
    send()
    ann.saw("#row-0 .dot.dropped")
    ann.press("d")
    ann.saw('#people[title*="1 decision not saved yet"]')
    ann.press("z")
    send()
    ann.saved()
    ann.view.wait_for_function("() => !document.querySelector('#row-1 .dot.dropped')")
    ann.view.wait_for_timeout(2000)  # as long as an undo of the first one would take
    made = [(row["who"], row["decision"]) for row in rows_of(fresh)]
    assert made == [("Ann", "drop"), ("Ben", "drop"), ("Ben", "open")]


def test_two_answers_that_did_not_know_of_each_other_are_a_conflict_that_the_page_settles(
    ann: Colleague, ben: Colleague, fresh: Road, server: Server
) -> None:
    ann.saved()
    server.end(signal.SIGKILL)
    ann.press("d")
    ben.press("K")
    with serving(fresh, server.port):
        for person in (ann, ben):
            person.saw("#row-0 .dot.conflict")
        assert {row["who"] for row in rows_of(fresh)} == {"Ann", "Ben"}
        ann.view.click("#row-0")
        sides = ann.text(".sides")
        assert "drop Ann, 2026-01-01" in sides and "keep lake Ben, 2026-01-01" in sides
        ann.view.click(".sides div:has-text('Ben') >> text=Take this")
        ben.saw("#row-0 .dot.decided")
        assert rows_of(fresh)[-1]["supersedes"].count(" ") == 1  # both sides


def test_taking_the_undone_side_of_a_conflict_leaves_the_value_open(
    ann: Colleague, ben: Colleague, fresh: Road, server: Server
) -> None:
    ann.press("d")
    ben.saw("#row-0 .dot.dropped")
    ann.saved()  # else the decision is sent once more, after its undo
    server.end(signal.SIGKILL)
    ben.view.click("#row-0")
    ben.press("u")
    undone = hgld(
        "reviews", "undo", *fresh.at, rows_of(fresh)[0]["key"], "--set", 'review.who="Ann"'
    )
    assert undone.returncode == 0, undone.stderr
    with serving(fresh, server.port):
        ann.saw("#row-0 .dot.conflict")
        ann.view.click("#row-0")
        ann.view.click(".sides div:has-text('open') >> text=Take this")
        for person in (ann, ben):
            person.saw("#row-0 .dot.open")
            person.saved()
        taken = rows_of(fresh)[-1]
        assert (taken["decision"], taken["who"]) == ("open", "Ann")
        assert taken["supersedes"].count(" ") == 1  # both sides


def test_a_sheet_applied_from_another_shell_is_seen_in_the_page(
    ann: Colleague, fresh: Road, tmp_path: Path
) -> None:
    ann.press("d")
    ann.saved()
    text = (fresh.work / "review.csv").read_text("utf-8-sig").splitlines()
    sheet = tmp_path / "sheet.csv"
    sheet.write_text("\n".join([text[0], "drop" + text[2]]) + "\n", "utf-8")
    done = hgld("review", *fresh.at, str(sheet), "--apply", "--set", 'review.who="Cy"')
    assert "1 decision added" in done.stderr, done.stderr
    ann.saw("#row-1 .dot.dropped")
    ann.view.click("#row-1")
    ann.saw("#panel li:has-text('drop Cy')")
    ann.load()
    ann.saw("#row-0 .dot.dropped")
    ann.saw("#row-1 .dot.dropped")


def replace_file(path: Path, text: str) -> None:
    """Write a file as a stage does, so that no reader sees a part of it."""
    path.with_suffix(".new").write_text(text, "utf-8")
    path.with_suffix(".new").replace(path)


def test_a_page_that_is_older_than_the_clusters_says_so_and_decides_no_value_that_changed(
    ann: Colleague, fresh: Road
) -> None:
    ann.saved()
    label, (first, second) = ann.text("#panel h2"), [ann.text(f"#row-{i} .what b") for i in (0, 1)]
    clusters = fresh.work / "clusters.csv"
    assert first == label
    replace_file(clusters, clusters.read_text("utf-8").replace(f",{first},", ",grain mill,"))
    ann.saw("#away:has-text('The clusters were made again')")
    ann.press("d", "d")
    ann.saw("#away:has-text('the value has changed since')")
    ann.saw("#row-1 .dot.dropped")
    wait_for(lambda: rows_of(fresh))
    (row,) = rows_of(fresh)
    assert row["decision"] == "drop" and second
    ann.view.click("#away >> text=Take it back")
    ann.saved()
    ann.view.click("#away >> text=Reload")
    ann.saw("#row-0 .what b:has-text('grain mill')")
    ann.press("d")
    ann.saved()
    assert len(rows_of(fresh)) == 2 and not ann.view.is_visible("#away")


def test_a_decision_that_a_damaged_file_refused_is_sent_again_by_a_click(
    ann: Colleague, fresh: Road
) -> None:
    ann.press("d")
    ann.saved()
    path = fresh.labels / "decisions.csv"
    text = path.read_text("utf-8")
    replace_file(path, text + "<<<<<<< ours\n")
    ann.press("d")
    ann.saw("#away:has-text('is a mark of a merge in git')")
    replace_file(path, text)
    ann.view.click("#away >> text=Try again")
    ann.saved()
    assert len(rows_of(fresh)) == 2 and not ann.view.is_visible("#away")


def names_in(road: Road) -> list[str]:
    with (road.labels / "taxonomy.csv").open(encoding="utf-8", newline="") as file:
        return [row["supercategory"] for row in csv.DictReader(file)]


def test_an_edit_of_the_taxonomy_is_saved_seen_by_others_and_taken_back(
    ann: Colleague, ben: Colleague, fresh: Road
) -> None:
    ann.press("K")
    ann.saved()
    ben.saw("#row-0 .dot.decided")
    ben.view.select_option("#by-supercategory", "lake")
    change(ann, "rename", "lake", "waters")
    ann.press("Enter")
    ann.saw("#taxonomy li:has-text('waters')")
    assert names_in(fresh).count("waters") == 1 and "lake" not in names_in(fresh)
    assert [(row["supercategory"], row["who"]) for row in rows_of(fresh)][1:] == [("waters", "Ann")]
    ben.saw("#row-0 .fate:has-text('waters')")
    ben.saw("#by-supercategory option[value=waters]")
    assert ben.view.locator(".row .fate", has_text="lake").count() == 0  # nor is it suggested
    ann.load()  # the rows are sorted again
    ann.saw(".row .fate:has-text('waters')")
    ann.view.click("#taxonomy-list")
    ann.view.click("text=Take back the last edit")
    ben.saw("#row-0 .fate:has-text('lake')")
    assert names_in(fresh).count("lake") == 1 and "waters" not in names_in(fresh)
    assert ann.stayed_here() and ben.stayed_here(), (ann.said, ben.said)


def test_taking_back_an_edit_goes_past_those_that_were_undone_elsewhere(
    ann: Colleague, fresh: Road
) -> None:
    ann.saved()
    change(ann, "rename", "lake", "waters")
    ann.press("Enter")
    ann.saw("#taxonomy li:has-text('waters')")
    ann.press("Escape")
    for name in ("waters", "mere"):
        change(ann, "rename", name, "mere" if name == "waters" else "tarns")
        ann.press("Enter")
        ann.saw(f"#taxonomy li:has-text('{'mere' if name == 'waters' else 'tarns'}')")
        ann.press("Escape")
    log = json.loads(hgld_without_date("reviews", "log", *fresh.at, "--json").stdout)
    last = str(log[-1]["number"])
    done = hgld("reviews", "undo", *fresh.at, "--apply", last, "--set", 'review.who="Ben"')
    assert done.returncode == 0, done.stderr
    ann.view.click("#taxonomy-list")
    ann.saw("#taxonomy li:has-text('mere')")
    ann.view.click("text=Take back the last edit")
    ann.saw("#taxonomy li:has-text('waters')")
    ann.view.click("text=Take back the last edit")
    ann.saw("#taxonomy li:has-text('lake')")
    assert "waters" not in names_in(fresh) and "lake" in names_in(fresh)
    assert ann.stayed_here(), ann.said


def test_a_new_supercategory_and_a_split_are_saved_with_their_values(
    ann: Colleague, fresh: Road
) -> None:
    ann.press("K", "m")
    ann.type("sea wall")
    ann.press("ArrowUp", "Enter")
    ann.view.select_option("#edit-kind", "human-made")
    ann.view.click("#taxonomy >> text=/^Add$/")
    ann.saw("#row-1 .fate:has-text('sea wall')")
    ann.saved()
    assert [row["supercategory"] for row in rows_of(fresh)] == ["lake", "sea wall"]
    change(ann, "split", "lake", "tarn")
    ann.view.check("#taxonomy fieldset input")
    ann.view.click("#taxonomy button.primary >> text=Split")
    ann.saw("#row-0 .fate:has-text('tarn')")
    assert {"sea wall", "tarn"} <= set(names_in(fresh))
    ann.press("Escape")
    change(ann, "remove", "sea wall")
    ann.view.click("#taxonomy button.primary >> text=Remove")
    assert ann.text("#taxonomy .fault") == "In use by 1 value; merge it into another one."
    assert ann.stayed_here(), ann.said


def test_the_open_list_of_supercategories_shows_the_edit_of_somebody_else(
    ann: Colleague, ben: Colleague
) -> None:
    ann.saved()
    ann.view.click("#taxonomy-list")
    ann.view.focus("#taxonomy [aria-label='bridge'] >> text=merge")
    change(ben, "rename", "lake", "mere")
    ben.press("Enter")
    ann.saw("#taxonomy li:has-text('mere')")
    assert ann.view.query_selector("#taxonomy li:has-text('lake')") is None
    ann.press("Enter")
    ann.saw("#taxonomy h2:has-text('Merge bridge')")
    assert ann.stayed_here() and ben.stayed_here(), (ann.said, ben.said)


def test_a_dialog_that_is_closed_while_its_edit_is_saved_stays_closed(
    ann: Colleague, fresh: Road
) -> None:
    held = list[Any]()
    ann.view.route("**/taxonomy", lambda route: held.append(route))
    change(ann, "rename", "lake", "mere")
    with ann.view.expect_request("**/taxonomy"):
        ann.view.click("#taxonomy button.primary >> text=Rename")
    while not held:
        ann.view.wait_for_timeout(10)
    ann.press("Escape")
    with ann.view.expect_response("**/taxonomy"):
        held[0].continue_()
    ann.saw("#by-supercategory option[value=mere]")
    ann.view.wait_for_timeout(200)  # nothing more comes of the answer
    assert "mere" in names_in(fresh)
    assert ann.view.locator("#taxonomy[open]").count() == 0


def test_an_edit_of_the_taxonomy_that_the_server_refuses_is_named_in_the_dialog(
    ann: Colleague, fresh: Road, server: Server
) -> None:
    ann.saved()
    roots = (fresh.labels / "class_roots.csv").read_text("utf-8").splitlines()
    used = next(csv.DictReader(roots))["supercategory"]
    change(ann, "remove", used)
    ann.view.click("#taxonomy button.primary >> text=Remove")
    ann.saw("#taxonomy .fault:has-text('in use by')")
    server.end(signal.SIGKILL)
    ann.view.click("#taxonomy button.primary >> text=Remove")
    ann.saw("#taxonomy .fault:has-text('nothing is changed')")
    assert used in names_in(fresh)


def test_the_sheet_is_downloaded_from_the_page_of_a_server(ann: Colleague) -> None:
    ann.view.click("#people")
    with ann.view.expect_download() as found:
        ann.view.click("text=Download review.csv >> visible=true")
    assert found.value.suggested_filename == "review.csv"
    assert ann.stayed_here(), ann.said


def test_ctrl_c_ends_the_server_with_the_sheets_written_and_the_gate_told(
    ann: Colleague, fresh: Road, server: Server
) -> None:
    ann.press("d")
    ann.saved()
    code, errors = server.end()
    assert code == 20 and "13 values of" in errors and "Traceback" not in errors, errors
    with (fresh.work / "review.csv").open(encoding="utf-8-sig", newline="") as file:
        assert [row["decision"] for row in csv.DictReader(file)].count("drop") == 1


def test_a_second_server_and_a_port_in_use_are_one_line(fresh: Road, server: Server) -> None:
    second = hgld("review", *fresh.at, "--serve", "--port", "0")
    assert second.returncode == 1 and "another hgld serves this review" in second.stderr
    assert second.stderr.count("\n") == 1
    assert server.url not in second.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        server.end(signal.SIGTERM)
        other = hgld("review", *fresh.at, "--serve", "--port", port)
    assert other.returncode == 2 and "choose another port with --port" in other.stderr
    assert other.stderr.count("\n") == 1


def test_the_token_is_private_and_only_photos_that_may_be_shown_are_sent(
    ann: Colleague, fresh: Road, server: Server
) -> None:
    token = fresh.work / ".state" / "review" / "token"
    assert token.stat().st_mode & 0o777 == 0o600
    assert urlsplit(server.url).path == f"/{token.read_text()}/"
    ann.saw(".photos img")
    ann.view.wait_for_function("[...document.images].every((image) => image.naturalWidth)")
    shown = ann.view.evaluate("[...document.images].map((image) => image.naturalWidth)")
    assert shown and all(0 < width <= 176 for width in shown)
    assert "CC" in ann.text(".photos figcaption >> nth=0")
    shown = [part.inner_text() for part in ann.view.locator(".photos figcaption b").all()]
    assert not any(name in ann.text("#examples") for name in shown)  # each place is named once
    with closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
        connection.request("GET", f"/{token.read_text()}/photos/../../lock.json")
        assert connection.getresponse().status == 404
    assert ann.stayed_here(), (ann.asked, ann.said)


@pytest.mark.parametrize("width", [400, 1440])
def test_the_page_of_a_server_fits_and_has_no_errors(
    chromium: Any, server: Server, width: int
) -> None:
    ann = Colleague(chromium, server.url, "Ann", viewport={"width": width, "height": 800})
    ann.saved()
    assert ann.view.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    box = ann.view.locator("#people").bounding_box()
    assert box["x"] + box["width"] <= width
    assert ann.stayed_here(), ann.said
