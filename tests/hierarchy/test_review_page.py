import csv
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lxml.html
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from hgld.artifacts import ARTIFACTS, Table, Vectors, columns_of, table_of
from hgld.config import ReviewOptions
from hgld.review.photos import choose_images
from hgld.review.review_page import find_next_clusters, render_page
from tests import warm
from tests.benchmarks.review_page import make_page, make_tables
from tests.colours import colours, contrast

pytestmark = pytest.mark.slow

TEMPLATES = Path("hgld/templates")
CC = "https://creativecommons.org/licenses/by-sa/3.0/"
EVIL = "<script>alert(1)</script></script>"
# key, label, landmarks, images, cluster, decision, supercategory, suggestion, status
VALUES = (
    ("Q1", "lake", 6, 60, 0, "", "", "lake", "open"),
    ("Q2", "=1+1", 5, 50, 0, "", "", "", "open"),
    ("Q3", EVIL, 4, 40, 1, "", "", "", "open"),
    ("Q4", 'the "old", église', 3, 30, 1, "", "", "church", "open"),
    ("Q5", "pond", 2, 20, 0, "keep", "lake", "", "decided"),
    ("Q6", "thing", 1, 10, 2, "drop", "", "", "decided"),
    ("Q7", "tarn", 1, 5, 0, "keep", "lake", "", "stale"),
)
SUPERCATEGORIES = (("castle / fort", "human-made"), ("church", "human-made"), ("lake", "natural"))


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Any]:
    """What ``render_page`` takes; one photo of each landmark, none of the last value's."""
    clusters, sheet, values, places = [], [], [], []
    for key, label, count, images, cluster, decision, supercategory, suggestion, status in VALUES:
        row = {
            "class_id": key, "instance_of": label, "landmarks": count, "images": images,
            "cluster": cluster, "cluster_name": f"c{cluster}", "distance": 0.5, "margin": 0.25,
        }  # fmt: skip
        clusters.append(row)
        for _ in range(count):
            place = {"split": "train", "landmark_id": len(places)}
            places.append({**place, "name": f"Place {len(places)}", "commons_url": ""})
            values.append({**place, "order": 0, "class_id": key, "instance_of": label})
        sheet.append({
            **row, "decision": decision, "supercategory": supercategory,
            "kind": dict(SUPERCATEGORIES).get(supercategory, ""), "note": "", "key": key,
            "key_type": "qid", "examples": "Place 0", "hint": "", "suggestion": suggestion,
            "probability": np.nan, "reason": "",
            "evidence": "", "status": status, "instance_of": "'" * (label[0] == "=") + label,
        })  # fmt: skip
    return {
        "sheet": table_of("review", sheet),
        "clusters": table_of("clusters", clusters),
        "cluster_summary": table_of("cluster_summary", [
            {"cluster": number, "cluster_name": f"c{number}", "values": 1, "landmarks": 1,
             "images": 1, "nearest": nearest, "change": "kept", "related": ""}
            for number, nearest in enumerate(("1; 2", "0; 2", "0; 1"))
        ]),
        "label_vectors": Vectors([row[0] for row in VALUES], np.eye(7, 3, dtype=np.float32), {}),
        "taxonomy": table_of("taxonomy", [
            {"supercategory": name, "kind": kind, "definition": f"about {name}"}
            for name, kind in SUPERCATEGORIES
        ]),
        "landmark_values": table_of("landmark_values", values),
        "landmarks": table_of("landmarks", places),
        "images": photograph(tmp_path / "source", len(places) - 1),
    }  # fmt: skip


def photograph(source: Path, count: int) -> pd.DataFrame:
    """A tar of one-colour photos, one a landmark."""
    source.mkdir()
    rows = []
    with tarfile.open(source / "photos.tar", "w") as tar:
        for number in range(count):
            buffer = io.BytesIO()
            Image.new("RGB", (320, 240), (9 * number, 90, 120)).save(buffer, "JPEG")
            info = tarfile.TarInfo(f"{number:016x}.jpg")
            info.size = len(buffer.getvalue())
            rows.append((
                f"{number:016x}", "train", number, "photos.tar", tar.offset + 512, info.size,
                f"Author {number}", CC, f"File:Photo {number}.jpg", f"https://example.org/{number}",
            ))  # fmt: skip
            tar.addfile(info, io.BytesIO(buffer.getvalue()))
    return pd.DataFrame(rows, columns=columns_of("images"))


def render(
    tables: dict[str, Any], folder: Path, title: str = "Seven values", **options: Any
) -> str:
    return render_page(
        **tables, options=ReviewOptions(**options), source=folder / "source", title=title,
        name="seven", command="hgld review seven.toml --apply review.csv",
    )  # fmt: skip


def write_page(tables: dict[str, Any], folder: Path, **facts: Any) -> Path:
    page = folder / "review.html"
    page.write_text(render(tables, folder, **facts), encoding="utf-8")
    return page


def facts_of(page: str) -> dict[str, Any]:
    (text,) = lxml.html.fromstring(page).xpath("//script[@id='data']/text()")
    return dict(json.loads(text))


def csv_of(tables: dict[str, Any], folder: Path) -> bytes:
    artifact = ARTIFACTS["review"]
    assert isinstance(artifact, Table)
    artifact.write(tables["sheet"], folder / "review.csv")
    return (folder / "review.csv").read_bytes()


# The page as a file


def test_the_same_tables_give_the_same_page(tables: dict[str, Any], tmp_path: Path) -> None:
    assert render(tables, tmp_path) == render(tables, tmp_path)


def test_the_page_names_no_other_file_and_lets_no_other_script_run(
    tables: dict[str, Any], tmp_path: Path
) -> None:
    page = render(tables, tmp_path)
    document = lxml.html.fromstring(page)
    assert [s for s in document.xpath("//@src | //@href") if not s.startswith(("data:", "#"))] == []
    assert "url(" not in document.xpath("string(//style)") and "@import" not in page
    (policy,) = document.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    assert policy.startswith("default-src 'none'; img-src data:;") and "sha256-" in policy


