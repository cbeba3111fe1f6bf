"""What a decision rests on, as a short hash: a later reader sees whether it is still the same.

A class is decided by what it means: its label, and the classes above it in Wikidata where those
are known. Counts, examples and clusters are left out on purpose: they change with every scrape
and every clustering, and would make every decision look out of date.
"""

from collections.abc import Mapping
from hashlib import sha256

import pandas as pd

__all__ = ["LETTERS", "PART", "evidence_of", "has_changed", "short_hash"]

LENGTH = 6
LETTERS = str.maketrans("0123456789", "ghijklmnop")
PART = "-"  # between the parts of an evidence


def evidence_of(values: pd.DataFrame, hints: Mapping[str, str]) -> list[str]:
    """The evidence of each value: hash of the label, and of the hint of its class if it has one.

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


def has_changed(then: str, now: str) -> bool:
    """Whether something that was known then is another thing now; what came later is no change.

    Example:
        >>> has_changed("aaaaaa", "aaaaaa-bbbbbb"), has_changed("aaaaaa-b", "aaaaaa-c")
        (False, True)
        >>> has_changed("", "aaaaaa")
        False
    """
    parts = zip(then.split(PART), now.split(PART), strict=False)
    return any(one != other for one, other in parts if one and other)


def short_hash(text: str) -> str:
    """Six letters; no digits, since spreadsheets would take some of them for numbers.

    Example:
        >>> short_hash("pond")
        'kenphk'
    """
    return sha256(text.encode()).hexdigest()[:LENGTH].translate(LETTERS)
