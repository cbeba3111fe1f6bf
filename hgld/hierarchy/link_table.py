"""Answers of people about the classes: an item or a page of each, in ``links.csv`` or a CSV.

``links.csv`` is in the folder of the decisions. Rows are only appended to it: the last one of a
class holds. The CSV ``link.table`` may be any that names items beside classes.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from unicodedata import normalize
from urllib.parse import unquote, urlsplit

import pandas as pd

from hgld.artifacts import (
    ITEM_IDS,
    columns_of,
    read_csv,
    read_header,
    records,
    row_in_file,
    rows_in_file,
    table_of,
)
from hgld.config import LinkOptions
from hgld.errors import InvalidData, require_no_faults
from hgld.hierarchy.scrape.answers import is_item_id, lookup_key, wiki_of
from hgld.hierarchy.scrape.titles import title_of_url
from hgld.tasks import say
from hgld.words import part_text, single_blanks

NONE = "none"  # in the column qid: a person found no item
OPEN = "open"  # likewise: what was said of the class before is taken back
STATEMENTS = {"wordnet": "P8814", "gbif": "P846"}  # column -> property of the id


@dataclass(frozen=True)
class Said:
    """The answer of a row of a CSV about a class: an id, or the key of a look-up.

    ``place`` names file and row.
    """

    column: str
    text: str
    qid: str
    key: str
    place: str


def read_links(path: Path, column: str) -> pd.DataFrame:
    """Read what a CSV says of classes as rows of ``links``, each with its place in the file.

    Args:
        path: of the CSV; of a class, it may have a row for each image.
        column: with the names.

    Returns:
        One row a class with an id or a page; the index counts the rows below the header from 0.

    Raises:
        InvalidData: no such file or column, or rows of one class that name different items.
    """
    header = read_header(path, [column, *ITEM_IDS])
    columns = [name for name in ITEM_IDS if name in header]
    if not columns:
        raise InvalidData(
            f"{path}: no column {', '.join(ITEM_IDS[:-1])} or {ITEM_IDS[-1]} to link classes by"
        )
    rows = read_csv(path, dict.fromkeys([column, *columns], "text"))
    rows = rows.apply(lambda cells: cells.str.strip())
    rows[column] = rows[column].str.normalize("NFC")  # as the source of a folder names classes
    rows = rows[(rows[column] != "") & (rows[columns] != "").any(axis=1)].drop_duplicates()
    twice = rows[column].duplicated()
    if twice.any():
        place = rows.index[twice][0]
        raise InvalidData(
            f"{path} row {row_in_file(path, place)}: {column} '{rows.loc[place, column]}' has "
            f"another {' or '.join(columns)} than in a row above; write the same for all its rows"
        )
    rows = rows.rename(columns={column: "name"})
    links: pd.DataFrame = rows.reindex(columns=columns_of("links"), fill_value="")
    return links


def read_said(
    tables: Mapping[Path, pd.DataFrame], known: Collection[str], options: LinkOptions
) -> dict[str, Said]:
    """Return what the last row of each class says, by its place in its file.

    If no class has exactly a row's name, several blanks count as one, which a spreadsheet or a form
    may have joined, and both forms of an accented letter as the same, of which macOS has its own.
    """
    said, faults = dict[str, Said](), []
    names_of = defaultdict[str, list[str]](list)
    for name in known:
        names_of[_spelled(name)].append(name)
    for path, rows in tables.items():
        numbers = rows_in_file(path, max(rows.index, default=-1) + 1)
        for number, row in zip(rows.index, records(rows), strict=True):
            place = f"{path.name} row {numbers[number]}"
            column, qid = next((name for name in ITEM_IDS if row[name]), ""), _qid_of(row["qid"])
            key = "" if qid or not column else _key_of(column, row[column], options)
            found = Said(column, row[column] if column else "", qid, key, place)
            if not row["name"]:
                faults.append(f"{place}: no name; write the name of a class")
            elif fault := _fault_of(qid):
                faults.append(f"{place}: {row['name']}: {fault}")
            elif column == "wordnet" and not re.fullmatch(r"\d{8}-[nvars]", found.text):
                is_net = re.fullmatch(r"n\d{8}", found.text)
                what = "has the form of ImageNet's, of WordNet 3.0" if is_net else "is none"
                faults.append(
                    f"{place}: {row['name']}: wordnet {found.text!r} {what}; expected a "
                    "synset of WordNet 3.1, such as 02086723-n"
                )
            meant = names_of.get(_spelled(row["name"]), ())
            for name in [row["name"]] if row["name"] in meant else meant:
                if column and qid != OPEN:
                    said[name] = found
                else:  # the last row counts, also one that takes an answer back
                    said.pop(name, None)
        others = rows.loc[~rows["name"].map(_spelled).isin(list(names_of)), "name"]
        if len(others):
            first = f"'{others.iloc[0]}' in row {numbers[others.index[0]]}"
            name = part_text(len(others), len(rows), "row", "name")
            say(f"{path.name}: {name} no class, first {first}")
    if faults:
        raise InvalidData(*faults)
    return said


def _spelled(name: str) -> str:
    return normalize("NFC", single_blanks(name))


def _key_of(column: str, text: str, options: LinkOptions) -> str:
    """The look-up of a page or of an id."""
    if column in STATEMENTS:
        return lookup_key("statement", STATEMENTS[column], text)
    if column == "commons_url":
        return lookup_key("page", "commonswiki", title_of_url(text) or text)
    address = urlsplit(text)
    if not address.netloc:
        return lookup_key("page", wiki_of(options.languages[0]), text.replace("_", " "))
    title = unquote(address.path.removeprefix("/wiki/")).replace("_", " ")
    return lookup_key("page", wiki_of(address.netloc.partition(".")[0]), title)


def _qid_of(text: str) -> str:
    """An item's id from a cell, which may hold its address, or a word in any case."""
    word = single_blanks(text).rpartition("/")[2]
    return word.lower() if word.lower() in (NONE, OPEN) else word.upper()


