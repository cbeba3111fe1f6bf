"""Export to an object store: the bytes of a local export, whatever happens on the way."""

import filecmp
import os
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Lock
from time import sleep
from urllib.parse import quote, quote_plus

import boto3
import pytest

from hgld.cli import app, guarded
from hgld.config import ExportOptions, SamplingOptions, load_pipeline
from hgld.errors import HgldError, InvalidData, Resumable, UsageError
from hgld.report.examples import Images, class_paths
from hgld.shards import export_shards, read_image, read_index, verify_shards
from hgld.shards.shard_url import SETTLED_S, ShardUrl
from hgld.storage import RemoteFolder, as_folder, masked
from tests import warm
from tests.object_store import Bucket, Fault, Proxy, Request, is_clean, proxy_to
from tests.shards.shard_world import World, make_world
from tests.shards.test_shards_command import finish, hgld, labelled  # noqa: F401
from tests.warm import Script

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, [3, 4, 5, 9, 17])


def export(
    world: World, url: str, out: str = "far", force: bool = False, **options: object
) -> Path:
    """Export to a URL; the local folder."""
    export_shards(
        world.source,
        world.images,
        world.hierarchy,
        options=ExportOptions.model_validate({"shard_megabytes": 0.09, "out": url, **options}),
        context=replace(world.context(f"{out}-state"), force=force),
        out=world.folder / out,
    )
    return world.folder / out


def content(folder: Path | str) -> dict[str, bytes]:
    """The files of a folder or URL by name."""
    if isinstance(folder, Path):
        return {path.name: path.read_bytes() for path in folder.iterdir()}
    there = RemoteFolder(folder)
    files = there.list().values()
    return {file.name: there.read(file.name) if file.size_bytes else b"" for file in files}


@pytest.mark.parametrize("scheme", ["s3", "file", "memory"])
def test_the_bytes_are_those_of_a_local_export(world: World, bucket: Bucket, scheme: str) -> None:
    near, _ = world.export("near")
    places = {"s3": f"{bucket.url}/a/b", "file": f"file://{world.folder}/there"}
    url = places.get(scheme, f"memory:/{world.folder}/there")
    out = export(world, url)
    assert content(url) == content(near)
    assert not list(out.glob("*.tar"))
    assert read_index(out).equals(read_index(near))
    verify_shards(out)


def test_a_second_export_uploads_only_what_is_missing_or_changed(
    world: World,
    bucket: Bucket,
    proxy: Proxy,
) -> None:
    export(world, bucket.url)
    before, there = content(bucket.url), RemoteFolder(bucket.url)
    there.delete(["train-000000.tar"])
    there.write("train-000001.tar", b"others' bytes")
    proxy.requests.clear()
    export(world, bucket.url)
    assert content(bucket.url) == before
    assert proxy.counts("PUT", r"\.tar$") == 2


def test_a_local_export_that_gets_a_url_is_uploaded_and_one_that_loses_it_is_local(
    world: World, bucket: Bucket
) -> None:
    near, _ = world.export("far")
    local = content(near)
    export(world, bucket.url)
    assert content(bucket.url) == local
    verify_shards(near)
    world.export("far")
    assert {name: data for name, data in content(near).items() if name in local} == local


