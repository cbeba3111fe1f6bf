"""Read "instance of" values from saved Commons pages, as the paper did, or from a CSV.

No request is made: a folder of category pages, saved by a browser or by wget, is read for the row
of the Wikidata infobox. Pages hold no class ids, ranks or revisions, so values go by their text; a
landmark whose page was not saved, or says nothing, is listed with the reason.

A page is known by what it says of itself, and by its file's name only where it says nothing. The
infobox shows what its template chose, years and other qualifiers included ("church building
(1172–1954)"): the very strings that the paper clustered.

A CSV has one value for a landmark and no Wikidata ids; what the other stages need of a statement is
filled in as unknown: no item, no class id, revision 0. So is the name of a class, which is the
value where classes have no pages at all.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin

import pandas as pd
from lxml import etree, html

from hgld.artifacts import (
    BY_LANDMARK,
    ColumnType,
    columns_of,
    read_csv,
    records,
    row_in_file,
    table_of,
)
from hgld.artifacts.cells import single_blanks_all
from hgld.artifacts.table_checks import require_unique
from hgld.config import ScrapeOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.scrape.ancestors import chain_of, is_circular
from hgld.hierarchy.scrape.endings import tell_reasons
from hgld.hierarchy.scrape.route import MOST_HOPS
from hgld.hierarchy.scrape.titles import as_stored, title_of_url
from hgld.tasks import say, track
from hgld.words import single_blanks

LARGEST_PAGE = 32 << 20  # bytes; those of Commons have a tenth of a million
NO_VALUES = ("unknown value", "no value")
SITE = "https://commons.wikimedia.org/"
_TITLE = re.compile(r"(.+) [-–—] Wikimedia Commons", re.DOTALL)
_SAVED_FROM = re.compile(rb"<!--\s*(?:saved from url=\(\d+\)|url:\s*)(\S+)", re.IGNORECASE)
_SUFFIX = re.compile(r"( [-–—] Wikimedia Commons)?(\.x?html?)?$", re.IGNORECASE)
UNKNOWN: dict[str, Any] = {
    "item_id": "",
    "revision": 0,
    "class_id": "",
    "rank": "normal",
    "qualifiers": "{}",
}
_PAGE_FILE = re.compile(r".*\.x?html?|category:[^/]*", re.IGNORECASE)


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
    data = path.read_bytes()  # Commons sends UTF-8; programs that save pages may write another
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        data = data.decode("utf-16", "replace").encode()
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode("cp1252", "replace").encode()
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, huge_tree=True)
    page: html.HtmlElement | None = None
    with suppress(etree.ParserError, ValueError):  # empty, or not text at all
        page = html.document_fromstring(data, parser=parser)
    if page is None or not page.xpath("//body//*"):
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
    # The page's own link to its item; links in the infobox may lead to values' items.
    urls = page.xpath("//*[@id='t-wikibase']//a/@href")
    items = (re.search(r"wikidata\.org/.*\b(Q[1-9]\d*)\b", url) for url in urls)
    item_id = next((match[1] for match in items if match), "")
    if named or redirect:
        return SavedPage(title, names, item_id, named, "" if named else redirect)
    missed = partial(SavedPage, title, names, item_id)
    if page.xpath("//*[contains(concat(' ', @class, ' '), ' noarticletext ')]"):
        return missed(reason="no_page", detail=f"{path.name} says that the page does not exist")
    if not boxed:
        return missed(reason="no_infobox", detail=f"{path.name} has no Wikidata infobox")
    if values:
        return missed(reason="unknown_value", detail=f"{path.name}: {'; '.join(values)}")
    language = page.get("lang") or "en"
    hint = (
        "" if language.startswith("en") else f"; the page is in '{language}', see scrape.html_row"
    )
    return missed(reason="no_p31", detail=f"{path.name} has no row '{row}'{hint}")


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


def read_given(
    landmarks: pd.DataFrame, *, options: ScrapeOptions, context: StageContext
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row a landmark before; its row of ``instance_of``, or of ``misses``, after.

    A landmark is missed with the reason ``not_in_table`` or ``no_value`` (an empty cell). Rows of
    the CSV for landmarks that are not in this run are left out.

    Raises:
        UsageError: ``scrape.table`` is not set.
        InvalidData: no such file or column, an id that is not a number, or occurs twice, or two
            values of a name.
    """
    given = _read_table(options)
    by = ["name"] if options.table_name else BY_LANDMARK
    found = landmarks.merge(given, on=by, how="left")
    key = options.table_name or options.table_id
    absent = found["instance_of"].isna()
    empty = found["instance_of"].eq("") & ~absent
    misses = pd.concat(
        [
            _missed(found[absent], "not_in_table", f"no such {key} in the table"),
            _missed(found[empty], "no_value", f"{options.table_value} is empty"),
        ]
    )
    tell_reasons(landmarks, misses, context.source.class_noun, "in the table")
    statements = found[~absent & ~empty].assign(**UNKNOWN, order=0)
    return statements[columns_of("instance_of")], misses


