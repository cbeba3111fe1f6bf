"""Tolerant reader of tables that were edited in a spreadsheet program.

Spreadsheets change encodings, delimiters and line ends, capitalise words and add blanks; people
sort, filter, move and add columns. All of this is accepted: CSV in UTF-8, UTF-16 or (with a notice)
Windows-1252, separated by commas, semicolons or tabs, and the workbooks ``.xlsx`` and ``.ods``.
Columns are found by name.
"""

import csv
import io
import re
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from pathlib import Path
from typing import Any

import ftfy.bad_codecs  # noqa: F401  registers sloppy-windows-1252
from lxml import etree

from hgld.artifacts.cells import ERRORS, unguard
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.decisions import short_hash
from hgld.tasks import say
from hgld.words import nearest, single_blanks

SHOWN = 100  # characters of a cell in an error
CUT_AT = 32_767  # Excel truncates cells to this number of characters
NO_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # characters that XML cannot hold
ESCAPED = re.compile(r"_x(00[01][0-9A-Fa-f]|[Ff]{3}[EFef])_")  # their escapes in .xlsx
LARGEST_ODS = 1 << 28  # limit for its XML in bytes, against decompression bombs
MOST_CELLS = 1 << 10  # limit for the cells of a row and the repeats of a filled cell or row
MOST_ROWS = 1 << 20  # limit for blank rows
ODS = {
    "office": "urn:oasis:names:tc:opendocument:xmlns:office:1.0",
    "style": "urn:oasis:names:tc:opendocument:xmlns:style:1.0",
    "table": "urn:oasis:names:tc:opendocument:xmlns:table:1.0",
    "text": "urn:oasis:names:tc:opendocument:xmlns:text:1.0",
}
HOLES = {0xF100 + byte: byte for byte in range(0x80, 0xA0)}  # undefined bytes in LibreOffice
MISREAD = "\ufeff".encode().decode("cp1252")  # a UTF-8 BOM that was decoded as Windows-1252


@dataclass(frozen=True)
class SheetRow:
    """One row of a sheet: its number as a spreadsheet counts, and its cells by column."""

    number: int
    cells: Mapping[str, str]

    def fault(self, column: str, expected: str, among: Iterable[str] = ()) -> str:
        """Return the message for a wrong cell, in one line; ``among`` are the allowed words."""
        cell = self[column]
        found = f"{cell[:SHOWN]!r}..." if len(cell) > SHOWN else repr(cell)
        near = nearest(cell.casefold(), among)
        return f"row {self.number}, column {column}: found {found}; expected {expected}{near}"

    def __getitem__(self, column: str) -> str:
        """Return the cell; empty if the sheet lacks the column."""
        return self.cells.get(column, "")

    def damaged(self, columns: Iterable[str]) -> list[str]:
        """Return a fault for each cell that a spreadsheet has damaged."""
        faults = []
        for column in columns:
            if self[column].startswith((*ERRORS, "Err:")):
                faults.append(self.fault(column, "text, not a spreadsheet's error"))
            elif len(self[column]) >= CUT_AT:
                where = f"row {self.number}, column {column}"
                faults.append(f"{where}: {CUT_AT:,} characters, where spreadsheets cut; shorten it")
        return faults


@dataclass(frozen=True)
class Sheet:
    """The non-blank rows, with column names in lower case.

    ``twice``: columns that occur again, of which only the first is read.
    """

    name: str
    columns: Sequence[str]
    rows: Sequence[SheetRow]
    twice: Collection[str] = ()

    def require(self, columns: Collection[str]) -> None:
        """Raise InvalidData if a column is missing or occurs twice."""
        for column in columns:
            if column in self.twice:
                raise InvalidData(f"{self.name}: has two columns '{column}'; keep one of them")
            if column not in self.columns:
                raise InvalidData(
                    f"{self.name}: column '{column}' is missing; it has "
                    + (", ".join(self.columns) or "nothing")
                    + nearest(column, self.columns)
                )


