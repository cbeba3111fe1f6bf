"""Reads a table that a person has had in a spreadsheet, whatever that made of it.

Spreadsheets change encodings, delimiters and line ends, capitalise words, add blanks, and lose
nothing on purpose; people sort, filter, move and add columns. All of that is read as it was meant:
CSV in UTF-8, UTF-16 or (with a note) Windows-1252, parted by commas, semicolons or tabs, and the
workbooks ``.xlsx`` and ``.ods``. Columns are found by their names.
"""

import csv
import io
import re
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ftfy.bad_codecs  # noqa: F401  registers sloppy-windows-1252
from lxml import etree

from hgld.artifacts.cells import unguard
from hgld.errors import InvalidData, UsageError
from hgld.tasks import say
from hgld.words import nearest, single_blanks

__all__ = ["Sheet", "SheetRow", "escape_controls", "read_sheets"]

FAULTY = ("#NAME?", "#REF!", "#VALUE!", "#NUM!", "#DIV/0!", "#N/A", "#NULL!", "Err:")
SHOWN = 100  # characters of a cell in a fault
CUT_AT = 32_767  # characters that Excel keeps of a cell
NO_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # characters that XML cannot hold
ESCAPED = re.compile(r"_x(00[01][0-9A-Fa-f]|[Ff]{3}[EFef])_")  # the same, as .xlsx writes them
LARGEST_ODS = 1 << 28  # bytes of its XML; more than a sheet of all values needs
MOST_CELLS = 1 << 10  # of a row, and times that a filled cell or row is repeated
MOST_ROWS = 1 << 20  # blank ones
ODS = {
    "office": "urn:oasis:names:tc:opendocument:xmlns:office:1.0",
    "style": "urn:oasis:names:tc:opendocument:xmlns:style:1.0",
    "table": "urn:oasis:names:tc:opendocument:xmlns:table:1.0",
    "text": "urn:oasis:names:tc:opendocument:xmlns:text:1.0",
}
HOLES = {0xF100 + byte: byte for byte in range(0x80, 0xA0)}  # LibreOffice's, of Windows-1252
MISREAD = "\ufeff".encode().decode("cp1252")  # the mark of UTF-8, where it was taken for letters


@dataclass(frozen=True)
class SheetRow:
    """One row of a sheet: its number as a spreadsheet counts, and its cells by column."""

    number: int
    cells: Mapping[str, str]

    def fault(self, column: str, expected: str) -> str:
        """One line for the report."""
        cell = self[column]
        found = f"{cell[:SHOWN]!r}..." if len(cell) > SHOWN else repr(cell)
        return f"row {self.number}, column {column}: found {found}; expected {expected}"

    def __getitem__(self, column: str) -> str:
        """The cell, empty where the sheet has no such column."""
        return self.cells.get(column, "")

    def damaged(self, columns: Iterable[str]) -> list[str]:
        """A fault for each cell that a spreadsheet has spoilt."""
        faults = []
        for column in columns:
            if self[column].startswith(FAULTY):
                faults.append(self.fault(column, "text, not a spreadsheet's error"))
            elif len(self[column]) >= CUT_AT:
                where = f"row {self.number}, column {column}"
                faults.append(f"{where}: {CUT_AT:,} characters, where spreadsheets cut; shorten it")
        return faults


@dataclass(frozen=True)
class Sheet:
    """The rows that hold anything, under their columns in lower case.

    ``twice``: columns that stand there again, of which only the first is read.
    """

    name: str
    columns: Sequence[str]
    rows: Sequence[SheetRow]
    twice: Collection[str] = ()

    def require(self, columns: Collection[str]) -> None:
        """Raise InvalidData where a column is missing, or stands there twice."""
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
    """The sheet of a CSV, or those of a workbook.

    Raises:
        InvalidData: no such file, or none that can be read.
        UsageError: a workbook, and the package that reads it is not installed.
    """
    if not path.is_file():
        raise InvalidData(f"{path}: no such file; `hgld review` writes it")
    data = path.read_bytes()
    if data.startswith(b"PK"):
        return [_sheet(f"{path} ({name})", table) for name, table in _read_workbook(path)]
    return [_sheet(str(path), _parse(_decode(path, data)))]


def _sheet(name: str, table: Sequence[Sequence[str]]) -> Sheet:
    start = next((i for i, row in enumerate(table) if not _is_preface(row)), len(table))
    table = _put_right(name, table[start:])
    header = [single_blanks(cell).casefold() for cell in (table[0] if table else [])]
    columns = list(dict.fromkeys(filter(None, header)))
    places = {column: header.index(column) for column in columns}
    rows = [
        SheetRow(number, {column: _cell(row, place) for column, place in places.items()})
        for number, row in enumerate(table[1:], start + 2)
        if any(cell.strip() for cell in row)
    ]
    return Sheet(name, columns, rows, {c for c in columns if header.count(c) > 1})