def read_names(
    landmarks: pd.DataFrame, *, options: ScrapeOptions, context: StageContext
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row a class before; its row of ``instance_of`` after, whose value is its name.

    Underscores count as blanks ("apple_pie"). A class without a name is in ``misses`` as
    ``no_name``.
    """
    values = single_blanks_all(landmarks["name"].str.replace("_", " ", regex=False))
    named = values != ""
    statements = landmarks.assign(**UNKNOWN, order=0, instance_of=values)[named]
    misses = _missed(
        landmarks[~named], "no_name", "it has no name; fill it in, or rename its folder"
    )
    tell_reasons(landmarks, misses, context.source.class_noun, "by their names")
    numbers = values[values.str.fullmatch(r"[+-]?\d+(\.\d+)?")]
    if 2 * len(numbers) > len(values):  # a single one may be a name, such as 747
        are = "class is" if len(numbers) == 1 else "classes are"
        gaps = numbers.str.endswith(".0").any()
        pandas = "; pandas writes 3 as 3.0 if a cell of the column is empty" if gaps else ""
        say(
            f"{len(numbers):,} {are} named by a number alone, first '{numbers.iloc[0]}', and "
            f"clustered by its digits; give classes names to cluster them by their meaning{pandas}"
        )
    return statements[columns_of("instance_of")], misses


def _read_table(options: ScrapeOptions) -> pd.DataFrame:
    """The CSV as split, landmark_id and instance_of, or with the name in place of the former two.

    A table by names may have a row for each image.
    """
    if options.table is None:
        raise UsageError('scrape.table is not set; scrape.source = "table" needs the CSV\'s path')
    path, value = options.table, options.table_value
    if options.table_name:
        named = read_csv(path, {options.table_name: "text", value: "text"})
        names = named[options.table_name].str.strip().str.normalize("NFC")  # as the source has them
        values = single_blanks_all(named[value])
        table = pd.DataFrame({"name": names, "instance_of": values}).drop_duplicates()
        require_unique(table, ["name"], path, lambda at: row_in_file(path, int(table.index[at])))
        return table
    columns: dict[str, ColumnType] = {options.table_id: "int", value: "text"}
    table = read_csv(path, columns)
    require_unique(table, [options.table_id], path, partial(row_in_file, path))
    table = table.set_axis(["landmark_id", "instance_of"], axis=1)
    return table.assign(
        split=options.table_split, instance_of=single_blanks_all(table["instance_of"])
    )


def _missed(found: pd.DataFrame, reason: str, detail: str) -> pd.DataFrame:
    return found.assign(reason=reason, detail=detail)[columns_of("misses")]


def read_saved(
    landmarks: pd.DataFrame, *, options: ScrapeOptions, context: StageContext
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row a landmark before; one row a shown value after, or one row a landmark without any.

    A file belongs to the landmark whose title the page says, else to the one whose title the
    page was redirected from or the file is named after. Soft redirects lead on where their target
    was saved too.

    Returns:
        ``instance_of`` and ``misses``, with the reasons bad_url, not_saved, not_a_page, no_page,
        no_infobox, no_p31, unknown_value and redirect_loop.

    Raises:
        UsageError: ``scrape.html_folder`` is not set.
        InvalidData: there is no such folder, or no page in it.
    """
    pages = _read_pages(options)
    redirects = {title: page.redirect for title, page in pages.items() if page.redirect}
    values: list[dict[str, object]] = []
    misses: list[dict[str, object]] = []
    for landmark in records(landmarks):
        key = {"split": landmark["split"], "landmark_id": landmark["landmark_id"]}
        page = _find(landmark["commons_url"], pages, redirects)
        if page.reason:
            misses.append({**key, "reason": page.reason, "detail": page.detail})
        for order, value in enumerate(page.values):
            known = {"item_id": page.item_id, "order": order, "instance_of": value}
            values.append({**key, **UNKNOWN, **known})
    missed = table_of("misses", misses)
    tell_reasons(landmarks, missed, context.source.class_noun, "on their pages")
    return table_of("instance_of", values), missed


def _read_pages(options: ScrapeOptions) -> Mapping[str, SavedPage]:
    """The pages by title: what a page says itself goes before what leads to it or names it."""
    folder = options.html_folder
    if folder is None:
        raise UsageError(
            'scrape.html_folder is not set; scrape.source = "html" needs a folder of saved pages'
        )
    if not folder.is_dir():
        raise InvalidData(f"{folder}: no such folder; expected saved pages of Wikimedia Commons")
    files = []
    for path in folder.rglob("*"):
        # browsers save the parts of a page beside it
        parents = path.relative_to(folder).parent.parts
        is_part = any(name.endswith(("_files", "_data")) for name in parents)
        if _PAGE_FILE.fullmatch(path.name) and path.is_file() and not is_part:
            files.append(path)
    if not files:
        raise InvalidData(f"{folder}: no page in it; expected files such as 'Category:X.html'")
    tracked = track(sorted(files), "Pages", len(files))
    pages = [read_page(path, options.html_row) for path in tracked][::-1]  # the first one counts
    found = {title: page for page in pages for title in page.other_titles[::-1]}
    return found | {page.title: page for page in pages if page.title}


def _find(url: str, pages: Mapping[str, SavedPage], redirects: Mapping[str, str]) -> SavedPage:
    """The page that speaks for a landmark, over soft redirects."""
    title = title_of_url(url)
    if title is None:
        return SavedPage(reason="bad_url", detail=f"not the URL of a Commons page: {url!r}")
    way = chain_of(as_stored(title), redirects)
    if is_circular(way) or len(way) > MOST_HOPS + 1:
        return SavedPage(reason="redirect_loop", detail=" > ".join(way[: MOST_HOPS + 2]))
    missing = SavedPage(reason="not_saved", detail=f"no file for '{way[-1]}'")
    return pages.get(way[-1], missing)
