"""The readers on answers captured from a real MediaWiki 1.39 with Wikibase."""

import json
from pathlib import Path
from typing import Any

import pytest

from hgld.hierarchy.scrape.answers import judge_item, read_classes, read_items, read_pages
from hgld.hierarchy.scrape.route import read_redirects
from hgld.hierarchy.scrape.titles import title_of_url
from hgld.hierarchy.scrape.verdict import Answer, classify

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def captures(real_data: Path) -> Path:
    return real_data.parent / "wikimedia"


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def entities(path: Path) -> dict[str, Any]:
    """The entities of an answer; those asked for without props=info get a revision."""
    found: dict[str, Any] = load(path)["response"]["json"]["entities"]
    return {"entities": {key: {"lastrevid": 1, **entity} for key, entity in found.items()}}


def verdict(capture: dict[str, Any]) -> Answer:
    response = capture["response"]
    headers = {
        "-".join(w.capitalize() for w in k.split("-")): v for k, v in response["headers"].items()
    }
    headers["MediaWiki-API-Error"] = headers.pop("Mediawiki-Api-Error", "")
    body = json.dumps(response["json"]) if "json" in response else response["text"]
    return classify(response["status"], headers, body.encode())


@pytest.mark.parametrize(
    ("name", "kind", "pause_s"),
    [
        ("gateway/429_rate_limited", "wait", 37.0),
        ("gateway/403_user_agent", "fatal", None),
        ("gateway/200_html", "transient", None),
        ("wikibase-1.39/maxlag_wikibase_fv2", "wait", 5.0),
        ("wikibase-1.39/maxlag_wikibase_bc", "wait", 5.0),
        ("wikibase-1.39/maxlag_wikibase_plaintext", "wait", 5.0),
        ("wikibase-1.39/ratelimited_edit_2", "wait", None),
        ("wikibase-1.39/readonly_edit", "wait", None),
        ("wikibase-1.39/internal_api_error", "transient", None),
        ("wikibase-1.39/internal_api_error_bc", "transient", None),
        ("wikibase-1.39/internal_api_error_hidden", "transient", None),
        ("wikibase-1.39/db_unreachable", "transient", None),
        ("wikibase-1.39/exception_before_main", "transient", None),
        ("wikibase-1.39/php_fatal_syntax", "transient", None),
        ("wikibase-1.39/q_no_format", "transient", None),
        ("wikibase-1.39/wb_bad_id", "split", None),
        ("wikibase-1.39/wb_51_titles", "fatal", None),
        ("wikibase-1.39/wb_unknown_site", "fatal", None),
        ("wikibase-1.39/readonly_query", "ok", None),
        ("wikibase-1.39/q_pageprops_mixed", "ok", None),
    ],
)
def test_the_verdict_on_a_captured_answer(
    name: str, kind: str, pause_s: float | None, captures: Path
) -> None:
    answer = verdict(load(captures / f"{name}.json"))
    assert (answer.kind, answer.pause_s) == (kind, pause_s)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (
            "q_pageprops_mixed",
            ["Q243", "no_page", "no_item", "Q910002", "bad_url", "no_item"],
        ),
        ("q_hard_redirect", ["Q910014"]),
        ("q_redirects_normalized_chain", ["Q910014"]),
        ("q_title_dupes", ["Q243", "Q243", "Q243"]),
        ("q_title_interwiki", ["bad_url"]),
        ("q_title_percent", ["bad_url"]),
        ("q_title_long", ["bad_url"]),
        ("q_title_lower_first", ["Q243"]),
        ("q_title_double_space", ["Q243"]),
    ],
)
def test_every_title_of_a_captured_answer_is_accounted_for(
    name: str, found: list[str], captures: Path
) -> None:
    capture = load(captures / "wikibase-1.39" / f"{name}.json")
    titles = capture["request"]["params"]["titles"].split("|")
    pages = read_pages(capture["response"]["json"], titles)
    assert [pages[title].item_id or pages[title].reason for title in titles] == found


@pytest.mark.parametrize(
    ("path", "name", "found"),
    [
        ("Category:Eiffel%C2%A0Tower", "q_title_nonbreaking", "Q243"),
        ("Category:Eiffel__Tower", "q_title_double_space", "Q243"),
        ("Category:A_&amp;_B", "q_title_html_entity", "Q910010"),
        ("Category:Eiffel_Tower#History", "q_title_sharp", "Q243"),
        ("Category:eiffel_Tower", "q_title_lower_first", "Q243"),
        ("Category:C++_tower", "q_title_plus", "Q910009"),
        ("Category:%25C3%2589glise%5FSaint-%25C3%2589tienne", "q_title_percent", "bad_url"),
    ],
)
def test_what_is_left_to_commons_is_mended_there(
    path: str, name: str, found: str, captures: Path
) -> None:
    capture = load(captures / "wikibase-1.39" / f"{name}.json")
    title = title_of_url(f"https://commons.wikimedia.org/wiki/{path}")
    assert title is not None
    assert title.replace("_", " ") == capture["request"]["params"]["titles"].replace("_", " ")
    page = read_pages(capture["response"]["json"], [title])[title]
    assert (page.item_id or page.reason) == found


