"""Undo and redo of decisions by appending rows, so that the history is complete.

A row of an undo names in ``undoes`` the rows that it takes back, and repeats what held before them.
Taking back an undo is a redo.

Rows repeat earlier decisions with the present names of supercategories. The row by which a decision
followed a rename is not a separate step: an undo takes back the decision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from hgld.artifacts.columns import records, table_of
from hgld.errors import InvalidData
from hgld.hierarchy.decisions import (
    Decided,
    Decision,
    follows_edit,
    in_force,
    replaced_rows,
    row_id,
)
from hgld.review.entries import Entry, entry_of
from hgld.words import nearest, single_blanks, some_of

OPEN = ("open", "", "")
History = Sequence[Decision]
# name of a supercategory, or id of a decision (``names_since``) -> present name and kind
Names = Mapping[str, tuple[str, str]]


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
    is undecided again. ``names`` are those of ``present_names`` and ``names_since``. With ``redo``
    the new rows take the last undo of each key back.

    Raises:
        InvalidData: a key has no decision, is in conflict, or all its decisions are undone; to
            redo, a key has no undo since its last decision.
    """
    rows = []
    for key, history, heads in _of_keys(decisions, clusters, keys, names):
        now = in_force(heads)
        if redo:
            taken = _last_undo(heads, history)
            nothing = f"no decision on '{key}' was taken back since it was last decided"
        elif now and now.rivals:
            raise InvalidData(
                f"'{key}' is in conflict: {now.conflict}; settle it (`hgld reviews conflicts`), "
                "or take one side back by its entry"
            )
        else:
            taken = _distinct([old for head in heads if (old := _restored(head, history))])
            nothing = f"every decision on '{key}' is taken back already"
        if not taken:
            raise InvalidData(nothing)
        rows += _take_back(taken, heads, history)
    _require_there(rows, names)
    entry = entry_of([row_id(row) for row in rows], who, when, "redo" if redo else "undo")
    signed = {"who": who, "when": when, "why": why, "entry": entry}
    new = table_of("decisions", [{**signed, **row} for row in rows])
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
    for key, history, heads in _of_keys(decisions, clusters, _keys_of(entry), names):
        taken = [row for row in _in_force_of(entry, key, history, heads) if row.id not in moot]
        if taken:
            rows += _take_back(_with_replaced(taken, history, entry), heads, history)
        else:
            left.append(key)
    _require_there(rows, names)
    edits, left_edits = _edits_before(cluster_edits, entry)
    if not rows and not edits:
        raise InvalidData(f"nothing of entry {entry.number} ({entry.id}) is in force any more")
    source = "redo" if entry.source == "undo" else "undo"
    # edits have no ids: their number distinguishes this undo from an earlier one of the same edits
    made_of = [entry.id, str(len(cluster_edits)), *map(row_id, rows)]
    signed = {"who": who, "when": when, "entry": entry_of(made_of, who, when, source)}
    new = table_of("decisions", [{**signed, "why": why, **row} for row in rows])
    new_edits = table_of("cluster_edits", [{**edit, **signed, "follows": ""} for edit in edits])
    return Undone(
        pd.concat([decisions, new], ignore_index=True),
        pd.concat([cluster_edits, new_edits], ignore_index=True),
        [*left, *left_edits],
    )


def _require_there(rows: Sequence[Mapping[str, str]], names: Names) -> None:
    """Raise InvalidData if rows would bring back a supercategory that is not in the taxonomy."""
    here = {"", *(name for name, _ in names.values())}
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
            if any(_in_force_of(entry, *value) for value in found):
                return entry
            if _edits_before(cluster_edits, entry)[0]:
                return entry
    raise InvalidData("no undo is left to be taken back")


def _keys_of(entry: Entry) -> list[str]:
    return list(dict.fromkeys(row.key for row in entry.rows))


def _in_force_of(entry: Entry, key: str, history: History, heads: History) -> list[Decision]:
    """Return the rows of an entry on a key that an undo would take back."""
    made = [_made(head, history) for head in heads]
    there = [*heads, *made, *_last_undo(heads, history)]
    now = in_force(heads)
    if now and not now.rivals:
        there += [old for head in heads for old in repeated(head, history)]
    ids = {row.id for row in there}
    return [row for row in entry.rows if row.key == key and row.id in ids]


