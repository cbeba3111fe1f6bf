import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from hgld.errors import InvalidData
from hgld.shards import Samples, ShardImages, read_image, read_index
from tests.shards.shard_world import World, to_tensor


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


def test_a_folder_may_be_given_as_text(shards: Path, world: World) -> None:
    rows = read_index(str(shards))
    assert ShardImages(str(shards), rows, to_tensor)[3][2] == 3
    assert read_image(str(shards), rows.iloc[3]).size == (20, 15)


def test_a_column_of_names_beside_the_levels_is_no_level(shards: Path) -> None:
    rows = read_index(shards)
    named = rows.assign(level_name="a", level_3_name="b")
    assert np.array_equal(Samples.of_index(named).labels, Samples.of_index(rows).labels)
    assert ShardImages(shards, named, to_tensor).labels.shape == (107, 3)


def test_images_without_classes_are_read_but_make_no_batches(shards: Path) -> None:
    rows = read_index(shards).drop(columns=["level_1", "level_2", "level_3"])
    assert ShardImages(shards, rows, to_tensor)[3][1].shape == (0,)
    with pytest.raises(InvalidData, match="no column 'level_1'"):
        Samples.of_index(rows)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: rows.drop(columns="level_2"), "no column 'level_2'"),
        (lambda rows: rows.drop(columns="shard"), "no column 'shard'"),
        (lambda rows: rows.assign(level_2=np.nan), "'level_2' has no number in 107 of 107 rows"),
        (lambda rows: rows.assign(level_2="lake"), "'level_2' is of (object|str); expected whole"),
    ],
)
def test_rows_that_are_not_those_of_an_index_are_named(
    shards: Path, change: Any, says: str
) -> None:
    rows = change(read_index(shards))
    for read in (Samples.of_index, lambda rows: ShardImages(shards, rows, to_tensor)):
        with pytest.raises(InvalidData, match=says):
            read(rows)


def test_rows_without_runs_are_named(shards: Path) -> None:
    with pytest.raises(InvalidData, match="no column 'run'; expected rows of read_index"):
        Samples.of_index(read_index(shards).drop(columns="run"))