def test_no_cell_can_end_the_data(tables: dict[str, Any], tmp_path: Path) -> None:
    page = render(tables, tmp_path)
    assert EVIL not in page and page.count("<script") == 2
    assert facts_of(page)["rows"][2][columns_of("review").index("instance_of")] == EVIL


def test_photos_come_in_the_order_of_the_rows_with_their_credit(
    tables: dict[str, Any], tmp_path: Path
) -> None:
    photos = facts_of(render(tables, tmp_path, page_photos=2))["photos"]
    assert {row: len(some) for row, some in photos.items()} == {
        "0": 2, "1": 2, "2": 2, "3": 2, "4": 2, "5": 1,
    }  # fmt: skip
    first = {name: text for name, text in photos["0"][0].items() if name != "jpeg"}
    assert first == {
        "landmark": "Place 0", "title": "Photo 0.jpg", "url": "https://example.org/0",
        "byline": "by Author 0", "terms": "CC BY-SA 3.0", "license_url": CC,
    }  # fmt: skip


def test_a_value_of_one_landmark_has_further_photos_of_it(tables: dict[str, Any]) -> None:
    images = tables["images"]
    more = pd.concat([images, images.assign(image_id=[f"more{i}" for i in images["image_id"]])])
    chosen = choose_images(tables["landmark_values"], tables["landmarks"], more, per_value=2)
    assert chosen.groupby("key").size().eq(2).all()
    of_others = chosen.groupby("key")["landmark_id"].nunique() == 2
    assert not chosen[chosen["key"].map(of_others)]["image_id"].str.startswith("more").any()
    assert chosen["image_id"].str.startswith("more").sum() == (~of_others).sum() > 0


def test_the_page_keeps_its_size_and_the_first_rows_have_their_photos(
    tables: dict[str, Any], tmp_path: Path
) -> None:
    bare = len(render(tables, tmp_path, page_photos=0).encode())
    limit = bare + 4000
    page = render(tables, tmp_path, page_megabytes=limit / 1e6)
    assert bare < len(page.encode()) <= limit
    assert list(facts_of(page)["photos"]) == ["0"]


def test_an_image_that_is_lost_or_damaged_is_left_out(
    tables: dict[str, Any], tmp_path: Path
) -> None:
    images = tables["images"].copy()
    images.loc[0, "path"] = "lost.tar"
    images.loc[1, "size_bytes"] = 40
    page = render({**tables, "images": images}, tmp_path)
    # three are chosen before any file is opened, so one is left
    assert [photo["landmark"] for photo in facts_of(page)["photos"]["0"]] == ["Place 2"]


def test_the_next_cluster_is_the_one_whose_mean_is_nearest_but_the_own() -> None:
    clusters = pd.DataFrame({
        "class_id": ["Q1", "Q2", "Q3", "Q4", "Q5"], "instance_of": list("abcde"),
        "cluster": [5, 5, 7, 9, 9],
    })  # fmt: skip
    vectors = np.array([[1, 0], [0.8, 0.6], [0, 1], [-1, 0]], dtype=np.float32)
    found = find_next_clusters(clusters, Vectors(["Q1", "Q2", "Q3", "Q4"], vectors, {}))
    # means: 5 (0.9, 0.3), 7 (0, 1), 9 (-1, 0); Q5 has no vector
    assert found == {"Q1": 7, "Q2": 7, "Q3": 5, "Q4": 7}


def test_one_cluster_has_no_next() -> None:
    clusters = pd.DataFrame({"class_id": ["Q1"], "instance_of": ["a"], "cluster": [0]})
    assert find_next_clusters(clusters, Vectors(["Q1"], np.ones((1, 1), np.float32), {})) == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(scheme: str) -> None:
    named = colours(scheme)
    statuses = ("open", "decided", "unsure", "stale", "dropped")
    pairs = [("ink", behind) for behind in ("card", "page", "wash", "tint", *statuses)]
    pairs += [("muted", b) for b in ("card", "page", "wash")]
    pairs += [("accent", "card"), ("accent-ink", "accent")]
    for ink, behind in pairs:
        assert contrast(named[ink], named[behind]) >= 4.5, f"{ink} on {behind}"
    for status in statuses:
        assert contrast(named[f"{status}-dot"], named["card"]) >= 2.9, status


# The page in a browser


class Curator:
    """A person at a browser that asks nobody for anything and complains of nothing."""

    def __init__(self, browser: Any, page: Path, **facts: Any) -> None:
        facts = {"viewport": {"width": 1280, "height": 900}} | facts
        self.tab = browser.new_context(reduced_motion="reduce", **facts)
        self.address, self.asked, self.said = page.resolve().as_uri(), [], list[str]()
        self.open()

    def open(self) -> None:
        self.view = self.tab.new_page()
        self.view.on("request", lambda request: self.asked.append(request.url))
        self.view.on("console", lambda message: self.said.append(message.text))
        self.view.on("pageerror", lambda error: self.said.append(str(error)))
        self.view.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.view.goto(self.address)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.view.keyboard.press(key)

    def type(self, text: str) -> None:
        self.view.keyboard.type(text)

    def text(self, selector: str) -> str:
        return " ".join(self.view.inner_text(selector).split())

    def load(self, address: str = "") -> None:
        """Load another page or this one; again if Chromium gives it an empty store.

        It does so about once in 40 times, for as long as the page is open.
        """
        kept = self.view.evaluate("localStorage.length")
        for _ in range(5):
            self.view.goto(address) if address else self.view.reload()
            if self.view.evaluate("localStorage.length") >= kept:
                break

    def listed(self) -> list[str]:
        return [" ".join(t.split()) for t in self.view.locator(".row .what b").all_inner_texts()]

    def download(self) -> bytes:
        with self.view.expect_download() as found:
            self.view.click("#save")
        assert found.value.suggested_filename == "review.csv"
        self.press("Escape")
        return Path(found.value.path()).read_bytes()

    def decisions(self) -> dict[str, list[str]]:
        """Key -> the four editable cells, of the file that the page saves."""
        text = self.download().decode("utf-8-sig")
        rows = csv.DictReader(io.StringIO(text, newline=""))
        names = ("decision", "supercategory", "kind", "note")
        return {row["key"]: [row[name] for name in names] for row in rows}

    def was_quiet(self) -> bool:
        asked = {url for url in self.asked if not url.startswith(("data:", "blob:"))}
        return asked == {self.address} and self.said == []


