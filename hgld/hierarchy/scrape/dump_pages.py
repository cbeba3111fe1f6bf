"""Which item each Commons page has, out of SQL dumps, as the API would say it.

Either ``wb_items_per_site`` of Wikidata, which names pages by title, or ``page_props`` of Commons,
which names them by the ids in its ``page``. With ``page`` a missing page is told from one without
item; with ``redirect`` too, redirects are followed. Soft redirects stand in texts, which these
dumps do not hold: such pages end as no_item.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from hgld.config import ScrapeOptions
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.scrape.answers import Page, is_item_id
from hgld.hierarchy.scrape.sql_dump import read_rows, table_name, text_of
from hgld.hierarchy.scrape.titles import as_stored

__all__ = ["read_dumped_pages"]

CATEGORY = b"14"  # namespace
SITE = b"'commonswiki'"
LONGEST_BYTES = 255  # of a title without its namespace
MOST_MOVES = 3  # of hard redirects; MediaWiki mends longer chains itself
_ILLEGAL = re.compile(r"[\[\]{}<>|]|%[0-9A-Fa-f]{2}")


def read_dumped_pages(titles: Iterable[str], options: ScrapeOptions) -> dict[str, Page]:
    """Facts of the asked titles.

    Raises:
        UsageError: a dump is needed and not named.
        InvalidData: a file that is not what it should be.
    """
    stored = {title: as_stored(title) for title in titles}
    if options.dump_items is None:
        raise UsageError(
            'scrape.dump_items is not set; scrape.source = "dump" needs page_props.sql of '
            "Commons or wb_items_per_site.sql of Wikidata (.gz and .bz2 as they are)"
        )
    ids, moved = _find_pages(set(stored.values()), options)
    ends = {name: _end(name, moved) for name in stored.values()}
    items = _find_items({end for end in ends.values() if end}, ids, options)
    known = None if options.dump_pages is None else ids.keys()
    return {title: _page(name, ends[name], items, known) for title, name in stored.items()}


def _page(name: str, end: str, items: Mapping[str, str], known: Collection[str] | None) -> Page:
    """The fact of one title, in the words of the API road."""
    if fault := _fault(name):
        return Page(reason="bad_url", detail=fault)
    if not end:
        return Page(reason="redirect_loop", detail=f"'{name}' redirects in a circle")
    if end in items:
        return Page(items[end])
    if known is not None and end not in known:
        return Page(reason="no_page", detail=f"'{end}' does not exist")
    return Page("", "no_item", f"'{end}' has no Wikidata item")


def _fault(title: str) -> str:
    """Why MediaWiki would have no page of that title, in its words; empty where it may."""
    if bad := _ILLEGAL.search(title):
        return f'The requested page title contains invalid characters: "{bad[0]}".'
    if len(title.partition(":")[2].encode()) > LONGEST_BYTES:
        return f"The requested page title is too long: more than {LONGEST_BYTES} bytes."
    return ""


def _end(name: str, moved: Mapping[str, str]) -> str:
    """Where hard redirects lead; empty where they go in a circle."""
    way = [name]
    while way[-1] in moved:
        way.append(moved[way[-1]])
        if way[-1] in way[:-1]:
            return ""
    return way[-1]


def _find_pages(
    titles: set[str], options: ScrapeOptions
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Title -> page id, and title -> title where a page redirects; both over all hops."""
    ids: dict[str, bytes] = {}
    moved: dict[str, str] = {}
    if options.dump_pages is None:
        return ids, moved
    new = titles
    for _ in range(MOST_MOVES):
        here = _page_ids(new, options.dump_pages)
        ids |= here
        targets = _targets(here, options.dump_redirects) if options.dump_redirects else {}
        moved |= targets
        new = set(targets.values()) - ids.keys() - titles
        if not new:
            break
    return ids, moved


def _page_ids(titles: set[str], path: Path) -> dict[str, bytes]:
    wanted = {title.partition(":")[2].replace(" ", "_").encode(): title for title in titles}
    plain = {name for name in wanted if b"'" not in name}
    found: dict[str, bytes] = {}
    columns = ("page_id", "page_namespace", "page_title")
    for page_id, namespace, cell in read_rows(path, columns, "Pages"):
        if namespace != CATEGORY:
            continue
        name = cell[1:-1] if b"\\" not in cell else text_of(cell).encode()
        if name in plain or name in wanted:
            found[wanted[name]] = page_id
    return found


def _targets(ids: Mapping[str, bytes], path: Path) -> dict[str, str]:
    title_of = {page_id: title for title, page_id in ids.items()}
    columns = ("rd_from", "rd_namespace", "rd_title")
    return {
        title_of[page_id]: "Category:" + text_of(cell).replace("_", " ")
        for page_id, namespace, cell in read_rows(path, columns, "Redirects")
        if page_id in title_of and namespace == CATEGORY
    }


def _find_items(
    titles: set[str], ids: Mapping[str, bytes], options: ScrapeOptions
) -> dict[str, str]:
    path = options.dump_items
    assert path is not None
    table = table_name(path)
    if table == "wb_items_per_site":
        found = _by_sitelink(titles, path)
    elif table == "page_props":
        if options.dump_pages is None:
            raise UsageError(
                "scrape.dump_pages is not set; page_props.sql names pages by their ids in page.sql"
            )
        found = _by_property({ids[title]: title for title in titles if title in ids}, path)
    else:
        raise InvalidData(f"{path}: holds table {table}; expected page_props or wb_items_per_site")
    for title, item_id in found.items():
        if not is_item_id(item_id):
            raise InvalidData(
                f"{path}: '{title}' has the item {item_id[:40]!r}; expected an id such as Q243, "
                "download the file again"
            )
    return found


def _by_sitelink(titles: set[str], path: Path) -> dict[str, str]:
    columns = ("ips_site_id", "ips_item_id", "ips_site_page")
    pairs = (
        (text_of(cell).replace("_", " "), f"Q{number.decode(errors='replace')}")
        for site, number, cell in read_rows(path, columns, "Sitelinks")
        if site == SITE
    )
    return {title: item_id for title, item_id in pairs if title in titles}


def _by_property(title_of: Mapping[bytes, str], path: Path) -> dict[str, str]:
    columns = ("pp_page", "pp_propname", "pp_value")
    return {
        title_of[page_id]: text_of(value)
        for page_id, name, value in read_rows(path, columns, "Page properties")
        if page_id in title_of and name.endswith(b"'wikibase_item'")
    }
