from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

from tests.object_store import Bucket, Proxy, proxy_to
from tests.shards.shard_world import World, make_world


@pytest.fixture(autouse=True)
def settled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export to a URL waits for another one that begins at the same moment; here none does."""
    monkeypatch.setattr("hgld.shards.shard_url.SETTLED_S", 0.01)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, [1, 3, 4, 5, 9, 17, 20, 33])


@pytest.fixture
def shards(world: World) -> Path:
    return world.export()[0]


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