def read_sheets(path: Path) -> list[Sheet]:
    """Read the sheet of a CSV, or the sheets of a workbook.

    Raises:
        InvalidData: the file is missing or not readable.
        UsageError: the package for this kind of workbook is not installed.
    """
    if not path.is_file():
        raise InvalidData(f"{path}: no such file; `hgld review` writes it")
    data = path.read_bytes()
    if data.startswith(b"PK"):
        tables = _read_workbook(path)
        if not tables:  # as openpyxl reads a "Strict Open XML Spreadsheet" of Excel
            raise InvalidData(
                f"{path}: no worksheet can be read; save it as an Excel workbook, not as Strict "
                "Open XML, or as CSV"
            )
        sheets = [_sheet(f"{path} ({name})", table) for name, table in tables]
        return [sheet for sheet in sheets if sheet.columns] or sheets  # Excel adds blank ones
    return [_sheet(str(path), _parse(_decode(path, data)))]


def read_files(paths: Iterable[Path]) -> dict[Path, list[Sheet]]:
    """Read the sheets of several files; raises as ``read_sheets``."""
    return {path: read_sheets(path) for path in paths}


def _sheet(name: str, table: Sequence[Sequence[str]]) -> Sheet:
    filled = (
        i
        for i, row in enumerate(table)
        if any(cell.strip() for cell in row) and not row[0].casefold().startswith("sep=")
    )
    start = next(filled, len(table))  # behind blank lines and one that declares the delimiter
    table = table[start:]
    if _is_misread(table):
        say(f"{name} was opened as Windows-1252 where it is UTF-8; letters like é are put right")
        table = [list(map(_as_utf_8, row)) for row in table]
    header = [single_blanks(cell).casefold() for cell in (table[0] if table else [])]
    columns = list(dict.fromkeys(filter(None, header)))
    places = {column: header.index(column) for column in columns}
    rows = []
    for number, row in enumerate(table[1:], start + 2):
        if any(cell.strip() for cell in row):
            texts = {column: "".join(row[place : place + 1]) for column, place in places.items()}
            cells = {c: single_blanks(unguard(single_blanks(text))) for c, text in texts.items()}
            rows.append(SheetRow(number, cells))
    return Sheet(name, columns, rows, {c for c in columns if header.count(c) > 1})


def _is_misread(table: Sequence[Sequence[str]]) -> bool:
    """Whether UTF-8 was decoded as Windows-1252, by its BOM, else by half of what is not ASCII."""
    header = list(table[0]) if table else []
    if any(cell.startswith(MISREAD) for cell in header):
        return True
    if {"instance_of", "evidence"} <= set(header):
        label, evidence = header.index("instance_of"), header.index("evidence")
        rows = (row for row in table[1:] if len(row) > max(label, evidence))
        if any(
            row[evidence].startswith(short_hash(unguard(row[label])))
            for row in rows
            if not row[label].isascii()
        ):
            return False  # a label has the hash that the sheet was written with
    odd = [cell for row in table for cell in row if not cell.isascii()]
    return 0 < len(odd) <= 2 * sum(_as_utf_8(cell) != cell for cell in odd)


def _as_utf_8(cell: str) -> str:
    """Undo the decoding of UTF-8 as Windows-1252; return any other cell unchanged.

    Example:
        >>> _as_utf_8("chÃ¢teau"), _as_utf_8("château")
        ('château', 'château')
    """
    try:
        # bytes without a letter in Windows-1252 survive as private or control characters
        return cell.translate(HOLES).encode("sloppy-windows-1252").decode("utf-8-sig")
    except UnicodeError:
        return cell