Visit = Callable[..., Curator]


@pytest.fixture
def visit(chromium: Any) -> Iterator[Visit]:
    """Opens a page for a person, who must have been quiet at the end of the test."""
    people = list[Curator]()

    def visit(page: Path, **facts: Any) -> Curator:
        people.append(Curator(chromium, page, **facts))
        return people[-1]

    yield visit
    for person in people:
        assert person.was_quiet(), (person.asked, person.said)


@pytest.fixture
def curator(visit: Visit, tables: dict[str, Any], tmp_path: Path) -> Curator:
    return visit(write_page(tables, tmp_path))


def test_without_edits_the_download_is_the_sheet_byte_for_byte(
    curator: Curator, tables: dict[str, Any], tmp_path: Path
) -> None:
    assert curator.download() == csv_of(tables, tmp_path)


def test_labels_are_shown_as_text(curator: Curator) -> None:
    assert curator.listed()[1:4] == ["=1+1", EVIL, 'the "old", église']
    curator.press("j", "j")
    assert curator.text("#panel h2") == EVIL


def test_each_key_does_its_deed_and_goes_on_to_the_next_open_value(curator: Curator) -> None:
    curator.press("K")  # lake, as suggested
    assert curator.text("#panel h2") == "=1+1"
    curator.press("m")
    curator.type("cas")
    curator.press("Enter", "d", "u")
    found = curator.decisions()
    assert found["Q1"] == ["keep", "lake", "natural", ""]
    assert found["Q2"] == ["move", "castle / fort", "human-made", ""]
    assert found["Q3"] == ["drop", "", "", ""]
    assert found["Q4"] == ["unsure", "", "", ""]
    assert found["Q5"] == ["keep", "lake", "natural", ""]