def _of_keys(
    decisions: pd.DataFrame, clusters: pd.DataFrame, keys: Sequence[str], names: Names
) -> list[tuple[str, History, History]]:
    """Return each key with the history and the heads of its value, with present names."""
    decided = Decided(decisions)
    label_of = dict(zip(clusters["class_id"], clusters["instance_of"], strict=True))
    found: list[tuple[str, History, History]] = []
    for key in dict.fromkeys(map(single_blanks, keys)):
        value = (key, label_of.get(key, key))
        if not decided.heads(*value):
            near = nearest(key, {row.key for row in decided.rows()})
            raise InvalidData(f"decisions.csv has no decision on '{key}'{near}")
        history = [
            replace(row, supercategory=name, kind=row.kind and kind)
            for row in decided.history(*value)
            for by_name in [names.get(row.supercategory, (row.supercategory, row.kind))]
            for name, kind in [names.get(row.id, by_name)]
        ]
        ids = {head.id for head in decided.heads(*value)}
        found.append((key, history, _distinct([row for row in history if row.id in ids])))
    return found


def _take_back(taken: History, heads: History, history: History) -> list[dict[str, str]]:
    """Return a row for each decision that is in force without the taken ones; more are a conflict.

    Each row replaces all heads. The sides of a conflict keep the names of those who took them.
    """
    contents = {_content(row): row for row in _without(taken, heads, history)}
    return [
        {
            "key": taken[0].key,
            "key_type": taken[0].key_type,
            **dict(zip(("decision", "supercategory", "kind"), content, strict=True)),
            "supersedes": " ".join(sorted(head.id for head in heads)),
            "evidence": row.evidence,
            "undoes": " ".join(sorted(row.id for row in taken)),
            **({"why": f"as {row.who or 'somebody'}, {row.when}"} if len(contents) > 1 else {}),
        }
        for content, row in (contents or {OPEN: taken[0]}).items()
    ]


def _without(taken: History, heads: History, history: History) -> list[Decision]:
    """Return the rows in force without the taken ones: other sides, else the rows before them."""
    ids = {row.id for row in taken}
    others = [head for head in heads if head.id not in ids]
    if others and len(others) < len(heads):
        return others
    before = _distinct(
        [old for row in taken for old in replaced_rows(row, row.supersedes, history)]
    )
    before = [row for row in before if row.id not in ids]
    # of a chain of taken rows, an earlier one may have replaced what another side replaced, too
    older = {
        old.id
        for row in before
        for old in _with_replaced(replaced_rows(row, row.supersedes, history), history)
    }
    return [row for row in before if row.id not in older]


def _with_replaced(rows: History, history: History, entry: Entry | None = None) -> list[Decision]:
    """Return rows, those that they replaced, and so on; of an entry only what it replaced itself.

    A row of an entry counts as one of it also under a later name of its supercategory.
    """
    own = None if entry is None else {row.id for row in entry.rows}
    found, left = {row.id: row for row in rows}, [*rows]
    while left:
        row = left.pop()
        for old in replaced_rows(row, row.supersedes, history):
            if old.id not in found and (own is None or _made(old, history).id in own):
                found[old.id] = old
                left.append(old)
    return list(found.values())


def repeated(row: Decision, history: History) -> list[Decision]:
    """Return the decisions that a row repeats, newest first.

    The first is the row without later names, then what an undo restored with it, and so on.
    """
    found = [_made(row, history)]
    while (row := found[-1]).undoes:
        taken = replaced_rows(row, row.undoes, history)
        before = _without(taken, replaced_rows(row, row.supersedes, history), history)
        same = [old for old in before if _content(old) == _content(row)]
        if not same:
            break
        found.append(_made(same[0], history))
    return found


def _restored(row: Decision, history: History) -> Decision | None:
    """Return the decision that a row stands for: itself, or the one that an undo restored."""
    last = repeated(row, history)[-1]
    return None if last.undoes else last


def _made(row: Decision, history: History) -> Decision:
    """Return the row that edits of the taxonomy renamed to this one; else the row itself."""
    while follows_edit(row, lambda one, names: replaced_rows(one, names, history)):
        before = replaced_rows(row, row.supersedes, history)
        if len(before) != 1 or _content(before[0]) != _content(row):
            return row  # a split moved the value
        row = before[0]
    return row


def _last_undo(heads: History, history: History) -> list[Decision]:
    """Return the rows of the last undo of a value that is not taken back; none if decided since."""
    made = [_made(head, history) for head in heads]
    if not all(row.undoes for row in made):
        return []
    found = []
    for row in made:
        taken = replaced_rows(row, row.undoes, history)
        # a row that takes back an undo is a redo: look before that undo
        while taken and taken[0].undoes:
            before = replaced_rows(taken[0], taken[0].supersedes, history)
            row = _made(before[0], history)
            taken = replaced_rows(row, row.undoes, history)
        found += [row] if row.undoes else []
    return _distinct(found)


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
