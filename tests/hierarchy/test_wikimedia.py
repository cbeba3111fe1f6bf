import json
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pytest

from hgld.artifacts import columns_of, records
from hgld.config import ScrapeOptions, StageContext
from hgld.errors import UsageError
from hgld.hierarchy.scrape.client import ApiClient
from hgld.hierarchy.scrape.store import open_store
from hgld.hierarchy.scrape.wikimedia import scrape, scrape_with
from tests.hierarchy.scraping import big_world, landmarks, options, scraped
from tests.hierarchy.small_wiki import Fault, Wiki, serve, statement


def reason_of(wiki: Wiki, name: str, context: StageContext) -> str:
    instance_of, misses = scraped(wiki, landmarks(name), context)
    assert len(instance_of) == 0
    assert len(misses) == 1
    return str(misses["reason"].iloc[0])


@pytest.fixture
def church(wiki: Wiki) -> Wiki:
    """A wiki with one page, whose item is a church."""
    wiki.items_of["Category:St Mary"] = "Q1"
    wiki.item("Q1", "Q16970")
    wiki.label("Q16970", "church building")
    return wiki


def test_a_landmark_gets_the_statement_of_its_item(church: Wiki, context: StageContext) -> None:
    instance_of, misses = scraped(church, landmarks("St_Mary"), context)
    assert list(instance_of.columns) == columns_of("instance_of")
    assert records(instance_of) == [
        {
            "split": "train",
            "landmark_id": 0,
            "item_id": "Q1",
            "revision": 1000,
            "order": 0,
            "class_id": "Q16970",
            "instance_of": "church building",
            "rank": "normal",
            "qualifiers": "{}",
        }
    ]
    assert len(misses) == 0


def test_without_a_contact_nothing_is_asked(church: Wiki, context: StageContext) -> None:
    bare = options(church).model_copy(update={"contact": ""})
    with pytest.raises(UsageError, match=r"set scrape\.contact"):
        scrape(landmarks("St_Mary"), options=bare, context=context)
    assert church.asked == []


def test_all_statements_are_kept_but_for_those_without_value(
    church: Wiki, context: StageContext
) -> None:
    claims = [statement("Q5", "deprecated"), statement(""), statement("Q16970", "preferred")]
    church.item("Q1", P31=claims)
    instance_of, _ = scraped(church, landmarks("St_Mary"), context)
    found = instance_of[["order", "class_id", "rank"]].to_numpy().tolist()
    assert found == [[0, "Q5", "deprecated"], [2, "Q16970", "preferred"]]


def test_a_class_without_label_is_named_by_its_id(church: Wiki, context: StageContext) -> None:
    church.item("Q1", "Q77")
    instance_of, _ = scraped(church, landmarks("St_Mary"), context)
    assert instance_of["instance_of"].tolist() == ["Q77"]


def test_a_category_item_is_left_for_its_topic(church: Wiki, context: StageContext) -> None:
    church.items_of["Category:Tower"] = "Q10"
    church.item("Q10", "Q4167836", P301=[statement("Q1")])
    instance_of, _ = scraped(church, landmarks("Tower"), context)
    assert instance_of[["item_id", "instance_of"]].to_numpy().tolist() == [
        ["Q1", "church building"]
    ]


def test_redirects_are_followed(church: Wiki, context: StageContext) -> None:
    church.redirects["Category:Old"] = "Category:St Mary"
    instance_of, _ = scraped(church, landmarks("Old"), context)
    assert instance_of["item_id"].tolist() == ["Q1"]


def test_soft_redirects_are_followed_also_over_hard_ones(
    church: Wiki, context: StageContext
) -> None:
    church.redirects["Category:Old"] = "Category:St Mary"
    church.moved_softly("Category:Older", "Category:Old")
    church.moved_softly("Category:Oldest", "Category:Older")
    instance_of, misses = scraped(church, landmarks("Oldest", "Older", "Old"), context)
    assert instance_of["item_id"].tolist() == ["Q1", "Q1", "Q1"]
    assert len(misses) == 0


