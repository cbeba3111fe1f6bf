import errno
import json
import os
import pickle
import subprocess
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
import webdataset
from pyarrow import parquet

from hgld.errors import HgldError, InvalidData, MissingInput
from hgld.shards import read_index, read_manifest, verify_shards
from hgld.shards.index import PHOTO, open_index
from tests.shards.shard_world import World, put_index


def test_shards_as_they_were_exported_are_sound(shards: Path) -> None:
    verify_shards(shards)


def test_a_flipped_byte_is_found_in_its_shard_and_key(shards: Path) -> None:
    row = read_index(shards).iloc[7]
    data = bytearray((shards / row["shard"]).read_bytes())
    data[row["offset"] + 5] ^= 1
    (shards / row["shard"]).write_bytes(data)
    with pytest.raises(InvalidData, match=rf"{row['shard']}: .*{row['key']}"):
        verify_shards(shards)


def test_a_truncated_shard_is_found(shards: Path) -> None:
    row = read_index(shards).query("shard == 'train-000001.tar'").iloc[2]
    shard = shards / row["shard"]
    shard.write_bytes(shard.read_bytes()[: row["offset"] + 10])
    with pytest.raises(InvalidData, match=rf"train-000001.tar: .* cut off is {row['key']}"):
        verify_shards(shards)


def test_a_missing_shard_is_found(shards: Path) -> None:
    (shards / "train-000001.tar").unlink()
    with pytest.raises(InvalidData, match=r"train-000001\.tar: the shard is missing"):
        verify_shards(shards)


def test_a_shard_from_elsewhere_is_found(shards: Path) -> None:
    (shards / "train-000001.tar").rename(shards / "train-000099.tar")
    with pytest.raises(InvalidData, match=r"train-000099\.tar: .*unknown to manifest"):
        verify_shards(shards)


def test_an_index_of_other_shards_is_found(shards: Path, world: World) -> None:
    other, _ = world.export("other", seed=5)
    (shards / "index.parquet").write_bytes((other / "index.parquet").read_bytes())
    with pytest.raises(InvalidData, match=r"is not the index that manifest\.json was written with"):
        verify_shards(shards)


