import io
import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import webdataset
from PIL import Image

from hgld.artifacts import LargeTable
from hgld.errors import HgldError, InvalidData, Resumable
from hgld.pipeline.stages import STAGES
from hgld.shards import (
    index_shards,
    read_image,
    read_index,
    read_manifest,
    read_sample,
    verify_shards,
)
from hgld.shards.write import FORMAT
from tests.listening import heard
from tests.shards.shard_world import World, draw, rot
from tests.sources.small_disk import small_disk
from tests.warm import Script

# webdataset 1.0.2 leaves the files that it reads to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def content(folder: Path) -> dict[str, str]:
    """Hash of each visible file."""
    return {
        p.name: sha256(p.read_bytes()).hexdigest()
        for p in folder.iterdir()
        if not p.name.startswith(".")
    }


def samples(folder: Path) -> list[dict[str, Any]]:
    """All samples as the webdataset package reads them."""
    urls = [str(p) for p in sorted(folder.glob("*.tar"))]
    return list(webdataset.WebDataset(urls, shardshuffle=False))


def test_webdataset_reads_every_image_byte_for_byte(world: World) -> None:
    folder, dropped = world.export()
    found = {json.loads(s["json"])["image_id"]: s["jpg"] for s in samples(folder)}
    assert found == world.data
    assert len(dropped) == 0


def test_class_file_json_and_index_agree(world: World) -> None:
    folder, _ = world.export()
    index = read_index(folder).set_index("key")
    for sample in samples(folder):
        known, row = json.loads(sample["json"]), index.loc[sample["__key__"]]
        assert int(sample["cls"]) == known["label"] == row["level_3"]
        assert (known["kind_id"], known["supercategory_id"]) == (row["level_1"], row["level_2"])
        assert known["hierarchical_path"].startswith(f"{known['kind']}/{known['supercategory']}/")
        assert known["sha256"] == row["sha256"] == sha256(sample["jpg"]).hexdigest()
        assert known["run_id"] == row["run"]
        assert None not in known.values()


def test_members_of_a_sample_are_neighbours_in_a_fixed_order(world: World) -> None:
    folder, _ = world.export()
    with tarfile.open(sorted(folder.glob("*.tar"))[0]) as tar:
        names = tar.getnames()
    for i in range(0, len(names), 3):
        key = names[i].removesuffix(".jpg")
        assert names[i : i + 3] == [f"{key}.jpg", f"{key}.json", f"{key}.cls"]


def test_plain_tar_lists_the_members_with_a_fixed_time_and_owner(world: World) -> None:
    folder, _ = world.export()
    shard = sorted(folder.glob("*.tar"))[0]
    listing = subprocess.run(
        ["tar", "--utc", "-tvf", shard], capture_output=True, text=True, check=True
    )
    first = listing.stdout.splitlines()[0]
    assert first.startswith("-r--r--r-- hgld/hgld") and "1970-01-01" in first


def test_the_index_points_at_the_bytes(world: World) -> None:
    folder, _ = world.export()
    for row in read_index(folder).to_dict("records"):
        shard = (folder / row["shard"]).read_bytes()
        jpeg = shard[row["offset"] : row["offset"] + row["size_bytes"]]
        assert jpeg == world.data[row["image_id"]]
        text = shard[row["json_offset"] : row["json_offset"] + row["json_size"]]
        assert json.loads(text)["key"] == row["key"]


def test_a_run_is_one_class_consecutive_and_at_most_run_length(world: World) -> None:
    folder, _ = world.export(run_length=8)
    index = read_index(folder)
    runs = index.groupby(["split", "run"])
    assert runs["level_3"].nunique().eq(1).all() and runs["shard"].nunique().eq(1).all()
    assert runs.size().max() <= 8
    changes = (index["run"] != index["run"].shift()) | (index["split"] != index["split"].shift())
    assert changes.sum() == len(runs)


def test_runs_of_a_class_lie_in_different_shards(world: World) -> None:
    folder, _ = world.export(run_length=8, shard_megabytes=0.03)
    train = read_index(folder).query("split == 'train'")
    assert train["shard"].nunique() >= 5
    spread = train.drop_duplicates("run").groupby("level_3")["shard"].agg(["size", "nunique"])
    assert (spread["size"] == spread["nunique"]).all()


