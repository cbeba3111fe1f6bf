"""Items by name, page or id from a JSON dump of Wikidata, without a request.

They answer as ``hgld.hierarchy.scrape.items`` does, but a dump has only whole names: a search finds
labels and aliases that are exactly the text. It has no redirects either, so an item that was merged
does not exist. Each step that needs something new reads the dump from end to end.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hgld.hierarchy.scrape.answers import (
    PARTS,
    LookUp,
    NamedItem,
    lookup_key,
    read_named_items,
    wiki_of,
)
from hgld.hierarchy.scrape.dump import Entity, read_entities, require_read
from hgld.words import single_blanks

__all__ = ["DumpedItems", "DumpedLookUps"]

STRINGS = re.compile(rb'"(?:value|title)":"([^"\\]*(?:\\.[^"\\]*)*)"')
PARTS_READ = ("labels", "descriptions", "aliases", "sitelinks", "claims")


class DumpedItems:
    """Items of a dump by id.

    Args:
        path: of the dump (.json, .gz or .bz2).
        languages: of the names that are read.
        wikis: whose page titles are read.
        properties: whose statements are read.
    """

    def __init__(
        self, path: Path, languages: Sequence[str], wikis: Sequence[str], properties: Sequence[str]
    ) -> None:
        self.path = path
        self.languages = {*languages, "mul"}
        self.wikis = set(wikis)
        self.properties = properties
        self.known: dict[str, NamedItem] = {}

    def learn(self, item_ids: Iterable[str]) -> Mapping[str, NamedItem]:
        """Return these items, all of them; one that the dump lacks has no id."""
        item_ids = set(item_ids)
        new = item_ids - self.known.keys()
        if new:
            for item_id, entity in read_entities(self.path, new, "Reading items"):
                self.add(item_id, entity)
        return {item_id: self.known.setdefault(item_id, NamedItem("")) for item_id in item_ids}

    def add(self, item_id: str, entity: Entity) -> None:
        """Keep what is read of an entity."""
        parts: dict[str, Any] = {name: entity.get(name) or {} for name in PARTS_READ}
        for name in ("labels", "descriptions", "aliases"):
            parts[name] = {code: t for code, t in parts[name].items() if code in self.languages}
        parts["sitelinks"] = {w: t for w, t in parts["sitelinks"].items() if w in self.wikis}
        whole = {"id": item_id, "lastrevid": 0, **entity, **parts}  # 0: the dump states none
        read = read_named_items({"entities": {item_id: whole}}, [item_id], self.properties)
        require_read(self.path, [item_id], read)
        self.known |= read


class DumpedLookUps:
    """Look-ups in a dump by their keys; the items that they lead to are kept, too."""

    def __init__(self, items: DumpedItems) -> None:
        self.items = items
        self.known: dict[str, list[str]] = {}

    def learn(self, keys: Iterable[str]) -> Mapping[str, LookUp]:
        """Return the ids of each key."""
        keys = list(keys)
        asked = {key: key.split(PARTS) for key in keys if key not in self.known}
        # A name that no item has may be the title of a page; it is looked up in the same pass.
        pages = [(wiki_of(where), text) for kind, where, text in asked.values() if kind == "search"]
        asked |= {lookup_key("page", *page): ["page", *page] for page in pages}
        new = {key: parts for key, parts in asked.items() if key not in self.known}
        if new:
            self.known |= {key: [] for key in new}
            may_lead = _may_hold([text for _, _, text in new.values()])
            for item_id, entity in read_entities(self.items.path, (), "Reading names", may_lead):
                led = [key for key, parts in new.items() if _leads(entity, *parts)]
                for key in led:
                    self.known[key].append(item_id)
                if led:
                    self.items.add(item_id, entity)
        return {key: LookUp(self.known[key]) for key in keys}


def _may_hold(texts: Collection[str]) -> Callable[[bytes], bool]:
    """Return a check whether a line may hold one of the texts; it spares most lines a parser."""
    # Bytes know the capitals of ASCII alone, so other letters are looked up in their usual cases.
    forms = {f for t in texts for f in (t, t.lower(), t.upper(), t.title(), t.capitalize())}
    written = {json.dumps(form, ensure_ascii=a)[1:-1] for form in forms for a in (True, False)}
    written |= {text.replace("/", r"\/") for text in written}  # as PHP may write it
    wanted = {text.encode().lower() for text in written}
    return lambda line: any(text.lower() in wanted for text in STRINGS.findall(line))


def _leads(entity: Entity, kind: str, where: str, text: str) -> bool:
    """Whether a label, an alias, a page title or an id of an entity is the text, in any case."""
    if kind == "search":
        labels, aliases = entity.get("labels") or {}, entity.get("aliases") or {}
        found = [labels[code]["value"] for code in (where, "mul") if code in labels]
        found += [one["value"] for code in (where, "mul") for one in aliases.get(code, ())]
    elif kind == "page":
        found = [link["title"] for link in [(entity.get("sitelinks") or {}).get(where)] if link]
    else:
        snaks = [claim["mainsnak"] for claim in (entity.get("claims") or {}).get(where, ())]
        found = [str(snak["datavalue"]["value"]) for snak in snaks if "datavalue" in snak]
    return text.casefold() in (single_blanks(name).casefold() for name in found)
