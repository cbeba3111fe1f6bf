"""Shards in other object stores than moto's: real servers of S3, Azure and Google Cloud Storage.

The Hub has no server that can be installed, so its part is a stand-in of the documented file API.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import fsspec
import pytest

from hgld.cli import app, guarded
from hgld.errors import HgldError
from hgld.shards import BatchLoader, read_index, verify_shards
from hgld.storage import RemoteFolder
from tests.object_servers import (
    Store,
    is_hidden,
    serve_azurite,
    serve_gcs,
    serve_hub,
    serve_s3rver,
)
from tests.shards.shard_world import make_world
from tests.shards.test_export_to_url import content, export
from tests.shards.test_object_store import IN_SHARDS, RANDOM
from tests.shards.test_shards_command import finish, hgld, labelled  # noqa: F401
from tests.shards.test_shards_load import noisy, same, walk

pytestmark = pytest.mark.slow


@pytest.fixture(
    scope="module",
    params=[serve_s3rver, serve_azurite, serve_gcs],
    ids=["s3rver", "azurite", "gcs"],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """A server in a process of its own, with an empty container."""
    with request.param(tmp_path_factory.mktemp("server")) as store:
        yield store
    for scheme in ("s3", "abfs", "gs"):
        fsspec.get_filesystem_class(scheme).clear_instance_cache()


@pytest.fixture
def store(server: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("HGLD_CACHE", str(tmp_path / "cache"))
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    fsspec.get_filesystem_class(server.url.partition(":")[0]).clear_instance_cache()
    return server


@pytest.mark.filterwarnings("ignore:every byte of the shards is read")
def test_export_and_readers_give_what_a_local_folder_gives(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = make_world(tmp_path, [3, 4, 5, 9, 17])
    near, _ = world.export("near")
    url = f"{store.url}/whole"
    export(world, url)
    assert content(url) == content(near)
    RemoteFolder(url).delete(["train-000000.tar"])
    RemoteFolder(url).write("train-000001.tar", b"others' bytes")
    out = export(world, url)
    assert content(url) == content(near)
    verify_shards(out)
    rows = read_index(url).query("split == 'train'").reset_index(drop=True)
    for reader, options in (("indexed", RANDOM), ("stream", IN_SHARDS)):
        far = BatchLoader(url, rows, noisy, options, seed=3, reader=reader)  # type: ignore[arg-type]
        assert same(walk(far, 4), walk(BatchLoader(near, rows, noisy, options, seed=3), 4))
    capsys.readouterr()
    for command, *more in (["ls"], ["stats"], ["verify"], ["cat", str(rows["key"][0])]):
        said = []
        for folder in (str(near), url):
            assert guarded(lambda f=folder, m=more, c=command: app(["shards", c, f, *m])) == 0  # type: ignore[misc]
            said.append(capsys.readouterr().out)
        assert said[0] == said[1] != ""


@pytest.fixture(scope="module")
def finished(labelled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """A copy of the labelled set with an export on this machine, in near/shards."""
    folder = tmp_path_factory.mktemp("finished")
    shutil.copytree(labelled, folder, dirs_exist_ok=True)
    assert finish(hgld(*export_words(folder), "--work", folder / "near"))[0] == 0
    return folder


def export_words(folder: Path) -> list[object]:
    return ["run", folder / "animals.toml", "--until", "export", "--set", "export.processes=1"]


def test_a_killed_export_resumes_to_the_same_bytes(
    store: Store, finished: Path, tmp_path: Path
) -> None:
    there, work = RemoteFolder(f"{store.url}/killed"), tmp_path / "far"
    words = [*export_words(finished), "--work", work, "--set", f"export.out={there.url}"]
    process = hgld(*words)
    while process.poll() is None and not any(name.endswith(".tar") for name in there.list()):
        sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    assert is_hidden(process.communicate()[1], store)
    code, said = finish(hgld(*words))
    assert code == 0 and is_hidden(said, store), said
    assert content(there.url) == content(finished / "near/shards")
    texts = [p for p in work.rglob("*") if p.is_file() and p.suffix != ".tar"]
    assert all(is_hidden(path.read_bytes().decode(errors="replace"), store) for path in texts)


def test_a_container_that_is_not_there_and_wrong_credentials_are_one_line(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = store.url.replace("box", "no-such-box")
    with pytest.raises(HgldError, match=f"^{gone}: the bucket does not exist[^\n]*$"):
        RemoteFolder(gone).write("a", b"1")
    if not store.wrong:
        return  # the emulator of Google Cloud Storage knows no credentials
    for name, value in store.wrong.items():
        monkeypatch.setenv(name, value)
    fsspec.get_filesystem_class(store.url.partition(":")[0]).clear_instance_cache()
    with pytest.raises(
        HgldError, match=f"^{store.url}/x/a: [^\n]*(credentials|denied)[^\n]*$"
    ) as raised:
        RemoteFolder(f"{store.url}/x").write("a", b"1")
    assert is_hidden(str(raised.value), store)


READ = """
import sys
from contextlib import redirect_stdout
from io import StringIO
from hgld.cli import app, guarded
from hgld.errors import InvalidData
from hgld.shards import BatchLoader, read_index
from hgld.shards.webdataset import batches
from tests.shards.test_object_store import IN_SHARDS, RANDOM
from tests.shards.test_shards_load import noisy, same, walk

