"""The review page by eye, by keyboard alone, and as a screen reader gets it."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hgld.artifacts import columns_of
from tests.hierarchy.test_review_page import Curator, Visit, tables, visit, write_page

pytestmark = pytest.mark.slow

__all__ = ["tables", "visit"]  # fixtures

LONG = "a label that somebody has made as long as a label in a wiki can get, " * 3
SCREENS = [(1440, 900), (1024, 768), (400, 800)]
NEEDED = (".label", ".photos", ".examples", ".advice", ".deed[name=unsure]", "#chooser")
CUT = """() => [...document.querySelectorAll("select")].filter((select) => {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = getComputedStyle(select).font;
  const text = select.selectedOptions[0].text;
  return pen.measureText(text).width > select.clientWidth - 30; // the arrow and its margins
}).map((select) => select.id)"""


@pytest.fixture(params=SCREENS, ids=str)
def person(request: Any, visit: Visit, tables: dict[str, Any], tmp_path: Path) -> Curator:
    """A curator with a screen of some size, who has opened the page and chosen a value."""
    tables["sheet"].loc[0, ["examples", "hint"]] = [f"Place 0; {LONG}; Near", f"natural: {LONG}"]
    tables["sheet"].loc[0, "instance_of"] = tables["clusters"].loc[0, "instance_of"] = LONG
    tables["landmarks"]["name"] += LONG
    width, height = request.param
    curator = visit(write_page(tables, tmp_path), viewport={"width": width, "height": height})
    curator.view.click("#row-0")
    return curator


def test_all_that_a_decision_needs_is_in_sight_without_scrolling(person: Curator) -> None:
    height = person.view.viewport_size["height"]
    for part in NEEDED:
        box = person.view.locator(part).first.bounding_box()
        assert box["y"] >= 56 and box["y"] + box["height"] <= height, part
    assert person.view.evaluate("scrollY") == 0
    assert person.view.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_conflict_is_settled_without_scrolling(
    visit: Visit, tables: dict[str, Any], tmp_path: Path
) -> None:
    told = ["conflict", "Place 0; Near; Far", "natural: lake"]
    tables["sheet"].loc[0, ["status", "examples", "hint"]] = told
    empty = dict.fromkeys(columns_of("decisions"), "")
    side = {"key": "Q1", "key_type": "qid", "decision": "drop", "when": "2026-01-01"}
    sides = [empty | side | {"who": who} for who in ("Ann of the quarry", "ben")]
    sides[1] |= {"decision": "keep", "supercategory": "castle / fort"}
    tables["decisions"] = pd.DataFrame(sides)
    curator = visit(write_page(tables, tmp_path), viewport={"width": 1024, "height": 680})
    curator.view.click("#row-0")
    assert curator.view.locator(".sides button").count() == 2
    for part in (".label", ".sides", ".photos", ".deed[name=unsure]", "#chooser"):
        box = curator.view.locator(part).first.bounding_box()
        assert box["y"] >= 56 and box["y"] + box["height"] <= 670, part


def test_the_supercategories_open_in_sight_beside_the_label(person: Curator) -> None:
    person.press("m")
    height = person.view.viewport_size["height"]
    options = person.view.locator("#options").bounding_box()
    label = person.view.locator(".label").bounding_box()
    field = person.view.locator("#chooser").bounding_box()
    assert options["y"] + options["height"] <= height and options["height"] >= 120
    assert label["y"] >= 56 and options["y"] >= label["y"] + label["height"]
    assert (
        options["y"] >= field["y"] + field["height"]
        or options["y"] + options["height"] <= field["y"]
    )


def test_no_choice_is_cut(person: Curator) -> None:
    assert person.view.evaluate(CUT) == []


@pytest.mark.parametrize("width", [400, 1440])
def test_a_long_name_without_blanks_breaks(
    width: int, visit: Visit, tables: dict[str, Any], tmp_path: Path
) -> None:
    tables["clusters"]["cluster_name"] = tables["taxonomy"].loc[0, "supercategory"] = "x" * 120
    view = visit(write_page(tables, tmp_path), viewport={"width": width, "height": 900}).view
    view.click("#row-0")
    view.keyboard.press("m")
    wide = "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"
    assert view.locator(".panel h3, #options li").count() > 3
    assert view.locator(".panel h3, #options li").evaluate_all(wide) == []


def test_curve_and_map_are_within_their_cards_on_paper(wide: Curator) -> None:
    wide.view.emulate_media(media="print")
    boxes = [wide.view.locator(part).bounding_box() for part in (".desk", ".overview")]
    assert boxes[0]["height"] < 200 and boxes[1]["y"] < 300  # no empty sheet before them
    inside = """([svg, card]) => [...svg.querySelectorAll("text, path, rect")].every(part =>
        part.getBoundingClientRect().bottom <= card.getBoundingClientRect().bottom)"""
    wide.view.evaluate("document.querySelector('.overview').style.width = '718px'")  # A4
    for name in ("#curve", "#map"):
        card = wide.view.locator(f".card:has({name})").element_handle()
        svg = wide.view.locator(f"{name} svg").element_handle()
        assert wide.view.evaluate(inside, [svg, card]), name


def test_a_button_goes_on_to_the_next_open_value_as_its_key_does(person: Curator) -> None:
    for name, then in (("keep", "=1+1"), ("drop", "<script>"), ("unsure", 'the "old", église')):
        person.view.click(f".deed[name={name}]")
        assert person.text("#panel h2").startswith(then)


def test_a_message_covers_neither_rows_nor_buttons(person: Curator) -> None:
    over = """() => {
      document.querySelector(".deed[name=drop]").click(); // and look at once: it is shown for 3 s
      const toast = document.querySelector(".toast.shown").getBoundingClientRect();
      const apart = (one) => one.right <= toast.left || one.left >= toast.right
        || one.bottom <= toast.top || one.top >= toast.bottom;
      const parts = [...document.querySelectorAll(".row, button, input, select")];
      return parts.filter((part) => !apart(part.getBoundingClientRect())).length;
    }"""
    assert person.view.evaluate(over) == 0


@pytest.mark.parametrize("width", [1440, 1024, 901, 761, 640, 400, 360, 320])
def test_the_parts_of_the_bar_stay_apart(wide: Curator, width: int) -> None:
    wide.press("d", "d", "d")
    wide.view.click("#who")
    wide.type("Somebody with a long name")
    wide.press("Enter")
    wide.view.set_viewport_size({"width": width, "height": 800})
    apart = """() => {
      const bar = document.querySelector(".bar");
      const parts = ["#share", "#who", "#undo", "#keys", "#save"];
      const boxes = parts.map((part) => bar.querySelector(part).getBoundingClientRect());
      const follow = boxes.slice(1).every((box, i) => box.left >= boxes[i].right);
      return follow && bar.scrollWidth <= innerWidth && boxes.every((box) => box.width > 30);
    }"""
    assert wide.view.evaluate(apart)


# As a screen reader gets it


@pytest.fixture
def wide(visit: Visit, tables: dict[str, Any], tmp_path: Path) -> Curator:
    return visit(write_page(tables, tmp_path), viewport={"width": 1440, "height": 900})


def tree_of(curator: Curator) -> list[dict[str, Any]]:
    """The nodes of Chromium's accessibility tree that a screen reader gets, in their order."""
    session = curator.tab.new_cdp_session(curator.view)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    by_id = {node["nodeId"]: node for node in nodes}
    found: list[dict[str, Any]] = []

    def walk(node: dict[str, Any], above: tuple[str, ...]) -> None:
        role = node.get("role", {}).get("value", "")
        if not node.get("ignored"):
            facts = {p["name"]: p["value"].get("value") for p in node.get("properties", ())}
            name = node.get("name", {}).get("value", "")
            found.append({"role": role, "name": name, "above": above, **facts})
            above = (*above, f"{role} {name}".strip())
        for child in node.get("childIds", ()):
            if child in by_id:
                walk(by_id[child], above)

    walk(nodes[0], ())
    return found


