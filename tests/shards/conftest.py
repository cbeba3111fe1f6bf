import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pandas as pd
import pytest

from hgld.shards import read_index
from tests.object_store import Bucket, Proxy, proxy_to
from tests.shards.shard_world import World, make_world


@pytest.fixture(autouse=True)
def settled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export to a URL waits for another one that begins at the same moment; here none does."""
    monkeypatch.setattr("hgld.shards.shard_url.SETTLED_S", 0.01)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world and its shards, of which each test gets copies."""
    made = make_world(tmp_path_factory.mktemp("world"), [1, 3, 4, 5, 9, 17, 20, 33])
    made.export()
    return made


@pytest.fixture
def world(exported: World, tmp_path: Path) -> World:
    shutil.copytree(exported.source, tmp_path / "source")
    images, hierarchy = exported.images.copy(), exported.hierarchy.copy()
    return World(tmp_path, images, hierarchy, dict(exported.data))


@pytest.fixture
def shards(exported: World, world: World) -> Path:
    for name in ("shards", "shards-state"):
        shutil.copytree(exported.folder / name, world.folder / name)
    return world.folder / "shards"


@pytest.fixture
def rows(shards: Path) -> pd.DataFrame:
    return read_index(shards).query("split == 'train'").reset_index(drop=True)


@pytest.fixture
def build(tmp_path: Path) -> Callable[[list[int]], World]:
    return lambda sizes: make_world(tmp_path, sizes)


@pytest.fixture
def proxy(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy through which this process reaches the bucket."""
    with proxy_to(bucket.endpoint) as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.address)
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        yield found
    fsspec.get_filesystem_class("s3").clear_instance_cache()