def test_only_the_edited_cells_of_the_file_change(
    curator: Curator, tables: dict[str, Any], tmp_path: Path
) -> None:
    before = csv_of(tables, tmp_path).split(b"\r\n")
    curator.press("j", "d")
    after = curator.download().split(b"\r\n")
    changed = [i for i, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
    assert changed == [2] and after[2] == b"drop" + before[2]


def test_j_and_k_walk_through_the_list(curator: Curator) -> None:
    curator.press("j", "j", "j", "k")
    assert curator.text(".row[aria-selected=true] b") == EVIL
    curator.press("k", "k", "k", "k")
    assert curator.text(".row[aria-selected=true] b") == "lake"


def test_keep_without_a_suggestion_asks_for_the_supercategory(curator: Curator) -> None:
    curator.press("j", "j", "K")
    assert curator.view.evaluate("document.activeElement.id") == "chooser"
    curator.type("ch")
    curator.press("Enter")
    assert curator.decisions()["Q3"] == ["keep", "church", "human-made", ""]


def test_enter_takes_no_supercategory_by_the_alphabet(curator: Curator) -> None:
    curator.press("j", "j", "K", "Enter")
    assert curator.decisions()["Q3"] == ["", "", "", ""]
    curator.view.click("#chooser")
    curator.press("ArrowDown", "Enter")
    assert curator.decisions()["Q3"] == ["move", "castle / fort", "human-made", ""]


def test_z_undoes_step_by_step_and_x_takes_one_row_back(curator: Curator) -> None:
    curator.press("K", "d", "z")
    assert curator.decisions()["Q2"] == ["", "", "", ""]
    assert curator.decisions()["Q1"] == ["keep", "lake", "natural", ""]
    curator.press("k", "x")
    assert curator.decisions()["Q1"] == ["", "", "", ""]


def test_a_decided_value_suggests_its_supercategory_for_its_cluster(curator: Curator) -> None:
    assert "church ?" in curator.text("#row-3")
    curator.press("j", "j", "K")  # no value of this cluster is decided yet, so it asks
    curator.type("castle")
    curator.press("Enter")
    assert "church ?" in curator.text("#row-3")  # the sheet's own suggestion stays
    assert "lake ?" in curator.text("#row-1")  # pond is decided as one in that cluster


def test_shift_a_keeps_all_open_values_of_the_cluster_in_one_step(curator: Curator) -> None:
    curator.press("A")
    found = curator.decisions()
    assert found["Q1"] == found["Q2"] == ["keep", "lake", "natural", ""]
    assert found["Q7"] == ["keep", "lake", "natural", ""]
    curator.press("z")
    found = curator.decisions()
    assert found["Q1"] == found["Q2"] == ["", "", "", ""]


def test_shift_a_leaves_values_that_have_the_name_of_another_supercategory(
    curator: Curator,
) -> None:
    curator.view.click("#row-1")  # =1+1, in the cluster of lake
    curator.press("m")
    curator.type("castle")
    curator.press("Enter")
    curator.view.click("#row-1")
    assert "open values" not in curator.text("#panel")
    curator.press("A")
    assert curator.decisions()["Q1"] == ["", "", "", ""]


def test_a_note_is_guarded_and_makes_an_open_value_unsure(curator: Curator) -> None:
    curator.press("n")
    curator.type("=SUM(1)  or so")
    curator.press("Escape")
    assert curator.decisions()["Q1"] == ["unsure", "", "", "'=SUM(1) or so"]
    curator.press("z")
    assert curator.decisions()["Q1"] == ["", "", "", ""]


def test_a_stale_decision_said_again_is_news(curator: Curator) -> None:
    assert curator.text("#row-6 .dot + .what") == "tarn Place 0"
    curator.view.click("#row-6")
    assert "has changed" in curator.text(".advice")
    curator.press("K")
    assert curator.decisions()["Q7"] == ["keep", "lake", "natural", "still so"]


def test_a_decision_without_a_value_is_shown_and_kept(
    visit: Visit, tables: dict[str, Any], tmp_path: Path
) -> None:
    gone = {**tables["sheet"].iloc[6].to_dict(), "key": "Q99", "instance_of": "", "cluster": -1,
            "supercategory": "inns", "kind": "", "landmarks": 0, "images": 0}  # fmt: skip
    tables["sheet"] = pd.concat([tables["sheet"], table_of("review", [gone])], ignore_index=True)
    person = visit(write_page(tables, tmp_path))
    person.view.click("#row-7")
    assert person.text("#panel h2") == "Q99" and person.text("#panel .pill") == "stale"
    assert "No landmark carries this value any more" in person.text(".advice")
    assert person.decisions()["Q99"] == ["keep", "inns", "", ""]
    person.press("u")  # the supercategory is in no taxonomy any more, so it cannot be said again
    assert person.decisions()["Q99"] == ["unsure", "", "", ""]


def taxonomy_edits(curator: Curator) -> list[list[str]]:
    """Action, supercategory, into, kind, definition of the file of edits that the page saves."""
    curator.view.click("#save")
    with curator.view.expect_download() as found:
        curator.view.click("text=Download review_taxonomy.csv")
    assert "--apply review.csv review_taxonomy.csv" in curator.text("#saved pre")
    assert "null" not in curator.text("#saved")
    curator.press("Escape")
    text = Path(found.value.path()).read_bytes().decode("utf-8-sig")
    rows = csv.DictReader(io.StringIO(text, newline=""))
    names = ("action", "supercategory", "into", "kind", "definition")
    return [[row[name] for name in names] for row in rows]


def test_a_new_supercategory_is_made_from_the_chooser_and_taken(curator: Curator) -> None:
    curator.press("m")
    curator.type("=pier")
    curator.press("ArrowUp", "Enter")
    assert curator.text("#taxonomy-title") == "New supercategory"
    curator.press("Enter")
    assert curator.text("#taxonomy .fault") == "Choose a kind."
    curator.view.select_option("#edit-kind", "human-made")
    curator.view.fill("#edit-definition", "on posts, at a shore")
    curator.view.click("#taxonomy >> text=/^Add$/")
    assert curator.decisions()["Q1"] == ["move", "'=pier", "human-made", ""]
    expected = [["add", "'=pier", "", "human-made", "on posts, at a shore"]]
    assert taxonomy_edits(curator) == expected
    curator.load()
    assert curator.decisions()["Q1"] == ["move", "'=pier", "human-made", ""]
    assert taxonomy_edits(curator) == expected


@pytest.mark.parametrize(
    ("levels", "kind"),
    [(("group",), ""), (("section", "aisle", "shelf"), "food > bread")],
)
def test_the_first_supercategory_of_other_levels_is_named_on_the_page(
    visit: Visit, tables: dict[str, Any], tmp_path: Path, levels: tuple[str, ...], kind: str
) -> None:
    tables["taxonomy"] = tables["taxonomy"].iloc[:0]
    tables["sheet"] = tables["sheet"].assign(decision="", supercategory="", kind="", suggestion="")
    curator = visit(write_page({**tables, "levels": levels}, tmp_path))
    hint = curator.view.get_attribute("#chooser", "placeholder")
    assert hint == "Type the name of the first supercategory"
    curator.press("m")
    curator.type("rolls")
    curator.press("Enter")
    assert curator.text("#taxonomy-title") == "New supercategory"
    assert curator.view.locator("#edit-kind").count() == bool(kind)
    if kind:
        curator.view.fill("#edit-kind", "food")
        curator.press("Enter")
        expected = "Write section > aisle, as in the levels of the pipeline."
        assert curator.text("#taxonomy .fault") == expected
        curator.view.fill("#edit-kind", kind)
    curator.view.click("#taxonomy >> text=/^Add$/")
    assert curator.decisions()["Q1"] == ["move", "rolls", kind, ""]
    assert taxonomy_edits(curator) == [["add", "rolls", "", kind, ""]]
    assert curator.view.get_attribute("#chooser", "placeholder") == "Type to choose one of 1"


def change(curator: Curator, action: str, name: str, into: str = "") -> None:
    curator.view.click("#taxonomy-list")
    group = curator.view.get_by_role("group", name=name, exact=True)
    group.get_by_role("button", name=action, exact=True).click()
    if into:
        curator.view.fill("#edit-name", into)


def test_values_follow_a_rename_on_the_page_and_its_undo(curator: Curator) -> None:
    curator.press("K")
    change(curator, "rename", "lake", "waters")
    curator.press("Enter", "Escape")
    assert curator.decisions()["Q1"] == ["keep", "waters", "natural", ""]
    assert curator.decisions()["Q5"] == ["keep", "lake", "natural", ""]  # a row without an edit
    assert curator.view.locator(".row .fate", has_text="waters").count() == 4  # one is suggested
    assert taxonomy_edits(curator) == [["rename", "lake", "waters", "", ""]]
    curator.view.click("#taxonomy-list")
    curator.view.click("text=Take back the last edit")
    curator.press("Escape")
    assert curator.decisions()["Q1"] == ["keep", "lake", "natural", ""]
    assert curator.view.locator(".row .fate", has_text="waters").count() == 0


def test_a_split_on_the_page_asks_which_values_go(curator: Curator) -> None:
    change(curator, "split", "lake", "pond")
    assert curator.view.locator("#taxonomy fieldset label").all_inner_texts() == [" pond", " tarn"]
    assert "null" not in curator.text("#taxonomy")
    curator.view.check("#taxonomy label:has-text('pond') input[type=checkbox]")
    curator.press("Escape")
    change(curator, "split", "lake", "pond")
    curator.view.check("#taxonomy fieldset label:has-text('pond') input")
    curator.view.click("#taxonomy button.primary >> text=Split")
    curator.press("Escape")
    found = curator.decisions()
    assert (found["Q5"][:2], found["Q7"][:2]) == (["keep", "pond"], ["keep", "lake"])
    assert taxonomy_edits(curator) == [["split", "lake", "pond", "", ""]]


@pytest.mark.parametrize(
    ("action", "into", "said"),
    [
        ("rename", "Church", "church is there already."),
        ("merge", "church", "lake is natural, church is human-made."),
        ("merge", "chruch", "chruch is not in the taxonomy."),
        ("remove", "", "In use by 2 values; merge it into another one."),
    ],
)
def test_a_faulty_edit_of_the_taxonomy_is_named_in_the_dialog(
    curator: Curator, action: str, into: str, said: str
) -> None:
    change(curator, action, "lake", into)
    curator.view.click("#taxonomy form ~ button, #taxonomy > button.primary")
    assert curator.text("#taxonomy .fault") == said


def test_edits_outlive_the_page(curator: Curator) -> None:
    curator.press("K", "d")
    curator.view.close()
    curator.open()
    assert curator.text("#edited") == "2"
    assert curator.decisions()["Q1"] == ["keep", "lake", "natural", ""]


def test_z_undoes_edits_from_before_a_reload_the_last_one_first(curator: Curator) -> None:
    curator.press("K", "d")
    curator.load()
    curator.press("z")
    assert curator.decisions()["Q1"] == ["keep", "lake", "natural", ""]
    assert curator.decisions()["Q2"] == ["", "", "", ""]
    curator.press("z")
    assert curator.view.is_hidden("#edited") and curator.view.is_disabled("#undo")


def test_a_reload_keeps_the_chosen_value(curator: Curator) -> None:
    curator.press("j", "j")
    chosen = curator.text("#panel .label")
    assert chosen != curator.listed()[0]
    curator.load()
    assert curator.text("#panel .label") == chosen


def test_edits_of_an_earlier_sheet_are_offered_and_taken_over(
    curator: Curator, tables: dict[str, Any], tmp_path: Path
) -> None:
    curator.press("K", "d")
    fewer = tables["sheet"].iloc[1:]  # lake is gone, so the sheet is another one
    write_page({**tables, "sheet": fewer}, tmp_path)
    curator.open()
    assert "keeps 1 edit made on an earlier version" in curator.text("#banner")
    curator.view.click("text=Take over")
    assert curator.decisions()["Q2"] == ["drop", "", "", ""]
    assert curator.view.is_hidden("#banner")


def test_an_edit_that_is_taken_over_keeps_the_base_that_it_was_made_from(
    curator: Curator, tables: dict[str, Any], tmp_path: Path
) -> None:
    curator.press("K", "d")
    write_page({**tables, "sheet": tables["sheet"].assign(base="newer")}, tmp_path)
    curator.open()
    curator.view.click("text=Take over")
    rows = csv.DictReader(io.StringIO(curator.download().decode("utf-8-sig"), newline=""))
    assert [row["base"] for row in rows] == ["", ""] + ["newer"] * 5


def name(curator: Curator, who: str) -> None:
    curator.view.click("#who")
    curator.view.fill("#name", who)
    curator.press("Enter", "Escape")


def test_edits_belong_to_the_sheet_and_the_person_not_to_the_folder(
    curator: Curator, tables: dict[str, Any], tmp_path: Path
) -> None:
    curator.press("K", "d")
    name(curator, "Ann")  # the edits from before are hers
    assert curator.text("#who") == "Ann" and curator.text("#edited") == "2"
    (tmp_path / "theirs").mkdir()
    copy = shutil.copy(tmp_path / "review.html", tmp_path / "theirs" / "review.html")
    curator.load(copy.as_uri())
    assert curator.text("#edited") == "2"
    name(curator, "Ben")
    assert curator.view.is_hidden("#edited") and curator.view.is_hidden("#banner")
    curator.press("u")
    name(curator, "Ann")
    assert curator.decisions()["Q1"] == ["keep", "lake", "natural", ""]
    other = write_page({**tables, "sheet": tables["sheet"].iloc[1:]}, tmp_path, title="Another")
    shutil.copy(other, copy)
    curator.load()  # the sheet of another pipeline, whose page has the same name
    assert curator.view.is_hidden("#edited") and curator.view.is_hidden("#banner")
    curator.asked[:] = [curator.address]


def test_edits_of_supercategories_belong_to_the_person(curator: Curator) -> None:
    def names() -> list[str]:
        return curator.view.locator("#by-supercategory option").all_inner_texts()[2:]

    change(curator, "rename", "lake", "waters")
    curator.press("Enter", "Escape", "K")
    name(curator, "Ann")  # those from before are hers
    assert "waters" in names() and curator.decisions()["Q1"][1] == "waters"
    name(curator, "Ben")
    assert "waters" not in names() and "lake" in names()
    assert curator.view.is_hidden("#edited")
    curator.load()
    assert "waters" not in names()
    name(curator, "Ann")
    assert "waters" in names() and curator.decisions()["Q1"][1] == "waters"


def test_the_kept_edits_are_those_of_the_sheet_whatever_command_applies_it(
    tables: dict[str, Any], tmp_path: Path
) -> None:
    shown = {**tables, "options": ReviewOptions(), "source": tmp_path / "source", "title": "x"}
    one, copy, other = (
        facts_of(render_page(**shown, name=Path(file).stem, command=f"hgld review {file} --apply"))
        for file in ("here/x.toml", "there/x.toml", "here/y.toml")
    )
    assert (one["series"], one["hash"]) == (copy["series"], copy["hash"])
    assert other["series"] != one["series"]  # another pipeline of that title


def test_a_name_is_asked_once_and_signs_the_command(curator: Curator) -> None:
    curator.press("d")
    curator.view.click("#save")
    assert curator.text("#saved pre") == "hgld review seven.toml --apply review.csv"
    curator.view.fill("#name", 'Ann "$(x)" Lee')
    curator.press("Tab")
    signed = 'hgld review seven.toml --apply review.csv --set review.who="Ann (x) Lee"'
    assert curator.text("#saved pre") == signed
    curator.load()
    curator.view.click("#save")
    assert curator.text("#saved pre") == signed and curator.view.locator("#name").count() == 0


def test_the_history_of_a_value_names_who_decided_what_when_and_why(
    visit: Visit, tables: dict[str, Any], tmp_path: Path
) -> None:
    made = [
        {"key": "Q5", "key_type": "qid", "decision": "drop", "who": "ann", "when": "2026-01-01"},
        {"key": "Q5", "key_type": "qid", "decision": "keep", "supercategory": "lake", "who": "ben",
         "when": "2026-02-02", "why": "small lakes, too"},
    ]  # fmt: skip
    empty = dict.fromkeys(columns_of("decisions"), "")
    tables["decisions"] = pd.DataFrame([empty | row for row in made])
    person = visit(write_page(tables, tmp_path))
    person.view.click("#row-4")
    lines = person.view.locator(".history li").all_inner_texts()
    assert [" ".join(line.split()) for line in lines] == [
        "keep lake ben, 2026-02-02 small lakes, too", "drop ann, 2026-01-01",
    ]  # fmt: skip


def test_what_the_browser_kept_is_not_trusted(curator: Curator) -> None:
    empty = {"supercategory": "", "kind": "", "note": ""}
    kept = [
        ["Q1", {"decision": "keep", "supercategory": "no such", "kind": "x", "note": ""}],
        ["Q2", {"decision": "explode", **empty}],
        ["Q9", {"decision": "drop", **empty}],
        "Q3",
    ]
    store = "Object.keys(localStorage)[0]"
    curator.press("d")
    curator.view.evaluate(f"text => localStorage.setItem({store}, text)", json.dumps(kept))
    curator.view.close()
    curator.open()
    assert {key: cells[0] for key, cells in curator.decisions().items() if cells[0]} == {
        "Q5": "keep", "Q6": "drop", "Q7": "keep",
    }  # fmt: skip


def test_a_browser_that_keeps_nothing_says_so_and_works(curator: Curator) -> None:
    refuse = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('no'); } })"
    curator.tab.add_init_script(refuse)
    curator.open()
    assert "keeps nothing" in curator.text("#banner")
    curator.press("K")
    assert curator.decisions()["Q1"] == ["keep", "lake", "natural", ""]


