"""A small finished run, made by hand: real tar and JPEGs, rankings whose values are plain to see.

Five landmarks of three supercategories and two kinds; two photos of each in the split evaluation.
"""

import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image

from hgld.artifacts import hash_file
from hgld.config import SourceOptions, StageContext
from hgld.ranking.curves import CurveValues
from hgld.ranking.levels import count_levels

LEVELS = ("kind", "supercategory", "landmark")
PLACES = {  # landmark_id -> classes above it
    1: ("human-made", "church"),
    2: ("human-made", "church"),
    3: ("human-made", "bridge"),
    4: ("natural", "lake"),
    5: ("natural", "lake"),
}
METRICS = ("H-AP", "AP:kind", "AP:supercategory", "AP:landmark")
WEIGHTS = {"good": "0" * 64, "plain": "1" * 64}  # their SHA-256
SMALL = (  # settings of pipelines/quickstart.toml, for the smallest run that has all stages
    "source.toy={landmarks=12, images=4, size=48}",
    "cluster.clusters=4",
    "train.image_size=32",
    "train.classes_per_batch=3",
    "train.images_per_class=2",
    "train.checkpoint_steps=1",
    "train.workers=0",
    "evaluate.workers=0",
    "train.runs={happier={steps=2, loss='HAPPIER'}}",
    "report.vector_figures=[]",
)
CC = "https://creativecommons.org/licenses/by-sa/3.0/"


@dataclass
class MadeRun:
    """What the stages before report and publish have left."""

    folder: Path
    levels: tuple[str, ...]
    index: pd.DataFrame
    hierarchy: pd.DataFrame
    evaluation: dict[str, Any]
    per_query: pd.DataFrame

    @property
    def shards(self) -> Path:
        return self.folder / "shards"

    @property
    def models(self) -> Path:
        return self.folder / "models"

    @property
    def ranked_levels(self) -> Path:
        return self.folder / "ranked_levels"

    @property
    def landmarks(self) -> pd.DataFrame:
        names = [f"Landmark {number}" for number in PLACES]
        return pd.DataFrame({"split": "train", "landmark_id": list(PLACES), "name": names})

    @property
    def report_inputs(self) -> tuple[Any, ...]:
        return (
            self.hierarchy,
            self.shards,
            self.models,
            self.evaluation,
            self.per_query,
            self.ranked_levels,
            self.landmarks,
        )

    def write_index(self) -> None:
        self.index.to_parquet(self.shards / "index.parquet", index=False)
        _write_manifest(self.shards, self.levels, self.index)


def make_run(folder: Path, levels: Sequence[str] = LEVELS) -> MadeRun:
    """Write the folders and return the tables; ``levels`` are the finest of the three or all."""
    for name in ("shards", "models", "ranked_levels"):
        (folder / name).mkdir(parents=True)
    depth = len(levels)
    paths = {i: (*above, f"train:{i}")[-depth:] for i, above in PLACES.items()}
    index = _write_shard(folder / "shards", paths, depth)
    hierarchy = pd.DataFrame(
        {
            "split": "train",
            "landmark_id": list(paths),
            "path": [json.dumps(dict(zip(levels, p, strict=True))) for p in paths.values()],
        }
    )
    _write_manifest(folder / "shards", levels, index)
    _write_ranking(folder / "ranked_levels", "good", index, depth)
    _write_ranking(folder / "ranked_levels", "plain", index, depth)
    _write_losses(folder / "models")
    means = {"good": (0.75, 0.9, 0.5, 0.25), "plain": (0.5, 0.9, 0.625, None)}
    models = {name: _model(name, dict(zip(METRICS, m, strict=True))) for name, m in means.items()}
    evaluation = {
        "protocol": {
            "query": "evaluation",
            "gallery": "evaluation",
            "queries": len(index),
            "gallery_images": len(index),
            "levels": list(levels),
            "classes": {"queries": len(paths), "trained_on": len(paths)},
        },
        "metrics": list(METRICS),
        "models": models,
        "runs": {name: {"models": [name], "mean": m["mean"]} for name, m in models.items()},
    }
    values = np.linspace(0.05, 0.95, len(index))  # the later the image, the better its ranking
    columns = {"image_id": index["image_id"], "class": index["landmark_id"].astype(str)}
    per_query = pd.DataFrame({"model": "good", **columns, "metric": "H-AP", "value": values})
    return MadeRun(folder, tuple(levels), index, hierarchy, evaluation, per_query)


def context(folder: Path, kind: Any = "gldv2") -> StageContext:
    return StageContext("2026-01-01", folder / "state", SourceOptions(kind=kind), folder)


