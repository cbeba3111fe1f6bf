import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hgld.errors import HgldError, InvalidData, Resumable
from hgld.shards import (
    BatchLoader,
    BatchOptions,
    ImageLoader,
    ImageTable,
    Samples,
    ShardImages,
    image_table,
    read_index,
)
from hgld.shards.schema import IMAGE_CRC32, PLACES
from tests.shards.shard_world import World, put_index, to_tensor

LEVELS = ["level_1", "level_2", "level_3"]
COLUMNS = ["key", "shard", "split", "run", *PLACES, IMAGE_CRC32, *LEVELS]
ARRAYS = ("shards", "places", "labels", "crc32", "runs")


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files from four images on, of which a block has one row group."""
    monkeypatch.setattr(image_table, "MANY", 4)
    monkeypatch.setattr(image_table, "PIECE", 7)
    monkeypatch.setattr("hgld.shards.index.BLOCK", 1)


def of_split(folder: Path, split: str = "train") -> pd.DataFrame:
    return read_index(folder).query(f"split == '{split}'").reset_index(drop=True)


@pytest.mark.parametrize("split", ["train", "index"])
def test_many_images_are_in_files_with_the_content_of_the_index(
    shards: Path, few_are_many: None, split: str
) -> None:
    found, rows = ImageTable.read(shards, split), of_split(shards, split)
    assert all(isinstance(getattr(found, name), np.memmap) for name in ARRAYS)
    assert len(found) == len(rows) and [*found.keys] == [*rows["key"]]
    assert [found.names[shard] for shard in found.shards] == [*rows["shard"]]
    assert (found.places == rows[["offset", "size_bytes"]]).all(axis=None)
    assert (found.labels == rows[LEVELS]).all(axis=None)
    assert (found.crc32 == rows[IMAGE_CRC32]).all() and (found.runs == rows["run"]).all()


def test_few_images_are_in_memory(shards: Path) -> None:
    found = ImageTable.read(shards, "train")
    assert not any(isinstance(getattr(found, name), np.memmap) for name in ARRAYS)
    assert [*found.keys] == [*of_split(shards)["key"]]


def test_a_split_that_the_shards_lack_has_no_images(shards: Path) -> None:
    assert len(ImageTable.read(shards, "validation")) == 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("order", ["random", "shards"])
def test_batches_of_a_table_in_files_are_those_of_the_rows(
    shards: Path, few_are_many: None, order: str, workers: int
) -> None:
    options = BatchOptions(4, 2, order=order)
    loaders = [
        BatchLoader(shards, rows, to_tensor, options, seed=1, workers=workers)
        for rows in (of_split(shards), ImageTable.read(shards, "train"))
    ]
    assert loaders[0].state_dict() == loaders[1].state_dict()
    for one, other in zip(*loaders, strict=True):
        for expected, found in zip(one, other, strict=True):
            assert found.dtype == expected.dtype and torch.equal(found, expected)


def test_images_of_a_table_in_files_are_those_of_the_rows(shards: Path, few_are_many: None) -> None:
    rows, table = of_split(shards), ImageTable.read(shards, "train")
    one, other = (ImageLoader(shards, of, to_tensor, batch_size=16) for of in (rows, table))
    for expected, found in zip(one, other, strict=True):
        assert all(map(torch.equal, found, expected)) and found[1].dtype == torch.int64


def test_a_table_in_files_may_be_sent_to_another_process(shards: Path, few_are_many: None) -> None:
    images = ShardImages(shards, ImageTable.read(shards, "train"), to_tensor)
    again = pickle.loads(pickle.dumps(images))
    assert again.name(11) == images.name(11) and torch.equal(again[11][0], images[11][0])


def test_rows_are_taken_in_the_order_given(shards: Path) -> None:
    table, rows = ImageTable.read(shards, "train"), of_split(shards)
    found = table.take(np.array([7, 3]))
    assert [*found.keys] == [*rows["key"][[7, 3]]] and found.runs.tolist() == [*rows["run"][[7, 3]]]
    images = ShardImages(shards, found, to_tensor)
    assert torch.equal(images[1][0], ShardImages(shards, rows, to_tensor)[3][0])


def test_classes_that_need_64_bits_keep_them(shards: Path) -> None:
    rows = of_split(shards).assign(level_3=1 << 40)
    assert ShardImages(shards, rows, to_tensor)[0][1].tolist()[2] == 1 << 40


def test_images_without_runs_make_no_batches(shards: Path) -> None:
    table = replace(ImageTable.read(shards, "train"), runs=None)
    with pytest.raises(InvalidData, match=r"no runs; expected those of ImageTable\.read"):
        Samples.of_index(table)


def test_an_index_of_another_program_may_lack_the_crc32(shards: Path) -> None:
    put_index(shards, read_index(shards).drop(columns=IMAGE_CRC32))
    assert ImageTable.read(shards, "train").crc32 is None


def late_class(rows: pd.DataFrame) -> pd.DataFrame:
    """A class below another one than before, in the last shard of the split."""
    row = rows.index[rows["split"] == "train"][-1]
    rows.loc[rows["run"].eq(rows["run"][row]) & rows["shard"].eq(rows["shard"][row]), LEVELS] = [
        1, 0, rows["level_3"][rows["split"] == "train"].iloc[0],
    ]  # fmt: skip
    return rows


FAULTS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "a missing column": lambda rows: rows.drop(columns="run"),
    "numbers as text": lambda rows: rows.assign(offset=rows["offset"].astype(str)),
    "a key with a line break": lambda rows: rows.assign(key="a\nb"),
    "an impossible size": lambda rows: rows.assign(size_bytes=rows["size_bytes"].mask(
        rows.index == rows.index[rows["split"] == "train"][-2], 0)),
    "a place outside the sample": lambda rows: rows.assign(offset=rows["offset"].mask(
        rows.index == rows.index[rows["split"] == "train"][-2], 0)),
    "a class below two": late_class,
    "a shard without rows": lambda rows: rows[rows["shard"] != "train-000001.tar"],
    "a shard in two places": lambda rows: pd.concat(
        [rows, rows[rows["shard"] == "train-000000.tar"][:1]], ignore_index=True),
    "a shard of another split": lambda rows: rows.assign(split="other"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_index_is_refused_with_the_line_of_read_index(
    shards: Path, few_are_many: None, fault: str
) -> None:
    own = [s["file"] for s in json.loads((shards / "manifest.json").read_text())["shards"]]
    put_index(shards, FAULTS[fault](read_index(shards)), group=10)
    with pytest.raises(HgldError) as expected:
        read_index(shards, [name for name in own if name.startswith("train")], COLUMNS)
    with pytest.raises(HgldError) as found:
        ImageTable.read(shards, "train")
    assert (type(found.value), str(found.value)) == (type(expected.value), str(expected.value))


def test_an_index_that_the_manifest_does_not_name_is_refused(
    shards: Path, world: World, few_are_many: None
) -> None:
    other, _ = world.export("other", seed=5)
    (shards / "index.parquet").write_bytes((other / "index.parquet").read_bytes())
    with pytest.raises(InvalidData, match=r"is not the index that manifest\.json was written with"):
        ImageTable.read(shards, "train")


def test_a_disk_that_fills_up_while_the_index_is_read_is_one_line(
    shards: Path, few_are_many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.ipc.RecordBatchFileWriter.write_table", full)
    with pytest.raises(Resumable, match=r"no room for 0\.0 GB .*No space left.*; make room"):
        ImageTable.read(shards, "train")
