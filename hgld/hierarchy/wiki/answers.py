"""What Commons and Wikidata say about pages, items and classes, read out of their JSON.

Each reader gets a whole answer and the keys that were asked for, and returns a fact for every key
that the answer accounts for. A key that it leaves out was lost on the way (large results are cut
without an error), and what it says of a key may be damaged: such keys have to be asked for again,
and never become a "no".
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote

__all__ = [
    "CATEGORY_CLASS",
    "LANGUAGES",
    "SOFT_REDIRECTS",
    "Item",
    "Page",
    "Statement",
    "WikiClass",
    "answered_pages",
    "judge_item",
    "read_classes",
    "read_items",
    "read_pages",
]

CATEGORY_CLASS = "Q4167836"  # "Wikimedia category": the item describes the page, not its topic
SOFT_REDIRECTS = "Category:Category redirects"  # {{Category redirect}} puts its pages in here
LANGUAGES = ("en", "mul", "en-gb", "en-ca")  # of a label, the best first
_ITEM_ID = re.compile(r"Q[1-9]\d*")
_UNREADABLE = (AttributeError, IndexError, KeyError, TypeError, ValueError)

Fact = TypeVar("Fact")


@dataclass(frozen=True)
class Page:
    """A Commons page: its item, or why it has none (a reason word and a detail).

    ``moved_softly`` says that a template on it, which the API does not follow, leads elsewhere.
    """

    item_id: str = ""
    reason: str = ""
    detail: str = ""
    moved_softly: bool = False


@dataclass(frozen=True)
class Statement:
    """One "instance of" statement; ``class_id`` is empty where the value is unknown or none."""

    order: int
    class_id: str
    rank: str
    qualifiers: str


@dataclass(frozen=True)
class Item:
    """A Wikidata item; ``item_id`` is empty where there is none (any more)."""

    item_id: str
    revision: int = 0
    statements: tuple[Statement, ...] = ()
    topic_id: str = ""  # of a category item: what the category is about (P301)

    @property
    def best(self) -> tuple[Statement, ...]:
        """The preferred statements that name a class, else the normal ones."""
        for rank in ("preferred", "normal"):
            named = tuple(s for s in self.statements if s.rank == rank and s.class_id)
            if named:
                return named
        return ()

    @property
    def is_category(self) -> bool:
        """Says of itself that it describes a category page, and nothing else."""
        return bool(self.best) and all(s.class_id == CATEGORY_CLASS for s in self.best)


@dataclass(frozen=True)
class WikiClass:
    """A Wikidata class; ``class_id`` is where a merged class now stands."""

    class_id: str
    label: str  # the id where there is none


def read_pages(document: Mapping[str, Any], titles: Sequence[str]) -> dict[str, Page]:
    """Facts of the asked titles from ``action=query&prop=pageprops|categories&redirects=1``.

    A page of an unfinished answer may lack its item, so such an answer accounts for nothing.
    """
    if not document.get("batchcomplete"):
        return {}
    return _read_each(_read_page, answered_pages(document, titles), titles)


def answered_pages(
    document: Mapping[str, Any], titles: Sequence[str]
) -> dict[str, Mapping[str, Any]]:
    """The answer's page for each asked title, as it stands there.

    From asked to answered title leads the way over ``normalized``, then ``redirects``.
    """
    query = document.get("query", {})
    spelled = {_plain(step): step["to"] for step in query.get("normalized", [])}
    moved = {step["from"]: step["to"] for step in query.get("redirects", [])}
    pages = {page["title"]: page for page in query.get("pages", [])}
    pages |= {page["title"]: page for page in query.get("interwiki", [])}
    found = {title: _follow(spelled.get(title, title), moved, pages) for title in titles}
    if len(titles) == len(pages) == 1:  # then it is the answer, whatever the spelling
        found = {titles[0]: found[titles[0]] or next(iter(pages.values()))}
    return {title: page for title, page in found.items() if page is not None}


def read_items(document: Mapping[str, Any], item_ids: Sequence[str]) -> dict[str, Item]:
    """Facts of the asked items from ``action=wbgetentities&props=info|claims``."""
    return _read_each(_read_item, document.get("entities", {}), item_ids)


def read_classes(document: Mapping[str, Any], class_ids: Sequence[str]) -> dict[str, WikiClass]:
    """Labels of the asked classes from ``action=wbgetentities&props=labels``.

    English, else the one for all languages, else another English, else the id itself.
    """
    return _read_each(_read_class, document.get("entities", {}), class_ids)


def judge_item(item: Item) -> str:
    """Why the item has no class to go by, as a reason word; empty where it has one."""
    if not item.item_id:
        return "no_item"
    if not item.statements:
        return "no_p31"
    if item.best:
        return ""
    return (
        "only_deprecated"
        if all(s.rank == "deprecated" for s in item.statements)
        else "unknown_value"
    )


def _plain(step: Mapping[str, Any]) -> str:
    """The asked title; it comes percent-encoded where it was no NFC."""
    return unquote(step["from"]) if step.get("fromencoded") else str(step["from"])


def _follow(
    title: str, moved: Mapping[str, str], pages: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    way = [title]
    while way[-1] in moved:
        way.append(moved[way[-1]])
        if way[-1] in way[:-1]:
            return {"title": title, "loop": " > ".join(way)}
    return pages.get(way[-1])


def _read_each(
    read: Callable[[Mapping[str, Any]], Fact],
    answers: Mapping[str, Mapping[str, Any]],
    keys: Sequence[str],
) -> dict[str, Fact]:
    """A fact for each key that has a whole answer."""
    found: dict[str, Fact] = {}
    for key in keys:
        try:
            found[key] = read(answers[key])
        except _UNREADABLE:  # left out, or not in the shape that it has to have
            continue
    return found


def _read_page(page: Mapping[str, Any]) -> Page:
    title = page["title"]
    if "loop" in page:
        return Page(reason="redirect_loop", detail=page["loop"])
    if "iw" in page:
        return Page(reason="bad_url", detail=f"a page of another wiki ({page['iw']})")
    if page.get("invalid") or page.get("special"):
        return Page(reason="bad_url", detail=str(page.get("invalidreason", title)))
    if page.get("missing"):
        return Page(reason="no_page", detail=f"'{title}' does not exist")
    if page["pageid"] and _ITEM_ID.fullmatch(item_id := _item_of(page)):
        return Page(item_id)
    softly = SOFT_REDIRECTS in {category["title"] for category in page.get("categories", [])}
    return Page("", "no_item", f"'{title}' has no Wikidata item", softly)


def _item_of(page: Mapping[str, Any]) -> str:
    return str(page.get("pageprops", {}).get("wikibase_item", ""))


def _read_item(entity: Mapping[str, Any]) -> Item:
    if "missing" in entity:
        return Item("")
    claims = entity["claims"] or {}  # an empty map may come as an empty list
    statements = [_read_statement(i, claim) for i, claim in enumerate(claims.get("P31", []))]
    topics = [_read_statement(i, claim) for i, claim in enumerate(claims.get("P301", []))]
    topic = Item("topic", statements=tuple(topics)).best
    return Item(
        _require_id(entity),
        int(entity["lastrevid"]),
        tuple(statements),
        topic[0].class_id if topic else "",
    )


def _require_id(entity: Mapping[str, Any]) -> str:
    if not _ITEM_ID.fullmatch(entity["id"]):
        raise ValueError
    return str(entity["id"])


def _read_statement(order: int, claim: Mapping[str, Any]) -> Statement:
    qualifiers = {
        name: [_value(snak) for snak in snaks]
        for name, snaks in (claim.get("qualifiers") or {}).items()
    }
    text = json.dumps(qualifiers, sort_keys=True, ensure_ascii=False)
    return Statement(order, _target(claim["mainsnak"]), claim.get("rank", "normal"), text)


def _value(snak: Mapping[str, Any]) -> Any:
    """A snak's value, or the word ``somevalue`` or ``novalue``."""
    return snak["datavalue"]["value"] if "datavalue" in snak else snak["snaktype"]


def _target(snak: Mapping[str, Any]) -> str:
    """The item that a snak names; old answers hold only its number."""
    value = _value(snak)
    if not isinstance(value, dict):
        return ""
    item_id = str(value.get("id") or f"Q{value.get('numeric-id', '')}")
    return item_id if _ITEM_ID.fullmatch(item_id) else ""


def _read_class(entity: Mapping[str, Any]) -> WikiClass:
    class_id = _require_id(entity)
    labels = {} if "missing" in entity else entity["labels"] or {}
    named = [labels[language]["value"] for language in LANGUAGES if language in labels]
    return WikiClass(class_id, next(iter(named), class_id))
