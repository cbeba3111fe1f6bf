"""Ask Commons and Wikidata for what the landmarks' titles lead to, in full batches.

Each title is followed as far as the facts go and then waits for the fact it needs next. As soon as
50 facts of a kind are waited for, they are asked for; items before titles, so that landmarks get
done all along the way and few are under way when the scrape is stopped. Only at the very end are
batches sent that are not full.

There are four questions, each for up to 50 keys. Pages come with whether they are soft redirects;
the text is requested only of those that are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

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
from hgld.hierarchy.scrape.client import ApiClient, Read, TooMuchAsked
from hgld.hierarchy.scrape.route import Ending, Fact, NextQuestion, Redirect, follow, read_redirects
from hgld.hierarchy.scrape.store import Facts

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
QUESTIONS: Mapping[type[Fact], tuple[Mapping[str, str], Read[Any]]] = {
    Page: (PAGES, read_pages),
    Redirect: (REDIRECTS, read_redirects),
    Item: (ITEMS, read_items),
    WikiClass: (CLASSES, read_classes),
}
AT_ONCE = 1000  # titles that are looked up together
FROM_DEEPEST: tuple[type[Fact], ...] = (Item, Redirect, Page)
Ask = Callable[[type[Fact], Sequence[str]], Mapping[str, Fact]]
Thing = TypeVar("Thing")


def ask_for(
    kind: type[Fact], keys: Sequence[str], client: ApiClient, options: ScrapeOptions
) -> Mapping[str, Fact]:
    """A fact of that kind for every key; the batch is split where the server does not manage it.

    Raises:
        Resumable: the server cannot be reached now, or does not account for a key.
        HgldError: the server refuses.
    """
    question, read = QUESTIONS[kind]

    def ask(some: Sequence[str]) -> Mapping[str, Any]:
        if kind in (Item, WikiClass):
            return ask_entities(options.wikidata_api, question, client, some)
        parameters = {**question, "titles": "|".join(some)}
        return client.ask(options.commons_api, "query", parameters, may_split=len(some) > 1)

    return client.fetch_batch(keys, ask, read)


def ask_entities(
    url: str, question: Mapping[str, str], client: ApiClient, ids: Sequence[str]
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


class Crawl:
    """One crawl from titles to items.

    Args:
        facts: what is known; gets what comes in.
        ask: returns a fact of a kind for every key.
        batch_size: keys a question.
        follow_topics: leave the item of a category for its topic.

    Attributes:
        classes: ids of the classes of all items reached so far.
    """

    def __init__(self, facts: Facts, ask: Ask, batch_size: int, follow_topics: bool) -> None:
        self.facts = facts
        self.ask = ask
        self.batch_size = batch_size
        self.follow_topics = follow_topics
        self.classes: set[str] = set()
        self._waiting: dict[type[Fact], dict[str, list[str]]] = {k: {} for k in FROM_DEEPEST}

    def run(self, titles: Sequence[str]) -> Iterator[str]:
        """Ask for all that the titles lead to; yields each title once its end is known."""
        for some in in_parts(titles, AT_ONCE):
            self.facts.preload(some)
            for title in some:
                yield from self._advance(title)
            while full := [k for k in FROM_DEEPEST if len(self._waiting[k]) >= self.batch_size]:
                yield from self._answer(full[0])
        while left := [kind for kind in FROM_DEEPEST if self._waiting[kind]]:
            yield from self._answer(left[-1])

    def _answer(self, kind: type[Fact]) -> Iterator[str]:
        """Ask for one batch and lead on those who waited for it."""
        waiting = self._waiting[kind]
        batch = list(waiting)[: self.batch_size]
        self.facts.add(self.ask(kind, batch))
        for key in batch:
            for title in waiting.pop(key):
                yield from self._advance(title)

    def _advance(self, title: str) -> Iterator[str]:
        ending = follow(title, self.facts, self.follow_topics)
        if isinstance(ending, NextQuestion):
            self._waiting[ending.kind].setdefault(ending.key, []).append(title)
            return
        assert isinstance(ending, Ending)
        self.classes |= {s.class_id for s in ending.item.statements} - {""}
        yield title


def follow_all(
    titles: Iterable[str], facts: Facts, follow_topics: bool
) -> Iterator[tuple[str, Ending | NextQuestion]]:
    """Follow each title as far as the facts go; they are loaded for many titles at once."""
    for some in in_parts(titles, AT_ONCE):
        facts.preload(some)
        for title in some:
            yield title, follow(title, facts, follow_topics)


def in_parts(things: Iterable[Thing], size: int) -> Iterator[list[Thing]]:
    """The things in lists of that size, the last one with what is left.

    Example:
        >>> list(in_parts("abc", 2))
        [['a', 'b'], ['c']]
    """
    rest = iter(things)
    while part := list(islice(rest, size)):
        yield part
