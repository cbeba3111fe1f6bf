"""Read facts about pages, items and classes from the JSON of Commons and Wikidata.

Each reader gets a whole answer and the keys that were asked for, and returns a fact for every key
that the answer accounts for. The answer may leave a key out (large results are cut without an
error), may be an answer to another request (caches replay them), and may be damaged. So the title
or id of each part is compared with what was asked, and a part counts only if all that is read from
it has the expected type. A key without such a part is asked for again and never becomes a "no".
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar
from unicodedata import normalize
from urllib.parse import unquote

from hgld.hierarchy.scrape.ancestors import chain_of, is_circular
from hgld.hierarchy.scrape.titles import as_stored
from hgld.words import single_blanks

CATEGORY_CLASS = "Q4167836"  # "Wikimedia category": the item describes the page, not its topic
SOFT_REDIRECTS = "Category:Category redirects"  # {{Category redirect}} puts its pages in here
LANGUAGES = ("en", "mul", "en-gb", "en-ca")  # of a label, the best first
PARTS = "\t"  # between kind, place and text in the key of a look-up
RANKS = ("preferred", "normal", "deprecated")
NO_VALUE = ("somevalue", "novalue")
HIGHEST_REVISION = 2**63 - 1  # what a column of whole numbers can hold
_ITEM_ID = re.compile(r"Q[1-9][0-9]{0,18}")
_DAMAGED = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)

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
    """A Wikidata class; ``class_id`` is that of the class it was merged into."""

    class_id: str
    label: str  # the id where there is none


@dataclass(frozen=True)
class LookUp:
    """Ids of the items to which a search, a page or an id leads, the best first."""

    item_ids: Sequence[str]


@dataclass(frozen=True)
class NamedItem:
    """An item with its names by language, and what its best statements name.

    Attributes:
        item_id: of the item that it was merged into; empty if there is none (any more).
        titles: of its pages in the asked Wikipedias.
        statements: property, class id and statement id of each best statement.
    """

    item_id: str
    revision: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    descriptions: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    titles: Sequence[str] = ()
    statements: Sequence[Sequence[str]] = ()

    @property
    def above(self) -> list[str]:
        """Ids of the classes that its statements name, each once."""
        return list(dict.fromkeys(class_id for _, class_id, _ in self.statements))

    def named(self, languages: Iterable[str]) -> str:
        """Its label in the first of these languages that has one, else its id."""
        found = (self.labels[language] for language in languages if language in self.labels)
        return next(found, self.item_id)

    def described(self, languages: Iterable[str]) -> str:
        """Its description in the first of these languages that has one, else nothing."""
        return next((self.descriptions[one] for one in languages if one in self.descriptions), "")


def read_pages(document: Mapping[str, Any], titles: Sequence[str]) -> dict[str, Page]:
    """Facts of the asked titles from ``action=query&prop=pageprops|categories&redirects=1``.

    A page of an unfinished answer may lack its item, so such an answer accounts for nothing.
    """
    if document.get("batchcomplete") is not True:
        return {}

    def read(page: Mapping[str, Any], _: str) -> Page:
        title = page["title"]
        if "loop" in page:
            return Page(reason="redirect_loop", detail=_text(page["loop"]))
        if "iw" in page:
            return Page(reason="bad_url", detail=f"a page of another wiki ({_text(page['iw'])})")
        if _flag(page, "invalid") or _flag(page, "special"):
            return Page(reason="bad_url", detail=_text(page.get("invalidreason", title)))
        if _flag(page, "missing"):
            return Page(reason="no_page", detail=f"'{title}' does not exist")
        if not _whole(page["pageid"]) or "revisions" in page:
            raise ValueError  # no page, or the answer to a question that does not ask for the item
        if "wikibase_item" in (properties := _map(page.get("pageprops", {}))):
            return Page(_item_id(properties["wikibase_item"]))
        softly = SOFT_REDIRECTS in {_text(one["title"]) for one in page.get("categories", [])}
        return Page("", "no_item", f"'{title}' has no Wikidata item", softly)

    return _read_each(read, answered_pages(document, titles), titles)


def answered_pages(
    document: Mapping[str, Any], titles: Sequence[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the answer's page for each asked title; nothing if the answer is damaged.

    From asked to answered title leads the way over ``normalized``, then ``redirects``. If the
    answer does not report a normalisation, the title is compared as MediaWiki would store it.
    """
    try:
        query = _map(document.get("query", {}))
        spelled = {}
        for step in query.get("normalized", []):  # the title is encoded if it was not NFC
            asked = unquote(step["from"]) if step.get("fromencoded") else _text(step["from"])
            spelled[asked] = _text(step["to"])
        moved = {_text(step["from"]): _text(step["to"]) for step in query.get("redirects", [])}
        pages = {_text(page["title"]): page for page in query.get("pages", [])}
        pages |= {_text(page["title"]): page for page in query.get("interwiki", [])}
    except _DAMAGED:
        return {}
    stored = {as_stored(title): title for title in (*pages, *moved)}
    found: dict[str, Mapping[str, Any]] = {}
    for title in titles:
        start = spelled.get(title, title)
        known = start in pages or start in moved
        chain = chain_of(start if known else stored.get(as_stored(title), ""), moved)
        if is_circular(chain):
            found[title] = {"title": chain[0], "loop": " > ".join(chain)}
        elif chain[-1] in pages:
            found[title] = pages[chain[-1]]
    return found


