"""Asking again: what was missed, what has become old, and what a stop left undone."""

import sqlite3
import time
from typing import Any

import pytest

from hgld.config import StageContext
from hgld.errors import Resumable
from tests.hierarchy.scraping import landmarks, scraped
from tests.hierarchy.small_wiki import Fault, Wiki, statement
from tests.listening import heard

NAMES = ["Church", "Gone", "Bare", "Silent", "Category", "Soft", "Bad[title]"]


@pytest.fixture
def world(wiki: Wiki) -> Wiki:
    """A wiki in which only the church has a class as yet."""
    wiki.items_of = {
        "Category:Church": "Q1",
        "Category:Bare": "",
        "Category:Silent": "Q3",
        "Category:Category": "Q4",
    }
    wiki.moved_softly("Category:Soft", "Category:Bare")
    wiki.item("Q1", "Q16970")
    wiki.item("Q3")
    wiki.item("Q4", "Q4167836", P301=[statement("Q3")])
    wiki.label("Q16970", "church building")
    return wiki


def outcome(wiki: Wiki, context: StageContext, **more: Any) -> dict[str, str]:
    """Each landmark's label or reason, by name."""
    instance_of, misses = scraped(wiki, landmarks(*NAMES), context, **more)
    found = dict(zip(instance_of["landmark_id"], instance_of["instance_of"], strict=True))
    found |= dict(zip(misses["landmark_id"], misses["reason"], strict=True))
    return {name: found[i] for i, name in enumerate(NAMES)}


def asked(wiki: Wiki) -> set[str]:
    """All titles and ids that the wiki was asked for since the last look."""
    found = {key for q in wiki.asked for key in (q.get("titles") or q["ids"]).split("|")}
    wiki.asked.clear()
    return found


FIRST = {
    "Church": "church building",
    "Gone": "no_page",
    "Bare": "no_item",
    "Silent": "no_p31",
    "Category": "no_p31",
    "Soft": "no_item",
    "Bad[title]": "bad_url",
}


def test_misses_are_asked_for_again_and_nothing_else(world: Wiki, context: StageContext) -> None:
    assert outcome(world, context) == FIRST
    asked(world)
    world.items_of |= {"Category:Gone": "Q1", "Category:Bare": "Q1"}
    world.item("Q3", "Q16970")
    again = outcome(world, context, retry="misses")
    assert again == {**dict.fromkeys(NAMES, "church building"), "Bad[title]": "bad_url"}
    assert asked(world) == {
        *(f"Category:{n}" for n in ("Gone", "Bare", "Silent", "Category", "Soft")), "Q3", "Q4"
    }  # fmt: skip


def test_a_plain_scrape_asks_for_no_miss_again(world: Wiki, context: StageContext) -> None:
    outcome(world, context)
    asked(world)
    world.items_of["Category:Gone"] = "Q1"
    assert outcome(world, context) == FIRST
    assert asked(world) == set()


def make_older(context: StageContext, days: int) -> None:
    """Have all facts of items retrieved so many days ago."""
    connection = sqlite3.connect(context.state / "scrape.sqlite")
    then = int(time.time()) - days * 86400
    connection.execute("UPDATE facts SET retrieved = ? WHERE kind = 'Item'", (then,))
    connection.commit()
    connection.close()


def test_what_is_older_than_so_many_days_is_asked_for_again(
    world: Wiki, context: StageContext
) -> None:
    outcome(world, context)
    make_older(context, 31)
    asked(world)
    assert outcome(world, context, refresh_older_than=40) == FIRST
    assert asked(world) == set()
    world.item("Q3", "Q16970")
    again = outcome(world, context, refresh_older_than=30)
    assert (again["Silent"], again["Gone"]) == ("church building", "no_page")
    assert asked(world) == {"Q1", "Q3", "Q4"}


@pytest.mark.parametrize("retry", ["misses", ""])
def test_a_refresh_that_was_stopped_goes_on_and_starts_no_second_one(
    retry: str, world: Wiki, context: StageContext
) -> None:
    outcome(world, context)
    asked(world)
    world.items_of["Category:Gone"] = "Q1"
    world.faults = [Fault(429, "", {"Retry-After": "9000"})]
    with pytest.raises(Resumable):
        outcome(world, context, retry="misses", batch_size=2)
    first = asked(world)
    with heard() as said:
        assert outcome(world, context, retry=retry)["Gone"] == "church building"
    assert said[0] == "a refresh that was stopped on the way goes on"
    assert first and "Category:Church" not in asked(world)


def test_what_is_learnt_again_is_dated_anew(world: Wiki, context: StageContext) -> None:
    outcome(world, context)
    make_older(context, 31)
    outcome(world, context, refresh_older_than=30)
    connection = sqlite3.connect(context.state / "scrape.sqlite")
    oldest = connection.execute("SELECT min(retrieved) FROM facts").fetchone()[0]
    connection.close()
    assert time.time() - oldest < 60