def test_search_finds_labels_without_their_accents_and_filters_narrow(curator: Curator) -> None:
    curator.press("/")
    curator.type("eglise")
    assert curator.listed() == ['the "old", église']
    curator.press("Escape", "Escape")
    assert len(curator.listed()) == 7
    curator.view.click(".chip:has-text('decided')")
    assert curator.listed() == ["pond"]
    curator.view.click(".chip:has-text('All')")
    curator.view.select_option("#by-supercategory", "lake")
    assert curator.listed() == ["lake", "=1+1", "pond", "tarn"]
    assert curator.text("#found") == "4 values of 7, 62.7 % of the images"  # 135 of 215


def test_groups_are_clusters_with_their_counts_and_neighbours(curator: Curator) -> None:
    curator.view.select_option("#groups", "cluster")
    heads = curator.view.locator(".head").all_inner_texts()
    assert [" ".join(head.split()) for head in heads] == [
        "c0 4 values · 135 images · near c1, c2",
        "c1 2 values · 70 images · near c0, c2",
        "c2 1 value · 10 images · near c0, c1",
    ]


def test_progress_is_counted_in_images(curator: Curator) -> None:
    assert curator.text("#share") == "16.2 % of images, 18.1 % of landmarks"  # 35 of 215
    assert curator.text("#curve-words") == (
        "3 values of 7 decided, 16.2 % of the images. The next 2 values would bring it to 50 %."
    )
    curator.press("K")
    assert curator.text("#share") == "44.1 % of images, 45.4 % of landmarks"  # 95 of 215