def read_items(
    document: Mapping[str, Any], item_ids: Sequence[str], statements_of: str = "P31"
) -> dict[str, Item]:
    """Facts of the asked items from ``action=wbgetentities&props=info|claims``.

    Args:
        document: the answer.
        item_ids: what was asked.
        statements_of: property whose statements are read.
    """

    def read(entity: Mapping[str, Any], asked: str) -> Item:
        item_id = _require_id(entity, asked)
        if _is_missing(entity):
            return Item("")
        claims = _map(entity["claims"])
        for name, some in claims.items():
            if any(claim["mainsnak"]["property"] != name for claim in some):
                raise ValueError
        topic = Item("topic", statements=_read_statements(claims, "P301")).best
        return Item(
            item_id,
            _whole(entity["lastrevid"]),
            _read_statements(claims, statements_of),
            topic[0].class_id if topic else "",
        )

    return _read_each(read, document.get("entities"), item_ids)


def read_classes(document: Mapping[str, Any], class_ids: Sequence[str]) -> dict[str, WikiClass]:
    """Labels of the asked classes from ``action=wbgetentities&props=info|labels``.

    English, else the one for all languages, else another English, else the id itself.
    """

    def read(entity: Mapping[str, Any], asked: str) -> WikiClass:
        class_id, labels = _require_id(entity, asked), _read_labels(entity, asked)
        named = [labels[language] for language in LANGUAGES if language in labels]
        return WikiClass(class_id, next(iter(named), class_id))

    return _read_each(read, document.get("entities"), class_ids)


