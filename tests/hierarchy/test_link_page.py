"""The page of links: classes without an item, answered by keys, as a file or from a server."""

import csv
import io
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from hgld.artifacts import ARTIFACTS
from hgld.config import ReviewOptions
from hgld.review.review_page import render_links
from tests.hierarchy.made_dump import write_dumps
from tests.hierarchy.test_review_page import Curator, Visit, visit
from tests.mediawiki.test_link import PIPELINE, made_world
from tests.waiting import wait_for
from tests.warm import Command, hgld

pytestmark = pytest.mark.slow

__all__ = ["visit"]  # a fixture
NAMES = ("Saturn", "grey thing", "nothing")  # as many images as their place from the end


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes that link leaves to a person."""
    folder = tmp_path_factory.mktemp("person")
    for number, name in enumerate(reversed(NAMES), 1):
        (folder / "photos" / name).mkdir(parents=True)
        for j in range(number):
            Image.new("RGB", (40, 30), "red").save(folder / "photos" / name / f"{j}.png")
    (folder / "labels").mkdir()
    (folder / "labels" / "taxonomy.csv").write_text("supercategory,kind,definition\n")
    entities = made_world().entities
    dump = write_dumps({"pages": {"x": {}}, "redirects": {}, "entities": entities}, folder)
    text = PIPELINE.replace("contact", f'dump_entities = "{dump["entities"]}"\ncontact')
    licenses = '[export]\nlicenses = ["*", "unknown"]\n'
    (folder / "mine.toml").write_text(text + licenses + '[review]\nwho = "Ann"\n')
    hgld(folder, "run", "mine.toml", "--until", "link", code=0)
    return folder


def links(folder: Path) -> list[tuple[str, str, str]]:
    path = folder / "labels" / "links.csv"
    rows = csv.DictReader(io.StringIO(path.read_text())) if path.exists() else ()
    return [(row["name"], row["qid"], row["who"]) for row in rows]


@pytest.fixture
def page(folder: Path, visit: Visit) -> Curator:
    made = hgld(folder, "link", "mine.toml", "--html")
    assert made.returncode == 0 and "link_review.html" in made.stdout, made.stderr
    return visit(folder / "work" / "mine" / "link_review.html")


def test_keys_answer_each_class_and_the_file_is_applied(
    page: Curator, folder: Path, tmp_path: Path
) -> None:
    assert page.listed() == list(NAMES)
    assert page.view.locator(".photos img").count() == 3
    assert "Q193" in page.text(".candidates li:first-child") and "text 0." in page.text(".panel")
    page.press("2", "z", "1", "d", "i")  # the second class has one candidate
    page.type("a fox")
    page.press("Enter")
    assert page.text("#fault") == "a fox: expected an item such as Q35694."
    page.view.fill("#item", "https://www.wikidata.org/wiki/q42")
    page.press("Enter")
    assert page.text("#share") == "3 of 3 classes answered"
    with page.view.expect_download() as found:
        page.view.click("#save")
    sheet = tmp_path / "sheet.csv"
    sheet.write_bytes(Path(found.value.path()).read_bytes())
    assert "hgld link mine.toml --apply link_review.csv" in page.text("dialog pre")
    before = links(folder)
    hgld(folder, "link", "mine.toml", str(sheet), "--apply", code=0)
    answers = [("Saturn", "Q193"), ("grey thing", "none"), ("nothing", "Q42")]
    assert links(folder) == [*before, *((*said, "Ann") for said in answers)]
    (folder / "labels" / "links.csv").unlink()


def test_a_workbook_with_further_sheets_is_applied(folder: Path, tmp_path: Path) -> None:
    with pd.ExcelWriter(tmp_path / "sheet.xlsx") as book:
        answers = pd.DataFrame({"name": ["Saturn"], "qid": ["Q193"]})
        answers.to_excel(book, sheet_name="answers", index=False)
        pd.DataFrame({"to do": ["ask Ben"]}).to_excel(book, sheet_name="notes", index=False)
    done = hgld(folder, "link", "mine.toml", str(tmp_path / "sheet.xlsx"), "--apply")
    assert done.returncode == 0 and ("Saturn", "Q193", "Ann") in links(folder), done.stderr
    (folder / "labels" / "links.csv").unlink()


def test_on_a_narrow_screen_a_class_opens_over_the_list(page: Curator) -> None:
    page.view.set_viewport_size({"width": 400, "height": 800})
    candidates = page.view.locator(".candidates")
    for close in (lambda: page.view.click(".close-panel"), lambda: page.press("Escape")):
        candidates.wait_for(state="hidden")
        page.view.click(".row:first-child")
        candidates.wait_for(state="visible")
        close()
    candidates.wait_for(state="hidden")


def test_on_a_narrow_screen_the_progress_is_shown_whole(page: Curator) -> None:
    page.view.set_viewport_size({"width": 400, "height": 800})
    cut = "share => share.scrollWidth > share.clientWidth"
    assert page.view.inner_text("#share").strip() == "0 of 3"
    assert not page.view.eval_on_selector("#share", cut)


def test_answers_outlive_a_reload(page: Curator) -> None:
    page.press("1", "k", "2")
    page.load()
    assert page.text(".row:first-child .fate") == "Q1939"
    page.press("x")
    assert page.text("#share") == "0 of 3 classes answered"


def test_answers_of_two_tabs_are_both_kept(page: Curator) -> None:
    other = page.tab.new_page()
    other.goto(page.address)
    page.press("1")
    other.wait_for_selector(".row:nth-child(1) .fate:has-text('Q')")
    other.click(".row:nth-child(2)")
    other.keyboard.press("d")
    page.view.wait_for_selector(".row:nth-child(2) .fate:has-text('none')")
    other.close()
    page.load()
    assert page.text("#share") == "2 of 3 classes answered"


def sign(view: Any, name: str) -> None:
    if not view.is_visible("dialog"):
        view.click("#who")
    view.fill("#name", name)
    for key in ("Enter", "Escape"):
        view.keyboard.press(key)
    view.wait_for_selector("dialog", state="hidden")


def test_answers_belong_to_a_person_and_a_sheet(page: Curator, folder: Path) -> None:
    page.press("1")
    for name, answered in (("Ann", 1), ("", 1), ("Bob", 0), ("Ann", 1)):
        sign(page.view, name)
        assert page.text("#share") == f"{answered} of 3 classes answered"
    path = folder / "work" / "mine" / "link_review.html"
    path.write_text(re.sub(r'"hash":"\w+"', '"hash":"0"', path.read_text("utf-8")), "utf-8")
    page.load()
    assert page.text("#share") == "0 of 3 classes answered"
    assert "keeps 1 answer made on an earlier version" in page.text("#banner")
    sign(page.view, "Bob")
    assert page.view.is_hidden("#banner")
    sign(page.view, "Ann")
    page.view.click("text=Discard")
    page.load()
    assert page.view.is_hidden("#banner")


def test_answers_of_an_earlier_sheet_are_taken_over_for_open_classes(
    page: Curator, folder: Path
) -> None:
    page.press("1", "d", "d")
    (folder / "labels" / "links.csv").write_text("name,qid\nSaturn,Q193\n")
    try:
        hgld(folder, "link", "mine.toml", "--html", code=0)
    finally:
        (folder / "labels" / "links.csv").unlink()
    page.load()
    assert page.listed() == list(NAMES[1:])
    page.press("j", "i")
    page.type("Q1")  # answered again: this answer holds
    page.press("Enter")
    page.load()
    assert page.text("#banner").startswith(
        "This browser keeps 1 answer made on an earlier version of this sheet. Taking over drops "
        "2 answers to classes that are no longer open."
    )
    page.view.click("text=Take over")
    for _ in range(2):
        assert page.view.locator(".row .fate").all_inner_texts() == ["none", "Q1"]
        assert page.view.is_hidden("#banner")
        page.load()


def test_answers_on_their_way_are_those_of_the_person_who_gave_them(
    folder: Path, chromium: Any
) -> None:
    sheet = ARTIFACTS["link_review"].read(folder / "work" / "mine" / "link_review.csv")
    photos = pd.DataFrame(columns=["key"])
    html = render_links(
        sheet, photos, options=ReviewOptions(), source=folder, title="", name="",
        command="",
        live={"at": "a:0", "sheet": "a"},
    )  # fmt: skip
    waiting: list[Any] = []
    tab = chromium.new_context().new_page()
    tab.route("http://page.test/**", lambda route: route.fulfill(status=204))
    tab.route("http://page.test/", lambda route: route.fulfill(body=html, content_type="text/html"))
    tab.route("**/decisions", lambda route: waiting.append(route))
    tab.goto("http://page.test/")
    sign(tab, "Ann")
    tab.click("text=None")
    wait_for(lambda: tab.wait_for_timeout(50) or bool(waiting))
    sign(tab, "Bob")
    tab.click("text=None")
    for number, who in enumerate(("Ann", "Bob")):
        wait_for(lambda n=number: tab.wait_for_timeout(50) or len(waiting) > n)
        assert [route.request.post_data_json["who"] for route in waiting[number:]] == [who]
        waiting[number].fulfill(json={"at": f"a:{number}", "news": {}})
    wait_for(lambda: tab.evaluate("Object.keys(localStorage)") == ["hgld review name"])
    sign(tab, "Ann")
    tab.wait_for_timeout(300)
    assert len(waiting) == 2
    tab.close()


# The page gets events when a test says so, as over a line that is slower than the replies.
HELD_EVENTS = """
window.held = [];
window.EventSource = class extends EventSource {
  constructor(address) {
    super(address);
    window.stream = this;
    super.onmessage = (event) => held.push(event);
  }
  set onmessage(take) { this.take = take; }
};
"""


def test_a_server_saves_each_answer_and_takes_it_back(folder: Path, chromium: Any) -> None:
    words = ["link", "mine.toml", "--serve", "--port", "0"]
    server = Command(words, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        tab = chromium.new_context().new_page()
        tab.add_init_script(HELD_EVENTS)
        tab.goto(server.stdout.readline().removeprefix("page: ").strip())
        sign(tab, "Bob")
        tab.wait_for_selector(".photos img")
        said = ["Q193", "", "Q193"]
        for number, key in enumerate("1z1", 1):
            tab.keyboard.press(key)
            wait_for(lambda n=number: links(folder) == [("Saturn", q, "Bob") for q in said[:n]])
            tab.wait_for_selector("#edited", state="hidden")  # the reply is there
            if key == "z":
                tab.evaluate("early.forEach((event) => stream.take(event))")  # one of the answer
            elif number == 1:
                told = "held.some(({ data }) => JSON.parse(data).news.rows?.Saturn)"
                wait_for(lambda js=told: tab.evaluate(js))
                tab.evaluate("window.early = held.slice()")
        tab.close()
        server.send_signal(signal.SIGINT)
        assert server.wait(120) == 0
    finally:
        server.kill()
        server.communicate()
    linked = (folder / "work" / "mine" / "linked.csv").read_text()
    assert "Saturn,Q193," in linked
