"""Items of Wikidata by name, page or id, and the statements above them; by request or from a dump.

Every look-up and every item is kept (see ``hgld.hierarchy.scrape.subclasses``), so that a run that
was stopped resumes and an edited wiki changes nothing before somebody asks again. A look-up has a
key of three parts: its kind, the language, wiki or property, and the text.

A dump has only whole names: a search in it finds labels and aliases that are exactly the text. It
has no redirects either, so an item that was merged does not exist. Each step that needs something
new reads it from end to end.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.artifacts import BY_LANDMARK, records, table_of
from hgld.config import ScrapeOptions, StageContext
from hgld.hierarchy.scrape.answers import (
    LANGUAGES,
    PARTS,
    LookUp,
    NamedItem,
    lookup_key,
    read_found,
    read_named_items,
    wiki_of,
)
from hgld.hierarchy.scrape.client import ApiClient
from hgld.hierarchy.scrape.dump import Entity, read_entities, require_read
from hgld.hierarchy.scrape.saved import UNKNOWN, read_names
from hgld.hierarchy.scrape.subclasses import Knowledge, Wikidata, walk_up
from hgld.tasks import say
from hgld.words import count_text, single_blanks, some_of

STRINGS = re.compile(rb'"(?:value|title)":"([^"\\]*(?:\\.[^"\\]*)*)"')
PARTS_READ = ("labels", "descriptions", "aliases", "sitelinks", "claims")


class DumpedItems:
    """Items of a JSON dump of Wikidata by id, without a request.

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


def ask_lookups(
    client: ApiClient, options: ScrapeOptions, folder: Path, most: int
) -> Wikidata[LookUp]:
    """Return what is known of look-ups, kept in a folder.

    Args:
        client: asks for what is not known.
        options: address of the API.
        folder: of the file.
        most: items that a search returns.
    """

    def ask(keys: Sequence[str]) -> Mapping[str, Any]:
        kind, where, text = keys[0].split(PARTS)
        if kind == "search":
            return client.ask(
                options.wikidata_api,
                "wbsearchentities",
                {"search": text, "language": where, "type": "item", "limit": str(most)},
            )
        if kind == "page":  # only a single title is normalised, over redirects of its wiki
            page = {"sites": where, "titles": text, "normalize": "1", "props": "info"}
            return client.ask(options.wikidata_api, "wbgetentities", page)
        search = f"haswbstatement:{where}={text}"
        question = {"list": "search", "srsearch": search, "srlimit": str(most)}
        return client.ask(options.wikidata_api, "query", question)

    path = folder / f"lookups_{most}.json"
    return Wikidata(client, options, path, ask, read_found, LookUp, batch_size=1)


@contextmanager
def open_items(
    options: ScrapeOptions,
    folder: Path,
    languages: Sequence[str],
    properties: Sequence[str],
    most: int = 7,
) -> Iterator[tuple[Knowledge[LookUp], Knowledge[NamedItem]]]:
    """Open look-ups and items: of the dump ``scrape.dump_entities``, else of Wikidata's API.

    Args:
        options: the dump, or the address and the manners of asking.
        folder: of the answers that are kept.
        languages: of the names.
        properties: whose statements are read.
        most: items that a search returns.

    Raises:
        UsageError: without a dump, ``scrape.contact`` is not set.
    """
    wikis = [wiki_of(language) for language in languages]
    if options.dump_entities is not None:
        items = DumpedItems(options.dump_entities, languages, wikis, properties)
        yield DumpedLookUps(items), items
        return
    question = {
        "props": "info|labels|descriptions|aliases|claims|sitelinks",
        "languages": "|".join(dict.fromkeys((*languages, "mul"))),
        "sitefilter": "|".join(wikis),
    }
    read = partial(read_named_items, properties=properties)
    path = folder / f"items_{'_'.join((*languages, *properties))}.json"
    with ApiClient(options) as client:
        named = Wikidata(client, options, path, question, read, NamedItem)
        yield ask_lookups(client, options, folder, most), named


def scrape_items(
    landmarks: pd.DataFrame,
    linked: pd.DataFrame,
    *,
    options: ScrapeOptions,
    context: StageContext,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """One row a class before; one row a statement of its item after, or one with its name.

    A class without an item, or whose item has no such statement, goes on by its name. The way up
    ends at ``scrape.roots``, after ``scrape.most_hops``, and never passes an item twice. Values and
    what is above them have their labels in the languages of the names, else in English.

    Returns:
        ``instance_of``; ``misses``, the classes without a name; and ``ancestry``, the statements
        that were met, with their ids and the revisions of their items.

    Raises:
        UsageError: ``scrape.contact`` is not set.
        Resumable: Wikidata cannot be reached now; finished batches are kept.
    """
    linked = linked[linked["item_id"] != ""]  # an emptied cell takes the item away
    items = {row["item_id"] for row in records(linked)}
    languages = tuple(dict.fromkeys((*context.languages, "en")))
    best_first = dict.fromkeys((*context.languages, *LANGUAGES))
    graph: dict[str, NamedItem] = {}
    if items:
        with open_items(options, context.state, languages, options.properties) as (_, known):
            # One hop more than asked for: the values are the first above the items.
            graph = walk_up(items, set(options.roots) - items, options.most_hops + 1, known.learn)
    if gone := [
        f"{row['name']} ({row['item_id']})"
        for row in records(linked)
        if not graph[row["item_id"]].item_id
    ]:
        by_name = f"{count_text(len(gone), 'class')} by name, as Wikidata has no such item_id"
        say(f"linked.csv: {by_name}: {some_of(gone, 3)}")
    rows = [
        {
            **UNKNOWN,
            **{name: row[name] for name in (*BY_LANDMARK, "item_id")},
            "revision": graph[row["item_id"]].revision,
            "order": order,
            "class_id": graph[above].item_id or above,
            "instance_of": graph[above].named(best_first) or above,
        }
        for row in records(linked)
        for order, above in enumerate(graph[row["item_id"]].above)
    ]
    found = table_of("instance_of", rows)
    keys, with_values = (pd.MultiIndex.from_frame(t[BY_LANDMARK]) for t in (landmarks, found))
    by_item = keys.isin(with_values)
    named, misses = read_names(landmarks[~by_item], options=options, context=context)
    properties = " or ".join(options.properties)
    say(
        f"{count_text(int(by_item.sum()), 'class')} by the {properties} of their items, "
        f"{len(named):,} by their names"
    )
    ancestry = [
        {
            "item_id": item.item_id,
            "label": item.named(best_first),
            "property": name,
            "above": graph[above].item_id or above,
            "statement": statement,
            "revision": item.revision,
        }
        for item in graph.values()
        for name, above, statement in item.statements
        if above in graph
    ]
    # an item may name a class twice, such as for two times, or by an id that was merged into it
    once = table_of("ancestry", ancestry).drop_duplicates(["item_id", "property", "above"])
    return pd.concat([found, named]), misses, once
