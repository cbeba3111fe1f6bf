"""What Commons and Wikidata would know of the made world, in the shapes of their APIs.

``describe_wiki`` is one JSON document: Commons pages with their items (or their text, where that
redirects softly), Commons redirects, and entities as ``wbgetentities`` serialises them. The
stand-in server answers from it.
"""

from hashlib import sha1
from typing import Any
from uuid import UUID

from hgld.sources.toy.world import CLASSES, Landmark, ToyClass, World

__all__ = ["describe_wiki"]

Entity = dict[str, Any]

WIKIMEDIA_CATEGORY = ToyClass("Q4167836", "Wikimedia category", "", "")
ATTRACTION = ToyClass("Q570116", "tourist attraction", "", "")
UPPER_CLASSES = (
    ToyClass("Q15324", "body of water", "", ""),
    ToyClass("Q35120", "entity", "", ""),
    ToyClass("Q271669", "landform", "", ""),
    ToyClass("Q811979", "architectural structure", "", ""),
)
SUBCLASS_OF = {  # P279; a reservoir is both sides', and at the top two classes go in a circle
    "Q8502": ("Q271669",),
    "Q12280": ("Q811979",),
    "Q15324": ("Q271669",),
    "Q16970": ("Q811979",),
    "Q23397": ("Q15324",),
    "Q23413": ("Q811979",),
    "Q34038": ("Q15324",),
    "Q38720": ("Q811979",),
    "Q39715": ("Q811979",),
    "Q54050": ("Q271669",),
    "Q57831": ("Q811979",),
    "Q108325": ("Q16970",),
    "Q131681": ("Q15324", "Q811979"),
    "Q158438": ("Q12280",),
    "Q271669": ("Q35120",),
    "Q570116": ("Q35120",),
    "Q811979": ("Q35120",),
    "Q35120": ("Q811979",),
}
LABELLED_FOR_ALL_LANGUAGES = {"Q38720"}  # its label stands under "mul", as many now do
CATEGORY_ITEMS = 50_000_000  # added to an item's number: the item of its category
MODIFIED = "2026-01-01T00:00:00Z"


def describe_wiki(world: World) -> dict[str, Any]:
    """Pages, redirects and entities of all landmarks and classes."""
    pages: dict[str, Any] = {}
    redirects: dict[str, str] = {}
    classes = (*CLASSES, *UPPER_CLASSES, WIKIMEDIA_CATEGORY, ATTRACTION)
    entities = {c.class_id: _class_entity(c) for c in classes}
    for number, landmark in enumerate(world.landmarks):
        _add_landmark(landmark, 1000 + 2 * number, pages, redirects, entities)
    return {"pages": pages, "redirects": redirects, "entities": entities}


def _add_landmark(
    landmark: Landmark,
    page_id: int,
    pages: dict[str, Any],
    redirects: dict[str, str],
    entities: dict[str, Entity],
) -> None:
    title = f"Category:{landmark.name}"
    if landmark.quirk == "no page" or title in pages or title in redirects:
        return
    if landmark.quirk == "redirect":
        moved, title = title, f"{title} (renamed)"
        if landmark.space == "train":
            redirects[moved] = title
        else:  # softly, as categories are moved most often
            pages[moved] = {"pageid": page_id + 1, "text": f"{{{{Category redirect|{title}}}}}"}
    if landmark.quirk == "no item":
        pages[title] = {"pageid": page_id}
        return
    item = _item(landmark.item_id, landmark.name, title, _statements(landmark))
    if landmark.quirk == "category item":
        topic, item = item, _category_item(landmark, title)
        topic["sitelinks"] = {}
        entities[topic["id"]] = topic
    entities[item["id"]] = item
    pages[title] = {"pageid": page_id, "item": item["id"]}


