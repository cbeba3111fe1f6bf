import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from hgld.config import ToyOptions
from hgld.hierarchy.scrape.stand_in import stand_in
from hgld.sources.toy.wiki import describe_wiki
from hgld.sources.toy.world import Landmark, World, imagine

PROPER = {"User-Agent": "hgld-tests/0.1 (https://hgld.example; tests@hgld.example)"}


@pytest.fixture(scope="module")
def world() -> World:
    return imagine(ToyOptions(landmarks=60))


@pytest.fixture(scope="module")
def apis(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("wiki")
    (folder / "wiki.json").write_text(json.dumps(describe_wiki(world)), encoding="utf-8")
    with stand_in(folder) as urls:
        yield urls


def ask(url: str, action: str, **parameters: str) -> dict[str, Any]:
    given = {"format": "json", "formatversion": "2", **parameters}
    answer = requests.post(f"{url}?action={action}", data=given, headers=PROPER, timeout=60)
    answer.raise_for_status()
    body: dict[str, Any] = answer.json()
    return body


def pageprops(url: str, titles: str, **parameters: str) -> dict[str, Any]:
    given = {"prop": "pageprops", "redirects": "1", **parameters}
    return ask(url, "query", titles=titles, **given)


def with_quirk(world: World, quirk: str) -> Landmark:
    return next(landmark for landmark in world.of_space("train") if landmark.quirk == quirk)


def values(entity: dict[str, Any], property_id: str = "P31") -> list[tuple[str, str]]:
    return [(s["mainsnak"]["datavalue"]["value"]["id"], s["rank"])
            for s in entity["claims"].get(property_id, [])]  # fmt: skip


def test_a_page_is_found_under_its_normal_title(apis: tuple[str, str], world: World) -> None:
    plain = world.landmarks[1]
    title = f"Category:{plain.name}"
    asked = f"category:{plain.name.replace(' ', '_')}"
    answer = pageprops(apis[0], asked)
    assert answer["batchcomplete"] is True
    assert answer["query"]["normalized"] == [{"fromencoded": False, "from": asked, "to": title}]
    assert answer["query"]["pages"] == [
        {"pageid": 1002, "ns": 14, "title": title, "pageprops": {"wikibase_item": plain.item_id}}
    ]


def test_missing_pages_pages_without_item_and_redirects(
    apis: tuple[str, str], world: World
) -> None:
    quirks = ("no page", "no item", "redirect")
    landmarks = [with_quirk(world, quirk) for quirk in quirks]
    titles = [f"Category:{landmark.name}" for landmark in landmarks]
    query = pageprops(apis[0], "|".join(titles))["query"]
    pages = {page["title"]: page for page in query["pages"]}
    assert pages[titles[0]] == {"ns": 14, "title": titles[0], "missing": True}
    assert pages[titles[1]].keys() == {"pageid", "ns", "title"}
    assert query["redirects"] == [{"from": titles[2], "to": f"{titles[2]} (renamed)"}]
    assert pages[f"{titles[2]} (renamed)"]["pageprops"]["wikibase_item"] == landmarks[2].item_id


def test_a_soft_redirect_is_in_its_category_and_its_text_names_the_target(
    apis: tuple[str, str], world: World
) -> None:
    landmark = next(x for x in world.of_space("index") if x.quirk == "redirect")
    title = f"Category:{landmark.name}"
    (page,) = pageprops(apis[0], title, prop="pageprops|categories")["query"]["pages"]
    assert page["categories"] == [{"ns": 14, "title": "Category:Category redirects"}]
    assert "pageprops" not in page
    (page,) = pageprops(apis[0], title, prop="revisions|links")["query"]["pages"]
    text = page["revisions"][0]["slots"]["main"]["content"]
    assert text == f"{{{{Category redirect|{title} (renamed)}}}}"
    (page,) = pageprops(apis[0], f"{title} (renamed)")["query"]["pages"]
    assert page["pageprops"]["wikibase_item"] == landmark.item_id


@pytest.mark.parametrize(
    "spelling", ["{0}#History", "{0}\u00a0", " {0} ", "C{1}", "{0}&nbsp;", "&#67;{1}"]
)
def test_titles_are_mended_as_mediawiki_does(
    spelling: str, apis: tuple[str, str], world: World
) -> None:
    title = f"Category:{world.landmarks[1].name}"
    (page,) = pageprops(apis[0], spelling.format(title, title[1:]))["query"]["pages"]
    assert page["title"] == title


def test_a_name_of_255_bytes_may_be_and_one_more_is_invalid(apis: tuple[str, str]) -> None:
    pages = [
        pageprops(apis[0], f"Category:{'É' * 127}{'x' * more}")["query"]["pages"][0]
        for more in (1, 2)
    ]
    assert pages[0]["missing"] is True
    assert "too long" in pages[1]["invalidreason"]


@pytest.mark.parametrize("title", ["Category:Bad[title]", "Category:%C3%89ra"])
def test_titles_that_cannot_be_are_invalid(title: str, apis: tuple[str, str]) -> None:
    (page,) = pageprops(apis[0], title)["query"]["pages"]
    assert page["invalid"] is True
    assert page["invalidreason"].startswith("The requested page title contains invalid characters")


def test_accents_are_composed_first(apis: tuple[str, str], world: World) -> None:
    landmark = next(x for x in world.landmarks if "ö" in x.name and not x.quirk)
    decomposed = f"Category:{landmark.name}".replace("ö", "o\u0308")
    (page,) = pageprops(apis[0], decomposed)["query"]["pages"]
    assert page["pageprops"]["wikibase_item"] == landmark.item_id


def test_statements_carry_rank_order_and_qualifiers(apis: tuple[str, str], world: World) -> None:
    names = ("two values", "preferred", "deprecated", "qualified", "only category")
    made = {name: with_quirk(world, name) for name in names}
    ids = "|".join(landmark.item_id for landmark in made.values())
    answer = ask(apis[1], "wbgetentities", ids=ids, props="info|claims")
    found = {name: answer["entities"][made[name].item_id] for name in names}
    own = {name: made[name].toy_class.class_id for name in names}
    assert answer["success"] == 1
    assert values(found["two values"]) == [(own["two values"], "normal"), ("Q570116", "normal")]
    assert values(found["preferred"]) == [("Q570116", "normal"), (own["preferred"], "preferred")]
    assert values(found["deprecated"]) == [(own["deprecated"], "deprecated")]
    assert values(found["only category"]) == [("Q4167836", "normal")]
    years = found["qualified"]["claims"]["P31"][0]["qualifiers"]
    assert years["P580"][0]["datavalue"]["value"]["time"] == "+1172-00-00T00:00:00Z"
    assert found["qualified"]["lastrevid"] > 0
    assert "labels" not in found["qualified"]


def test_a_category_item_leads_to_its_main_topic(apis: tuple[str, str], world: World) -> None:
    landmark = with_quirk(world, "category item")
    (page,) = pageprops(apis[0], f"Category:{landmark.name}")["query"]["pages"]
    item_id = page["pageprops"]["wikibase_item"]
    assert item_id != landmark.item_id
    entities = ask(apis[1], "wbgetentities", ids=item_id, props="claims")["entities"]
    assert values(entities[item_id]) == [("Q4167836", "normal")]
    assert values(entities[item_id], "P301") == [(landmark.item_id, "normal")]
    entities = ask(apis[1], "wbgetentities", ids=landmark.item_id, props="claims")["entities"]
    assert values(entities[landmark.item_id]) == [(landmark.toy_class.class_id, "normal")]


def test_labels_come_in_the_languages_that_were_asked_for(apis: tuple[str, str]) -> None:
    answer = ask(apis[1], "wbgetentities", ids="Q8502|Q38720", props="labels", languages="en|mul")
    labels = {key: entity["labels"] for key, entity in answer["entities"].items()}
    assert labels == {
        "Q8502": {"en": {"language": "en", "value": "mountain"}},
        "Q38720": {"mul": {"language": "mul", "value": "windmill"}},
    }
    answer = ask(apis[1], "wbgetentities", ids="Q38720", props="labels", languages="en")
    assert answer["entities"]["Q38720"]["labels"] == {}


def test_unknown_ids_are_missing(apis: tuple[str, str]) -> None:
    entities = ask(apis[1], "wbgetentities", ids="Q8502|Q999999999", props="info")["entities"]
    assert entities["Q999999999"] == {"id": "Q999999999", "missing": ""}


def test_one_malformed_id_fails_the_whole_batch(apis: tuple[str, str]) -> None:
    error = ask(apis[1], "wbgetentities", ids="Q8502|banana")["error"]
    assert (error["code"], error["id"]) == ("no-such-entity", "banana")


@pytest.mark.parametrize(
    ("api", "action", "name"), [(0, "query", "titles"), (1, "wbgetentities", "ids")]
)
def test_more_than_50_values_are_refused(
    api: int, action: str, name: str, apis: tuple[str, str]
) -> None:
    batch = {name: "|".join(f"Q{i}" for i in range(1, 52))}
    answer = requests.post(
        apis[api], params={"action": action}, data=batch, headers=PROPER, timeout=60
    )
    assert answer.status_code == 200
    assert answer.headers["MediaWiki-API-Error"] == "toomanyvalues"
    assert answer.json()["error"]["limit"] == 50
    fifty = {name: "|".join(f"Q{i}" for i in range(1, 51)), "prop": "info", "props": "info"}
    assert "error" not in ask(apis[api], action, **fifty)


@pytest.mark.parametrize("agent", ["python-requests/2.34.2", "Mozilla/5.0", "hgld/0.1", ""])
def test_callers_without_a_contact_are_turned_away(agent: str, apis: tuple[str, str]) -> None:
    answer = requests.post(apis[0], headers={"User-Agent": agent}, timeout=60)
    assert answer.status_code == 403
    assert "robot policy" in answer.text


def test_an_action_that_is_not_there_is_told(apis: tuple[str, str]) -> None:
    assert ask(apis[0], "nosuch")["error"]["code"] == "badvalue"


def test_a_world_that_was_not_drawn_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"wiki\.json"), stand_in(tmp_path):
        pass