def read_labels(document: Mapping[str, Any], class_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """Labels of the asked classes by language, as far as the answer has them."""
    return _read_each(_read_labels, document.get("entities"), class_ids)


def read_named_items(
    document: Mapping[str, Any], item_ids: Sequence[str], properties: Sequence[str]
) -> dict[str, NamedItem]:
    """Names, pages and statements of the asked items from ``action=wbgetentities``.

    Args:
        document: the answer, with all props but datatype.
        item_ids: what was asked.
        properties: those whose statements are read.
    """

    def read(entity: Mapping[str, Any], asked: str) -> NamedItem:
        item_id = _require_id(entity, asked)
        if _is_missing(entity):
            return NamedItem("")
        claims, found = _map(entity["claims"]), []
        for name in properties:
            best = Item("", statements=_read_statements(claims, name)).best
            found += [[name, s.class_id, _text(claims[name][s.order].get("id", ""))] for s in best]
        return NamedItem(
            item_id,
            _whole(entity["lastrevid"]),
            {code: _text(one["value"]) for code, one in _map(entity["labels"]).items()},
            {code: _text(one["value"]) for code, one in _map(entity["descriptions"]).items()},
            {c: [_text(a["value"]) for a in some] for c, some in _map(entity["aliases"]).items()},
            [_text(link["title"]) for link in _map(entity["sitelinks"]).values()],
            found,
        )

    return _read_each(read, document.get("entities"), item_ids)


def read_found(document: Mapping[str, Any], keys: Sequence[str]) -> dict[str, LookUp]:
    """Ids from a search (wbsearchentities, list=search) or from a page's title (wbgetentities).

    Nothing if the answer is damaged or is that of another search.
    """
    (key,) = keys
    try:
        if "entities" in document:
            entities = _map(document["entities"]).items()
            return {key: LookUp([name for name, one in entities if not _is_missing(one)])}
        if "search" in document:
            asked = document["searchinfo"]["search"]
            found = [_item_id(one["id"]) for one in document["search"]]
            return {key: LookUp(found)} if asked == key.split(PARTS)[-1] else {}
        return {key: LookUp([_item_id(one["title"]) for one in document["query"]["search"]])}
    except _DAMAGED:
        return {}


def is_item_id(text: str) -> bool:
    """True if a text is the id of a Wikidata item.

    Example:
        >>> is_item_id("Q243"), is_item_id("P31")
        (True, False)
    """
    return bool(_ITEM_ID.fullmatch(text))


def lookup_key(kind: str, where: str, text: str) -> str:
    """The key of a look-up.

    Args:
        kind: "search", "page" or "statement".
        where: language, wiki or property.
        text: name, title or value.

    Example:
        >>> lookup_key("search", "de", "Rotfuchs").split(PARTS)
        ['search', 'de', 'Rotfuchs']
    """
    composed = normalize("NFC", text)  # as MediaWiki reads and stores texts
    return PARTS.join((kind, where, single_blanks(composed)))


def wiki_of(language: str) -> str:
    """The id of a language's Wikipedia.

    Example:
        >>> wiki_of("pt-br"), wiki_of("zh-min-nan")
        ('ptwiki', 'zh_min_nanwiki')
    """
    plain = {"pt-br": "pt", "en-gb": "en", "de-at": "de", "de-ch": "de"}.get(language, language)
    return plain.replace("-", "_") + "wiki"


def judge_item(item: Item) -> str:
    """Why the item has no class to go by, as a reason word; empty where it has one."""
    if not item.item_id:
        return "no_item"
    if not item.statements:
        return "no_p31"
    if item.best:
        return ""
    ranks = {statement.rank for statement in item.statements}
    return "only_deprecated" if ranks == {"deprecated"} else "unknown_value"


def _read_each(
    read: Callable[[Mapping[str, Any], str], Fact], answers: Any, keys: Sequence[str]
) -> dict[str, Fact]:
    """Read a fact for each key whose answer is there and not damaged."""
    found: dict[str, Fact] = {}
    for key in keys:
        try:
            found[key] = read(answers[key], key)
        except _DAMAGED:
            continue
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _map(value: Any) -> Mapping[str, Any]:
    """A map; PHP writes an empty one as an empty list."""
    if value != [] and not isinstance(value, dict):
        raise TypeError
    return value or {}


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= HIGHEST_REVISION:
        raise ValueError
    return int(value)


def _item_id(value: Any) -> str:
    if not is_item_id(value):
        raise ValueError
    return str(value)


def _flag(page: Mapping[str, Any], name: str) -> bool:
    if not isinstance(value := page.get(name, False), bool):
        raise TypeError
    return value


def _require_id(entity: Mapping[str, Any], asked: str) -> str:
    """The entity's id; if it is not the asked one, the entity has to say that it was merged."""
    item_id = _item_id(entity["id"])
    if item_id != asked and entity["redirects"] != {"from": asked, "to": item_id}:
        raise ValueError
    return item_id


def _is_missing(entity: Mapping[str, Any]) -> bool:
    if "missing" in entity and entity["missing"] not in ("", True):
        raise ValueError
    return "missing" in entity


def _read_statements(claims: Mapping[str, Any], name: str) -> tuple[Statement, ...]:
    found = []
    for order, claim in enumerate(claims.get(name, [])):
        qualifiers = {
            qualifier: [_value(snak) for snak in snaks]
            for qualifier, snaks in _map(claim.get("qualifiers", {})).items()
        }
        text = json.dumps(qualifiers, sort_keys=True, ensure_ascii=False)
        if claim["rank"] not in RANKS:
            raise ValueError
        found.append(Statement(order, _target(claim["mainsnak"]), claim["rank"], text))
    return tuple(found)


def _value(snak: Mapping[str, Any]) -> Any:
    """A snak's value, or the word ``somevalue`` or ``novalue``."""
    kind = snak["snaktype"]
    if kind != "value" and kind not in NO_VALUE:
        raise ValueError
    return snak["datavalue"]["value"] if kind == "value" else kind


def _target(snak: Mapping[str, Any]) -> str:
    """The item that a snak names, empty if it is unknown or none; old answers hold its number."""
    value = _value(snak)
    if value in NO_VALUE:
        return ""
    by_number = f"Q{value['numeric-id']}" if "numeric-id" in value else value["id"]
    if value["entity-type"] != "item" or value.get("id", by_number) != by_number:
        raise ValueError
    return _item_id(by_number)


def _read_labels(entity: Mapping[str, Any], asked: str) -> dict[str, str]:
    _require_id(entity, asked)
    labels = {} if _is_missing(entity) else _map(entity["labels"])
    return {language: _text(label["value"]) for language, label in labels.items()}


def parse_json(data: bytes) -> Any:
    """Parse UTF-8 JSON (with or without a byte order mark).

    Raises:
        ValueError: the data is not JSON, is nested too deeply, or holds a lone surrogate.
    """
    text = data.decode("utf-8-sig")
    try:
        document = json.loads(text, parse_constant=_refuse)
        if "\\u" in text:  # the only way in which a surrogate can get past the decoding
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return document


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
