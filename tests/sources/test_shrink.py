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
import pandas as pd
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

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
from tests.sources.file_server import Files, FileSite, serve_files
from tests.sources.made_set import FILES, OPTIONS, TARS, in_memory
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


class Site(FileSite):
    """A server of CSVs and tars, and the run that fetches from it and keeps small photos."""

    def options(self, short_side: int | None = SIDE, **changes: object) -> FetchOptions:
        tars = [
            Download(
                url=f"{split}_{{number:03d}}.tar", count=2 if split == "train" else 1,
                megabytes=0.01, md5_url=f"{split}_{{number:03d}}.tar.md5", wanted_csv=csv,
                kept_megabytes=0.002, shards_megabytes=0.003 if split == "index" else 0,
            )
            for split, csv in WANTED.items()
        ]  # fmt: skip
        listed = (*(Download(url=name, megabytes=0.001) for name in FILES), *tars)
        made = FetchOptions(base_url=self.url, downloads=listed, short_side=short_side)
        return made.model_copy(update=changes)

    def fetch(self, short_side: int | None = SIDE, force: bool = False, **changes: object) -> None:
        context = replace(self.context, force=force)
        fetch_files(options=self.options(short_side, **changes), context=context)

    def collected(self) -> tuple[pd.DataFrame, ...]:
        return in_memory(collect(self.folder, options=OPTIONS, context=self.context))

    def names(self) -> set[str]:
        """Names of the files that are no CSVs."""
        return {path.name for path in self.folder.iterdir()} - {*FILES, ".fetch.lock"}

    def tars_asked(self) -> list[str]:
        return [path for path, _ in self.files.asked if path.endswith(".tar")]


