"""The base of a sheet's row: which decision the row was written from, as a short text.

A sheet lives for weeks: other people decide in the meantime, and columns get sorted apart from each
other. With its base a row says for itself whether a person changed it, whether the decision in
force is still the one it shows, and whether its key is still its own.

    base = hash of the key - hash of the editable cells - decisions made by then - row in the sheet

The third part tells a decision that was made, taken back and made again from the first; the last
part says whether rows still have the order in which they were written.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hgld.hierarchy.decisions import Decision
from hgld.review.evidence import LETTERS, PART, short_hash
from hgld.words import single_blanks

__all__ = ["EDITABLE", "Base", "base_of", "cells_of", "hash_cells"]

EDITABLE = ("decision", "supercategory", "kind", "note")


@dataclass(frozen=True)
class Base:
    """The parts of a base; all empty for a row that has none."""

    key: str = ""
    cells: str = ""
    number: str = ""
    row: str = ""

    @classmethod
    def parse(cls, text: str) -> "Base":
        """Read a cell; a text that is no base counts as none.

        Example:
            >>> Base.parse("kenphk-jngedc-h-gi")
            Base(key='kenphk', cells='jngedc', number='h', row='gi')
            >>> Base.parse("0.25") == Base()
            True
        """
        parts = text.casefold().split(PART)
        return cls(*parts) if len(parts) == 4 and all(map(str.isalpha, parts)) else cls()

    def __str__(self) -> str:
        return PART.join((self.key, self.cells, self.number, self.row))

    def __bool__(self) -> bool:
        return bool(self.key)

    def shows(self, decision: Decision | None) -> bool:
        """Whether the row was written from this decision (None: from no decision)."""
        then = base_of("", decision)
        return (self.cells, self.number) == (then.cells, then.number)


def base_of(key: str, decision: Decision | None, row: int = 0) -> Base:
    """The base of a row that shows this decision, or none."""
    number, place = (f"{n:d}".translate(LETTERS) for n in (decision.number if decision else 0, row))
    return Base(short_hash(key), hash_cells(cells_of(decision)), number, place)


def cells_of(decision: Decision | None) -> dict[str, str]:
    """The four editable cells of a row as the sheet shows this decision."""
    if decision is None:
        return dict.fromkeys(EDITABLE, "")
    said = (decision.decision, decision.supercategory, decision.kind, decision.why)
    return dict(zip(EDITABLE, map(single_blanks, said), strict=True))


def hash_cells(cells: Mapping[str, str]) -> str:
    """The hash of the editable cells; spreadsheets capitalise words, so case does not count."""
    return short_hash("\n".join(cells[name].casefold() for name in EDITABLE))
