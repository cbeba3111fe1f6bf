"""Propose supercategories, and levels above them: clusters of the unit vectors of the values.

A proposal is only a start for the review, but it has to be the same each time: values are sorted
by key, the seed is fixed, one thread computes, and numbers are rounded to six digits. A cluster
that is found again keeps its id. Centres that decisions suggest come first; the others are drawn
far from them, as k-means++ does.

People merge, dissolve and split clusters (``cluster_edits``). An edit names values, not clusters:
"this value belongs with that one". Clusters change with k, the encoder and the next scrape, values
do not, so an edit is made again to each new proposal. Edits are only ever appended, as decisions
are: the last row of a value holds, and an empty ``with_key`` takes an edit back.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

from hgld.artifacts import CHANGES, Vectors, columns_of, table_of
from hgld.config import ClusterOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.cluster_ids import Change, keep_ids, load_before, save_ids, tell_changes
from hgld.hierarchy.decisions import Decided
from hgld.hierarchy.scrape.ancestors import chain_of
from hgld.hierarchy.vector_clusters import (
    ancestor_groups,
    count_different,
    find_clusters,
    join_vectors,
    means_of,
    nearest_to_mean,
    nest,
)
from hgld.tasks import say
from hgld.words import count_text

DIGITS = 6
NEAREST = 3  # clusters named as neighbours of a cluster


def propose_clusters(
    values: pd.DataFrame,
    label_vectors: Vectors,
    cluster_edits: pd.DataFrame,
    decisions: pd.DataFrame | None = None,
    image_vectors: Vectors | None = None,
    ancestry: pd.DataFrame | None = None,
    *,
    options: ClusterOptions,
    context: StageContext,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row a value before and after; after, with its cluster.

    ``distance`` is to the centre of the own cluster (Euclidean), ``margin`` how much farther the
    nearest centre of another is: 0 where there is one cluster only, below 0 where a person put the
    value. New clusters are numbered by their landmarks, most first, then by name; a cluster's name
    is the label of its medoid, the value nearest to the mean direction.

    Args:
        values: class_id, instance_of, landmarks, images.
        label_vectors: of the values' texts.
        cluster_edits: which values people put together or apart.
        decisions: the first centres are those of the decided supercategories; None: drawn.
        image_vectors: of the values' photos (``cluster.on``).
        ancestry: statements above the values (``cluster.ancestry``). Values of one group
            (``ancestor_groups``) have one vector, their mean, while clusters are found, so that a
            group counts as many times as it has values; edits by people come after that.
        options: numbers of clusters, method, weights.
        context: where cluster ids are kept.

    Returns:
        ``clusters`` and ``cluster_summary``, which has a row a cluster and says what became of
        those that were there before.

    Raises:
        UsageError: more clusters are asked for than there are different vectors, or fewer than
            supercategories are decided.
        InvalidData: a value without a vector.
    """
    values = values.iloc[np.argsort(value_keys(values).to_numpy(dtype=str), kind="stable")]
    keys = value_keys(values).tolist()
    vectors = vectors_of(keys, join_vectors(label_vectors, image_vectors, options))
    starts = None
    if decisions is not None:
        rows: dict[str, list[int]] = {}
        for row, decision in enumerate(Decided(decisions).of_values(values)):
            if decision and decision.places:
                rows.setdefault(decision.supercategory, []).append(row)
        # By name, so that the order of the decisions changes no cluster.
        means = [vectors[rows[name]].mean(axis=0) for name in sorted(rows)]
        starts = np.stack(means) if means else np.empty((0, vectors.shape[1]))
        if len(starts) > options.clusters:
            raise UsageError(
                f"cluster.clusters is {options.clusters}, but the values decided so far lie in "
                f"{len(starts)} supercategories, each of which starts a cluster (cluster.seeds = "
                f'"decided"); set cluster.clusters to {len(starts)} or more'
            )
    groups = None
    if ancestry is not None:
        groups = ancestor_groups(values["class_id"].tolist(), ancestry, options.ancestry)
        count = len(np.unique(groups))
        say(f"{count_text(len(groups), 'value')} in {count_text(count, 'group')} by ancestry.csv")
    together = vectors if groups is None else means_of(vectors, groups)[groups]
    different = count_different(together)
    if options.clusters > different:
        raise UsageError(
            f"cluster.clusters is {options.clusters}, but there are only {different} different "
            f"values to cluster; set cluster.clusters to {different} or less"
        )
    edits = cluster_edits.to_csv(index=False)
    parts = (values.to_csv(index=False), edits, options.model_dump_json())
    hashed = sha256("\0".join(parts).encode())
    for array in (vectors, starts, groups):
        hashed.update(b"" if array is None else array.tobytes())
    made_from = hashed.hexdigest()
    before = load_before(context.state, made_from)
    # Edits name values, not cluster numbers, so they hold for any later clustering.
    anchor_of = anchors_of(cluster_edits, keys)
    found = find_clusters(together, options.clusters, options, starts).labels
    if groups is not None:  # rounding may part equal rows that are as near to two centres
        found = found[np.unique(groups, return_index=True)[1]][groups]
    labels = _in_order(values, vectors, regroup(keys, found, anchor_of))
    ids = keep_ids(keys, labels, before, anchor_of)
    now = dict(zip(keys, ids.tolist(), strict=True))
    clusters, nearest, centres = _describe(values, vectors, ids)
    # By cluster, a column for each level above, with the name of its cluster there: that of the
    # cluster below that is nearest to its mean.
    names = clusters.groupby("cluster")["cluster_name"].first()
    above = pd.DataFrame(index=names.index)
    for level, groups_above in zip(options.levels, nest(centres, options), strict=False):
        medoids = [nearest_to_mean(centres, rows) for rows in _members(groups_above).values()]
        above[f"level_{level}"] = names.iloc[medoids].to_numpy()[groups_above]
    # Only now: a refused number of clusters must leave the ids as they were.
    anchors = [key for key, anchor in anchor_of.items() if key == anchor]
    save_ids(context.state, made_from, before, now, anchors)
    changes = tell_changes(before.ids, now)
    counts = Counter(change.change for change in changes)
    if set(counts) - {"new", "kept"} or len(counts) > 1:
        text = ", ".join(f"{counts[word]} {word}" for word in CHANGES[::-1] if counts[word])
        say(f"clusters against those before: {text}; see cluster_summary.csv")
    return clusters, _summary(clusters, nearest, changes, above)