def _model(name: str, mean: dict[str, float | None]) -> dict[str, Any]:
    trained = name == "good"
    return {
        "mean": mean,
        "skipped": {"AP:landmark": 0 if trained else 10},
        "inverted": 7,
        "loss": "HAPPIER" if trained else "pretrained",
        "steps": 3 if trained else 0,
        "backbone": "test_resnet",
        "weights_sha256": WEIGHTS[name],
    }


def _write_shard(folder: Path, paths: dict[int, tuple[str, ...]], depth: int) -> pd.DataFrame:
    """Two photos a landmark, each of its own colour, in one tar."""
    names = [sorted({path[: k + 1] for path in paths.values()}) for k in range(depth)]
    rows = []
    with tarfile.open(folder / "evaluation-000000.tar", "w") as tar:
        for number in range(10):
            landmark = 1 + number // 2
            buffer = io.BytesIO()
            colour = (25 * number, 200 - 15 * number, 90)
            Image.new("RGB", (48, 32), colour).save(buffer, "JPEG")
            info = tarfile.TarInfo(f"evaluation-{number:016x}.jpg")
            info.size = len(buffer.getvalue())
            start = tar.offset
            tar.addfile(info, io.BytesIO(buffer.getvalue()))
            path = paths[landmark]
            rows.append(
                {
                    "key": f"evaluation-{number:016x}",
                    "image_id": f"{number:016x}",
                    "split": "evaluation",
                    "landmark_id": landmark,
                    "shard": "evaluation-000000.tar",
                    "offset": start + tarfile.BLOCKSIZE,
                    "size_bytes": info.size,
                    "json_offset": 0,
                    "json_size": 0,
                    "extent_start": start,
                    "extent_bytes": tar.offset - start,
                    "crc32": 0,
                    "run": number // 2,
                    "sha256": "0" * 64,
                    "width": 48,
                    "height": 32,
                    "author": f"Author {number}",
                    "license": CC,
                    "title": f"File:Photo {number}.jpg",
                    "url": f"https://commons.wikimedia.org/wiki/File:{number}.jpg",
                    **{f"level_{k + 1}": names[k].index(path[: k + 1]) for k in range(depth)},
                }
            )
    index = pd.DataFrame(rows)
    index.to_parquet(folder / "index.parquet", index=False)
    index[["key", "author", "license", "title", "url"]].to_csv(
        folder / "attribution.csv", index=False, lineterminator="\n"
    )
    return index


def _write_manifest(folder: Path, levels: Sequence[str], index: pd.DataFrame) -> None:
    shards = [
        {
            "file": file,
            "split": rows["split"].iloc[0],
            "sha256": hash_file(folder / str(file)),
            "bytes": (folder / str(file)).stat().st_size,
            "samples": len(rows),
            "runs": rows["run"].nunique(),
        }
        for file, rows in index.groupby("shard")
    ]
    manifest = {
        "levels": list(levels),
        "splits": {
            split: {
                "samples": len(rows),
                "classes": rows["landmark_id"].nunique(),
                "shards": rows["shard"].nunique(),
            }
            for split, rows in index.groupby("split")
        },
        "shards": shards,
        "options": {},
        "labels_sha256": "0" * 64,
        "index_sha256": hash_file(folder / "index.parquet"),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def _write_ranking(folder: Path, name: str, index: pd.DataFrame, depth: int) -> None:
    """Every query finds the images in the order of the index, and itself, marked -1, last."""
    labels = index[[f"level_{k + 1}" for k in range(depth)]].to_numpy()
    same = labels[:, None] == labels[None]  # (Q, G, L)
    levels = np.cumprod(same, axis=2).sum(axis=2).astype(np.int8)
    np.fill_diagonal(levels, -1)
    ids = index["image_id"].to_numpy(dtype=str)
    others = [[i for i in range(len(ids)) if i != query] for query in range(len(ids))]
    order = np.array([[*found, query] for query, found in enumerate(others)], np.int32)
    levels = np.take_along_axis(levels, order, axis=1)
    classes = np.unique(labels, axis=0)
    angles = np.arange(len(classes)) / len(classes)
    means = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    arrays = {"levels": levels, "query_ids": ids, "order": order, "gallery_ids": ids}
    curves = CurveValues.of(levels[:, :-1], depth)
    counts = count_levels(torch.from_numpy(levels), depth).numpy()
    more = {"classes": classes, "class_means": means, "counts": counts}
    more |= {f"curve_{key}": values for key, values in vars(curves).items()}
    np.savez(folder / f"{name}.npz", **arrays, **more)


def _write_losses(folder: Path) -> None:
    (folder / "runs.json").write_text(json.dumps({"runs": [*WEIGHTS]}))
    for name, digest in WEIGHTS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps({"sha256": digest}))
    lines = [json.dumps({"step": step, "loss": 1.0 / step}) for step in (1, 2, 3)]
    (folder / "good" / "metrics.jsonl").write_text("\n".join(lines) + "\n")
