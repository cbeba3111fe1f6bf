"""The way from a category's title to the Wikidata item that speaks for it.

A title leads to a page, a soft redirect to another title, a page to its item, and the item of a
category to its topic (P301), as the infobox on the page does. One function walks this way over what
is known. It ends at an item or at the one reason why there is none, or it names the fact it needs
next; so asking, going on after a kill, and writing the tables all follow the same way.

Hard redirects do not work for categories, so Commons moves them with {{Category redirect|Target}},
which the API does not follow. The template puts the page into a special category, by which such
pages are known at no extra cost; the text is requested only for them. The target is the template's
first parameter. If the template's name is not known here, the page's only link to a category is
the target; if there are several, it has none.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from hgld.hierarchy.scrape.answers import Item, Page, WikiClass, answered_pages, judge_item
from hgld.hierarchy.scrape.titles import upper_first
from hgld.words import single_blanks

_TEMPLATE = re.compile(
    r"\{\{\s*(?:template:\s*)?"
    r"(?:soft[ _-]?)?(?:cat(?:egory)?[ _-]*redir(?:ect)?|redirect[ _-]?cat(?:egory)?"
    r"|see[ _-]?cat(?:egory)?|cat[ _-]?red)"
    r"\s*\|([^{}]*)\}\}",
    re.IGNORECASE,
)
_NAME = re.compile(r"[^\[\]{}<>#|\x00-\x1f\x7f]+")
MOST_HOPS = 3  # of soft redirects
NO_ITEM = Item("")


@dataclass(frozen=True)
class Redirect:
    """A soft redirect; ``target`` is a category's title, empty if it is unknown."""

    target: str


def read_redirects(document: Mapping[str, Any], titles: Sequence[str]) -> dict[str, Redirect]:
    """Targets of the asked titles from ``prop=revisions|links&rvprop=content&plnamespace=14``.

    Links of an unfinished answer may be lacking, so it accounts only for what its texts say.
    """
    whole = document.get("batchcomplete") is True or len(titles) == 1
    found: dict[str, Redirect] = {}
    for title, page in answered_pages(document, titles).items():
        try:
            target = target_of_text(_text(page))
            if not target and whole:
                links = [str(link["title"]) for link in page.get("links", [])]
                target = links[0] if len(links) == 1 else ""
        except (AttributeError, IndexError, KeyError, TypeError):
            continue  # damaged, or the answer to another question
        if target or whole:
            found[title] = Redirect(target)
    return found


def target_of_text(text: str) -> str:
    """The category that a page's text redirects to; empty where it does not say.

    Example:
        >>> target_of_text("{{Category redirect|:Category:old_town hall|reason=moved}}")
        'Category:Old town hall'
        >>> target_of_text("{{Category redirect}}")
        ''
    """
    start, *parts = text.split("<!--")  # as in MediaWiki, a comment without an end takes the rest
    text = start + "".join(part.partition("-->")[2] for part in parts)
    template = _TEMPLATE.search(text)
    if template is None:
        return ""
    named, plain = {}, []
    for parameter in template[1].split("|"):
        name, found, value = parameter.partition("=")
        if found:
            named[name.strip()] = value
        else:
            plain.append(parameter)
    name = named.get("1") or next(iter(plain), "")
    name = single_blanks(name.replace("_", " ").replace("[[", "").replace("]]", ""))
    name = re.sub(r"^:?\s*(?:category\s*:)?\s*", "", name, flags=re.IGNORECASE)
    return f"Category:{upper_first(name)}" if _NAME.fullmatch(name) else ""


def _text(page: Mapping[str, Any]) -> str:
    """The page's text, empty if there is no such page, or its text is hidden or was not asked for.

    Raises:
        KeyError: neither text nor links: this is the answer to another question.
    """
    if page.get("missing") is True or page.get("invalid") is True:
        return ""
    if "revisions" not in page and "links" in page:
        return ""
    slot = page["revisions"][0]["slots"]["main"]
    text: str = "" if slot.get("texthidden") is True else slot["content"]
    if not isinstance(text, str):
        raise TypeError
    return text


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
    via = f"{' > '.join(way)}: " if len(way) > 1 else ""
    if page.reason:
        return Ending(reason=page.reason, detail=via + page.detail, hops=len(way) - 1)
    item = known.get(Item, page.item_id)
    if item is None:
        return NextQuestion(Item, page.item_id)
    hops, detail = len(way) - 1, f"{via}item {page.item_id}"
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
