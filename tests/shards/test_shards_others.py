"""Readers of other houses read our shards: HF datasets; webdataset and tar have tests beside."""

import io
import os
from pathlib import Path

import pytest
from PIL import Image

from hgld.shards import read_index
from tests.shards.shard_world import World

datasets = pytest.importorskip("datasets") if not os.environ.get("CI") else __import__("datasets")
pytestmark = pytest.mark.filterwarnings("ignore")  # datasets' own


def test_hf_datasets_reads_every_sample(world: World, tmp_path: Path) -> None:
    folder, _ = world.export()
    files = sorted(str(shard) for shard in folder.glob("train-*.tar"))
    found = datasets.load_dataset(
        "webdataset", data_files={"train": files}, split="train", cache_dir=str(tmp_path / "hf")
    )
    index = read_index(folder).query("split == 'train'")
    assert found["__key__"] == index["key"].tolist()
    assert [int(label) for label in found["cls"]] == index["level_3"].tolist()
    first = found[0]
    expected = Image.open(io.BytesIO(world.data[first["json"]["image_id"]])).convert("RGB")
    assert first["jpg"].convert("RGB").tobytes() == expected.tobytes()
    assert first["json"]["license"] == "https://creativecommons.org/licenses/by/3.0/"


def test_hf_datasets_streams_them(world: World) -> None:
    folder, _ = world.export()
    stream = datasets.load_dataset(
        "webdataset",
        data_files={"train": str(folder / "train-*.tar")},
        split="train",
        streaming=True,
    )
    assert [sample["__key__"] for sample in stream] == (
        read_index(folder).query("split == 'train'")["key"].tolist()
    )
