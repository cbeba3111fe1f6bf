"""Shards of a small made world: seven landmarks with three levels, a few flat photos each.

A photo is one colour of its landmark with noise on it, so that even a small untrained network can
tell landmarks apart, and two landmarks of a supercategory look alike.
"""

import json
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image

from hgld.config import ExportOptions, SourceOptions, StageContext, TrainOptions
from hgld.model.model_folder import ImageConfig
from hgld.shards.index import read_index
from hgld.shards.write import export_shards
from hgld.train.data import TrainingData
from hgld.train.ranks import ALONE, Ranks

PLACES = {  # (space, landmark_id): kind, supercategory, colour
    ("train", 1): ("human-made", "church", (210, 60, 60)),
    ("train", 2): ("human-made", "church", (210, 60, 110)),
    ("train", 3): ("human-made", "bridge", (200, 150, 40)),
    ("train", 4): ("natural", "lake", (40, 90, 200)),
    ("train", 5): ("natural", "lake", (40, 130, 200)),
    ("train", 6): ("natural", "mountain", (70, 180, 70)),
    ("index", 1): ("natural", "lake", (40, 110, 220)),
    ("index", 2): ("human-made", "church", (220, 50, 90)),
    ("index", 3): ("human-made", "castle", (130, 130, 130)),
}
HIERARCHY = pd.DataFrame(
    [
        {
            "split": space,
            "landmark_id": number,
            "path": json.dumps(
                {"kind": kind, "supercategory": group, "landmark": f"{space}:{number}"}
            ),
        }
        for (space, number), (kind, group, _) in PLACES.items()
    ]
)
HELD_OUT = (5, 6)  # train landmarks of the split evaluation
SIDE = 40


def make_context(folder: Path) -> StageContext:
    """What a stage is told of its run; ``folder`` keeps its unfinished work."""
    return StageContext("2026-11-21", folder / "state", SourceOptions(folder=folder), folder)


def make_shards(folder: Path, images: int = 4) -> Path:
    """Write photos and export them; the folder of shards."""
    rows = [
        _draw(folder / "source", split, place, number)
        for place in PLACES
        for split in _splits(place)
        for number in range(images if split != "test" else 1)
    ]
    options = ExportOptions(shard_megabytes=0.02)
    context = make_context(folder / "export")
    out = folder / "shards"
    export_shards(
        folder / "source", pd.DataFrame(rows), HIERARCHY, options=options, context=context, out=out
    )
    return out


def harm(shards: Path, row: int) -> "pd.Series[Any]":
    """Make an image of the split train undecodable; its row of the index."""
    index = read_index(shards)
    sample = index[index["split"] == "train"].iloc[row]
    with (shards / sample["shard"]).open("r+b") as file:
        file.seek(sample["offset"])
        file.write(bytes(30))
    return sample


def small_options(**changes: object) -> TrainOptions:
    """A trainer that takes a tenth of a second a step."""
    small = TrainOptions(
        backbone="test_resnet",
        pretrained=False,
        dim=8,
        image_size=32,
        classes_per_batch=3,
        images_per_class=2,
        device="cpu",
    )
    return small.model_copy(update=changes)


def feed_batches(
    data: TrainingData,
    config: ImageConfig,
    options: TrainOptions,
    steps: Sequence[int],
    ranks: Ranks = ALONE,
) -> Generator[tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]]:
    """What the trainer gets at each step: images, labels, rows, epoch."""
    labels = torch.from_numpy(data.labels)
    with closing(data.loader(config, options, ranks).load(steps)) as batches:
        for batch in batches:
            rows = torch.from_numpy(batch.planned.rows)
            yield batch.images, labels[rows], rows, batch.planned.epoch


def visible(folder: Path) -> dict[str, bytes]:
    """The files of a folder that a person sees, such as a trained run's, by name."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".")}


def _splits(place: tuple[str, int]) -> tuple[str, ...]:
    space, number = place
    if space == "index":
        return ("index", "test") if number != 3 else ("test",)
    return ("evaluation",) if number in HELD_OUT else ("train",)


def _draw(source: Path, split: str, place: tuple[str, int], number: int) -> dict[str, object]:
    random = np.random.default_rng([*split.encode(), place[1], number])
    noise = random.normal(0, 12, (SIDE, SIDE, 3))
    pixels = np.clip(np.array(PLACES[place][2]) + noise, 0, 255).astype(np.uint8)
    image_id = f"{split[:2]}{place[1]}{number}"
    path = source / f"{image_id}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, quality=95)
    return {
        "image_id": image_id,
        "split": split,
        "landmark_id": place[1],
        "path": path.name,
        "offset": 0,
        "size_bytes": path.stat().st_size,
        "license": "CC0",
        **dict.fromkeys(("author", "title", "url"), "unknown"),
    }
