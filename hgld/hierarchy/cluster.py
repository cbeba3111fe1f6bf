"""Propose supercategories: k-means on the unit vectors of the values.

A proposal is only a start for the review, but it has to be the same each time: values are sorted
by key, the seed is fixed, one thread computes, and numbers are rounded to six digits. What people
did to the clusters (``cluster_edits``) is done again to each new proposal, and a cluster that is
found again keeps its id. Centres that decisions suggest come first; the others are drawn far from
them, as k-means++ does.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from hgld.artifacts import CHANGES, Vectors, columns_of
from hgld.config import ClusterOptions, StageContext
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.cluster_edits import anchors_of, regroup
from hgld.hierarchy.cluster_ids import Change, keep_ids, load_before, save_ids, tell_changes
from hgld.hierarchy.columns import table_of
from hgld.hierarchy.decisions import Decided
from hgld.tasks import say

__all__ = [
    "Clustered",
    "count_different",
    "k_means",
    "nearest_to_mean",
    "propose_clusters",
    "propose_from_decisions",
    "vectors_of",
]
DIGITS = 6
NEAREST = 3  # clusters named as neighbours of a cluster


@dataclass(frozen=True)
class Clustered:
    """Labels (N,) in 0..k-1 and the inertia: the sum of squared distances to the centres."""

    labels: np.ndarray
    inertia: float


def k_means(
    vectors: np.ndarray,
    clusters: int,
    *,
    seed: int,
    restarts: int,
    starts: np.ndarray | None = None,
) -> Clustered:
    """The best of ``restarts`` runs over the rows of ``vectors`` (N, D).

    Args:
        vectors: (N, D) float64 with at least ``clusters`` different rows.
        clusters: number of clusters.
        seed: of the drawn centres.
        restarts: runs from other draws, of which that of least inertia counts.
        starts: (S, D) first centres, S at most ``clusters``; the others are drawn.
    """
    # Sums in another order differ in the last bit, which can move a value between clusters.
    with threadpool_limits(limits=1):
        if starts is None or not len(starts):
            runs = [_fit(vectors, clusters, restarts, seed, "k-means++")]
        else:
            centres = (_draw_more(vectors, clusters, seed + i, starts) for i in range(restarts))
            runs = [_fit(vectors, clusters, 1, seed, start) for start in centres]
    return min(runs, key=lambda run: run.inertia)


def count_different(vectors: np.ndarray) -> int:
    """Number of different rows."""
    return len(np.unique(vectors, axis=0)) if len(vectors) else 0


def nearest_to_mean(vectors: np.ndarray, rows: Sequence[int] | np.ndarray) -> int:
    """The medoid: of these rows the one nearest to their mean direction, the first among equals.

    Example:
        >>> nearest_to_mean(np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), [0, 1, 2])
        1
    """
    chosen = vectors[rows]
    # Rounded, so that values at equal distance are equal and the first one wins.
    distance = np.linalg.norm(chosen - chosen.mean(axis=0), axis=1).round(6)
    return int(np.asarray(rows)[distance.argmin()])


def _fit(
    vectors: np.ndarray, clusters: int, restarts: int, seed: int, init: "str | np.ndarray"
) -> Clustered:
    model = KMeans(clusters, n_init=restarts, random_state=seed, init=init)
    labels = model.fit_predict(vectors)
    return Clustered(labels, float(model.inertia_))


def _draw_more(vectors: np.ndarray, clusters: int, seed: int, starts: np.ndarray) -> np.ndarray:
    """``starts`` and rows drawn with chances as the squared distance to the nearest centre."""
    random = np.random.default_rng(seed)
    centres = list(starts)
    distance = np.min([_squared(vectors, centre) for centre in centres], axis=0)
    while len(centres) < clusters:
        row = random.choice(len(vectors), p=distance / distance.sum())
        centres.append(vectors[row])
        distance = np.minimum(distance, _squared(vectors, vectors[row]))
    return np.stack(centres)


def _squared(vectors: np.ndarray, centre: np.ndarray) -> np.ndarray:
    squared: np.ndarray = ((vectors - centre) ** 2).sum(axis=1)
    return squared


def propose_clusters(
    values: pd.DataFrame,
    label_vectors: Vectors,
    cluster_edits: pd.DataFrame,
    *,
    options: ClusterOptions,
    context: StageContext,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row a value before and after; after, with its cluster.

    ``distance`` is to the centre of the own cluster (Euclidean), ``margin`` how much farther the
    nearest centre of another is: 0 where there is one cluster only, below 0 where a person put the
    value. New clusters are numbered by their landmarks, most first, then by name; a cluster's name
    is the label of its medoid, the value nearest to the mean direction.

    Returns:
        ``clusters`` and ``cluster_summary``, which has a row a cluster and says what became of
        those that were there before.

    Raises:
        UsageError: more clusters are asked for than there are different vectors.
        InvalidData: a value without a vector.
    """
    values, vectors = _sorted(values, label_vectors)
    return _propose(values, vectors, None, cluster_edits, options, context)


