"""The sheet of clusters: one row for each cluster, to decide many values at once.

Four columns to edit come first (action, into, supercategory, note); the others show the values of
the cluster, how many are decided, and the nearest clusters.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from hgld.artifacts.columns import table_of
from hgld.hierarchy.decisions import short_hash
from hgld.review.suggestions import DROP

__all__ = ["list_clusters", "members_hash"]

LARGEST = 5  # values named for each cluster
ABOVE = "level_"  # columns of the clusters of the levels above


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
    return table.join(above, on="cluster") if len(above.columns) else table


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
    neighbours = [int(i) for i in near.split("; ") if i.isdecimal() and int(i) in names]
    return {
        **dict.fromkeys(("action", "into", "supercategory", "note"), ""),
        "cluster": cluster,
        "cluster_name": names[cluster],
        "values": len(rows),
        **{name: rows[name].sum() for name in ("landmarks", "images")},
        "open": int(rows["waits"].sum()),
        "decided_as": _decided_as(rows),
        "largest": _largest(rows),
        "nearest": "; ".join(f"{i} {names[i]}" for i in neighbours),
        "suggestion": min(suggestions, key=lambda name: (-suggestions[name], name), default=""),
        "evidence": members_hash(rows["key"]),
    }


def _decided_as(rows: pd.DataFrame) -> str:
    """Return the decisions on the cluster's values, the most frequent first."""
    decided = rows[~rows["waits"]]
    words = decided["supercategory"].where(decided["supercategory"] != "", decided["decision"])
    counts = Counter(words.tolist())
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    return "; ".join(f"{word} {counts[word]}" for word in ordered)


def _largest(rows: pd.DataFrame) -> str:
    """Return the cluster's values with the most landmarks, with their number."""
    first = rows.sort_values(["landmarks", "key"], ascending=[False, True]).head(LARGEST)
    pairs = zip(first["instance_of"], first["landmarks"], strict=True)
    return "; ".join(f"{label} ({count})" for label, count in pairs)
