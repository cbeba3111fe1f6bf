"""Bring in "instance of" statements from Wikimedia's dumps, with no request at all.

The way is that of the API road: page, item, topic (P301), classes, over the same facts, so the same
wiki gives the same rows. A JSON dump can only be read from end to end, which takes hours, and what
an item leads to may come before it: so the dump is read as often as something is still wanted.
The first time brings the items and, as these are likely classes, everything that is a subclass of
something; the second the topics. What was found is kept, so a run that was stopped reads only the
dump again that it was at, and that for what is still wanted. Only the lines of wanted entities are
parsed; the id of all others is read off the start of the line.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd

from hgld.config import ScrapeOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.scrape.answers import (
    Item,
    Page,
    WikiClass,
    is_item_id,
    parse_json,
    read_classes,
    read_items,
)
from hgld.hierarchy.scrape.crawl import follow_all, in_parts
from hgld.hierarchy.scrape.dump_pages import read_blocks, read_dumped_pages
from hgld.hierarchy.scrape.endings import settle
from hgld.hierarchy.scrape.route import NextQuestion
from hgld.hierarchy.scrape.store import DUMPS, Facts, FactStore, open_store
from hgld.hierarchy.scrape.titles import title_of_url
from hgld.tasks import say
from hgld.words import count_text

_ID = re.compile(rb'\s*\{"type":"item","id":"(Q\d+)"')

Entity = Mapping[str, Any]
KEPT_AT_ONCE = 5000  # facts a transaction
SUBCLASS = b'"P279":['
UNTOLD = "soft redirects and merged items are among no_item, as\ndumps do not say where they lead"


def read_entities(
    path: Path,
    wanted: Collection[str],
    label: str,
    also: Callable[[bytes], bool] | None = None,
) -> Iterator[tuple[str, Entity]]:
    """Id and entity of the wanted items, and of those whose line ``also`` wants.

    Raises:
        InvalidData: no such file, or no dump of items, or one that is cut.
    """
    ids = {item_id.encode() for item_id in wanted}
    block, items = b"", 0
    entity: Entity | None
    for block in read_blocks(path, label):
        if not items and not block.lstrip().startswith((b"[", b"{")):
            raise InvalidData(f"{path}: expected a JSON dump of Wikidata, one entity a line")
        for line in block.split(b"\n"):
            entity = None
            if start := _ID.match(line):
                item_id = start[1]
            elif entity := _parse_odd(line, path):
                item_id = entity["id"].encode()
            else:
                continue
            if not items:
                labels = (entity or _parse(line, path)).get("labels")
                names = labels.values() if isinstance(labels, dict) else ()
                if any(isinstance(name, str) for name in names):  # no name would be found in these
                    raise InvalidData(
                        f"{path}: its entities are simplified; expected those of Wikidata's dump"
                    )
            items += 1
            if entity and also:  # without the blanks that another writer may have put into a line
                line = json.dumps(entity, ensure_ascii=False, separators=(",", ":")).encode()
            if item_id in ids or (also and also(line)):
                yield item_id.decode(), entity or _parse(line, path)
    if not items:
        raise InvalidData(f"{path}: no item in it; expected a JSON dump of Wikidata's items")
    _parse_odd(block.rstrip().rpartition(b"\n")[2], path)  # a file that is cut ends within a line


def _parse_odd(line: bytes, path: Path) -> Entity | None:
    """An item whose line does not start as most do; None for brackets and for other types."""
    text = line.strip().rstrip(b",")
    if len(text) < 3 or b'"type":"property"' in text[:60]:
        return None
    entity = _parse(line, path)
    return entity if is_item_id(entity["id"]) else None


def _parse(line: bytes, path: Path) -> Entity:
    try:
        entity = parse_json(line.strip().rstrip(b","))
        if not isinstance(entity, dict) or not isinstance(entity.get("id"), str):
            raise ValueError
        return entity
    except ValueError:
        raise InvalidData(
            f"{path}: a line is not an entity in JSON ({line[:60]!r}...); download the file again"
        ) from None


def read_dump(
    landmarks: pd.DataFrame, *, options: ScrapeOptions, context: StageContext
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row a landmark before; one row a statement after, or one row a landmark without any.

    Returns:
        ``instance_of`` and ``misses``; for the reasons see
        ``hgld.hierarchy.scrape.endings.REASONS``.

    Raises:
        UsageError: a dump is needed and not named.
        InvalidData: a file that is not a dump, or a damaged one.
        Resumable: the disk is full; what was found is kept.
    """
    entities = options.dump_entities
    if entities is None:
        raise UsageError(
            'scrape.dump_entities is not set; scrape.source = "dump" needs the JSON dump of '
            "Wikidata (latest-all.json.bz2 or .gz as it is)"
        )
    titles = sorted({title_of_url(url) or "" for url in landmarks["commons_url"]} - {""})
    # Other files, or newer ones, are read from the start.
    names = ("dump_items", "dump_pages", "dump_redirects", "dump_entities")
    paths: list[Path] = [path for name in names if (path := getattr(options, name)) is not None]
    for path in paths:
        if not path.is_file():
            raise InvalidData(f"{path}: no such file; see scrape.dump_* in the pipeline file")
    facts = [(path.name, path.stat()) for path in paths]
    dumps = DUMPS + " ".join(f"{name}:{f.st_size}:{f.st_mtime_ns}" for name, f in facts)
    with open_store(context.state / "dump.sqlite", dumps) as store:
        new = set(titles) - store.load(Page, titles).keys()
        if new:
            store.add(read_dumped_pages(new, options))
        for reading in count(1):
            items, used = set[str](), set[str]()
            for _, ending in follow_all(titles, Facts(store), options.follow_topics):
                if isinstance(ending, NextQuestion):
                    items.add(ending.key)
                else:
                    used |= {s.class_id for s in ending.item.statements} - {""}
            known = store.load(WikiClass, used)
            if not items and len(known) == len(used):
                break
            _learn_entities(entities, items, used - known.keys(), store, reading)
        return settle(landmarks, Facts(store), known, options.follow_topics, UNTOLD)


