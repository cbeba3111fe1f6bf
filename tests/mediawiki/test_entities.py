"""What our wbgetentities does behind MediaWiki's own parameter checks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mediawiki.asking import ask, post
from tests.mediawiki.wiki import Wiki, serve, serve_world
from tests.mediawiki.world import World, is_a, text_claim

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wiki(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wiki]:
    world = World(merged={"Q9": "Q1", "Q10": "Q404"})
    world.item("Q1", is_a("Q16970", P580="1172"), is_a("somevalue"), en="St Mary")
    world.item("Q16970", en="church building", fr="église")
    world.item("Q2", fr="nom")
    world.item("Q3", mul="Name")
    for number in range(100, 200):
        world.item(f"Q{number}", is_a("Q16970"))
    folder = tmp_path_factory.mktemp("entities") / "wiki"
    with serve_world(template, folder, world) as wiki:
        yield wiki


def test_an_item_has_its_statements_and_its_revision(wiki: Wiki) -> None:
    item = ask(wiki, action="wbgetentities", ids="Q1", props="info|claims")["entities"]["Q1"]
    known, unknown = item["claims"]["P31"]
    assert item["lastrevid"] == 100_001
    assert known["mainsnak"]["datavalue"]["value"]["id"] == "Q16970"
    assert known["qualifiers"]["P580"][0]["datavalue"]["value"]["time"] == "+1172-00-00T00:00:00Z"
    assert unknown["mainsnak"]["snaktype"] == "somevalue"
    assert "datavalue" not in unknown["mainsnak"]


def test_an_item_without_statements_has_an_empty_map_of_them(wiki: Wiki) -> None:
    answer = post(wiki, action="wbgetentities", ids="Q2", props="claims")
    assert '"claims":{}' in answer.text


def test_a_merged_item_stands_under_the_asked_id(wiki: Wiki) -> None:
    item = ask(wiki, action="wbgetentities", ids="Q9", props="info")["entities"]["Q9"]
    assert (item["id"], item["redirects"]) == ("Q1", {"from": "Q9", "to": "Q1"})


@pytest.mark.parametrize("gone", ["Q404", "Q10"])
def test_an_item_that_is_gone_is_missing(wiki: Wiki, gone: str) -> None:
    answer = ask(wiki, action="wbgetentities", ids=f"Q1|{gone}")
    assert answer["entities"][gone] == {"id": gone, "missing": ""}


@pytest.mark.parametrize(
    ("item", "language"), [("Q16970", "en"), ("Q3", "mul"), ("Q2", None), ("Q1", "en")]
)
def test_labels_come_in_the_asked_languages_only(
    wiki: Wiki, item: str, language: str | None
) -> None:
    question = {"action": "wbgetentities", "ids": item, "props": "labels"}
    labels = ask(wiki, **question, languages="en|mul")["entities"][item]["labels"]
    assert list(labels) == ([language] if language else [])


def test_a_fallback_is_marked_as_one(wiki: Wiki) -> None:
    question = {"ids": "Q3", "props": "labels", "languages": "en", "languagefallback": 1}
    labels = ask(wiki, action="wbgetentities", **question)["entities"]["Q3"]["labels"]
    assert labels["en"] == {"value": "Name", "language": "mul", "for-language": "en"}


def test_more_than_fifty_ids_are_too_many(wiki: Wiki) -> None:
    asked = "|".join(f"Q{number}" for number in range(100, 151))
    error = ask(wiki, action="wbgetentities", ids=asked)["error"]
    assert (error["code"], error["limit"], error["highlimit"]) == ("toomanyvalues", 50, 500)


def test_one_malformed_id_fails_the_whole_batch(wiki: Wiki) -> None:
    error = ask(wiki, action="wbgetentities", ids="Q1|banana")["error"]
    assert (error["code"], error["id"]) == ("no-such-entity", "banana")


def test_an_unknown_part_is_only_warned_of(wiki: Wiki) -> None:
    answer = ask(wiki, action="wbgetentities", ids="Q1", props="claims|nonsense")
    assert 'Unrecognized value for parameter "props": nonsense' in str(answer["warnings"])
    assert answer["success"] == 1


def test_what_is_too_large_is_left_out_with_status_200(
    wiki: Wiki, template: Path, tmp_path: Path
) -> None:
    world = World(claims_of_all={"P18": [text_claim("P18", "A picture.jpg")]})
    for number in range(1, 51):
        world.item(f"Q{number}", is_a("Q16970"))
    with serve_world(template, tmp_path / "wiki", world):
        pass
    with serve(tmp_path / "wiki", settings="$wgAPIMaxResultSize = 10000;") as small:
        asked = "|".join(world.entities)
        answer = ask(small, action="wbgetentities", ids=asked, props="claims")
    assert 10 < len(answer["entities"]) < 50
    assert "truncated" in answer["warnings"]["result"]["warnings"]
    assert all("P18" in entity["claims"] for entity in answer["entities"].values())
