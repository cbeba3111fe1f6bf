"""The export on a Ray cluster of two nodes on this machine, one of whose workers is killed."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
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


def test_an_export_whose_worker_is_killed_ends_with_the_same_bytes(
    cluster: str, tmp_path: Path
) -> None:
    world = make_world(tmp_path, [60] * 12)
    one, _ = world.export("one", shard_megabytes=0.02)
    killed: list[int] = []
    killer = threading.Thread(target=_kill_a_writer, args=(tmp_path / "two", killed))
    killer.start()
    two, _ = world.export("two", shard_megabytes=0.02, ray=cluster)
    killer.join()
    assert len(killed) == 1
    assert _content(one) == _content(two)


def _kill_a_writer(out: Path, killed: list[int]) -> None:
    """Kill -9 one worker of this process's own cluster once it has written some shards."""
    end = time.monotonic() + 60
    while len(list(out.glob("*.tar"))) < 5 and time.monotonic() < end:
        time.sleep(0.002)
    while not killed and not (out / "manifest.json").exists() and time.monotonic() < end:
        for process in _descendants(os.getpid()):
            with suppress(OSError):
                title = Path(f"/proc/{process}/cmdline").read_text()
                if title.startswith("ray::write_or_keep") and not killed:
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)


def _descendants(process: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                found += [child, *_descendants(child)]
    return found


def test_a_killed_worker_does_not_stop_a_map(cluster: str, tmp_path: Path) -> None:
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
