"""The export on a Ray cluster of two nodes on this machine, one of whose workers is killed."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hgld.errors import HgldError, InvalidData
from hgld.tasks import map_tasks
from tests.shards.shard_world import World, make_world

ray = pytest.importorskip("ray") if not os.environ.get("CI") else __import__("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    from ray.cluster_utils import Cluster

    nodes = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    nodes.add_node(num_cpus=1)
    yield nodes.address
    ray.shutdown()
    nodes.shutdown()


def test_a_cluster_of_two_nodes_writes_the_same_bytes(cluster: str, tmp_path: Path) -> None:
    world = make_world(tmp_path, [5, 17, 20, 33])
    one, two = world.export("one")[0], world.export("two", ray=cluster)[0]
    assert _content(one) == _content(two)


def test_a_killed_worker_does_not_stop_the_export(cluster: str, tmp_path: Path) -> None:
    tasks = [(i, str(tmp_path)) for i in range(4)]
    assert map_tasks(_die_once, tasks, "Dying", cluster=cluster) == [0, 1, 4, 9]
    assert (tmp_path / "died").exists()


def test_a_fault_in_a_task_keeps_its_one_line(cluster: str, tmp_path: Path) -> None:
    world: World = make_world(tmp_path, [5, 17])
    world.images["path"] = "images.tar"
    world.images.loc[world.images.index[-1], "size_bytes"] = 10**7
    with pytest.raises(InvalidData, match=r"^[^\n]*images\.tar: ends .* truncated[^\n]*$"):
        world.export("out", ray=cluster)


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path) -> None:
    if ray.is_initialized():
        ray.shutdown()
    with pytest.raises(HgldError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        map_tasks(abs, [1], "Nothing", cluster="127.0.0.1:1")


def _die_once(task: tuple[int, str]) -> int:
    """Square a number; the worker that first gets 2 is killed."""
    number, folder = task
    mark = Path(folder) / "died"
    if number == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(10)
    return number**2


def _content(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".")}
