"""Access to the files of an evaluation: the seeds of its runs, and the unit of the bootstrap."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["bootstrap_unit", "name_classes", "pair_seeds"]


def pair_seeds(
    a: Mapping[str, Mapping[str, Any]], b: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, str]]:
    """Pair the models of two runs by the seed that they were trained with.

    A model that was not trained, or whose seed is not recorded, pairs with all of the other run, as
    do two runs of one model each.

    Args:
        a: model -> facts of ``report.json``.
        b: likewise.

    Returns:
        Pairs of models; none if both have seeds and share none.

    Example:
        >>> pair_seeds({"a": {"seed": 0}, "b": {"seed": 1}}, {"c": {"seed": 1}, "d": {"seed": 2}})
        [('b', 'c')]
        >>> pair_seeds({"a": {"seed": 0}, "b": {"seed": 1}}, {"pretrained": {}})
        [('a', 'pretrained'), ('b', 'pretrained')]
    """
    seeds = [{facts.get("seed"): name for name, facts in side.items()} for side in (a, b)]
    if any(None in side for side in seeds) or len(a) == len(b) == 1:
        return [(one, other) for one in a for other in b]
    return [(name, seeds[1][seed]) for seed, name in seeds[0].items() if seed in seeds[1]]


def bootstrap_unit(protocols: Sequence[Mapping[str, Any]], wanted: str = "auto") -> str:
    """Return "classes" or "queries", the resampling unit for these evaluations.

    "auto" is classes if no model was trained on one of them (open set).

    Example:
        >>> bootstrap_unit([{"classes": {"queries": 24, "trained_on": 0}}])
        'classes'
        >>> bootstrap_unit([{"classes": {"queries": 24, "trained_on": 3}}])
        'queries'
    """
    if wanted != "auto":
        return wanted
    seen = any(protocol["classes"]["trained_on"] for protocol in protocols)
    return "queries" if seen else "classes"


def name_classes(per_query: pd.DataFrame, queries: pd.Index) -> np.ndarray | None:
    """Return the (Q,) finest class of each query; a query without a label is a separate class.

    Args:
        per_query: with the columns image_id and class.
        queries: image ids.

    Returns:
        None if no class is recorded.
    """
    recorded = per_query.drop_duplicates("image_id").set_index("image_id")["class"]
    classes = recorded.loc[queries]
    if not classes.any():
        return None
    return np.array([name or f"query {query}" for query, name in classes.items()])