def test_the_page_counts_landmarks_as_the_gate_does(curator: Curator) -> None:
    # 2 + 1 + 1 of 22; a stale decision counts
    words = "once 100 % of the 22 landmarks are decided, with all their values; 18 are open."
    assert words in curator.text("#gate")


def test_a_landmark_counts_as_decided_with_all_its_values(
    visit: Visit, tables: dict[str, Any], tmp_path: Path
) -> None:
    values = tables["landmark_values"]
    both = values[values["landmark_id"] == 20].assign(class_id="Q1", instance_of="lake")
    tables["landmark_values"] = pd.concat([values, both], ignore_index=True)
    person = visit(write_page(tables, tmp_path))
    assert "19 are open" in person.text("#gate")  # of landmark 20, thing is dropped and lake open
    person.press("K")
    assert "12 are open" in person.text("#gate")


def test_the_map_is_sized_by_images_and_coloured_by_status(curator: Curator) -> None:
    areas = curator.view.evaluate(
        "[...document.querySelectorAll('#map rect.value')].map(box => [+box.id.slice(4),"
        " box.width.baseVal.value * box.height.baseVal.value, box.classList[1]])"
    )
    status = {number: name for number, _, name in areas}
    assert status == {
        0: "open", 1: "open", 2: "open", 3: "open", 4: "decided", 5: "dropped", 6: "stale",
    }  # fmt: skip
    area = {number: size for number, size, _ in areas}
    assert area[0] > area[1] > area[4] > area[6]
    curator.view.click("#box-4")
    assert curator.text("#panel h2") == "pond"


CENTRES = """[...document.querySelectorAll("#map [role=option]")].map((box) => {
  const { x, y, width, height } = box.getBoundingClientRect();
  return [+box.id.slice(4), x + width / 2, y + height / 2];
})"""


def chosen_box(curator: Curator) -> int:
    return int(curator.view.get_attribute("#map", "aria-activedescendant").removeprefix("box-"))


def test_arrows_lead_to_every_value_of_the_map(curator: Curator) -> None:
    centres = {n: (x, y) for n, x, y in curator.view.evaluate(CENTRES)}
    ways = {n: set[int]() for n in centres}
    for start in centres:
        for key, axis, sign in (("Right", 0, 1), ("Left", 0, -1), ("Down", 1, 1), ("Up", 1, -1)):
            curator.view.click(f"#row-{start}")
            curator.view.focus("#map")
            curator.press(f"Arrow{key}")
            end = chosen_box(curator)
            assert end == start or sign * (centres[end][axis] - centres[start][axis]) > 0
            ways[start].add(end)
    reached, waiting = {0}, [0]
    while waiting:
        more = ways[waiting.pop()] - reached
        reached |= more
        waiting += more
    assert reached == set(range(len(VALUES)))


def test_enter_opens_the_value_that_the_map_has_named(curator: Curator) -> None:
    curator.view.focus("#map")
    curator.press("ArrowRight", "ArrowDown")
    number = chosen_box(curator)
    told = curator.view.get_attribute(f"#box-{number}", "aria-label")
    curator.press("Enter")
    assert told.startswith(curator.text("#panel h2") + ", ") and told.endswith(" images")
    assert curator.view.get_attribute(".row[aria-selected=true]", "id") == f"row-{number}"
    assert curator.view.evaluate("document.activeElement.id") == "list"


