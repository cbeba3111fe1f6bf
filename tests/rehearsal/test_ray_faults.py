"""A node, a driver, a node's memory and an object store are lost during an export by Ray."""

import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from hgld.errors import Resumable
from hgld.storage import RemoteFolder
from hgld.tasks import map_tasks
from tests.made_shards import visible
from tests.object_store import free_port, make_bucket, reach, serve_s3
from tests.shards.shard_world import World, make_world
from tests.two_nodes import driver_address, two_nodes

ray = pytest.importorskip("ray") if not os.environ.get("CI") else __import__("ray")
pytestmark = [pytest.mark.rehearsal, pytest.mark.filterwarnings("ignore")]
SMALL = {"shard_megabytes": 0.02}
DRIVER = """
import sys; from pathlib import Path
from tests.shards.shard_world import make_world
world = make_world(Path(sys.argv[1]), [60] * 12)
world.export("two", shard_megabytes=0.02, ray=sys.argv[2])
"""

UPLOADER = """
import pickle, sys; from pathlib import Path
from tests.shards.test_export_to_url import export
world = pickle.loads(Path(sys.argv[1]).read_bytes())
export(world, sys.argv[2], shard_megabytes=0.02, ray=sys.argv[3])
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, [60] * 12)


def wait_for_shards(folder: Path, number: int) -> None:
    until = time.monotonic() + 120
    while len(list(folder.glob("*.tar"))) < number and time.monotonic() < until:
        time.sleep(0.005)


def test_a_node_that_dies_and_comes_back_changes_no_byte(world: World) -> None:
    one, _ = world.export("one", **SMALL)
    with two_nodes() as nodes:

        def kill() -> None:
            wait_for_shards(world.folder / "two", 5)
            nodes.kill_node()
            nodes.start_node()

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            two, _ = world.export("two", **SMALL, ray=nodes.address)
        finally:
            killer.join()
            ray.shutdown()
    assert visible(one) == visible(two)


def test_a_driver_that_dies_goes_on_where_it_was(world: World, tmp_path: Path) -> None:
    one, _ = world.export("one", **SMALL)
    other = tmp_path / "other"
    with two_nodes() as nodes:
        command = [sys.executable, "-W", "ignore", "-c", DRIVER, str(other), nodes.address]
        environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
        driver = subprocess.Popen(command, env=environment)
        wait_for_shards(other / "two", 5)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        kept = {path: path.stat().st_mtime_ns for path in (other / "two").glob("*.tar")}
        assert len(kept) >= 5 and not (other / "two" / "manifest.json").exists()
        again = make_world(tmp_path / "again", [60] * 12)  # the same bytes as in other
        again.folder = other
        try:
            two, _ = again.export("two", **SMALL, ray=nodes.address)
        finally:
            ray.shutdown()
    assert visible(one) == visible(two)
    again_written = [path for path, time_ns in kept.items() if path.stat().st_mtime_ns != time_ns]
    assert len(again_written) <= 1  # the kill may come between a shard and its marker


def test_ten_kills_of_node_driver_and_object_store_change_no_byte(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store loses all objects when it is killed; the same command uploads them again."""
    one, _ = world.export("one", **SMALL)
    (tmp_path / "world").write_bytes(pickle.dumps(world))
    port, chance = free_port(), random.Random(0)
    endpoint, at_home = f"http://{driver_address()}:{port}", f"http://127.0.0.1:{port}"
    for name, value in reach(endpoint).items():
        monkeypatch.setenv(name, value)
    with two_nodes(**reach(endpoint)) as nodes, ExitStack() as store:
        words = (str(tmp_path / "world"), "s3://rehearsal/set", nodes.address)
        command = [sys.executable, "-W", "ignore", "-c", UPLOADER, *words]
        environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
        store.enter_context(serve_s3(port, "0.0.0.0"))
        make_bucket(at_home, "rehearsal")
        driver = subprocess.Popen(command, env=environment)
        for kill in range(10):
            time.sleep(chance.uniform(2, 8))
            if kill % 3 == 0:
                nodes.kill_node()
                nodes.start_node()
            elif kill % 3 == 1:
                driver.kill()
            else:
                store.close()
                store.enter_context(serve_s3(port, "0.0.0.0"))
                make_bucket(at_home, "rehearsal")
            if kill % 3 == 1 or driver.poll() is not None:
                driver.wait()
                driver = subprocess.Popen(command, env=environment)
        driver.wait()
        nodes.wait(1)
        subprocess.run(command, env=environment, check=True)
        there = RemoteFolder("s3://rehearsal/set")
        names = [name for name in there.list() if not name.startswith(".")]
        assert {name: there.read(name) for name in names} == visible(one)


def test_a_node_without_memory_is_one_line() -> None:
    """Ray's monitor ends each worker, as the machine uses more than 1 % of its memory."""
    with two_nodes(RAY_memory_usage_threshold="0.01", RAY_memory_monitor_refresh_ms="200") as nodes:
        try:
            with pytest.raises(
                Resumable, match=r"^x: a task ran out of memory on its node 5 times"
            ):
                map_tasks(fill_memory, [1], "x", cluster=nodes.address)
        finally:
            ray.shutdown()


def fill_memory(seconds: float) -> int:
    held = bytearray(300_000_000)
    time.sleep(10 * seconds)
    return len(held)