def vectors_of(keys: Sequence[str], label_vectors: Vectors) -> np.ndarray:
    """The vectors (N, D) of the value keys, in float64.

    Raises:
        InvalidData: a key has none.
    """
    missing = [key for key in keys if key not in label_vectors.row_of]
    if missing:
        raise InvalidData(
            f"label_vectors.npz has no vector for '{missing[0]}' ({len(missing)} of {len(keys)} "
            "values); delete label_vectors.npz and run again"
        )
    return np.asarray(label_vectors.of(keys), dtype=np.float64)


def _in_order(values: pd.DataFrame, vectors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The labels by landmarks and name instead of k-means' own, which mean nothing."""
    landmarks, names = values["landmarks"].to_numpy(), values["instance_of"].to_numpy(str)
    members = _members(labels)
    order = sorted(
        members,
        key=lambda label: (
            -landmarks[members[label]].sum(),
            names[nearest_to_mean(vectors, members[label])],
            label,
        ),
    )
    place = {label: i for i, label in enumerate(order)}
    return np.array([place[int(label)] for label in labels], dtype=np.int64)


def _members(labels: np.ndarray) -> dict[int, np.ndarray]:
    """Cluster -> rows."""
    return {int(label): np.flatnonzero(labels == label) for label in np.unique(labels)}


def _describe(
    values: pd.DataFrame, vectors: np.ndarray, ids: np.ndarray
) -> tuple[pd.DataFrame, dict[int, list[int]], np.ndarray]:
    """``clusters``, of each cluster the clusters whose centres are nearest, and the centres."""
    members = _members(ids)
    order = list(members)
    centres = np.array([vectors[rows].mean(axis=0) for rows in members.values()])
    centres = centres.reshape(-1, vectors.shape[1])
    own = np.searchsorted(order, ids)
    distances = cdist(vectors, centres)
    at = np.arange(len(ids))
    distance = distances[at, own]
    # The nearest of the other centres; their own is excluded.
    distances[at, own] = np.inf
    margin = distances.min(axis=1) - distance if len(order) > 1 else np.zeros(len(ids))
    label = values["instance_of"].to_numpy(object)
    names = {i: label[nearest_to_mean(vectors, rows)] for i, rows in members.items()}
    clusters = values.assign(
        cluster=ids,
        cluster_name=pd.Series([names[int(i)] for i in ids], index=values.index, dtype="str"),
        distance=np.round(distance, DIGITS),
        margin=np.round(margin, DIGITS),
    )
    # Rounded and stable: equally near clusters keep the order of their numbers.
    nearest = np.argsort(cdist(centres, centres).round(DIGITS), axis=1, kind="stable")
    neighbours = {
        cluster: [order[c] for c in nearest[row] if c != row][:NEAREST]
        for row, cluster in enumerate(order)
    }
    return clusters[columns_of("clusters")], neighbours, centres


def _summary(
    clusters: pd.DataFrame,
    nearest: dict[int, list[int]],
    changes: Sequence[Change],
    above: pd.DataFrame,
) -> pd.DataFrame:
    """One row a cluster, those that are gone with no values."""
    groups = clusters.groupby("cluster")
    sums = groups[["landmarks", "images"]].sum()
    names, sizes = groups["cluster_name"].first(), groups.size()
    nothing = {"cluster_name": "", "values": 0, "landmarks": 0, "images": 0, "nearest": ""}
    rows = []
    for change in changes:
        i, related = change.cluster, "; ".join(map(str, change.related))
        row = {"cluster": i, "change": change.change, "related": related, **nothing}
        if change.change != "gone":
            beside = "; ".join(map(str, nearest[i]))
            row |= {"cluster_name": names[i], "values": sizes[i], "nearest": beside}
            row |= {name: sums.loc[i, name] for name in ("landmarks", "images")}
        rows.append(row)
    table = table_of("cluster_summary", rows)
    return table.join(above.reindex(table["cluster"].unique(), fill_value=""), on="cluster")


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
    chains = {key: chain_of(key, follows) for key in sorted(follows) if key in here}
    # of a circle the first by name, whichever of its values a chain began at
    ends = {key: min(chain[chain.index(chain[-1]) :]) for key, chain in chains.items()}
    heirs = {end: key for key, end in reversed(ends.items()) if follows.get(end) == end}
    return {
        key: end if end in here else heirs[end]
        for key, end in ends.items()
        if end in here or end in heirs
    }


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
