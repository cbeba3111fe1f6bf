"""The item of each Commons page from SQL dumps, as the API would return it.

Either ``wb_items_per_site`` of Wikidata, which names pages by title, or ``page_props`` of Commons,
which names them by the ids in its ``page``. With ``page`` a missing page is distinguished from one
without item; with ``redirect`` too, redirects are followed. Soft redirects are in texts, which
these dumps do not hold: such pages end as no_item.

An SQL dump is one CREATE TABLE and then INSERTs of about a megabyte, each with thousands of rows:
on one line, or with a line for each row, as MariaDB's newer programs write them. The columns are
found by name in the CREATE TABLE, since they change over the years. Rows are matched as a unit,
strings with escaped quotes too, so no text can be taken for a row.

Dumps come as .gz or .bz2 and hold more than a disk when unpacked, so they are unpacked on the fly;
the first bytes show the format of a file. Progress counts the bytes of the file itself.
"""

import bz2
import gzip
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from hgld.config import ScrapeOptions
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.scrape.ancestors import chain_of, is_circular
from hgld.hierarchy.scrape.answers import Page, is_item_id
from hgld.hierarchy.scrape.titles import as_stored, fault_of_title
from hgld.tasks import track

BLOCK = 1 << 24
LONGEST_LINE = 1 << 28  # bytes; those of Wikimedia have a few million
MB = 1_000_000
_TABLE = re.compile(rb"CREATE TABLE (?:IF NOT EXISTS )?`(\w+)` \((.*?)\n\)", re.DOTALL)
_COLUMN = re.compile(rb"^\s*`(\w+)`", re.MULTILINE)
_TEXT = rb"(?:_binary )?'[^'\\]*(?:\\.[^'\\]*)*'"
_CELL = rb"(?:" + _TEXT + rb"|[^',()]+)"
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
CATEGORY = b"14"  # namespace
SITE = b"'commonswiki'"
MOST_MOVES = 3  # of hard redirects; MediaWiki resolves longer chains itself


def read_blocks(path: Path, label: str) -> Iterator[bytes]:
    """The file's text in blocks that end where a line ends.

    Raises:
        InvalidData: no such file, or its end is missing.
    """
    if not path.is_file():
        raise InvalidData(f"{path}: no such file; see scrape.dump_* in the pipeline file")
    steps = path.stat().st_size // MB + 1
    try:
        with path.open("rb") as raw:
            file: IO[bytes] = raw
            magic = raw.read(3)
            raw.seek(0)
            if magic[:2] == b"\x1f\x8b":
                file = gzip.GzipFile(fileobj=raw)  # type: ignore[assignment]
            elif magic == b"BZh":
                file = bz2.BZ2File(raw)
            yield from filter(None, track(_blocks(path, raw, file), label, steps))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidData(f"{path}: is cut short or damaged ({error}); download it again") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise InvalidData(f"{path}: is damaged ({error}); download it again") from None


def _blocks(path: Path, raw: IO[bytes], file: IO[bytes]) -> Iterator[bytes]:
    """Yield a block or nothing for each megabyte of the file, so that the bytes are counted."""
    rest, step = b"", 0
    while data := file.read(BLOCK):
        cut = data.rfind(b"\n") + 1
        block, rest = (rest + data[:cut], data[cut:]) if cut else (b"", rest + data)
        if len(rest) > LONGEST_LINE:  # a packed file of a few kilobytes may hold it
            raise InvalidData(
                f"{path}: a line has more than {LONGEST_LINE >> 20} MB; expected a dump "
                "of Wikimedia, download it again"
            )
        yield block
        here = raw.tell() // MB
        yield from [b""] * (here - step - 1)
        step = max(step, here)
    yield rest


def read_rows(path: Path, columns: Sequence[str], label: str) -> Iterator[tuple[bytes, ...]]:
    """The cells of the named columns, as written in the dump, row by row; see ``text_of``.

    Raises:
        InvalidData: no such file or column, a row that is cut.
    """
    table, there = describe_table(path)
    for name in columns:
        if name not in there:
            raise InvalidData(
                f"{path}: table {table} has no column {name}; it has {', '.join(there)}"
            )
    pattern = b",".join(b"(" + _CELL + b")" if name in columns else _CELL for name in there)
    groups = b"()" if len(columns) == 1 else b""  # a second one, so that findall gives tuples
    row = re.compile(rb"\(" + pattern + groups + rb"\)", re.DOTALL)
    order = [sorted(columns, key=there.index).index(name) for name in columns]
    cut = InvalidData(f"{path}: an INSERT is cut; download the file again")
    inside = False  # a statement that goes on in the next line
    for block in read_blocks(path, label):
        for line in map(bytes.rstrip, block.split(b"\n")):
            if not line or not (inside or line.startswith(b"INSERT INTO")):
                continue
            inside = not line.endswith(b");")
            sound = line.endswith((b"),", b" VALUES")) if inside else b"(" in line
            if not sound:
                raise cut
            for cells in row.findall(line, max(0, line.find(b"("))):
                yield tuple(cells[place] for place in order)
    if inside:
        raise cut


