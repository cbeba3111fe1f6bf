"""Write a world into a wiki's SQLite tables, or hand it to MediaWiki's own import.

SQL takes seconds for what would take the import an hour. A test holds both roads against each
other: for the same pages the API has to give the same answers.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import cache
from hashlib import sha1
from html import escape
from pathlib import Path
from typing import Any

from tests.mediawiki.world import SOFT_REDIRECT, Page, World

WRITTEN = "20260801000000"
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
NAMESPACES = {"Category": 14, "Template": 10}
AUTHOR = 2  # the actor that the installation itself edits as

Rows = Iterator[tuple[Any, ...]]


def database(folder: Path) -> Path:
    """The wiki's main database."""
    return folder / "data" / "hgld.sqlite"


def fill_entities(folder: Path, world: World) -> None:
    """Write what wbgetentities and the page properties are read from."""
    with closing(sqlite3.connect(database(folder))) as connection, connection:
        links = {page.title: page.item for page in world.pages if page.item}
        connection.executemany("INSERT OR REPLACE INTO hgld_sitelink VALUES (?, ?)", links.items())
        rows = _entity_rows(world, links)
        connection.executemany("INSERT OR REPLACE INTO hgld_entity VALUES (?, ?, ?, ?, ?)", rows)


def fill_by_sql(folder: Path, world: World) -> None:
    """Write entities and pages straight into the tables; more worlds may follow."""
    fill_entities(folder, world)
    with closing(sqlite3.connect(database(folder))) as connection, connection:
        first = connection.execute("SELECT max(page_id) FROM page").fetchone()[0] + 1
        pages = list(world.all_pages())
        if connection.execute("SELECT 1 FROM linktarget").fetchone():
            pages = world.pages
        else:
            _write(connection, "linktarget", [(1, 10, _key(SOFT_REDIRECT))])
        for table, rows in _page_rows(pages, first):
            _write(connection, table, rows)


def export_xml(world: World) -> str:
    """The pages as MediaWiki's import reads them."""
    pages = "\n".join(map(_page_xml, world.all_pages()))
    head = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11"'
    return f'{head} xml:lang="en">\n{pages}\n</mediawiki>\n'


def _page_xml(page: Page) -> str:
    return (
        f"<page><title>{escape(page.title)}</title><ns>{_namespace(page.title)}</ns><revision>"
        "<timestamp>2026-08-01T00:00:00Z</timestamp><contributor><username>Filler</username>"
        "</contributor><model>wikitext</model><format>text/x-wiki</format>"
        f'<text xml:space="preserve">{escape(page.text)}</text></revision></page>'
    )


def _entity_rows(world: World, links: dict[str, str]) -> Rows:
    titles = {item: title for title, item in links.items()}
    for number, (key, found) in enumerate(sorted(world.entities.items()), 1):
        document = {"sitelinks": _site_links(titles.get(key)), **found}
        yield key, "", 10_000_000 + number, revision_of(key), json.dumps(document)
    for key, target in world.merged.items():
        yield key, target, 0, 0, "{}"
    if world.claims_of_all:
        yield "*", "", 0, 0, json.dumps(world.claims_of_all)


def revision_of(item_id: str) -> int:
    """The revision that an item is given."""
    return 100_000 + int(item_id[1:])


def _site_links(title: str | None) -> dict[str, Any]:
    if title is None:
        return {}
    return {"commonswiki": {"site": "commonswiki", "title": title, "badges": []}}


def _write(connection: sqlite3.Connection, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    rows = list(rows)
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def _page_rows(pages: list[Page], first: int) -> Iterator[tuple[str, Rows]]:
    """Rows by table; text, content, revision and page share their number."""
    numbered = list(enumerate(pages, first))
    yield "text", ((n, page.text, "utf-8") for n, page in numbered)
    yield "content", ((n, *_weigh(page.text), 1, f"tt:{n}") for n, page in numbered)
    yield "slots", ((n, 1, n, n) for n, _ in numbered)
    yield "revision_comment_temp", ((n, 1) for n, _ in numbered)
    yield "revision", (_revision(n, page) for n, page in numbered)
    yield "page", (_page(n, page) for n, page in numbered)
    yield "page_props", ((n, "wikibase_item", p.item, None) for n, p in numbered if p.item)
    yield "redirect", ((n, *_target(p.redirect), "", "") for n, p in numbered if p.redirect)
    moved = [(n, p) for n, p in numbered if p.redirect or p.soft]
    yield "pagelinks", ((n, *_target(p.redirect or p.soft), _namespace(p.title)) for n, p in moved)
    yield "templatelinks", ((n, 1, _namespace(p.title)) for n, p in moved if p.soft)
    yield "categorylinks", (_category(n, page) for n, page in numbered if not page.redirect)


def _revision(number: int, page: Page) -> tuple[Any, ...]:
    size, digest = _weigh(page.text)
    return number, number, 0, AUTHOR, WRITTEN, 0, 0, size, 0, digest


def _page(number: int, page: Page) -> tuple[Any, ...]:
    space, key = _target(page.title)
    size = _weigh(page.text)[0]
    moved = int(bool(page.redirect))
    chance = (number * 0.618) % 1
    return number, space, key, moved, 1, chance, WRITTEN, WRITTEN, number, size, "wikitext", None


def _category(number: int, page: Page) -> tuple[Any, ...]:
    redirected = page.soft or page.title == SOFT_REDIRECT
    category = "Category_redirects" if redirected else "Landmarks"
    kind = "page" if page.title == SOFT_REDIRECT else "subcat"
    sort_key = page.title.partition(":")[2].upper()
    return number, category, sort_key, "", WRITTEN, "uppercase", kind


def _target(title: str) -> tuple[int, str]:
    return _namespace(title), _key(title)


def _namespace(title: str) -> int:
    return NAMESPACES[title.partition(":")[0]]


def _key(title: str) -> str:
    return title.partition(":")[2].replace(" ", "_")


@cache
def _weigh(text: str) -> tuple[int, str]:
    """Size and SHA-1 in base 36, as the tables hold them."""
    data = text.encode()
    number, digits = int(sha1(data).hexdigest(), 16), ""
    while number:
        number, digit = divmod(number, 36)
        digits = DIGITS[digit] + digits
    return len(data), digits.zfill(31)
