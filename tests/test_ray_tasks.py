"""Tasks and the export on a Ray cluster of two nodes, one of whose workers is killed."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hgld import ray_tasks
from hgld.config import EvaluateOptions
from hgld.errors import HgldError, InvalidData, Resumable, UsageError
from hgld.evaluate.embeddings import EmbeddingStore
from hgld.evaluate.models import find_models
from hgld.evaluate.sides import Shards
from hgld.ray_tasks import Reserve
from hgld.tasks import map_tasks
from tests.evaluate.test_rank_tasks import make_sides, written
from tests.evaluate.test_spread import embed, make_model
from tests.made_shards import make_shards, visible
from tests.on_ray import Reverse, die_twice, gpu, granted, reverse, wait
from tests.shards.shard_world import World, make_world
from tests.two_nodes import descendants

ray = pytest.importorskip("ray") if not os.environ.get("CI") else __import__("ray")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray's own


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    from ray.cluster_utils import Cluster

    nodes = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "num_gpus": 2, "include_dashboard": False},
    )
    nodes.add_node(num_cpus=1)
    yield nodes.address
    ray.shutdown()
    nodes.shutdown()


def test_a_shared_tmpdir_keeps_the_folders_of_other_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("socket.gethostname", lambda: "first")
    monkeypatch.setattr("os.getpid", lambda: 2**30)  # no process of this machine
    theirs = ray_tasks._own_folder("of a task of the other node")
    monkeypatch.setattr("socket.gethostname", lambda: "second")
    ours = ray_tasks._own_folder("of a first map")
    assert theirs.exists() and ours.exists()
    ray_tasks._own_folder("of a second map")
    assert theirs.exists() and not ours.exists()


def test_a_cluster_of_two_nodes_writes_the_same_bytes(cluster: str, tmp_path: Path) -> None:
    world = make_world(tmp_path, [5, 17, 20, 33])
    (world.source / "empty.jpg").touch()  # it is there on the node, too
    place = {"path": "empty.jpg", "offset": 0, "size_bytes": 0}
    world.images.loc[world.images.index[0], list(place)] = [*place.values()]
    (one, lost), (two, also_lost) = world.export("one"), world.export("two", ray=cluster)
    assert visible(one) == visible(two)
    assert [*lost["reason"]] == ["undecodable"] and lost.equals(also_lost)


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
    assert visible(one) == visible(two)


def _kill_a_writer(out: Path, killed: list[int]) -> None:
    """Kill -9 one worker of this process's own cluster once it has written some shards."""
    end = time.monotonic() + 300
    while len(list(out.glob("*.tar"))) < 5 and time.monotonic() < end:
        time.sleep(0.002)
    while not killed and not (out / "manifest.json").exists() and time.monotonic() < end:
        for process in descendants(os.getpid()):
            with suppress(OSError):
                title = Path(f"/proc/{process}/cmdline").read_text()
                if title.startswith("ray::write_or_keep") and not killed:
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)


def test_a_worker_killed_twice_does_not_stop_a_map(cluster: str, tmp_path: Path) -> None:
    tasks = [(i, str(tmp_path)) for i in range(4)]
    assert map_tasks(die_twice, tasks, "Dying", cluster=cluster) == [0, 1, 4, 9]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_fault_in_a_task_keeps_its_one_line(cluster: str, tmp_path: Path) -> None:
    world: World = make_world(tmp_path, [5, 17])
    world.images["path"] = "images.tar"
    world.images.loc[world.images.index[-1], "size_bytes"] = 10**7
    with pytest.raises(InvalidData, match=r"^[^\n]*images\.tar: ends .* truncated[^\n]*$"):
        world.export("out", ray=cluster)


def test_a_task_gets_only_the_bytes_that_it_names(cluster: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"01234567")
    (tmp_path / "key").write_bytes(b"k")
    tasks = [Reverse(tmp_path / "in", tmp_path / "key", tmp_path / "a" / str(i)) for i in range(3)]
    assert map_tasks(reverse, tasks, "", cluster=cluster) == [bytes(5) + b"567"] * 3
    assert [task.out.read_bytes() for task in tasks] == [b"k765"] * 3
    with pytest.raises(InvalidData, match=f"^{tmp_path}/in: is bad$"):
        map_tasks(reverse, [replace(tasks[0], bad=True)], "", cluster=cluster)