def text_of(cell: bytes) -> str:
    r"""A string's text.

    Example:
        >>> text_of(rb"'Children\'s_Museum'")
        "Children's_Museum"
    """
    text = cell.removeprefix(b"_binary ")[1:-1].decode("utf-8", "replace")
    return _ESCAPED.sub(lambda m: _ESCAPES.get(m[1], m[1]), text) if "\\" in text else text


def describe_table(path: Path) -> tuple[str, list[str]]:
    """Name and columns of the dump's table.

    Raises:
        InvalidData: no such file, or no SQL dump.
    """
    head = next(read_blocks(path, "Head"), b"")
    found = _TABLE.search(head)
    if found is None:
        raise InvalidData(f"{path}: no CREATE TABLE in it; expected an SQL dump of MediaWiki")
    return found[1].decode(), [name.decode() for name in _COLUMN.findall(found[2])]


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
    chains = {name: chain_of(name, moved) for name in stored.values()}
    ends = {name: "" if is_circular(chain) else chain[-1] for name, chain in chains.items()}
    items = _find_items({end for end in ends.values() if end}, ids, options)
    known = None if options.dump_pages is None else ids.keys()
    return {title: _page(name, ends[name], items, known) for title, name in stored.items()}


def _page(name: str, end: str, items: Mapping[str, str], known: Collection[str] | None) -> Page:
    """The fact of one title, in the words of the API road."""
    if fault := fault_of_title(name):
        return Page(reason="bad_url", detail=fault)
    if not end:
        return Page(reason="redirect_loop", detail=f"'{name}' redirects in a circle")
    if end in items:
        return Page(items[end])
    if known is not None and end not in known:
        return Page(reason="no_page", detail=f"'{end}' does not exist")
    return Page("", "no_item", f"'{end}' has no Wikidata item")


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
        here: dict[str, bytes] = {}
        wanted = {title.partition(":")[2].replace(" ", "_").encode(): title for title in new}
        plain = {name for name in wanted if b"'" not in name}
        columns = ("page_id", "page_namespace", "page_title")
        for page_id, namespace, cell in read_rows(options.dump_pages, columns, "Pages"):
            if namespace != CATEGORY:
                continue
            name = cell[1:-1] if b"\\" not in cell else text_of(cell).encode()
            if name in plain or name in wanted:
                here[wanted[name]] = page_id
        ids |= here
        targets = {}
        if options.dump_redirects:
            title_of = {page_id: title for title, page_id in here.items()}
            columns = ("rd_from", "rd_namespace", "rd_title")
            targets = {
                title_of[page_id]: "Category:" + text_of(cell).replace("_", " ")
                for page_id, namespace, cell in read_rows(
                    options.dump_redirects, columns, "Redirects"
                )
                if page_id in title_of and namespace == CATEGORY
            }
        moved |= targets
        new = set(targets.values()) - ids.keys() - titles
        if not new:
            break
    return ids, moved


def _find_items(
    titles: set[str], ids: Mapping[str, bytes], options: ScrapeOptions
) -> dict[str, str]:
    path = options.dump_items
    assert path is not None
    table, _ = describe_table(path)
    if table == "wb_items_per_site":
        columns = ("ips_site_id", "ips_item_id", "ips_site_page")
        pairs = (
            (text_of(cell).replace("_", " "), f"Q{number.decode(errors='replace')}")
            for site, number, cell in read_rows(path, columns, "Sitelinks")
            if site == SITE
        )
        found = {title: item_id for title, item_id in pairs if title in titles}
    elif table == "page_props":
        if options.dump_pages is None:
            raise UsageError(
                "scrape.dump_pages is not set; page_props.sql names pages by their ids in page.sql"
            )
        title_of = {ids[title]: title for title in titles if title in ids}
        columns = ("pp_page", "pp_propname", "pp_value")
        found = {
            title_of[page_id]: text_of(value)
            for page_id, name, value in read_rows(path, columns, "Page properties")
            if page_id in title_of and name.endswith(b"'wikibase_item'")
        }
    else:
        raise InvalidData(f"{path}: holds table {table}; expected page_props or wb_items_per_site")
    for title, item_id in found.items():
        if not is_item_id(item_id):
            raise InvalidData(
                f"{path}: '{title}' has the item {item_id[:40]!r}; expected an id such as Q243, "
                "download the file again"
            )
    return found