def _fault_of(qid: str) -> str:
    if qid in ("", NONE, OPEN) or is_item_id(qid):
        return ""
    what = "is a property, not an item" if re.fullmatch(r"P\d+", qid) else "is not an item"
    return f"qid {qid!r} {what}; expected one such as Q35694, or none"


def apply_links(
    sheet: Iterable[tuple[int, Mapping[str, str]]],
    links: pd.DataFrame,
    *,
    who: str,
    when: str,
    path: Path,
) -> pd.DataFrame:
    """Return ``links`` with a row at its end for each class with another answer or a new note.

    Args:
        sheet: number and cells of each row of ``link_review.csv``: name, qid (an item, "none",
            "open", which takes the answer back, or empty) and note.
        links: the rows so far.
        who: signs the new rows.
        when: their date.
        path: of the sheet, for errors.

    Raises:
        InvalidData: cells that are neither an item's id nor "none", or an item without a name; all
            of them, with rows.

    Example:
        >>> rows, before = [(2, {"name": "jaguar", "qid": "q35694"})], table_of("links", [])
        >>> links = apply_links(rows, before, who="Ann", when="2026-01-01", path=Path("sheet.csv"))
        >>> links[["name", "qid", "who"]].to_numpy().tolist()
        [['jaguar', 'Q35694', 'Ann']]
    """
    known = {row["name"]: row for row in records(links)}
    known = {single_blanks(name): row for name, row in known.items()} | known
    rows, faults = [], []
    for number, row in sheet:
        qid, why = _qid_of(row["qid"]), single_blanks(row.get("note", ""))
        name = row["name"] if row["name"] in known else single_blanks(row["name"])
        before = known.get(name, {"qid": "", "why": ""})
        if fault := _fault_of(qid):
            faults.append(f"row {number}: {row['name']}: {fault}")
        elif qid and not row["name"]:
            faults.append(f"row {number}: no name; write the name of a class")
        elif qid and (
            (item := "" if qid == OPEN else qid) != before["qid"]
            or (not item and any(before.get(name) for name in ITEM_IDS))  # by another column
            or (item and why not in ("", before["why"]))  # a note that was written afterwards
        ):
            signed = {"who": who, "when": when, "why": why}
            empty = dict.fromkeys(links.columns, "")
            rows.append({**empty, "name": row["name"], "qid": item, **signed})
    require_no_faults(path, faults)
    return pd.concat([links, table_of("links", rows)], ignore_index=True) if rows else links
