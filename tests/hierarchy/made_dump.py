"""Dumps of a made wiki, in the formats that Wikimedia publishes.

The SQL files are as mysqldump writes them; between the rows that matter stand rows of other
namespaces, properties and sites, and texts that look like rows.
"""

import bz2
import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Document = dict[str, Any]
PAGE = ("page_id", "page_namespace", "page_title", "page_is_redirect", "page_len")
PROPS = ("pp_page", "pp_propname", "pp_value", "pp_sortkey")
REDIRECT = ("rd_from", "rd_namespace", "rd_title", "rd_interwiki", "rd_fragment")
SITELINKS = ("ips_row_id", "ips_item_id", "ips_site_id", "ips_site_page")
DECOY = "It's_(9,14,'no'),(7,14,'trap"  # a title that holds what looks like rows


def write_dumps(document: Document, folder: Path, ending: str = "") -> dict[str, Path]:
    """All dumps of a ``wiki.json`` document; options of the scrape -> paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pages, redirects = document["pages"], document["redirects"]
    ids = {title: 100 + number for number, title in enumerate([*pages, *redirects])}
    page = [(i, 14, _name(title), 0, 9) for title, i in ids.items()]
    page += [(1, 0, "Eiffel_Tower", 0, 9), (2, 14, DECOY, 0, 9), (3, 6, "A.jpg", 0, 9)]
    props = [(ids[t], "wikibase_item", p["item"], None) for t, p in pages.items() if "item" in p]
    props += [(ids[next(iter(pages))], "defaultsort", "x),(1,'wikibase_item','Q1',NULL", None)]
    moved = [(ids[a], 14, _name(b), "", "") for a, b in redirects.items()]
    links = [
        (i, int(p["item"][1:]), "commonswiki", t)
        for i, (t, p) in enumerate(pages.items())
        if "item" in p
    ]
    links += [(998, 42, "enwiki", next(iter(pages))), (999, 5, "commonswiki", "O'Hara, \\ (x)")]
    return {
        "page": _write(folder / f"page.sql{ending}", _sql("page", PAGE, page)),
        "page_props": _write(folder / f"props.sql{ending}", _sql("page_props", PROPS, props)),
        "redirect": _write(folder / f"redirect.sql{ending}", _sql("redirect", REDIRECT, moved)),
        "sitelinks": _write(
            folder / f"items.sql{ending}", _sql("wb_items_per_site", SITELINKS, links)
        ),
        "entities": _write(folder / f"all.json{ending}", _json(document["entities"].values())),
    }


def _name(title: str) -> str:
    return title.partition(":")[2].replace(" ", "_")


def _sql(table: str, columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> bytes:
    created = ",\n".join(f"  `{name}` varbinary(255) NOT NULL DEFAULT ''" for name in columns)
    size = min(5000, len(rows) // 2 + 1)  # real INSERTs are of about a megabyte
    lines = [
        "-- MySQL dump 10.19  Distrib 10.3.38-MariaDB",
        f"DROP TABLE IF EXISTS `{table}`;",
        f"CREATE TABLE `{table}` (\n{created},\n  PRIMARY KEY (`{columns[0]}`),",
        f"  KEY `x` (`{columns[-1]}`)\n) ENGINE=InnoDB DEFAULT CHARSET=binary;",
        f"/*!40000 ALTER TABLE `{table}` DISABLE KEYS */;",
    ]
    for start in range(0, len(rows), size):
        cells = ",".join(f"({','.join(map(_cell, row))})" for row in rows[start : start + size])
        lines.append(f"INSERT INTO `{table}` VALUES {cells};")
    return "\n".join([*lines, "-- Dump completed", ""]).encode()


def _cell(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    text = str(value).replace("\\", "\\\\").replace("'", "\\'").replace('"', '\\"')
    return f"'{text}'"


def _json(entities: Iterable[Document]) -> bytes:
    """One entity a line, keys as in the real dump; properties and other items in between."""
    other = {"type": "item", "id": "Q3", "labels": {}, "claims": [], "lastrevid": 1}
    prop = {"type": "property", "datatype": "wikibase-item", "id": "P31", "labels": {}}
    lines = [json.dumps(_in_order(entity)) for entity in (prop, other, *entities)]
    return ("[\n" + ",\n".join(line.replace('": ', '":').replace(', "', ',"') for line in lines)
            + "\n]\n").encode()  # fmt: skip


def _in_order(entity: Document) -> Document:
    first = ("type", "id", "labels", "claims", "sitelinks")
    left = ("pageid", "ns", "title")
    rest = {key: value for key, value in entity.items() if key not in (*first, *left)}
    return {**{key: entity[key] for key in first if key in entity}, **rest}


def _write(path: Path, data: bytes) -> Path:
    packed = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)(data)
    path.write_bytes(packed)
    return path
