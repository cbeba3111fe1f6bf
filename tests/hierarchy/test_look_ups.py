"""Look-ups read out of answers and of a dump."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hgld.artifacts import declared_table, table_of
from hgld.config import EmbedOptions, LinkOptions, ScrapeOptions, SourceOptions, StageContext
from hgld.errors import InvalidData
from hgld.hierarchy.link import link_classes
from hgld.hierarchy.scrape.answers import LookUp, lookup_key, read_found
from hgld.hierarchy.scrape.items import DumpedItems, DumpedLookUps, scrape_items
from tests.hierarchy.made_dump import write_dumps
from tests.hierarchy.small_wiki import Wiki
from tests.listening import heard
from tests.mediawiki.world import entity, is_a, text_claim

SEARCH = lookup_key("search", "en", "red fox")
GBIF = lookup_key("statement", "P846", "5219243")


@pytest.mark.parametrize(
    ("key", "document", "found"),
    [
        (SEARCH, {"searchinfo": {"search": "red fox"}, "search": [{"id": "Q8332"}]}, ["Q8332"]),
        (GBIF, {"query": {"search": [{"ns": 0, "title": "Q8332"}]}}, ["Q8332"]),
        (GBIF, {"query": {"search": []}}, []),
        (SEARCH, {"entities": {"-1": {"site": "enwiki", "title": "X", "missing": ""}}}, []),
    ],
)
def test_an_answer_has_the_ids_of_its_items(key: str, document: Any, found: list[str]) -> None:
    assert read_found(document, [key]) == {key: LookUp(found)}


@pytest.mark.parametrize(
    "document",
    [
        {"searchinfo": {"search": "grey wolf"}, "search": [{"id": "Q18498"}]},
        {"searchinfo": {"search": "red fox"}, "search": [{"id": "P31"}]},
        {"query": {"search": [{"ns": 1, "title": "Talk:Q1"}]}},
        {"batchcomplete": True},
    ],
)
def test_a_damaged_answer_or_that_of_another_search_answers_nothing(document: Any) -> None:
    assert read_found(document, [SEARCH]) == {}


def test_a_dump_is_searched_by_ids_and_names_with_other_letters(tmp_path: Path) -> None:
    fox = entity("Q8332", text_claim("P846", "5219243"), en="Red fox", de='F\u00fcchs "rot"')
    wiki = {"pages": {"x": {}}, "redirects": {}, "entities": {"Q8332": fox}}
    dump = write_dumps(wiki, tmp_path)["entities"]
    lookups = DumpedLookUps(DumpedItems(dump, ("en", "de"), (), ("P31",)))
    german = lookup_key("search", "de", 'f\u00fcchs "rot"')
    other = lookup_key("search", "fr", "red fox")
    answers = lookups.learn([GBIF, SEARCH, german, other])
    assert {key: found.item_ids for key, found in answers.items()} == {
        GBIF: ["Q8332"], SEARCH: ["Q8332"], german: ["Q8332"], other: [],
    }  # fmt: skip
    assert lookups.items.learn(["Q8332"])["Q8332"].labels["en"] == "Red fox"
    assert lookups.items.learn(["Q9"])["Q9"].item_id == ""


def test_a_slice_that_another_writer_made_is_searched_too(tmp_path: Path) -> None:
    fox = entity("Q8332", text_claim("P846", "5219243"), en="Red fox")
    dump = tmp_path / "slice.json"
    dump.write_text("[\n" + json.dumps({"pageid": 9, **fox}) + "\n]\n")
    lookups = DumpedLookUps(DumpedItems(dump, ("en",), (), ("P31",)))
    answers = lookups.learn([GBIF, SEARCH])
    assert [answers[key].item_ids for key in (GBIF, SEARCH)] == [["Q8332"], ["Q8332"]]


def test_a_dump_is_searched_by_names_with_other_capitals_than_those_of_ascii(
    tmp_path: Path,
) -> None:
    emu = entity("Q93208", en="\u00c9meu d'Australie")
    wiki = {"pages": {"x": {}}, "redirects": {}, "entities": {"Q93208": emu}}
    dump = write_dumps(wiki, tmp_path)["entities"]
    lookups = DumpedLookUps(DumpedItems(dump, ("en",), (), ()))
    key = lookup_key("search", "en", "\u00e9meu d'australie")
    assert lookups.learn([key])[key].item_ids == ["Q93208"]


@pytest.mark.parametrize("writer", [str, lambda text: text.replace("/", r"\/")])
def test_a_dump_is_searched_by_names_with_a_slash(
    writer: Callable[[str], str], tmp_path: Path
) -> None:
    band = {"type": "item", **entity("Q27593", en="AC/DC")}
    (tmp_path / "all.json").write_text(writer(json.dumps(band)))
    lookups = DumpedLookUps(DumpedItems(tmp_path / "all.json", ("en",), (), ()))
    key = lookup_key("search", "en", "ac/dc")
    assert lookups.learn([key])[key].item_ids == ["Q27593"]


def test_a_damaged_item_of_a_dump_is_not_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text('{"type":"item","id":"Q1","claims":{"P31":["Q5"]}}')
    items = DumpedItems(tmp_path / "all.json", ("en",), (), ("P31",))
    with pytest.raises(InvalidData, match=r"all\.json: entity Q1 is damaged"):
        items.learn(["Q1"])


def test_a_name_is_found_in_whichever_form_its_accents_are_written(tmp_path: Path) -> None:
    wiki = {"pages": {"x": {}}, "redirects": {}, "entities": {"Q1": entity("Q1", en="caf\u00e9")}}
    scrape = ScrapeOptions(dump_entities=write_dumps(wiki, tmp_path)["entities"])
    linked, *_ = link_classes(
        pd.DataFrame({"split": ["train"], "landmark_id": [0], "name": ["Cafe\u0301"]}),
        pd.DataFrame({"split": ["train"], "landmark_id": [0]}),
        table_of("links", []),
        options=LinkOptions(),
        context=StageContext("", tmp_path, SourceOptions(), tmp_path, scrape,
                             embed=EmbedOptions(encoder="offline:minilm")),
    )  # fmt: skip
    assert linked[["name", "item_id"]].to_numpy().tolist() == [["Cafe\u0301", "Q1"]]


def test_an_item_has_its_label_in_the_first_of_the_languages(tmp_path: Path) -> None:
    fox = entity("Q8332", en="Red fox", de="Rotfuchs")
    wiki = {"pages": {"x": {}}, "redirects": {}, "entities": {"Q8332": fox}}
    scrape = ScrapeOptions(dump_entities=write_dumps(wiki, tmp_path)["entities"])
    said = dict.fromkeys(("wikipedia", "commons_url", "wordnet", "gbif", "who", "when", "why"), "")
    linked, *_ = link_classes(
        pd.DataFrame({"split": ["train"], "landmark_id": [0], "name": ["fox"]}),
        pd.DataFrame({"split": ["train"], "landmark_id": [0]}),
        table_of("links", [{"name": "fox", "qid": "Q8332", **said}]),
        options=LinkOptions(languages=("de", "en")),
        context=StageContext("", tmp_path, SourceOptions(), tmp_path, scrape),
    )
    assert linked[["item_id", "label"]].to_numpy().tolist() == [["Q8332", "Rotfuchs"]]


def test_a_class_that_an_item_names_twice_or_by_an_id_merged_since_is_above_it_once(
    wiki: Wiki, context: StageContext
) -> None:
    named: dict[str, Any] = {"labels": {}, "descriptions": {}, "aliases": {}, "sitelinks": {}}
    twice = {"P31": [is_a("Q30"), is_a("Q30"), is_a("Q20")]}  # Q30 was merged into Q20
    for item_id, claims in (("Q1", twice), ("Q20", {"P31": [is_a("Q40")]}), ("Q40", {})):
        wiki.entities[item_id] = {"id": item_id, "lastrevid": 9, **named, "claims": claims}
    wiki.entities["Q30"] = {**wiki.entities["Q20"], "redirects": {"from": "Q30", "to": "Q20"}}
    rows = [{"split": "train", "landmark_id": 0, "name": "x", "item_id": "Q1", "commons_url": ""}]
    options = ScrapeOptions(
        source="items", wikidata_api=wiki.url, contact="someone@example.org", most_hops=1
    )
    table = pd.DataFrame(rows)
    found, _, ancestry = scrape_items(table, table, options=options, context=context)
    above = declared_table("ancestry").check(ancestry, Path("ancestry.csv"))
    assert set(found["class_id"]) == {"Q20"}
    assert sorted(zip(above["item_id"], above["above"], strict=True)) == [
        ("Q1", "Q20"),
        ("Q20", "Q40"),
    ]


@pytest.mark.parametrize(
    ("item_id", "notices"),
    [
        *(
            (one, [f"linked.csv: 1 class by name, as Wikidata has no such item_id: fox ({one})"])
            for one in ("Q404", "Q9999999999999")
        ),
        ("", []),
    ],
)
def test_a_class_linked_to_no_item_goes_by_its_name_and_an_unknown_id_is_reported(
    wiki: Wiki, context: StageContext, item_id: str, notices: list[str]
) -> None:
    row = {"split": "train", "landmark_id": 0, "name": "fox", "commons_url": ""}
    options = ScrapeOptions(source="items", wikidata_api=wiki.url, contact="someone@example.org")
    classes = pd.DataFrame([row])
    with heard() as said:
        found, *_ = scrape_items(
            classes, classes.assign(item_id=item_id), options=options, context=context
        )
    assert found["instance_of"].tolist() == ["fox"]
    assert [text for text in said if text.startswith("linked.csv")] == notices
