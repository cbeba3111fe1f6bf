import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
import webdataset

from hgld.cli import app, guarded
from hgld.shards import read_index
from tests.shards.shard_world import World, draw, make_world


def hgld(*arguments: object) -> int:
    return guarded(lambda: app([str(word) for word in arguments]))


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


def test_ls_lists_every_shard_within_80_columns(shards: Path, capsys) -> None:
    assert hgld("shards", "ls", shards) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["samples", "runs", "size", "sha256", "file"]
    files = sorted(shards.glob("*.tar"))
    assert [line.split()[-1] for line in lines] == [file.name for file in files]
    assert sum(int(line.split()[0]) for line in lines) == len(read_index(shards)) == 31
    hashes = [sha256(file.read_bytes()).hexdigest()[:12] for file in files]
    assert [line.split()[-2] for line in lines] == hashes
    assert max(map(len, [head, *lines])) <= 80


def test_ls_as_json_holds_the_bytes_of_every_shard(shards: Path, capsys) -> None:
    assert hgld("shards", "ls", shards, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    sizes = {row["file"]: row["bytes"] for row in rows}
    assert sizes == {file.name: file.stat().st_size for file in shards.glob("*.tar")}


@pytest.mark.parametrize("key", ["train-t001002", "t001002"])
def test_cat_prints_what_is_known_of_a_sample(shards: Path, key: str, capsys) -> None:
    assert hgld("shards", "cat", shards, key) == 0
    known = json.loads(capsys.readouterr().out)
    assert known["key"] == "train-t001002" and known["hierarchical_path"].endswith("train:1")
    assert known["author"] == 'A. \u00c9crivain, "B"'


def test_cat_writes_the_image_byte_for_byte(world: World, shards: Path, tmp_path, capsys) -> None:
    file = tmp_path / "image.jpg"
    assert hgld("shards", "cat", shards, "t001002", "--out", file) == 0
    assert file.read_bytes() == world.data["t001002"]
    assert capsys.readouterr().out == ""


def test_cat_pipes_the_image(world: World, shards: Path) -> None:
    command = [sys.executable, "-m", "hgld", "shards", "cat", shards, "t001002", "--out", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout == world.data["t001002"]


def test_cat_names_the_nearest_key(shards: Path, capsys) -> None:
    assert hgld("shards", "cat", shards, "train-t00100") == 3
    error = capsys.readouterr().err
    assert "did you mean 'train-t00100" in error and error.count("\n") == 1


def test_stats_counts_each_split(shards: Path, capsys) -> None:
    assert hgld("shards", "stats", shards, "--json") == 0
    counts = json.loads(capsys.readouterr().out)
    assert list(counts) == ["index", "train"]
    assert counts["train"]["samples"] == 22 and counts["index"]["samples"] == 9
    assert counts["train"]["classes"] == {"kind": 2, "supercategory": 4, "landmark": 5}
    assert counts["train"]["images_of_a_class"] == {"least": 1, "median": 4.0, "most": 9}
    assert counts["train"]["classes_below_4_images"] == 2


def test_stats_fits_80_columns(shards: Path, capsys) -> None:
    assert hgld("shards", "stats", shards) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  classes   kind 2, supercategory 4, landmark 5" in lines
    assert "  images    1 to 9 of a class, median 4; 2 classes below 4" in lines
    assert "  licence   22 https://creativecommons.org/licenses/by/3.0/" in lines
    assert max(map(len, lines)) <= 80


def test_verify_says_what_is_whole(shards: Path, capsys) -> None:
    assert hgld("shards", "verify", shards) == 0
    shards_there = len(list(shards.glob("*.tar")))
    assert capsys.readouterr().out == f"{shards_there} shards with 31 samples are whole\n"
    assert hgld("shards", "verify", shards, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"shards": shards_there, "samples": 31}


def test_verify_names_shard_and_key_of_a_flipped_byte(tmp_path: Path, capsys) -> None:
    folder, _ = make_world(tmp_path, [4, 4]).export()
    row = read_index(folder).iloc[5]
    shard = folder / row["shard"]
    data = bytearray(shard.read_bytes())
    data[row["offset"] + 200] ^= 1
    shard.write_bytes(data)
    assert hgld("shards", "verify", folder) == 3
    error = capsys.readouterr().err
    assert row["shard"] in error and f"the image of key {row['key']}" in error
    assert error.count("\n") == 1


def test_index_makes_a_foreign_webdataset_known(foreign: Path, capsys) -> None:
    assert hgld("shards", "index", foreign, "--level", "kind") == 0
    assert capsys.readouterr().out == "3 shards with 20 samples are indexed\n"
    assert hgld("shards", "verify", foreign) == 0
    assert hgld("shards", "stats", foreign) == 0
    assert "  classes   kind 5" in capsys.readouterr().out


def test_index_leaves_an_export_alone_unless_forced(tmp_path: Path, capsys) -> None:
    folder, _ = make_world(tmp_path, [4, 4]).export()
    before = (folder / "index.parquet").read_bytes()
    assert hgld("shards", "index", folder) == 3
    assert "--force" in capsys.readouterr().err
    assert (folder / "index.parquet").read_bytes() == before
    assert hgld("shards", "index", folder, "--force") == 0
    assert read_index(folder)["level_1"].nunique() == 4


@pytest.mark.parametrize("command", ["ls", "stats", "verify", "index"])
def test_a_folder_without_shards_is_one_line(command: str, tmp_path: Path, capsys) -> None:
    assert hgld("shards", command, tmp_path) in (1, 3)
    error = capsys.readouterr().err
    assert error.startswith("hgld: ") and error.count("\n") == 1 and str(tmp_path) in error


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path, capsys) -> None:
    assert hgld("shards", "cat", tmp_path / "nowhere", "x") == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_every_tool_has_help_within_80_columns(capsys) -> None:
    assert hgld("shards", "--help") == 0
    text = capsys.readouterr().out
    assert "..." not in text.split("Commands:")[1]
    for command in ("ls", "cat", "stats", "verify", "index"):
        assert f"  {command} " in text
        assert hgld("shards", command, "--help") == 0
    assert max(map(len, (text + capsys.readouterr().out).splitlines())) <= 80


@pytest.mark.filterwarnings("ignore")  # webdataset 1.0.2 leaves files to the garbage collector
def test_copy_writes_the_shards_of_a_split_through_webdataset(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pattern, own = f"pipe:cat > {tmp_path}/copy-%02d.tar", sorted(shards.glob("train-*.tar"))
    assert hgld("shards", "copy", shards, pattern) == 2
    assert "runs a command; give pipe=True (--pipe) if you trust" in capsys.readouterr().err
    assert hgld("shards", "copy", shards, pattern, "--pipe", "--start", 5) == 0
    last = f"copy-{4 + len(own):02d}.tar"
    assert capsys.readouterr().out == (
        f"{len(own)} shards copied, the last to pipe:cat > {tmp_path}/{last}\n"
    )
    copies = sorted(tmp_path.glob("copy-*.tar"))
    assert [copy.read_bytes() for copy in copies] == [shard.read_bytes() for shard in own]
    assert copies[0].name == "copy-05.tar"


def test_copy_refuses_an_absent_split_and_to_write_over_its_source(
    shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (shards / "train-000000.tar").read_bytes()
    assert hgld("shards", "copy", shards, f"{shards}/train-%06d.tar") == 2
    assert "train-000000.tar: would be written while it is read" in capsys.readouterr().err
    assert (shards / "train-000000.tar").read_bytes() == before
    assert hgld("shards", "copy", shards, "x-%d.tar", "--split", "test") == 2
    assert "has no such shards; it has index, train" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")  # webdataset 1.0.2 leaves files to the garbage collector
@pytest.mark.parametrize("damage", ["a byte", "the last samples"])
def test_copy_names_a_shard_that_is_not_the_one_of_the_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    folder, _ = make_world(tmp_path, [4, 4]).export(shard_megabytes=9)
    row, shard = read_index(folder).query("split == 'train'").iloc[3], folder / "train-000000.tar"
    data = bytearray(shard.read_bytes())
    data[row["offset"] + 200] ^= 1
    shard.write_bytes(data if damage == "a byte" else data[: row["extent_start"]])
    assert hgld("shards", "copy", folder, f"{tmp_path}/copy-%d.tar") == 3
    error = capsys.readouterr().err
    assert f"{shard}: is not the shard of manifest.json (SHA-256)" in error
    assert error.count("\n") == 1
