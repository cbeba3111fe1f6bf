"""The four questions that the scrape asks Commons and Wikidata, each for up to 50 keys at once.

Pages come with whether they are soft redirects, so that these cost no further question; the
text is asked only of those that are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hgld.config import ScrapeOptions
from hgld.hierarchy.scrape.answers import (
    LANGUAGES,
    SOFT_REDIRECTS,
    Item,
    Page,
    WikiClass,
    read_classes,
    read_items,
    read_pages,
)
from hgld.hierarchy.scrape.client import ApiClient, TooMuchAsked
from hgld.hierarchy.scrape.redirects import Redirect, read_redirects
from hgld.hierarchy.scrape.route import Fact

__all__ = ["ask_entities", "ask_for"]

PAGES = {
    "prop": "pageprops|categories",
    "ppprop": "wikibase_item",
    "clcategories": SOFT_REDIRECTS,
    "cllimit": "max",
    "redirects": "1",
}
REDIRECTS = {
    "prop": "revisions|links",
    "rvprop": "content",
    "rvslots": "main",
    "plnamespace": "14",
    "pllimit": "max",
    "redirects": "1",
}
ITEMS = {"props": "info|claims"}
CLASSES = {"props": "info|labels", "languages": "|".join(LANGUAGES), "languagefallback": "1"}


def ask_for(
    kind: type[Fact], keys: Sequence[str], client: ApiClient, options: ScrapeOptions
) -> Mapping[str, Fact]:
    """A fact of that kind for every key; the batch is split where the server does not manage it.

    Raises:
        Resumable: the server cannot be reached now, or does not account for a key.
        HgldError: the server refuses.
    """

    def ask_commons(titles: Sequence[str]) -> Mapping[str, Any]:
        question = PAGES if kind is Page else REDIRECTS
        parameters = {**question, "titles": "|".join(titles)}
        may_split = len(titles) > 1
        return client.ask(options.commons_api, "query", parameters, may_split=may_split)

    def ask_wikidata(ids: Sequence[str]) -> Mapping[str, Any]:
        question = ITEMS if kind is Item else CLASSES
        return ask_entities(options.wikidata_api, ids, question, client)

    if kind is Page:
        return client.fetch_batch(keys, ask_commons, read_pages)
    if kind is Redirect:
        return client.fetch_batch(keys, ask_commons, read_redirects)
    if kind is Item:
        return client.fetch_batch(keys, ask_wikidata, read_items)
    assert kind is WikiClass
    return client.fetch_batch(keys, ask_wikidata, read_classes)


def ask_entities(
    url: str, ids: Sequence[str], question: Mapping[str, str], client: ApiClient
) -> Mapping[str, Any]:
    """The answer to one ``wbgetentities``; an id that Wikidata cannot have is a missing entity.

    Raises:
        TooMuchAsked: the same would be answered in smaller parts.
    """
    parameters = {**question, "ids": "|".join(ids)}
    try:
        return client.ask(url, "wbgetentities", parameters, may_split=len(ids) > 1)
    except TooMuchAsked as error:
        if error.code != "no-such-entity" or len(ids) > 1:
            raise
        return {"entities": {ids[0]: {"id": ids[0], "missing": ""}}}
