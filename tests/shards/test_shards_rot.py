"""A byte of a photo that changed on the disk, so that it still decodes, to another picture."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch

from hgld.errors import InvalidData
from hgld.shards import BatchLoader, BatchOptions, ImageLoader, ShardImages, read_sample
from hgld.shards.files import read_image
from hgld.shards.shard import copy_samples
from tests.shards.shard_world import pixels, rot

OPTIONS = BatchOptions(4, 2, order="shards")


READERS: dict[str, Callable[[Path, pd.DataFrame, int], object]] = {
    "item": lambda shards, rows, n: ShardImages(shards, rows, pixels)[n],
    "plain": lambda shards, rows, n: list(ImageLoader(shards, rows, pixels, batch_size=1)),
    "image": lambda shards, rows, n: read_image(shards, rows.iloc[n]),
    "cat": lambda shards, rows, n: read_sample(shards, rows["key"][n]),
    "copy": lambda shards, rows, n: copy_samples(shards, rows, shards / "copy"),
    "indexed": lambda shards, rows, n: list(BatchLoader(shards, rows, pixels, OPTIONS, seed=0)),
    "stream": lambda shards, rows, n: list(
        BatchLoader(shards, rows, pixels, OPTIONS, seed=0, reader="stream")
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_names_the_image_whose_bytes_changed(
    shards: Path, rows: pd.DataFrame, reader: str
) -> None:
    number = int(next(iter(BatchLoader(shards, rows, pixels, OPTIONS, seed=0)))[2][3])
    rot(shards, rows.iloc[number])
    shard, key = rows["shard"][number], rows["key"][number]
    says = "changed .*damaged or was replaced since its index was read"
    with pytest.raises(InvalidData, match=rf"{shard}: key {key}: .*{says}"):
        READERS[reader](shards, rows, number)


@pytest.mark.parametrize("reader", ["indexed", "stream"])
def test_within_the_budget_another_image_takes_the_place_of_a_changed_one(
    shards: Path, rows: pd.DataFrame, reader: str
) -> None:
    number = int(next(iter(BatchLoader(shards, rows, pixels, OPTIONS, seed=0)))[2][3])
    rot(shards, rows.iloc[number])
    loader = BatchLoader(
        *(shards, rows, pixels, OPTIONS),
        seed=0,
        reader=reader,
        undecodable_budget=1,  # type: ignore[arg-type]
    )
    with pytest.warns(UserWarning, match=rf"key {rows['key'][number]}: is damaged; another"):
        given = torch.cat([batch[2] for batch in loader])
    assert number not in given.tolist()


def test_rows_without_checksums_are_read_as_before(shards: Path, rows: pd.DataFrame) -> None:
    rot(shards, rows.iloc[0])
    old = rows.drop(columns="image_crc32")
    assert len(list(ImageLoader(shards, old, pixels, batch_size=1))) == len(rows)
    assert list(BatchLoader(shards, old, pixels, OPTIONS, seed=0, reader="stream"))