@pytest.fixture
def site(context: StageContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(download, "PAUSE_S", 0.01)
    monkeypatch.setattr(download, "BLOCK_BYTES", 2_000)
    served = {name: content.encode() for name, content in FILES.items()}
    for name, photos in PHOTOS.items():
        served[name] = pack(photos)
        served[f"{name}.md5"] = md5(served[name]).hexdigest().encode()
    with serve_files(files := Files(served)) as url:
        yield Site(url, files, context)


KEPT = {name.replace(".tar", ".kept.tar") for name in TARS}


def test_only_wanted_photos_stay_and_no_tar_does(site: Site) -> None:
    site.fetch()
    assert site.names() == KEPT
    kept = {i for name in KEPT for i in unpack(site.folder / name)}
    assert kept == {"0000000000000001", "00000000000000a2", "00000000000000a3",
                    "b1", "b2", "b3", "c1", "c3"}  # fmt: skip


def test_collect_finds_the_same_photos_as_in_whole_tars(site: Site, tmp_path: Path) -> None:
    site.fetch()
    source = site.context.source.model_copy(update={"folder": tmp_path / "whole"})
    whole = replace(site, context=replace(site.context, state=tmp_path / "s", source=source))
    whole.fetch(None)
    small, full = site.collected(), whole.collected()
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


def test_a_second_run_asks_for_nothing(site: Site) -> None:
    site.fetch()
    site.files.asked.clear()
    site.fetch()
    assert site.files.asked == []


def test_a_tar_without_a_wanted_photo_is_not_loaded_again(site: Site) -> None:
    site.files.data["index.csv"] = b"id,landmark_id\nz9,5\n"
    site.fetch()
    assert not list(scan_tar(site.folder / "index_000.kept.tar"))
    site.files.asked.clear()
    site.fetch()
    assert site.files.asked == []


def test_another_size_is_made_anew(site: Site) -> None:
    site.fetch()
    site.fetch(20)
    data = unpack(site.folder / "index_000.kept.tar")["b1"]
    assert Image.open(io.BytesIO(data)).size == (30, 20)


def test_another_list_of_wanted_photos_is_made_anew(site: Site) -> None:
    site.fetch()
    (site.folder / "clean.csv").write_text("landmark_id,images\n7,00000000000000a4\n")
    site.fetch()
    assert list(unpack(site.folder / "train_001.kept.tar")) == ["00000000000000a4"]


def test_what_is_planned_is_what_another_list_of_wanted_photos_brings(site: Site) -> None:
    folder, listed = site.folder, site.options()
    site.fetch()
    assert plan_downloads(listed, folder) == [] and sample_bandwidth(listed, folder) == 0
    (folder / "clean.csv").write_text("landmark_id,images\n7,00000000000000a4\n")
    found, planned = estimate_fetch(listed, folder), plan_downloads(listed, folder)
    assert (found.to_load, found.to_load_bytes) == (2, 20_000)
    assert sample_bandwidth(listed, folder) > 0
    site.files.asked.clear()
    site.fetch()
    loaded = set(site.tars_asked())
    assert loaded == {path.name for _, path, _ in planned} == {"train_000.tar", "train_001.tar"}
    assert estimate_fetch(listed, folder).to_load == 0


def test_photos_of_before_are_on_the_disk_until_others_take_their_place(site: Site) -> None:
    folder, listed = site.folder, site.options()
    site.fetch()
    before = estimate_fetch(listed, folder)
    (folder / "clean.csv").write_text("landmark_id,images\n7,00000000000000a4\n")
    old = [(folder / f"train_00{n}.kept.tar").stat().st_size for n in range(2)]
    found = estimate_fetch(listed, folder)
    assert found.stays_bytes == before.stays_bytes - sum(old) + 2 * 2_000  # as stated
    assert found.there_bytes == found.stays_bytes  # all is, of before
    assert found.peak_bytes == found.stays_bytes + 2 * (10_000 + 2_000)  # both tars, old photos


def test_while_the_csvs_are_not_there_kept_photos_count_as_the_wanted_ones(site: Site) -> None:
    site.fetch()
    (site.folder / "clean.csv").unlink()
    assert estimate_fetch(site.options(), site.folder).to_load_bytes == 1_000  # of the CSV
    assert estimate_fetch(site.options(20), site.folder).to_load == 1 + 4


def test_a_whole_tar_of_a_persons_own_is_used_and_never_removed(site: Site) -> None:
    site.folder.mkdir(parents=True)
    own = site.folder / "index_000.tar"
    own.write_bytes(site.files.data["index_000.tar"])
    site.fetch()
    assert own.read_bytes() == site.files.data["index_000.tar"]
    assert site.names() == {*KEPT, "index_000.tar"} - {"index_000.kept.tar"}


def test_whole_tars_take_the_place_of_kept_photos(site: Site) -> None:
    site.fetch()
    site.fetch(None)
    assert site.names() == set(TARS)


def test_a_wrong_md5_keeps_nothing_of_the_tar(site: Site) -> None:
    site.files.data["index_000.tar.md5"] = b"0" * 32
    with pytest.raises(InvalidData, match=r"index_000\.tar: MD5 is .* says 0{32}"):
        site.fetch()
    assert site.names() == KEPT - {"index_000.kept.tar"}


def test_what_is_no_tar_is_told_and_not_kept(site: Site) -> None:
    site.files.data["index_000.tar"] = b"<html>" * 200
    site.files.data["index_000.tar.md5"] = md5(b"<html>" * 200).hexdigest().encode()
    with pytest.raises(InvalidData, match="not a tar header at byte 0"):
        site.fetch()
    assert site.names() == KEPT - {"index_000.kept.tar"}


@pytest.mark.parametrize("how", ["seen", "forced"])
def test_a_kept_tar_that_lost_a_bit_is_loaded_again(site: Site, how: str) -> None:
    site.fetch()
    kept = site.folder / "index_000.kept.tar"
    right, facts = kept.read_bytes(), kept.stat()
    damaged = bytearray(right)
    damaged[-2000] ^= 1
    kept.write_bytes(damaged)
    os.utime(kept, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    site.files.asked.clear()
    site.fetch(force=how == "forced")
    assert site.tars_asked() == ["index_000.tar"]
    assert kept.read_bytes() == right
    site.files.asked.clear()
    site.fetch()
    assert not site.tars_asked()


def test_a_kept_tar_appears_only_when_it_is_whole(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def fail(path: Path, target: Path) -> Path:
        if ".kept." in path.name:
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(Path, "replace", fail)
        site.fetch()
    assert not {name for name in site.names() if ".kept." in name}
    site.fetch()
    assert site.names() == KEPT


def test_the_loaded_tar_goes_when_the_name_of_the_kept_one_is_on_the_disk(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, sync, seen = site.folder / "index_000.kept.tar", os.fsync, []

    def spy(handle: int) -> None:
        sync(handle)
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            seen.append((kept.exists(), (kept.parent / "index_000.tar.part").exists()))

    monkeypatch.setattr(os, "fsync", spy)
    site.fetch(parallel=1)
    assert (True, True) in seen and not (kept.parent / "index_000.tar.part").exists()


def test_a_folder_where_kept_photos_belong_is_told_before_anything_is_loaded(site: Site) -> None:
    (site.folder / "index_000.kept.tar").mkdir(parents=True)
    with pytest.raises(InvalidData, match=r"index_000\.kept\.tar: a folder stands where a file"):
        site.fetch()
    assert "index_000.tar" not in {path for path, _ in site.files.asked}


def test_killed_while_it_resizes_it_starts_that_tar_again_from_the_disk(site: Site) -> None:
    many = {f"b{number}": photo(number, (1600, 1200)) for number in range(40)}
    site.files.data["index_000.tar"] = pack(many)
    site.files.data["index_000.tar.md5"] = (
        md5(site.files.data["index_000.tar"]).hexdigest().encode()
    )
    site.files.data["index.csv"] = b"id,landmark_id\n" + b"".join(b"b%d,5\n" % n for n in range(40))
    code = (
        "import sys, pickle; from hgld.sources.fetch import fetch_files; "
        "o, c = pickle.load(sys.stdin.buffer); fetch_files(options=o, context=c)"
    )
    run = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert run.stdin is not None
    run.stdin.write(pickle.dumps((site.options(), site.context)))
    run.stdin.close()
    begun, end = f".index_000.kept.tar.{run.pid}.tmp", monotonic() + 300
    while not (site.folder / begun).exists() and monotonic() < end:
        sleep(0.005)
    run.kill()
    run.wait()
    assert (site.folder / begun).exists()
    assert not (site.folder / "index_000.kept.tar").exists()
    site.files.asked.clear()
    site.fetch()
    assert site.names() == KEPT
    assert len(unpack(site.folder / "index_000.kept.tar")) == 40
    size = len(site.files.data["index_000.tar"])
    ranges = [asked for path, asked in site.files.asked if path == "index_000.tar"]
    assert ranges == [f"bytes={size}-"]  # all of it was on the disk


def test_killed_before_the_loaded_tar_goes_it_goes_with_the_next_run(site: Site) -> None:
    site.fetch()
    part = site.folder / "index_000.tar.part"
    for force in (False, True):
        part.write_bytes(site.files.data["index_000.tar"])
        part.with_name(f"{part.name}.version").write_text("1")
        site.fetch(force=force)
        assert site.names() == KEPT


def test_a_folder_that_cannot_be_written_serves_if_it_has_all_kept_photos(site: Site) -> None:
    fetch = partial(fetch_files, options=site.options(), context=site.context)
    assert asked_of_read_only(fetch, site.folder, site.files) == []


def test_a_tar_that_becomes_shorter_while_it_is_read_is_not_kept(
    site: Site, tmp_path: Path
) -> None:
    tar, kept = tmp_path / "a.tar", tmp_path / "a.kept.tar"
    tar.write_bytes(site.files.data["index_000.tar"])
    members = tuple(scan_tar(tar))
    os.truncate(tar, members[-1].offset + 10)
    with pytest.raises(Resumable, match=rf"a\.tar: ends within \S*{members[-1].stem}\.jpg, so"):
        shrink_tar(ShrinkTask(tar, kept, members, "", (SIDE, 80)))
    assert not kept.exists()


def test_photos_of_tars_that_were_not_fetched_are_dropped_with_that_reason(site: Site) -> None:
    site.fetch(tars="0")
    _, images, _, dropped = site.collected()
    lost = dropped[dropped["reason"] == "not in tar"]
    assert lost["image_id"].tolist() == ["00000000000000a3"]
    assert set(images["path"]) == KEPT - {"train_001.kept.tar"}


def test_a_full_disk_is_resumable(site: Site) -> None:
    room = 4096 * len(FILES) + 12_000  # the CSVs, and half a tar
    with small_disk(site.folder, room) as grow:
        with pytest.raises(Resumable, match="No space left on device"):
            site.fetch()
        grow()
        site.fetch()
        assert site.names() == KEPT


def test_a_disk_that_is_full_while_it_resizes_keeps_the_loaded_tar_alone(
    site: Site, tmp_path: Path
) -> None:
    data = site.files.data["index_000.tar"] = pack({"b1": photo(1, (900, 600))})
    file, room = (
        RemoteFile(f"{site.url}index_000.tar", tmp_path / "s/index_000.tar", len(data), ""),
        8192,
    )
    with small_disk(file.path.parent, -(-len(data) // 4096) * 4096 + room) as grow:
        with pytest.raises(Resumable, match="No space left on device; the tar it is made from is"):
            download_kept(file, ALL, 590, 100, Event(), tmp_path / "notes")
        left = {path.name for path in file.path.parent.iterdir()}
        assert left == {"index_000.tar.part", "index_000.tar.part.version"}
        grow()
        assert download_kept(file, ALL, 590, 100, Event(), tmp_path / "notes")[0] == 1


def test_a_wanted_list_that_is_not_fetched_is_told(site: Site) -> None:
    without = tuple(d for d in site.options().downloads if d.url != "index.csv")
    with pytest.raises(InvalidData, match=r"index\.csv: no such file; fetch\.downloads says"):
        site.fetch(downloads=without)


def test_the_estimate_counts_kept_photos_and_tars_on_the_way(site: Site) -> None:
    found = estimate_fetch(site.options(parallel=2), site.folder, True)
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


def test_a_png_with_a_comment_is_made_smaller_and_keeps_it() -> None:
    """It stayed as large as it was: of a PNG a comment is text, not bytes."""
    data, known = io.BytesIO(), PngInfo()
    known.add_text("comment", "by Ann Mole")
    Image.new("RGB", (2 * SIDE, 3 * SIDE)).save(data, "PNG", pnginfo=known)
    small = Image.open(io.BytesIO(shrink_jpeg(data.getvalue(), SIDE, 80)))
    assert small.format == "JPEG" and min(small.size) == SIDE
    assert small.info["comment"].endswith(b"\nby Ann Mole")


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


def test_a_kept_tar_is_read_by_its_headers(site: Site) -> None:
    site.fetch()
    path = site.folder / "index_000.kept.tar"
    found = {Path(m.name).stem: m for m in scan_tar(path)}
    with path.open("rb") as file:
        for image_id, data in unpack(path).items():
            assert os.pread(file.fileno(), found[image_id].size_bytes,
                            found[image_id].offset) == data  # fmt: skip
