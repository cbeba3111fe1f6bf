"""The store's facts with those in use at hand, so that a long way costs few look-ups.

A fact that is not in the store is remembered as not there until it comes in. What is at hand is
let go of now and then; the store still has it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from hgld.hierarchy.scrape.answers import Item, Page
from hgld.hierarchy.scrape.redirects import Redirect
from hgld.hierarchy.scrape.route import Fact, Known
from hgld.hierarchy.scrape.store import Store

__all__ = ["MOST_AT_HAND", "Facts", "Trail"]

SomeFact = TypeVar("SomeFact", bound=Fact)

MOST_AT_HAND = 20_000


class Facts:
    """What is known so far (``hgld.hierarchy.scrape.route.Known``), and a way to add to it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._at_hand: dict[tuple[type[Any], str], Any] = {}

    def get(self, kind: type[SomeFact], key: str) -> SomeFact | None:
        """The fact of that kind, None where it has yet to be asked for."""
        if (kind, key) not in self._at_hand:
            self._fetch(kind, [key])
        found: SomeFact | None = self._at_hand[kind, key]
        return found

    def preload(self, titles: Iterable[str]) -> None:
        """Take at hand what is known on the way from these titles, in a few look-ups."""
        if len(self._at_hand) > MOST_AT_HAND:
            self._at_hand.clear()
        pages = self._fetch(Page, titles)
        self._fetch(Redirect, (title for title, page in pages.items() if page.moved_softly))
        items = self._fetch(Item, {p.item_id for p in pages.values()} - {""})
        self._fetch(Item, {i.topic_id for i in items.values() if i.is_category} - {""})

    def add(self, found: Mapping[str, SomeFact]) -> None:
        """Keep a batch, in the store first."""
        self._store.add(found)
        self._at_hand.update({(type(fact), key): fact for key, fact in found.items()})

    def _fetch(self, kind: type[SomeFact], keys: Iterable[str]) -> dict[str, SomeFact]:
        keys = list(keys)
        found = self._store.load(kind, keys) if keys else {}
        self._at_hand.update({(kind, key): found.get(key) for key in keys})
        return found


class Trail:
    """Passes facts on and remembers which: what an ending rests on."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self.keys: list[tuple[type[Any], str]] = []

    def get(self, kind: type[SomeFact], key: str) -> SomeFact | None:
        """The fact, as it is known."""
        self.keys.append((kind, key))
        return self._known.get(kind, key)
