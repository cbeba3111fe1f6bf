"""What a test wiki holds: category pages, and the entities that they belong to.

A world is plain data. ``fill.py`` writes it into the tables of a real MediaWiki, ``wiki.py`` serves
that; entities stand in the shape in which Wikibase writes them down.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any

Claim = dict[str, Any]
Entity = dict[str, Any]

SOFT_REDIRECT = "Template:Category redirect"
# Commons' own template does these two things, among others.
SOFT_REDIRECT_TEXT = "This category is at [[:Category:{{{1|}}}]].[[Category:Category redirects]]"
PARENT = "[[Category:Landmarks]]"


@dataclass(frozen=True)
class Page:
    """A page with its item, or on its way to another page; titles as people read them."""

    title: str
    item: str = ""
    redirect: str = ""  # a real one: to this title
    soft: str = ""  # only a template says so: to this title

    @property
    def text(self) -> str:
        """Its wikitext."""
        if self.title == SOFT_REDIRECT:
            return SOFT_REDIRECT_TEXT
        if self.redirect:
            return f"#REDIRECT [[:{self.redirect}]]"
        if self.soft:
            return f"{{{{Category redirect|{self.soft.removeprefix('Category:')}}}}}"
        return PARENT


@dataclass
class World:
    """Pages and entities; ``merged`` leads from an id that was to the one that is."""

    pages: list[Page] = field(default_factory=list)
    entities: dict[str, Entity] = field(default_factory=dict)
    merged: dict[str, str] = field(default_factory=dict)
    claims_of_all: dict[str, list[Claim]] = field(default_factory=dict)

    def page(self, name: str, item: str = "", redirect: str = "", soft: str = "") -> None:
        """Add a category page."""
        redirect = f"Category:{redirect}" if redirect else ""
        soft = f"Category:{soft}" if soft else ""
        self.pages.append(Page(f"Category:{name}", item, redirect, soft))

    def item(self, item_id: str, *claims: Claim, **labels: str) -> None:
        """Add an item, or a class, with labels by language."""
        self.entities[item_id] = entity(item_id, *claims, **labels)

    def all_pages(self) -> Iterator[Page]:
        """The pages and the template that the soft redirects among them need."""
        yield Page(SOFT_REDIRECT)
        yield from self.pages


def entity(item_id: str, *claims: Claim, **labels: str) -> Entity:
    """An item's document with its claims by property."""
    by_property: dict[str, list[Claim]] = {}
    for number, one in enumerate(claims):
        guid = sha1(f"{item_id} {number}".encode()).hexdigest()
        ident = f"{item_id}${guid[:8]}-{guid[8:12]}-5{guid[13:16]}-8{guid[17:20]}-{guid[20:32]}"
        prop = one["mainsnak"]["property"]
        by_property.setdefault(prop, []).append({**one, "id": ident})
    return {
        "type": "item",
        "id": item_id,
        "labels": {name: {"language": name, "value": text} for name, text in labels.items()},
        "claims": by_property,
    }


def is_a(target: str, rank: str = "normal", prop: str = "P31", **qualifiers: str) -> Claim:
    """A statement that names an item; ``somevalue`` and ``novalue`` name none.

    Qualifiers are years by property: ``P580="1172"``.
    """
    found: Claim = {"mainsnak": _snak(prop, target), "type": "statement", "rank": rank}
    if qualifiers:
        dates = {name: [_year(name, year)] for name, year in qualifiers.items()}
        found |= {"qualifiers": dates, "qualifiers-order": list(qualifiers)}
    return found


def text_claim(prop: str, text: str) -> Claim:
    """A statement whose value is a text."""
    snak: dict[str, Any] = {"snaktype": "value", "property": prop}
    snak["hash"] = sha1(text.encode()).hexdigest()
    snak |= {"datavalue": {"value": text, "type": "string"}, "datatype": "string"}
    return {"mainsnak": snak, "type": "statement", "rank": "normal"}


def year_value(year: str) -> dict[str, Any]:
    """A year as Wikibase writes a time."""
    return {
        "time": f"+{year}-00-00T00:00:00Z",
        "timezone": 0,
        "before": 0,
        "after": 0,
        "precision": 9,
        "calendarmodel": "http://www.wikidata.org/entity/Q1985727",
    }


def _snak(prop: str, target: str) -> dict[str, Any]:
    kind = target if target in ("somevalue", "novalue") else "value"
    digest = sha1(f"{prop}{target}".encode()).hexdigest()
    snak: dict[str, Any] = {"snaktype": kind, "property": prop, "hash": digest}
    if kind == "value":
        value = {"entity-type": "item", "numeric-id": int(target[1:]), "id": target}
        snak["datavalue"] = {"value": value, "type": "wikibase-entityid"}
    return {**snak, "datatype": "wikibase-item"}


def _year(prop: str, year: str) -> dict[str, Any]:
    return {
        "snaktype": "value",
        "property": prop,
        "hash": sha1(f"{prop}{year}".encode()).hexdigest(),
        "datavalue": {"value": year_value(year), "type": "time"},
        "datatype": "time",
    }
