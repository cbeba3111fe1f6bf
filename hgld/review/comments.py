"""Comments on values: a thread for each, signed and dated.

A note is the reason of one decision and is replaced with it; a comment decides nothing, so comments
are kept beside the decisions, in ``comments.csv``. Rows are only appended, and git merges two
branches by keeping the rows of both. A sheet brings new ones in its column ``comment``.
"""

from collections.abc import Iterable

import pandas as pd

from hgld.artifacts import records, table_of
from hgld.hierarchy.clean import value_keys
from hgld.review.spreadsheet import Sheet
from hgld.review.values import keyed
from hgld.words import single_blanks

COLUMN = "comment"


def read_comments(sheets: Iterable[Sheet]) -> list[tuple[str, str]]:
    """Return key and text of each filled cell in the column ``comment`` of sheets of values."""
    rows = [row for sheet in map(keyed, sheets) if COLUMN in sheet.columns for row in sheet.rows]
    return [(row["key"], row[COLUMN]) for row in rows if row["key"] and row[COLUMN]]


def append_comments(
    comments: pd.DataFrame, said: Iterable[tuple[str, str]], *, who: str, when: str
) -> pd.DataFrame:
    """Return the comments with new ones at the end, given as key and text.

    What a person already said of a value is not said again, so a sheet may be applied twice.

    Example:
        >>> none, said = table_of("comments", []), [("Q1", "a mine?")]
        >>> once = append_comments(none, said, who="ann", when="2026-01-01")
        >>> len(once), len(append_comments(once, said, who="ann", when="2026-01-02"))
        (1, 1)
    """
    known = set(zip(comments["key"], comments["who"], comments["text"], strict=True))
    texts = dict.fromkeys((key, single_blanks(text)) for key, text in said)
    rows = [
        {"key": key, "who": who, "when": when, "text": text}
        for key, text in texts
        if text and (key, who, text) not in known
    ]
    return pd.concat([comments, table_of("comments", rows)], ignore_index=True)


def threads_of(comments: pd.DataFrame, clusters: pd.DataFrame) -> dict[str, list[list[str]]]:
    """Return value key -> who, when and text of each comment, oldest first.

    Comments from before a value had an id are on its label, as decisions are.

    Example:
        >>> rows = [{"key": "mine", "who": "ann", "when": "2026-01-01", "text": "a quarry?"}]
        >>> clusters = pd.DataFrame({"class_id": ["Q1"], "instance_of": ["mine"]})
        >>> threads_of(table_of("comments", rows), clusters)
        {'Q1': [['ann', '2026-01-01', 'a quarry?']]}
    """
    keys, with_label = value_keys(clusters), dict[str, list[str]]()
    for key, label in zip(keys, clusters["instance_of"], strict=True):
        with_label.setdefault(label, []).append(key)
    here = set(keys)
    # two branches that git merged need not be in the order of their dates
    rows = sorted(records(comments), key=lambda row: row["when"])
    threads: dict[str, list[list[str]]] = {}
    for row in rows:
        on = [row["key"]] if row["key"] in here else with_label.get(row["key"], [row["key"]])
        for key in on:
            threads.setdefault(key, []).append([row["who"], row["when"], row["text"]])
    return threads