def test_a_damaged_index_is_said_to_be_so(shards: Path) -> None:
    (shards / "index.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InvalidData, match="not a readable index"):
        read_index(shards)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), ".*Too many open files"),
        (pa.ArrowMemoryError("malloc of size 64 failed"), "malloc of size 64 failed"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_an_index_that_cannot_be_read_now_is_not_called_damaged(
    shards: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("pyarrow.parquet.ParquetFile.__init__", refuse)
    with pytest.raises(HgldError, match=rf"index\.parquet: cannot be read \({says}\)") as raised:
        read_index(shards)
    assert "delete" not in str(raised.value)


def test_a_folder_without_manifest_is_not_complete(shards: Path) -> None:
    (shards / "manifest.json").unlink()
    with pytest.raises(MissingInput, match="run export"):
        verify_shards(shards)


def test_the_manifest_counts_what_is_there(shards: Path, world: World) -> None:
    manifest, index = read_manifest(shards), read_index(shards)
    assert manifest["levels"] == ["kind", "supercategory", "landmark"]
    assert manifest["splits"]["train"]["samples"] == 92 == (index["split"] == "train").sum()
    assert manifest["splits"]["train"]["classes"] == 8
    assert sum(s["samples"] for s in manifest["shards"]) == len(index)
    assert all((shards / s["file"]).stat().st_size == s["bytes"] for s in manifest["shards"])


@pytest.mark.slow
def test_any_flipped_byte_is_found_in_its_key(shards: Path) -> None:
    index = read_index(shards).query("shard == 'train-000000.tar'")
    shard = shards / "train-000000.tar"
    good = shard.read_bytes()
    for place in range(3, len(good) - 10240, 997):
        bad = bytearray(good)
        bad[place] ^= 0x10
        shard.write_bytes(bad)
        key = index[index["offset"] - 512 <= place]["key"].iloc[-1]
        with pytest.raises(InvalidData, match=f"of key {key} was changed"):
            verify_shards(shards)


SIDECARS = ["attribution.csv", "classes.csv", "sizes.json", "__len__", "train.wids.json"]


@pytest.mark.parametrize("name", [*SIDECARS, "SHA256SUMS"])
def test_a_sidecar_with_a_flipped_bit_or_that_is_gone_is_named(shards: Path, name: str) -> None:
    data = bytearray((shards / name).read_bytes())
    data[len(data) // 2] ^= 1
    (shards / name).write_bytes(data)
    with pytest.raises(InvalidData, match=name if name != "SHA256SUMS" else "SHA256SUMS|listed"):
        verify_shards(shards)
    (shards / name).unlink()
    with pytest.raises(InvalidData, match=name):
        verify_shards(shards)


@pytest.mark.parametrize("column", ["author", "landmark_id", "sha256", "image_crc32", "level_3"])
def test_an_index_that_says_something_else_than_the_shards_is_found(
    shards: Path, column: str
) -> None:
    rows = read_index(shards)
    wrong = {
        "author": rows["author"].str.upper(),
        "landmark_id": rows["landmark_id"] + 1,
        "sha256": rows["sha256"].str[::-1],
        "image_crc32": rows["image_crc32"] ^ 1,
        "level_3": rows["level_3"] * 2,
    }
    put_index(shards, rows.assign(**{column: wrong[column]}))
    with pytest.raises(InvalidData, match=rf"\.tar: key .*: {column} is .* in the shard, but "):
        verify_shards(shards)


def test_sha256sum_accepts_the_folder(shards: Path) -> None:
    check = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=shards)
    listed = {line.split("  ")[1] for line in (shards / "SHA256SUMS").read_text().splitlines()}
    there = {p.name for p in shards.iterdir() if not p.name.startswith(".")}
    assert check.returncode == 0 and listed == there - {"SHA256SUMS"}


def test_descriptors_count_the_samples_of_each_shard(shards: Path) -> None:
    sizes = json.loads((shards / "sizes.json").read_text())
    wids = json.loads((shards / "train.wids.json").read_text())
    counts = read_index(shards).groupby("shard").size().to_dict()
    assert sizes == counts and int((shards / "__len__").read_text()) == sum(counts.values())
    train = {name: n for name, n in counts.items() if name.startswith("train")}
    assert {s["url"]: s["nsamples"] for s in wids["shardlist"]} == train


def test_the_brace_string_names_the_shards(shards: Path) -> None:
    brace = read_manifest(shards)["splits"]["train"]["brace"]
    files = webdataset.shardlists.expand_urls(brace)
    assert sorted(files) == sorted(p.name for p in shards.glob("train-*.tar"))


def test_a_shard_is_a_row_group_of_the_index_and_can_be_read_alone(shards: Path) -> None:
    whole = read_index(shards)
    metadata = parquet.read_metadata(shards / "index.parquet")
    names = list(dict.fromkeys(whole["shard"]))
    assert metadata.num_row_groups == len(names) > 1
    for name in names:
        rows = read_index(shards, [name], ["key", "level_1", "run"])
        expected = whole.loc[whole["shard"] == name, ["key", "level_1", "run"]]
        pd.testing.assert_frame_equal(rows, expected.reset_index(drop=True))


def test_an_index_in_one_row_group_gives_the_rows_of_a_shard_too(shards: Path) -> None:
    whole = read_index(shards)
    put_index(shards, whole)
    name = whole["shard"].iloc[-1]
    expected = whole[whole["shard"] == name].reset_index(drop=True)
    pd.testing.assert_frame_equal(read_index(shards, [name]), expected)


@pytest.mark.parametrize("group", [1, 3, 10_000])
def test_shards_of_an_opened_index_are_those_of_one_read_at_once(shards: Path, group: int) -> None:
    """However the row groups cut the shards."""
    whole = read_index(shards)
    put_index(shards, whole, group)
    found = open_index(shards, ["key", "offset", "level_1"])
    assert [one.shard for one in found] == list(dict.fromkeys(whole["shard"]))
    for one in found:
        rows = whole[whole["shard"] == one.shard].reset_index(drop=True)
        pd.testing.assert_frame_equal(one[["offset", "key"]], rows[["offset", "key"]])
        assert (len(one), one.split) == (len(rows), rows["split"].iloc[0])
        assert "key" in one and "run" not in one


def test_a_row_group_of_several_shards_is_decoded_once(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_index(shards, read_index(shards))
    decoded, read = list[object](), parquet.ParquetFile.read_row_groups

    def count(self: parquet.ParquetFile, *given: object) -> pa.Table:
        decoded.append(given)
        return read(self, *given)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_groups", count)
    found = open_index(shards, ["key", "offset"])
    decoded.clear()  # for the check
    assert len(found) > 2 and sum(len(one[["key"]]) for one in found) == sum(map(len, found))
    assert len(decoded) == 1


def test_rows_of_a_shard_are_sent_to_a_worker_as_a_table(shards: Path) -> None:
    (first, *_), whole = open_index(shards, [*PHOTO[:5], "run"]), read_index(shards)
    rows = whole.loc[whole["shard"] == first.shard, [*PHOTO[:5]]].reset_index(drop=True)
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(first)), rows)


def test_faults_between_shards_are_found_as_when_all_are_read_at_once(shards: Path) -> None:
    whole = read_index(shards)
    last = len(whole) - 1
    same = whole["level_2"] == whole["level_2"].iloc[last]
    assert whole.loc[same, "shard"].nunique() > 1  # a class in several shards
    parent = whole["level_1"].mask(same & (whole["shard"] == whole["shard"].iloc[last]), 1)
    parent = parent.where(parent != whole["level_1"], 0).where(same, whole["level_1"])
    for faulty in (
        whole.assign(level_1=parent),
        pd.concat([whole, whole[:2]], ignore_index=True),  # its first shard again
        whole.assign(width=whole["width"].where(whole.index < last, 0)),
    ):
        put_index(shards, faulty, 2)
        messages = []
        for read in (read_index, open_index):
            with pytest.raises(InvalidData) as error:
                read(shards, columns=list(whole))
            messages.append(str(error.value))
        assert messages[0] == messages[1] and "row " in messages[0]


def test_a_part_of_another_index_than_the_manifests_is_refused(shards: Path) -> None:
    whole = read_index(shards)
    whole.assign(run=0).to_parquet(shards / "index.parquet")
    with pytest.raises(InvalidData, match=r"is not the index that manifest\.json was written with"):
        read_index(shards, [whole["shard"].iloc[0]], ["key"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shards": ["train-999999.tar"]}, r"has no rows of train-999999\.tar"),
        ({"columns": ["colour"]}, "column 'colour' is missing"),
    ],
)
def test_a_shard_or_column_that_the_index_lacks_is_named(
    shards: Path, given: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(InvalidData, match=message):
        read_index(shards, **given)
