"""From known facts to the two tables: each landmark ends with statements or with one reason."""

from collections.abc import Mapping

import pandas as pd

from hgld.hierarchy.scrape.accounts import Accounts
from hgld.hierarchy.scrape.answers import WikiClass
from hgld.hierarchy.scrape.crawl import AT_ONCE, in_parts
from hgld.hierarchy.scrape.facts import Facts
from hgld.hierarchy.scrape.route import Ending, follow
from hgld.hierarchy.scrape.rows import Rows
from hgld.hierarchy.scrape.titles import title_of_url

__all__ = ["settle"]


def settle(
    landmarks: pd.DataFrame, facts: Facts, classes: Mapping[str, WikiClass], follow_topics: bool
) -> tuple[Accounts, pd.DataFrame, pd.DataFrame]:
    """Accounts, ``instance_of`` and ``misses``, once everything is known that is needed."""
    accounts, rows = Accounts(), Rows(classes)
    cells = (landmarks[name] for name in ("split", "landmark_id", "commons_url"))
    for some in in_parts(zip(*cells, strict=True), AT_ONCE):
        facts.preload({title_of_url(url) or "" for _, _, url in some} - {""})
        for split, landmark_id, url in some:
            ending = _ending(url, facts, follow_topics)
            accounts.add(ending)
            rows.add(split, landmark_id, ending)
    accounts.require_all(len(landmarks))
    return accounts, rows.table("instance_of"), rows.table("misses")


def _ending(url: str, facts: Facts, follow_topics: bool) -> Ending:
    title = title_of_url(url)
    if title is None:
        return Ending(reason="bad_url", detail=f"not the URL of a Commons page: {url!r}")
    ending = follow(title, facts, follow_topics)
    assert isinstance(ending, Ending)
    return ending