def named(tree: list[dict[str, Any]], role: str) -> list[str]:
    return [node["name"] for node in tree if node["role"] == role]


def test_landmarks_headings_and_controls_have_their_roles_and_names(wide: Curator) -> None:
    tree = tree_of(wide)
    roles = {node["role"] for node in tree}
    assert {"banner", "main", "search", "article", "contentinfo"} <= roles
    assert named(tree, "heading")[:3] == ["Review", "Seven values", "lake"]
    assert named(tree, "searchbox") == ["Search values"]
    assert named(tree, "combobox") == [
        "Supercategory", "Cluster", "Order", "Groups", "Supercategory",
    ]  # fmt: skip
    buttons = named(tree, "button")
    assert {"Undo", "Keys", "Keep", "Move", "Drop", "Unsure", "Next open"} <= set(buttons)
    unnamed = {"button", "link", "image", "textbox", "listbox", "option", "group", "figure"}
    assert [node for node in tree if node["role"] in unnamed and not node["name"]] == []


def test_the_list_names_each_value_its_status_and_its_place(wide: Curator) -> None:
    wide.press("j")
    options = [n for n in tree_of(wide) if n["role"] == "option" and "listbox Values" in n["above"]]
    assert options[0]["name"].split()[:3] == ["open", "lake", "Place"]
    assert [option.get("selected", False) for option in options[:3]] == [False, True, False]
    places = wide.view.evaluate("document.querySelector('#row-1').ariaPosInSet")
    sizes = wide.view.evaluate("document.querySelector('#row-1').ariaSetSize")
    assert (places, sizes) == ("2", "7")
    wide.view.select_option("#groups", "cluster")  # heads are no options
    assert wide.view.evaluate("document.querySelector('#row-3').ariaPosInSet") == "6"
    assert wide.view.evaluate("document.querySelector('#row-3').ariaSetSize") == "7"


