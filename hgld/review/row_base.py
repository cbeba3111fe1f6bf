"""The base of a sheet's row: a short text that identifies the decision it was written from.

A sheet is in use for weeks: other people decide in the meantime, and columns get sorted separately.
The base shows whether a person changed the row, whether the decision in force is still the one in
the row, and whether the key still belongs to the row.

    base = hash of the key - hash of the editable cells - decisions made by then - row in the sheet

The third part distinguishes a decision that was made, undone and made again from the first one; the
last part shows whether rows still have the order in which they were written.
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
        """Parse a cell; any other text gives an empty base.

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
    """Return the base of a row with this decision, or without one."""
    number, place = (f"{n:d}".translate(LETTERS) for n in (decision.number if decision else 0, row))
    return Base(short_hash(key), hash_cells(cells_of(decision)), number, place)


def cells_of(decision: Decision | None) -> dict[str, str]:
    """Return the four editable cells of a row with this decision."""
    if decision is None:
        return dict.fromkeys(EDITABLE, "")
    said = (decision.decision, decision.supercategory, decision.kind, decision.why)
    return dict(zip(EDITABLE, map(single_blanks, said), strict=True))


def hash_cells(cells: Mapping[str, str]) -> str:
    """Hash the editable cells; case is ignored, since spreadsheets capitalise words."""
    return short_hash("\n".join(cells[name].casefold() for name in EDITABLE))
