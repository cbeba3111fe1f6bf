import re
from hashlib import md5
from pathlib import Path

import pytest

from hgld.sources import download
from hgld.sources.download import RemoteFile
from tests.in_process import hgld
from tests.sources.file_server import Files, serve_files

GLDV2 = "pipelines/gldv2.toml"


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_estimate_of_the_whole_set_says_bytes_disk_and_time(tmp_path: Path) -> None:
    done = hgld("fetch", GLDV2, "--estimate", "--bandwidth", "10", "--work", tmp_path)
    out = words(done.out)
    assert out.startswith("listed 630 files, 597 GB to load 630 files, 597 GB disk 597 GB when")
    assert out.endswith("time 16 h 34 min at 10 MB/s, as stated")


# Shards: (970,981 + 450,000) photos of 19.8 kB; kept: 500 x 52 (or x 32) + 100 x 125 + 20 MB; CSVs
SMALL = "40 GB when done, 46 GB on the way", "28.2 GB more, once export has run: 68.2 GB at most"
LABELLED = "30.1 GB when done, 36.1 GB on the way", "28.2 GB more, once export has run: 58.2 GB at"


@pytest.mark.parametrize(
    ("pipeline", "disk", "shards"), [(GLDV2, *SMALL), ("pipelines/h-gldv2.toml", *LABELLED)]
)
def test_resized_as_they_come_the_labelled_photos_need_a_tenth_of_the_disk(
    pipeline: str, disk: str, shards: str, tmp_path: Path
) -> None:
    given = ("--set", "fetch.short_side=256", "--work", tmp_path)
    out = words(hgld("fetch", pipeline, "--estimate", "--bandwidth", "10", *given).out)
    assert f"disk {disk}" in out and f"shards about {shards}" in out


def test_from_scratch_the_labels_made_first_leave_the_same_disk_as_published_ones(
    tmp_path: Path,
) -> None:
    text = Path(GLDV2).read_text("utf-8")
    more = re.search(r'labelled_csv = "[^"]+", kept_megabytes = 32', text)
    assert more is not None and text.count("kept_megabytes = 52") == 1
    (tmp_path / "own.toml").write_text(text.replace("kept_megabytes = 52", more[0]))
    given = ("--set", "fetch.short_side=256", "--work", tmp_path)
    own = tmp_path / "own.toml"
    out = words(hgld("fetch", own, "--estimate", "--bandwidth", "10", *given).out)
    assert "30 GB when done, 36 GB on the way" in out and "58.2 GB at most, in all" in out


def test_a_part_of_the_tars_is_estimated_and_fetched_alone(tmp_path: Path) -> None:
    files = Files({f"t/{number}.bin": bytes(1000) for number in range(4)})
    with serve_files(files) as url:
        pipeline = tmp_path / "own.toml"
        pipeline.write_text(
            f'labels = "labels"\n[fetch]\nbase_url = "{url}"\n'
            'downloads = [{ url = "t/{number}.bin", count = 4, megabytes = 0.001 }]\n'
        )
        own = (pipeline, "--work", tmp_path / "work", "--tars", "1-2")
        assert "as measured now" in words(hgld("fetch", *own, "--estimate").out)
        hgld("fetch", *own)
    assert sorted(p.name for p in (tmp_path / "work/source/t").iterdir()) == ["1.bin", "2.bin"]


def test_without_a_connection_the_estimate_says_how_to_state_the_bandwidth(tmp_path: Path) -> None:
    nowhere = ("--set", 'fetch.base_url="http://127.0.0.1:9/"', "--work", tmp_path)
    out = words(hgld("fetch", GLDV2, "--estimate", *nowhere).out)
    assert "time not known:" in out and out.endswith("state it with --bandwidth")


@pytest.mark.parametrize("given", [("--bandwidth", "10"), ("--estimate", "--bandwidth", "0")])
def test_a_bandwidth_without_use_is_a_usage_error(given: tuple[str, ...], tmp_path: Path) -> None:
    done = hgld("fetch", GLDV2, *given, "--work", tmp_path, code=2)
    assert "--bandwidth: expected megabytes a second above 0" in done.err


def test_force_finds_what_no_note_shows(tmp_path: Path) -> None:
    data = bytes(1000)
    files = Files({"a.bin": data, "a.md5": md5(data).hexdigest().encode()})
    pipeline = tmp_path / "own.toml"
    own = ("fetch", pipeline, "--work", tmp_path / "work")
    path, notes = tmp_path / "work/source/a.bin", tmp_path / "work/.state/fetch/fetched"
    with serve_files(files) as url:
        pipeline.write_text(
            f'labels = "labels"\n[fetch]\nbase_url = "{url}"\n'
            'downloads = [{ url = "a.bin", megabytes = 0.001, md5_url = "a.md5" }]\n'
        )
        hgld(*own)
        path.write_bytes(b"x" * 1000)
        download.note_right(RemoteFile(f"{url}a.bin", path, 1000, f"{url}a.md5"), notes)
        hgld(*own, "--force")
    assert path.read_bytes() == data
