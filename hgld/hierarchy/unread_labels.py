"""Find labels that a text encoder cannot tell apart, such as names in a script that it never saw.

An encoder maps all characters outside its vocabulary to one token, and cuts off what is beyond its
limit of tokens. Labels that differ in these alone have one vector, so their likeness to each other
says nothing of their meaning.
"""

import unicodedata
from collections.abc import Sequence

import numpy as np
import pandas as pd

TOLERANCE = 1e-5  # in each dimension: the padding of a batch changes the sixth decimal


def find_unread(labels: Sequence[str], vectors: np.ndarray) -> np.ndarray:
    """Return a mask (N,) of the labels whose vector another label has, too.

    Labels that differ only in capitals, accents and punctuation may share a vector: many encoders
    ignore these. Labels without letters and digits differ by their symbols.

    Args:
        labels: N texts.
        vectors: (N, D) unit vectors, one for each; they may come from several batches.

    Example:
        >>> find_unread(["熊猫", "雨伞", "Café", "cafe"], np.eye(2)[[0, 0, 1, 1]]).tolist()
        [True, True, False, False]
    """
    rows, groups = np.arange(len(vectors)), np.zeros(len(vectors), dtype=np.int64)
    for column in vectors.T:  # each dimension divides the groups that are left
        order = np.lexsort((column[rows], groups))
        rows, groups = rows[order], groups[order]
        first = np.ones(len(rows) + 1, dtype=bool)  # of its group; the last entry ends the rows
        first[1:-1] = (np.diff(groups) > 0) | (np.diff(column[rows]) > TOLERANCE)
        several = ~(first[:-1] & first[1:])
        rows, groups = rows[several], first[:-1].cumsum()[several]
    table = pd.DataFrame({"group": groups, "label": [_plain(labels[row]) for row in rows.tolist()]})
    unread = np.zeros(len(vectors), dtype=bool)
    unread[rows] = table.groupby("group")["label"].transform("nunique") > 1
    return unread


def _plain(label: str) -> str:
    letters = unicodedata.normalize("NFKD", label.casefold())
    letters = "".join(letter for letter in letters if not unicodedata.combining(letter))
    # Marks other than accents are vowels, as in Hindi, so they stay beside letters and numbers.
    kept = (letter if unicodedata.category(letter)[0] in "LMN" else " " for letter in letters)
    plain = " ".join("".join(kept).split())
    return plain if any(map(str.isalnum, plain)) else label
