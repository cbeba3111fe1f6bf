"""Take a decision back without a trace being lost: the history only ever grows."""

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
    """The decisions with a new row a key, which says again what held before its last one.

    Undoing again goes further back: a decision and the row that took it back count as none. Such a
    row is known by what it says: the decision before the last one, and a reason of its own. (A
    person who goes back to that decision with a new note is taken for one.)

    A value is known by its class id, as in the sheet, though its decision may be on its label: what
    was decided by label held before the first decision on the id. A first decision is superseded by
    ``unsure``, which leaves the value open.

    Raises:
        InvalidData: a key that no decision names, or of which all decisions are taken back.
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
    """What was decided on a value, the one in force last: on its label first, then on its key."""
    if label:
        yield from (row for row in rows if (row["key_type"], row["key"]) == ("label", label))
    yield from (row for row in rows if row["key"] == key)


def _undone(history: Sequence[dict[str, str]]) -> dict[str, str]:
    """A row under the key of the last one, with what the one before it says."""
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
    """The history without what was taken back."""
    standing: list[dict[str, str]] = []
    for row in history:
        if standing and _takes_back(row, standing):
            standing.pop()
        else:
            standing.append(row)
    return standing


def _before(standing: Sequence[dict[str, str]]) -> dict[str, str]:
    """What held before the last decision; ``unsure`` before the first one."""
    return standing[-2] if len(standing) > 1 else {**standing[-1], **OPEN}


def _takes_back(row: dict[str, str], standing: Sequence[dict[str, str]]) -> bool:
    last, before = standing[-1], _before(standing)
    if any(row[name] != before[name] for name in SAID):
        return False
    own_reason = row["why"] not in ("", last["why"])  # a sheet carries the last note along
    return row["why"] == TAKEN_BACK or (own_reason and len(standing) > 1)