def _learn_entities(
    path: Path, items: Collection[str], classes: Collection[str], store: FactStore, reading: int
) -> None:
    """Read the dump once for these; what is not in it is kept as missing."""
    say(
        f"{path.name}, reading {reading}: for "
        f"{count_text(len(items), 'item')} and {count_text(len(classes), 'class')}"
    )
    left, unnamed = set(items), set(classes)
    # nearly all classes of landmarks are a subclass of something
    also = (lambda line: SUBCLASS in line) if reading == 1 else None
    entities = read_entities(path, left | unnamed, f"Reading {reading}", also)
    for some in in_parts(entities, KEPT_AT_ONCE):
        found = dict(some)
        wanted = {key: {"lastrevid": 0, **e} for key, e in found.items() if key in items}
        kept = read_items({"entities": wanted}, list(wanted))  # revision 0: the dump states none
        named = {key: e for key, e in found.items() if key not in items or key in classes}
        labelled = read_classes({"entities": named}, list(named))
        require_read(path, found.keys() & items, kept)
        require_read(path, found.keys() & classes, labelled)
        store.add(kept)
        store.add(labelled)
        left -= kept.keys()
        unnamed -= labelled.keys()
        if not left and not unnamed and also is None:
            break
    store.add({key: Item("") for key in left})
    store.add({key: WikiClass(key, key) for key in unnamed})


def require_read(path: Path, wanted: Collection[str], read: Collection[str]) -> None:
    """Refuse a damaged entity, so that it does not count as a missing one.

    Raises:
        InvalidData: a wanted one was not read.
    """
    if damaged := sorted(set(wanted) - set(read)):
        raise InvalidData(f"{path}: entity {damaged[0]} is damaged; download the file again")