def test_the_shards_of_a_work_folder_are_copied_from_its_url(
    world: World, bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    near, out = world.export("near")[0], export(world, bucket.url)
    copies = world.folder / "copies"
    copies.mkdir()
    for folder in (str(out), bucket.url):
        words = ["shards", "copy", folder, f"{copies}/train-%06d.tar"]
        assert guarded(lambda w=words: app(w)) == 0, capsys.readouterr().err  # type: ignore[misc]
        found = {path.name: path.read_bytes() for path in copies.iterdir()}
        assert found == {path.name: path.read_bytes() for path in near.glob("train-*.tar")}
    RemoteFolder(bucket.url).delete(["train-000000.tar"])
    assert guarded(lambda: app(["shards", "copy", bucket.url, f"{copies}/%d.tar"])) == 3
    assert f"{bucket.url}/train-000000.tar: no such file" in capsys.readouterr().err


def test_shards_of_other_options_are_removed(world: World, bucket: Bucket) -> None:
    export(world, bucket.url, shard_megabytes=0.03)
    export(world, bucket.url)
    assert content(bucket.url) == content(world.export("near")[0])


def test_a_damaged_note_of_the_url_is_one_line(world: World) -> None:
    folder, _ = world.export("near")
    (folder / ".location.json").write_text("{}")
    with pytest.raises(InvalidData, match=r"\.location\.json: 'url' is missing or empty"):
        verify_shards(folder)


@pytest.mark.parametrize("name", ["train-000000.tar", "classes.csv"])
def test_files_of_others_with_names_of_an_export_are_refused(
    name: str, world: World, bucket: Bucket
) -> None:
    RemoteFolder(bucket.url).write(name, b"mine")
    with pytest.raises(InvalidData, match=f"^{bucket.url}/{name}: hgld export did not"):
        export(world, bucket.url)
    assert content(bucket.url) == {name: b"mine"}


def test_shards_of_another_work_folder_are_not_replaced(world: World, bucket: Bucket) -> None:
    export(world, bucket.url)
    before = content(bucket.url)
    with pytest.raises(InvalidData, match="holds the shards of another export; choose another URL"):
        export(world, bucket.url, "second", shard_megabytes=0.03)
    assert content(bucket.url) == before
    export(world, bucket.url, "lost and begun again")  # the same labels and options
    assert content(bucket.url) == before
    RemoteFolder(bucket.url).delete(["manifest.json"])
    export(world, bucket.url, "second", shard_megabytes=0.03)
    assert content(bucket.url) != before
    with pytest.raises(InvalidData, match="holds the shards of another export"):
        export(world, bucket.url)


@pytest.mark.parametrize("name", ["my set", "my%20set", "a#b", "ü", "100%"])
def test_a_file_url_is_written_where_it_is_read(world: World, name: str) -> None:
    out = export(world, f"file://{world.folder}/{name}")
    verify_shards(out)
    verify_shards(f"file://{world.folder}/{name}")


def test_a_url_that_another_export_replaced_is_not_called_damaged(
    world: World, bucket: Bucket
) -> None:
    out = export(world, bucket.url)
    rows = read_index(out)
    RemoteFolder(bucket.url).delete(["manifest.json"])
    export(world, bucket.url, "second", shard_megabytes=0.03)
    says = f"^{bucket.url}: holds another export than {out}, or an incomplete one; run export"
    with pytest.raises(InvalidData, match=says):
        read_image(out, rows.iloc[0])
    with pytest.raises(InvalidData, match=says):
        verify_shards(out)


def test_verify_compares_the_sidecars_at_the_url_with_those_of_the_work_folder(
    world: World, bucket: Bucket
) -> None:
    out = export(world, bucket.url)
    RemoteFolder(bucket.url).write("attribution.csv", b"others' credits")
    with pytest.raises(
        InvalidData, match=f"^{bucket.url}/attribution.csv: missing, or not the file of {out}; run"
    ):
        verify_shards(out)


def test_the_photos_of_a_report_ask_once_whether_the_tars_are_those_of_the_index(
    world: World, bucket: Bucket, proxy: Proxy
) -> None:
    rows = read_index(export(world, bucket.url))
    images = Images(world.folder / "far", rows, "train", class_paths(world.hierarchy), {})
    proxy.requests.clear()
    photos = [images.photo(image_id) for image_id in list(images.rows.index)[:3]]
    assert len(photos) == 3 and proxy.counts("HEAD", r"manifest\.json") == 1


def test_of_two_writers_that_begin_at_the_same_moment_one_goes_on(
    tmp_path: Path, bucket: Bucket, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, first, done, entered = Barrier(2), Lock(), Barrier(2), []

    def late(request: Request) -> None:
        if request.method == "HEAD" and not puts:
            both.wait()  # both see that nobody writes
        if request.method == "PUT":
            puts.append(request)
            if not first.acquire(blocking=False):
                sleep(0.3)  # without its wait, the other one would read its own name back

    def write(name: str) -> str:
        (tmp_path / name).mkdir()
        try:
            with ShardUrl(bucket.url, tmp_path / name).held():
                entered.append(name)
                done.wait()
                return "writes"
        except HgldError as error:
            done.wait()
            return str(error)

    def settle(seconds: float) -> None:
        sleep(seconds)
        while sum(request.method == "PUT" for request in proxy.answered) < 2:
            sleep(0.01)  # a busy machine takes longer than the wait allows for

    puts: list[Request] = []
    proxy.fault = late
    monkeypatch.setattr("hgld.shards.shard_url.SETTLED_S", SETTLED_S)
    monkeypatch.setattr("hgld.shards.shard_url.sleep", settle)
    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(write, ["a", "b"]))
    assert said == [f"{bucket.url}: another process began to write shards here", "writes"]


def test_files_of_an_index_at_the_url_do_not_outlive_an_export(
    world: World, bucket: Bucket
) -> None:
    export(world, bucket.url)
    before, there = content(bucket.url), RemoteFolder(bucket.url)
    names = ["index_rules.json", "index_hierarchy.csv", "index_dropped.csv"]
    for name in names:
        there.write(name, b"{}")
    export(world, bucket.url, force=True)
    assert content(bucket.url) == before


def test_another_writer_is_named_and_an_own_one_that_was_killed_is_not(
    world: World, bucket: Bucket
) -> None:
    export(world, bucket.url)
    token = (world.folder / "far/.token").read_text()
    there = RemoteFolder(bucket.url)
    there.write(".writer", b"process 7 on other since 2026-01-01; 0123")
    with pytest.raises(
        HgldError, match=r"another process .*\(process 7 on other since 2026-01-01\)"
    ):
        export(world, bucket.url)
    there.write(".writer", f"process 7 on other; {token}".encode())
    export(world, bucket.url, force=True)
    assert content(bucket.url)[".writer"] == b""


def test_a_scheme_that_no_driver_reads_is_one_line_before_anything_is_written(world: World) -> None:
    says = r"^nonsense://bucket/set[^\n]*cannot be opened \(Protocol not known: nonsense[^\n]*$"
    with pytest.raises(HgldError, match=says):
        export(world, "nonsense://bucket/set")
    assert not (world.folder / "far").exists()


@pytest.mark.parametrize("scheme", ["ftp", "http", "https"])
def test_a_scheme_that_takes_no_shards_is_refused_by_name(world: World, scheme: str) -> None:
    says = f"^{scheme}://me@x/y: shards cannot be written to {scheme}://; expected file, s3, gs, "
    with pytest.raises(HgldError, match=says):
        export(world, f"{scheme}://me@x/y")
    assert not (world.folder / "far").exists()


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        (Fault(403, "AccessDenied"), HgldError, "writing is not allowed"),
        (Fault(400, "ExpiredToken"), Resumable, "the credentials have expired"),
        (Fault(503, "SlowDown"), Resumable, "cannot be written .* the same command resumes"),
    ],
    ids=["read-only", "expired", "busy"],
)
@pytest.mark.parametrize("after", [0, 2])
def test_a_server_that_refuses_leaves_nothing_half_written(
    world: World, bucket: Bucket, proxy: Proxy, monkeypatch: pytest.MonkeyPatch,
    fault: Fault, kind: type[HgldError], says: str, after: int,
) -> None:  # fmt: skip
    monkeypatch.setattr("hgld.storage.WAITS_S", (0.01,))
    puts: list[str] = []

    def refuse(request: Request) -> Fault | None:
        puts.extend([request.path] * (request.method == "PUT"))
        return fault if request.method == "PUT" and len(puts) > after else None

    proxy.fault = refuse
    with pytest.raises(kind, match=f"^{bucket.url}[^\n]*{says}[^\n]*$") as raised:
        export(world, bucket.url)
    assert is_clean(str(raised.value))
    proxy.fault = lambda request: None
    near, found = content(world.export("near")[0]), content(bucket.url)
    assert "manifest.json" not in found
    assert all(near[name] == data for name, data in found.items() if name != ".writer")
    export(world, bucket.url)
    assert content(bucket.url) == near