def _put_right(name: str, table: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """The rows as they were before they were opened in the wrong encoding, if they were."""
    if not any(cell.startswith(MISREAD) for row in table[:1] for cell in row):
        return table
    say(f"{name} was opened as Windows-1252 where it is UTF-8; letters like é are put right")
    return [list(map(_as_utf_8, row)) for row in table]


def _as_utf_8(cell: str) -> str:
    """What a cell was before its UTF-8 was read as Windows-1252; as it is, where it was not.

    Example:
        >>> _as_utf_8("chÃ¢teau"), _as_utf_8("château")
        ('château', 'château')
    """
    try:
        return cell.translate(HOLES).encode("sloppy-windows-1252").decode("utf-8-sig")
    except UnicodeError:
        return cell


def _is_preface(row: Sequence[str]) -> bool:
    """A line that names the delimiter, or nothing."""
    return not any(cell.strip() for cell in row) or row[0].casefold().startswith("sep=")


def _cell(row: Sequence[str], place: int) -> str:
    if place >= len(row):
        return ""
    return single_blanks(unguard(single_blanks(row[place])))


def _decode(path: Path, data: bytes) -> str:
    try:
        return data.decode(_unicode(data))
    except UnicodeDecodeError as error:
        place = error.start
    text = data.decode("cp1252", errors="replace")
    if "\ufffd" in text or "\0" in text:
        raise InvalidData(f"{path}: not UTF-8 text (byte {place}); save it as CSV in UTF-8")
    say(f"{path.name} is not UTF-8 and was read as Windows-1252; look at letters like é and –")
    return text


def _unicode(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    first = data[:200]
    for encoding, zeros in (("utf-16-be", first[::2]), ("utf-16-le", first[1::2])):
        if zeros.count(0) > len(zeros) // 2:  # without a mark; a few stray zeros are no UTF-16
            return encoding
    return "utf-8-sig"


def _parse(text: str) -> list[list[str]]:
    """Rows of cells, by the delimiter that gives the header most columns."""
    lines = (line for line in text.splitlines() if line.strip(",;\t "))
    header = next((line for line in lines if not line.casefold().startswith("sep=")), "")
    delimiter = max(",;\t", key=header.count)
    csv.field_size_limit(2**31 - 1)
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    return [_unfold(row, delimiter) for row in rows]


def _unfold(row: list[str], delimiter: str) -> list[str]:
    """The cells of a row that a spreadsheet of another language took for one cell."""
    if len(row) == 1 and delimiter in row[0]:
        return next(csv.reader([row[0]], delimiter=delimiter))
    return row


def _read_workbook(path: Path) -> list[tuple[str, list[list[str]]]]:
    """Name and rows of each worksheet that is shown."""
    try:
        with zipfile.ZipFile(path) as parts:
            if "content.xml" in parts.namelist():
                return _read_ods(parts)
    except Exception as error:  # a damaged workbook raises whatever its parts raise
        raise InvalidData(f"{path}: not a readable workbook ({error}); save it as CSV") from None
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise UsageError(
            f'{path}: reading workbooks needs openpyxl: pip install "hgld[xlsx]", or save it as CSV'
        ) from None
    try:
        book = load_workbook(path, read_only=True, data_only=True)
        pages = [page for page in book.worksheets if page.sheet_state == "visible"]
        return [(page.title, [list(map(_text, row)) for row in page.values]) for page in pages]
    except Exception as error:  # a damaged workbook raises whatever its parts raise
        raise InvalidData(f"{path}: not a readable workbook ({error}); save it as CSV") from None


def _text(cell: object) -> str:
    """A cell as a person sees it; whole numbers without a point."""
    if cell is None:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return ESCAPED.sub(lambda code: chr(int(code[1], 16)), str(cell))


def escape_controls(text: str) -> str:
    r"""The text as ``.xlsx`` holds it: XML has no control characters, so they become ``_x0007_``.

    Example:
        >>> escape_controls("bell\x07")
        'bell_x0007_'
    """
    return NO_XML.sub(lambda found: f"_x{ord(found[0]):04X}_", text)


def _read_ods(book: zipfile.ZipFile) -> list[tuple[str, list[list[str]]]]:
    """Name and rows of each table that is shown, of an OpenDocument spreadsheet."""
    if book.getinfo("content.xml").file_size > LARGEST_ODS:
        raise ValueError("too large")
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    root = etree.fromstring(book.read("content.xml"), parser)
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
    """The cells of each row; equal rows and cells are stored once, with their number."""
    rows: list[list[str]] = []
    blank = 0
    for row in table.iter(_ods("table:table-row")):
        times, cells = int(row.get(_ods("table:number-rows-repeated"), "1")), _ods_cells(row)
        if not cells:
            blank += times  # up to a million below the last filled row
            continue
        rows += [[] for _ in range(min(blank, MOST_ROWS))] + [cells] * min(times, MOST_CELLS)
        blank = 0
    return rows


def _ods_cells(row: "etree._Element") -> list[str]:
    """The texts of a row up to its last filled cell."""
    cells: list[str] = []
    blank = 0
    for cell in row.iterchildren(_ods("table:table-cell"), _ods("table:covered-table-cell")):
        times = int(cell.get(_ods("table:number-columns-repeated"), "1"))
        text = "\n".join("".join(map(str, p.itertext())) for p in cell.iterfind("text:p", ODS))
        if not text:
            blank += times
            continue
        cells += [""] * min(blank, MOST_CELLS) + [text] * min(times, MOST_CELLS)
        blank = 0
    return cells


def _ods(name: str) -> str:
    prefix, _, local = name.partition(":")
    return f"{{{ODS[prefix]}}}{local}"
