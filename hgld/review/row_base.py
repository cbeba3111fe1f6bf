"""Base and evidence of a sheet's row: short texts that show what it was written from.

A sheet is in use for weeks: other people decide in the meantime, and columns get sorted separately.
The base shows whether a person changed the row, whether the decision in force is still the one in
the row, and whether the key still belongs to the row.

    base = hash of the key - hash of the editable cells - ids of the decisions - row in the sheet

The ids are those of the heads (``hgld.hierarchy.decisions``): the rows that a decision made from
this row supersedes. The last part shows whether rows still have the order in which they were
written.

The evidence of a value shows whether its meaning changed since it was decided. That is its label,
and its superclasses in Wikidata if they are known. Counts, examples and clusters are not part of
it: they change with every scrape and every clustering, so every decision would become stale.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from hgld.hierarchy.decisions import ID_LENGTH, LETTERS, Decision, in_force, short_hash
from hgld.words import single_blanks

EDITABLE = ("decision", "supercategory", "kind", "note")
PART = "-"  # between the parts of a base or an evidence
NONE = "g"  # instead of ids: the value had no decision


@dataclass(frozen=True)
class Base:
    """The parts of a base; all empty for a row that has none."""

    key: str = ""
    cells: str = ""
    ids: str = ""
    row: str = ""

    @classmethod
    def parse(cls, text: str) -> "Base":
        """Parse a cell; any other text gives an empty base.

        Example:
            >>> Base.parse("kenphk-jngedc-beobbohm-gi").heads
            ('beobbohm',)
            >>> Base.parse("0.25") == Base()
            True
        """
        parts = text.casefold().split(PART)
        if len(parts) != 4 or not all(map(str.isalpha, parts)):
            return cls()
        return cls(*parts) if parts[2] == NONE or len(parts[2]) % ID_LENGTH == 0 else cls()

    def __str__(self) -> str:
        return PART.join((self.key, self.cells, self.ids, self.row))

    def __bool__(self) -> bool:
        return bool(self.key)

    @property
    def heads(self) -> tuple[str, ...]:
        """Ids of the decisions; empty if the value had none."""
        ids = "" if self.ids == NONE else self.ids
        return tuple(ids[i : i + ID_LENGTH] for i in range(0, len(ids), ID_LENGTH))


def base_of(key: str, heads: Sequence[Decision] = (), row: int = 0) -> Base:
    """Return the base of a row written from these heads of its value."""
    ids = "".join(sorted(head.id for head in heads)) or NONE
    place = f"{row:d}".translate(LETTERS)
    return Base(short_hash(key), hash_cells(cells_of(in_force(heads))), ids, place)


def cells_of(decision: Decision | None) -> dict[str, str]:
    """Return the four editable cells of a row with this decision; blank in a conflict."""
    if decision is None or decision.rivals:
        return dict.fromkeys(EDITABLE, "")
    said = (decision.decision, decision.supercategory, decision.kind, decision.why)
    return dict(zip(EDITABLE, map(single_blanks, said), strict=True))


def hash_cells(cells: Mapping[str, str]) -> str:
    """Hash the editable cells; case is ignored, since spreadsheets capitalise words."""
    return short_hash("\n".join(cells[name].casefold() for name in EDITABLE))


def evidence_of(values: pd.DataFrame, hints: Mapping[str, str]) -> list[str]:
    """Return the evidence of each value: hash of its label, and of its class hint if it has one.

    Example:
        >>> values = pd.DataFrame({"class_id": ["Q1", ""], "instance_of": ["pond", "pub"]})
        >>> evidence_of(values, {"Q1": "natural: lake"})
        ['kenphk-jngedc', 'gghnde']
    """
    pairs = zip(values["class_id"], values["instance_of"], strict=True)
    return [
        PART.join(short_hash(text) for text in (label, hints.get(class_id, "")) if text)
        for class_id, label in pairs
    ]


def has_changed(then: str, now: str, also: Collection[str] = ()) -> bool:
    """Whether a known part of the evidence changed; a part that was added later does not count.

    Example:
        >>> has_changed("aaaaaa", "aaaaaa-bbbbbb"), has_changed("aaaaaa-b", "aaaaaa-c")
        (False, True)
        >>> has_changed("", "aaaaaa")
        False
    """
    parts = zip(then.split(PART), now.split(PART), strict=False)
    return any(one != other and one not in also for one, other in parts if one and other)
