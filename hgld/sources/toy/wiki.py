"""Commons pages and Wikidata entities of the synthetic data set, in the formats of their APIs.

``describe_wiki`` returns one JSON document: Commons pages with their items (or their text, for a
soft redirect), Commons redirects, and entities as ``wbgetentities`` serialises them.
``hgld.hierarchy.scrape.stand_in`` serves it.
"""

from hashlib import sha1
from typing import Any
from uuid import UUID

from hgld.sources.toy.world import CLASSES, Landmark, ToyClass, World

Entity = dict[str, Any]

CATEGORY, ATTRACTION = "Q4167836", "Q570116"
OTHER_CLASSES = (
    ToyClass("Q15324", "body of water"),
    ToyClass("Q35120", "entity"),
    ToyClass("Q271669", "landform"),
    ToyClass("Q811979", "architectural structure"),
    ToyClass(CATEGORY, "Wikimedia category"),
    ToyClass(ATTRACTION, "tourist attraction"),
)
BELOW = {  # P279; a reservoir is below two, and at the top two classes go in a circle
    "Q12280": "Q158438",
    "Q15324": "Q23397 Q34038 Q131681",
    "Q16970": "Q108325",
    "Q35120": "Q271669 Q570116 Q811979",
    "Q271669": "Q8502 Q15324 Q54050",
    "Q811979": "Q12280 Q16970 Q23413 Q35120 Q38720 Q39715 Q57831 Q131681",
}
LABELLED_FOR_ALL_LANGUAGES = "Q38720"  # its label is under "mul", as many now are
CATEGORY_ITEMS = 50_000_000  # added to an item's number: the item of its category
STATEMENTS = {  # of a quirk: P31 values with their ranks; the empty value is the landmark's own
    "only category": {CATEGORY: "normal"},
    "only attraction": {ATTRACTION: "normal"},
    "two values": {"": "normal", ATTRACTION: "normal"},
    "preferred": {ATTRACTION: "normal", "": "preferred"},
    "deprecated": {"": "deprecated"},
}


def describe_wiki(world: World) -> dict[str, Any]:
    """Pages, redirects and entities of all landmarks and classes."""
    pages: dict[str, Any] = {}
    redirects: dict[str, str] = {}
    entities = {}
    for toy in (*CLASSES, *OTHER_CLASSES):
        above = [up for up, below in BELOW.items() if toy.class_id in below.split()]
        claims = [_statement(toy.class_id, "P279", up) for up in above]
        language = "mul" if toy.class_id == LABELLED_FOR_ALL_LANGUAGES else "en"
        entity = _entity(toy.class_id, toy.label, {"P279": claims} if claims else {}, language)
        entities[toy.class_id] = entity
    for number, landmark in enumerate(world.landmarks):
        page_id, title = 1000 + 2 * number, f"Category:{landmark.name}"
        if landmark.quirk == "no page" or title in pages or title in redirects:
            continue
        if landmark.quirk == "redirect":
            moved, title = title, f"{title} (renamed)"
            if landmark.space == "train":
                redirects[moved] = title
            else:  # softly, as categories are moved most often
                pages[moved] = {"pageid": page_id + 1, "text": f"{{{{Category redirect|{title}}}}}"}
        pages[title] = {"pageid": page_id}
        if landmark.quirk != "no item":
            items = _items(landmark, title)
            entities |= {item["id"]: item for item in items}
            pages[title]["item"] = items[-1]["id"]
    return {"pages": pages, "redirects": redirects, "entities": entities}


def _items(landmark: Landmark, title: str) -> list[Entity]:
    """The landmark's item; last the one that the page links to, which may be its category's."""
    item_id, own = landmark.item_id, landmark.toy_class.class_id
    ranks = STATEMENTS.get(landmark.quirk, {"": "normal"})
    values = [_statement(item_id, "P31", value or own, rank) for value, rank in ranks.items()]
    if landmark.quirk == "qualified":
        years = {name: [_year(name, year)] for name, year in (("P580", 1172), ("P582", 1954))}
        values = [{**values[0], "qualifiers": years, "qualifiers-order": list(years)}]
    items = [_entity(item_id, landmark.name, {"P31": values})]
    if landmark.quirk == "category item":  # its main topic (P301) is the landmark's item
        above = f"Q{int(item_id[1:]) + CATEGORY_ITEMS}"
        claims = {name: [_statement(above, name, value)]
                  for name, value in (("P31", CATEGORY), ("P301", item_id))}  # fmt: skip
        items.append(_entity(above, title, claims))
    items[-1]["sitelinks"]["commonswiki"] = {"site": "commonswiki", "title": title, "badges": []}
    return items


def _entity(
    entity_id: str, label: str, claims: dict[str, list[Entity]], language: str = "en"
) -> Entity:
    number = int(entity_id[1:])
    return {
        "pageid": number,
        "ns": 0,
        "title": entity_id,
        "lastrevid": 2_000_000_000 + number % 1_000_000,
        "modified": "2026-01-01T00:00:00Z",
        "type": "item",
        "id": entity_id,
        "labels": {language: {"language": language, "value": label}},
        "claims": claims,
        "sitelinks": {},
    }


def _statement(item_id: str, property_id: str, value_id: str, rank: str = "normal") -> Entity:
    value = {"entity-type": "item", "numeric-id": int(value_id[1:]), "id": value_id}
    digest = sha1(f"{item_id}:{property_id}:{value_id}".encode()).digest()
    snak = _snak(property_id, value_id, "wikibase-entityid", "wikibase-item", value)
    unique = f"{item_id}${UUID(bytes=digest[:16])}"
    return {"mainsnak": snak, "type": "statement", "id": unique, "rank": rank}


def _year(property_id: str, year: int) -> Entity:
    value = {
        "time": f"+{year}-00-00T00:00:00Z",
        "timezone": 0,
        "before": 0,
        "after": 0,
        "precision": 9,
        "calendarmodel": "http://www.wikidata.org/entity/Q1985727",
    }
    return _snak(property_id, str(year), "time", "time", value)


def _snak(property_id: str, hashed: str, kind: str, datatype: str, value: Entity) -> Entity:
    return {
        "snaktype": "value",
        "property": property_id,
        "hash": sha1(f"{property_id}:{hashed}".encode()).hexdigest(),
        "datavalue": {"value": value, "type": kind},
        "datatype": datatype,
    }
