from typing import TypeVar

import pytest

from hgld.hierarchy.scrape.answers import Item, Page, Statement
from hgld.hierarchy.scrape.route import Ending, Fact, NextQuestion, Redirect, follow

SomeFact = TypeVar("SomeFact", bound=Fact)


class Facts:
    """Facts by key; a title may have a page and a redirect."""

    def __init__(self, **facts: Fact | tuple[Fact, ...]) -> None:
        self.facts = facts

    def get(self, kind: type[SomeFact], key: str) -> SomeFact | None:
        found = self.facts.get(key.removeprefix("Category:"), ())
        several = found if isinstance(found, tuple) else (found,)
        return next((fact for fact in several if isinstance(fact, kind)), None)


def item(item_id: str, *classes: str, topic: str = "") -> Item:
    statements = tuple(Statement(i, c, "normal", "{}") for i, c in enumerate(classes))
    return Item(item_id, 7, statements, topic)


def soft(target: str) -> tuple[Page, Redirect]:
    return Page("", "no_item", "", moved_softly=True), Redirect(target)


CHURCH = item("Q1", "Q16970")


def reason(title: str, facts: Facts) -> str:
    ending = follow(title, facts)
    assert isinstance(ending, Ending)
    return ending.reason


def test_a_title_leads_over_its_page_to_its_item() -> None:
    assert follow("A", Facts(A=Page("Q1"), Q1=CHURCH)) == Ending(CHURCH, detail="item Q1")


def test_what_is_not_known_is_wanted_one_after_the_other() -> None:
    assert follow("A", Facts()) == NextQuestion(Page, "A")
    assert follow("A", Facts(A=Page("Q1"))) == NextQuestion(Item, "Q1")
    moved = Page(moved_softly=True)
    assert follow("A", Facts(A=moved)) == NextQuestion(Redirect, "A")
    assert follow("A", Facts(A=soft("Category:B"))) == NextQuestion(Page, "Category:B")
    category = item("Q2", "Q4167836", topic="Q1")
    assert follow("A", Facts(A=Page("Q2"), Q2=category)) == NextQuestion(Item, "Q1")


def test_three_soft_redirects_are_followed_and_a_fourth_is_not() -> None:
    hops = {"A": soft("Category:B"), "B": soft("Category:C"), "C": soft("Category:D")}
    found = follow("A", Facts(**hops, D=Page("Q1"), Q1=CHURCH))
    assert isinstance(found, Ending)
    assert (found.item, found.hops) == (CHURCH, 3)
    longer = Facts(**hops, D=soft("Category:E"), E=Page("Q1"), Q1=CHURCH)
    assert reason("A", longer) == "redirect_loop"


@pytest.mark.parametrize("last", ["Category:A", "Category:B"])
def test_soft_redirects_in_a_circle_are_told_with_the_way(last: str) -> None:
    found = follow("Category:A", Facts(A=soft("Category:B"), B=soft(last)))
    way = f"Category:A > Category:B > {last}"
    assert found == Ending(reason="redirect_loop", detail=way)


def test_a_soft_redirect_to_itself_is_a_circle() -> None:
    assert reason("Category:A", Facts(A=soft("Category:A"))) == "redirect_loop"


def test_a_soft_redirect_without_target_has_no_item() -> None:
    assert reason("A", Facts(A=soft(""))) == "no_item"


def test_a_soft_redirect_ends_with_the_reason_of_its_target() -> None:
    gone = Page(reason="no_page", detail="'Category:B' does not exist")
    found = follow("A", Facts(A=soft("Category:B"), B=gone))
    detail = "A > Category:B: 'Category:B' does not exist"
    assert found == Ending(reason="no_page", detail=detail, hops=1)


def test_the_item_of_a_category_is_left_for_its_topic() -> None:
    facts = Facts(A=Page("Q2"), Q2=item("Q2", "Q4167836", topic="Q1"), Q1=CHURCH)
    found = follow("A", facts)
    assert found == Ending(CHURCH, detail="item Q2, topic Q1", over_topic=True)


def test_the_topic_is_left_alone_where_it_is_not_asked_for() -> None:
    category = item("Q2", "Q4167836", topic="Q1")
    found = follow("A", Facts(A=Page("Q2"), Q2=category), follow_topics=False)
    assert found == Ending(category, detail="item Q2")


@pytest.mark.parametrize("topic", ["", "Q3"])
def test_a_category_without_a_topic_that_is_something_is_told(topic: str) -> None:
    facts = Facts(A=Page("Q2"), Q2=item("Q2", "Q4167836", topic=topic), Q3=item("Q3", "Q4167836"))
    assert reason("A", facts) == "category_without_topic"
