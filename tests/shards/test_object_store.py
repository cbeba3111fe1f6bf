"""Shards in an object store, against a real S3 server with injected faults."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import fsspec
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from hgld.cli import app, guarded
from hgld.errors import HgldError, InvalidData, Resumable, UsageError
from hgld.shards import (
    BatchLoader,
    BatchOptions,
    ImageLoader,
    read_image,
    read_index,
    read_manifest,
    verify_shards,
)
from hgld.shards.cache import cache_folder, evict
from hgld.shards.read import ShardImages
from hgld.storage import RemoteFolder, read_ahead
from tests.object_store import Bucket, Fault, Proxy, Request, is_clean, proxy_to
from tests.shards.shard_world import make_world, pixels
from tests.shards.test_shards_load import noisy, same, walk
from tests.sources.small_disk import small_disk

pytestmark = pytest.mark.slow

RANDOM = BatchOptions(3, 2)
IN_SHARDS = replace(RANDOM, order="shards", lanes=1)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("far"), [3, 4, 5, 9, 17]).export()[0]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HGLD_CACHE", str(tmp_path / "cache"))
    return cache_folder()


@pytest.fixture
def url(bucket: Bucket, shards: Path) -> str:
    """The shards in a bucket."""
    there = RemoteFolder(f"{bucket.url}/set")
    for path in shards.iterdir():
        there.upload(path, path.name)
    return there.url


@pytest.mark.filterwarnings("ignore:every byte of the shards is read")
def test_every_reader_gives_the_batches_of_a_local_folder(
    shards: Path, rows: pd.DataFrame, url: str, cache: Path
) -> None:
    for reader, options in (("indexed", RANDOM), ("indexed", IN_SHARDS), ("stream", IN_SHARDS)):
        near = BatchLoader(shards, rows, noisy, options, seed=3)
        for workers in (0, 2):
            far = BatchLoader(url, rows, noisy, options, seed=3, reader=reader, workers=workers)  # type: ignore[arg-type]
            assert same(walk(far, 5), walk(near, 5))
            near = BatchLoader(shards, rows, noisy, options, seed=3)
    assert list(cache.rglob("*-*"))


def test_index_images_and_sidecars_are_read_from_there(
    shards: Path, rows: pd.DataFrame, url: str
) -> None:
    assert read_index(url).equals(read_index(shards))
    assert read_manifest(url) == read_manifest(shards)
    assert read_image(url, rows.iloc[3]) == read_image(shards, rows.iloc[3])
    near, far = (
        [images for images, *_ in ImageLoader(at, rows, pixels, batch_size=7)]
        for at in (shards, url)
    )
    assert all(map(torch.equal, near, far))
    verify_shards(url)


def test_the_commands_print_what_they_print_of_a_local_folder(
    shards: Path, rows: pd.DataFrame, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command, *more in (["ls"], ["stats"], ["verify"], ["cat", str(rows["key"][0])]):
        said = []
        for folder in (str(shards), url):
            assert guarded(lambda f=folder, m=more, c=command: app(["shards", c, f, *m])) == 0  # type: ignore[misc]
            said.append(capsys.readouterr().out)
        assert said[0] == said[1] != ""


def test_a_second_reader_finds_the_ranges_on_disk(
    rows: pd.DataFrame, url: str, proxy: Proxy
) -> None:
    first = walk(BatchLoader(url, rows, noisy, RANDOM, seed=3), 4)
    asked = proxy.counts("GET", r"\.tar")
    assert 0 < asked < 4 * 6  # images of a run come together
    assert same(walk(BatchLoader(url, rows, noisy, RANDOM, seed=3), 4), first)
    assert proxy.counts("GET", r"\.tar") == asked


def test_a_damaged_range_on_disk_is_fetched_again(
    rows: pd.DataFrame, url: str, cache: Path
) -> None:
    first = walk(BatchLoader(url, rows, noisy, RANDOM, seed=3), 4)
    for path in cache.rglob("*-*"):
        path.write_bytes(path.read_bytes()[::-1])
    assert same(walk(BatchLoader(url, rows, noisy, RANDOM, seed=3), 4), first)


@pytest.mark.parametrize("reader", ["indexed", "stream"])
def test_a_range_that_arrives_damaged_is_requested_again(
    shards: Path, rows: pd.DataFrame, url: str, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    right, asked = RemoteFolder.read_range, list[str]()

    def damages_first(folder: RemoteFolder, name: str, offset: int, size: int) -> bytes:
        asked.append(name)
        data = right(folder, name, offset, size)
        return data if asked.count(name) > 1 else bytes(len(data))

    monkeypatch.setattr(RemoteFolder, "read_range", damages_first)
    near = walk(BatchLoader(shards, rows, noisy, IN_SHARDS, seed=3), 2)
    far = BatchLoader(url, rows, noisy, IN_SHARDS, seed=3, reader=reader)  # type: ignore[arg-type]
    assert same(walk(far, 2), near)
    requests = len(asked)
    assert same(walk(BatchLoader(url, rows, noisy, IN_SHARDS, seed=3), 2), near)
    assert len(asked) == requests  # the cache keeps what arrived intact


def test_a_range_that_changes_on_the_disk_after_its_check_is_fetched_again(
    rows: pd.DataFrame, url: str, cache: Path
) -> None:
    images = ShardImages(url, rows, pixels)
    right = [images.load(n) for n in range(len(rows))]
    for path in cache.rglob("*-*"):
        path.write_bytes(bytes(path.stat().st_size))
    assert all(torch.equal(images.load(n), right[n]) for n in range(len(rows)))


def test_the_cache_keeps_to_its_limit_and_forgets_what_was_used_longest_ago(
    rows: pd.DataFrame, url: str, cache: Path
) -> None:
    walk(BatchLoader(url, rows, noisy, RANDOM, seed=3, cache_gb=2e-5), 8)
    assert sum(path.stat().st_size for path in cache.rglob("*-*")) <= 30_000
    walk(BatchLoader(url, rows, noisy, RANDOM, seed=3), 4)
    found = sorted(cache.rglob("*-*"))
    for age, path in enumerate(found):
        os.utime(path, (age, age))
    evict(cache, sum(path.stat().st_size for path in found) - 1)
    assert found[-1].exists() and not found[0].exists()


def test_without_a_cache_nothing_is_kept(rows: pd.DataFrame, url: str, cache: Path) -> None:
    walk(BatchLoader(url, rows, noisy, RANDOM, seed=3, cache_gb=0), 2)
    assert not cache.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_cache_folder_of_another_user_costs_time_and_not_the_run(
    rows: pd.DataFrame, url: str, cache: Path
) -> None:
    near = walk(BatchLoader(url, rows, noisy, RANDOM, seed=3), 2)
    cache.chmod(0o700)
    os.seteuid(65534)
    try:
        far = walk(BatchLoader(url, rows, noisy, RANDOM, seed=3), 2)
    finally:
        os.seteuid(0)
    assert same(far, near)


def test_a_user_without_a_home_folder_is_told_to_name_a_cache(
    url: str, rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HGLD_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 123_456_789)
    with pytest.raises(UsageError, match=r"^HGLD_CACHE: [^\n]*name a folder$"):
        walk(BatchLoader(url, rows, noisy, RANDOM, seed=3), 1)
    walk(BatchLoader(url, rows, noisy, RANDOM, seed=3, cache_gb=0), 1)


def test_objects_without_a_version_are_not_cached(
    rows: pd.DataFrame, url: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RemoteFolder, "list", lambda _: {})
    stored = RemoteFolder(url).stat("train-000000.tar")
    assert stored is not None
    unversioned = replace(stored, version="")
    monkeypatch.setattr(RemoteFolder, "stat", lambda *_: unversioned)
    walk(BatchLoader(url, rows, noisy, RANDOM, seed=3), 2)
    assert not cache.exists()


@pytest.mark.parametrize("reader", ["indexed", "stream"])
def test_an_object_that_changes_while_it_is_read_is_one_line(
    rows: pd.DataFrame,
    url: str,
    bucket: Bucket,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    reader: str,
) -> None:
    monkeypatch.setattr("hgld.shards.read.FETCHED_TOGETHER", 10_000)
    client = boto3.client("s3", endpoint_url=bucket.endpoint)
    changed: list[str] = []

    def replaces(request: Request) -> None:
        part = re.search(r"[^/?]*\.tar", request.path)
        if part and request.method == "GET" and part[0] not in changed:
            changed.append(part[0])
            client.put_object(Bucket=bucket.url[5:], Key=f"set/{part[0]}", Body=bytes(10**6))

    loader = BatchLoader(url, rows, noisy, IN_SHARDS, seed=3, reader=reader, cache_gb=0)  # type: ignore[arg-type]
    proxy.fault = replaces
    with pytest.raises(InvalidData, match=r"^s3://[^\n]*\.tar: the object was changed between "):
        walk(loader, 20)


@pytest.mark.filterwarnings("ignore:every byte of the shards is read")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("reader", ["indexed", "stream"])
def test_an_object_replaced_by_one_of_its_size_is_noticed_without_crcs(
    shards: Path,
    rows: pd.DataFrame,
    url: str,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    reader: str,
    workers: int,
) -> None:
    monkeypatch.setattr("hgld.shards.read.FETCHED_TOGETHER", 10_000)
    unchecked = rows.drop(columns="image_crc32")
    images = ShardImages(url, unchecked, pixels)
    loader = BatchLoader(url, unchecked, noisy, IN_SHARDS, seed=3, reader=reader, workers=workers)  # type: ignore[arg-type]
    list(images.iterate([0]))
    kept = sorted(cache.rglob("*-*"))
    for name in rows["shard"].unique():
        RemoteFolder(url).write(name, bytes((shards / name).stat().st_size))
    for read in (lambda: walk(loader, 1), lambda: list(images.iterate(range(len(rows))))):
        with pytest.raises(InvalidData, match=r"\.tar: the object was changed between index and "):
            read()
    assert sorted(cache.rglob("*-*")) == kept != []


@pytest.mark.parametrize("scheme", ["s3", "file", "memory"])
def test_a_list_and_a_question_give_a_file_the_same_version(
    bucket: Bucket, tmp_path: Path, scheme: str
) -> None:
    places = {"s3": f"{bucket.url}/a", "file": f"file://{tmp_path}/a"}
    there = RemoteFolder(places.get(scheme, f"memory:/{tmp_path}/a"))
    written = there.write("b", b"1")
    assert there.list() == {"b": there.stat("b")} == {"b": written}
    assert there.write("b", b"2") != written


def test_what_another_thread_writes_to_the_cache_stays(cache: Path) -> None:
    (cache / "shard").mkdir(parents=True)
    ours, left = (cache / "shard" / f".0-9.{process}.tmp" for process in (os.getpid(), 2**22 + 1))
    for path in (ours, left):
        path.write_bytes(b"half")
    evict(cache, 1 << 20)
    assert ours.exists() and not left.exists()


def test_a_set_that_the_cache_cannot_hold_is_fetched_run_by_run(
    shards: Path, rows: pd.DataFrame, url: str, proxy: Proxy
) -> None:
    asked = []
    for size_gb in (1.0, 1e-5):
        before = proxy.counts("GET", r"\.tar")
        far = BatchLoader(url, rows, noisy, RANDOM, seed=3, cache_gb=size_gb)
        assert same(walk(far, 2), walk(BatchLoader(shards, rows, noisy, RANDOM, seed=3), 2))
        asked.append(proxy.counts("GET", r"\.tar") - before)
    assert asked[0] <= rows["shard"].nunique() < asked[1]


@pytest.mark.parametrize("cache_gb", [20.0, 0.0])
def test_rows_of_one_large_image_are_read_alike(
    shards: Path, rows: pd.DataFrame, url: str, monkeypatch: pytest.MonkeyPatch, cache_gb: float
) -> None:
    """Each is a range by itself, and the second took the range that was requested next."""
    monkeypatch.setattr("hgld.shards.read.FETCHED_TOGETHER", 1)
    twice = pd.concat([rows, rows]).sort_values(["shard", "offset"], ignore_index=True)[:8]
    near, far = (ShardImages(place, twice, noisy, cache_gb=cache_gb) for place in (shards, url))
    assert far.fetch(range(8)) == {number: near.read_bytes(number) for number in range(8)}


def test_threads_that_miss_the_same_range_request_it_once(
    rows: pd.DataFrame, url: str, proxy: Proxy
) -> None:
    proxy.delay_s = 0.1
    images = ShardImages(url, rows, noisy)
    list(read_ahead(images.read_bytes, [0, 1, 0, 1]))
    assert proxy.counts("GET", r"\.tar") == 1


class _Everything(IterableDataset[dict[int, bytes]]):
    """All images, in each worker."""

    def __init__(self, images: ShardImages) -> None:
        self.images = images

    def __iter__(self) -> Iterator[dict[int, bytes]]:
        yield {n: bytes(jpeg) for n, jpeg in self.images.iterate(range(len(self.images)))}


def test_processes_that_miss_the_same_ranges_request_each_once(
    shards: Path,
    rows: pd.DataFrame,
    url: str,
    cache: Path,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hgld.shards.read.FETCHED_TOGETHER", 10_000)
    near = {n: bytes(j) for n, j in ShardImages(shards, rows, pixels).iterate(range(len(rows)))}
    images = ShardImages(url, rows, pixels)
    proxy.delay_s = 0.2
    found = list(DataLoader(_Everything(images), batch_size=None, num_workers=2))
    kept = list(cache.rglob("*-*"))
    assert found == [near, near]
    # A busy machine may cut a connection; its range is requested again, and answered once.
    ranges = [
        (r.path, r.headers["Range"])
        for r in proxy.answered
        if ".tar" in r.path and r.method == "GET"
    ]
    assert len(set(ranges)) == len(ranges) == len(kept) > rows["shard"].nunique()


@pytest.mark.parametrize("reader", ["indexed", "stream"])
@pytest.mark.parametrize(
    "fault",
    [
        Fault(500, "InternalError"),
        Fault(503, "SlowDown"),
        Fault(keep=100),
        Fault(keep=100, stall_s=2),
    ],
    ids=["500", "slow down", "cut", "stalled"],
)
def test_a_request_that_fails_once_is_repeated(
    rows: pd.DataFrame,
    shards: Path,
    url: str,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    reader: str,
) -> None:
    impatient = {"retries": {"total_max_attempts": 1}, "read_timeout": 0.5}
    monkeypatch.setattr("hgld.storage.OPTIONS", {"s3": {"config_kwargs": impatient}})
    seen: set[str] = set()

    def first_time(request: Request) -> Fault | None:
        own = request.path + request.headers.get("Range", "")
        new = request.method == "GET" and ".tar" in own and own not in seen
        seen.add(own)
        return fault if new else None

    near = walk(BatchLoader(shards, rows, noisy, IN_SHARDS, seed=3), 2)
    proxy.fault = first_time
    far = BatchLoader(url, rows, noisy, IN_SHARDS, seed=3, reader=reader, cache_gb=0)  # type: ignore[arg-type]
    assert same(walk(far, 2), near)


@pytest.mark.parametrize(
    ("status", "code", "kind", "says"),
    [
        (503, "SlowDown", Resumable, r"cannot be opened \(.*\) in 2 tries; the same command"),
        (403, "AccessDenied", HgldError, "access is not allowed"),
        (400, "ExpiredToken", Resumable, "the credentials have expired"),
        (403, "RequestTimeTooSkewed", Resumable, "the clock of this machine .* set it"),
        (403, "InvalidAccessKeyId", HgldError, "does not accept the credentials"),
        (400, "AuthorizationHeaderMalformed", HgldError, "another region.* AWS_DEFAULT_REGION"),
        (301, "PermanentRedirect", HgldError, "another region.* AWS_DEFAULT_REGION"),
    ],
)
def test_what_the_server_refuses_for_good_is_one_line_without_credentials(
    status: int,
    code: str,
    kind: type[HgldError],
    says: str,
    rows: pd.DataFrame,
    url: str,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hgld.storage.WAITS_S", (0.01,))
    proxy.fault = lambda request: Fault(status, code)
    for reader in ("indexed", "stream"):
        with pytest.raises(kind, match=f"^s3://[^\n]*{says}[^\n]*$") as raised:
            walk(BatchLoader(url, rows, noisy, IN_SHARDS, seed=3, reader=reader), 1)  # type: ignore[arg-type]
        assert is_clean(str(raised.value))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://not-there-at-all/set", "s3://not-there-at-all: the bucket does not exist; "),
        ("BUCKET/no/such", "BUCKET/no/such: no such folder of shards; correct its name"),
        ("FOLDER/no/such", "FOLDER/no/such: no such folder of shards; correct its name"),
        ("nonsense://host/set", "nonsense://host/set/"),
    ],
)
@pytest.mark.parametrize("command", [["ls"], ["stats"], ["verify"], ["cat", "key"]], ids=str)
def test_a_place_that_is_not_there_is_one_line(
    bucket: Bucket, tmp_path: Path, url: str, says: str, command: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    url, says = (
        s.replace("BUCKET", bucket.url).replace("FOLDER", str(tmp_path)) for s in (url, says)
    )
    assert guarded(lambda: app(["shards", command[0], url, *command[1:]])) == 1
    found = capsys.readouterr().err
    assert found.startswith(f"hgld: {says}") and found.count("\n") == 1


@pytest.mark.parametrize(
    ("status", "error", "causes"),
    [
        (400, Resumable, r"have expired, or are for another region; .* AWS_DEFAULT"),
        (403, HgldError, r"not allowed \(.* key or clock is wrong\)"),
    ],
)
def test_a_head_that_is_refused_names_all_causes(
    status: int, error: type[HgldError], causes: str, url: str, proxy: Proxy
) -> None:
    proxy.fault = lambda request: Fault(status) if request.method == "HEAD" else None
    with pytest.raises(error, match=causes):
        RemoteFolder(url).stat("index.parquet")


def test_an_answer_with_the_whole_object_is_not_called_truncated(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy_to(os.environ["AWS_ENDPOINT_URL"], ranges=False) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        with pytest.raises(HgldError, match=r"bytes came where 10 were asked for; [^\n]*ranges"):
            RemoteFolder(url).read_range("train-000000.tar", 512, 10)
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def test_another_scheme_of_the_driver_creates_no_bucket(bucket: Bucket) -> None:
    folder = RemoteFolder("s3a://not-there-at-all/set")
    with pytest.raises(HgldError, match=r"^s3a://not-there-at-all: the bucket does not exist"):
        folder.write("a", b"1")
    with pytest.raises(HgldError, match="the bucket does not exist"):
        folder.list()


def test_a_folder_that_cannot_be_made_at_a_file_url_is_no_bucket(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone" / "set")
    with pytest.raises(HgldError, match="link/set/a: its folder cannot be made; correct the URL"):
        RemoteFolder(f"file://{tmp_path}/link/set").write("a", b"1")


def test_a_full_disk_at_a_file_url_is_resumable(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(100_000))
    folder = RemoteFolder(f"file://{tmp_path}/disk/set")
    says = r"set/large: cannot be written \(No space left on device\); .* the same command resumes$"
    with small_disk(tmp_path / "disk", 40_000) as grow:
        with pytest.raises(Resumable, match=says):
            folder.upload(tmp_path / "large", "large")
        assert folder.stat("large") is None
        grow()
        assert folder.upload(tmp_path / "large", "large").size_bytes == 100_000
