"""The vectors that are clustered: of texts, photos or both; values of one ancestor share one."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from hgld.artifacts import Vectors
from hgld.config import ClusterOptions
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.scrape.ancestors import shared_ancestors
from hgld.hierarchy.vector_clusters import means_of


def join_vectors(
    label_vectors: Vectors, image_vectors: Vectors | None, options: ClusterOptions
) -> Vectors:
    """Return the unit vectors of the values that ``cluster.on`` names.

    text         t
    images       p
    text+images  [sqrt(1 - w) t, sqrt(w) p], w = ``image_weight``

    With both, squared distances are the weighted mean of those of texts and of photos. A value
    without photos has the photo vector of the value of nearest text that has one.

    Args:
        label_vectors: t (N, D) of all values.
        image_vectors: p (M, E) of the values with photos; None for text.
        options: on and image_weight.

    Example:
        >>> texts, photos = np.array([[1.0, 0.0], [0.8, 0.6]]), np.array([[0.0, 1.0]])
        >>> join_vectors(Vectors(["cat", "lynx"], texts, {}), Vectors(["cat"], photos, {}),
        ...     ClusterOptions(on="images")).vectors.tolist()
        [[0.0, 1.0], [0.0, 1.0]]
    """
    if image_vectors is None:
        return label_vectors
    texts = np.asarray(label_vectors.vectors, dtype=np.float64)
    place = {key: row for row, key in enumerate(image_vectors.ids)}
    rows = np.flatnonzero([key in place for key in label_vectors.ids])
    nearest = rows[(texts @ texts[rows].T).argmax(axis=1)]
    donors = [
        place.get(key, place[label_vectors.ids[near]])
        for key, near in zip(label_vectors.ids, nearest, strict=True)
    ]
    photos = np.asarray(image_vectors.vectors, dtype=np.float64)[donors]
    made_by = {**label_vectors.made_by, "images": image_vectors.made_by.get("encoder", "")}
    if options.on == "images":
        return Vectors(label_vectors.ids, photos, made_by)
    share = options.image_weight
    both = np.hstack([np.sqrt(1 - share) * texts, np.sqrt(share) * photos])
    return Vectors(label_vectors.ids, both, made_by)


def ancestor_groups(class_ids: Sequence[str], ancestry: pd.DataFrame, most_hops: int) -> np.ndarray:
    """Return the group (N,) of each value, 0..G-1: those with the same nearest shared ancestor.

    The nearest class that is above another value too decides, of several the one above fewest
    values. A class is 0 steps above itself. A value that shares none is alone.

    Args:
        class_ids: of the values; empty for values without one.
        ancestry: item_id and above of each statement.
        most_hops: most steps up.

    Example:
        >>> ancestry = pd.DataFrame({"item_id": ["fox", "wolf", "pie"],
        ...     "above": ["canid", "canid", "dish"]})
        >>> ancestor_groups(["fox", "pie", "wolf", ""], ancestry, 1).tolist()
        [0, 1, 0, 2]
    """
    shared, below = shared_ancestors(class_ids, ancestry, most_hops)
    keys = [
        min((hops, below[ancestor], ancestor) for ancestor, hops in found.items())[2]
        if found
        else f"row {row}"
        for row, found in enumerate(shared)
    ]
    groups, _ = pd.factorize(np.array(keys, dtype=object))
    return groups


def hold_together(
    values: pd.DataFrame, vectors: Vectors, ancestry: pd.DataFrame, most_hops: int
) -> Vectors:
    """Return the vectors with those of each group of values replaced by their mean.

    Args:
        values: class_id and instance_of.
        vectors: of the values.
        ancestry: as for ``ancestor_groups``.
        most_hops: most steps up.
    """
    class_of = dict(zip(value_keys(values), values["class_id"], strict=True))
    groups = ancestor_groups([class_of.get(key, "") for key in vectors.ids], ancestry, most_hops)
    return replace(vectors, vectors=means_of(vectors.vectors, groups)[groups])