def test_the_map_is_a_list_of_groups_of_values(wide: Curator) -> None:
    inside = [n for n in tree_of(wide) if any("listbox Treemap" in part for part in n["above"])]
    assert {node["role"] for node in inside} == {"group", "option"}
    lakes = [n["name"] for n in inside if n["role"] == "option" and n["above"][-1] == "group lake"]
    assert lakes == [
        "lake, open, lake, 60 images", "=1+1, open, lake, 50 images",
        "pond, decided, lake, 20 images", "tarn, stale, lake, 5 images",
    ]  # fmt: skip


def test_a_data_set_without_ids_or_kinds_is_not_said_to_lack_them(
    visit: Visit, tables: dict[str, Any], tmp_path: Path
) -> None:
    for name in ("sheet", "taxonomy"):
        tables[name]["kind"] = ""
    tables["sheet"]["key_type"] = "label"
    page = write_page(tables, tmp_path)
    page.write_text(page.read_text("utf-8").replace('"above":["kind"]', '"above":[]'), "utf-8")
    curator = visit(page)
    curator.view.click("#row-0")
    assert "no class id" not in curator.view.inner_text("#panel")
    label = curator.view.get_attribute("#map", "aria-label")
    assert "placed " in label and "no kind" not in label + curator.view.inner_text("#map")


# By keyboard alone


def tab_to(curator: Curator, selector: str) -> None:
    """Press the tabulator until an element has the focus."""
    for _ in range(80):
        if curator.view.evaluate("s => document.activeElement.matches(s)", selector):
            return
        curator.press("Tab")
    raise AssertionError(f"the tabulator does not reach {selector}")


def test_the_tabulator_reaches_every_part_in_the_order_of_the_page(wide: Curator) -> None:
    for part in (
        ".skip", "#keys", "#save", "#search", ".chip", "#by-supercategory", "#groups", "#list",
        ".deed[name=keep]", "#chooser", "#note", ".mates button", "#map",
    ):  # fmt: skip
        tab_to(wide, part)


def test_everything_is_done_by_keyboard_alone(wide: Curator) -> None:
    tab_to(wide, "#list")
    wide.press("K", "m")
    wide.type("cas")
    wide.press("Enter", "n")
    wide.type("which?")
    wide.press("Escape", "?")
    assert wide.view.is_visible("#help")
    wide.press("Escape", "o", "ArrowRight", "Escape", "/")
    wide.type("pond")
    wide.press("Enter", "d")
    found = wide.decisions()
    assert [found[key][:2] for key in ("Q1", "Q2", "Q3", "Q5")] == [
        ["keep", "lake"], ["move", "castle / fort"], ["unsure", ""], ["drop", ""],
    ]  # fmt: skip


def test_a_button_pressed_by_key_leaves_the_focus_where_work_goes_on(wide: Curator) -> None:
    tab_to(wide, ".deed[name=drop]")
    wide.press("Enter")
    assert wide.view.evaluate("document.activeElement.id") == "list"
    assert wide.text("#panel h2") == "=1+1"


# How long it takes


def test_the_time_left_is_assumed_until_the_person_has_a_pace(wide: Curator) -> None:
    assert wide.text("#left") == "4 values open: about 1 minute at 10 s each (assumed)"
    wide.press("d", "d", "d")
    assert "1 value open" in wide.text("#left") and "assumed" in wide.text("#left")
    wide.press("d", "d")  # the stale value, too
    assert wide.text("#left") == "Every value is decided."
    wide.press("u")
    assert "1 value open" in wide.text("#left") and "your pace" in wide.text("#left")


def test_an_id_or_an_address_of_wikidata_finds_its_value(wide: Curator) -> None:
    wide.view.fill("#search", "Q1")
    assert wide.listed() == ["lake"]
    wide.view.fill("#search", "https://www.wikidata.org/wiki/Q5")
    assert wide.listed() == ["pond"]
    wide.view.fill("#search", "q99")
    assert wide.listed() == []