def _decode(path: Path, data: bytes) -> str:
    # UTF-16 without BOM has more zeros than stray ones
    zeros = {"utf-16-be": data[:200:2], "utf-16-le": data[1:200:2]}
    found = (name for name, part in zeros.items() if part.count(0) > len(part) // 2)
    has_mark = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    encoding = "utf-16" if has_mark else next(found, "utf-8-sig")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        place = error.start
    text = data.decode("cp1252", errors="replace")
    if "\ufffd" in text or "\0" in text:
        raise InvalidData(f"{path}: not UTF-8 text (byte {place}); save it as CSV in UTF-8")
    say(f"{path.name} is not UTF-8 and was read as Windows-1252; look at letters like é and –")
    return text


def _parse(text: str) -> list[list[str]]:
    """Split text into rows of cells, with the delimiter that gives the header most columns."""
    lines = (line for line in text.splitlines() if line.strip(",;\t "))
    header = next((line for line in lines if not line.casefold().startswith("sep=")), "")
    delimiter = max(",;\t", key=header.count)
    csv.field_size_limit(2**31 - 1)
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    # a spreadsheet with another locale's delimiter stores a whole row in one cell
    return [
        next(csv.reader(row, delimiter=delimiter)) if len(row) == 1 and delimiter in row[0] else row
        for row in rows
    ]


def _read_workbook(path: Path) -> list[tuple[str, list[list[str]]]]:
    """Return name and rows of each visible worksheet."""
    try:
        with zipfile.ZipFile(path) as parts:
            if "content.xml" in parts.namelist():
                return _read_ods(parts)
        from openpyxl import load_workbook

        # reading more than the values fails at filters and lists that other programs write
        book = load_workbook(path, read_only=True, data_only=True)
        pages = [page for page in book.worksheets if page.sheet_state == "visible"]
        for page in pages:
            page.reset_dimensions()  # programs may write a size with fewer rows than there are
        return [(page.title, _xlsx_rows(page, path)) for page in pages]
    except ImportError:
        raise UsageError(
            f'{path}: reading workbooks needs openpyxl: pip install "hgld[xlsx]", or save it as CSV'
        ) from None
    except InvalidData:
        raise
    except Exception as error:  # a damaged workbook raises whatever its parts raise
        raise InvalidData(f"{path}: not a readable workbook ({error}); save it as CSV") from None


def _xlsx_rows(page: Any, path: Path) -> list[list[str]]:
    """Return the cells of each row.

    Raises:
        InvalidData: a formula without a value, as scripts write it, which would be read as blank.
    """
    from openpyxl.worksheet.cell_range import CellRange

    rows, merged = [list(map(_text, row)) for row in page.values], []
    with zipfile.ZipFile(path) as parts, parts.open(page._worksheet_path.lstrip("/")) as part:
        tags = ("{*}c", "{*}mergeCell")
        for _, element in etree.iterparse(part, tag=tags, resolve_entities=False, no_network=True):
            if "ref" in element.attrib:
                merged.append(CellRange(element.attrib["ref"]).bounds)
            elif (
                element.find("{*}f") is not None
                and not element.findtext("{*}v")
                and element.get("t") != "str"  # an empty text
            ):
                raise InvalidData(
                    f"{path} ({page.title}), cell {element.get('r')}: a formula without its "
                    "value; open the workbook in a spreadsheet and save it"
                )
            element.clear()
    _fill_merged(rows, merged)
    return rows


def _fill_merged(rows: Sequence[list[str]], merged: Iterable[tuple[int, int, int, int]]) -> None:
    """Repeat the text of merged cells in each of their rows, as a person sees it beside each.

    ``merged`` has the first column and row and the last column and row of each, from 1 on.
    """
    for left, top, right, bottom in merged:
        text = "".join(rows[top - 1][left - 1 : left]) if top <= len(rows) else ""
        for row in filter(any, rows[top - 1 : bottom]):  # a blank row in between stays blank
            row += [""] * (left - len(row))
            row[left - 1 : right] = [text] + [""] * (right - left)


def _text(cell: object) -> str:
    """Return a cell as text; integers without a decimal point, days without a time."""
    if cell is None:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, datetime) and cell.time() == time.min:
        return cell.date().isoformat()
    return ESCAPED.sub(lambda code: chr(int(code[1], 16)), str(cell))


