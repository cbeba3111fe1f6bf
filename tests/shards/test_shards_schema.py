"""An index from anybody: what it says is checked where it is read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hgld.errors import InvalidData
from hgld.shards import read_index, read_manifest, read_sample
from hgld.shards.contents import list_shards
from tests.shards.shard_world import put_index


@pytest.mark.parametrize(
    "name", ["../secret.tar", "/etc/secret.tar", "a\\b.tar", "a\n.tar", "a.json"]
)
def test_a_shard_outside_the_folder_is_refused(shards: Path, name: str) -> None:
    rows = read_index(shards)
    put_index(shards, rows.assign(shard=rows["shard"].replace("train-000000.tar", name)))
    (shards.parent / "secret.tar").write_text("secret")
    with pytest.raises(
        InvalidData, match=r"index\.parquet: row \d+ .*: shard is .*; expected the "
    ):
        read_sample(shards, rows["key"].iloc[-1])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("offset", -1),
        ("offset", 1 << 62),
        ("offset", 0),  # the header's place, before which the sample starts
        ("size_bytes", 0),
        ("size_bytes", 1 << 40),
        ("size_bytes", 1 << 29),
        ("json_size", 1 << 29),
        ("json_offset", 1 << 45),
        ("extent_start", 3),
        ("run", -1),
        ("run", 1 << 40),
        ("level_1", -1),
        ("level_3", 1 << 40),
        ("level_1", 1),
        ("level_3", 0),
        ("split", "index"),
        ("crc32", 1 << 32),
        ("image_crc32", -1),
    ],
)
def test_a_number_that_cannot_be_is_named_with_its_row(
    shards: Path, column: str, value: int | str
) -> None:
    rows = read_index(shards)
    row = int(np.flatnonzero(rows["split"] == "train")[-2])
    rows.loc[row, column] = value
    put_index(shards, rows)
    with pytest.raises(InvalidData, match=r"index\.parquet: row \d+ .*: [a-z_0-9]+ is "):
        read_index(shards)


def test_rows_of_a_shard_that_are_apart_are_refused(shards: Path) -> None:
    rows = read_index(shards)
    put_index(shards, pd.concat([rows.iloc[1:], rows.iloc[:1]]))
    with pytest.raises(InvalidData, match="expected the rows of a shard one after the other"):
        read_index(shards)


def test_samples_that_overlap_are_refused(shards: Path) -> None:
    rows = read_index(shards)
    rows.loc[1, ["offset", "json_offset", "extent_start"]] -= 512
    put_index(shards, rows)
    with pytest.raises(InvalidData, match="expected a place behind the sample before it"):
        read_index(shards)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("offset", lambda rows: rows["offset"].astype(float)),
        ("run", lambda rows: rows["run"].astype("Int64").where(rows.index > 0)),
        ("key", lambda rows: rows["key"].where(rows.index > 0)),
        ("key", lambda rows: rows.index),
        ("image_id", lambda rows: rows["image_id"] + "\n"),
        ("title", lambda rows: rows["title"].str.encode("utf-16")),
    ],
)
def test_a_column_of_another_type_is_refused(
    shards: Path, column: str, values: Callable[[pd.DataFrame], Any]
) -> None:
    rows = read_index(shards)
    put_index(shards, rows.assign(**{column: values(rows)}))
    with pytest.raises(InvalidData, match=rf"index\.parquet: column '{column}' is "):
        read_index(shards)


def test_a_missing_column_is_named(shards: Path) -> None:
    put_index(shards, read_index(shards).drop(columns="extent_bytes"))
    with pytest.raises(InvalidData, match=r"column 'extent_bytes' is missing; make it again"):
        read_index(shards)


def test_an_index_without_checksums_of_images_is_read(shards: Path) -> None:
    put_index(shards, read_index(shards).drop(columns="image_crc32"))
    rows = read_index(shards)
    assert "image_crc32" not in rows and read_sample(shards, rows["key"][0]).jpeg


def test_an_index_of_more_rows_than_its_bytes_hold_is_refused(shards: Path) -> None:
    rows = read_index(shards)
    put_index(shards, rows.iloc[np.zeros(300_000, int)])
    with pytest.raises(InvalidData, match=r"not a readable index \(it states 300,000"):
        read_index(shards)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"levels": "abc"}, "'levels' is not a list of different names"),
        ({"levels": ["a", "a", "b"]}, "'levels' is not a list of different names"),
        ({"splits": []}, "'splits' or 'options' is not an object"),
        ({"options": 3}, "'splits' or 'options' is not an object"),
        ({"shards": {}}, "'shards' is not a list of shards"),
        ({"shards": [{"file": "../x.tar"}]}, "'shards' is not a list of shards"),
        (
            {
                "shards": [
                    {
                        "file": "x.tar",
                        "split": "x",
                        "sha256": "",
                        "runs": 1,
                        "bytes": 10_240,
                        "samples": 10**13,
                    }
                ]
            },
            "'shards' is not a list of shards",
        ),
    ],
)
def test_a_manifest_that_cannot_be_is_refused(
    shards: Path, change: dict[str, object], says: str
) -> None:
    manifest = json.loads((shards / "manifest.json").read_text())
    (shards / "manifest.json").write_text(json.dumps(manifest | change))
    with pytest.raises(InvalidData, match=rf"manifest\.json: {says}"):
        read_manifest(shards)


def test_a_manifest_with_a_shard_outside_the_folder_or_twice_is_refused(shards: Path) -> None:
    manifest = json.loads((shards / "manifest.json").read_text())
    for file, says in (("../x.tar", "a .tar of this folder"), ("train-000000.tar", "file twice")):
        shard = manifest["shards"][0] | {"file": file}
        (shards / "manifest.json").write_text(
            json.dumps(manifest | {"shards": [*manifest["shards"], shard]})
        )
        with pytest.raises(InvalidData, match=says):
            list_shards(shards)


@pytest.mark.parametrize("change", [{"levels": ["a", "b"]}, {"shards": []}])
def test_an_index_of_another_manifest_is_refused(shards: Path, change: dict[str, object]) -> None:
    manifest = json.loads((shards / "manifest.json").read_text())
    (shards / "manifest.json").write_text(json.dumps(manifest | change))
    with pytest.raises(InvalidData, match=r"index\.parquet: .*manifest\.json"):
        read_index(shards)
