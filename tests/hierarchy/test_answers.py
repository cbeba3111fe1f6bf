"""Read on answers in the shapes of a real MediaWiki 1.39 with Wikibase."""

from typing import Any

import pytest

from hgld.hierarchy.scrape.answers import (
    Item,
    Page,
    Statement,
    WikiClass,
    judge_item,
    read_classes,
    read_items,
    read_pages,
)
from hgld.hierarchy.scrape.subclasses import read_superclasses
from tests.hierarchy.small_wiki import statement

TOWER: dict[str, Any] = {
    "pageid": 110,
    "ns": 14,
    "title": "Category:Eiffel Tower",
    "pageprops": {"wikibase_item": "Q243"},
}


def query(**parts: Any) -> dict[str, Any]:
    return {"batchcomplete": True, "query": parts}


def item(*statements: dict[str, Any], **claims: Any) -> Item:
    found = {"P31": list(statements), **claims}
    for name, some in found.items():
        for claim in some:
            claim["mainsnak"]["property"] = name
    entity = {"type": "item", "id": "Q7", "lastrevid": 48, "claims": found}
    return read_items({"entities": {"Q7": entity}}, ["Q7"])["Q7"]


def test_a_title_is_followed_over_its_normalisation() -> None:
    steps = [{"fromencoded": False, "from": "category:Eiffel_Tower", "to": TOWER["title"]}]
    found = read_pages(query(normalized=steps, pages=[TOWER]), ["category:Eiffel_Tower"])
    assert found == {"category:Eiffel_Tower": Page("Q243")}


def test_a_title_that_comes_back_percent_encoded_is_found_again() -> None:
    asked = "Category:E\u0301glise"
    step = {"fromencoded": True, "from": "Category%3AE%CC%81glise", "to": "Category:Église"}
    page = {"pageid": 1, "title": "Category:Église", "pageprops": {"wikibase_item": "Q9"}}
    assert read_pages(query(normalized=[step], pages=[page]), [asked]) == {asked: Page("Q9")}


def test_two_titles_may_lead_to_one_page_over_a_chain_of_redirects() -> None:
    steps = [{"from": "A", "to": "B"}, {"from": "B", "to": TOWER["title"]}]
    found = read_pages(query(redirects=steps, pages=[TOWER]), ["A", TOWER["title"]])
    assert found == {"A": Page("Q243"), TOWER["title"]: Page("Q243")}


def test_redirects_in_a_circle_are_told() -> None:
    steps = [{"from": "A", "to": "B"}, {"from": "B", "to": "A"}]
    assert read_pages(query(redirects=steps), ["A"])["A"].reason == "redirect_loop"


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ({"ns": 14, "title": "A", "missing": True}, "no_page"),
        (
            {"title": "A", "invalidreason": "The requested page title ...", "invalid": True},
            "bad_url",
        ),
        ({"pageid": 187, "ns": 14, "title": "A"}, "no_item"),
        ({"ns": -1, "title": "A", "special": True}, "bad_url"),
    ],
)
def test_a_page_without_item_has_its_reason(page: dict[str, Any], reason: str) -> None:
    found = read_pages(query(pages=[page]), ["A"])["A"]
    assert (found.item_id, found.reason) == ("", reason)


def test_a_page_of_another_wiki_is_a_bad_url() -> None:
    document = query(interwiki=[{"title": "wikipedia:A", "iw": "wikipedia"}])
    assert read_pages(document, ["wikipedia:A"])["wikipedia:A"].reason == "bad_url"


def test_an_unfinished_answer_accounts_for_nothing() -> None:
    page = {"pageid": 1, "title": "A"}  # its item would come with the next part
    document = {"continue": {"ppcontinue": "1"}, "query": {"pages": [page]}}
    assert read_pages(document, ["A"]) == {}


def test_a_title_that_the_answer_leaves_out_is_left_out() -> None:
    assert read_pages(query(pages=[TOWER]), ["A", "B"]) == {}


def test_the_only_answer_to_the_only_title_is_its_own_however_it_is_spelled() -> None:
    assert read_pages(query(pages=[TOWER]), ["Category:\u200eEiffel Tower"]) == {
        "Category:\u200eEiffel Tower": Page("Q243")
    }


@pytest.mark.parametrize("asked", ["Category:Louvre", "Category:Eiffel tower"])
def test_the_only_answer_to_the_only_title_counts_for_no_other_title(asked: str) -> None:
    assert read_pages(query(pages=[TOWER]), [asked]) == {}
    step = {"fromencoded": False, "from": "Category:Tower", "to": TOWER["title"]}
    assert read_pages(query(normalized=[step], pages=[TOWER]), [asked]) == {}


