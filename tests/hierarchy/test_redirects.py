from typing import Any

import pytest

from hgld.hierarchy.scrape.route import Redirect, read_redirects, target_of_text


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("{{Category redirect|New name}}", "New name"),
        ("{{category redirect|1=New name}}", "New name"),
        ("{{Category redirect|reason=moved|New name}}", "New name"),
        ("{{Cat redirect|Category:New_name}}", "New name"),
        ("{{Catredirect|:category:new name}}", "New name"),
        ("{{seecat|New name}}", "New name"),
        ("{{Redirect category|[[:Category:New name]]}}", "New name"),
        ("{{Template:Category redirect | New  name }}", "New name"),
        ("text before\n{{Category redirect|\n1 = New name\n}}\nand after", "New name"),
        ("{{Category redirect|New name<!-- since 2012 -->}}", "New name"),
        ("<!-- {{Category redirect|Old}} -->{{Category redirect|New name}}", "New name"),
        ("{{Category redirect|Église d'Été}}", "Église d'Été"),
        ("{{Category redirect|ßigna}}", "ßigna"),  # as MediaWiki stores it: SS are two letters
        ("{{Category redirect|A + B = C}}", ""),  # MediaWiki, too, takes it for a named one
        ("{{Category redirect|1=A + B = C}}", "A + B = C"),
        ("{{Category redirect}}", ""),
        ("{{Category redirect|}}", ""),
        ("{{Category redirect|Bad[title}}", ""),
        ("{{Category disambiguation|New name}}", ""),
        ("", ""),
    ],
)
def test_the_target_is_the_templates_first_parameter(text: str, target: str) -> None:
    assert target_of_text(text) == (f"Category:{target}" if target else "")


def page(title: str, text: str = "", *links: str) -> dict[str, Any]:
    found = [{"ns": 14, "title": link} for link in links]
    return {
        "pageid": 1,
        "title": title,
        "revisions": [{"slots": {"main": {"content": text}}}],
        "links": found,
    }


def document(*pages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"batchcomplete": True, "query": {"pages": list(pages)}, **more}


def test_a_template_of_another_name_is_helped_by_the_only_link() -> None:
    found = read_redirects(document(page("A", "{{Umleitung|B}}", "Category:B")), ["A"])
    assert found == {"A": Redirect("Category:B")}


@pytest.mark.parametrize("links", [(), ("Category:B", "Category:C")])
def test_without_a_known_template_and_one_link_there_is_no_target(links: tuple[str, ...]) -> None:
    assert read_redirects(document(page("A", "{{Umleitung|B}}", *links)), ["A"])["A"].target == ""


def test_an_unfinished_answer_accounts_only_for_what_its_texts_say() -> None:
    pages = [page("A", "{{Category redirect|B}}"), page("C", "{{Umleitung|D}}")]
    unfinished = {"continue": {"plcontinue": "1"}, "query": {"pages": pages}}
    assert read_redirects(unfinished, ["A", "C"]) == {"A": Redirect("Category:B")}
    assert read_redirects(unfinished, ["C"]) == {"C": Redirect("")}  # too many links to be one


def test_a_page_that_has_gone_meanwhile_has_no_target() -> None:
    gone = {"ns": 14, "title": "A", "missing": True}
    assert read_redirects(document(gone, page("B")), ["A", "B"])["A"] == Redirect("")


@pytest.mark.parametrize(
    "damaged",
    [
        {"pageid": 1, "title": "A", "pageprops": {"wikibase_item": "Q1"}},  # another question's
        {"pageid": 1, "title": "A", "revisions": []},
        {"pageid": 1, "title": "A", "revisions": [{"slots": {"main": {"content": None}}}]},
        {"pageid": 1, "title": "A", "revisions": [{"slots": []}]},
    ],
)
def test_a_damaged_page_is_left_out(damaged: dict[str, Any]) -> None:
    assert read_redirects(document(damaged, page("B")), ["A", "B"]).keys() == {"B"}


@pytest.mark.parametrize("text", ["<!--" * 250_000, "{{" + " " * 10**6, "{{cat redirect|" * 70_000])
def test_a_hostile_text_is_read_in_linear_time(text: str) -> None:
    assert target_of_text(text) == ""
