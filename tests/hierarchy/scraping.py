"""Landmarks for a scrape, and the scrape of them from a small wiki."""

from typing import Any

import pandas as pd

from hgld.artifacts import table_of
from hgld.config import ScrapeOptions, StageContext
from hgld.hierarchy.scrape.wikimedia import scrape
from tests.hierarchy.small_wiki import Wiki, statement

COMMONS = "http://commons.wikimedia.org/wiki/"
Tables = tuple[pd.DataFrame, pd.DataFrame]


def landmarks(*names: str, split: str = "train") -> pd.DataFrame:
    rows = [
        {"split": split, "landmark_id": i, "name": n, "commons_url": f"{COMMONS}Category:{n}"}
        for i, n in enumerate(names)
    ]
    return table_of("landmarks", rows)


def options(wiki: Wiki, **more: Any) -> ScrapeOptions:
    return ScrapeOptions(
        commons_api=wiki.url, wikidata_api=wiki.url, contact="someone@example.org", **more
    )


def scraped(wiki: Wiki, table: pd.DataFrame, context: StageContext, **more: Any) -> Tables:
    return scrape(table, options=options(wiki, **more), context=context)


def big_world(wiki: Wiki, size: int) -> pd.DataFrame:
    """Landmarks of which every third has no page and every fifth is a category item."""
    for i in range(size):
        if i % 3:
            wiki.items_of[f"Category:L{i}"] = f"Q{i + 1}"
            wiki.item(f"Q{i + 1}", f"Q{100_000 + i % 7}")
        if i % 5 == 0:
            topic = [statement(f"Q{i + 5001}")]
            wiki.item(f"Q{i + 1}", "Q4167836", P301=topic)
            wiki.item(f"Q{i + 5001}", f"Q{100_000 + i % 7}")
    for c in range(7):
        wiki.label(f"Q{100_000 + c}", f"class {c}")
    return landmarks(*(f"L{i}" for i in range(size)))
