"""Sixty landmarks that meet everything a scrape can meet, each with what has to come of it.

What is expected is written down here by hand, beside the pages and items that lead to it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.mediawiki.fill import revision_of
from tests.mediawiki.world import World, is_a, year_value

__all__ = ["Cases", "all_cases"]

COMMONS = "http://commons.wikimedia.org/wiki/"
CLASSES = {"Q16970": "church building", "Q12280": "bridge", "Q23413": "castle", "Q8502": "mountain"}
CHURCH, BRIDGE, CASTLE, MOUNTAIN = CLASSES
WIKIMEDIA_CATEGORY = "Q4167836"

Row = dict[str, Any]


@dataclass
class Cases:
    """Landmarks, the wiki that they lead into, and the rows that a scrape has to end with."""

    world: World = field(default_factory=World)
    landmarks: list[Row] = field(default_factory=list)
    statements: list[Row] = field(default_factory=list)
    misses: list[Row] = field(default_factory=list)

    def add(self, url: str, outcome: "Found | str", split: str = "train") -> None:
        """A landmark by the end of its URL (or a whole one), with its item or its reason."""
        number = len(self.landmarks)
        key = {"split": split, "landmark_id": number}
        whole = url if url.startswith("http") or not url else COMMONS + url
        self.landmarks.append({**key, "name": f"Landmark {number}", "commons_url": whole})
        if isinstance(outcome, str):
            self.misses.append({**key, "reason": outcome})
            return
        self.statements += [{**key, **row} for row in outcome.rows()]

    def thing(self, item: str, *classes: str, **labels: str) -> "Found":
        """An item with a statement for each class."""
        self.world.item(item, *(is_a(target) for target in classes), **labels)
        return Found(item, tuple((target, "normal") for target in classes))


@dataclass(frozen=True)
class Found:
    """The item that speaks for a landmark, and its statements as (class, rank)."""

    item: str
    statements: tuple[tuple[str, str], ...]
    qualifiers: str = "{}"
    labels: dict[str, str] = field(default_factory=dict)  # beside CLASSES, by class
    classes: dict[str, str] = field(default_factory=dict)  # where a merged class stands now

    def rows(self) -> Iterator[Row]:
        """The rows of instance_of, without the landmark."""
        for order, (target, rank) in enumerate(self.statements):
            if target not in ("somevalue", "novalue"):
                yield {
                    "item_id": self.item,
                    "revision": revision_of(self.item),
                    "order": order,
                    "class_id": self.classes.get(target, target),
                    "instance_of": (CLASSES | self.labels)[target],
                    "rank": rank,
                    "qualifiers": self.qualifiers,
                }


def all_cases() -> Cases:
    """All of them."""
    cases = Cases()
    for item, label in CLASSES.items():
        cases.world.item(item, en=label, fr=f"{label} (fr)")
    cases.world.item(WIKIMEDIA_CATEGORY, en="Wikimedia category")
    for add in (_spellings, _values, _labels, _redirects, _soft_redirects, _topics, _nothing):
        add(cases)
    return cases


def _spellings(cases: Cases) -> None:
    """One page each, under URLs that are easily read wrong."""
    ways = [
        ("St Mary", "Category:St_Mary"),
        ("Église d'Été", "Category:%C3%89glise_d%27%C3%89t%C3%A9"),
        ("Raw d'Apostrophe", "Category:Raw_d'Apostrophe"),
        ("C++ tower", "Category:C++_tower"),
        ("A+B tower", "Category:A%2BB_tower"),
        ("Salt & Pepper", "Category:Salt_%26_Pepper"),
        ('The "Rock" (hill)', "Category:The_%22Rock%22_(hill)"),
        ("大阪城", "Category:%E5%A4%A7%E9%98%AA%E5%9F%8E"),
        ("Château décomposé", "Category:Cha%CC%82teau_de%CC%81compose%CC%81"),
        ("Latin église", "Category:Latin_%E9glise"),
        ("Two blanks", "Category:Two__blanks"),
        ("No break", "Category:No%C2%A0break"),
        ("Outer blanks", "Category:_Outer_blanks_"),
        ("Lower space", "category:Lower_space"),
        ("Lower first", "Category:lower_first"),
        ("Amp & entity", "Category:Amp_&amp;_entity"),
        ("Slash/part", "Category:Slash%2Fpart"),
        ("Question? mark", "Category:Question%3F_mark"),
        ("With section", "Category:With_section#History"),
        ("Raw question? mark", "Category:Raw_question?_mark"),
        ("Unseen mark", "Category:%E2%80%8EUnseen_mark%E2%80%8E"),
        ("X" * 246, "Category:" + "X" * 246),
        ("Z" * 255, "Category:" + "Z" * 255),
        ("Secure", "https://commons.wikimedia.org/wiki/Category:Secure"),
        ("Mobile", "https://commons.m.wikimedia.org/wiki/Category:Mobile"),
    ]
    for number, (name, url) in enumerate(ways, 1001):
        cases.world.page(name, item=f"Q{number}")
        cases.add(url, cases.thing(f"Q{number}", CHURCH))
    cases.add("Category:St_Mary", Found("Q1001", ((CHURCH, "normal"),)), split="index")


def _values(cases: Cases) -> None:
    """Items with several statements, of all ranks, with and without a value."""
    world = cases.world
    world.page("Two kinds", item="Q1101")
    cases.add("Category:Two_kinds", cases.thing("Q1101", CHURCH, CASTLE))
    world.page("Ranks", item="Q1102")
    ranks = ((BRIDGE, "deprecated"), (CASTLE, "normal"), (CHURCH, "preferred"))
    world.item("Q1102", *(is_a(target, rank) for target, rank in ranks))
    cases.add("Category:Ranks", Found("Q1102", ranks))
    world.page("Known and unknown", item="Q1103")
    world.item("Q1103", is_a("somevalue"), is_a(MOUNTAIN), is_a("novalue"))
    known = (("somevalue", "normal"), (MOUNTAIN, "normal"), ("novalue", "normal"))
    cases.add("Category:Known_and_unknown", Found("Q1103", known))
    world.page("Was a church", item="Q1104")
    world.item("Q1104", is_a(CHURCH, P580="1172", P582="1954"))
    years = {"P580": [year_value("1172")], "P582": [year_value("1954")]}
    text = json.dumps(years, sort_keys=True)
    cases.add("Category:Was_a_church", Found("Q1104", ((CHURCH, "normal"),), text))
    world.page("Merged item", item="Q1190")
    world.merged["Q1190"] = "Q1105"
    cases.add("Category:Merged_item", cases.thing("Q1105", BRIDGE))


def _labels(cases: Cases) -> None:
    """Classes whose label is not simply English."""
    world = cases.world
    world.item("Q2001", mul="Stolperstein")
    world.item("Q2002", fr="gare")
    world.item("Q2003", en="spring", mul="spring (mul)")
    world.merged["Q2090"] = "Q2003"
    wanted = {"Q2001": "Stolperstein", "Q2002": "Q2002", "Q2003": "spring", "Q2090": "spring"}
    for number, (target, label) in enumerate(wanted.items(), 1201):
        world.page(f"Labelled {number}", item=f"Q{number}")
        cases.thing(f"Q{number}", target)
        found = Found(
            f"Q{number}", ((target, "normal"),), labels={target: label}, classes={"Q2090": "Q2003"}
        )
        cases.add(f"Category:Labelled_{number}", found)


def _redirects(cases: Cases) -> None:
    """Pages that MediaWiki itself leads on from."""
    world = cases.world
    world.page("New name", item="Q1301")
    there = cases.thing("Q1301", CASTLE)
    world.page("Moved", redirect="New name")
    world.page("Moved twice", redirect="Moved")
    world.page("Moved away", redirect="Never made")
    world.page("Ring one", redirect="Ring two")
    world.page("Ring two", redirect="Ring one")
    cases.add("Category:New_name", there)
    cases.add("Category:Moved", there)
    cases.add("Category:Moved_twice", there)
    cases.add("Category:Moved_away", "no_page")
    cases.add("Category:Ring_one", "redirect_loop")


def _soft_redirects(cases: Cases) -> None:
    """Pages of which only a template says that they have moved."""
    world = cases.world
    world.page("Soft end", item="Q1401")
    there = cases.thing("Q1401", MOUNTAIN)
    world.page("Soft one", soft="Soft end")
    world.page("Soft two", soft="Soft one")
    world.page("Soft three", soft="Soft two")
    world.page("Soft to moved", soft="Moved soft")
    world.page("Moved soft", redirect="Soft end")
    world.page("Soft to nothing", soft="Never made either")
    world.page("Soft to bare", soft="Bare")
    world.page("Soft ring one", soft="Soft ring two")
    world.page("Soft ring two", soft="Soft ring one")
    world.page("Soft self", soft="Soft self")
    for name in ("Soft_one", "Soft_two", "Soft_three", "Soft_to_moved"):
        cases.add(f"Category:{name}", there)
    cases.add("Category:Soft_to_nothing", "no_page")
    cases.add("Category:Soft_to_bare", "no_item")
    cases.add("Category:Soft_ring_one", "redirect_loop")
    cases.add("Category:Soft_self", "redirect_loop")


def _topics(cases: Cases) -> None:
    """Items that only describe the category, with and without the topic of it."""
    world = cases.world

    def category(name: str, item: str, *topics: str) -> str:
        world.page(name, item=item)
        about = [is_a(topic, prop="P301") for topic in topics]
        world.item(item, is_a(WIKIMEDIA_CATEGORY), *about)
        return f"Category:{name.replace(' ', '_')}"

    cases.add(category("Topic", "Q1501", "Q1551"), cases.thing("Q1551", BRIDGE, CASTLE))
    world.merged["Q1590"] = "Q1552"
    cases.add(category("Merged topic", "Q1502", "Q1590"), cases.thing("Q1552", CHURCH))
    cases.add(category("No topic", "Q1503"), "category_without_topic")
    world.item("Q1554", is_a(WIKIMEDIA_CATEGORY))
    cases.add(category("Topic is a category", "Q1504", "Q1554"), "category_without_topic")
    world.item("Q1555", en="something")
    cases.add(category("Topic without class", "Q1505", "Q1555"), "no_p31")


def _nothing(cases: Cases) -> None:
    """Landmarks that end without a value, each for another reason."""
    world = cases.world
    world.page("Bare")
    cases.add("Category:Bare", "no_item")
    world.page("Gone item", item="Q1601")  # deleted: the wiki knows no such entity
    cases.add("Category:Gone_item", "no_item")
    cases.add("Category:Never_made", "no_page")
    world.page("No class", item="Q1602")
    world.item("Q1602", en="no class")
    cases.add("Category:No_class", "no_p31")
    world.page("Deprecated", item="Q1603")
    world.item("Q1603", is_a(CHURCH, "deprecated"))
    cases.add("Category:Deprecated", "only_deprecated")
    for number, kind in enumerate(("somevalue", "novalue"), 1604):
        world.page(f"Unknown {number}", item=f"Q{number}")
        world.item(f"Q{number}", is_a(kind))
        cases.add(f"Category:Unknown_{number}", "unknown_value")
    cases.add("Category:Bad%5Btitle%5D", "bad_url")
    cases.add("Category:" + "Y" * 256, "bad_url")
    cases.add("Category:" + "%C3%89" * 128, "bad_url")  # É is two bytes
    cases.add("Category:" + "Y" * 300, "bad_url")
    cases.add("Category:Twice%2525encoded", "bad_url")
    cases.add("http://example.org/wiki/Category:St_Mary", "bad_url")
    cases.add("", "bad_url")