def plain_digits(number: str) -> str:
    """Return an integer without the thousands separators of a spreadsheet.

    Example:
        >>> plain_digits("1.234"), plain_digits("1 222,00"), plain_digits("4.0")
        ('1234', '1222', '4')
    """
    whole = re.sub(r"[.,]0{1,2}$", "", "".join(number.split()))
    return re.sub(r"[.,']", "", whole)


def escape_controls(text: str) -> str:
    r"""Escape control characters, which XML cannot contain, as ``.xlsx`` does: ``_x0007_``.

    Example:
        >>> escape_controls("bell\x07")
        'bell_x0007_'
    """
    return NO_XML.sub(lambda found: f"_x{ord(found[0]):04X}_", text)


def _read_ods(book: zipfile.ZipFile) -> list[tuple[str, list[list[str]]]]:
    """Return name and rows of each visible table of an OpenDocument spreadsheet."""
    if book.getinfo("content.xml").file_size > LARGEST_ODS:
        raise ValueError("too large")
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    root = etree.fromstring(book.read("content.xml"), parser)
    for blank in root.iter(*map(_ods, ("text:s", "text:tab", "text:line-break"))):
        blank.text = " "
    styles = root.iterfind("office:automatic-styles/style:style", ODS)
    hidden = {
        style.get(_ods("style:name"))
        for style in styles
        if any(part.get(_ods("table:display")) == "false" for part in style)
    }
    tables = root.iterfind("office:body/office:spreadsheet/table:table", ODS)
    return [
        (table.get(_ods("table:name"), ""), _ods_rows(table))
        for table in tables
        if table.get(_ods("table:style-name")) not in hidden
    ]


def _ods_rows(table: "etree._Element") -> list[list[str]]:
    """Return the cells of each row; the format stores equal rows and cells once, with a count."""
    rows: list[list[str]] = []
    merged: list[tuple[int, int, int, int]] = []
    blank = 0
    for row in table.iter(_ods("table:table-row")):
        times = int(row.get(_ods("table:number-rows-repeated"), "1"))
        cells, spans = _ods_cells(row)
        if not cells:
            blank += times  # kept back: a million blank rows may follow the last filled one
            continue
        rows += [[] for _ in range(min(blank, MOST_ROWS))]
        top = len(rows) + 1
        merged += [(left, top, right, top + below) for left, right, below in spans]
        rows += [[*cells] for _ in range(min(times, MOST_CELLS))]
        blank = 0
    _fill_merged(rows, merged)
    return rows


def _ods_cells(row: "etree._Element") -> tuple[list[str], list[tuple[int, int, int]]]:
    """Return the texts of a row up to its last non-blank cell, and its merged cells.

    Of each merged cell: its first and last column, from 1 on, and how many rows it goes down.
    """
    cells: list[str] = []
    merged: list[tuple[int, int, int]] = []
    blank = 0
    for cell in row.iterchildren(_ods("table:table-cell"), _ods("table:covered-table-cell")):
        times = int(cell.get(_ods("table:number-columns-repeated"), "1"))
        text = "\n".join("".join(map(str, p.itertext())) for p in cell.iterfind("text:p", ODS))
        if not text:
            blank += times
            continue
        cells += [""] * min(blank, MOST_CELLS) + [text] * min(times, MOST_CELLS)
        spans = [cell.get(_ods(f"table:number-{of}-spanned"), "1") for of in ("columns", "rows")]
        if spans != ["1", "1"]:
            merged.append((len(cells), len(cells) + int(spans[0]) - 1, int(spans[1]) - 1))
        blank = 0
    return cells, merged


def _ods(name: str) -> str:
    prefix, _, local = name.partition(":")
    return f"{{{ODS[prefix]}}}{local}"
