"""Read a saved page of a Commons category: its title, and a row of its Wikidata infobox.

Pages come from a browser or from wget, so a page is known by what it says of itself, and by its
file's name only where it says nothing. The infobox shows what its template chose, years and other
qualifiers included ("church building (1172–1954)"): the very strings that the paper clustered.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urljoin

from lxml import etree, html

from hgld.hierarchy.scrape.titles import as_stored, title_of_url
from hgld.words import single_blanks

LARGEST_PAGE = 32 << 20  # bytes; those of Commons have a tenth of a million
NO_VALUES = ("unknown value", "no value")
SITE = "https://commons.wikimedia.org/"
_TITLE = re.compile(r"(.+) [-–—] Wikimedia Commons", re.DOTALL)
_SAVED_FROM = re.compile(rb"<!--\s*(?:saved from url=\(\d+\)|url:\s*)(\S+)", re.IGNORECASE)
_SUFFIX = re.compile(r"( [-–—] Wikimedia Commons)?(\.x?html?)?$", re.IGNORECASE)


@dataclass(frozen=True)
class SavedPage:
    """One saved page.

    Attributes:
        title: as the page says it itself, else empty.
        other_titles: of redirects that led to it, and what the file's name says.
        item_id: the Wikidata item that it links to.
        values: of the row, in the order shown.
        redirect: title that a soft redirect names.
        reason, detail: why it has no values.
    """

    title: str = ""
    other_titles: tuple[str, ...] = ()
    item_id: str = ""
    values: tuple[str, ...] = ()
    redirect: str = ""
    reason: str = ""
    detail: str = ""


def read_page(path: Path, row: str) -> SavedPage:
    """Read one file with any content; ``row`` is the infobox row's head as the page shows it."""
    from_name = as_stored(unquote(_SUFFIX.sub("", path.name)))
    if path.stat().st_size > LARGEST_PAGE:
        detail = f"{path.name} has more than {LARGEST_PAGE >> 20} MB"
        return SavedPage("", (from_name,), reason="not_a_page", detail=detail)
    data = _as_utf8(path.read_bytes())
    page = _parse(data)
    if page is None:
        return SavedPage("", (from_name,), reason="not_a_page", detail=f"{path.name} is no HTML")
    title = _title(page, data)
    led_here = page.xpath("//*[contains(@class, 'mw-redirectedfrom')]//a")  # by hard redirects
    names = (*(as_stored(a.get("title") or a.text_content()) for a in led_here), from_name)
    heads = page.xpath("//th[contains(concat(' ', @class, ' '), ' wikidatainfobox-lcell ')]")
    boxed = bool(heads or page.xpath("//*[@id='wdinfobox']"))
    if not title and not boxed:
        detail = f"{path.name} is no page of Wikimedia Commons; save it again"
        return SavedPage("", names, reason="not_a_page", detail=detail)
    found = [head for head in heads if single_blanks(_text(head)).casefold() == row.casefold()]
    values = tuple(_values(found[0])) if found else ()
    named = tuple(value for value in values if value.casefold() not in NO_VALUES)
    boxes = page.xpath("//div[contains(@class, 'category-redirect-header')]//a/@href")
    redirect = next(filter(None, map(_title_at, boxes)), "")
    if named or redirect:
        return SavedPage(title, names, _item_id(page), named, "" if named else redirect)
    reason, detail = _why_none(page, path.name, boxed, row, values)
    return SavedPage(title, names, _item_id(page), reason=reason, detail=detail)


def _as_utf8(data: bytes) -> bytes:
    """The page in UTF-8, as Commons sends it; programs that save pages may write another."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace").encode()
    try:
        data.decode()
        return data
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace").encode()


def _parse(data: bytes) -> html.HtmlElement | None:
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, huge_tree=True)
    try:
        page = html.document_fromstring(data, parser=parser)
    except (etree.ParserError, ValueError):  # empty, or not text at all
        return None
    return page if page.xpath("//body//*") else None


def _title(page: html.HtmlElement, data: bytes) -> str:
    """The title by the page's own address, else by its head line; empty where it has none."""
    urls = page.xpath("//link[@rel='canonical']/@href | //meta[@property='og:url']/@content")
    saved = _SAVED_FROM.search(data[:4096])
    if saved is not None:
        urls.append(saved[1].decode("utf-8", "replace"))
    if title := next(filter(None, map(_title_at, urls)), ""):
        return title
    head = _TITLE.fullmatch(single_blanks(page.findtext(".//title") or ""))
    return as_stored(head[1]) if head else ""


def _title_at(url: str) -> str:
    """The title of the page that a link leads to; empty if it is not a page of Commons."""
    try:
        title = title_of_url(urljoin(SITE, url).partition("?")[0])
    except ValueError:  # not a URL
        return ""
    return as_stored(title) if title else ""


def _item_id(page: html.HtmlElement) -> str:
    """The item by the page's own link to it; links in the infobox may lead to values' items."""
    urls = page.xpath("//*[@id='t-wikibase']//a/@href")
    found = (re.search(r"wikidata\.org/.*\b(Q[1-9]\d*)\b", url) for url in urls)
    return next((match[1] for match in found if match), "")


def _values(head: html.HtmlElement) -> Iterator[str]:
    """The values beside a row's head: items of a list, else the texts between line breaks."""
    for cell in head.itersiblings("td"):
        items = cell.xpath(".//li[not(ancestor::li)]")
        for line_break in cell.xpath(".//br") if not items else ():
            line_break.text = "\n"  # its tail may hold characters that XML forbids
        texts = map(_text, items) if items else _text(cell).split("\n")
        yield from filter(None, map(single_blanks, texts))


def _text(element: html.HtmlElement) -> str:
    """The text that a reader sees: no footnotes, no hidden parts."""
    hidden = "ancestor-or-self::sup or ancestor-or-self::style or ancestor-or-self::script"
    unseen = "ancestor-or-self::*[contains(translate(@style, ' ', ''), 'display:none')]"
    parts = element.xpath(f".//text()[not(parent::*[{hidden} or {unseen}])]")
    return "".join(str(part) for part in parts)


def _why_none(
    page: html.HtmlElement, name: str, boxed: bool, row: str, values: tuple[str, ...]
) -> tuple[str, str]:
    """Why the page has no value, as reason and detail."""
    if page.xpath("//*[contains(concat(' ', @class, ' '), ' noarticletext ')]"):
        return "no_page", f"{name} says that the page does not exist"
    if not boxed:
        return "no_infobox", f"{name} has no Wikidata infobox"
    if values:
        return "unknown_value", f"{name}: {'; '.join(values)}"
    language = page.get("lang") or "en"
    hint = (
        "" if language.startswith("en") else f"; the page is in '{language}', see scrape.html_row"
    )
    return "no_p31", f"{name} has no row '{row}'{hint}"