def propose_from_decisions(
    values: pd.DataFrame,
    label_vectors: Vectors,
    cluster_edits: pd.DataFrame,
    decisions: pd.DataFrame,
    *,
    options: ClusterOptions,
    context: StageContext,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """As ``propose_clusters``, but the first centres are those of the decided supercategories.

    Raises:
        UsageError: more clusters are asked for than there are different vectors, or fewer than
            supercategories are decided.
        InvalidData: a value without a vector.
    """
    values, vectors = _sorted(values, label_vectors)
    starts = _centres_of_decided(values, vectors, decisions)
    if len(starts) > options.clusters:
        raise UsageError(
            f"cluster.clusters is {options.clusters}, but the values decided so far lie in "
            f"{len(starts)} supercategories, each of which starts a cluster (cluster.seeds = "
            f'"decided"); set cluster.clusters to {len(starts)} or more'
        )
    return _propose(values, vectors, starts, cluster_edits, options, context)


def vectors_of(keys: Iterable[str], label_vectors: Vectors) -> np.ndarray:
    """The vectors (N, D) of the value keys, in float64.

    Raises:
        InvalidData: a key has none.
    """
    keys = list(keys)
    row_of = {key: row for row, key in enumerate(label_vectors.ids)}
    missing = [key for key in keys if key not in row_of]
    if missing:
        raise InvalidData(
            f"label_vectors.npz has no vector for '{missing[0]}' ({len(missing)} of {len(keys)} "
            "values); delete label_vectors.npz and run again"
        )
    rows = [row_of[key] for key in keys]
    return np.asarray(label_vectors.vectors, dtype=np.float64)[rows]


def _sorted(values: pd.DataFrame, label_vectors: Vectors) -> tuple[pd.DataFrame, np.ndarray]:
    keys = value_keys(values)
    values = values.iloc[np.argsort(keys.to_numpy(dtype=str), kind="stable")]
    return values, vectors_of(value_keys(values), label_vectors)


def _centres_of_decided(
    values: pd.DataFrame, vectors: np.ndarray, decisions: pd.DataFrame
) -> np.ndarray:
    """(S, D): the mean vector of each supercategory's decided values, by name."""
    rows: dict[str, list[int]] = {}
    for row, decision in enumerate(Decided(decisions).of_values(values)):
        if decision and decision.places:
            rows.setdefault(decision.supercategory, []).append(row)
    # By name, so that the order of the decisions changes no cluster.
    means = [vectors[rows[name]].mean(axis=0) for name in sorted(rows)]
    return np.stack(means) if means else np.empty((0, vectors.shape[1]))


def _propose(
    values: pd.DataFrame,
    vectors: np.ndarray,
    starts: np.ndarray | None,
    edits: pd.DataFrame,
    options: ClusterOptions,
    context: StageContext,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    _require_enough(vectors, options.clusters)
    keys = value_keys(values).tolist()
    made_from = _hash(values, vectors, starts, edits, options)
    before = load_before(context.state, made_from)
    # Edits name values, not cluster numbers, so they hold for any later clustering.
    anchor_of = anchors_of(edits, keys)
    labels = _group(values, vectors, starts, anchor_of, options)
    ids = keep_ids(keys, labels, before, anchor_of)
    now = dict(zip(keys, ids.tolist(), strict=True))
    anchors = [key for key, anchor in anchor_of.items() if key == anchor]
    save_ids(context.state, made_from, before, now, anchors)
    clusters, nearest = _describe(values, vectors, ids)
    changes = tell_changes(before.ids, now)
    _say_changes(changes)
    return clusters, _summary(clusters, nearest, changes)


def _group(
    values: pd.DataFrame,
    vectors: np.ndarray,
    starts: np.ndarray | None,
    anchor_of: Mapping[str, str],
    options: ClusterOptions,
) -> np.ndarray:
    """Clusters of k-means with people's edits, as labels 0..k-1 in a fixed order."""
    found = k_means(
        vectors, options.clusters, seed=options.seed, restarts=options.restarts, starts=starts
    )
    labels = regroup(value_keys(values).tolist(), found.labels, anchor_of)
    return _in_order(values, vectors, labels)


def _require_enough(vectors: np.ndarray, clusters: int) -> None:
    different = count_different(vectors)
    if clusters > different:
        raise UsageError(
            f"cluster.clusters is {clusters}, but there are only {different} different values to "
            f"cluster; set cluster.clusters to {different} or less"
        )


def _hash(
    values: pd.DataFrame,
    vectors: np.ndarray,
    starts: np.ndarray | None,
    edits: pd.DataFrame,
    options: ClusterOptions,
) -> str:
    """Of all that a proposal is made from."""
    parts = (values.to_csv(index=False), edits.to_csv(index=False), options.model_dump_json())
    hashed = sha256("\0".join(parts).encode())
    hashed.update(vectors.tobytes())
    hashed.update(b"" if starts is None else starts.tobytes())
    return hashed.hexdigest()


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
) -> tuple[pd.DataFrame, dict[int, list[int]]]:
    """``clusters``, and of each cluster the clusters whose centres are nearest."""
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
    return clusters[columns_of("clusters")], _neighbours(order, centres)


def _neighbours(order: Sequence[int], centres: np.ndarray) -> dict[int, list[int]]:
    # Rounded and stable: equally near clusters keep the order of their numbers.
    between = cdist(centres, centres).round(DIGITS)
    nearest = np.argsort(between, axis=1, kind="stable")
    return {
        cluster: [order[c] for c in nearest[row] if c != row][:NEAREST]
        for row, cluster in enumerate(order)
    }


def _summary(
    clusters: pd.DataFrame, nearest: dict[int, list[int]], changes: Sequence[Change]
) -> pd.DataFrame:
    """One row a cluster, those that are gone with no values."""
    groups = clusters.groupby("cluster")
    sums = groups[["landmarks", "images"]].sum()
    names, sizes = groups["cluster_name"].first(), groups.size()
    nothing = {"cluster_name": "", "values": 0, "landmarks": 0, "images": 0, "nearest": ""}
    rows = []
    for change in changes:
        i, related = change.cluster, _join(change.related)
        row = {"cluster": i, "change": change.change, "related": related, **nothing}
        if change.change != "gone":
            row |= {"cluster_name": names[i], "values": sizes[i], "nearest": _join(nearest[i])}
            row |= {name: sums.loc[i, name] for name in ("landmarks", "images")}
        rows.append(row)
    return table_of("cluster_summary", rows)


def _join(ids: Iterable[int]) -> str:
    return "; ".join(map(str, ids))


def _say_changes(changes: Sequence[Change]) -> None:
    """One line, where there were clusters before and some are other ones now."""
    counts = Counter(change.change for change in changes)
    if set(counts) - {"new", "kept"} or len(counts) > 1:
        text = ", ".join(f"{counts[word]} {word}" for word in CHANGES[::-1] if counts[word])
        say(f"clusters against those before: {text}; see cluster_summary.csv")