def _statements(landmark: Landmark) -> list[Entity]:
    """The P31 statements that the landmark's quirk calls for."""
    item_id, own = landmark.item_id, landmark.toy_class
    match landmark.quirk:
        case "only category":
            return [_statement(item_id, "P31", WIKIMEDIA_CATEGORY.class_id)]
        case "only attraction":
            return [_statement(item_id, "P31", ATTRACTION.class_id)]
        case "two values":
            values = (own, ATTRACTION)
            return [_statement(item_id, "P31", value.class_id) for value in values]
        case "preferred":
            return [
                _statement(item_id, "P31", ATTRACTION.class_id),
                _statement(item_id, "P31", own.class_id, "preferred"),
            ]
        case "deprecated":
            return [_statement(item_id, "P31", own.class_id, "deprecated")]
        case "qualified":
            statement = _statement(item_id, "P31", own.class_id)
            years = {"P580": [_year("P580", 1172)], "P582": [_year("P582", 1954)]}
            return [{**statement, "qualifiers": years, "qualifiers-order": list(years)}]
        case _:
            return [_statement(item_id, "P31", own.class_id)]


def _category_item(landmark: Landmark, title: str) -> Entity:
    """A Wikimedia category whose main topic (P301) is the landmark's item."""
    item_id = f"Q{int(landmark.item_id[1:]) + CATEGORY_ITEMS}"
    item = _item(item_id, title, title, [_statement(item_id, "P31", WIKIMEDIA_CATEGORY.class_id)])
    item["claims"]["P301"] = [_statement(item_id, "P301", landmark.item_id)]
    return item


def _item(item_id: str, label: str, page: str, instance_of: list[Entity]) -> Entity:
    claims = {"P31": instance_of}
    sitelink = {"site": "commonswiki", "title": page, "badges": []}
    return {
        **_entity(item_id, "en", label),
        "claims": claims,
        "sitelinks": {"commonswiki": sitelink},
    }


def _class_entity(toy_class: ToyClass) -> Entity:
    language = "mul" if toy_class.class_id in LABELLED_FOR_ALL_LANGUAGES else "en"
    class_id = toy_class.class_id
    above = [_statement(class_id, "P279", up) for up in SUBCLASS_OF.get(class_id, ())]
    claims = {"P279": above} if above else {}
    return {**_entity(class_id, language, toy_class.label), "claims": claims, "sitelinks": {}}


def _entity(entity_id: str, language: str, label: str) -> Entity:
    number = int(entity_id[1:])
    return {
        "pageid": number,
        "ns": 0,
        "title": entity_id,
        "lastrevid": 2_000_000_000 + number % 1_000_000,
        "modified": MODIFIED,
        "type": "item",
        "id": entity_id,
        "labels": {language: {"language": language, "value": label}},
    }


def _statement(item_id: str, property_id: str, value_id: str, rank: str = "normal") -> Entity:
    value = {"entity-type": "item", "numeric-id": int(value_id[1:]), "id": value_id}
    digest = sha1(f"{item_id}:{property_id}:{value_id}".encode()).digest()
    return {
        "mainsnak": {
            "snaktype": "value",
            "property": property_id,
            "hash": sha1(f"{property_id}:{value_id}".encode()).hexdigest(),
            "datavalue": {"value": value, "type": "wikibase-entityid"},
            "datatype": "wikibase-item",
        },
        "type": "statement",
        "id": f"{item_id}${UUID(bytes=digest[:16])}",
        "rank": rank,
    }


def _year(property_id: str, year: int) -> Entity:
    value = {
        "time": f"+{year}-00-00T00:00:00Z",
        "timezone": 0,
        "before": 0,
        "after": 0,
        "precision": 9,
        "calendarmodel": "http://www.wikidata.org/entity/Q1985727",
    }
    return {
        "snaktype": "value",
        "property": property_id,
        "hash": sha1(f"{property_id}:{year}".encode()).hexdigest(),
        "datavalue": {"value": value, "type": "time"},
        "datatype": "time",
    }
