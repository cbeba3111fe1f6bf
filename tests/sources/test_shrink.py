import io
import os
import pickle
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from hashlib import md5
from pathlib import Path
from threading import Event
from time import monotonic, sleep

import numpy as np
import pytest
from PIL import Image

from hgld.artifacts import declared_table
from hgld.config import Download, FetchOptions, StageContext
from hgld.errors import InvalidData, Resumable
from hgld.images import read_note, resize, shrink_jpeg
from hgld.shards.sample import Encoding, encode_image
from hgld.shards.tar import scan_tar
from hgld.sources import download
from hgld.sources.download import RemoteFile
from hgld.sources.fetch import estimate_fetch, fetch_files, plan_downloads, sample_bandwidth
from hgld.sources.gldv2 import collect
from hgld.sources.shrink import ALL, ShrinkTask, download_kept, read_wanted, shrink_tar
from tests.sources.file_server import Files, serve_files
from tests.sources.made_set import FILES, OPTIONS, TARS, folder_of, in_memory
from tests.sources.small_disk import asked_of_read_only, small_disk

SIDE = 32


def photo(number: int, size: tuple[int, int] = (120, 80), **more: object) -> bytes:
    """A photo with something to see in it."""
    make = np.random.default_rng(number)
    small = make.integers(0, 255, (8, 12, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(small).resize(size).save(buffer, "JPEG", quality=92, **more)
    return buffer.getvalue()


def pack(photos: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for image_id, data in photos.items():
            member = tarfile.TarInfo(f"{'/'.join(image_id[:3])}/{image_id}.jpg")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def unpack(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {Path(m.name).stem: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]


PHOTOS = {name: {i: photo(n) for n, i in enumerate(ids)} for name, ids in TARS.items()}
WANTED = {"train": "clean.csv", "index": "index.csv", "test": "solution.csv"}


@pytest.fixture
def files() -> Files:
    served = {name: content.encode() for name, content in FILES.items()}
    for name, photos in PHOTOS.items():
        served[name] = pack(photos)
        served[f"{name}.md5"] = md5(served[name]).hexdigest().encode()
    return Files(served)


@pytest.fixture
def url(files: Files, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(download, "PAUSE_S", 0.01)
    monkeypatch.setattr(download, "BLOCK_BYTES", 2_000)
    with serve_files(files) as base:
        yield base


def options(url: str, short_side: int | None = SIDE, **changes: object) -> FetchOptions:
    tars = [
        Download(
            url=f"{split}_{{number:03d}}.tar", count=2 if split == "train" else 1, megabytes=0.01,
            md5_url=f"{split}_{{number:03d}}.tar.md5", wanted_csv=csv, kept_megabytes=0.002,
            shards_megabytes=0.003 if split == "index" else 0,
        )
        for split, csv in WANTED.items()
    ]  # fmt: skip
    listed = (*(Download(url=name, megabytes=0.001) for name in FILES), *tars)
    made = FetchOptions(base_url=url, downloads=listed, short_side=short_side)
    return made.model_copy(update=changes)


def names(context: StageContext) -> set[str]:
    return {p.name for p in folder_of(context).iterdir()} - {*FILES, ".fetch.lock"}


KEPT = {name.replace(".tar", ".kept.tar") for name in TARS}


def test_only_wanted_photos_stay_and_no_tar_does(
    files: Files, url: str, context: StageContext
) -> None:
    fetch_files(options=options(url), context=context)
    assert names(context) == KEPT
    kept = {i for name in KEPT for i in unpack(folder_of(context) / name)}
    assert kept == {"0000000000000001", "00000000000000a2", "00000000000000a3",
                    "b1", "b2", "b3", "c1", "c3"}  # fmt: skip


def test_collect_finds_the_same_photos_as_in_whole_tars(
    files: Files, url: str, context: StageContext, tmp_path: Path
) -> None:
    fetch_files(options=options(url), context=context)
    whole = StageContext(context.now, tmp_path / "s",
                         context.source.model_copy(update={"folder": tmp_path / "whole"}),
                         context.labels)  # fmt: skip
    fetch_files(options=options(url, None), context=whole)
    small, full = (
        in_memory(collect(folder_of(c), options=OPTIONS, context=c)) for c in (context, whole)
    )  # fmt: skip
    place = ["path", "offset", "size_bytes"]
    assert small[1].drop(columns=place).equals(full[1].drop(columns=place))
    assert (small[1]["size_bytes"] < full[1]["size_bytes"]).all()
    for name, one, other in zip(
        ("landmarks", "queries", "images_dropped"), small[::2] + small[3:], full[::2] + full[3:],
        strict=True,
    ):  # fmt: skip
        table = declared_table(name)
        key = list(table.key)
        assert (
            one.sort_values(key)
            .reset_index(drop=True)
            .equals(other.sort_values(key).reset_index(drop=True))
        )


def test_a_second_run_asks_for_nothing(files: Files, url: str, context: StageContext) -> None:
    fetch_files(options=options(url), context=context)
    files.asked.clear()
    fetch_files(options=options(url), context=context)
    assert files.asked == []


def test_a_tar_without_a_wanted_photo_is_not_loaded_again(
    files: Files, url: str, context: StageContext
) -> None:
    files.data["index.csv"] = b"id,landmark_id\nz9,5\n"
    fetch_files(options=options(url), context=context)
    assert not list(scan_tar(folder_of(context) / "index_000.kept.tar"))
    files.asked.clear()
    fetch_files(options=options(url), context=context)
    assert files.asked == []


def test_another_size_is_made_anew(files: Files, url: str, context: StageContext) -> None:
    fetch_files(options=options(url), context=context)
    fetch_files(options=options(url, 20), context=context)
    data = unpack(folder_of(context) / "index_000.kept.tar")["b1"]
    assert Image.open(io.BytesIO(data)).size == (30, 20)


def test_another_list_of_wanted_photos_is_made_anew(
    files: Files, url: str, context: StageContext
) -> None:
    fetch_files(options=options(url), context=context)
    (folder_of(context) / "clean.csv").write_text("landmark_id,images\n7,00000000000000a4\n")
    fetch_files(options=options(url), context=context)
    assert list(unpack(folder_of(context) / "train_001.kept.tar")) == ["00000000000000a4"]


def test_what_is_planned_is_what_another_list_of_wanted_photos_brings(
    files: Files, url: str, context: StageContext
) -> None:
    folder, listed = folder_of(context), options(url)
    fetch_files(options=listed, context=context)
    assert plan_downloads(listed, folder) == [] and sample_bandwidth(listed, folder) == 0
    (folder / "clean.csv").write_text("landmark_id,images\n7,00000000000000a4\n")
    found, planned = estimate_fetch(listed, folder), plan_downloads(listed, folder)
    assert (found.to_load, found.to_load_bytes) == (2, 20_000)
    assert sample_bandwidth(listed, folder) > 0
    files.asked.clear()
    fetch_files(options=listed, context=context)
    loaded = {path for path, _ in files.asked if path.endswith(".tar")}
    assert loaded == {path.name for _, path, _ in planned} == {"train_000.tar", "train_001.tar"}
    assert estimate_fetch(listed, folder).to_load == 0


def test_photos_of_before_are_on_the_disk_until_others_take_their_place(
    url: str, context: StageContext
) -> None:
    folder, listed = folder_of(context), options(url)
    fetch_files(options=listed, context=context)
    before = estimate_fetch(listed, folder)
    (folder / "clean.csv").write_text("landmark_id,images\n7,00000000000000a4\n")
    old = [(folder / f"train_00{n}.kept.tar").stat().st_size for n in range(2)]
    found = estimate_fetch(listed, folder)
    assert found.stays_bytes == before.stays_bytes - sum(old) + 2 * 2_000  # as stated
    assert found.there_bytes == found.stays_bytes  # all is, of before
    assert found.peak_bytes == found.stays_bytes + 2 * (10_000 + 2_000)  # both tars, old photos


def test_while_the_csvs_are_not_there_kept_photos_count_as_the_wanted_ones(
    url: str, context: StageContext
) -> None:
    fetch_files(options=options(url), context=context)
    (folder_of(context) / "clean.csv").unlink()
    assert estimate_fetch(options(url), folder_of(context)).to_load_bytes == 1_000  # of the CSV
    assert estimate_fetch(options(url, 20), folder_of(context)).to_load == 1 + 4


def test_a_whole_tar_of_a_persons_own_is_used_and_never_removed(
    files: Files, url: str, context: StageContext
) -> None:
    folder_of(context).mkdir(parents=True)
    own = folder_of(context) / "index_000.tar"
    own.write_bytes(files.data["index_000.tar"])
    fetch_files(options=options(url), context=context)
    assert own.read_bytes() == files.data["index_000.tar"]
    assert names(context) == {*KEPT, "index_000.tar"} - {"index_000.kept.tar"}


def test_whole_tars_take_the_place_of_kept_photos(
    files: Files, url: str, context: StageContext
) -> None:
    fetch_files(options=options(url), context=context)
    fetch_files(options=options(url, None), context=context)
    assert names(context) == set(TARS)


def test_a_wrong_md5_keeps_nothing_of_the_tar(
    files: Files, url: str, context: StageContext
) -> None:
    files.data["index_000.tar.md5"] = b"0" * 32
    with pytest.raises(InvalidData, match=r"index_000\.tar: MD5 is .* says 0{32}"):
        fetch_files(options=options(url), context=context)
    assert names(context) == KEPT - {"index_000.kept.tar"}


def test_what_is_no_tar_is_told_and_not_kept(files: Files, url: str, context: StageContext) -> None:
    files.data["index_000.tar"] = b"<html>" * 200
    files.data["index_000.tar.md5"] = md5(b"<html>" * 200).hexdigest().encode()
    with pytest.raises(InvalidData, match="not a tar header at byte 0"):
        fetch_files(options=options(url), context=context)
    assert names(context) == KEPT - {"index_000.kept.tar"}


@pytest.mark.parametrize("how", ["seen", "forced"])
def test_a_kept_tar_that_lost_a_bit_is_loaded_again(
    files: Files, url: str, context: StageContext, how: str
) -> None:
    fetch_files(options=options(url), context=context)
    kept = folder_of(context) / "index_000.kept.tar"
    right, facts = kept.read_bytes(), kept.stat()
    damaged = bytearray(right)
    damaged[-2000] ^= 1
    kept.write_bytes(damaged)
    os.utime(kept, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    files.asked.clear()
    fetch_files(options=options(url), context=replace(context, force=how == "forced"))
    assert [path for path, _ in files.asked if path.endswith(".tar")] == ["index_000.tar"]
    assert kept.read_bytes() == right
    files.asked.clear()
    fetch_files(options=options(url), context=context)
    assert not [path for path, _ in files.asked if path.endswith(".tar")]


def test_a_kept_tar_appears_only_when_it_is_whole(
    files: Files, url: str, context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def fail(path: Path, target: Path) -> Path:
        if ".kept." in path.name:
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(Path, "replace", fail)
        fetch_files(options=options(url), context=context)
    assert not {name for name in names(context) if ".kept." in name}
    fetch_files(options=options(url), context=context)
    assert names(context) == KEPT


def test_the_loaded_tar_goes_when_the_name_of_the_kept_one_is_on_the_disk(
    url: str, context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, sync, seen = folder_of(context) / "index_000.kept.tar", os.fsync, []

    def spy(handle: int) -> None:
        sync(handle)
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            seen.append((kept.exists(), (kept.parent / "index_000.tar.part").exists()))

    monkeypatch.setattr(os, "fsync", spy)
    fetch_files(options=options(url, parallel=1), context=context)
    assert (True, True) in seen and not (kept.parent / "index_000.tar.part").exists()


def test_a_folder_where_kept_photos_belong_is_told_before_anything_is_loaded(
    files: Files, url: str, context: StageContext
) -> None:
    (folder_of(context) / "index_000.kept.tar").mkdir(parents=True)
    with pytest.raises(InvalidData, match=r"index_000\.kept\.tar: a folder stands where a file"):
        fetch_files(options=options(url), context=context)
    assert "index_000.tar" not in {path for path, _ in files.asked}


def test_killed_while_it_resizes_it_starts_that_tar_again_from_the_disk(
    files: Files, url: str, context: StageContext
) -> None:
    many = {f"b{number}": photo(number, (1600, 1200)) for number in range(40)}
    files.data["index_000.tar"] = pack(many)
    files.data["index_000.tar.md5"] = md5(files.data["index_000.tar"]).hexdigest().encode()
    files.data["index.csv"] = b"id,landmark_id\n" + b"".join(b"b%d,5\n" % n for n in range(40))
    code = (
        "import sys, pickle; from hgld.sources.fetch import fetch_files; "
        "o, c = pickle.load(sys.stdin.buffer); fetch_files(options=o, context=c)"
    )
    run = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert run.stdin is not None
    run.stdin.write(pickle.dumps((options(url), context)))
    run.stdin.close()
    begun, end = f".index_000.kept.tar.{run.pid}.tmp", monotonic() + 300
    while not (folder_of(context) / begun).exists() and monotonic() < end:
        sleep(0.005)
    run.kill()
    run.wait()
    assert (folder_of(context) / begun).exists()
    assert not (folder_of(context) / "index_000.kept.tar").exists()
    files.asked.clear()
    fetch_files(options=options(url), context=context)
    assert names(context) == KEPT
    assert len(unpack(folder_of(context) / "index_000.kept.tar")) == 40
    size = len(files.data["index_000.tar"])
    ranges = [asked for path, asked in files.asked if path == "index_000.tar"]
    assert ranges == [f"bytes={size}-"]  # all of it was on the disk


def test_killed_before_the_loaded_tar_goes_it_goes_with_the_next_run(
    files: Files, url: str, context: StageContext
) -> None:
    fetch_files(options=options(url), context=context)
    part = folder_of(context) / "index_000.tar.part"
    for force in (False, True):
        part.write_bytes(files.data["index_000.tar"])
        part.with_name(f"{part.name}.version").write_text("1")
        fetch_files(options=options(url), context=replace(context, force=force))
        assert names(context) == KEPT


def test_a_folder_that_cannot_be_written_serves_if_it_has_all_kept_photos(
    files: Files, url: str, context: StageContext
) -> None:
    fetch = partial(fetch_files, options=options(url), context=context)
    assert asked_of_read_only(fetch, folder_of(context), files) == []


def test_a_tar_that_becomes_shorter_while_it_is_read_is_not_kept(
    files: Files, tmp_path: Path
) -> None:
    tar, kept = tmp_path / "a.tar", tmp_path / "a.kept.tar"
    tar.write_bytes(files.data["index_000.tar"])
    members = tuple(scan_tar(tar))
    os.truncate(tar, members[-1].offset + 10)
    with pytest.raises(Resumable, match=rf"a\.tar: ends within \S*{members[-1].stem}\.jpg, so"):
        shrink_tar(ShrinkTask(tar, kept, members, "", (SIDE, 80)))
    assert not kept.exists()


def test_photos_of_tars_that_were_not_fetched_are_dropped_with_that_reason(
    files: Files, url: str, context: StageContext
) -> None:
    fetch_files(options=options(url, tars="0"), context=context)
    made = collect(folder_of(context), options=OPTIONS, context=context)
    _, images, _, dropped = in_memory(made)
    lost = dropped[dropped["reason"] == "not in tar"]
    assert lost["image_id"].tolist() == ["00000000000000a3"]
    assert set(images["path"]) == KEPT - {"train_001.kept.tar"}


def test_a_full_disk_is_resumable(files: Files, url: str, context: StageContext) -> None:
    room = 4096 * len(FILES) + 12_000  # the CSVs, and half a tar
    with small_disk(folder_of(context), room) as grow:
        with pytest.raises(Resumable, match="No space left on device"):
            fetch_files(options=options(url), context=context)
        grow()
        fetch_files(options=options(url), context=context)
        assert names(context) == KEPT


def test_a_disk_that_is_full_while_it_resizes_keeps_the_loaded_tar_alone(
    files: Files, url: str, tmp_path: Path
) -> None:
    data = files.data["index_000.tar"] = pack({"b1": photo(1, (900, 600))})
    file, room = (
        RemoteFile(f"{url}index_000.tar", tmp_path / "s/index_000.tar", len(data), ""),
        8192,
    )
    with small_disk(file.path.parent, -(-len(data) // 4096) * 4096 + room) as grow:
        with pytest.raises(Resumable, match="No space left on device; the tar it is made from is"):
            download_kept(file, ALL, 590, 100, Event(), tmp_path / "notes")
        left = {path.name for path in file.path.parent.iterdir()}
        assert left == {"index_000.tar.part", "index_000.tar.part.version"}
        grow()
        assert download_kept(file, ALL, 590, 100, Event(), tmp_path / "notes").kept == 1


def test_a_wanted_list_that_is_not_fetched_is_told(url: str, context: StageContext) -> None:
    listed = options(url)
    without = tuple(d for d in listed.downloads if d.url != "index.csv")
    with pytest.raises(InvalidData, match=r"index\.csv: no such file; fetch\.downloads says"):
        fetch_files(options=listed.model_copy(update={"downloads": without}), context=context)


def test_the_estimate_counts_kept_photos_and_tars_on_the_way(context: StageContext) -> None:
    found = estimate_fetch(options("http://a.example/", parallel=2), folder_of(context), True)
    csvs = 1_000 * len(FILES)
    assert found.size_bytes == csvs + 4 * 10_000
    assert (found.stays_bytes, found.peak_bytes) == (csvs + 4 * 2_000, csvs + 4 * 2_000 + 20_000)
    assert found.shards_bytes == 3_000 + 3 * 2_000  # of index as stated, of the others all
    assert found.most_bytes == found.peak_bytes  # the tars on the way take more than the shards


def test_wanted_ids_of_each_kind_of_csv(tmp_path: Path) -> None:
    for name in WANTED.values():
        (tmp_path / name).write_text(FILES[name], encoding="utf-8", newline="")
    assert [list(read_wanted(tmp_path / name).ids) for name in WANTED.values()] == [  # type: ignore[arg-type]
        [b"0000000000000001", b"00000000000000a2", b"00000000000000a3"],
        [b"b1", b"b2", b"b3"],
        [b"c1", b"c3"],
    ]


def test_photos_of_landmarks_without_a_label_can_be_left_out(tmp_path: Path) -> None:
    for name in ("clean.csv", "index.csv"):
        (tmp_path / name).write_text(FILES[name], encoding="utf-8", newline="")
    labels = tmp_path / "labels.csv"
    labels.write_text("landmark_id,hierarchical_label\n5, \n6,parks\n7,lake\n")
    found = [read_wanted(tmp_path / name, labels).ids for name in ("clean.csv", "index.csv")]
    assert [list(ids) for ids in found] == [[b"00000000000000a3"], [b"b3"]]  # type: ignore[arg-type]


def test_a_kept_photo_has_the_pixels_that_export_would_make() -> None:
    data = photo(0)
    small = shrink_jpeg(data, SIDE, 90)
    made = encode_image(data, Encoding(SIDE, 90))
    assert np.array_equal(Image.open(io.BytesIO(small)), Image.open(io.BytesIO(made.data)))


def test_a_sample_of_a_kept_photo_tells_what_was_done_to_it() -> None:
    made = encode_image(shrink_jpeg(photo(0), SIDE, 80), Encoding(SIDE, 90))
    assert (made.width, made.height, made.orig_width, made.orig_height) == (48, 32, 120, 80)
    assert made.changes == f"resized to short side {SIDE}, JPEG quality 80"
    again = encode_image(shrink_jpeg(photo(0), SIDE, 80), Encoding(16, 90))
    assert (again.width, again.orig_width) == (24, 120)
    assert again.changes.endswith("80, resized to short side 16, JPEG quality 90")


def test_a_photos_own_comment_stays_after_the_note() -> None:
    small = shrink_jpeg(photo(0, comment=b"by Ann Mole"), SIDE, 80)
    note = read_note(small)
    assert note is not None and (note.width, note.height) == (120, 80)
    assert Image.open(io.BytesIO(small)).info["comment"].endswith(b"\nby Ann Mole")


@pytest.mark.parametrize("data", [b"", b"no photo", photo(0)[:200], photo(0, (40, SIDE))])
def test_what_is_small_or_damaged_stays_as_it_is(data: bytes) -> None:
    assert shrink_jpeg(data, SIDE, 80) == data


def test_a_turned_photo_is_kept_upright() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    small = shrink_jpeg(photo(0, exif=turned), SIDE, 80)
    assert Image.open(io.BytesIO(small)).size == (SIDE, 48)


def test_sizes_are_rounded_as_in_export() -> None:
    assert resize(Image.new("RGB", (333, 100)), 50).size == (166, 50)  # 166.5 to even


def test_a_kept_tar_is_read_by_its_headers(files: Files, url: str, context: StageContext) -> None:
    fetch_files(options=options(url), context=context)
    path = folder_of(context) / "index_000.kept.tar"
    found = {Path(m.name).stem: m for m in scan_tar(path)}
    with path.open("rb") as file:
        for image_id, data in unpack(path).items():
            assert os.pread(file.fileno(), found[image_id].size_bytes,
                            found[image_id].offset) == data  # fmt: skip
