"""Cluster ids that stay: a new clustering keeps the ids of the clusters that it finds again.

k-means numbers clusters differently each time, but people remember "cluster 12". Each new cluster
is matched with at most one cluster of before (Hungarian method on the Jaccard overlap) and keeps
its id from an overlap of one half; an id that is gone is never given again.

What was before is remembered in the stage's own state, with a hash of what it was made from: making
the same again gives the same ids, and so does a fresh work folder, where nothing was before. It
is not kept in ``labels/``: no decision and no edit names a cluster by its id, so nothing is lost
with it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from hgld.artifacts import write_file

MEMORY = "cluster_ids.json"


@dataclass(frozen=True)
class Before:
    """The clusters before this run.

    Attributes:
        ids: value key -> its cluster.
        free: the first id that was never given.
        anchors: values around which a person had split off a cluster.
    """

    ids: Mapping[str, int] = field(default_factory=dict)
    free: int = 0
    anchors: Sequence[str] = ()


@dataclass(frozen=True)
class Change:
    """Fate of a cluster; ``related`` are those that it came from, or that it went into."""

    cluster: int
    change: str
    related: tuple[int, ...] = ()


def keep_ids(
    keys: Sequence[str],
    labels: np.ndarray,
    before: Before,
    anchor_of: Mapping[str, str],
) -> np.ndarray:
    """The id of each value's cluster (N,); labels that match nothing get new ids in their order.

    Args:
        keys: of the values.
        labels: (N,) new clusters, 0..k-1, in the order in which new ids are given.
        before: the clusters before.
        anchor_of: value -> the value that a person put it with. Such values match nothing, so
            that a cluster merged into another takes that one's id; a cluster split off keeps the
            id that its anchor has had as such.

    Example:
        >>> before = Before({"a": 3, "b": 3, "c": 7}, free=8)
        >>> keep_ids(["a", "b", "c", "d"], np.array([1, 1, 0, 2]), before, {}).tolist()
        [3, 3, 7, 8]
    """
    kept = {  # of clusters around anchors that were anchors before
        int(label): before.ids[key]
        for key, label in zip(keys, labels, strict=True)
        if anchor_of.get(key) == key and key in before.anchors and key in before.ids
    }
    own = {int(labels[row]) for row, key in enumerate(keys) if anchor_of.get(key) == key}
    pairs = [
        (int(label), before.ids[key])
        for key, label in zip(keys, labels, strict=True)
        if key in before.ids and key not in anchor_of and int(label) not in own
    ]
    pairs = [pair for pair in pairs if pair[1] not in kept.values()]
    if pairs:  # the old id of most overlap, if that is at least one half
        fresh, old = (sorted(set(side)) for side in zip(*pairs, strict=True))
        counts = _count(pairs, fresh, old)
        union = counts.sum(axis=1, keepdims=True) + counts.sum(axis=0, keepdims=True) - counts
        jaccard = np.where(2 * counts >= union, counts / union, 0)
        matches = zip(*linear_sum_assignment(jaccard, maximize=True), strict=True)
        kept |= {fresh[row]: old[column] for row, column in matches if jaccard[row, column]}
    new = (label for label in range(int(labels.max(initial=-1)) + 1) if label not in kept)
    kept |= {label: before.free + i for i, label in enumerate(new)}
    return np.array([kept[int(label)] for label in labels], dtype=np.int64)


def _count(pairs: Sequence[tuple[int, int]], new: list[int], old: list[int]) -> np.ndarray:
    """Number of pairs (new, old) of each new and each old cluster; both lists are sorted."""
    counts = np.zeros((len(new), len(old)))
    ones, others = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    np.add.at(counts, (np.searchsorted(new, ones), np.searchsorted(old, others)), 1)
    return counts


def tell_changes(before: Mapping[str, int], now: Mapping[str, int]) -> list[Change]:
    """Fate of each cluster, by the values that both clusterings know.

    A cluster is ``merged`` where it holds most of two or more clusters of before, else ``kept``
    where it has an id of before, ``split`` where most of it came from one, ``new`` where not, and
    ``gone`` where its id is no more.
    """
    pairs = [(now[key], before[key]) for key in now if key in before]
    new, old = sorted(set(now.values())), sorted(set(before.values()))
    counts = _count(pairs, new, old)
    totals, changes = counts.sum(axis=0), []
    for cluster, here in zip(new, counts, strict=True):
        swallowed = [old[c] for c in np.flatnonzero((here > 0) & (2 * here > totals)).tolist()]
        parents = [old[c] for c in np.flatnonzero(2 * here > here.sum()).tolist()]
        if len(swallowed) > 1:
            changes.append(Change(cluster, "merged", tuple(swallowed)))
        elif cluster in old:
            changes.append(Change(cluster, "kept"))
        else:
            changes.append(Change(cluster, "split" if parents else "new", tuple(parents)))
    gone = [column for column, cluster in enumerate(old) if cluster not in set(new)]
    # the cluster that has most of the values, where any of them is left
    went_to = {c: (new[int(counts[:, c].argmax())],) if counts[:, c].any() else () for c in gone}
    return changes + [Change(old[c], "gone", went_to[c]) for c in gone]


def load_before(state: Path, made_from: str) -> Before:
    """The clusters before a run that is made from this; a damaged file counts as none."""
    try:
        memory = json.loads((state / MEMORY).read_text(encoding="utf-8"))
        again = memory["made_from"] == made_from
        found = memory["before" if again else "after"]
        return Before(dict(found["ids"]), int(found["free"]), tuple(found["anchors"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Before()


def save_ids(
    state: Path, made_from: str, before: Before, ids: Mapping[str, int], anchors: Sequence[str]
) -> None:
    """Remember the clusters of this run, and beside them those that it started from."""
    free = max([before.free, *(cluster + 1 for cluster in ids.values())])
    after = Before(ids, free, sorted(anchors))
    memory = {"made_from": made_from, "before": asdict(before), "after": asdict(after)}
    write_file(state / MEMORY, json.dumps(memory, ensure_ascii=False))
