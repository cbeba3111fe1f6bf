"""Export, resizing, embedding and ranking on a node that shares no folder with the driver."""

import os
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest

from hgld.artifacts import Json
from hgld.config import SourceOptions, StageContext
from hgld.errors import HgldError
from hgld.shards.location import LOCATION
from hgld.tasks import map_tasks
from tests.evaluate.test_rank_tasks import make_sides, written
from tests.evaluate.test_spread import embed, make_model
from tests.made_shards import make_shards, visible
from tests.object_store import make_bucket, reach, serve_s3
from tests.on_ray import look
from tests.shards.shard_world import make_world
from tests.sources.file_server import Files, serve_files
from tests.sources.made_set import FILES
from tests.sources.test_shrink import PHOTOS, Site, pack
from tests.two_nodes import driver_address, two_nodes

ray = pytest.importorskip("ray") if not os.environ.get("CI") else __import__("ray")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray's own


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Address of the cluster; its node with cores shares only the S3 server with this process."""
    with pytest.MonkeyPatch.context() as patch, serve_s3(host="0.0.0.0") as address:
        reached = reach(address.replace("127.0.0.1", driver_address()))
        with two_nodes(**reached) as nodes:
            for name, value in reached.items():
                patch.setenv(name, value)
            yield nodes.address
            ray.shutdown()


def test_the_node_has_other_folders(cluster: str, tmp_path: Path) -> None:
    assert map_tasks(look, [tmp_path], "", cluster=cluster) == [(False, "/tmp/home", "/tmp/home")]


def test_it_writes_the_same_shards(cluster: str, tmp_path: Path) -> None:
    world = make_world(tmp_path, [5, 17, 20, 33])
    one, two = world.export("one")[0], world.export("two", ray=cluster)[0]
    assert visible(one) == visible(two)
    made = [path.stat().st_mtime_ns for path in sorted(two.glob("*.tar"))]
    world.export("two")  # at home, all is found as it was made
    assert [path.stat().st_mtime_ns for path in sorted(two.glob("*.tar"))] == made


def test_it_embeds_the_same_vectors(cluster: str, tmp_path: Path) -> None:
    shards, model = make_shards(tmp_path / "shards"), make_model(tmp_path / "model")
    there = embed(shards, model, tmp_path / "there", ray=cluster)
    assert there == embed(shards, model, tmp_path / "here")


def test_it_ranks_to_the_same_bytes(cluster: str, tmp_path: Path) -> None:
    sides = make_sides(tmp_path, 70)
    assert written(tmp_path, sides, ray=cluster) == written(tmp_path, sides)


def test_it_embeds_shards_that_only_the_object_store_has(cluster: str, tmp_path: Path) -> None:
    shards, model = make_shards(tmp_path / "shards"), make_model(tmp_path / "model")
    here = embed(shards, model, tmp_path / "here")
    bucket = make_bucket(os.environ["AWS_ENDPOINT_URL"], "shards")
    for tar in sorted(shards.glob("*.tar")):
        with fsspec.open(f"{bucket.url}/set/{tar.name}", "wb") as remote:
            remote.write(tar.read_bytes())
        tar.unlink()
    Json(LOCATION).write({"url": f"{bucket.url}/set"}, shards / LOCATION)
    assert embed(shards, model, tmp_path / "there", ray=cluster) == here


def test_a_gpu_that_no_node_has_is_one_line_and_writes_nothing(
    cluster: str, tmp_path: Path
) -> None:
    shards, model = make_shards(tmp_path / "shards"), make_model(tmp_path / "model")
    says = r"^Embedding with m: a task reserves 1 CPU, 1 GPU, but no node [^\n]*(gpus_per_task)\)$"
    for asked in ({"device": "cuda"}, {"gpus_per_task": 1}):
        with pytest.raises(HgldError, match=says):
            embed(shards, model, tmp_path / "state", ray=cluster, **asked)
    assert not list((tmp_path / "state").rglob("*.npy"))


def test_it_resizes_the_same_photos(cluster: str, tmp_path: Path) -> None:
    served = {name: text.encode() for name, text in FILES.items()}
    served |= {name: pack(photos) for name, photos in PHOTOS.items()}
    served |= {f"{name}.md5": md5(served[name]).hexdigest().encode() for name in PHOTOS}
    files = Files(served)
    with serve_files(files) as url:
        for name, where in (("here", None), ("there", cluster)):
            folder = tmp_path / name
            source = SourceOptions(folder=folder)
            context = StageContext("2026-01-01", tmp_path / f"{name}-state", source, tmp_path)
            Site(url, files, context).fetch(ray=where)
    assert visible(tmp_path / "here") == visible(tmp_path / "there")
    assert len(list((tmp_path / "there").glob("*.kept.tar"))) == len(PHOTOS)