def test_shards_hold_equally_many_runs(world: World) -> None:
    folder, _ = world.export(run_length=4)
    runs = read_index(folder).query("split == 'train'").groupby("shard")["run"].nunique()
    assert runs.max() - runs.min() <= 1


def test_the_bytes_do_not_depend_on_the_rows_that_are_held_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = world.export("whole")
    monkeypatch.setattr("hgld.shards.export_plan.PART", 7)
    in_parts, _ = world.export("in_parts")
    assert content(in_parts) == content(whole)


def test_same_input_gives_the_same_bytes_whatever_the_order_and_processes(world: World) -> None:
    first, _ = world.export("one")
    world.images = world.images.sample(frac=1, random_state=1)
    world.hierarchy = world.hierarchy.iloc[::-1]
    second, _ = world.export("two", processes=2)
    assert content(first) == content(second)
    assert len(content(first)) > 6


def test_another_seed_makes_other_shards(world: World) -> None:
    assert content(world.export("one")[0]) != content(world.export("two", seed=1)[0])


def test_classes_have_the_same_number_in_every_split(world: World) -> None:
    folder, _ = world.export()
    index, classes = read_index(folder), pd.read_csv(folder / "classes.csv")
    names = classes.query("level == 3").set_index("id")["name"]
    assert (
        index["level_3"].map(names) == index["split"] + ":" + index["landmark_id"].astype(str)
    ).all()
    groups = index.groupby(["landmark_id", "level_2"]).size().reset_index()
    assert groups["landmark_id"].is_unique  # in both splits
    for _level, part in classes.groupby("level"):
        assert part["id"].tolist() == list(range(len(part)))


def test_shared_levels_follow_the_parents(world: World) -> None:
    classes = pd.read_csv(world.export()[0] / "classes.csv")
    index = read_index(world.folder / "shards")
    for level in (2, 3):
        parent = classes.query(f"level == {level}").set_index("id")["parent_id"]
        assert (index[f"level_{level}"].map(parent) == index[f"level_{level - 1}"]).all()


def test_the_credits_hold_no_formula(world: World) -> None:
    world.images["author"] = "=HYPERLINK(1)"
    folder, _ = world.export()
    credit = pd.read_csv(folder / "attribution.csv")
    assert set(credit["author"]) == {"'=HYPERLINK(1)"}
    assert set(read_index(folder)["author"]) == {"=HYPERLINK(1)"}


def test_an_undecodable_image_is_dropped_with_its_reason(world: World) -> None:
    row = world.images.index[3]
    world.images.loc[row, "size_bytes"] -= 100
    with heard() as notes:
        folder, dropped = world.export()
    assert notes == ["left out: 1 undecodable; export_dropped.parquet names the images"]
    assert dropped["image_id"].tolist() == [world.images.loc[row, "image_id"]]
    assert dropped["reason"].tolist() == ["undecodable"]
    assert "truncated" in dropped["detail"].iloc[0]
    assert len(read_index(folder)) == len(world.images) - 1


def test_copies_in_two_splits_or_two_classes_are_reported(world: World) -> None:
    rows = world.images.set_index("image_id")
    places = ["path", "offset", "size_bytes"]
    rows.loc["i002000", places] = rows.loc["t003000", places]  # another split
    rows.loc["t002000", places] = rows.loc["t001000", places]  # another class
    rows.loc["t001001", places] = rows.loc["t001000", places]  # the same class
    world.images = rows.reset_index()[world.images.columns]
    with heard() as notes:
        folder, _ = world.export()
    page = "see docs/bring-your-own-hierarchy.md, Copies of a photo"
    first = "1 image in several classes, byte for byte: first t002000 (train) and t001001 (train)"
    second = "1 image in several splits, byte for byte: first i002000 (index) and t003000 (train)"
    expected = [f"{first}; {page}", f"{second}; {page}"]
    assert notes == expected
    assert len(read_index(folder)) == len(world.images)
    with heard() as notes:
        index_shards(folder, ["supercategory", "hierarchical_path"], replace_export=True)
    assert notes == expected


def test_bytes_that_are_no_image_are_dropped_the_same_every_time(world: World) -> None:
    world.images.loc[world.images.index[3], "offset"] += 100
    assert world.export("one")[1]["detail"].tolist() == ["not an image of a known format"]


