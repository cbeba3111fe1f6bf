"""Measures every model on the same queries and gallery, exactly."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from hgld.artifacts import Json
from hgld.config import EvaluateOptions, StageContext
from hgld.errors import MissingInput, UsageError
from hgld.evaluate.embeddings import Side, Store
from hgld.evaluate.ranking import write_ranking
from hgld.ranking.metrics import Result, evaluate, parse
from hgld.shards.index import read_index, read_manifest

__all__ = ["evaluate_models"]


def evaluate_models(
    shards: Path, models: Path, *, options: EvaluateOptions, context: StageContext, out: Path
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Measure every model on the same queries and gallery.

    Where query and gallery are the same split, every image queries all others (open set). A query
    without any relevant image has no value of a metric: it is left out of the mean and counted.

    Args:
        shards: folder of the images and their labels.
        models: a folder a model.
        options: splits, metrics, device.
        context: its state folder keeps the embeddings.
        out: gets the ranking of each model.

    Returns:
        The report (protocol, and the means of each model), and one row for each model, query and
        metric that has a value.

    Raises:
        MissingInput: there is no model.
        UsageError: an unknown metric, or a split without samples.
    """
    manifest, index = read_manifest(shards), read_index(shards)
    query = Side.read(index, options.query, "query")
    gallery = Side.read(index, options.gallery, "gallery")
    names = _model_names(models)
    level_names = [str(name) for name in manifest["levels"]]
    _require_metrics(options.metrics, level_names)
    hashes = {str(shard["file"]): str(shard["sha256"]) for shard in manifest["shards"]}
    store = Store(shards, context.state, hashes, options)
    store.keep_only([models / name for name in names])

    found = {}
    tables = []
    _remove_others(out, names)
    for name in names:
        vectors = store.embed(models / name, [query, gallery])
        result = _measure(vectors, query, gallery, options, level_names)
        found[name] = _summarise(models / name, result)
        tables.append(_per_query(name, query, result))
        write_ranking(out / f"{name}.npz", vectors, query, gallery)
    report = {
        "protocol": {
            "query": query.split,
            "gallery": gallery.split,
            "queries": len(query.rows),
            "gallery_images": len(gallery.rows),
            "levels": level_names,
        },
        "metrics": list(options.metrics),
        "models": found,
    }
    return report, pd.concat(tables, ignore_index=True)


def _measure(
    vectors: Mapping[str, np.ndarray],
    query: Side,
    gallery: Side,
    options: EvaluateOptions,
    level_names: list[str],
) -> Result:
    return evaluate(
        torch.from_numpy(vectors[query.split]),
        torch.from_numpy(query.labels),
        torch.from_numpy(vectors[gallery.split]),
        torch.from_numpy(gallery.labels),
        options.metrics,
        level_names=level_names,
        exclude_self=query.split == gallery.split,
    )


def _summarise(run: Path, result: Result) -> dict[str, Any]:
    """What the report says of a model; a mean over no query at all is null."""
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    means = {name: float(value) for name, value in result.mean().items()}
    return {
        "mean": {name: None if math.isnan(value) else value for name, value in means.items()},
        "skipped": {name: int(count) for name, count in result.skipped.items()},
        "loss": config["loss"],
        "steps": config["steps"],
        "backbone": config["backbone"],
        "weights_sha256": config["sha256"],
    }


def _per_query(model: str, query: Side, result: Result) -> pd.DataFrame:
    """One row for each query and metric that has a value."""
    tables = [
        pd.DataFrame(
            {
                "model": model,
                "image_id": query.image_ids,
                "metric": name,
                "value": np.asarray(values, np.float64),
            }
        )
        for name, values in result.per_query.items()
    ]
    return pd.concat(tables, ignore_index=True).dropna(subset="value")


def _model_names(models: Path) -> list[str]:
    """Names of the trained runs, in the order of the pipeline file."""
    path = models / "runs.json"
    if not path.is_file():
        raise MissingInput(f"{models}: holds no model; run train first")
    return [str(name) for name in Json("runs.json").read(path)["runs"]]


def _require_metrics(names: tuple[str, ...], level_names: list[str]) -> None:
    """Refuse a wrong name before anything is embedded."""
    if not names:
        raise UsageError("evaluate.metrics is empty; name at least one, e.g. H-AP")
    for name in names:
        try:
            parse(name).at_level(tuple(level_names))
        except UsageError as error:
            raise UsageError(f"evaluate.metrics: {error}") from None


def _remove_others(out: Path, names: list[str]) -> None:
    """Make the folder; rankings of models that are no longer there go."""
    out.mkdir(parents=True, exist_ok=True)
    for path in out.iterdir():
        if path.name not in {f"{name}.npz" for name in names}:
            path.unlink()