@pytest.mark.parametrize(
    "parts",
    [
        [],
        None,
        {"pages": {"110": TOWER}},  # formatversion 1
        {"pages": [None]},
        {"pages": [TOWER], "normalized": [None]},
        {"pages": [TOWER], "redirects": None},
        {"pages": [TOWER], "interwiki": [[]]},
    ],
)
def test_a_query_of_another_shape_accounts_for_nothing(parts: Any) -> None:
    assert read_pages({"batchcomplete": True, "query": parts}, [TOWER["title"]]) == {}


@pytest.mark.parametrize("entities", [[], None, "x", {"Q9": None}])
def test_entities_of_another_shape_account_for_nothing(entities: Any) -> None:
    assert read_items({"entities": entities}, ["Q9"]) == {}
    assert read_classes({"entities": entities}, ["Q9"]) == {}
    assert read_superclasses({"entities": entities}, ["Q9"]) == {}


@pytest.mark.parametrize(
    "page",
    [
        {"title": "A"},
        {"title": "A", "pageid": 1, "categories": None},
        {"title": "A", "x": 1},
        {"title": "A", "pageid": 1, "pageprops": {"wikibase_item": "banana"}},
        {"title": "A", "pageid": 1, "pageprops": {"wikibase_item": "Q1; DROP TABLE"}},
        {"title": "A", "pageid": 1, "pageprops": {"wikibase_item": "Q\uff11"}},
        {"title": "A", "pageid": 1, "pageprops": None},
        {"title": "A", "pageid": "1"},
        {"title": "A", "pageid": -1},
        {"title": "A", "missing": "no"},
        {"title": "A", "invalid": True, "invalidreason": 7},
        {"title": "A", "pageid": 1, "revisions": []},
    ],
)
def test_a_page_that_is_not_whole_is_left_out(page: dict[str, Any]) -> None:
    assert read_pages(query(pages=[page, TOWER]), ["A", TOWER["title"]]).keys() == {TOWER["title"]}


def test_a_soft_redirect_is_known_by_its_category() -> None:
    category = {"ns": 14, "title": "Category:Category redirects"}
    page = {"pageid": 187, "ns": 14, "title": "A", "categories": [category]}
    found = read_pages(query(pages=[page]), ["A"])["A"]
    assert (found.item_id, found.reason, found.moved_softly) == ("", "no_item", True)


def test_a_soft_redirect_with_an_item_is_as_good_as_any_page() -> None:
    category = {"ns": 14, "title": "Category:Category redirects"}
    page = {**TOWER, "categories": [category]}
    assert read_pages(query(pages=[page]), [TOWER["title"]]) == {TOWER["title"]: Page("Q243")}


def test_a_redirected_item_is_found_by_the_asked_id_and_keeps_its_own() -> None:
    moved = {"redirects": {"from": "Q9", "to": "Q910014"}, "lastrevid": 48, "claims": {}}
    found = read_items({"entities": {"Q9": {"id": "Q910014", **moved}}}, ["Q9"])["Q9"]
    assert (found.item_id, found.revision) == ("Q910014", 48)


@pytest.mark.parametrize(
    "damage",
    [
        {"claims": None, "lastrevid": None},
        {"lastrevid": 1},
        {"claims": {}},
        {"claims": {"P31": [{}]}, "lastrevid": 1},
        {"claims": {"P31": "Q1"}, "lastrevid": 1},
        {"claims": {}, "lastrevid": 1, "id": "banana"},
        {"claims": {}, "lastrevid": 1, "id": None},
        {"claims": None, "lastrevid": 1},
        {"claims": {"P31": None}, "lastrevid": 1},
        {"claims": {}, "lastrevid": 10**30},
        {"claims": {}, "lastrevid": -1},
        {"claims": {}, "lastrevid": True},
        {"claims": {}, "lastrevid": "1"},
        {"claims": {}, "lastrevid": 1, "missing": False},
        {"claims": {"P31": [statement("Q1", rank="best")]}, "lastrevid": 1},
        {"claims": {"P31": [statement("Q1", qualifiers=None)]}, "lastrevid": 1},
        {"claims": {"P279": [statement("Q1")]}, "lastrevid": 1},  # a statement of P31
    ],
)
def test_an_item_that_is_not_whole_is_left_out(damage: dict[str, Any]) -> None:
    assert read_items({"entities": {"Q9": {"id": "Q9", **damage}}}, ["Q9"]) == {}


def test_an_item_whose_statement_names_two_items_is_left_out() -> None:
    damaged = statement("Q1")
    damaged["mainsnak"]["datavalue"]["value"]["id"] = "Q2"
    entity = {"id": "Q9", "lastrevid": 1, "claims": {"P31": [damaged]}}
    assert read_items({"entities": {"Q9": entity}}, ["Q9"]) == {}


@pytest.mark.parametrize("more", [{}, {"redirects": {"from": "Q7", "to": "Q8"}}, {"missing": ""}])
def test_an_entity_under_the_key_of_another_is_left_out(more: dict[str, Any]) -> None:
    entity = {"id": "Q8", "lastrevid": 1, "claims": {}, "labels": {}, **more}
    assert read_items({"entities": {"Q9": entity}}, ["Q9"]) == {}
    assert read_classes({"entities": {"Q9": entity}}, ["Q9"]) == {}


