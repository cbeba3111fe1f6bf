import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
import webdataset

from hgld.shards import read_index
from tests.in_process import hgld
from tests.shards.shard_world import World, draw, make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = make_world(tmp_path_factory.mktemp("tools"), [1, 3, 4, 5, 9])
    world.export(shard_megabytes=0.03)
    return world


@pytest.fixture
def shards(world: World) -> Path:
    return world.folder / "shards"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Shards as webdataset's own ShardWriter makes them."""
    with webdataset.ShardWriter(str(tmp_path / "photos-%06d.tar"), maxcount=9, verbose=0) as sink:
        for i in range(20):
            sink.write({"__key__": f"s{i:03d}", "jpg": draw(i), "json": {"kind": f"k{i % 5}"}})
    return tmp_path


def test_ls_lists_every_shard_within_80_columns(shards: Path) -> None:
    head, *lines = hgld("shards", "ls", shards).out.splitlines()
    assert head.split() == ["samples", "runs", "size", "sha256", "file"]
    files = sorted(shards.glob("*.tar"))
    assert [line.split()[-1] for line in lines] == [file.name for file in files]
    assert sum(int(line.split()[0]) for line in lines) == len(read_index(shards)) == 31
    hashes = [sha256(file.read_bytes()).hexdigest()[:12] for file in files]
    assert [line.split()[-2] for line in lines] == hashes
    assert max(map(len, [head, *lines])) <= 80


def test_ls_as_json_holds_the_bytes_of_every_shard(shards: Path) -> None:
    rows = json.loads(hgld("shards", "ls", shards, "--json").out)
    sizes = {row["file"]: row["bytes"] for row in rows}
    assert sizes == {file.name: file.stat().st_size for file in shards.glob("*.tar")}


@pytest.mark.parametrize("key", ["train-t001002", "t001002"])
def test_cat_prints_what_is_known_of_a_sample(shards: Path, key: str) -> None:
    known = json.loads(hgld("shards", "cat", shards, key).out)
    assert known["key"] == "train-t001002" and known["hierarchical_path"].endswith("train:1")
    assert known["author"] == 'A. \u00c9crivain, "B"'


def test_cat_writes_the_image_byte_for_byte(world: World, shards: Path, tmp_path) -> None:
    file = tmp_path / "image.jpg"
    assert hgld("shards", "cat", shards, "t001002", "--out", file).out == ""
    assert file.read_bytes() == world.data["t001002"]


