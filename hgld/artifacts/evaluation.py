"""Access to the files of an evaluation: runs and their seeds, and the unit of the bootstrap.

``report.json`` and ``per_query.parquet`` of older evaluations lack runs and classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["bootstrap_unit", "list_runs", "name_classes", "pair_seeds"]


def list_runs(evaluation: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return run -> names of its models, one for each seed, their mean, and std if several.

    Example:
        >>> list_runs({"models": {"a": {"mean": {"H-AP": 0.5}}}})
        {'a': {'models': ['a'], 'mean': {'H-AP': 0.5}}}
    """
    models = evaluation["models"]
    alone = {name: {"models": [name], "mean": facts["mean"]} for name, facts in models.items()}
    runs: dict[str, dict[str, Any]] = evaluation.get("runs") or alone
    return runs


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

    "auto" is classes if they are recorded and no model was trained on one of them (open set).

    Example:
        >>> bootstrap_unit([{"classes": {"queries": 24, "trained_on": 0}}])
        'classes'
        >>> bootstrap_unit([{"classes": {"queries": 24, "trained_on": 3}}])
        'queries'
    """
    if wanted != "auto":
        return wanted
    counts = [protocol.get("classes") for protocol in protocols]
    unseen = all(count is not None and not count["trained_on"] for count in counts)
    return "classes" if unseen else "queries"


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
