"""Our wbgetentities, held against answers captured from a real Wikibase."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mediawiki.asking import get
from tests.mediawiki.wiki import Wiki, serve_world
from tests.mediawiki.world import Page, World

pytestmark = [pytest.mark.slow, pytest.mark.real]

OF_THE_PAGE = ("pageid", "ns", "title", "lastrevid", "modified")  # items are pages; ours elsewhere
OTHERWISE = {
    "wb_getclaims_p31": "another action",
    "wb_title_apostrophe": "shows an item that was deleted later, as wb_deleted_item says",
    "wb_maxlag": "a lag below zero; router.php and MediaWiki's own check make the lag",
    "truncated_wbgetentities": "our documents have another size; see test_entities.py",
}


def captured(folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for path in sorted(folder.glob("wb_*.json")):
        capture = json.loads(path.read_text(encoding="utf-8"))
        if path.stem not in OTHERWISE and "response" in capture:
            found[path.stem] = capture
    return found


@pytest.fixture(scope="module")
def captures(real_data: Path) -> dict[str, dict[str, Any]]:
    return captured(real_data.parent / "wikimedia" / "wikibase-1.39")


def world_of(captures: dict[str, dict[str, Any]]) -> World:
    """What the captured wiki must have held: every part of every entity that was shown."""
    world = World(merged={"Q910016": "Q910014"})
    world.page("Hard redirect", redirect="New name")
    for capture in captures.values():
        for key, entity in capture["response"]["json"].get("entities", {}).items():
            if "missing" not in entity:
                known = world.entities.setdefault(entity["id"], {"labels": {}})
                labels = {
                    one["language"]: {"language": one["language"], "value": one["value"]}
                    for one in entity.get("labels", {}).values()
                }
                parts = {k: v for k, v in entity.items() if k in ("type", "id", "claims")}
                known.update(parts)
                known["labels"].update(labels)
            for link in entity.get("sitelinks", {}).values():
                world.pages.append(Page(link["title"], key))
    world.pages = list({page.title: page for page in world.pages}.values())
    return world


@pytest.fixture(scope="module")
def wiki(
    template: Path, captures: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Wiki]:
    folder = tmp_path_factory.mktemp("captured") / "wiki"
    with serve_world(template, folder, world_of(captures)) as wiki:
        yield wiki


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """Without the wiki's own address and without what an item's page has."""
    text = json.dumps(answer, ensure_ascii=False)
    answer = json.loads(text.translate({0x29FC: None, 0x29FD: None}))  # around unknown messages
    answer.pop("servedby", None)
    for holder in (answer, answer.get("error", {})):
        for name in ("*", "docref"):
            holder.pop(name, None)
    for entity in answer.get("entities", {}).values():
        if "missing" not in entity:
            for name in OF_THE_PAGE:
                entity.pop(name, None)
    return answer


def test_every_captured_answer_is_given_again(
    wiki: Wiki, captures: dict[str, dict[str, Any]]
) -> None:
    assert len(captures) > 40
    differing = {}
    for name, capture in captures.items():
        question = capture["request"]["params"]
        response = get(wiki, question)
        wanted = capture["response"]
        error = wanted["headers"].get("MediaWiki-API-Error")
        found = (response.status_code, response.headers.get("MediaWiki-API-Error"))
        same = found == (wanted["status"], error)
        if not same or comparable(response.json()) != comparable(wanted["json"]):
            differing[name] = response.text
    assert differing == {}


def test_the_declared_parameters_are_those_of_the_real_module(wiki: Wiki, real_data: Path) -> None:
    path = real_data.parent / "wikimedia" / "wikibase-1.39" / "q_paraminfo_wb.json"
    capture = json.loads(path.read_text(encoding="utf-8"))
    question = capture["request"]["params"]
    answer = get(wiki, question).json()
    assert parameters(answer) == parameters(capture["response"]["json"])


def parameters(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By name; the languages and sites are those that the wiki has."""
    listed = answer["paraminfo"]["modules"][0]["parameters"]
    found = {one.pop("name"): one for one in listed}
    for one in found.values():
        del one["index"]
        if isinstance(one["type"], list):
            one["type"] = sorted(one["type"])
    for name in ("languages", "sites", "sitefilter"):
        del found[name]["type"]
    return found