def test_decisions_leave_the_focus_on_the_map(curator: Curator) -> None:
    curator.view.focus("#map")
    curator.press("K", "d")
    curator.view.wait_for_selector("#map rect.value.dropped#box-1")
    assert curator.view.evaluate("document.activeElement.id") == "map"


def test_the_keyboard_brings_list_and_panel_into_sight(curator: Curator) -> None:
    top = "document.getElementById('work').getBoundingClientRect().top"
    curator.press("o")
    assert curator.view.evaluate(top) < 0
    curator.press("j")
    assert curator.view.evaluate(top) >= 56  # below the bar


def test_photos_stand_with_their_credit(curator: Curator) -> None:
    captions = curator.view.locator(".photos figcaption").all_inner_texts()
    assert " ".join(captions[0].split()) == "Place 0 by Author 0 CC BY-SA 3.0"
    assert curator.view.evaluate("[...document.images].every(image => image.naturalWidth > 0)")


NAMELESS = """() => {
  const parts = "button, input, select, textarea, img, [role=img], [role=listbox]";
  const named = (part) => part.textContent.trim() || part.getAttribute("aria-label") || part.alt
    || part.labels?.length;
  return [...document.querySelectorAll(parts)].filter((p) => !named(p)).map((p) => p.outerHTML);
}"""


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "light"), (420, "dark")])
def test_everything_fits_and_has_a_name(
    visit: Visit, tables: dict[str, Any], tmp_path: Path, width: int, scheme: str
) -> None:
    size = {"width": width, "height": 860}
    person = visit(write_page(tables, tmp_path), viewport=size, color_scheme=scheme)
    person.view.click("#row-0")
    assert person.view.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert person.view.evaluate(NAMELESS) == []
    if width < 900:  # the panel has come up over the list, the decision within reach
        box = person.view.locator(".deed").first.bounding_box()
        assert box["y"] + box["height"] <= 860


def test_5700_values_are_a_page_in_which_only_what_is_in_sight_is_drawn(
    visit: Visit, tmp_path: Path
) -> None:
    tables = make_tables(5700, tmp_path)
    page = tmp_path / "review.html"
    page.write_text(make_page(tables, tmp_path, page_photos=0), encoding="utf-8")
    person = visit(page)
    assert person.text("#found").startswith("5,700 values")
    assert person.view.locator(".row").count() < 40
    person.view.focus("#list")
    person.press("End", "d", "Home")
    assert person.view.get_attribute(".row[aria-selected=true]", "id") == "row-0"
    found = person.decisions()
    assert len(found) == 5700 and found["Q5700"][0] == "drop"


# The page on the road


def hgld(*words: str) -> subprocess.CompletedProcess[str]:
    return hgld_without_date(*words, "--now", "2026-01-01")


def hgld_without_date(*words: str) -> subprocess.CompletedProcess[str]:
    return warm.hgld(Path(), *words)


@dataclass(frozen=True)
class Road:
    """A pipeline on the made world that waits for a review; nothing is decided."""

    folder: Path

    @property
    def labels(self) -> Path:
        return self.folder / "labels"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def page(self) -> Path:
        return self.work / "review.html"

    @property
    def at(self) -> tuple[str, ...]:
        return (str(self.folder / "toy.toml"), "--work", str(self.work))


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Road:
    made = Road(tmp_path_factory.mktemp("road"))
    shutil.copytree("labels/toy", made.labels)
    decisions = made.labels / "decisions.csv"
    header = decisions.read_text("utf-8").splitlines()[0]
    decisions.write_text(f"{header}\n", encoding="utf-8")
    text = Path("pipelines/quickstart.toml").read_text("utf-8")
    (made.folder / "toy.toml").write_text(text.replace("../labels/toy", "labels"), "utf-8")
    assert hgld("run", *made.at).returncode == 20
    done = hgld("review", *made.at, "--html")
    assert done.returncode == 20 and done.stdout == f"page: {made.page}\n", done.stderr
    return made


def test_the_neighbours_in_the_page_are_those_of_the_clusters(road: Road) -> None:
    summary = pd.read_csv(road.work / "cluster_summary.csv", dtype=str)
    clusters = facts_of(road.page.read_text("utf-8"))["clusters"]
    near = {number: "; ".join(cluster["near"]) for number, cluster in clusters.items()}
    assert near == dict(zip(summary["cluster"], summary["nearest"], strict=True))


def test_page_run_and_status_agree_on_what_is_open(visit: Visit, road: Road) -> None:
    run = hgld("run", *road.at).stderr
    facts = "(0.0 % of 67 decided, with 0.0 % of 629 images; review.min_coverage is 100.0 %)"
    assert f"14 values of 67 landmarks are open {facts}" in run
    lines = hgld_without_date("status", *road.at).stdout.splitlines()
    assert f"review    waiting  14 values of 67 landmarks are open {facts}" in lines
    person = visit(road.page)
    assert person.text("#share") == "0.0 % of images, 0.0 % of landmarks"
    gate = person.text("#gate")
    assert "of the 67 landmarks are decided, with all their values; 67 are open" in gate


def test_decisions_made_in_the_page_are_applied_by_the_command_that_it_shows(
    visit: Visit, road: Road, tmp_path: Path
) -> None:
    person = visit(road.page)
    first = person.text("#panel h2")
    person.press("m")
    person.type("windm")
    person.press("Enter", "d")
    sheet = tmp_path / "review.csv"
    sheet.write_bytes(person.download())
    command = person.view.evaluate("document.querySelector('#saved pre').textContent")
    assert command == f"hgld review {' '.join(road.at)} --apply review.csv"
    done = hgld(*command.split()[1:-1], str(sheet), "--set", 'review.who="Ann"')
    assert done.returncode == 20 and "2 decisions added" in done.stderr, done.stderr
    labels = pd.read_csv(road.work / "clusters.csv").set_index("class_id")["instance_of"]
    rows = pd.read_csv(road.labels / "decisions.csv", keep_default_na=False).to_dict("records")
    said = {row["decision"]: row for row in rows}
    assert len(rows) == 2 and {row["who"] for row in rows} == {"Ann"}
    assert (said["move"]["supercategory"], said["move"]["kind"]) == ("windmill", "human-made")
    assert labels[said["move"]["key"]] == first and said["drop"]["when"] == "2026-01-01"


