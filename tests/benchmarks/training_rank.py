"""Memory of a rank that trains, from 16 to 40 million images: index, coverage, plan and batches.

Each size is measured in a process of its own. The photos are one, under many names. Memory is that
which the system cannot drop (RssAnon), so pages of the temporary files do not count. Up to 16.7
million images are held in memory.
"""

import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow as pa
import torch
from PIL import Image

from hgld.config import TrainOptions
from hgld.model.model_folder import ImageConfig
from hgld.train.data import TrainingData
from tests.benchmarks.gallery_growth import SHARD, index_rows, watched, write_index
from tests.benchmarks.meters import Row, from_process, status_kb

SIZES = (16_000_000, 20_000_000, 40_000_000)  # divisible by SHARD
STEPS = 50
OPTIONS = TrainOptions(classes_per_batch=64, images_per_class=4, image_size=32)
CONFIG = ImageConfig(
    backbone="", architecture="", image_size=32, mean=(0.5,) * 3, std=(0.5,) * 3, dim=8,
    interpolation="bicubic", freeze_batch_norm=True, pretrained_sha256="",
)  # fmt: skip


def make_shards(folder: Path, images: int) -> None:
    """Write index, manifest and tars of shards: 20 images a class, 8 in a run."""
    shards = folder / f"shards-{images}"
    shards.mkdir()
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 30, 30)).save(buffer, "JPEG")
    jpeg = buffer.getvalue()
    (folder / "tar").write_bytes((bytes(512) + jpeg.ljust(1536, b"\0")) * SHARD)

    def tables() -> Iterator[pa.Table]:
        for number in range(images // SHARD):
            name = f"train-{number:06}.tar"
            os.link(folder / "tar", shards / name)
            chance = np.random.default_rng(number)
            finest = np.repeat(chance.integers(0, images // 20, SHARD // 8), 8)
            above = (finest * count // (images // 20) for count in (2, 50))
            table = index_rows("train", name, number * SHARD, np.stack([*above, finest], 1))
            changes = {
                "size_bytes": np.full(SHARD, len(jpeg)), "image_crc32": np.full(SHARD, crc32(jpeg)),
                "run": np.arange(SHARD) // 8,
            }  # fmt: skip
            for column, values in changes.items():
                place = table.column_names.index(column)
                table = table.set_column(place, column, pa.array(values))
            yield table

    write_index(shards, tables())


def train(shards: Path) -> float:
    """Read, plan and load as the trainer does; the memory with the last batch."""
    data = TrainingData.read(shards, OPTIONS)
    data.describe_coverage(OPTIONS)
    for batch in data.loader(CONFIG, OPTIONS).load(range(STEPS)):
        held = status_kb("RssAnon") / 1024
        torch.from_numpy(data.labels[batch.planned.rows].astype(np.int64))
    return held


def rows(sizes: tuple[int, ...] = SIZES) -> list[Row]:
    """CPU seconds and memory at each size, and the memory of each further image."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_shards(folder, SHARD)
        for images in sizes:
            make_shards(folder, images)
            found.append(from_process("-m", __name__, folder, images))
    table = list[Row]()
    for images, facts in zip(sizes, found, strict=True):
        most = 1000 if images == sizes[-1] else None
        table.append(Row(f"rank, {images:,} images", facts["cpu_s"], "s CPU"))
        table.append(
            Row(f"rank, {images:,} images: peak memory", facts["peak_mb"], "MB", most=most)
        )
        table.append(Row(f"rank, {images:,} images: memory", facts["held_mb"], "MB"))
    for what, key, most in (("peak memory", "peak_mb", 10), ("memory", "held_mb", 8)):
        each = (found[-1][key] - found[-2][key]) * 2**20 / (sizes[-1] - sizes[-2])
        of = f"{sizes[-2]:,} to {sizes[-1]:,}"
        table.append(Row(f"rank, {of}: {what} of each further image", each, "B", most=most))
    return table


def main() -> None:
    """Print seconds and memory of one size as JSON."""
    folder, images = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    train(folder / f"shards-{SHARD}")  # compiles
    with watched() as peak:
        cpu = time.process_time()
        held = train(folder / f"shards-{images}")
        spent = time.process_time() - cpu
    print(json.dumps({"cpu_s": spent, "peak_mb": max(peak), "held_mb": held}))


if __name__ == "__main__":
    main()