def test_the_hop_to_the_topic_can_be_left_out(church: Wiki, context: StageContext) -> None:
    church.items_of["Category:Tower"] = "Q10"
    church.item("Q10", "Q4167836", P301=[statement("Q1")])
    church.label("Q4167836", "Wikimedia category")
    instance_of, _ = scraped(church, landmarks("Tower"), context, follow_topics=False)
    assert instance_of[["item_id", "instance_of"]].to_numpy().tolist() == [
        ["Q10", "Wikimedia category"]
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Nope", "no_page"),
        ("Bare", "no_item"),
        ("Deleted", "no_item"),
        ("Bad[title]", "bad_url"),
        ("A%7CB", "bad_url"),
        ("Round", "redirect_loop"),
        ("Softly_round", "redirect_loop"),
        ("Softly_bare", "no_item"),
        ("Softly_nowhere", "no_page"),
        ("Softly_silent", "no_p31"),
        ("Silent", "no_p31"),
        ("Outdated", "only_deprecated"),
        ("Unknown", "unknown_value"),
        ("Category_only", "category_without_topic"),
        ("Category_of_category", "category_without_topic"),
        ("Silent_topic", "no_p31"),
        ("Deleted_topic", "no_item"),
    ],
)
def test_a_landmark_without_value_has_one_reason(
    name: str, reason: str, wiki: Wiki, context: StageContext
) -> None:
    names = ["Silent", "Outdated", "Unknown", "Category only", "Category of category"]
    items = {n: f"Q{i}" for i, n in enumerate([*names, "Silent topic", "Deleted topic"], 1)}
    wiki.items_of = {f"Category:{n}": i for n, i in items.items()}
    wiki.items_of |= {"Category:Bare": "", "Category:Deleted": "Q99"}
    wiki.moved_softly("Category:Softly round", "Category:Softly about")
    wiki.moved_softly("Category:Softly about", "Category:Softly round")
    wiki.moved_softly("Category:Softly bare", "Category:Bare")
    wiki.moved_softly("Category:Softly nowhere", "Category:Nope")
    wiki.moved_softly("Category:Softly silent", "Category:Silent")
    wiki.redirects = {"Category:Round": "Category:Trip", "Category:Trip": "Category:Round"}
    wiki.item("Q1")
    wiki.item("Q2", P31=[statement("Q5", "deprecated")])
    wiki.item("Q3", "")
    wiki.item("Q4", "Q4167836")
    wiki.item("Q5", "Q4167836", P301=[statement("Q4")])
    wiki.item("Q6", "Q4167836", P301=[statement("Q1")])
    wiki.item("Q7", "Q4167836", P301=[statement("Q99")])
    assert reason_of(wiki, name, context) == reason


@pytest.mark.parametrize("url", ["", "unknown", "http://example.org/wiki/Category:A"])
def test_a_url_that_is_no_page_is_not_asked_for(
    url: str, wiki: Wiki, context: StageContext
) -> None:
    _, misses = scraped(wiki, landmarks("A").assign(commons_url=url), context)
    assert misses["reason"].tolist() == ["bad_url"]
    assert wiki.asked == []


def test_train_and_index_share_one_question_a_title(church: Wiki, context: StageContext) -> None:
    both = pd.concat([landmarks("St_Mary"), landmarks("St_Mary", "St_Mary", split="index")])
    instance_of, _ = scraped(church, both, context)
    assert instance_of["split"].tolist() == ["train", "index", "index"]
    assert church.asked[0]["titles"] == "Category:St Mary"


def test_every_landmark_ends_in_exactly_one_table(wiki: Wiki, context: StageContext) -> None:
    table = big_world(wiki, 180)
    instance_of, misses = scraped(wiki, table, context)
    assert set(misses["landmark_id"]) == set(range(0, 180, 3))
    assert set(instance_of["landmark_id"]) == {i for i in range(180) if i % 3}
    assert set(instance_of["instance_of"]) == {f"class {c}" for c in range(7)}
    assert len(wiki.asked) == 4 + 3 + 1 + 1  # 180 titles, 120 items, 24 topics, 7 labels