def printed(command, folder):
    with redirect_stdout(StringIO()) as out:
        assert guarded(lambda: app(["shards", command, folder])) == 0
    return out.getvalue()

near, far = sys.argv[1:]
for command in ("ls", "stats", "verify"):
    assert printed(command, near) == printed(command, far) != ""
rows = read_index(far).query("split == 'train'").reset_index(drop=True)
for reader, options in (("indexed", RANDOM), ("stream", IN_SHARDS)):
    one = BatchLoader(near, rows, noisy, options, seed=3)
    two = BatchLoader(far, rows, noisy, options, seed=3, reader=reader)
    assert same(walk(one, 4), walk(two, 4))

def keys(folder, names):
    found = batches([f"{folder}/{name}" for name in names], 3, 2, noisy)
    return [keys for _, _, keys in found]

names = sorted(set(rows["shard"]))
assert keys(near, names) == keys(far, names) != []
try:
    keys(far, ["none.tar"])
except InvalidData as error:
    assert str(error).startswith(f"{far}/none.tar: no such file")
else:
    raise AssertionError("none.tar was read")
"""


EXPORT = """
import sys
from pathlib import Path
from hgld.shards import verify_shards
from hgld.storage import RemoteFolder
from tests.shards.shard_world import make_world
from tests.shards.test_export_to_url import content, export

world, url = make_world(Path(sys.argv[1]), [3, 4, 5, 9, 17]), sys.argv[2]
near, _ = world.export("near")
verify_shards(export(world, url, processes=1))
assert content(url) == content(near)
RemoteFolder(url).delete(["train-000000.tar"])
export(world, url, processes=1)
assert content(url) == content(near)
"""


def test_an_export_to_the_hub_is_a_commit_for_each_file(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    refused = (
        "import sys; from hgld.storage import RemoteFolder as F; F(sys.argv[2]).write('a', b'')"
    )
    with serve_hub(tmp_path / "hub") as store:

        def run(code: str, **other: str) -> "subprocess.CompletedProcess[str]":
            words = [sys.executable, "-W", "ignore", "-c", code, tmp_path, f"{store.url}/new"]
            variables = {**os.environ, **store.environment, **other}
            return subprocess.run(words, env=variables, capture_output=True, text=True, check=False)

        exported = run(EXPORT)
        assert exported.returncode == 0 and not exported.stderr, exported.stderr
        said = run(refused, HF_TOKEN="hf_wrongwrong").stderr
        assert "HgldError: hf://datasets/me/world: no such repository, or the token may " in said
        assert is_hidden(said, store) and "hf_wrongwrong" not in said


def test_a_release_on_the_hub_is_read(tmp_path: Path) -> None:
    """In processes of their own: the Hub's package reads its environment when it is imported."""
    near, _ = make_world(tmp_path, [3, 4, 5, 9, 17]).export("set")
    with serve_hub(tmp_path) as store:
        url = f"{store.url}/set"
        environment = {**os.environ, **store.environment, "HGLD_CACHE": str(tmp_path / "cache")}

        def run(*words: object, **other: str) -> "subprocess.CompletedProcess[str]":
            whole = [sys.executable, "-W", "ignore", *map(str, words)]
            variables = {**environment, **other}
            return subprocess.run(whole, env=variables, capture_output=True, text=True, check=False)

        read = run("-c", READ, near, url)
        assert read.returncode == 0 and not read.stderr, read.stderr
        refused = run("-m", "hgld", "shards", "ls", url, HF_TOKEN="hf_wrongwrong")
        assert refused.returncode == 1 and len(refused.stderr.splitlines()) == 1, refused.stderr
        assert is_hidden(refused.stderr, store) and "hf_wrongwrong" not in refused.stderr
