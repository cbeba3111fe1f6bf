r"""Rows of a MediaWiki table out of its SQL dump, streamed.

Such a dump is one CREATE TABLE and then INSERT lines of about a megabyte, each with thousands of
rows. The columns are found by name in the CREATE TABLE, since they change over the years. Rows are
matched whole, strings with \' inside them too, so no text can be taken for a row.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from hgld.errors import InvalidData
from hgld.hierarchy.scrape.compressed import read_blocks

__all__ = ["read_rows", "table_name", "text_of"]

_TABLE = re.compile(rb"CREATE TABLE (?:IF NOT EXISTS )?`(\w+)` \((.*?)\n\)", re.DOTALL)
_COLUMN = re.compile(rb"^\s*`(\w+)`", re.MULTILINE)
_TEXT = rb"(?:_binary )?'[^'\\]*(?:\\.[^'\\]*)*'"
_CELL = rb"(?:" + _TEXT + rb"|[^',()]+)"
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def table_name(path: Path) -> str:
    """Which table a dump holds.

    Raises:
        InvalidData: no such file, or no SQL dump.
    """
    return _describe(path)[0]


def read_rows(path: Path, columns: Sequence[str], label: str) -> Iterator[tuple[bytes, ...]]:
    """The cells of the named columns as they stand in the dump, row by row; see ``text_of``.

    Raises:
        InvalidData: no such file or column, a row that is cut.
    """
    table, there = _describe(path)
    for name in columns:
        if name not in there:
            raise InvalidData(
                f"{path}: table {table} has no column {name}; it has {', '.join(there)}"
            )
    row = re.compile(_row_pattern(there, columns), re.DOTALL)
    order = [sorted(columns, key=there.index).index(name) for name in columns]
    for block in read_blocks(path, label):
        for line in block.split(b"\n"):
            if line.startswith(b"INSERT INTO"):
                if b"(" not in line or not line.rstrip().endswith(b");"):
                    raise InvalidData(f"{path}: an INSERT is cut; download the file again")
                for cells in row.findall(line, line.index(b"(")):
                    yield tuple(cells[place] for place in order)


def text_of(cell: bytes) -> str:
    r"""A string's text.

    Example:
        >>> text_of(rb"'Children\'s_Museum'")
        "Children's_Museum"
    """
    text = cell.removeprefix(b"_binary ")[1:-1].decode("utf-8", "replace")
    return _ESCAPED.sub(lambda m: _ESCAPES.get(m[1], m[1]), text) if "\\" in text else text


def _describe(path: Path) -> tuple[str, list[str]]:
    """Name and columns of the dump's table."""
    head = next(read_blocks(path, "Head"), b"")
    found = _TABLE.search(head)
    if found is None:
        raise InvalidData(f"{path}: no CREATE TABLE in it; expected an SQL dump of MediaWiki")
    return found[1].decode(), [name.decode() for name in _COLUMN.findall(found[2])]


def _row_pattern(there: Sequence[str], wanted: Sequence[str]) -> bytes:
    """A whole row, with the wanted cells as groups."""
    cells = [b"(" + _CELL + b")" if name in wanted else _CELL for name in there]
    return rb"\(" + b",".join(cells) + (b"()" if len(wanted) == 1 else b"") + rb"\)"
