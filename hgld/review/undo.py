"""Undo and redo of decisions by appending rows, so that the history is complete.

A row of an undo names in ``undoes`` the rows that it takes back, and repeats what held before them.
Taking back an undo is a redo.

Rows repeat earlier decisions with the present names of supercategories. The row by which a decision
followed a rename is not a separate step: an undo takes back the decision.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from hgld.artifacts import records, table_of
from hgld.errors import InvalidData
from hgld.hierarchy.decisions import (
    Decided,
    Decision,
    follows_edit,
    in_force,
    row_id,
    row_names,
)
from hgld.review.entries import Entry, signature_of
from hgld.review.identities import Names
from hgld.words import nearest, single_blanks, some_of

OPEN = ("open", "", "")


@dataclass(frozen=True)
class Undone:
    """Both tables with the new rows at their ends; keys that were decided again since."""

    decisions: pd.DataFrame
    cluster_edits: pd.DataFrame
    left: Sequence[str] = ()


def undo_decisions(
    decisions: pd.DataFrame,
    clusters: pd.DataFrame,
    keys: Sequence[str],
    *,
    who: str,
    when: str,
    why: str,
    names: Names,
    redo: bool = False,
) -> pd.DataFrame:
    """Return the decisions with a new row for each key that restores its previous decision.

    A second undo goes one step further back. A value is identified by its class id, as in the
    sheet, but may be decided by its label. A first decision is superseded by ``open``: the value
    is undecided again. ``names`` are those of ``Identities.names``. With ``redo``
    the new rows take the last undo of each key back.

    Raises:
        InvalidData: a key has no decision, is in conflict, or all its decisions are undone; to
            redo, a key has no undo since its last decision.
    """
    rows, decided = [], Decided(decisions)
    for key, value in _of_keys(decisions, clusters, keys, names):
        now = in_force(value.heads)
        if decided.moot.issuperset(head.id for head in value.heads):
            of_label = {row.id for row in decided.history("", key)}
            rows_by_id = (row for row in decided.rows() if row.key_type == "qid")
            by_id = next(row.key for row in rows_by_id if of_label.intersection(row.supersedes))
            raise InvalidData(f"'{key}' is decided by its id since; give {by_id}")
        if redo:
            taken = value.last_undo()
            nothing = f"no decision on '{key}' was taken back since it was last decided"
        elif now and now.rivals:
            raise InvalidData(
                f"'{key}' is in conflict: {now.conflict}; settle it (`hgld reviews conflicts`), "
                "or take one side back by its entry"
            )
        else:
            taken = value.last_decisions()
            nothing = f"every decision on '{key}' is taken back already"
        if not taken:
            raise InvalidData(nothing)
        rows += value.take_back(taken)
    _require_there(rows, names)
    signed = signature_of([row_id(row) for row in rows], who, when, "redo" if redo else "undo")
    new = table_of("decisions", [{**signed, "why": why, **row} for row in rows])
    return pd.concat([decisions, new], ignore_index=True)


def undo_entry(
    decisions: pd.DataFrame,
    cluster_edits: pd.DataFrame,
    clusters: pd.DataFrame,
    entry: Entry,
    *,
    who: str,
    when: str,
    why: str,
    names: Names,
) -> Undone:
    """Take back all rows of an entry that are still in force; of an undo, this is a redo.

    Values that were decided again since are left as they are and named in ``Undone.left``. A value
    that the entry decided several times gets back what held before the first of these.

    Raises:
        InvalidData: none of its rows is in force.
    """
    rows, left, moot = [], [], Decided(decisions).moot
    for key, value in _of_keys(decisions, clusters, _keys_of(entry), names):
        taken = [row for row in value.in_force_of(entry, key) if row.id not in moot]
        if taken:
            rows += value.take_back(value.with_replaced(taken, entry))
        else:
            left.append(key)
    _require_there(rows, names)
    edits, left_edits = _edits_before(cluster_edits, entry)
    if not rows and not edits:
        raise InvalidData(f"nothing of entry {entry.number} ({entry.id}) is in force any more")
    source = "redo" if entry.source == "undo" else "undo"
    # edits have no ids: their number distinguishes this undo from an earlier one of the same edits
    made_of = [entry.id, str(len(cluster_edits)), *map(row_id, rows)]
    signed = signature_of(made_of, who, when, source)
    new = table_of("decisions", [{**signed, "why": why, **row} for row in rows])
    new_edits = table_of("cluster_edits", [{**edit, **signed, "follows": ""} for edit in edits])
    return Undone(
        pd.concat([decisions, new], ignore_index=True),
        pd.concat([cluster_edits, new_edits], ignore_index=True),
        [*left, *left_edits],
    )


def _require_there(rows: Sequence[Mapping[str, str]], names: Names) -> None:
    """Raise InvalidData if rows would bring back a supercategory that is not in the taxonomy."""
    here = {"", *(name for name, (now, _) in names.items() if name == now)}
    gone = [
        f"'{r['key']}' as '{r['supercategory']}'" for r in rows if r["supercategory"] not in here
    ]
    if names and gone:
        raise InvalidData(
            f"would decide {some_of(gone, 3)}, not in taxonomy.csv any more; add it again "
            "(`hgld taxonomy add`), or decide these again"
        )


def find_undo(
    decisions: pd.DataFrame,
    cluster_edits: pd.DataFrame,
    clusters: pd.DataFrame,
    entries: Sequence[Entry],
    names: Names,
) -> Entry:
    """Return the last undo that was neither taken back nor followed by another decision.

    Raises:
        InvalidData: there is none.
    """
    redone = 0  # edits of the taxonomy
    for entry in reversed(entries):
        if entry.cells:
            if entry.source == "undo" and not redone:
                return entry
            redone += {"redo": 1, "undo": -1}.get(entry.source, 0)
        elif entry.source == "undo":
            found = _of_keys(decisions, clusters, _keys_of(entry), names)
            if any(value.in_force_of(entry, key) for key, value in found):
                return entry
            if _edits_before(cluster_edits, entry)[0]:
                return entry
    raise InvalidData("no undo is left to be taken back")


def _keys_of(entry: Entry) -> list[str]:
    return list(dict.fromkeys(row.key for row in entry.rows))


def _of_keys(
    decisions: pd.DataFrame, clusters: pd.DataFrame, keys: Sequence[str], names: Names
) -> list[tuple[str, "ValueHistory"]]:
    """Return each key with the history of its value."""
    decided = Decided(decisions)
    label_of = dict(zip(clusters["class_id"], clusters["instance_of"], strict=True))
    found: list[tuple[str, ValueHistory]] = []
    for key in dict.fromkeys(map(single_blanks, keys)):
        value = (key, label_of.get(key, key))
        if not decided.heads(*value):
            near = nearest(key, {row.key for row in decided.rows()})
            raise InvalidData(f"decisions.csv has no decision on '{key}'{near}")
        heads = {head.id for head in decided.heads(*value)}
        found.append((key, ValueHistory(decided.history(*value), heads, names)))
    return found


class ValueHistory:
    """All decisions on a value, with present names, and those of them in force.

    A row repeats an earlier one if it only follows an edit of the taxonomy, or if it is an undo or
    redo that restored it. What a head repeats, directly or not, is in force with it.
    """

    def __init__(self, rows: Sequence[Decision], heads: Collection[str], names: Names) -> None:
        """Take rows and the ids of the heads; ``names`` are those of ``Identities.names``."""
        present = [
            replace(row, supercategory=name, kind=row.kind and kind)
            for row in rows
            for by_name in [names.get(row.supercategory, (row.supercategory, row.kind))]
            for name, kind in [names.get(row.id, by_name)]
        ]
        self.heads = list({row.id: row for row in present if row.id in heads}.values())
        self._named = row_names(present)
        self._repeated: dict[str, list[Decision]] = {}

    def standing_for(self, decision: Decision) -> list[Decision]:
        """Return the heads that are a decision or repeat it."""
        return [head for head in self.heads if decision.id in {r.id for r in self.repeated(head)}]

    def repeated(self, row: Decision) -> list[Decision]:
        """Return a row, the one that it repeats, the one which that repeats, and so on."""
        if row.id not in self._repeated:
            before = self._named(row, row.supersedes)
            if row.undoes:
                before = self._without(self._named(row, row.undoes), before)
            elif not follows_edit(row, self._named):
                before = []
            same = next((old for old in before if _content(old) == _content(row)), None)
            self._repeated[row.id] = [row, *(self.repeated(same) if same else ())]
        return self._repeated[row.id]

    def take_back(self, taken: Sequence[Decision]) -> list[dict[str, str]]:
        """Return a row for each decision in force without the taken ones; more are a conflict.

        Each row replaces all heads. The sides of a conflict keep the names of those who took them.
        """
        rows = self._without(taken, self.heads)
        if (now := in_force(rows)) and not now.rivals:  # an undo beside it contradicts nothing
            rows = [row for row in rows if row.answer == now.answer]
        contents = {_content(row): row for row in rows}
        return [
            {
                "key": taken[0].key,
                "key_type": taken[0].key_type,
                **dict(zip(("decision", "supercategory", "kind"), content, strict=True)),
                "supersedes": " ".join(sorted(head.id for head in self.heads)),
                "evidence": row.evidence,
                "undoes": " ".join(sorted(row.id for row in taken)),
                **({"why": f"as {row.who or 'somebody'}, {row.when}"} if len(contents) > 1 else {}),
            }
            for content, row in (contents or {OPEN: taken[0]}).items()
        ]

    def in_force_of(self, entry: Entry, key: str) -> list[Decision]:
        """Return the rows of an entry that an undo would take back."""
        return [row for row in entry.rows if row.key == key and self.standing_for(row)]

    def last_decisions(self) -> list[Decision]:
        """Return the decisions that the heads are or restore; none for what an undo left open."""
        last = [self.repeated(head)[-1] for head in self.heads]
        return _distinct([row for row in last if not row.undoes])

    def last_undo(self) -> list[Decision]:
        """Return the rows of the last undo that is not taken back; none if decided since."""
        found, named = [], self._named
        for head in self.heads:
            made = [row for row in self.repeated(head) if not follows_edit(row, named)]
            if not made or not made[0].undoes:
                return []
            undone = [(row, named(row, row.undoes)) for row in made if row.undoes]
            # a row that takes back an undo is a redo
            found += [row for row, taken in undone if not any(one.undoes for one in taken)][:1]
        return _distinct(found)

    def with_replaced(self, rows: Sequence[Decision], entry: Entry | None = None) -> list[Decision]:
        """Return rows, those that they replaced, and so on; of an entry what it replaced itself.

        A row that repeats one of the entry counts as one of it.
        """
        own = None if entry is None else {row.id for row in entry.rows}
        found, left = {row.id: row for row in rows}, [*rows]
        while left:
            row = left.pop()
            for old in self._named(row, row.supersedes):
                if old.id not in found and (
                    own is None or own & {r.id for r in self.repeated(old)}
                ):
                    found[old.id] = old
                    left.append(old)
        return list(found.values())

    def _without(self, taken: Sequence[Decision], heads: Sequence[Decision]) -> list[Decision]:
        """Return the rows in force without the taken ones: other sides, else the rows before."""
        ids = {row.id for row in taken}
        if len(heads) > 1:
            others = [one for one in heads if ids.isdisjoint(r.id for r in self.repeated(one))]
            if others and len(others) < len(heads):
                return others
        before = _distinct([old for row in taken for old in self._named(row, row.supersedes)])
        before = [row for row in before if row.id not in ids]
        # of a chain of taken rows, an earlier one may have replaced what another side replaced, too
        older = {
            old.id for row in before for old in self.with_replaced(self._named(row, row.supersedes))
        }
        return [row for row in before if row.id not in older]


def _edits_before(
    cluster_edits: pd.DataFrame, entry: Entry
) -> tuple[list[dict[str, str]], list[str]]:
    """Return the edits of clusters that held before an entry, and keys that were edited since."""
    restored, left = [], []
    of_key: dict[str, list[dict[str, str]]] = {}
    for edit in records(cluster_edits):
        of_key.setdefault(edit["key"], []).append(edit)
    for row in entry.edits:
        made = of_key[row["key"]]
        if made[-1]["with_key"] != row["with_key"]:
            left.append(row["key"])
            continue
        place = max(i for i, edit in enumerate(made) if edit == row)
        before = made[place - 1] if place else {"with_key": "", "action": "undo"}
        action = before["action"] if before["with_key"] else "undo"
        restored.append({"key": row["key"], "with_key": before["with_key"], "action": action})
    return restored, left


def _content(row: Decision) -> tuple[str, str, str]:
    return row.decision, row.supercategory, row.kind


def _distinct(rows: Sequence[Decision]) -> list[Decision]:
    return list({row.id: row for row in rows}.values())
