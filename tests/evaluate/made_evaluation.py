"""A finished evaluation written by hand: report.json, per_query.parquet, ranked_levels/."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hgld.artifacts import ARTIFACTS
from hgld.config import EvaluateOptions
from hgld.evaluate.ranking import measure_and_write
from hgld.evaluate.sides import Side

LEVELS = ("kind", "supercategory", "landmark")


def write_evaluation(
    folder: Path,
    models: Mapping[str, Mapping[str, Sequence[float]]],
    ids: Sequence[str],
    *,
    levels: Sequence[str] = LEVELS,
    classes: Mapping[str, str] | None = None,
    seeds: Mapping[str, Mapping[int, str]] | None = None,
    trained_on: int = 0,
) -> Path:
    """Values of each model, metric and query; rankings where ``write_levels`` makes them.

    Args:
        folder: gets the files.
        models: model -> metric -> values of the queries.
        ids: of the queries.
        levels: names.
        classes: class of each query; default: each its own.
        seeds: run -> training seed -> its model.
        trained_on: classes of the queries that a model was trained on.
    """
    class_of = classes or dict(zip(ids, ids, strict=True))
    rows = [
        {
            "model": model,
            "image_id": image_id,
            "class": class_of[image_id],
            "metric": metric,
            "value": value,
        }
        for model, metrics in models.items()
        for metric, values in metrics.items()
        for image_id, value in zip(ids, values, strict=True)
    ]
    table = pd.DataFrame(rows).dropna(subset="value")
    means = table.groupby(["model", "metric"])["value"].mean()
    metrics = list(next(iter(models.values())))
    report: dict[str, Any] = {
        "protocol": {
            "name": "query-gallery",
            "query": "test",
            "gallery": "index",
            "queries": len(ids),
            "gallery_images": 4,
            "levels": list(levels),
            "classes": {"queries": len(set(class_of.values())), "trained_on": trained_on},
        },
        "metrics": metrics,
        "models": {
            model: {"mean": {m: means.get((model, m)) for m in metrics}} for model in models
        },
    }
    found = report["models"]
    runs = {name: {"models": [name], "mean": facts["mean"]} for name, facts in found.items()}
    for run, own in (seeds or {}).items():
        for seed, model in own.items():
            del runs[model]
            found[model] |= {"steps": 1, "seed": seed}
        table_of = table[table["model"].isin(list(own.values()))]
        mean = table_of.groupby("metric")["value"].mean()
        runs[run] = {"models": list(own.values()), "mean": {m: mean.get(m) for m in metrics}}
    report["runs"] = runs
    for name, value in (("evaluation", report), ("per_query", table)):
        artifact = ARTIFACTS[name]
        artifact.write(value, folder / artifact.file)  # type: ignore[union-attr]
    return folder


def write_levels(folder: Path, model: str, ids: Sequence[str], first: Sequence[int]) -> None:
    """The ranking of a model in which each query's first image shares the level given."""
    labels = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]])  # levels 3, 2, 1, 0
    gallery = np.eye(4, dtype=np.float32)
    sides = [_side("test", ids, labels[[0] * len(ids)]), _side("index", list("wxyz"), labels)]
    vectors = {"test": gallery[[3 - level for level in first]], "index": gallery}
    path = folder / "ranked_levels" / f"{model}.npz"
    measure_and_write(path, vectors, *sides, ["AP"], "abc", EvaluateOptions(device="cpu"))


def _side(split: str, ids: Sequence[str], labels: np.ndarray) -> Side:
    return Side(split, [pd.DataFrame({"image_id": ids})], labels, Path(), {})
