"""How many requests a scrape needs, counted by a server, in the shares that are foreseen at full
size: 36 % of the landmarks without item, 5 % items of categories, 1 % soft redirects, 10 % several
values, some 6,000 classes."""

import random

import pandas as pd
import pytest

from hgld.config import StageContext
from hgld.hierarchy.scrape.answers import WikiClass
from hgld.hierarchy.scrape.client import ApiClient
from hgld.hierarchy.scrape.store import FactStore, open_store
from hgld.hierarchy.scrape.wikimedia import scrape_with
from tests.hierarchy.scraping import landmarks, options, scraped
from tests.hierarchy.small_wiki import Wiki, statement
from tests.listening import heard

FULL_SIZE = 203_094
AT_MOST = 9_000
PART = 50  # of the full size


@pytest.fixture
def part(wiki: Wiki) -> pd.DataFrame:
    """A fiftieth of the train landmarks, and a wiki that knows them in those shares."""
    size, classes = FULL_SIZE // PART, 6_000 // PART
    for i in range(size):
        title = f"Category:L{i}"
        if i % 100 < 18:
            continue  # no page
        wiki.items_of[title] = "" if i % 100 < 36 else f"Q{i + 1}"
        several = [f"Q{9_000_000 + (i + k) % classes}" for k in range(2 if i % 10 == 9 else 1)]
        wiki.item(f"Q{i + 1}", *several)
        if 40 <= i % 100 < 45:
            wiki.item(f"Q{i + 1}", "Q4167836", P301=[statement(f"Q{1_000_000 + i}")])
            wiki.item(f"Q{1_000_000 + i}", *several)
        if i % 100 == 50:
            wiki.moved_softly(title, f"Category:L{i} (renamed)")
            wiki.items_of[f"Category:L{i} (renamed)"] = f"Q{i + 1}"
    for number in range(classes):
        wiki.label(f"Q{9_000_000 + number}", f"class {number}")
    names = [f"L{i}" for i in range(size)]
    random.Random(0).shuffle(names)
    return landmarks(*names)


def test_the_full_size_stays_below_its_number_of_requests(
    wiki: Wiki, part: pd.DataFrame, context: StageContext
) -> None:
    with heard() as said:
        instance_of, misses = scraped(wiki, part, context)
    labelled = instance_of["landmark_id"].nunique()
    assert labelled + len(misses) == len(part)
    assert 0.63 < labelled / len(part) < 0.65
    assert len(wiki.asked) * PART < AT_MOST
    foreseen = int(said[0].split("about ")[1].split(" ")[0])
    assert abs(foreseen - len(wiki.asked)) < 0.1 * len(wiki.asked)


def test_the_labels_of_classes_are_looked_up_together(
    wiki: Wiki, context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        wiki.items_of[f"Category:L{number}"] = f"Q{number + 1}"
        wiki.item(f"Q{number + 1}", f"Q{9_000 + number}")
        wiki.label(f"Q{9_000 + number}", f"class {number}")
    kinds, load = [], FactStore.load
    monkeypatch.setattr(FactStore, "load", lambda *a: kinds.append(a[1]) or load(*a))
    table = landmarks(*(f"L{number}" for number in range(20)))
    with ApiClient(options(wiki)) as client, open_store(context.state / "s.sqlite", "w") as store:
        found, _ = scrape_with(client, store, table, options(wiki))
    assert len(found) == 20 and kinds.count(WikiClass) == 2  # before it asks, and after