@pytest.mark.parametrize("always", [False, True])
def test_a_server_that_takes_bytes_and_never_answers_ends_an_export_in_time(
    world: World,
    bucket: Bucket,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    always: bool,
) -> None:
    impatient = {"retries": {"total_max_attempts": 1}, "read_timeout": 0.4}
    monkeypatch.setattr("hgld.storage.OPTIONS", {"s3": {"config_kwargs": impatient}})
    monkeypatch.setattr("hgld.storage.WAITS_S", (0.01, 0.01, 0.01))
    tars: list[str] = []

    def silence(request: Request) -> Fault | None:
        tar = request.method == "PUT" and request.path.endswith(".tar")
        tars.extend([request.path] * tar)
        return Fault(silent=True, stall_s=1.0) if tar and (always or len(tars) == 1) else None

    proxy.fault = silence
    if always:
        with pytest.raises(Resumable, match=rf"^{bucket.url}/\S*\.tar: cannot be written[^\n]*$"):
            export(world, bucket.url, processes=1)
        assert max(map(tars.count, tars)) == 8  # of 15 s each: the stated two minutes
        assert "manifest.json" not in content(bucket.url)
        proxy.fault = lambda request: None
    export(world, bucket.url)
    assert content(bucket.url) == content(world.export("near")[0])


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A sparse file of 110 MB, which the driver of S3 sends in three parts."""
    path = tmp_path / "large.tar"
    with path.open("wb") as file:
        for place in (0, 60_000_000, 109_999_995):
            file.seek(place)
            file.write(b"bytes")
    return path


def test_a_large_shard_is_sent_in_parts_and_a_part_that_fails_is_sent_again(
    large: Path, bucket: Bucket, proxy: Proxy
) -> None:
    def refuse_once(request: Request) -> Fault | None:
        first = "partNumber=2" in request.path and proxy.counts("PUT", "partNumber=2") == 1
        return Fault(503, "SlowDown") if first else None

    proxy.fault, there = refuse_once, RemoteFolder(bucket.url)
    assert there.upload(large, "a.tar").size_bytes == 110_000_000
    assert proxy.counts("POST", r"\?uploads") == 1 and proxy.counts("PUT", "partNumber=") == 4
    there.download("a.tar", large.with_name("copy"))
    assert filecmp.cmp(large, large.with_name("copy"), shallow=False)


def test_a_large_shard_is_sent_again_if_the_answers_to_its_last_request_are_lost(
    large: Path, bucket: Bucket, proxy: Proxy
) -> None:
    def lose(request: Request) -> Fault | None:
        ends = request.method == "POST" and "uploadId=" in request.path
        given_up = proxy.counts("DELETE", "uploadId=")  # by the driver, after its own tries
        return Fault(keep=0) if ends and not given_up else None

    proxy.fault, there = lose, RemoteFolder(bucket.url)
    assert there.upload(large, "a.tar").size_bytes == 110_000_000
    assert proxy.counts("POST", r"\?uploads") == 2


def test_of_a_large_shard_that_fails_nothing_is_listed_and_no_part_is_kept(
    large: Path, bucket: Bucket, proxy: Proxy
) -> None:
    def refuse(request: Request) -> Fault | None:
        return Fault(403, "AccessDenied") if "partNumber=2" in request.path else None

    proxy.fault, there = refuse, RemoteFolder(bucket.url)
    with pytest.raises(HgldError, match=f"^{bucket.url}/a.tar: writing is not allowed[^\n]*$"):
        there.upload(large, "a.tar")
    assert there.list() == {} and proxy.counts("DELETE", "uploadId=") == 1
    client = boto3.client("s3", endpoint_url=bucket.endpoint)
    assert "Uploads" not in client.list_multipart_uploads(Bucket=bucket.url[5:])


def test_of_a_large_shard_whose_writer_is_killed_nothing_is_listed_until_it_is_sent_again(
    large: Path, bucket: Bucket, proxy: Proxy
) -> None:
    def hang(request: Request) -> Fault | None:
        return Fault(silent=True, stall_s=60.0) if "partNumber=3" in request.path else None

    code = "from hgld.storage import RemoteFolder as F; from pathlib import Path as P; import sys; "
    words = [code + "F(sys.argv[1]).upload(P(sys.argv[2]), 'a.tar')", bucket.url, str(large)]
    proxy.fault, there = hang, RemoteFolder(bucket.url)
    process = Script(["-c", *words])
    while process.poll() is None and not proxy.counts("PUT", "partNumber=3"):
        sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL and there.list() == {}
    proxy.fault = lambda request: None
    assert there.upload(large, "a.tar") == there.list()["a.tar"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("shards", "is not a URL; expected one such as s3://bucket/set"),
        ("s3://bucket//set", "has a folder without a name"),
        ("file://data/set", "has a relative path; expected one such as file:///data/set"),
        ("s3://KEY12345:SECRET12345@bucket/set", "holds credentials or a query"),
        ("s3://KEY12345:SECRET/12345@bucket/set", "holds credentials or a query"),
        ("https://host/set?X-Amz-Signature=12345", "holds credentials or a query"),
        ("https://me:SECRET/12345@host/set", "holds credentials or a query"),
    ],
)
def test_a_url_with_credentials_is_refused_before_it_reaches_a_file(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        ExportOptions(out=url)
    assert "12345" not in str(raised.value.errors(include_input=False))  # type: ignore[attr-defined]
    if "://" in url:
        with pytest.raises(ValueError, match=says):
            SamplingOptions(folder=url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://KEY12345:SECRET12345@bucket/set", "s3://***@bucket/set"),
        ("s3://KEY12345:SECRET/12345@bucket/set", "s3://***@bucket/set"),
        ("s3://KEY12345:SECRET12345@bucket//set", "s3://***@bucket//set"),
        ("s3://bucket/set?X-Amz-Signature=12345", "s3://bucket/set?***"),
    ],
)
@pytest.mark.parametrize("option", ["export.out", "train.batches.folder"])
def test_the_refusal_of_a_pipeline_masks_credentials(option: str, url: str, shown: str) -> None:
    with pytest.raises(UsageError, match="holds credentials or a query") as raised:
        load_pipeline(Path("pipelines/quickstart.toml"), [f"{option}={url}"])
    assert f"(found '{shown}')" in str(raised.value) and "12345" not in str(raised.value)


@pytest.mark.parametrize(
    "encode",
    [str, quote_plus, lambda text: quote(text, safe="").lower(), lambda text: quote(quote(text))],
    ids=["plain", "plus", "lower", "twice"],
)
def test_a_secret_of_the_environment_is_masked_however_it_is_encoded(
    monkeypatch: pytest.MonkeyPatch, encode: Callable[[str], str]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret := "wjalr/xutnfemi+k7mdeng")

    def refuse(url: str) -> tuple[object, str]:
        raise OSError(f"no answer for {encode(secret)} at host")

    monkeypatch.setattr("hgld.storage._connect", refuse)
    with pytest.raises(HgldError, match=r"\(no answer for \*\*\* at host\)$"):
        RemoteFolder("s3://bucket").read("a.tar")


@pytest.mark.parametrize("url", ["https://host:8000/set@2", "hf://datasets/me/set@main:x/y@z"])
def test_a_port_and_the_name_of_a_version_are_no_password(url: str) -> None:
    assert SamplingOptions(folder=url).folder == url == as_folder(url)
    assert RemoteFolder(url).location() == url


COMMANDS = ["ls"], ["stats"], ["verify"], ["cat", "key"], ["index"], ["copy", "copy-%d.tar"]


@pytest.mark.parametrize("secret", ["SECRET12345", "SECRET/12345"])
def test_a_password_in_a_url_reaches_no_output(
    capfd: pytest.CaptureFixture[str], secret: str
) -> None:
    url = f"s3://me:{secret}@bucket/set"
    for words in COMMANDS:
        command, *more = words
        assert guarded(lambda c=command, m=more: app(["shards", c, url, *m])) == 2  # type: ignore[misc]
        said = "".join(capfd.readouterr())
        assert "12345" not in said and "s3://me@bucket/set: the URL holds a password" in said
    with pytest.raises(UsageError, match=r"^s3://me@bucket/set: the URL holds a password"):
        read_index(url)


@pytest.mark.parametrize("scheme", ["s3", "sftp", "http", "https"])
@pytest.mark.parametrize("secret", ["a/b+c=", "/b", "12/b", "a:b", "p@ss", "p?b#c", "p@s/w"])
def test_a_password_of_any_signs_is_masked(scheme: str, secret: str) -> None:
    if scheme.startswith("http") and secret in ("/b", "12/b"):
        return  # a port
    url = f"{scheme}://me:{secret}@host/set@2: no answer"
    assert masked(url) == f"{scheme}://me@host/set@2: no answer"
    for host in ("host", "host:8000", "10.0.0.1/set", "host.org/set@v2"):
        assert masked(f"'{scheme}://me:{secret}@{host}'") == f"'{scheme}://me@{host}'"


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_signature_in_the_url_of_a_folder_reaches_no_output(
    capfd: pytest.CaptureFixture[str], command: list[str]
) -> None:
    url = "https://host/set?X-Amz-Signature=12345"
    assert guarded(lambda: app(["shards", command[0], url, *command[1:]])) == 2
    said = "".join(capfd.readouterr())
    assert "12345" not in said and "https://host/set: the URL of a folder has no query" in said


def test_a_killed_command_resumes_to_the_same_bytes(
    labelled: Path,  # noqa: F811
    bucket: Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(labelled, tmp_path / "set")
    pipeline = tmp_path / "set/animals.toml"
    words = ["run", pipeline, "--until", "export", "--set", "export.processes=1"]
    near = [*words, "--work", tmp_path / "set/near"]
    far = [*words, "--work", tmp_path / "set/far", "--set", f"export.out={bucket.url}/set"]
    assert finish(hgld(*near))[0] == 0
    with proxy_to(bucket.endpoint) as far_away, monkeypatch.context() as environment:
        far_away.delay_s = 0.03
        environment.setenv("AWS_ENDPOINT_URL", far_away.address)
        for uploads in (1, 3, 6):
            process = hgld(*far)
            seen = far_away.counts("PUT", r"\.tar")
            while process.poll() is None and far_away.counts("PUT", r"\.tar") < seen + uploads:
                sleep(0.005)
            os.killpg(process.pid, signal.SIGKILL)
            assert is_clean(process.communicate()[1])
        code, said = finish(hgld(*far))
        assert code == 0 and is_clean(said), said
    assert content(f"{bucket.url}/set") == content(tmp_path / "set/near/shards")
    assert b"fresh" in status(*far)
    for lost in ("train-000000.tar", "manifest.json"):
        RemoteFolder(f"{bucket.url}/set").delete([lost])
        assert b"shards is gone" in status(*far)
        assert finish(hgld(*far))[0] == 0
        assert content(f"{bucket.url}/set") == content(tmp_path / "set/near/shards")
    texts = [p for p in (tmp_path / "set/far").rglob("*") if p.is_file() and p.suffix != ".tar"]
    assert all(is_clean(path.read_bytes().decode(errors="replace")) for path in texts)


def status(command: str, pipeline: Path, until: str, stage: str, *more: object) -> bytes:
    """What ``hgld status`` prints of the export."""
    shown = warm.hgld(Path(), "status", pipeline, *map(str, more)).stdout.encode()
    return next(line for line in shown.splitlines() if line.strip().startswith(b"export"))
