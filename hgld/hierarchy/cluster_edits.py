"""Edits of clusters by people: merged, dissolved, split; valid for any later clustering.

An edit names values, not clusters: "this value belongs with that one". Clusters change with k, the
encoder and the next scrape, values do not, so an edit holds for all later proposals of k-means.
Edits are only ever appended, as decisions are: the last row of a value holds, and an empty
``with_key`` takes an edit back.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

__all__ = ["anchors_of", "regroup"]


def anchors_of(edits: pd.DataFrame, keys: Sequence[str]) -> dict[str, str]:
    """Value -> the value whose cluster it goes to, for the values that a person put somewhere.

    Where that value was itself put with another, the last one of the chain counts. A value that
    is its own anchor has a cluster with those that follow it; where it is not there
    any more, the first of those that are takes its place. Edits that lead nowhere do not count.

    Example:
        >>> edits = pd.DataFrame({"key": ["a", "b", "c"], "with_key": ["b", "b", "x"]})
        >>> anchors_of(edits, ["a", "b", "c"])
        {'a': 'b', 'b': 'b'}
        >>> anchors_of(edits, ["a", "c"])
        {'a': 'a'}
    """
    here = set(keys)
    last = dict(zip(edits["key"], edits["with_key"], strict=True))
    follows = {key: to for key, to in last.items() if to}
    ends = {key: _end_of_chain(key, follows) for key in sorted(follows) if key in here}
    heirs = {end: key for key, end in reversed(ends.items()) if follows.get(end) == end}
    return {
        key: end if end in here else heirs[end]
        for key, end in ends.items()
        if end in here or end in heirs
    }


def _end_of_chain(key: str, follows: Mapping[str, str]) -> str:
    passed = []
    while key in follows and key not in passed:
        passed.append(key)
        key = follows[key]
    return min(passed[passed.index(key) :]) if key in passed else key


def regroup(keys: Sequence[str], labels: np.ndarray, anchor_of: Mapping[str, str]) -> np.ndarray:
    """The labels (N,) with every value in the cluster of its anchor; an anchor has its own.

    Example:
        >>> regroup(["a", "b", "c"], np.array([0, 1, 1]), {"a": "b"}).tolist()
        [0, 0, 0]
        >>> regroup(["a", "b", "c"], np.array([0, 1, 1]), {"b": "b"}).tolist()
        [0, 2, 1]
    """
    place = dict(zip(keys, labels.tolist(), strict=True))
    own = sorted({anchor for anchor in anchor_of.values() if anchor_of.get(anchor) == anchor})
    first = int(labels.max(initial=-1)) + 1
    place |= {anchor: first + i for i, anchor in enumerate(own)}
    moved = [place[anchor_of.get(key, key)] for key in keys]
    return np.unique(moved, return_inverse=True)[1].astype(np.int64)