def test_a_map_leaves_no_files_on_the_nodes(cluster: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"01234567")
    (tmp_path / "key").write_bytes(b"k")
    tasks = [Reverse(tmp_path / "in", tmp_path / "key", tmp_path / str(i)) for i in range(3)]
    map_tasks(reverse, tasks, "", cluster=cluster)
    folders = Path("/tmp").glob("hgld-task-*")  # tests of another process may have theirs
    assert not [folder for folder in folders if Path(f"{folder}{tmp_path}").exists()]


def test_a_stop_request_reaches_our_handler_and_not_that_of_ray(cluster: str) -> None:
    if ray.is_initialized():
        ray.shutdown()
    asked: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    try:
        with ray_tasks.cluster_connection(cluster):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert asked == [signal.SIGTERM] * 2


def test_tasks_have_the_gpus_that_they_reserve(cluster: str, tmp_path: Path) -> None:
    one, both = Reserve(cpus=0.1, gpus=1), [str(tmp_path)] * 4
    assert set(map_tasks(gpu, both, "", cluster=cluster, reserve=one)) == {"0", "1"}
    two = Reserve(cpus=0.1, gpus=2)
    assert map_tasks(gpu, [""], "", cluster=cluster, reserve=two) == ["0,1"]
    none = map_tasks(gpu, ["", ""], "", cluster=cluster)
    assert none == ["", ""]
    any_gpu = Reserve(cpus=0.1, gpus=None)
    assert map_tasks(gpu, [""], "", cluster=cluster, reserve=any_gpu)[0] in ("0", "1")


def test_tasks_have_the_cpus_and_the_memory_that_they_reserve(cluster: str) -> None:
    reserve = Reserve(cpus=0.5, memory_gb=0.25)
    (found,) = map_tasks(granted, [0], "", cluster=cluster, reserve=reserve)
    assert found == {"CPU": 0.5, "memory": 0.25e9}


def test_an_export_reserves_what_its_options_say(cluster: str, tmp_path: Path) -> None:
    world = make_world(tmp_path, [5, 17])
    with pytest.raises(HgldError, match=r"a task reserves 3 CPU, 2 GB of memory, but no node of"):
        world.export("out", ray=cluster, cpus_per_task=3, memory_gb_per_task=2)


def test_a_node_that_is_lost_for_good_is_waited_for_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.cluster_utils import Cluster

    monkeypatch.setattr(ray_tasks, "PATIENCE_S", 3.0)
    monkeypatch.setattr(ray_tasks, "LOOK_S", 0.5)
    if ray.is_initialized():
        ray.shutdown()
    head = {"num_cpus": 0, "num_gpus": 0, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    try:
        node = nodes.add_node(num_cpus=2)
        no_gpu = (
            r"^x: a task reserves 1 CPU, 1 GPU, but no node .*\(the largest have 2 CPU, 0 GPU\)"
        )
        with pytest.raises(HgldError, match=no_gpu):
            map_tasks(abs, [1], "x", cluster=nodes.address, reserve=Reserve(gpus=1))
        begun = tmp_path / "begun"
        thread = threading.Thread(target=_remove_when, args=(begun, nodes, node))
        thread.start()
        with pytest.raises(Resumable, match=r"^x: no node is left in the Ray cluster that has 2 C"):
            map_tasks(wait, [str(begun)], "x", cluster=nodes.address, reserve=Reserve(cpus=2))
        thread.join()
    finally:
        ray.shutdown()
        nodes.shutdown()


def test_a_node_without_hgld_is_named(cluster: str) -> None:
    def hide() -> None:
        import sys

        sys.modules["hgld"] = None  # type: ignore[assignment]

    if ray.is_initialized():
        ray.shutdown()
    without = {"worker_process_setup_hook": hide}
    ray.init(address=cluster, runtime_env=without, log_to_driver=False)
    try:
        with pytest.raises(
            HgldError, match=r"^x: Ray's node \S+ has no hgld, this machine has hgld"
        ):
            map_tasks(abs, [1], "x", cluster=cluster)
    finally:
        ray.shutdown()


def test_more_than_any_node_has_is_one_line_at_once(cluster: str) -> None:
    few = (
        r"^x: a task reserves 1 CPU, 3 GPU, but no node .*\(the largest have 1 CPU, 2 GPU\)[^\n]*$"
    )
    with pytest.raises(HgldError, match=few):
        map_tasks(gpu, [""], "x", cluster=cluster, reserve=Reserve(gpus=3))
    with pytest.raises(HgldError, match=r"reserves 1 CPU, 9e\+03 GB of memory, but"):
        map_tasks(gpu, [""], "x", cluster=cluster, reserve=Reserve(memory_gb=9000))
    with pytest.raises(HgldError, match=r"; [^;]*less \(cpus_per_task, memory_gb_per_task\)$"):
        map_tasks(gpu, [""], "x", cluster=cluster, reserve=Reserve(memory_gb=9000))


def test_one_and_a_half_gpus_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"gpus_per_task is 1\.5; Ray reserves whole GPUs, or a sha"
    ):
        EvaluateOptions(gpus_per_task=1.5)


