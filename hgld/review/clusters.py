"""The sheet of clusters, one row for each: written, and read back to decide many values at once.

Four columns to edit come first; the others show the values of the cluster, how many are decided,
and the nearest clusters.

    accept      the supercategory for all values of the cluster that are open
    merge       put the values of this cluster into the cluster numbered in ``into``
    dissolve    put each value of this cluster into the nearest other one
    split       cut this cluster into as many as ``into`` says, by k-means on its values

An ``accept`` writes decisions. The other three actions write which values belong together (see
``hgld.hierarchy.cluster``) and change no decision. Several sheets are read as one and must
not contradict each other.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

from hgld.artifacts import Vectors, table_of
from hgld.config import ClusterOptions
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.cluster import vectors_of
from hgld.hierarchy.decisions import short_hash
from hgld.hierarchy.scrape.ancestors import chain_of, is_circular
from hgld.hierarchy.vector_clusters import count_different, find_clusters, nearest_to_mean
from hgld.review.spreadsheet import Sheet, SheetRow
from hgld.review.suggestions import DROP

ACTIONS = ("accept", "merge", "dissolve", "split")
EDITABLE = ("action", "into", "supercategory", "note")
NEEDED = ("cluster", "evidence", *EDITABLE)
RESTARTS = 10
LARGEST = 5  # values named for each cluster
ABOVE = "level_"  # columns of the clusters of the levels above

Fault = tuple[int, str]  # number of the row, message


def list_clusters(sheet: pd.DataFrame, cluster_summary: pd.DataFrame) -> pd.DataFrame:
    """Build the rows of ``review_clusters.csv`` from ``review.csv``: most open images first."""
    near = dict(zip(cluster_summary["cluster"], cluster_summary["nearest"], strict=True))
    here = sheet[sheet["cluster"] >= 0]
    names = dict(zip(here["cluster"], here["cluster_name"], strict=True))
    impact = np.maximum(here["images"], here["landmarks"])
    groups = here.assign(impact=impact, waits=here["status"].isin(["open", "unsure", "conflict"]))
    rows = [
        (int(rows["impact"][rows["waits"]].sum()), i, _row(rows, i, names, str(near.get(i, ""))))
        for i, rows in groups.groupby("cluster")
    ]
    ordered = sorted(rows, key=lambda row: (-row[0], row[1]))
    table = table_of("review_clusters", [row for _, _, row in ordered])
    above = cluster_summary.set_index("cluster").filter(like=ABOVE)
    # a person may have put values into a new cluster, in clusters.csv
    return table.join(above.reindex(table["cluster"], fill_value=""), on="cluster")


def members_hash(keys: Iterable[str]) -> str:
    """Hash the values of a cluster, on which a decision on it is based.

    Example:
        >>> members_hash(["b", "a"]) == members_hash(["a", "b"]) != members_hash(["a"])
        True
    """
    return short_hash("\n".join(sorted(keys)))


def _row(
    rows: pd.DataFrame, cluster: object, names: Mapping[object, str], near: str
) -> dict[str, object]:
    named = rows[~rows["suggestion"].isin(["", DROP])]
    suggestions = Counter[str](dict(named.groupby("suggestion").size()))
    first = rows.sort_values(["landmarks", "key"], ascending=[False, True]).head(LARGEST)
    largest = zip(first["instance_of"], first["landmarks"], strict=True)
    neighbours = [int(i) for i in near.split("; ") if i.isdecimal() and int(i) in names]
    done = rows[~rows["waits"]]
    words = done["supercategory"].where(done["supercategory"] != "", done["decision"])
    decided = sorted(Counter(words.tolist()).items(), key=lambda found: (-found[1], found[0]))
    return {
        **dict.fromkeys(EDITABLE, ""),
        "cluster": cluster,
        "cluster_name": names[cluster],
        "values": len(rows),
        **{name: rows[name].sum() for name in ("landmarks", "images")},
        "open": int(rows["waits"].sum()),
        "decided_as": "; ".join(f"{word} {count}" for word, count in decided),
        "largest": "; ".join(f"{label} ({count})" for label, count in largest),
        "nearest": "; ".join(f"{i} {names[i]}" for i in neighbours),
        "suggestion": min(suggestions, key=lambda name: (-suggestions[name], name), default=""),
        "evidence": members_hash(rows["key"]),
    }


@dataclass(frozen=True)
class Bulk:
    """Effect of the sheets of clusters on values.

    Attributes:
        accepted: value key -> supercategory and reason, for open values.
        edits: rows of ``cluster_edits``, without who and when.
    """

    accepted: Mapping[str, tuple[str, str]]
    edits: Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class _Act:
    """A valid row: the action on a cluster; ``into`` is a cluster or a number of parts."""

    action: str
    into: int
    supercategory: str
    note: str
    sheet: str = field(compare=False)
    row: SheetRow = field(compare=False)


class _Clusters:
    """The current clusters: keys and vectors of their values."""

    def __init__(self, clusters: pd.DataFrame, label_vectors: Vectors) -> None:
        ordered = clusters.assign(key=value_keys(clusters)).sort_values("key")
        self.keys = ordered["key"].tolist()
        self.vectors = vectors_of(self.keys, label_vectors)
        labels = ordered["cluster"].to_numpy()
        self.rows = {int(i): np.flatnonzero(labels == i) for i in np.unique(labels)}
        self.names = dict(zip(ordered["cluster"], ordered["cluster_name"], strict=True))

    def keys_of(self, cluster: int) -> list[str]:
        return [self.keys[row] for row in self.rows[cluster]]

    def medoid(self, rows: "np.ndarray | Sequence[int]") -> str:
        return str(self.keys[nearest_to_mean(self.vectors, rows)])


def read_bulk(
    sheets: Sequence[Sheet],
    clusters: pd.DataFrame,
    label_vectors: Vectors,
    kinds: Mapping[str, str],
) -> tuple[Bulk, dict[str, list[Fault]]]:
    """Return the joint effect of the sheets and their faults by row; with faults, no effect."""
    here = _Clusters(clusters, label_vectors)
    acts: dict[int, _Act] = {}
    faults: dict[str, list[Fault]] = {}
    for sheet in sheets:
        sheet.require(NEEDED)
        numbers: dict[int, int] = {}
        of_sheet = faults[sheet.name] = list[Fault]()
        for row in sheet.rows:
            cluster, act = _whole(row["cluster"]), _read_act(sheet, row, here, kinds)
            if cluster in numbers and act:
                expected = f"each cluster once; it stands in row {numbers[cluster]} too"
                act = row.fault("cluster", expected)
            numbers.setdefault(cluster, row.number)
            if isinstance(act, str):
                of_sheet.append((row.number, act))
            elif act and act != (first := acts.setdefault(cluster, act)):  # of another sheet
                column = next(c for c in EDITABLE if getattr(act, c) != getattr(first, c))
                there = f"what row {first.row.number} of {first.sheet} says of this cluster"
                expected = f"{there}, {first.row[column]!r}; apply one of them only"
                of_sheet.append((row.number, row.fault(column, expected)))
    for act, fault in _conflicts(acts, here):
        faults[act.sheet].append((act.row.number, fault))
    if any(faults.values()):
        return Bulk({}, []), faults
    edits = [_edits(cluster, act, acts, here) for cluster, act in sorted(acts.items())]
    return Bulk(_accepted(acts, here), [row for rows in edits for row in rows]), faults


def _read_act(
    sheet: Sheet, row: SheetRow, here: _Clusters, kinds: Mapping[str, str]
) -> "_Act | str | None":
    """Return the action of a row or its fault; None for a row without action."""
    words = row["action"].casefold().split()
    action = words[0] if words else ""
    if not action:
        filled = [name for name in EDITABLE[1:] if row[name]]
        expected = f"{', '.join(ACTIONS)}, since {' and '.join(filled)} is filled in"
        return row.fault("action", expected) if filled else None
    if action not in ACTIONS:
        return row.fault("action", f"one of {', '.join(ACTIONS)}", ACTIONS)
    spoilt = row.damaged(EDITABLE)
    if spoilt:
        return spoilt[0]
    cluster = _whole(row["cluster"])
    if cluster not in here.rows:
        return row.fault("cluster", "the number of a cluster in clusters.csv")
    if row["evidence"] != members_hash(here.keys_of(cluster)):
        now = f"{members_hash(here.keys_of(cluster))!r}; the cluster's values are not those that "
        return row.fault("evidence", now + "the sheet was written for: write it again")
    into = _whole(row["into"])
    if row["into"] and action in ("accept", "dissolve"):
        return row.fault("into", f"nothing: {action} needs none")
    if row["supercategory"] and action != "accept":
        return row.fault("supercategory", f"nothing: only accept takes one, not {action}")
    if action == "merge" and (into not in here.rows or into == cluster):
        return row.fault("into", "the number of another cluster")
    if action == "split":
        most = count_different(here.vectors[here.rows[cluster]])
        if not 2 <= into <= most:
            return row.fault("into", f"into how many clusters, 2 to {most}")
    names = {name.casefold(): name for name in kinds}
    name = names.get(row["supercategory"].casefold(), "")
    if action == "accept" and not name:
        return row.fault("supercategory", "a name that is in taxonomy.csv", names)
    return _Act(action, into, name, row["note"], sheet.name, row)


def _whole(text: str) -> int:
    """Return a non-negative integer from digits only, -1 for any other text."""
    text = text.removesuffix(".0").removesuffix(",0")
    return int(text) if text.isdecimal() else -1


def _conflicts(acts: Mapping[int, _Act], here: _Clusters) -> Iterator[tuple[_Act, str]]:
    """Yield conflicts: merges into a removed cluster, or no cluster left to dissolve into."""
    for cluster, act in acts.items():
        if act.action == "merge" and _target(cluster, acts) is None:
            yield act, act.row.fault("into", "a cluster that is not merged into this one")
        target = acts.get(act.into)
        if act.action == "merge" and target and target.action in ("dissolve", "split"):
            there = "" if target.sheet == act.sheet else f" of {target.sheet}"
            stays = f"a cluster that stays; row {target.row.number}{there} says {target.action}"
            yield act, act.row.fault("into", stays)
    dissolved = [act for act in acts.values() if act.action == "dissolve"]
    if dissolved and not _staying(acts, here):
        expected = "at least one cluster that stays as it is"
        yield dissolved[0], dissolved[0].row.fault("action", expected)


def _target(cluster: int, acts: Mapping[int, _Act]) -> int | None:
    """Return the final cluster of a chain of merges; None for a cycle."""
    merged = {one: act.into for one, act in acts.items() if act.action == "merge"}
    chain = chain_of(cluster, merged)
    return None if is_circular(chain) else chain[-1]


def _staying(acts: Mapping[int, _Act], here: _Clusters) -> list[int]:
    """Return clusters that are neither dissolved nor split nor merged."""
    return [c for c in here.rows if c not in acts or acts[c].action == "accept"]


def _accepted(acts: Mapping[int, _Act], here: _Clusters) -> dict[str, tuple[str, str]]:
    """Return the accepted supercategory of each value; merged clusters follow their target."""
    accepted: dict[str, tuple[str, str]] = {}
    for cluster in here.rows:
        target = _target(cluster, acts)
        act = acts.get(-1 if target is None else target)
        if target is not None and act and act.action == "accept":
            name = here.names[target]
            why = act.note or f"accepted with cluster {target} ({name})"
            accepted |= dict.fromkeys(here.keys_of(cluster), (act.supercategory, why))
    return accepted


def _edits(
    cluster: int, act: _Act, acts: Mapping[int, _Act], here: _Clusters
) -> list[dict[str, str]]:
    """Return which value belongs with which, for all values of edited clusters."""
    rows = here.rows[cluster]
    if act.action == "merge":
        anchors = [here.medoid(here.rows[act.into])] * len(rows)
    elif act.action == "split":
        options = ClusterOptions(method="k-means", seed=0, restarts=RESTARTS)
        parts = find_clusters(here.vectors[rows], act.into, options).labels
        medoids = [here.medoid(rows[parts == part]) for part in range(act.into)]
        anchors = [medoids[part] for part in parts]
    elif act.action == "dissolve":
        staying = _staying(acts, here)
        centres = np.array([here.vectors[here.rows[c]].mean(axis=0) for c in staying])
        nearest_of = cdist(here.vectors[rows], centres).argmin(axis=1)
        nearest = {i: here.medoid(here.rows[staying[i]]) for i in {*nearest_of}}
        anchors = [nearest[i] for i in nearest_of]
    else:
        return []
    pairs = zip(here.keys_of(cluster), anchors, strict=True)
    return [{"key": key, "with_key": anchor, "action": act.action} for key, anchor in pairs]
