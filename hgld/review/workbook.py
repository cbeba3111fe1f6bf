"""Writer of the review sheets as one ``.xlsx`` workbook with drop-down lists.

The workbook is a convenience, the CSV is the contract; the same command reads both back. All cells
except counts are text, so that nothing is run as a formula or changed into a date.
"""

import zipfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from hgld.artifacts import DECISIONS, records
from hgld.errors import UsageError
from hgld.hierarchy.kinds import kinds_to_choose
from hgld.review.clusters import ACTIONS
from hgld.review.spreadsheet import escape_controls
from hgld.review.taxonomy import ACTIONS as TAXONOMY_ACTIONS

if TYPE_CHECKING:
    from openpyxl.workbook.workbook import Workbook
    from openpyxl.worksheet.worksheet import Worksheet

TITLES = {"review": "values", "review_clusters": "clusters", "review_taxonomy": "taxonomy"}
LISTS = "lists"  # hidden worksheet with the choices of the drop-down lists
WIDTHS = {
    **dict.fromkeys(("supercategory", "kind", "cluster_name", "hint", "suggestion"), 20),
    "examples": 50,
    "definition": 60,
    "largest": 60,
    "nearest": 40,
    "reason": 40,
    "note": 30,
    "instance_of": 30,
    "base": 25,
}
EDITABLE = 4  # columns
DATE = datetime(1980, 1, 1)  # fixed date of every part; the earliest one in a zip
STAMP = "%Y-%m-%dT%H:%M:%SZ"  # of the document properties


def write_workbook(sheets: Mapping[str, pd.DataFrame], taxonomy: pd.DataFrame, path: Path) -> None:
    """Write the sheets as the worksheets "values", "clusters" and "taxonomy".

    The same sheets give the same bytes.

    Raises:
        UsageError: the package that writes workbooks is not installed.
    """
    book = _new_book()
    lists = {
        "decision": DECISIONS,
        "supercategory": taxonomy["supercategory"].tolist(),
        "kind": kinds_to_choose(taxonomy.get("kind", [])),
        "action": ACTIONS,
        "taxonomy action": TAXONOMY_ACTIONS,
    }
    for name, title in TITLES.items():
        if name in sheets:
            _fill(book.create_sheet(title), sheets[name], lists)
    page = book.create_sheet(LISTS)
    for column, names in enumerate(lists.values(), 1):
        for row, name in enumerate(names, 1):
            page.cell(row, column, escape_controls(name)).data_type = "s"
    page.sheet_state = "hidden"
    _save(book, path)


def write_tables(tables: Mapping[str, pd.DataFrame], path: Path) -> None:
    """Write tables as one workbook, a worksheet for each title; the same tables, the same bytes.

    Raises:
        UsageError: the package that writes workbooks is not installed.
    """
    book = _new_book()
    for title, table in tables.items():
        _fill(book.create_sheet(title), table, {}, editable=0)
    _save(book, path)


def _new_book() -> "Workbook":
    try:
        from openpyxl import Workbook
    except ImportError:
        raise UsageError('a workbook (.xlsx) needs openpyxl: pip install "hgld[xlsx]"') from None
    book = Workbook()
    book.remove(book.worksheets[0])
    return book


def _fill(
    page: "Worksheet",
    sheet: pd.DataFrame,
    lists: Mapping[str, Sequence[str]],
    editable: int = EDITABLE,
) -> None:
    """Write the rows below a fixed header; editable columns are shaded."""
    from openpyxl.styles import Font, PatternFill
    from openpyxl.utils import get_column_letter

    page.append(list(sheet.columns))
    for row in records(sheet):
        cells = [None if c != c else c for c in row.values()]  # nan: a blank cell
        page.append([escape_controls(c) if isinstance(c, str) else c for c in cells])
    for column, name in enumerate(sheet.columns, 1):
        letter = get_column_letter(column)
        page.column_dimensions[letter].width = WIDTHS.get(name, max(10, len(name) + 2))
        page.cell(1, column).font = Font(bold=True)
        if column <= editable:
            page.cell(1, column).fill = PatternFill("solid", fgColor="FFF2CC")
        if str(sheet[name].dtype) == "str":
            for cell in page[letter][1:]:
                cell.data_type = "s"  # never a formula
                cell.number_format = "@"
        choices = f"{page.title} {name}" if f"{page.title} {name}" in lists else name
        if choices in lists:
            _choose_from(page, letter, list(lists).index(choices) + 1, len(lists[choices]))
    page.freeze_panes = "A2"
    page.auto_filter.ref = page.dimensions


def _choose_from(page: "Worksheet", letter: str, column: int, count: int) -> None:
    """Add a drop-down list of the choices in a column of the hidden worksheet."""
    from openpyxl.utils import get_column_letter
    from openpyxl.worksheet.datavalidation import DataValidation

    source = get_column_letter(column)
    choices = DataValidation(
        type="list",
        formula1=f"{LISTS}!${source}$1:${source}${max(count, 1)}",
        allow_blank=True,
        showErrorMessage=False,  # --apply reports every fault, with a "did you mean"
    )
    page.add_data_validation(choices)
    choices.add(f"{letter}2:{letter}{max(page.max_row, 2)}")


def _save(book: "Workbook", path: Path) -> None:
    """Save with fixed dates, so that the same sheets give the same bytes."""
    book.properties.created = DATE
    buffer = BytesIO()
    book.save(buffer)
    with zipfile.ZipFile(buffer) as dated, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name in dated.namelist():
            data = dated.read(name)
            if name == "docProps/core.xml":
                changed = book.properties.modified.strftime(STAMP)
                data = data.replace(changed.encode(), DATE.strftime(STAMP).encode())
            out.writestr(zipfile.ZipInfo(name, DATE.timetuple()[:6]), data, zipfile.ZIP_DEFLATED)