def test_a_deleted_item_is_none() -> None:
    document = {"entities": {"Q9": {"id": "Q9", "missing": ""}}}
    assert judge_item(read_items(document, ["Q9"])["Q9"]) == "no_item"


def test_statements_keep_order_rank_and_qualifiers() -> None:
    date = {"time": "+1172-00-00T00:00:00Z", "precision": 9}
    snak = {"snaktype": "value", "hash": "x", "datavalue": {"value": date, "type": "time"}}
    church = statement("Q16970", qualifiers={"P580": [snak], "P582": [{"snaktype": "somevalue"}]})
    text = '{"P580": [{"time": "+1172-00-00T00:00:00Z", "precision": 9}], "P582": ["somevalue"]}'
    sorted_text = text.replace(
        '"time": "+1172-00-00T00:00:00Z", "precision": 9',
        '"precision": 9, "time": "+1172-00-00T00:00:00Z"',
    )
    assert item(statement("Q1", "deprecated"), church).statements == (
        Statement(0, "Q1", "deprecated", "{}"),
        Statement(1, "Q16970", "normal", sorted_text),
    )


def test_old_answers_name_an_item_by_its_number_only() -> None:
    old = statement("Q515")
    del old["mainsnak"]["datavalue"]["value"]["id"]
    assert item(old).statements[0].class_id == "Q515"


def test_claims_may_be_an_empty_list() -> None:
    document = {"entities": {"Q7": {"id": "Q7", "lastrevid": 1, "claims": []}}}
    assert judge_item(read_items(document, ["Q7"])["Q7"]) == "no_p31"


def test_preferred_statements_are_better_than_normal_ones() -> None:
    found = item(statement("Q1"), statement("Q2", "preferred"), statement("Q3", "deprecated"))
    assert [s.class_id for s in found.best] == ["Q2"]


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ([], "no_p31"),
        ([statement("Q1", "deprecated")], "only_deprecated"),
        ([statement("")], "unknown_value"),
        ([statement(""), statement("Q1", "deprecated")], "unknown_value"),
        ([statement(""), statement("Q1")], ""),
        ([statement("", "preferred"), statement("Q1")], ""),
    ],
)
def test_why_an_item_has_no_class(statements: list[dict[str, Any]], reason: str) -> None:
    assert judge_item(item(*statements)) == reason


def test_a_category_item_names_its_topic() -> None:
    found = item(statement("Q4167836"), P301=[statement("Q8"), statement("Q9", "preferred")])
    assert (found.is_category, found.topic_id) == (True, "Q9")


def test_an_item_that_is_a_category_and_something_else_speaks_for_itself() -> None:
    assert not item(statement("Q4167836"), statement("Q16970")).is_category


@pytest.mark.parametrize(
    ("labels", "label"),
    [
        ({"en": {"value": "bridge"}, "mul": {"value": "pont"}}, "bridge"),
        ({"mul": {"value": "pont"}, "en-gb": {"value": "bridge"}}, "pont"),
        ({"en-gb": {"value": "windmill"}, "en-ca": {"value": "mill"}}, "windmill"),
        ({"en": {"language": "mul", "for-language": "en", "value": "pont"}}, "pont"),
        ({"fr": {"value": "gare"}}, "Q12280"),
        ({}, "Q12280"),
        ([], "Q12280"),
    ],
)
def test_a_label_is_english_or_for_all_languages_or_the_id(labels: Any, label: str) -> None:
    document = {"entities": {"Q12280": {"id": "Q12280", "labels": labels}}}
    assert read_classes(document, ["Q12280"])["Q12280"].label == label


@pytest.mark.parametrize(
    "damage",
    [
        {},
        {"labels": None},
        {"labels": "x"},
        {"labels": {"en": {"value": 7}}},
        {"labels": {"en": 7}},
    ],
)
def test_a_class_that_is_not_whole_is_left_out(damage: dict[str, Any]) -> None:
    assert read_classes({"entities": {"Q1": {"id": "Q1", **damage}}}, ["Q1"]) == {}


def test_a_merged_class_is_the_one_that_it_became() -> None:
    merged = {"id": "Q2", "redirects": {"from": "Q1", "to": "Q2"}}
    document = {"entities": {"Q1": {**merged, "labels": {"en": {"value": "pub"}}}}}
    assert read_classes(document, ["Q1"])["Q1"] == WikiClass("Q2", "pub")


def test_a_deleted_class_is_named_by_its_id() -> None:
    document = {"entities": {"Q1": {"id": "Q1", "missing": ""}}}
    assert read_classes(document, ["Q1"])["Q1"] == WikiClass("Q1", "Q1")
