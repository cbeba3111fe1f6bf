"""Take a decision back without a trace being lost: the history only ever grows."""

from collections.abc import Iterator, Sequence

import pandas as pd

from hgld.config import nearest
from hgld.errors import InvalidData
from hgld.hierarchy.blanks import single_blanks
from hgld.hierarchy.columns import records, table_of

__all__ = ["undo_decisions"]

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

    A value is known by its class id, as in the sheet, though its decision may be on its label: what
    was decided by label held before the first decision on the id. A first decision is superseded by
    ``unsure``, which leaves the value open.

    Raises:
        InvalidData: a key that no decision names.
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
    last = history[-1]
    said = {**last, **OPEN} if len(history) == 1 else history[-2]
    return {
        "key": last["key"],
        "key_type": last["key_type"],
        **{name: said[name] for name in SAID},
        "supersedes": last["when"],
    }