def test_truncated_results_change_nothing(wiki: Wiki, context: StageContext) -> None:
    table = big_world(wiki, 60)
    whole, _ = scraped(wiki, table, context)
    wiki.most_entities = 13
    state = context.state / "another"
    again = StageContext(context.now, state, context.source, context.labels)
    pd.testing.assert_frame_equal(scraped(wiki, table, again)[0], whole)


def test_smaller_batches_give_the_same_tables(wiki: Wiki, context: StageContext) -> None:
    table = big_world(wiki, 30)
    whole = scraped(wiki, table, context)
    again = StageContext(context.now, context.state / "b", context.source, context.labels)
    for one, other in zip(whole, scraped(wiki, table, again, batch_size=4), strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_a_second_scrape_asks_nothing_again(wiki: Wiki, context: StageContext) -> None:
    table = big_world(wiki, 60)
    first = scraped(wiki, table, context)
    asked = len(wiki.asked)
    second = scraped(wiki, table, context)
    assert len(wiki.asked) == asked
    for one, other in zip(first, second, strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_another_world_on_the_same_machine_is_scraped_anew(
    church: Wiki, context: StageContext
) -> None:
    scraped(church, landmarks("St_Mary"), context)
    church.item("Q1", "Q77")
    instance_of, _ = scraped(church, landmarks("St_Mary", "Nope"), context)
    assert instance_of["instance_of"].tolist() == ["Q77"]


def test_an_id_that_cannot_be_spoils_no_batch(church: Wiki, context: StageContext) -> None:
    church.items_of["Category:Tower"] = "Q10"
    church.item("Q10", "Q4167836", P301=[statement("Q99999999999")])
    church.items_of["Category:Other"] = "Q11"
    church.item("Q11", "Q4167836", P301=[statement("Q1")])
    instance_of, misses = scraped(church, landmarks("Tower", "Other", "St_Mary"), context)
    assert instance_of["landmark_id"].tolist() == [1, 2]
    assert misses[["landmark_id", "reason", "detail"]].to_numpy().tolist() == [
        [0, "no_item", "item Q10, topic Q99999999999"]
    ]


@pytest.mark.parametrize("damage", ['{"id": "Q1"}', '{"claims": {"P31": [{}]}}', "null", "[]"])
def test_a_damaged_entity_is_asked_for_again_and_never_kept(
    damage: str, church: Wiki, context: StageContext
) -> None:
    church.faults = [Fault(0), Fault(200, f'{{"entities": {{"Q1": {damage}}}, "success": 1}}')]
    instance_of, _ = scraped(church, landmarks("St_Mary"), context)
    assert instance_of["instance_of"].tolist() == ["church building"]


def test_faults_on_the_way_change_nothing(church: Wiki, context: StageContext) -> None:
    lag = json.dumps({"error": {"code": "maxlag", "info": "Waiting"}})
    church.faults = [Fault(200, "<html>"), Fault(200, lag, {"Retry-After": "0"})]
    instance_of, misses = scraped(church, landmarks("St_Mary", "Nope"), context)
    assert instance_of["instance_of"].tolist() == ["church building"]
    assert misses["reason"].tolist() == ["no_page"]


@dataclass
class Replaying(Wiki):
    """A wiki behind a cache that answers every third request with its last answer but one."""

    answers: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, question: dict[str, str]) -> dict[str, Any]:
        self.answers.append(super().answer(question))
        replays = len(self.answers) % 3 == 0
        return self.answers[-3] if replays else self.answers[-1]


@pytest.mark.parametrize("batch_size", [1, 7])
def test_replayed_answers_are_asked_again_and_change_nothing(
    batch_size: int, context: StageContext
) -> None:
    plain, replaying = Wiki(), Replaying()
    table = big_world(plain, 20)
    big_world(replaying, 20)
    with serve(plain):
        expected = scraped(plain, table, context)
    with (
        serve(replaying),
        ApiClient(ScrapeOptions(contact="someone@example.org"), sleep=lambda _: None) as client,
        open_store(context.state / "other.sqlite", "wiki") as store,
    ):
        chosen = options(replaying, batch_size=batch_size)
        found = scrape_with(client, store, table, chosen)
    for table_found, table_expected in zip(found, expected, strict=True):
        pd.testing.assert_frame_equal(table_found, table_expected)
