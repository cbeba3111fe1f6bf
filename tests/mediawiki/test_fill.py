"""Pages written by SQL answer as pages that MediaWiki made itself."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.mediawiki.asking import ask
from tests.mediawiki.fill import fill_by_sql
from tests.mediawiki.made import Part, share_of
from tests.mediawiki.wiki import Wiki, fill_by_import, serve
from tests.mediawiki.world import World

pytestmark = pytest.mark.slow

PARTS = {
    "prop": "pageprops|categories|links|templates|revisions|info|categoryinfo",
    "rvprop": "content|size|sha1|ids|flags|timestamp|contentmodel",
    "rvslots": "main",
    "cllimit": "max",
    "pllimit": "max",
    "tllimit": "max",
}


def small_world() -> World:
    """Pages of all kinds, with titles that are easily spelled wrong."""
    world = World()
    for number, name in enumerate(
        ("St Mary", "Église d'Été", "C++ & co", 'The "Rock"', "大阪城", "100 percent")
    ):
        world.page(name, item=f"Q{number + 1}")
        world.item(f"Q{number + 1}", en=name)
    world.page("No item")
    world.page("Moved", redirect="St Mary")
    world.page("Moved twice", redirect="Moved")
    world.page("Moved in a ring", redirect="Ring")
    world.page("Ring", redirect="Moved in a ring")
    world.page("Moved away", redirect="Not there")
    world.page("Old name", soft="Église d'Été")
    world.page("Older name", soft="Old name")
    return world


def answers(wiki: Wiki, titles: Sequence[str]) -> list[dict[str, Any]]:
    """To what a scrape may ask of the pages, with and without following redirects."""
    questions: list[dict[str, Any]] = [{"titles": "|".join(titles), **PARTS}]
    questions += [
        {"titles": "|".join(titles), "prop": "pageprops|categories", "redirects": 1},
        {"list": "categorymembers", "cmtitle": "Category:Category redirects", "cmlimit": "max"},
    ]
    return [ask(wiki, action="query", **question) for question in questions]


def answers_of_both(template: Path, folder: Path, world: World) -> list[list[dict[str, Any]]]:
    """The answers of a wiki filled by SQL, and of one filled by MediaWiki."""
    titles = [page.title for page in world.pages[:48]] + ["Category:Not there"]
    found = []
    for name, fill in (("by_sql", fill_by_sql), ("by_import", fill_by_import)):
        shutil.copytree(template, folder / name)
        fill(folder / name, world)
        with serve(folder / name) as wiki:
            found.append([_sorted(answer) for answer in answers(wiki, titles)])
    return found


def _sorted(answer: dict[str, Any]) -> dict[str, Any]:
    """Without when the parser last saw a page, and with the numbers of pages as they come."""
    for page in answer["query"].get("pages", []):
        page.pop("touched", None)
        page.pop("categoryinfo", None)  # counted when a page is saved, and only shown to people
    loaded: dict[str, Any] = json.loads(json.dumps(answer, sort_keys=True))
    return loaded


def test_both_roads_give_the_same_answers(template: Path, tmp_path: Path) -> None:
    by_sql, by_import = answers_of_both(template, tmp_path, small_world())
    assert len(by_sql[0]["query"]["pages"]) == 15
    assert by_sql == by_import


def test_so_does_a_sample_of_the_made_world(template: Path, tmp_path: Path) -> None:
    part = Part()
    for number in [n for n in range(1000) if share_of(n) % 50 in (5, 10, 20)][:40]:
        part.add(number)
    pages = part.world.pages
    assert {bool(page.item) for page in pages} == {True, False}
    assert any(page.soft for page in pages)
    assert any(page.redirect for page in pages)
    by_sql, by_import = answers_of_both(template, tmp_path, part.world)
    assert by_sql == by_import


def test_wbgetentities_knows_the_items_of_pages_that_mediawiki_made(
    template: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(template, tmp_path / "wiki"))
    fill_by_import(folder, small_world())
    with serve(folder) as wiki:
        question = {"sites": "commonswiki", "titles": "Category:Église d'Été", "props": "labels"}
        found = ask(wiki, action="wbgetentities", **question)["entities"]
    assert found["Q2"]["labels"]["en"]["value"] == "Église d'Été"
