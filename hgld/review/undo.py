"""Undo of decisions by appending rows, so that the history is complete."""

from collections.abc import Iterator, Sequence

import pandas as pd

from hgld.errors import InvalidData
from hgld.hierarchy.columns import records, table_of
from hgld.words import nearest, single_blanks

__all__ = ["undo_decisions"]

TAKEN_BACK = "taken back"  # the reason, unless a person gives one

SAID = ("decision", "supercategory", "kind", "evidence")
OPEN = {"decision": "unsure", "supercategory": "", "kind": ""}


def undo_decisions(
    decisions: pd.DataFrame,
    clusters: pd.DataFrame,
    keys: Sequence[str],
    *,
    who: str,
    when: str,
    why: str,
) -> pd.DataFrame:
    """Return the decisions with a new row for each key that restores its previous decision.

    A second undo goes one step further back: a decision and the row that undid it cancel. An undo
    row is recognised by its content: it repeats the decision before the last one, with another
    reason. (A person who returns to that decision with a new note is treated as an undo.)

    A value is identified by its class id, as in the sheet, but may be decided by its label: such
    decisions precede the first decision on the id. A first decision is superseded by ``unsure``,
    which leaves the value open.

    Raises:
        InvalidData: a key has no decision, or all its decisions are undone.
    """
    rows = [{**row, "key": single_blanks(row["key"])} for row in records(decisions)]
    label_of = dict(zip(clusters["class_id"], clusters["instance_of"], strict=True))
    history = {key: list(_history(rows, key, label_of.get(key, ""))) for key in keys}
    unknown = [key for key in keys if not history[key]]
    if unknown:
        near = nearest(unknown[0], {row["key"] for row in rows})
        raise InvalidData(f"decisions.csv has no decision on '{unknown[0]}'{near}")
    new = [_undone(history[key]) | {"who": who, "when": when, "why": why} for key in keys]
    return pd.concat([decisions, table_of("decisions", new)], ignore_index=True)


def _history(rows: Sequence[dict[str, str]], key: str, label: str) -> Iterator[dict[str, str]]:
    """Yield the decisions on a value, on its label first, then on its key; the last is in force."""
    if label:
        yield from (row for row in rows if (row["key_type"], row["key"]) == ("label", label))
    yield from (row for row in rows if row["key"] == key)


def _undone(history: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return a row with the key of the last decision and the content of the one before."""
    last, standing = history[-1], _standing(history)
    if not standing:
        raise InvalidData(f"every decision on '{last['key']}' is taken back already")
    said = _before(standing)
    return {
        "key": last["key"],
        "key_type": last["key_type"],
        **{name: said[name] for name in SAID},
        "supersedes": last["when"],
    }


def _standing(history: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return the history without undone decisions and the rows that undid them."""
    standing: list[dict[str, str]] = []
    for row in history:
        if standing and _takes_back(row, standing):  # the row and the decision it undid cancel
            standing.pop()
        else:
            standing.append(row)
    return standing


def _before(standing: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return the decision before the last one; ``unsure`` before the first one."""
    return standing[-2] if len(standing) > 1 else {**standing[-1], **OPEN}


def _takes_back(row: dict[str, str], standing: Sequence[dict[str, str]]) -> bool:
    last, before = standing[-1], _before(standing)
    if any(row[name] != before[name] for name in SAID):
        return False
    own_reason = row["why"] not in ("", last["why"])  # a sheet repeats the last note
    return row["why"] == TAKEN_BACK or (own_reason and len(standing) > 1)