def test_images_of_a_landmark_without_hierarchy_are_dropped(world: World) -> None:
    world.hierarchy = world.hierarchy.query("not (split == 'train' and landmark_id == 4)")
    folder, dropped = world.export()
    assert len(dropped) == 9 and set(dropped["reason"]) == {"unlabelled"}
    assert set(dropped["detail"]) == {"landmark 4 has no hierarchy row"}
    assert len(read_index(folder)) + 9 == len(world.images)


def test_a_dropped_image_names_its_class_by_the_finest_level(world: World) -> None:
    world.hierarchy = world.hierarchy.query("not (split == 'train' and landmark_id == 4)")
    world.hierarchy["path"] = world.hierarchy["path"].str.replace('"landmark"', '"fine"')
    assert set(world.export()[1]["detail"]) == {"fine class 4 has no hierarchy row"}


def test_an_empty_hierarchy_is_an_error(world: World) -> None:
    world.hierarchy = world.hierarchy[:0]
    with pytest.raises(InvalidData, match=r"hierarchy\.csv: no rows"):
        world.export()


def test_resizing_keeps_the_aspect_and_says_so(world: World) -> None:
    folder, _ = world.export(short_side=9)
    index = read_index(folder)
    assert set(index["width"]) == {12} and set(index["height"]) == {9}
    known = json.loads(samples(folder)[0]["json"])
    assert known["changes"] == "resized to short side 9, JPEG quality 90"
    assert (known["orig_width"], known["orig_height"]) == (20, 15)
    assert read_image(folder, index.iloc[0]).size == (12, 9)


def test_a_png_becomes_a_jpeg(world: World) -> None:
    png = draw(999, form="PNG")
    (world.source / "one.png").write_bytes(png)
    row = world.images.index[0]
    world.images.loc[row, ["path", "offset", "size_bytes"]] = ["one.png", 0, len(png)]
    folder, _ = world.export()
    index = read_index(folder).set_index("image_id")
    sample = next(s for s in samples(folder) if world.images.loc[row, "image_id"] in s["__key__"])
    assert Image.open(io.BytesIO(sample["jpg"])).format == "JPEG"
    assert json.loads(sample["json"])["changes"] == "JPEG quality 90"
    assert index.loc[world.images.loc[row, "image_id"], "width"] == 20


def test_a_truncated_source_stops_with_its_name(world: World) -> None:
    tar = world.source / "images.tar"
    tar.write_bytes(tar.read_bytes()[:20_000])
    with pytest.raises(InvalidData, match=r"images\.tar: ends \d+ bytes before .* truncated"):
        world.export()


def test_shards_of_other_options_are_replaced(world: World) -> None:
    many = len(list(world.export(shard_megabytes=0.05)[0].glob("*.tar")))
    folder, _ = world.export(shard_megabytes=0.2)
    few = {p.name for p in folder.glob("*.tar")}
    assert len(few) < many
    assert few == {s["file"] for s in read_manifest(folder)["shards"]}
    verify_shards(folder)


@pytest.mark.parametrize("file", ["manifest.json", "index.parquet", "train-000000.tar"])
@pytest.mark.parametrize("harm", [b"", b"\xff\x00 not what it was"])
def test_a_damaged_folder_is_written_anew(world: World, file: str, harm: bytes) -> None:
    folder, _ = world.export()
    before = content(folder)
    (folder / file).write_bytes(harm) if harm else (folder / file).unlink()
    (folder / "train-000099.tar").write_bytes(b"of an older export")
    world.export()
    assert content(folder) == before


def test_finished_shards_do_not_outlive_a_new_revision_of_the_stage() -> None:
    """Both counters go up together, or shards of the old code would be kept."""
    (export,) = (stage for stage in STAGES if stage.name == "export")
    assert export.revision == FORMAT


def test_only_damaged_and_missing_shards_are_written_again(world: World) -> None:
    folder, first = world.export(shard_megabytes=0.02)
    before = content(folder)
    gone, harmed = folder / "train-000001.tar", folder / "train-000003.tar"
    gone.unlink()
    harmed.write_bytes(harmed.read_bytes()[:-1] + b"x")
    times = {p.name: p.stat().st_mtime_ns for p in folder.glob("*.tar")}
    _, again = world.export(shard_megabytes=0.02)
    assert content(folder) == before and again.equals(first)
    anew = {p.name for p in folder.glob("*.tar") if p.stat().st_mtime_ns != times.get(p.name)}
    assert anew == {gone.name, harmed.name} and len(times) > 4


