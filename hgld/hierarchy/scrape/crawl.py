"""Asks for what the landmarks' titles lead to, in full batches, the deepest question first.

Each title is followed as far as the facts go and then waits for the fact it needs next. As soon as
50 facts of a kind are waited for, they are asked for; items before titles, so that landmarks get
done all along the way and few are under way when the scrape is stopped. Only at the very end are
batches sent that are not full.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from hgld.hierarchy.scrape.answers import Item, Page
from hgld.hierarchy.scrape.redirects import Redirect
from hgld.hierarchy.scrape.route import Ending, Fact, NextQuestion, follow
from hgld.hierarchy.scrape.store import Facts

__all__ = ["AT_ONCE", "Crawl", "in_parts"]

AT_ONCE = 1000  # titles that are looked up together
FROM_DEEPEST: tuple[type[Page] | type[Redirect] | type[Item], ...] = (Item, Redirect, Page)

Ask = Callable[[type[Fact], Sequence[str]], Mapping[str, Fact]]
Thing = TypeVar("Thing")


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
            while kind := self._next(FROM_DEEPEST, self.batch_size):
                yield from self._answer(kind)
        while kind := self._next(FROM_DEEPEST[::-1], 1):
            yield from self._answer(kind)

    def _next(
        self, kinds: Sequence[type[Page] | type[Redirect] | type[Item]], least: int
    ) -> type[Fact] | None:
        return next((kind for kind in kinds if len(self._waiting[kind]) >= least), None)

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


def in_parts(things: Iterable[Thing], size: int) -> Iterator[list[Thing]]:
    """The things in lists of that size, the last one with what is left.

    Example:
        >>> list(in_parts("abc", 2))
        [['a', 'b'], ['c']]
    """
    rest = iter(things)
    while part := list(islice(rest, size)):
        yield part
