import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from hashlib import md5
from pathlib import Path
from random import Random
from threading import Event, Timer
from time import monotonic, sleep
from typing import Any

import pytest
import requests

from hgld.config import Download, FetchOptions, StageContext
from hgld.errors import HgldError, InvalidData, Resumable, UsageError
from hgld.file_lock import hold
from hgld.sources import download
from hgld.sources.download import RemoteFile
from hgld.sources.fetch import (
    estimate_fetch,
    fetch_files,
    plan_downloads,
    sample_bandwidth,
)
from hgld.tasks import Label, watched_by
from tests.drip import dripping
from tests.listening import heard
from tests.sources.file_server import Files, FileSite, serve_files
from tests.sources.made_set import folder_of
from tests.sources.small_disk import asked_of_read_only, small_disk

TAR = Random(0).randbytes(300_000)


class Site(FileSite):
    def fetch(self, *downloads: Download) -> None:
        """Fetch these, or the two tars and the CSV."""
        fetch_files(options=options(self.url, *downloads), context=self.context)

    def content(self) -> dict[str, bytes]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in found
            if path.name != ".fetch.lock"
        }


@pytest.fixture
def site(context: StageContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Two tars with their MD5s and a CSV without."""
    monkeypatch.setattr(download, "PAUSE_S", 0.01)
    monkeypatch.setattr(download, "BLOCK_BYTES", 10_000)
    files = Files(
        {
            "meta/train.csv": b"id,url\n",
            "train/images_000.tar": TAR,
            "train/images_001.tar": TAR[::-1],
            "md5/images_000.txt": md5(TAR).hexdigest().encode() + b"  images_000.tar\n",
            "md5/images_001.txt": md5(TAR[::-1]).hexdigest().upper().encode(),
        }
    )
    with serve_files(files) as url:
        yield Site(url, files, context)


def options(url: str, *downloads: Download) -> FetchOptions:
    tars = Download(
        url="train/images_{number:03d}.tar",
        count=2,
        megabytes=0.3,
        md5_url="md5/images_{number:03d}.txt",
    )
    return FetchOptions(base_url=url, downloads=downloads or (table(), tars))


def table(megabytes: float = 0.001, columns: tuple[str, ...] = ()) -> Download:
    """The CSV, which has no MD5."""
    return Download(url="meta/train.csv", megabytes=megabytes, columns=columns)


def test_all_files_arrive_and_nothing_else_stays(site: Site) -> None:
    site.fetch()
    names = ("meta/train.csv", "train/images_000.tar", "train/images_001.tar")
    assert site.content() == {name: site.files.data[name] for name in names}


def test_a_second_run_asks_for_nothing(site: Site) -> None:
    site.fetch()
    site.files.asked.clear()
    site.fetch()
    assert site.files.asked == []


def test_a_version_that_a_kill_left_behind_a_finished_file_goes_with_the_next_run(
    site: Site,
) -> None:
    site.fetch()
    whole = site.content()
    for note in (site.context.state / "fetched").iterdir():
        note.unlink()
    (site.folder / "train/images_000.tar.part.version").write_text("1")
    site.fetch()
    assert site.content() == whole


def test_a_second_fetch_into_a_folder_at_a_time_is_refused(site: Site) -> None:
    site.folder.mkdir()
    says = r"^\S*source: another process fetches into .* \(process \d+ on .*\); wait for it, or "
    with hold(site.folder / ".fetch.lock"), pytest.raises(HgldError, match=says):
        site.fetch()
    assert site.files.asked == []
    site.fetch()


def test_a_folder_that_cannot_be_written_serves_if_it_has_all_files(site: Site) -> None:
    fetch = partial(fetch_files, options=options(site.url), context=site.context)
    assert asked_of_read_only(fetch, site.folder, site.files) == []


def test_a_file_of_a_persons_own_is_checked_once_and_kept(site: Site) -> None:
    own = site.folder / "train/images_000.tar"
    own.parent.mkdir(parents=True)
    own.write_bytes(TAR)
    site.fetch()
    assert "train/images_000.tar" not in {path for path, _ in site.files.asked}


def test_a_wrong_file_that_is_there_is_loaded_anew(site: Site) -> None:
    own = site.folder / "train/images_000.tar"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"not it")
    site.fetch()
    assert own.read_bytes() == TAR


def test_a_connection_that_is_cut_goes_on_where_it_stopped(site: Site) -> None:
    site.files.cuts["train/images_000.tar"] = [100_000, 50_000, 300_000]
    site.fetch()
    assert site.content()["train/images_000.tar"] == TAR
    ranges = [asked for path, asked in site.files.asked if path == "train/images_000.tar"]
    assert ranges == ["", "bytes=100000-", "bytes=150000-"]


def test_a_run_that_gave_up_is_resumed_by_the_next(site: Site) -> None:
    path = "train/images_000.tar"
    site.files.cuts[path] = [100_000, *[0] * 4]
    with pytest.raises(Resumable, match=r"images_000\.tar: .*run the same command again"):
        site.fetch()
    assert not (site.folder / path).exists()
    site.files.asked.clear()
    site.fetch()
    assert (path, "bytes=100000-") in site.files.asked
    assert site.content()[path] == TAR


def test_a_file_without_md5_whose_length_no_one_states_is_named_in_a_note(site: Site) -> None:
    site.files.lengths = False
    with heard() as notes:
        site.fetch()
    (note,) = [note for note in notes if "states neither length nor MD5" in note]
    assert note.startswith(f"{site.url}meta/train.csv: ")


def test_an_empty_file_is_not_the_one_that_is_meant(site: Site) -> None:
    site.files.data["meta/train.csv"] = b""
    with pytest.raises(InvalidData, match=r"train\.csv: is empty; nothing of it is kept"):
        site.fetch()


def test_a_partial_file_of_an_older_version_is_not_continued(site: Site) -> None:
    path = "meta/train.csv"
    site.files.data[path], site.files.cuts[path] = b"a" * 1000, [400, *[0] * 4]
    with pytest.raises(Resumable):
        site.fetch()
    site.files.data[path] = b"b" * 1000
    site.fetch()
    assert site.content()[path] == b"b" * 1000


def test_a_server_without_versions_sends_the_whole_file_again(site: Site) -> None:
    site.files.tags, site.files.cuts["train/images_000.tar"] = False, [100_000]
    with heard() as notes:
        site.fetch()
    assert site.content()["train/images_000.tar"] == TAR
    (note,) = [note for note in notes if "cannot resume" in note]
    assert "images_000.tar: loaded from its start again, 0.1 MB are lost" in note


def test_a_partial_file_that_was_complete_already_gets_its_name(site: Site) -> None:
    part = site.folder / "train/images_000.tar.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(TAR)
    part.with_name(part.name + ".version").write_text(f'"{md5(TAR).hexdigest()}"')
    site.fetch()
    assert site.content()["train/images_000.tar"] == TAR


def test_a_busy_server_is_asked_again(site: Site) -> None:
    site.files.statuses["meta/train.csv"] = [503, 429]
    site.fetch()
    assert site.content()["meta/train.csv"] == b"id,url\n"


def test_a_pause_that_a_server_asks_for_is_kept(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "NOTED_S", 0.5)
    site.files.statuses["meta/train.csv"], site.files.retry_after = [429, 503], "1"
    start = monotonic()
    with heard() as said:
        site.fetch(table())
    assert monotonic() - start >= 2 and site.content()["meta/train.csv"] == b"id,url\n"
    assert said == [
        f"{site.url}meta/train.csv: the server answers {status} and asks for a pause of 1 s; it is "
        "kept"
        for status in ("429 Too Many Requests", "503 Service Unavailable")
    ]


def test_after_a_stop_in_a_pause_nothing_more_is_asked(site: Site) -> None:
    site.files.statuses["meta/train.csv"], site.files.retry_after = [429], "30"
    file, stop = RemoteFile(f"{site.url}meta/train.csv", site.folder / "a.csv", 7, ""), Event()
    Timer(0.3, stop.set).start()
    with pytest.raises(Resumable, match="stopped on the way; run the same command again"):
        download.download(file, site.folder / "notes", stop)
    assert len(site.files.asked) == 1


def test_a_long_pause_that_a_server_asks_for_ends_the_run(site: Site) -> None:
    site.files.statuses["meta/train.csv"], site.files.retry_after = [503], "4000"
    says = r"503 Service Unavailable and asks for a pause of 1 h 7 min; what was loaded is kept"
    with pytest.raises(Resumable, match=says):
        site.fetch(table())


def test_a_web_page_in_place_of_a_file_with_md5_is_told_at_once(site: Site) -> None:
    site.files.data["train/images_000.tar"] = b"<!DOCTYPE html><title>Log in</title>"
    with pytest.raises(
        InvalidData, match=r"images_000\.tar: is a web page \(a login or an error\)"
    ):
        site.fetch()
    assert [path for path, _ in site.files.asked].count("train/images_000.tar") == 1


def test_a_web_page_that_is_listed_is_fetched(site: Site) -> None:
    site.files.data["index.html"] = b"<!doctype html>"
    site.fetch(Download(url="index.html", megabytes=0.001))
    assert site.content() == {"index.html": b"<!doctype html>"}


@pytest.mark.parametrize("name", ["train.csv", "train.csv.part", "train.csv.part.version"])
def test_a_folder_in_place_of_a_file_is_one_line(name: str, site: Site) -> None:
    (site.folder / "meta" / name).mkdir(parents=True)
    with pytest.raises(InvalidData, match=rf"meta/{name}: a folder stands where a file belongs"):
        site.fetch(table())


def test_a_file_in_place_of_a_folder_is_named(site: Site) -> None:
    site.folder.mkdir(parents=True)
    (site.folder / "meta").write_text("")
    with pytest.raises(Resumable, match=r"/meta: File exists; what was loaded is kept"):
        site.fetch(table())


@pytest.mark.parametrize(
    ("proxy", "says"),
    [
        (
            "http://127.0.0.1:9",
            r"no connection by the proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PR",
        ),
        (
            "http://foo:bar",
            r"starts with http or https, and one of a proxy in HTTP_PROXY, HTTPS_PR",
        ),
    ],
)
def test_a_proxy_that_does_not_work_is_named(
    proxy: str, says: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, proxy)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")
    with pytest.raises(HgldError, match=says):
        site.fetch(table())


def test_a_server_without_tls_is_told(site: Site) -> None:
    site.url = site.url.replace("http:", "https:")
    with pytest.raises(Resumable, match=r"train\.csv: no secure connection \(.+\); what was"):
        site.fetch(table())


def test_a_wrong_md5_is_one_line_that_names_the_file(site: Site) -> None:
    site.files.data["md5/images_001.txt"] = b"0" * 32
    with pytest.raises(InvalidData, match=r"train/images_001\.tar: MD5 is .* says 0{32}") as caught:
        site.fetch()
    assert "\n" not in str(caught.value)
    assert "train/images_000.tar" in site.content()  # the others are kept
    assert not any("images_001" in name for name in site.content())


def test_an_md5_file_that_holds_none_is_told(site: Site) -> None:
    site.files.data["md5/images_000.txt"] = b"<html>"
    with pytest.raises(
        InvalidData, match=r"images_000\.txt: is a web page .*; expected an MD5 of 32"
    ):
        site.fetch()


def test_a_file_that_the_server_lacks_is_told(site: Site) -> None:
    with pytest.raises(HgldError, match=r"nope\.csv: the server answers 404.*fetch\.base_url") as e:
        site.fetch(Download(url="nope.csv", megabytes=1))
    assert type(e.value) is HgldError


def test_a_server_that_is_not_there_is_resumable(site: Site) -> None:
    site.url = "http://127.0.0.1:9/"
    with pytest.raises(Resumable, match=r"train\.csv: no connection"):
        site.fetch(table())


def test_without_downloads_the_folder_has_to_hold_something(context: StageContext) -> None:
    with pytest.raises(InvalidData, match="the source folder does not exist"):
        fetch_files(options=FetchOptions(), context=context)
    folder_of(context).mkdir(parents=True)
    with pytest.raises(InvalidData, match="the source folder is empty"):
        fetch_files(options=FetchOptions(), context=context)
    (folder_of(context) / "train.csv").write_text("id\n")
    fetch_files(options=FetchOptions(), context=context)


def test_the_plan_lists_every_file_with_its_size() -> None:
    planned = plan_downloads(options("https://a.example/b/"), Path("source"))
    assert planned == [
        ("https://a.example/b/meta/train.csv", Path("source/meta/train.csv"), 1000),
        ("https://a.example/b/train/images_000.tar", Path("source/train/images_000.tar"), 300_000),
        ("https://a.example/b/train/images_001.tar", Path("source/train/images_001.tar"), 300_000),
    ]


def test_an_address_of_another_server_lands_by_its_last_name() -> None:
    listed = options("https://a.example/", Download(url="https://b.example/x/y.csv?z", megabytes=1))
    assert plan_downloads(listed, Path("s"))[0][:2] == (
        "https://b.example/x/y.csv?z",
        Path("s/y.csv"),
    )


def test_no_file_lands_outside_the_source_folder() -> None:
    listed = options("https://a.example/b/", Download(url="../../x.csv", megabytes=1))
    assert plan_downloads(listed, Path("s"))[0][1] == Path("s/x.csv")


@pytest.mark.parametrize("url", ["a_{n}.tar", "a_{}.tar", "a_{number", "{number:q}", "{number.x}"])
def test_a_url_with_another_placeholder_than_number_is_a_usage_error(url: str) -> None:
    listed = options("https://a.example/", Download(url=url, megabytes=1))
    with pytest.raises(UsageError, match=r"has braces that cannot be filled in; only \{number\}"):
        plan_downloads(listed, Path("s"))


def test_a_connection_that_is_reset_goes_on_where_it_stopped(site: Site) -> None:
    site.files.resets["train/images_000.tar"] = [120_000]
    site.fetch()
    assert site.content()["train/images_000.tar"] == TAR
    ranges = [asked for path, asked in site.files.asked if path == "train/images_000.tar"]
    assert len(ranges) == 2


def test_a_stalled_connection_is_given_up_and_continued(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "TIMEOUT_S", (1, 0.3))
    site.files.stalls["train/images_000.tar"] = [100_000]
    site.fetch()
    assert site.content()["train/images_000.tar"] == TAR
    assert ("train/images_000.tar", "bytes=100000-") in site.files.asked


def test_a_server_that_stalls_for_good_is_resumable(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "TIMEOUT_S", (1, 0.1))
    site.files.stalls["meta/train.csv"] = [0] * 9
    with pytest.raises(Resumable, match=r"train\.csv: .*run the same command again"):
        site.fetch()
    assert site.content()["train/images_001.tar"] == TAR[::-1]  # the others are through


def test_a_file_with_wrong_bytes_is_loaded_once_more_from_its_first_byte(site: Site) -> None:
    site.files.wrong["train/images_000.tar"] = [200_000]
    site.fetch()
    assert site.content()["train/images_000.tar"] == TAR
    ranges = [asked for path, asked in site.files.asked if path == "train/images_000.tar"]
    assert ranges == ["", ""]


def test_only_what_is_missing_or_broken_is_fetched_again(site: Site) -> None:
    site.fetch()
    broken = bytearray(TAR)
    broken[5] ^= 1
    (site.folder / "train/images_000.tar").write_bytes(broken)
    (site.folder / "meta/train.csv").unlink()
    site.files.asked.clear()
    site.fetch()
    loaded = {path for path, _ in site.files.asked}
    assert loaded == {"meta/train.csv", "train/images_000.tar", "md5/images_000.txt"}
    assert site.content()["train/images_000.tar"] == TAR


def test_several_files_are_loaded_at_a_time_and_no_more(site: Site) -> None:
    site.files.data |= {f"many/{n}.bin": TAR[:30_000] for n in range(6)}
    site.files.pace = 0.02
    many = Download(url="many/{number}.bin", count=6, megabytes=0.03)
    several = options(site.url, many).model_copy(update={"parallel": 3})
    fetch_files(options=several, context=site.context)
    assert site.files.at_once == 3


def test_progress_counts_the_bytes_that_are_here(site: Site) -> None:
    seen = list[str]()

    def watch(items: Iterable[Any], label: Label, total: int | None, done: int) -> Iterator[Any]:
        assert callable(label)
        seen.append(label())
        yield from items
        seen.append(label())

    with watched_by(watch):
        site.fetch()
    assert seen[-1].startswith("601 kB of 601 kB, ") and seen[-1].endswith("B/s")
    assert len(seen) == 2


def test_a_part_of_the_numbered_files_can_be_fetched(site: Site) -> None:
    some = options(site.url).model_copy(update={"tars": "1-9"})
    fetch_files(options=some, context=site.context)
    assert set(site.content()) == {"meta/train.csv", "train/images_001.tar"}


def test_files_that_would_be_one_are_a_usage_error() -> None:
    listed = options("https://a.example/", Download(url="x/images.tar", count=2, megabytes=1))
    with pytest.raises(UsageError, match=r"'https://a.example/x/images.tar' would both be s/x/ima"):
        plan_downloads(listed, Path("s"))


NO_NUMBERS = "expected numbers such as 0-9 or 0,5-7"


@pytest.mark.parametrize(
    ("tars", "says"),
    [
        *((text, NO_NUMBERS) for text in ("x", "3-1", "0-", "-1", "0,,1", "0..9")),
        ("7", "'7' are numbers of no file that is listed"),
    ],
)
def test_numbers_of_no_tar_are_a_usage_error(tars: str, says: str) -> None:
    listed = options("https://a.example/").model_copy(update={"tars": tars})
    with pytest.raises(UsageError, match=says):
        plan_downloads(listed, Path("s"))


def test_the_estimate_counts_what_is_missing_alone(context: StageContext) -> None:
    own = folder_of(context) / "train/images_000.tar"
    own.parent.mkdir(parents=True)
    own.write_bytes(TAR)
    found = estimate_fetch(options("https://a.example/"), folder_of(context))
    assert (found.files, found.size_bytes) == (3, 601_000)
    assert (found.to_load, found.to_load_bytes, found.there_bytes) == (2, 301_000, 300_000)
    assert (found.stays_bytes, found.peak_bytes, found.shards_bytes) == (601_000, 601_000, 600_000)
    assert found.most_bytes == 1_201_000  # the shards come when all files are there


def test_bandwidth_is_measured_on_what_is_missing(site: Site) -> None:
    site.files.pace = 0.01  # 10 kB in 10 ms: at most 1 MB/s of a file, of three at a time
    rate = sample_bandwidth(options(site.url), site.folder)
    assert 10_000 < rate < 3_000_000
    assert site.content() == {}


def test_bandwidth_without_a_server_asks_for_a_stated_one(context: StageContext) -> None:
    with pytest.raises(Resumable, match="state it with --bandwidth"):
        sample_bandwidth(options("http://127.0.0.1:9/"), folder_of(context))


def test_a_full_disk_is_resumable_and_what_was_loaded_is_kept(site: Site) -> None:
    with small_disk(site.folder, 400_000) as grow:
        with pytest.raises(Resumable, match=r"No space left on device; what was loaded is kept"):
            site.fetch()
        grow()
        site.files.asked.clear()
        site.fetch()
        assert site.content()["train/images_000.tar"] == TAR
        assert site.content()["train/images_001.tar"] == TAR[::-1]
        assert any(asked for path, asked in site.files.asked if path.endswith(".tar"))  # resumed


def test_a_fetch_that_is_killed_again_and_again_goes_on_where_it_was(site: Site) -> None:
    site.files.data["train/images_000.tar"] = big = TAR * 4
    site.files.data["md5/images_000.txt"] = md5(big).hexdigest().encode()
    site.files.pace = 0.003
    code = (
        "import sys, pickle; from hgld.sources import download; from hgld.sources.fetch import "
        "fetch_files; download.BLOCK_BYTES = 10_000; print('up', flush=True); "
        "o, c = pickle.load(sys.stdin.buffer); fetch_files(options=o, context=c)"
    )
    given = pickle.dumps((options(site.url), site.context))
    for pause in (0.05, 0.15):
        run = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)  # fmt: skip
        assert run.stdin is not None and run.stdout is not None
        run.stdout.readline()
        run.stdin.write(given)
        run.stdin.close()
        sleep(pause)
        run.kill()
        run.wait()
        run.stdout.close()
    site.files.pace = 0
    site.fetch()
    assert site.content()["train/images_000.tar"] == big
    assert set(site.content()) == {"meta/train.csv", "train/images_000.tar",
                                     "train/images_001.tar"}  # fmt: skip


@pytest.mark.parametrize("page", [b"<!DOCTYPE html><title>Log in</title>", b"\n<HTML lang=en>"])
def test_a_web_page_is_not_taken_for_a_file_without_md5(page: bytes, site: Site) -> None:
    site.files.data["meta/train.csv"] = page
    with pytest.raises(InvalidData, match=r"train\.csv: is a web page \(a login or an error\)"):
        site.fetch(table())
    assert site.content() == {}


def test_a_csv_without_md5_has_its_expected_columns(site: Site) -> None:
    site.files.data["meta/train.csv"] = b'\xef\xbb\xbfid,"url"\r\n1,http://a.example/\r\n'
    site.fetch(table(columns=("url", "id")))
    (site.folder / "meta/train.csv").unlink()
    with pytest.raises(InvalidData, match=r"has no column landmark_id; it starts with 'id,"):
        site.fetch(table(columns=("id", "landmark_id")))


@pytest.mark.parametrize(("stated_mb", "found"), [(1.0, "0.007 MB"), (0.001, "0.007 MB")])
def test_a_file_of_quite_another_size_than_stated_is_refused(
    stated_mb: float, found: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "SIZE_SLACK", (1000, 1000))
    site.files.data["meta/train.csv"] = b"id,url\n" * 1000
    with pytest.raises(
        InvalidData, match=rf"has {found}, but fetch\.downloads states {stated_mb:g} MB"
    ):
        site.fetch(table(megabytes=stated_mb))
    assert site.content() == {}


def test_a_body_without_an_end_is_refused_when_it_is_too_large(site: Site) -> None:
    endless = [b"HTTP/1.1 200 OK\r\n\r\n", bytes(1 << 20)]
    with (
        dripping(endless, pause_s=0) as site.url,
        pytest.raises(InvalidData, match=r"but fetch\.downloads states 0\.001 MB"),
    ):
        site.fetch(table())
    assert site.content() == {}


def test_an_md5_file_without_an_end_is_refused(site: Site) -> None:
    with dripping([b"HTTP/1.1 200 OK\r\n\r\n", b"0" * 1000], pause_s=0) as endless:
        listed = Download(url="train/images_000.tar", megabytes=0.3, md5_url=f"{endless}md5")
        with pytest.raises(InvalidData, match=r"starts with '0{40}'; expected an MD5"):
            site.fetch(listed)


def test_a_connection_that_drips_is_given_up_at_last(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "STALL_S", 0.05)
    monkeypatch.setattr(download, "LEAST_PER_S", 10**9)
    drops = [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x" * 10]
    with (
        dripping(*[drops] * 4) as site.url,
        pytest.raises(Resumable, match=r"only \d+ bytes came in"),
    ):
        site.fetch(table())


def test_headers_that_drip_end_at_their_deadline(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "HEADERS_S", 0.1)
    with (
        dripping(*[[b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"]] * 4) as site.url,
        pytest.raises(Resumable, match="no answer in time"),
    ):
        site.fetch(table())


def test_what_came_before_a_cut_is_kept_to_the_byte(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "BLOCK_BYTES", 1 << 20)
    site.files.cuts["train/images_000.tar"] = [123_456]
    site.fetch()
    assert site.content()["train/images_000.tar"] == TAR
    assert ("train/images_000.tar", "bytes=123456-") in site.files.asked


def test_a_redirect_to_a_private_address_is_refused(site: Site) -> None:
    site.files.moved["meta/train.csv"] = "http://169.254.169.254/latest/meta-data"
    with pytest.raises(HgldError, match=r"train\.csv: redirects to .* not a public address"):
        site.fetch(table())


def test_a_redirect_on_the_same_host_is_followed(site: Site) -> None:
    site.files.moved["meta/train.csv"] = "other.csv"
    site.files.data["meta/other.csv"] = b"id\n"
    site.fetch(table())
    assert site.content() == {"meta/train.csv": b"id\n"}


def damage(path: Path) -> None:
    """Flip a bit and set the time of the last change back, as a bad disk does."""
    facts, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def test_a_damaged_file_with_its_old_time_is_loaded_again(site: Site) -> None:
    site.fetch()
    damage(site.folder / "train/images_000.tar")
    site.fetch()
    assert site.content()["train/images_000.tar"] == TAR


def test_force_compares_every_byte_whatever_was_noted(site: Site) -> None:
    listed = options(site.url)
    fetch_files(options=listed, context=site.context)
    path = site.folder / "train/images_000.tar"
    damage(path)
    base = Path(site.context.state / "fetched")
    md5_url, tar_url = f"{site.url}md5/images_000.txt", f"{site.url}train/images_000.tar"
    download.note_right(RemoteFile(tar_url, path, 300_000, md5_url), base)  # as if never noticed
    fetch_files(options=listed, context=site.context)
    assert path.read_bytes() != TAR
    fetch_files(options=listed, context=replace(site.context, force=True))
    assert path.read_bytes() == TAR


def test_a_file_of_a_persons_own_that_is_not_what_is_listed_is_refused_and_kept(site: Site) -> None:
    own = site.folder / "meta/train.csv"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"name\n")
    with pytest.raises(InvalidData, match=r"no column id; .* remove it to have it loaded again"):
        site.fetch(table(columns=("id",)))
    assert own.read_bytes() == b"name\n"


@pytest.mark.parametrize("length", ["many", "-1", "1e9", "٣", "9" * 30])
def test_a_stated_length_that_is_none_counts_for_nothing(length: str) -> None:
    answer = requests.Response()
    answer.headers["Content-Length"] = length
    assert download._length(answer) is None


@pytest.mark.parametrize("listed", ["http://[x", "https://a.example/", ""])
def test_an_address_of_no_file_is_a_usage_error(listed: str) -> None:
    given = options("https://a.example/", Download(url=listed, megabytes=1))
    with pytest.raises(UsageError, match="is not the address of a file"):
        plan_downloads(given, Path("s"))
