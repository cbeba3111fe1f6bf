"""A small world of drawn images in a tar, with a hierarchy of three levels."""

import io
import json
import tarfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image

from hgld.artifacts import hash_file
from hgld.config import ExportOptions, SourceOptions, StageContext
from hgld.shards import export_shards

GROUPS = {"natural": ["lake", "mountain"], "human-made": ["church", "bridge"]}


def draw(number: int, size: tuple[int, int] = (20, 15), form: str = "JPEG") -> bytes:
    """An image file that differs from every other number's."""
    pixels = np.random.default_rng(number).integers(0, 256, (*size[::-1], 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()


def pixels(image: Image.Image) -> torch.Tensor:
    """A photo as it is stored: rows, columns, channels."""
    return torch.from_numpy(np.asarray(image).copy())


def to_tensor(image: Image.Image) -> torch.Tensor:
    """A photo as a network takes it: channels, rows, columns."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


@dataclass
class World:
    """Images in source/images.tar, and the tables that describe them."""

    folder: Path
    images: pd.DataFrame
    hierarchy: pd.DataFrame
    data: dict[str, bytes] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        return self.folder / "source"

    def context(self, name: str = "state") -> StageContext:
        source = SourceOptions(folder=self.source)
        return StageContext("2026-01-01", self.folder / name, source, self.folder)

    def export(
        self,
        out: str = "shards",
        removals: pd.DataFrame | None = None,
        force: bool = False,
        **options: Any,
    ) -> tuple[Path, pd.DataFrame]:
        """Export with small shards; the folder and what was dropped."""
        chosen = ExportOptions(**{"shard_megabytes": 0.09, **options})
        dropped = export_shards(
            self.source,
            self.images,
            self.hierarchy,
            removals,
            options=chosen,
            context=replace(self.context(f"{out}-state"), force=force),
            out=self.folder / out,
        )
        return self.folder / out, dropped.read()


def make_world(folder: Path, sizes: list[int], **images: Any) -> World:
    """Landmark i of the train space has sizes[i] images; every third image is of the index."""
    (folder / "source").mkdir(parents=True)
    kinds = [(kind, group) for kind, groups in GROUPS.items() for group in groups]
    rows, paths, data = [], [], {}
    with tarfile.open(folder / "source/images.tar", "w") as tar:
        for split in ("train", "index"):
            for landmark, size in enumerate(sizes):
                kind, group = kinds[landmark % len(kinds)]
                path = {"kind": kind, "supercategory": group, "landmark": f"{split}:{landmark}"}
                paths.append((split, landmark, json.dumps(path)))
                for i in range(size if split == "train" else min(size, 2)):
                    image_id = f"{split[0]}{landmark:03d}{i:03d}"
                    data[image_id] = draw(len(data))
                    info = tarfile.TarInfo(f"{image_id}.jpg")
                    info.size = len(data[image_id])
                    offset = tar.offset + 512
                    tar.addfile(info, io.BytesIO(data[image_id]))
                    rows.append((image_id, split, landmark, "images.tar", offset, info.size))
    table = pd.DataFrame(
        rows, columns=["image_id", "split", "landmark_id", "path", "offset", "size_bytes"]
    )
    credit = {
        "author": 'A. \u00c9crivain, "B"',
        "license": "https://creativecommons.org/licenses/by/3.0/",
        "title": "File:T.jpg",
        "url": "https://upload.wikimedia.org/t.jpg",
    }
    hierarchy = pd.DataFrame(paths, columns=["split", "landmark_id", "path"])
    return World(folder, table.assign(**credit), hierarchy, data)


def rot(folder: Path, row: "Mapping[str, Any] | pd.Series[Any]") -> None:
    """Flip a bit of an image, so that its pixels change and nothing else does."""
    path = folder / row["shard"]
    start, size = row["offset"], row["size_bytes"]
    good = path.read_bytes()
    before = np.asarray(Image.open(io.BytesIO(good[start : start + size])))
    for place in range(start + size - 20, start, -1):
        bad = bytearray(good)
        bad[place] ^= 4
        with warnings.catch_warnings(action="error"):
            try:
                after = np.asarray(Image.open(io.BytesIO(bad[start : start + size])))
            except Exception:
                continue
        if after.shape == before.shape and not np.array_equal(before, after):
            path.write_bytes(bad)
            return
    raise AssertionError("no bit changes the pixels alone")


def put_index(folder: Path, rows: pd.DataFrame, group: int | None = None) -> None:
    """Write an index that the manifest vouches for, as somebody may who means harm."""
    rows.to_parquet(folder / "index.parquet", index=False, row_group_size=group)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["index_sha256"] = hash_file(folder / "index.parquet")
    (folder / "manifest.json").write_text(json.dumps(manifest))
