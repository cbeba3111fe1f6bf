"""Entities out of Wikidata's JSON dump, streamed: one a line, of which few are wanted.

Only the lines of wanted entities are parsed; the id of all others is read off the line's start.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from hgld.errors import InvalidData
from hgld.hierarchy.scrape.compressed import read_blocks
from hgld.hierarchy.scrape.strict_json import parse_json

__all__ = ["Entity", "read_entities"]

_ID = re.compile(rb'\s*\{"type":"item","id":"(Q\d+)"')

Entity = Mapping[str, Any]


def read_entities(
    path: Path,
    wanted: Collection[str],
    label: str,
    also: Callable[[bytes], bool] = lambda line: False,
) -> Iterator[tuple[str, Entity]]:
    """Id and entity of the wanted items, and of those whose line ``also`` wants.

    Raises:
        InvalidData: no such file, or no dump of entities, or one that is cut.
    """
    ids = {item_id.encode() for item_id in wanted}
    first = True
    for block in read_blocks(path, label):
        if first and not block.lstrip().startswith((b"[", b"{")):
            raise InvalidData(f"{path}: expected a JSON dump of Wikidata, one entity a line")
        first = False
        for line in block.split(b"\n"):
            start = _ID.match(line)
            if start is None:
                entity = _parse_odd(line, path)
                if entity and entity["id"].encode() in ids:
                    yield entity["id"], entity
            elif start[1] in ids or also(line):
                yield start[1].decode(), _parse(line, path)


def _parse_odd(line: bytes, path: Path) -> Entity | None:
    """An entity whose line does not start as most do; None for brackets and for other types."""
    text = line.strip().rstrip(b",")
    if len(text) < 3 or b'"type":"property"' in text[:60]:
        return None
    entity = _parse(line, path)
    return entity if entity.get("type") == "item" and "id" in entity else None


def _parse(line: bytes, path: Path) -> Entity:
    try:
        entity = parse_json(line.strip().rstrip(b","))
        if not isinstance(entity, dict) or not isinstance(entity.get("id", ""), str):
            raise ValueError
        return entity
    except ValueError:
        raise InvalidData(
            f"{path}: a line is no JSON ({line[:60]!r}...); download the file again"
        ) from None