def test_cat_pipes_the_image(world: World, shards: Path) -> None:
    command = [sys.executable, "-m", "hgld", "shards", "cat", shards, "t001002", "--out", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout == world.data["t001002"]


def test_cat_names_the_nearest_key(shards: Path) -> None:
    error = hgld("shards", "cat", shards, "train-t00100", code=3).err
    assert "did you mean 'train-t00100" in error and error.count("\n") == 1


def test_stats_counts_each_split(shards: Path) -> None:
    counts = json.loads(hgld("shards", "stats", shards, "--json").out)
    assert list(counts) == ["index", "train"]
    assert counts["train"]["samples"] == 22 and counts["index"]["samples"] == 9
    assert counts["train"]["classes"] == {"kind": 2, "supercategory": 4, "landmark": 5}
    assert counts["train"]["images_of_a_class"] == {"least": 1, "median": 4.0, "most": 9}
    assert counts["train"]["classes_below_4_images"] == 2


def test_stats_fits_80_columns(shards: Path) -> None:
    lines = hgld("shards", "stats", shards).out.splitlines()
    assert "  classes   kind 2, supercategory 4, landmark 5" in lines
    assert "  images    1 to 9 of a class, median 4; 2 classes below 4" in lines
    assert "  licence   22 https://creativecommons.org/licenses/by/3.0/" in lines
    assert max(map(len, lines)) <= 80


def test_verify_says_what_is_whole(shards: Path) -> None:
    done = hgld("shards", "verify", shards)
    shards_there = len(list(shards.glob("*.tar")))
    assert done.out == f"{shards_there} shards with 31 samples are undamaged\n"
    done = hgld("shards", "verify", shards, "--json")
    assert json.loads(done.out) == {"shards": shards_there, "samples": 31}


def test_verify_names_shard_and_key_of_a_flipped_byte(tmp_path: Path) -> None:
    folder, _ = make_world(tmp_path, [4, 4]).export()
    row = read_index(folder).iloc[5]
    shard = folder / row["shard"]
    data = bytearray(shard.read_bytes())
    data[row["offset"] + 200] ^= 1
    shard.write_bytes(data)
    error = hgld("shards", "verify", folder, code=3).err
    assert row["shard"] in error and f"the image of key {row['key']}" in error
    assert error.count("\n") == 1


def test_index_makes_a_foreign_webdataset_known(foreign: Path) -> None:
    done = hgld("shards", "index", foreign, "--level", "kind")
    assert done.out == "3 shards with 20 samples are indexed\n"
    hgld("shards", "verify", foreign)
    assert "  classes   kind 5" in hgld("shards", "stats", foreign).out


def test_index_leaves_an_export_alone_unless_forced(tmp_path: Path) -> None:
    folder, _ = make_world(tmp_path, [4, 4]).export()
    before = (folder / "index.parquet").read_bytes()
    assert "--force" in hgld("shards", "index", folder, code=3).err
    assert (folder / "index.parquet").read_bytes() == before
    hgld("shards", "index", folder, "--force")
    assert read_index(folder)["level_1"].nunique() == 4


@pytest.mark.parametrize("command", ["ls", "stats", "verify", "index"])
def test_a_folder_without_shards_is_one_line(command: str, tmp_path: Path) -> None:
    error = hgld("shards", command, tmp_path, code=3 if command == "index" else 1).err
    assert error.startswith("hgld: ") and error.count("\n") == 1 and str(tmp_path) in error


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    assert hgld("shards", "cat", tmp_path / "nowhere", "x", code=1).err.count("\n") == 1


@pytest.mark.filterwarnings("ignore")  # webdataset 1.0.2 leaves files to the garbage collector
def test_copy_writes_the_shards_of_a_split_through_webdataset(shards: Path, tmp_path: Path) -> None:
    pattern, own = f"pipe:cat > {tmp_path}/copy-%02d.tar", sorted(shards.glob("train-*.tar"))
    done = hgld("shards", "copy", shards, pattern, code=2)
    assert "runs a command; give pipe=True (--pipe) if you trust" in done.err
    done = hgld("shards", "copy", shards, pattern, "--pipe", "--start", 5)
    last = f"copy-{4 + len(own):02d}.tar"
    assert done.out == (f"{len(own)} shards copied, the last to pipe:cat > {tmp_path}/{last}\n")
    copies = sorted(tmp_path.glob("copy-*.tar"))
    assert [copy.read_bytes() for copy in copies] == [shard.read_bytes() for shard in own]
    assert copies[0].name == "copy-05.tar"


def test_copy_resumes_and_replaces_no_other_file(shards: Path, tmp_path: Path) -> None:
    command = ("shards", "copy", shards, f"{tmp_path}/copy-%d.tar", "--start", 1)
    own = [shard.read_bytes() for shard in sorted(shards.glob("train-*.tar"))]
    hgld(*command)
    copies = [tmp_path / f"copy-{number}.tar" for number in range(1, len(own) + 1)]
    kept = copies[0].stat().st_ino
    copies[1].rename(tmp_path / f".{copies[1].name}.{2**22 + 1}.tmp")  # as a killed copy leaves it
    hgld(*command)
    assert [copy.read_bytes() for copy in copies] == own and copies[0].stat().st_ino == kept
    copies[1].write_bytes(b"another set")
    error = hgld(*command, code=2).err
    assert error.count("\n") == 1
    assert f"{copies[1]}: is there already, and is not the copy of this shard; move it" in error
    assert copies[1].read_bytes() == b"another set"
    assert sorted(path.name for path in tmp_path.iterdir()) == [copy.name for copy in copies]


def test_copy_refuses_an_absent_split_and_to_write_over_its_source(shards: Path) -> None:
    before = (shards / "train-000000.tar").read_bytes()
    done = hgld("shards", "copy", shards, f"{shards}/train-%06d.tar", code=2)
    assert "train-000000.tar: would be written while it is read" in done.err
    assert (shards / "train-000000.tar").read_bytes() == before
    done = hgld("shards", "copy", shards, "x-%d.tar", "--split", "test", code=2)
    assert "has no such shards; it has index, train" in done.err


@pytest.mark.filterwarnings("ignore")  # webdataset 1.0.2 leaves files to the garbage collector
@pytest.mark.parametrize("damage", ["a byte", "the last samples"])
def test_copy_names_a_shard_that_is_not_the_one_of_the_manifest(
    tmp_path: Path, damage: str
) -> None:
    folder, _ = make_world(tmp_path, [4, 4]).export(shard_megabytes=9)
    row, shard = read_index(folder).query("split == 'train'").iloc[3], folder / "train-000000.tar"
    data = bytearray(shard.read_bytes())
    data[row["offset"] + 200] ^= 1
    shard.write_bytes(data if damage == "a byte" else data[: row["extent_start"]])
    error = hgld("shards", "copy", folder, f"{tmp_path}/copy-%d.tar", code=3).err
    assert f"{shard}: is not the shard of manifest.json (SHA-256)" in error
    assert error.count("\n") == 1 and not list(tmp_path.glob("*copy*"))