def test_a_rewritten_shard_keeps_its_reasons_for_what_it_left_out(world: World) -> None:
    world.images.loc[world.images.index[3], "size_bytes"] -= 100
    folder, first = world.export()
    next(folder.glob("train-*.tar")).unlink()
    assert len(first) == 1 and world.export()[1].equals(first)


def test_markers_of_shards_that_another_input_planned_are_not_used(world: World) -> None:
    folder, _ = world.export()
    world.images.loc[world.images.index[0], "title"] = "File:Other.jpg"
    world.export()
    verify_shards(folder)
    assert "File:Other.jpg" in (folder / "attribution.csv").read_text(encoding="utf-8")


def test_a_tar_of_a_person_among_the_shards_outlives_another_export(world: World) -> None:
    folder, _ = world.export()
    (folder / "backup.tar").write_bytes(b"mine")
    (folder / "train-000099.tar").write_bytes(b"of an earlier plan")
    world.export(shard_megabytes=0.02)
    assert (folder / "backup.tar").read_bytes() == b"mine"
    assert not (folder / "train-000099.tar").exists()


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.tar")}


def test_a_photo_that_changed_under_the_same_size_and_time_is_exported_again(world: World) -> None:
    folder, _ = world.export()
    before, image = times(folder), world.images.iloc[5]
    tar = world.source / "images.tar"
    facts = tar.stat()
    rot(world.source, image.to_dict() | {"shard": "images.tar"})
    os.utime(tar, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert tar.stat().st_mtime_ns == facts.st_mtime_ns and tar.stat().st_size == facts.st_size
    world.export()
    row = read_index(folder).query(f"image_id == '{image['image_id']}'").iloc[0]
    bytes_now = tar.read_bytes()[image["offset"] : image["offset"] + image["size_bytes"]]
    assert read_sample(folder, row["key"]).jpeg == bytes_now != world.data[image["image_id"]]
    assert [name for name, time in times(folder).items() if time != before[name]] == [row["shard"]]


def test_a_source_that_was_copied_is_read_once_and_nothing_is_written(world: World) -> None:
    folder, _ = world.export()
    before, tar = times(folder), world.source / "images.tar"
    copy = world.folder / "copy.tar"
    copy.write_bytes(tar.read_bytes())
    copy.replace(tar)
    world.export()
    markers = {m: m.stat().st_mtime_ns for m in (world.folder / "shards-state").glob("*.arrow")}
    world.export()
    assert times(folder) == before
    assert {marker: marker.stat().st_mtime_ns for marker in markers} == markers


def test_force_makes_everything_again(world: World) -> None:
    folder, _ = world.export()
    before, held = times(folder), content(folder)
    world.export(force=True)
    assert all(time > before[name] for name, time in times(folder).items())
    assert content(folder) == held


def test_markers_that_were_damaged_or_swapped_are_not_believed(world: World) -> None:
    folder, _ = world.export()
    held = content(folder)
    first, second, third, *_ = sorted((world.folder / "shards-state").glob("*.arrow"))
    marker = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(marker)
    third.write_bytes(third.read_bytes().replace(b"train-", b"trait-", 1))
    (folder / "manifest.json").unlink()
    world.export()
    assert content(folder) == held


def test_a_folder_with_tars_of_others_is_refused_and_left_alone(world: World) -> None:
    photos = world.folder / "shards/holiday.tar"
    photos.parent.mkdir()
    photos.write_bytes(b"theirs")
    with pytest.raises(InvalidData, match=r"shards: holds holiday\.tar, which hgld export did not"):
        world.export()
    assert [p.name for p in photos.parent.iterdir()] == ["holiday.tar"]


def test_a_foreign_webdataset_with_an_index_of_ours_is_left_alone(world: World) -> None:
    folder, _ = world.export()
    index_shards(folder, replace_export=True)
    (folder / ".writer").unlink()
    before = content(folder)
    with pytest.raises(InvalidData, match="which hgld export did not write"):
        world.export()
    assert content(folder) == before


def test_an_export_over_an_index_of_its_shards_leaves_none_of_its_files(world: World) -> None:
    folder, _ = world.export()
    before = content(folder)
    index_shards(folder, skip_unlabelled=True, replace_export=True)
    assert (folder / "index_rules.json").is_file() and (folder / "index_dropped.csv").is_file()
    (folder / "index_hierarchy.csv").write_text("class,name\n0,a\n")
    world.export()
    assert content(folder) == before
    verify_shards(folder)


def test_an_export_is_not_verified_by_rules_for_shards_of_others(world: World) -> None:
    folder, _ = world.export()
    (folder / "index_rules.json").write_text('{"levels": ["no such key"]}')
    with pytest.raises(InvalidData, match=r"index_rules\.json: is not the file that SHA256SUMS"):
        verify_shards(folder)


def test_shards_that_were_copied_here_without_their_markers_may_be_replaced(world: World) -> None:
    folder, _ = world.export("one")
    copied = world.folder / "two"
    shutil.copytree(folder, copied, ignore=shutil.ignore_patterns(".*"))
    world.export("two", seed=1)
    verify_shards(copied)
    assert content(copied) != content(folder)


@pytest.mark.parametrize("file", ["input.json", "index-000000.tar.arrow"])
def test_a_damaged_note_of_a_stopped_export_is_no_obstacle(world: World, file: str) -> None:
    whole, _ = world.export("whole", shard_megabytes=1)
    with limited_file_size(100_000), pytest.raises(Resumable):
        world.export("stopped", shard_megabytes=1)
    note = world.folder / "stopped-state" / file
    assert note.is_file()
    note.write_bytes(b"\xff not what it was")
    world.export("stopped", shard_megabytes=1)
    assert content(world.folder / "stopped") == content(whole)


@pytest.mark.parametrize("short_side", [None, 9])
def test_a_tar_that_is_gone_is_named_with_the_table_that_names_it(
    world: World, short_side: int | None
) -> None:
    (world.source / "images.tar").unlink()
    with pytest.raises(
        InvalidData, match=r"images\.tar: no such file .*images\.parquet names.* run collect again"
    ):
        world.export(short_side=short_side)


EXPORT = """
import pickle, sys
if __name__ == "__main__":
    world = pickle.load(open(sys.argv[1], "rb"))
    world.export("stopped", shard_megabytes=0.01, processes=int(sys.argv[2]))
"""


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_export_goes_on_and_ends_with_the_same_bytes(
    world: World, processes: int, end: signal.Signals
) -> None:
    whole, _ = world.export("whole", shard_megabytes=0.01)
    (world.folder / "world.pickle").write_bytes(pickle.dumps(world))
    (world.folder / "export.py").write_text(EXPORT)
    out, state = world.folder / "stopped", world.folder / "stopped-state"
    words = [world.folder / "export.py", world.folder / "world.pickle", processes]
    process = Script(words, start_new_session=True, stderr=subprocess.DEVNULL)
    while len(list(state.glob("*.tar.arrow"))) < 3:
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(end)
    process.wait()
    require_none_left(process.pid)
    markers = list(state.glob("*.tar.arrow"))
    kept = {m.stem: (out / m.stem).stat().st_mtime_ns for m in markers}
    assert len(kept) >= 3 and not (out / "manifest.json").exists()
    world.export("stopped", shard_megabytes=0.01)
    assert content(out) == content(whole)
    assert {name: (out / name).stat().st_mtime_ns for name in kept} == kept
    assert not list(out.glob(".*.tmp"))


def require_none_left(group: int) -> None:
    """All processes of the group end."""
    deadline = time.monotonic() + 120
    while True:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < deadline, "workers outlive the process that started them"
        time.sleep(0.05)


def test_a_shard_damaged_after_it_was_finished_is_written_again(world: World) -> None:
    whole, _ = world.export("whole", shard_megabytes=1)  # a small index shard, a large train shard
    with limited_file_size(100_000), pytest.raises(Resumable):
        world.export("stopped", shard_megabytes=1)
    shard = world.folder / "stopped/index-000000.tar"
    assert len(list((world.folder / "stopped-state").glob("*.tar.arrow"))) == 1
    shard.write_bytes(b"damaged" + shard.read_bytes()[7:])
    world.export("stopped", shard_megabytes=1)
    assert content(world.folder / "stopped") == content(whole)


@contextmanager
def limited_file_size(size: int) -> Iterator[None]:
    """No file may grow beyond the size; writing then fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_no_half_shard_and_the_export_goes_on(world: World) -> None:
    whole, _ = world.export("whole")
    with (
        limited_file_size(40_000),
        pytest.raises(Resumable, match=r"tar: no space left for it .* run the same command again"),
    ):
        world.export("full")
    assert not [p.name for p in (world.folder / "full").iterdir() if "tar" in p.name]
    world.export("full")
    assert content(world.folder / "full") == content(whole)


class AbsoluteFolder(tempfile.TemporaryDirectory[str]):
    """As from Python 3.12 on: its path is absolute, although it was made in a relative folder."""

    def __enter__(self) -> str:
        return str(Path(self.name).absolute())


def test_an_export_keeps_its_own_plan_below_a_relative_folder(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = world.export("whole")
    monkeypatch.setattr("hgld.shards.write.TemporaryDirectory", AbsoluteFolder)
    monkeypatch.chdir(world.folder)
    replace(world, folder=Path()).export("relative", force=True)
    assert content(world.folder / "relative") == content(whole)


def test_a_disk_that_is_full_before_the_first_shard_is_told_with_the_file(world: World) -> None:
    large = replace(world, images=LargeTable.of(world.images, world.folder / "images.parquet"))
    told = []
    for images, size in ((world, 100), (large, 100), (large, 3_000)):
        with limited_file_size(size), pytest.raises(OSError, match="File too large") as error:
            images.export("full")
        told.append(Path(error.value.filename).name)
    assert told == ["images", "dropped", "planned"]


def test_a_disk_that_is_full_keeps_the_finished_shards(world: World, tmp_path: Path) -> None:
    whole, _ = world.export("whole", shard_megabytes=0.03)
    disk, out = tmp_path / "disk", world.folder / "full"
    out.symlink_to(disk)
    with small_disk(disk, 256 << 10) as grow:
        (disk / "other").write_bytes(bytes(160_000))
        with pytest.raises(
            Resumable, match=r"tar: no space left for it \(No space left on device\)"
        ):
            world.export("full", shard_megabytes=0.03)
        kept = {p.name: p.stat().st_mtime_ns for p in out.glob("*.tar")}
        assert kept and not (out / "manifest.json").exists()
        assert all((out / name).read_bytes() == (whole / name).read_bytes() for name in kept)
        (disk / "other").unlink()
        grow()
        world.export("full", shard_megabytes=0.03)
        assert content(out) == content(whole)
        assert {name: (out / name).stat().st_mtime_ns for name in kept} == kept


def test_a_folder_that_may_not_be_written_is_named(world: World, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (world.folder / "closed").symlink_to(disk)
    with small_disk(disk, 256 << 10):
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(OSError, match=r"Read-only file system: .*closed"):
            world.export("closed")


def test_a_second_writer_is_refused(world: World) -> None:
    import fcntl

    folder, _ = world.export()
    with (folder / ".writer").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(HgldError, match="another process is writing shards here"):
            world.export()


def test_an_id_may_stand_in_two_splits(world: World) -> None:
    both = world.images.iloc[[0]].assign(split="test", landmark_id=0)
    world.images = pd.concat([world.images, both], ignore_index=True)
    folder, _ = world.export()
    verify_shards(folder)
    assert {"train-t000000", "test-t000000"} <= {s["__key__"] for s in samples(folder)}


def test_ids_with_blanks_slashes_and_letters_beyond_ascii_come_back(world: World) -> None:
    strange = ["a b", "a/b", "d\u00e9j\u00e0.vu", "\u5bfa", ".hidden", "x" * 200, "-", "a%2Fb"]
    world.images = world.images.assign(
        image_id=[*strange, *world.images["image_id"].iloc[len(strange) :]]
    )
    folder, _ = world.export()
    verify_shards(folder)
    found = [json.loads(s["json"])["image_id"] for s in samples(folder)]
    assert sorted(found) == sorted(world.images["image_id"]) and len(set(found)) == 107
    with tarfile.open(next(folder.glob("train-*.tar"))) as tar:
        assert all(name.isascii() and name.count(".") == 1 for name in tar.getnames())


def test_a_split_without_images_has_no_shard(world: World) -> None:
    world.images = world.images.query("split == 'train'")
    folder, _ = world.export()
    assert set(read_manifest(folder)["splits"]) == {"train"}
    assert not list(folder.glob("index*"))[1:]  # index.parquet alone


def test_empty_files_are_dropped_although_they_are_all_of_a_split(world: World) -> None:
    empty = world.images["split"] == "index"
    world.images["size_bytes"] = world.images["size_bytes"].mask(empty, 0)
    folder, dropped = world.export()
    verify_shards(folder)
    assert set(read_index(folder)["split"]) == {"train"}
    assert dropped["reason"].tolist() == ["undecodable"] * empty.sum()


def test_an_id_that_no_reader_accepts_is_dropped(world: World) -> None:
    world.images.loc[0, "image_id"] = "a\tb"
    folder, dropped = world.export()
    assert len(read_index(folder)) == 106
    assert dropped[["image_id", "reason"]].to_numpy().tolist() == [["a\tb", "control character"]]


def test_a_level_named_as_the_number_of_another_keeps_its_names(world: World) -> None:
    paths = [[*json.loads(path).values()] for path in world.hierarchy["path"]]
    names = ("kind", "kind_id", "landmark")
    world.hierarchy["path"] = [json.dumps(dict(zip(names, path, strict=True))) for path in paths]
    folder, _ = world.export()
    verify_shards(folder)
    known = json.loads(samples(folder)[0]["json"])
    assert (
        isinstance(known["kind_id"], int) and known["level_kind_id"] in known["hierarchical_path"]
    )


def test_runs_of_one_image_and_one_class_alone_are_written(world: World) -> None:
    world.images = world.images.query("split == 'train' and landmark_id == 7")
    folder, _ = world.export(run_length=1)
    verify_shards(folder)
    index = read_index(folder)
    assert len(index) == 33 and index["run"].nunique() == 33


def test_a_jpeg_that_claims_to_be_enormous_is_dropped_without_being_decoded(world: World) -> None:
    jpeg = bytearray(draw(5))
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = b"\xea\x60\xea\x60"  # height and width
    (world.source / "huge.jpg").write_bytes(jpeg)
    row = world.images.index[0]
    world.images.loc[row, ["path", "offset", "size_bytes"]] = ["huge.jpg", 0, len(jpeg)]
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20), hard))  # decoding takes 11 GB
    try:
        _, dropped = world.export()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert dropped["reason"].tolist() == ["undecodable"]
    assert "60000 x 60000 pixels" in dropped["detail"].iloc[0]


def test_an_unknown_licence_is_left_out_unless_the_word_is_allowed(world: World) -> None:
    world.images.loc[world.images.index[:5], "license"] = "unknown"
    _, dropped = world.export("known", licenses=("*",))
    assert dropped["reason"].tolist() == ["licence"] * 5
    assert set(dropped["detail"]) == {"licence: unknown"}
    assert len(world.export("all", licenses=("*", "unknown"))[1]) == 0


def test_only_the_named_licences_are_exported(world: World) -> None:
    world.images.loc[world.images.index[:5], "license"] = "CC BY-SA 4.0"
    folder, dropped = world.export("sa", licenses=("cc by-sa*",))
    assert len(read_index(folder)) == 5 and len(dropped) == len(world.images) - 5


def test_images_on_the_removal_list_are_left_out_with_their_reason(world: World) -> None:
    gone = world.images["image_id"].iloc[[2, 30]].tolist()
    removals = pd.DataFrame({"image_id": gone, "why": ["asked by its author", "shows a child"]})
    folder, dropped = world.export(removals=removals)
    assert dropped[["image_id", "reason", "detail"]].to_numpy().tolist() == [
        [gone[0], "removed", "asked by its author"],
        [gone[1], "removed", "shows a child"],
    ]
    assert not set(gone) & set(read_index(folder)["image_id"])


def test_an_id_on_the_removal_list_that_is_of_no_image_is_told(world: World) -> None:
    ids = [world.images["image_id"].iloc[0], "slip"]
    with heard() as said:
        world.export(removals=pd.DataFrame({"image_id": ids, "why": "asked"}))
    assert said == ["removals.csv: 1 of 2 ids is of no image here: slip"]


def test_nothing_left_to_export_says_why(world: World) -> None:
    world.images["license"] = "unknown"
    with pytest.raises(InvalidData, match="no image is left to export: 107 licence"):
        world.export(licenses=("*",))