def test_a_title_in_other_accents_is_accounted_for(captures: Path) -> None:
    capture = load(captures / "wikibase-1.39" / "q_title_nfd.json")
    asked = "Category:E\u0301glise Saint-E\u0301tienne"
    assert read_pages(capture["response"]["json"], [asked, "B"])[asked].item_id == "Q910001"


def test_an_empty_title_between_two_takes_nothing_from_them(captures: Path) -> None:
    document = load(captures / "wikibase-1.39" / "q_title_empty_between.json")["response"]["json"]
    titles = ["Category:Eiffel Tower", "Category:A & B"]
    assert [page.item_id for page in read_pages(document, titles).values()] == ["Q243", "Q910010"]


def test_an_unfinished_answer_accounts_for_nothing(captures: Path) -> None:
    capture = load(captures / "wikibase-1.39" / "truncated_query.json")
    titles = capture["request"]["params"]["titles"].split("|")
    assert read_pages(capture["response"]["json"], titles) == {}


def test_a_truncated_answer_accounts_for_what_it_holds(captures: Path) -> None:
    for name in ("truncated_wbgetentities", "truncated_wbgetentities_fv2"):
        document = entities(captures / "wikibase-1.39" / f"{name}.json")
        ids = [f"Q{920_000 + i}" for i in range(50)]
        assert len(read_items(document, ids)) == 28


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wb_claims_no_p31", "no_p31"),
        ("wb_claims_somevalue", "unknown_value"),
        ("wb_claims_novalue", "unknown_value"),
        ("wb_claims_only_deprecated", "only_deprecated"),
        ("wb_claims_two_p31", ""),
        ("wb_claims_qualifiers", ""),
        ("wb_claims_category_item", ""),
    ],
)
def test_why_a_captured_item_has_no_class(name: str, reason: str, captures: Path) -> None:
    document = entities(captures / "wikibase-1.39" / f"{name}.json")
    (item,) = read_items(document, list(document["entities"])).values()
    assert judge_item(item) == reason


def test_a_captured_category_item_leads_to_its_topic(captures: Path) -> None:
    document = entities(captures / "wikibase-1.39" / "wb_claims_category_item.json")
    (item,) = read_items(document, list(document["entities"])).values()
    assert item.is_category
    assert item.topic_id.startswith("Q")


def test_captured_qualifiers_keep_their_dates(captures: Path) -> None:
    document = entities(captures / "wikibase-1.39" / "wb_claims_qualifiers.json")
    (item,) = read_items(document, ["Q910001"]).values()
    qualifiers = json.loads(item.statements[0].qualifiers)
    assert qualifiers["P580"][0]["time"] == "+1172-00-00T00:00:00Z"
    assert qualifiers["P582"][0]["time"] == "+1954-00-00T00:00:00Z"


def test_a_captured_redirected_item_keeps_its_own_id(captures: Path) -> None:
    document = load(captures / "wikibase-1.39" / "wb_redirected_id.json")["response"]["json"]
    item = read_items(document, ["Q910016"])["Q910016"]
    assert (item.item_id, item.revision, item.best[0].class_id) == ("Q910014", 48, "Q23397")


def test_captured_labels_fall_back_to_the_id(captures: Path) -> None:
    document = load(captures / "wikibase-1.39" / "wb_labels_no_en.json")["response"]["json"]
    classes = read_classes(document, ["Q12280", "Q900001"])
    assert [c.label for c in classes.values()] == ["bridge", "Q900001"]


@pytest.mark.parametrize(
    ("name", "best"),
    [
        ("dahlia_Q8646_HongKong", ["Q779415", "Q515"]),
        ("dahlia_Q33281", None),
        ("pywikibot_Q60.wd", ["Q1637706", "Q200250", "Q208511", "Q15063611"]),
    ],
)
def test_the_best_statements_of_recorded_items(
    name: str, best: list[str] | None, captures: Path
) -> None:
    document = load(captures / "recorded" / f"{name}.json")
    entity = next(iter(document.get("entities", {"": document}).values()))
    whole = {"id": "Q0", "lastrevid": 1, **entity}
    (item,) = read_items({"entities": {whole["id"]: whole}}, [whole["id"]]).values()
    found = [s.class_id for s in item.best]
    assert found == best if best else len(found) == 2


def test_a_captured_soft_redirect_is_found_and_leads_to_its_target(captures: Path) -> None:
    document = load(captures / "wikibase-1.39" / "q_softredirect_detect.json")["response"]["json"]
    titles = ["Category:Old name", "Category:New name"]
    pages = read_pages(document, titles)
    assert [(pages[t].item_id, pages[t].moved_softly) for t in titles] == [
        ("", True),
        ("Q910014", False),
    ]
    assert read_redirects(document, titles)["Category:Old name"].target == "Category:New name"


def test_captured_fallback_labels_are_taken(captures: Path) -> None:
    for name in ("wb_lang_fallback", "wb_labels_no_en_fallback"):
        document = load(captures / "wikibase-1.39" / f"{name}.json")["response"]["json"]
        classes = read_classes(document, ["Q12280", "Q900001"])
        assert [c.label for c in classes.values()] == ["bridge", "Q900001"]
