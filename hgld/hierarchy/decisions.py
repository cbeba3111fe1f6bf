"""The decision in force for each value, and conflicts between people.

Rows of decisions.csv are only ever appended. A row is identified by its id, a hash of its
cells, and ``supersedes`` names the rows that it replaces. A row that no other row replaces is a
*head* of its key. One head is the decision in force; heads with different answers are a conflict,
which leaves the value undecided until a row supersedes them all. The order of the rows decides
nothing, so that two branches in git can be merged by keeping the rows of both.

A value is found by its class id, since labels change and class ids do not; if no decision names
the id, one that names the exact label counts, so that values without an id can be decided, and
decisions made before the ids were known stay valid.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256

import pandas as pd

from hgld.artifacts import records
from hgld.words import nearest, single_blanks

PLACING = ("keep", "move")
DECIDING = (*PLACING, "drop")
LETTERS = str.maketrans("0123456789", "ghijklmnop")  # spreadsheets leave letters as they are
ID_LENGTH = 8
EDITS = (" taxonomy", " undo", " redo")  # ends of entries of edits of the taxonomy
NOT_HASHED = ("entry",)  # an entry is named after the ids of its rows
# of a side of a conflict, for programs
SIDE = ("id", "decision", "supercategory", "kind", "who", "when", "why", "entry")


@dataclass(frozen=True)
class Decision:
    """One row of the decisions.

    Attributes:
        place: its place in the table, from 0 on.
        number: how many decisions its key had with it.
        evidence: what the value was then (``evidence_of``); empty where that is not known.
        supersedes: ids of the rows that it replaces; a date means the last row of the key above
            it with that date, for rows that are written by hand.
        entry: id of the apply, undo or save that wrote it, and the name of its source.
        undoes: ids of the rows that it takes back.
        id: hash of the row.
        rivals: the other heads of a conflict.
    """

    place: int
    key: str
    key_type: str
    decision: str
    supercategory: str
    kind: str
    who: str
    when: str
    why: str
    evidence: str = ""
    number: int = 1
    supersedes: tuple[str, ...] = ()
    entry: str = ""
    undoes: tuple[str, ...] = ()
    id: str = ""
    rivals: tuple["Decision", ...] = ()
    first: bool = False

    @property
    def places(self) -> bool:
        """True if it puts the value into a supercategory."""
        return self.decision in PLACING and not self.rivals

    @property
    def decides(self) -> bool:
        """True if the value is decided; ``unsure`` and a conflict leave it open."""
        return self.decision in DECIDING and not self.rivals

    @cached_property
    def answer(self) -> str:
        """The decision as one text; two heads with equal answers do not conflict."""
        return answer_of(self.decision, self.supercategory)

    @property
    def signed(self) -> str:
        """The decision as text, with who decided, when and why."""
        said = " ".join(filter(None, (self.decision, self.supercategory)))
        why = f" ({single_blanks(self.why)})" if self.why else ""
        return f"'{said}' by {self.who or 'somebody'}, {self.when or 'some day'}{why}"

    @property
    def conflict(self) -> str:
        """The sides of a conflict as text, newest first; empty if there is none.

        Example:
            >>> drop = Decision(0, "pub", "label", "drop", "", "", "ann", "2026-01-01", "")
            >>> keep = Decision(1, "pub", "label", "keep", "inn", "", "ben", "2026-01-02", "a sign")
            >>> in_force([drop, keep]).conflict
            "'keep inn' by ben, 2026-01-02 (a sign); 'drop' by ann, 2026-01-01"
        """
        return "; ".join(side.signed for side in self.sides) if self.rivals else ""

    @property
    def sides(self) -> tuple["Decision", ...]:
        """The heads of the value, each without rivals; one unless they are in conflict."""
        return (replace(self, rivals=()), *self.rivals)


# finds the rows of a history that a row names by id, or by the date of a row above it
Named = Callable[[Decision, Iterable[str]], list[Decision]]


class Decided:
    """The decisions in force.

    Example:
        >>> table = pd.DataFrame({"key": ["pub"] * 2, "key_type": ["label"] * 2,
        ...     "decision": ["keep", "drop"], "supercategory": ["restaurant", ""],
        ...     "kind": ["human-made", ""], "who": ["a", "b"], "when": ["2026-01-01"] * 2,
        ...     "why": ["", ""], "supersedes": ["", ""]})
        >>> Decided(table).find("", "pub").rivals[0].decision
        'keep'
        >>> table.loc[1, "supersedes"] = row_id(table.iloc[0])
        >>> Decided(table).find("", "pub").decision
        'drop'
    """

    def __init__(self, decisions: pd.DataFrame) -> None:
        self._by_key: dict[tuple[str, str], list[Decision]] = {}
        for place, row in enumerate(records(decisions)):
            cells = {name: cell if isinstance(cell, str) else "" for name, cell in row.items()}
            key = single_blanks(cells["key"])
            made = self._by_key.setdefault((cells["key_type"], key), [])
            decision = Decision(
                place,
                key,
                cells["key_type"],
                cells["decision"],
                single_blanks(cells["supercategory"]),
                cells["kind"],
                cells["who"],
                cells["when"],
                cells["why"],
                cells.get("evidence", ""),
                len(made) + 1,
                tuple(cells["supersedes"].split()),
                cells.get("entry", ""),
                tuple(cells.get("undoes", "").split()),
                row_id(cells),
            )
            made.append(decision)
        self._heads = dict(self._by_key)
        for of, made in self._by_key.items():
            if len(made) > 1:
                named = row_names(made)
                self._by_key[of] = _with_first(made, named)
                self._heads[of] = _heads(self._by_key[of], named)

    def find(self, class_id: str, instance_of: str) -> Decision | None:
        """The decision in force for a value, with its rivals; None where there is none."""
        return in_force(self.heads(class_id, instance_of))

    def heads(self, class_id: str, instance_of: str) -> Sequence[Decision]:
        """The rows that a new decision on a value replaces: of its id, else of its label."""
        by_id = self._heads.get(("qid", class_id), []) if class_id else []
        return by_id or self._heads.get(("label", instance_of), [])

    def history(self, class_id: str, instance_of: str) -> Sequence[Decision]:
        """All decisions on a value in the order of the file: on its label first, then on its id."""
        by_id = self._by_key.get(("qid", class_id), []) if class_id else []
        return [*self._by_key.get(("label", instance_of), []), *by_id]

    def of_values(self, values: pd.DataFrame) -> list[Decision | None]:
        """The decision in force for each row of a table of values."""
        pairs = zip(values["class_id"], values["instance_of"], strict=True)
        return [self.find(class_id, instance_of) for class_id, instance_of in pairs]

    def all(self) -> list[Decision]:
        """The decision in force of each key, in the order of the file."""
        found = [decision for heads in self._heads.values() if (decision := in_force(heads))]
        return sorted(found, key=lambda decision: decision.place)

    def all_heads(self) -> list[Decision]:
        """The rows that no other row replaces, also those with one answer, without rivals."""
        return [head for heads in self._heads.values() for head in heads]

    @cached_property
    def moot(self) -> set[str]:
        """Ids of rows on labels that a row on an id replaced, and of those that edits made of them.

        The value goes by its id since.
        """
        rows = self.rows()
        found = {name for row in rows if row.key_type == "qid" for name in row.supersedes}
        found &= {row.id for row in rows if row.key_type == "label"}
        for row in rows:
            if row.supersedes and row.entry.endswith(EDITS) and found.issuperset(row.supersedes):
                found.add(row.id)
        return found

    def rows(self) -> list[Decision]:
        """All rows, in the order of the file."""
        made = (decision for made in self._by_key.values() for decision in made)
        return sorted(made, key=lambda decision: decision.place)


def answer_of(decision: str, supercategory: str) -> str:
    """Return what a decision amounts to: its supercategory, drop or unsure.

    Example:
        >>> answer_of("move", "inn") == answer_of("keep", "inn"), answer_of("unsure", "inn")
        (True, 'unsure')
    """
    return f"keep {supercategory}" if decision in PLACING else decision


def in_force(heads: Sequence[Decision]) -> Decision | None:
    """Return the decision that heads amount to; None without heads, or if an undo left it open.

    Of heads with one answer it is the newest; otherwise the newest has the others as ``rivals``.
    """
    decided = [head for head in heads if head.decision != "open"]
    if not any(head.supersedes and not head.first for head in decided):
        heads = decided  # an undo contradicts no decision that was made without the one it undid
    if not heads:
        return None
    if len(heads) == 1:
        return heads[0]
    # never by place: the rows of two branches come in either order
    newest, *others = sorted(heads, key=lambda head: (head.when, head.who, head.id), reverse=True)
    differ = any(head.answer != newest.answer for head in others)
    return replace(newest, rivals=tuple(others)) if differ else newest


def _with_first(made: Sequence[Decision], named: Named) -> list[Decision]:
    """Return rows, marked if they only follow edits of the taxonomy from a first decision."""

    def is_first(row: Decision) -> bool:
        while follows_edit(row, named):
            before = named(row, row.supersedes)
            if len(before) != 1:
                return False
            row = before[0]
        return not row.supersedes

    return [replace(row, first=True) if row.supersedes and is_first(row) else row for row in made]


def follows_edit(row: Decision, named: Named) -> bool:
    """Whether a row only follows an edit of the taxonomy, or an undo or redo of one."""
    return (
        row.entry.endswith(EDITS)
        and bool(row.supersedes)
        and (row.entry.endswith(EDITS[0]) or not row.undoes or len(named(row, row.undoes)) > 0)
        and all(follows_edit(one, named) for one in named(row, row.undoes))
    )


def _heads(made: Sequence[Decision], named: Named) -> list[Decision]:
    by_row = [
        (row, old, follows_edit(row, named)) for row in made for old in named(row, row.supersedes)
    ]
    replaced = {old.id for _, old, _ in by_row}
    # a rename in one branch and a decision in another contradict each other in nothing
    decided = {old.id for _, old, follows in by_row if not follows}
    heads = {row.id: row for row in made if row.id not in replaced}
    moot = {row.id for row, old, follows in by_row if follows and old.id in decided}
    return [row for one, row in heads.items() if one not in moot or len(heads) == 1]


def row_names(history: Sequence[Decision]) -> Named:
    """Return what finds the rows that a row names, by id or by the date of a row above it."""
    by_id = {old.id: old for old in history}
    by_date: dict[str, list[Decision]] = {}
    for old in history:
        by_date.setdefault(old.when, []).append(old)

    def find(row: Decision, name: str) -> Decision | None:
        above = (
            old
            for old in reversed(by_date.get(name, ()))
            if old.place < row.place and old.id != row.id  # never a copy of itself
        )
        return by_id.get(name) or next(above, None)

    return lambda row, names: [old for name in names if (old := find(row, name))]


def row_id(row: "Mapping[str, str] | pd.Series[str]") -> str:
    """Return the id of a row of decisions: a hash of its cells, blank ones left out.

    Example:
        >>> row_id({"key": "pub", "decision": "drop"})
        'beobbohm'
        >>> row_id({"key": " pub", "decision": "drop", "supersedes": "", "entry": "aaaa"})
        'beobbohm'
    """
    texts = {str(name): cell for name, cell in row.items() if isinstance(cell, str)}
    cells = {name: single_blanks(text) for name, text in texts.items() if name not in NOT_HASHED}
    text = "\n".join(f"{name}={cells[name]}" for name in sorted(cells) if cells[name])
    return short_hash(text, ID_LENGTH)


def short_hash(text: str, length: int = 6) -> str:
    """Return a hash of letters, without digits, which a spreadsheet might read as a number.

    Example:
        >>> short_hash("pond")
        'kenphk'
    """
    return sha256(text.encode()).hexdigest()[:length].translate(LETTERS)


def kinds_of(taxonomy: pd.DataFrame) -> Mapping[str, str]:
    """Supercategory -> its kind."""
    names = [single_blanks(name) for name in taxonomy["supercategory"]]
    return dict(zip(names, taxonomy["kind"], strict=True))


def fault_of_place(supercategory: str, kind: str, kinds: Mapping[str, str]) -> str:
    """Return what is wrong with a supercategory or its kind; empty if both are in the taxonomy."""
    if supercategory not in kinds:
        near = nearest(supercategory, kinds)
        return f"supercategory {supercategory!r} is not in taxonomy.csv{near}"
    if kind and kind != kinds[supercategory]:
        expected = f"expected {kinds[supercategory]!r}, as in taxonomy.csv"
        return f"kind of '{supercategory}' is {kind!r}; {expected}"
    return ""


def fault_of_decision(decision: Decision, kinds: Mapping[str, str]) -> str:
    """Return ``fault_of_place`` of a decision, with what to do about another kind."""
    fault = fault_of_place(decision.supercategory, decision.kind, kinds)
    if fault and decision.supercategory in kinds:  # edited on another branch, or by hand
        fault += "; confirm it in review.csv: write decided over its status, and apply"
    elif fault and not nearest(decision.supercategory, kinds):
        fault += f"; decide '{decision.key}' again in review.csv, or add the supercategory"
    return fault


def key_types_of(values: pd.DataFrame) -> list[str]:
    """By what each value is keyed: ``qid`` where it has a class id, else ``label``."""
    return ["qid" if class_id else "label" for class_id in values["class_id"]]


def sides_of(decisions: pd.DataFrame, sheet: pd.DataFrame) -> dict[str, list[Mapping[str, str]]]:
    """Return key -> the decisions in force on the value of each row of a review sheet.

    More than one with different answers are a conflict.
    """
    decided = Decided(decisions)
    return {
        row["key"]: [
            {name: getattr(head, name) for name in SIDE}
            for head in decided.heads(row["key"], row["instance_of"] or row["key"])
        ]
        for row in records(sheet)
    }


def check_decisions(
    decisions: pd.DataFrame, taxonomy: pd.DataFrame, present: Mapping[str, str] | None = None
) -> list[tuple[int, str]]:
    """Return the faults of decisions: place of the row from 0 on, and what is wrong.

    ``present`` has the present names of renamed and merged supercategories, for the messages.

    A fault is a conflict, a name in ``supersedes`` or ``undoes`` that no row of the file has, or a
    decision in force whose supercategory or kind is not in the taxonomy.
    """
    decided, kinds = Decided(decisions), kinds_of(taxonomy)
    rows, faults = decided.rows(), []
    known = {row.id for row in rows} | {row.when for row in rows}
    for row in rows:
        for name in {*row.supersedes, *row.undoes} - known:
            faults.append((row.place, f"'{row.key}' replaces {name}, which is no row of the file"))
    for decision in decided.all():
        if decided.moot.issuperset(side.id for side in decision.sides):
            continue
        if decision.rivals:
            faults.append((decision.place, f"'{decision.key}' is in conflict: {decision.conflict}"))
        elif decision.places and (fault := fault_of_decision(decision, kinds)):
            name, now = decision.supercategory, (present or {}).get(decision.supercategory)
            if now and name not in kinds:  # decided on a branch without the edit
                fault = f"supercategory {name!r} is {now!r} now; decide the value again"
            faults.append((decision.place, f"'{decision.key}': {fault}"))
    return sorted(faults)