def test_a_block_goes_with_the_sheet_as_an_entry_of_its_own(
    visit: Visit, road: Road, tmp_path: Path
) -> None:
    fresh = Road(Path(shutil.copytree(road.folder, tmp_path / "road")))
    hgld("review", *fresh.at, "--html", "--set", "review.sure=0.2")
    person = visit(fresh.page)
    person.press("d")
    person.view.wait_for_selector("#sure-ones:visible")
    person.press("S", "Enter")
    sheet = tmp_path / "review.csv"
    sheet.write_bytes(person.download())
    done = hgld("review", *fresh.at, "--apply", str(sheet), "--set", 'review.who="Ann"')
    assert done.returncode in (0, 20), done.stderr
    log = json.loads(hgld_without_date("reviews", "log", *fresh.at, "--json").stdout)
    assert {"review.csv", "sure"} <= {entry["source"] for entry in log}
    (block,) = (entry for entry in log if entry["source"] == "sure")
    again = hgld("review", *fresh.at, "--apply", str(sheet), "--set", 'review.who="Ann"')
    assert "0 decisions added" in again.stderr, again.stderr
    text = sheet.read_text("utf-8-sig")
    sheet.write_text(text.replace(",sure ", ",surely ", 1), "utf-8")
    wrong = hgld("review", *fresh.at, "--apply", str(sheet), "--set", 'review.who="Ann"')
    assert wrong.returncode == 3 and "column block: found 'surely " in wrong.stderr
    back = hgld("reviews", "undo", *fresh.at, "--apply", str(block["number"]))
    assert back.returncode == 0, back.stderr


def terms_of(page: Path) -> set[str]:
    """The licences under which photos are shown."""
    photos = facts_of(page.read_text("utf-8"))["photos"].values()
    return {photo["terms"] for some in photos for photo in some}


def test_only_photos_that_may_be_exported_are_shown(road: Road) -> None:
    assert "licence unknown" not in terms_of(road.page) and len(terms_of(road.page)) > 2
    hgld("review", *road.at, "--html", "--set", 'export.licenses=["CC0 1.0"]')
    assert terms_of(road.page) == {"CC0 1.0"}
    images = pd.read_parquet(road.work / "images.parquet")
    removed = images[["image_id"]].assign(why="asked").sort_values("image_id")
    removed.to_csv(road.labels / "removals.csv", index=False, lineterminator="\n")
    hgld("review", *road.at, "--html")
    assert terms_of(road.page) == set()


def test_a_blind_page_shows_no_suggestion_and_saves_a_blind_copy(
    visit: Visit, road: Road, tmp_path: Path
) -> None:
    page = tmp_path / "ann.html"
    made = hgld_without_date("reviews", "blind", *road.at, "-o", str(page), "--seed", "1", "--html")
    assert made.returncode == 0 and "14 values to decide" in made.stderr, made.stderr
    sheet = tmp_path / "by_hand.csv"
    hgld_without_date(
        "reviews", "blind", *road.at, "-o", str(sheet), "--seed", "1", "--no-hints"
    )  # fmt: skip
    person = visit(page)
    assert person.text("#help h2") == "Who decides?"
    person.press("Escape")
    assert not [name for name in facts_of(page.read_text("utf-8"))["columns"] if "suggest" in name]
    assert person.view.locator(".row .fate:has-text('?')").count() == 0
    with person.view.expect_download() as found:
        person.view.click("#save")
    assert found.value.suggested_filename == "ann.csv"
    assert Path(found.value.path()).read_bytes() == sheet.read_bytes()
    person.press("Escape", "d", "K")  # K knows no place, so it asks
    person.type("lake")
    person.press("Enter")
    with person.view.expect_download() as found:
        person.view.click("#save")
    copy = pd.read_csv(found.value.path(), keep_default_na=False)
    assert [name for name in copy["decision"] if name] == ["drop", "keep"]
    command = person.view.evaluate("document.querySelector('#saved pre').textContent")
    assert command.startswith("hgld reviews agree ann.csv OTHER.csv --taxonomy ")


def test_a_comment_goes_with_the_sheet_into_the_thread(
    visit: Visit, road: Road, tmp_path: Path
) -> None:
    person = visit(road.page)
    person.press("c")
    person.type("a mine,  or =1+1?")
    person.load()
    assert person.view.input_value("#comment") == "a mine, or =1+1?"
    key = person.text(".facts a")
    sheet = tmp_path / "review.csv"
    sheet.write_bytes(person.download())
    for _ in range(2):  # applied twice, said once
        done = hgld("review", *road.at, "--apply", str(sheet), "--set", "review.who=Ann")
        assert done.returncode == 20, done.stderr
    rows = pd.read_csv(road.labels / "comments.csv").to_dict("records")
    assert rows == [{"key": key, "who": "Ann", "when": "2026-01-01", "text": "a mine, or =1+1?"}]
    ben = ("--set", "review.who=Ben")
    done = hgld("reviews", "comments", *road.at, key, "--add", "a quarry", *ben)
    assert done.stdout.splitlines() == [
        f"{key}  2026-01-01  Ann: a mine, or =1+1?", f"{key}  2026-01-01  Ben: a quarry",
    ]  # fmt: skip
    hgld("review", *road.at, "--html")
    person = visit(road.page)
    person.view.click(".chip:has-text('commented')")
    assert person.text("#found").startswith("1 value of 14")
    lines = person.view.locator(".part:has(#comment) li").all_inner_texts()
    assert [" ".join(line.split()) for line in lines] == [
        "Ann 2026-01-01 a mine, or =1+1?", "Ben 2026-01-01 a quarry",
    ]  # fmt: skip


def test_a_comment_names_its_value(road: Road) -> None:
    done = hgld("reviews", "comments", *road.at, "Q0", "--add", "well")
    assert done.returncode == 2 and "no value Q0 in clusters.csv" in done.stderr
    assert hgld("reviews", "comments", *road.at, "--add", "well").returncode == 2
