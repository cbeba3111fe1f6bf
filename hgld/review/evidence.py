"""Evidence of a decision as a short hash, to detect decisions that are out of date.

A class is decided by its meaning: its label, and its superclasses in Wikidata if they are known.
Counts, examples and clusters are not part of the hash: they change with every scrape and every
clustering, so every decision would become stale.
"""

from collections.abc import Mapping

import pandas as pd

from hgld.hierarchy.decisions import short_hash

__all__ = ["PART", "evidence_of", "has_changed"]

PART = "-"  # separator of the parts of an evidence


def evidence_of(values: pd.DataFrame, hints: Mapping[str, str]) -> list[str]:
    """Return the evidence of each value: hash of its label, and of its class hint if it has one.

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
    """Whether a known part of the evidence changed; a part that was added later does not count.

    Example:
        >>> has_changed("aaaaaa", "aaaaaa-bbbbbb"), has_changed("aaaaaa-b", "aaaaaa-c")
        (False, True)
        >>> has_changed("", "aaaaaa")
        False
    """
    parts = zip(then.split(PART), now.split(PART), strict=False)
    return any(one != other for one, other in parts if one and other)
