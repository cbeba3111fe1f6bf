import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from hgld.errors import InvalidData
from hgld.shards import ShardImages, read_image, read_index
from tests.shards.shard_world import World


def to_tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


@pytest.fixture
def shards(world: World) -> Path:
    return world.export()[0]


def test_an_item_is_the_image_its_labels_and_its_row(shards: Path, world: World) -> None:
    rows = read_index(shards).query("split == 'train'").reset_index(drop=True)
    dataset = ShardImages(shards, rows, to_tensor)
    image, labels, number = dataset[11]
    source = Image.open(io.BytesIO(world.data[rows["image_id"][11]]))
    assert torch.equal(image, to_tensor(source))
    assert labels.tolist() == rows.loc[11, ["level_1", "level_2", "level_3"]].tolist()
    assert (number, len(dataset)) == (11, 92)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_the_same_whatever_its_workers(shards: Path, workers: int) -> None:
    dataset = ShardImages(shards, read_index(shards), to_tensor)
    batches = [[3, 1, 2], [90, 7, 50]]
    loader = DataLoader(dataset, batch_sampler=batches, num_workers=workers)
    numbers = [number.tolist() for _, _, number in loader]
    assert numbers == batches


def test_a_single_image_is_read_by_its_row(shards: Path, world: World) -> None:
    row = read_index(shards).iloc[5]
    expected = Image.open(io.BytesIO(world.data[row["image_id"]])).convert("RGB")
    assert read_image(shards, row).tobytes() == expected.tobytes()


def test_a_damaged_image_is_named(shards: Path) -> None:
    row = read_index(shards).iloc[5]
    shard = shards / row["shard"]
    data = bytearray(shard.read_bytes())
    data[row["offset"] : row["offset"] + 20] = bytes(20)
    shard.write_bytes(data)
    with pytest.raises(InvalidData, match=rf"{row['shard']}: key {row['key']}"):
        read_image(shards, row)


def test_a_missing_shard_is_named(shards: Path) -> None:
    row = read_index(shards).iloc[5]
    (shards / row["shard"]).unlink()
    with pytest.raises(InvalidData, match=f"{row['shard']}: no such file"):
        read_image(shards, row)
