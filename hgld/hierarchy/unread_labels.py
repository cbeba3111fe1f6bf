"""Find labels that a text encoder cannot tell apart, such as names in a script that it never saw.

An encoder maps all characters outside its vocabulary to one token. Labels of as many such
characters then have one vector, so their likeness to each other says nothing of their meaning.
"""

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
import pandas as pd


def find_unread(labels: Sequence[str], vectors: np.ndarray) -> np.ndarray:
    """Return a mask (N,) of the labels whose vector another label has, too.

    Labels that differ only in capitals, accents and punctuation may share a vector: many encoders
    ignore these.

    Args:
        labels: N texts.
        vectors: (N, D), one for each.

    Example:
        >>> find_unread(["熊猫", "雨伞", "Café", "cafe"], np.eye(2)[[0, 0, 1, 1]]).tolist()
        [True, True, False, False]
    """
    if not len(vectors):
        return np.zeros(0, dtype=bool)
    _, same = np.unique(vectors, axis=0, return_inverse=True)
    table = pd.DataFrame({"vector": same.ravel(), "label": [*map(_plain, labels)]})
    return (table.groupby("vector")["label"].transform("nunique") > 1).to_numpy()


def _plain(label: str) -> str:
    letters = unicodedata.normalize("NFKD", label.casefold())
    letters = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return " ".join(re.findall(r"[^\W_]+", letters))
