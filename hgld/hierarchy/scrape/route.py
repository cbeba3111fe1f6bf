"""The way from a category's title to the Wikidata item that speaks for it.

A title leads to a page, a soft redirect to another title, a page to its item, and the item of a
category to its topic (P301), as the infobox on the page does. One function walks this way over what
is known. It ends at an item or at the one reason why there is none, or it names the fact it needs
next; so asking, going on after a kill, and writing the tables all follow the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hgld.hierarchy.scrape.answers import Item, Page, WikiClass, judge_item
from hgld.hierarchy.scrape.redirects import Redirect

__all__ = ["MOST_HOPS", "Ending", "Fact", "Known", "NextQuestion", "follow"]

MOST_HOPS = 3  # of soft redirects
NO_ITEM = Item("")

Fact = Page | Redirect | Item | WikiClass
SomeFact = TypeVar("SomeFact", bound=Fact)


class Known(Protocol):
    """The facts that are known so far."""

    def get(self, kind: type[SomeFact], key: str) -> SomeFact | None:
        """The fact of that kind, None where it has yet to be asked for."""


@dataclass(frozen=True)
class NextQuestion:
    """The fact that has to be asked for next."""

    kind: type[Page] | type[Redirect] | type[Item]
    key: str


@dataclass(frozen=True)
class Ending:
    """End of the way from a title: its item, or a reason word and a detail.

    Attributes:
        hops: soft redirects on the way.
        over_topic: the item is the topic of the page's own item.
    """

    item: Item = NO_ITEM
    reason: str = ""
    detail: str = ""
    hops: int = 0
    over_topic: bool = False


def follow(title: str, known: Known, follow_topics: bool = True) -> Ending | NextQuestion:
    """Follow the title to its end, or to the fact that is missing.

    Args:
        title: of a Commons category.
        known: facts by kind and key.
        follow_topics: leave the item of a category for its topic.
    """
    way = [title]
    while True:
        page = known.get(Page, way[-1])
        if page is None:
            return NextQuestion(Page, way[-1])
        if not page.moved_softly:
            break
        redirect = known.get(Redirect, way[-1])
        if redirect is None:
            return NextQuestion(Redirect, way[-1])
        if not redirect.target:
            detail = f"'{way[-1]}' is a soft redirect that names no target"
            return Ending(reason="no_item", detail=detail)
        again = redirect.target in way
        way.append(redirect.target)
        if again or len(way) > MOST_HOPS + 1:
            return Ending(reason="redirect_loop", detail=" > ".join(way))
    if page.reason:
        return Ending(reason=page.reason, detail=_via(way) + page.detail, hops=len(way) - 1)
    return _follow_item(page.item_id, known, way, follow_topics)


def _follow_item(
    item_id: str, known: Known, way: Sequence[str], follow_topics: bool
) -> Ending | NextQuestion:
    item = known.get(Item, item_id)
    if item is None:
        return NextQuestion(Item, item_id)
    hops, detail = len(way) - 1, f"{_via(way)}item {item_id}"
    over_topic = item.is_category and follow_topics
    if over_topic:
        detail += f", topic {item.topic_id}" if item.topic_id else ", no topic (P301)"
        topic = known.get(Item, item.topic_id) if item.topic_id else item
        if topic is None:
            return NextQuestion(Item, item.topic_id)
        if topic.is_category:
            return Ending(topic, "category_without_topic", detail, hops)
        item = topic
    return Ending(item, judge_item(item), detail, hops, over_topic)


def _via(way: Sequence[str]) -> str:
    """The soft redirects on the way, before a detail."""
    return f"{' > '.join(way)}: " if len(way) > 1 else ""
