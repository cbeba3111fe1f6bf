"""Index and manifest from anybody: what is read is refused, or safe to use."""

import io
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from hgld.artifacts import hash_file
from hgld.errors import HgldError, InvalidData
from hgld.shards import (
    BatchLoader,
    BatchOptions,
    count_shards,
    list_shards,
    read_index,
    read_manifest,
    read_sample,
    verify_shards,
)
from hgld.shards.index import open_index
from hgld.shards.schema import index_columns
from hgld.shards.shard import copy_samples
from hgld.shards.sidecars import checksums, write_checksums
from tests.fuzz.driver import fuzz
from tests.shards.shard_world import make_world, pixels

TOKENS = [b'"../secret.tar"', b'"/etc/passwd"', b"null", b"[]", b"{}", b'"\\ud800"', b'"a\\u0000b"']
TOKENS += [b"-1", b"1e400", b"true", b'"train"', b'"index"', b'"level_1"', b'"level_9"', b"[[[["]


@cache
def exported() -> Path:
    """A small export, which lasts as long as the process."""
    exported.folder = TemporaryDirectory()  # type: ignore[attr-defined]
    return make_world(Path(exported.folder.name) / "world", [2, 3, 4]).export()[0]  # type: ignore[attr-defined]


def good(name: str) -> bytes:
    with TemporaryDirectory() as folder:
        shards, _ = make_world(Path(folder) / "world", [2, 3, 4]).export()
        return (shards / name).read_bytes()


def as_text(index: bytes) -> bytes:
    return json.dumps(pd.read_parquet(io.BytesIO(index)).to_dict("list")).encode()


def use(shards: Path) -> None:
    """What a person does with shards of somebody else."""
    rows = read_index(shards)
    options = BatchOptions(2, 2, order="shards")
    uses = [
        lambda: [shard[["key", "level_1"]] for shard in open_index(shards, index_columns(1))],
        lambda: list_shards(shards),
        lambda: count_shards(shards),
        lambda: [read_sample(shards, key) for key in rows["key"].head(2)],
        lambda: verify_each(shards),
        lambda: [
            next(iter(BatchLoader(shards, rows, pixels, options, seed=0, reader=reader)))
            for reader in ("indexed", "stream")  # type: ignore[arg-type]
        ],
        lambda: copy_with_sidecars(shards, rows),
    ]
    faults = []
    for do in uses:
        try:
            do()
        except HgldError as error:
            faults.append(error)
    if faults:
        raise faults[0]


def verify_each(shards: Path) -> None:
    """Verify; of several faults, one for each damaged shard, each has to be one line."""
    try:
        verify_shards(shards)
    except InvalidData as error:
        faults = error.args
        assert all(isinstance(fault, str) for fault in faults), faults
        assert len(str(error).splitlines()) == len(faults), faults
        raise InvalidData(faults[0]) from error


def copy_with_sidecars(shards: Path, rows: pd.DataFrame) -> None:
    with TemporaryDirectory() as folder:
        copy_samples(shards, rows, Path(folder) / "copy")


def put(shards: Path, index: bytes | None, manifest: bytes | None = None) -> None:
    """Index and manifest of the shards, which agree about the hash of the index."""
    (shards / "index.parquet").write_bytes(index or good_index())
    document = json.loads(good_manifest())
    document["index_sha256"] = hash_file(shards / "index.parquet")
    (shards / "manifest.json").write_bytes(manifest or json.dumps(document).encode())
    write_checksums(shards, checksums(shards, document["shards"]))


@cache
def good_index() -> bytes:
    return (exported() / "index.parquet").read_bytes()


@cache
def good_manifest() -> bytes:
    return (exported() / "manifest.json").read_bytes()


def read_parquet_index(data: bytes, folder: Path) -> None:
    good_index(), good_manifest()
    put(exported(), data)
    use(exported())


def read_index_of_rows(data: bytes, folder: Path) -> None:
    """The same with any values in a sound file."""
    good_index(), good_manifest()
    try:
        rows = pd.DataFrame(json.loads(data))
        rows.to_parquet(folder / "made.parquet", index=False)
    except (Exception, RecursionError):
        raise InvalidData("no table") from None
    put(exported(), (folder / "made.parquet").read_bytes())
    use(exported())


def read_any_manifest(data: bytes, folder: Path) -> None:
    good_index(), good_manifest()
    put(exported(), None, data)
    read_manifest(exported())
    use(exported())


def test_any_index_is_read_or_refused() -> None:
    assert fuzz(read_parquet_index, [good("index.parquet")], tokens=TOKENS).refused


def test_any_rows_of_an_index_are_used_or_refused() -> None:
    assert fuzz(read_index_of_rows, [as_text(good("index.parquet"))], tokens=TOKENS).refused


def test_any_manifest_is_used_or_refused() -> None:
    assert fuzz(read_any_manifest, [good("manifest.json")], tokens=TOKENS).refused