def test_an_embedding_asks_the_cluster_for_its_gpu(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards, run = make_shards(tmp_path), make_model(tmp_path / "model")
    (model,) = find_models({"m": str(run)}, Path("no runs"))
    asked: list[Reserve] = []
    monkeypatch.setattr(
        "hgld.evaluate.embeddings.map_tasks", lambda *_, reserve, **__: asked.append(reserve) or []
    )
    for options in ({}, {"device": "cpu"}, {"device": "cuda"}, {"gpus_per_task": 0.5}):
        store = EmbeddingStore(tmp_path / "state", EvaluateOptions(ray=cluster, **options))
        with suppress(Resumable):  # nothing was embedded
            store.embed(model, [Shards.read(shards).side("index", "query")])
    assert [reserve.gpus for reserve in asked] == [None, 0, 1, 0.5]


def test_an_evaluation_on_gpus_of_the_cluster_needs_none_on_the_driver(
    cluster: str, tmp_path: Path
) -> None:
    """The GPUs are made up, so workers compute on the CPU if they were given one."""

    def pretend() -> None:
        import os

        import torch

        from hgld.model import devices

        def choose(name: str) -> torch.device:
            assert name == "cpu" or os.environ["CUDA_VISIBLE_DEVICES"] in ("0", "1"), name
            return torch.device("cpu")

        devices.choose_device = choose

    shards, run = make_shards(tmp_path / "shards"), make_model(tmp_path / "model")
    sides = make_sides(tmp_path, 70)
    here = embed(shards, run, tmp_path / "here"), written(tmp_path, sides)
    on_gpus = {"ray": cluster, "device": "cuda", "cpus_per_task": 0.5}
    if ray.is_initialized():
        ray.shutdown()
    hook = {"worker_process_setup_hook": pretend}
    ray.init(address=cluster, runtime_env=hook, log_to_driver=False)
    try:
        there = embed(shards, run, tmp_path / "there", **on_gpus)
        assert (there, written(tmp_path, sides, **on_gpus)) == here
    finally:
        ray.shutdown()


def test_a_node_with_another_version_is_named(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hgld.ray_tasks.__version__", "9.9")
    with pytest.raises(
        HgldError, match=r"Ray's node \S+ has hgld 0[^ ]+, this machine has hgld 9.9"
    ):
        map_tasks(abs, [1], "x", cluster=cluster)


def _remove_when(path: Path, nodes: Any, node: Any) -> None:
    while not path.exists():
        time.sleep(0.1)
    nodes.remove_node(node, allow_graceful=False)


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path) -> None:
    if ray.is_initialized():
        ray.shutdown()
    advice = r"start it \(ray start --head\), or, .* token authentication, set RAY_AUTH_MODE=token$"
    with pytest.raises(HgldError, match=rf"no Ray cluster answers at 127\.0\.0\.1:1 .*; {advice}"):
        map_tasks(abs, [1], "Nothing", cluster="127.0.0.1:1")


@pytest.mark.parametrize("address", ["", "foo"])
def test_an_address_of_another_form_is_refused(address: str) -> None:
    if ray.is_initialized():
        ray.shutdown()
    with pytest.raises(UsageError, match=rf"^'{address}' is no address of a Ray cluster; expected"):
        map_tasks(abs, [1], "Nothing", cluster=address)


def test_an_export_that_its_cluster_cannot_write_removes_no_shard(tmp_path: Path) -> None:
    if ray.is_initialized():
        ray.shutdown()
    world = make_world(tmp_path, [5, 17])
    before = visible(world.export("out")[0])
    with pytest.raises(HgldError, match=r"^no Ray cluster answers at 127\.0\.0\.1:1 "):
        world.export("out", shard_megabytes=0.03, ray="127.0.0.1:1")
    assert visible(tmp_path / "out") == before
