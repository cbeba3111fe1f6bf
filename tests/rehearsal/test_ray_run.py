"""GLDv2's layout from tars to report, on two Ray nodes and an object store, killed ten times.

The nodes share no folder, the shards are at the object store, and the work folder is local. Node,
driver and object store are killed in turn, and the run must end with the bytes of an undisturbed
one. By default 1 % of GLDv2's images; ``HGLD_REHEARSAL_SHARE=0.001`` makes it 0.1 %, without the
official protocol, for which so few images have too few queries. ``HGLD_REHEARSAL_SEED`` draws the
moments of the kills.
"""

import csv
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pytest

from hgld.artifacts import hash_file
from hgld.storage import RemoteFolder
from tests.full_size.made_world import make_world
from tests.object_store import SECRETS, free_port, make_bucket, reach, serve_s3, wait_for
from tests.rehearsal.road import records
from tests.rehearsal.road_scene import read_rows
from tests.two_nodes import Nodes, driver_address, two_nodes

ray = pytest.importorskip("ray") if not os.environ.get("CI") else __import__("ray")
pytestmark = [pytest.mark.rehearsal, pytest.mark.filterwarnings("ignore")]
SHARE = float(os.environ.get("HGLD_REHEARSAL_SHARE", "0.01"))
SEED = int(os.environ.get("HGLD_REHEARSAL_SEED", "0"))
PROTOCOL = 'protocol = "gldv2-official"' if SHARE >= 0.01 else 'query = "index"\ngallery = "index"'
STAGES = (1, 3, 3, 3, 4, 4, 5, 5, 5, 6)  # done before each kill: 3 is in export, 5 in evaluate
TRIES = 60
ENDED = "none: it has ended"
TAXONOMY = Path("labels/gldv2/taxonomy.csv")
URL = "s3://rehearsal/set"
DONE = re.compile(r"^\w+ +(fresh|.*\d s)$", re.M)
PIPELINE = """
title = "Rehearsal"
labels = "labels"
[source]
folder = "source"
[label]
source = "published"
[export]
out = "{url}"
ray = "{ray}"
shard_megabytes = {megabytes}
[train]
backbone = "offline:efficientnet-lite0"
dim = 32
image_size = 32
classes_per_batch = 8
images_per_class = 4
checkpoint_steps = 2
[train.runs.happier]
loss = "HAPPIER"
steps = 6
[evaluate]
{protocol}
ray = "{ray}"
"""
# A killed server keeps its objects, which moto would lose: so what is killed is the way to it.
FORWARD = """
import socket, sys, threading
def copy(a, b):
    try:
        while data := a.recv(1 << 16):
            b.sendall(data)
    except OSError:
        pass
    for end in (a, b):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
server = socket.create_server(("0.0.0.0", int(sys.argv[1])), backlog=128)
while True:
    near, far = server.accept()[0], socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
"""


@dataclass
class ObjectStore:
    """The server's address for clients, and the process that can be killed."""

    port: int
    behind: int
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Let clients reach the server."""
        words = [sys.executable, "-c", FORWARD, str(self.port), str(self.behind)]
        self.process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        wait_for(f"http://127.0.0.1:{self.port}/moto-api/", self.process)

    def kill(self) -> None:
        """Cut all connections; new ones are refused."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@dataclass
class Run:
    """The command in a work folder of its own."""

    pipeline: Path
    work: Path
    process: "subprocess.Popen[bytes] | None" = None
    codes: list[int] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.work.with_suffix(f".{len(self.codes)}.log")

    def start(self) -> None:
        """Start the command."""
        words = ["run", str(self.pipeline), "--work", str(self.work), "--now", "2026-01-01"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "hgld", *words],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def lines(self) -> int:
        """Number of stages that are done."""
        return len(DONE.findall(self.log.read_text("utf-8")))

    def ended(self) -> bool:
        """Whether the command has ended; its exit code is noted."""
        if self.process is None:
            return True
        if self.process.poll() is None:
            return False
        code, self.process = self.process.returncode, None
        self.codes.append(code)
        return True

    def kill(self) -> None:
        """Kill the command and its workers."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.ended()

    def last_log(self) -> str:
        """Output of the last command that has ended."""
        return self.work.with_suffix(f".{len(self.codes) - 1}.log").read_text("utf-8")

    def finish(self) -> None:
        """Start the command again until it succeeds."""
        while not self.codes or self.codes[-1] != 0:
            if self.ended():
                assert len(self.codes) < TRIES, self.last_log()
                self.start()
            time.sleep(0.05)
            self.ended()

    def outputs(self) -> dict[str, str]:
        """Hash of each file of the work folder and of each object; without hidden ones."""
        found = {}
        for path in self.work.rglob("*"):
            local = path.relative_to(self.work)
            if path.is_file() and not any(part.startswith(".") for part in local.parts):
                found[str(local)] = records(path) if local.name == "lock.json" else hash_file(path)
        there = RemoteFolder(URL)
        for name in there.list():
            if not name.startswith("."):
                found[f"{URL}/{name}"] = sha256(there.read(name)).hexdigest()
        return found


def make_set(folder: Path) -> None:
    """Write made files of GLDv2, and labels for nine in ten landmarks of each side."""
    make_world(folder / "source", SHARE)
    (folder / "labels").mkdir()
    (folder / "labels/taxonomy.csv").write_bytes(TAXONOMY.read_bytes())
    known = read_rows(TAXONOMY)
    for part, split in (("metadata", "train"), ("ground_truth", "index")):
        rows = read_rows(folder / f"source/{part}/{split}_label_to_category.csv")
        path = folder / f"source/{part}/{split}_label_to_hierarchical.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["landmark_id", "hierarchical_label", "natural_or_human_made"])
            for row in rows:
                number = int(row["landmark_id"])
                label = known[number % len(known)]
                if number % 10 < 9:
                    writer.writerow([number, label["supercategory"], label["kind"]])


@contextmanager
def empty_store(store: ObjectStore) -> Iterator[None]:
    """Serve an empty bucket."""
    with serve_s3(store.behind, "0.0.0.0"):
        store.start()
        try:
            make_bucket(f"http://127.0.0.1:{store.port}", "rehearsal")
            yield
        finally:
            store.kill()


def test_ten_kills_change_no_byte_of_a_whole_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, chance = ObjectStore(free_port(), free_port()), random.Random(SEED)
    make_set(folder)
    environment = reach(f"http://{driver_address()}:{store.port}")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with two_nodes(**environment) as nodes:
        pipeline = folder / "pipeline.toml"
        pipeline.write_text(
            PIPELINE.format(
                url=URL,
                ray=nodes.address,
                megabytes=500 * SHARE,
                protocol=PROTOCOL,
            )
        )
        with empty_store(store):
            undisturbed, times = Run(pipeline, folder / "undisturbed"), [0.0]
            start = time.monotonic()
            undisturbed.start()
            while not undisturbed.ended():
                while undisturbed.process and undisturbed.lines() >= len(times):
                    times.append(time.monotonic() - start)
                time.sleep(0.02)
            assert undisturbed.codes == [0], undisturbed.last_log()
            wanted = undisturbed.outputs()
            whole_s = time.monotonic() - start
        with empty_store(store):
            killed, hits = Run(pipeline, folder / "killed"), []
            start = time.monotonic()
            for number, lines in enumerate(STAGES):
                most_s = (times[lines + 1] - times[lines]) / STAGES.count(lines)
                after_s = chance.uniform(0, most_s)
                hits.append(strike(killed, nodes, store, number, lines, after_s))
            killed.finish()
            killed_s = time.monotonic() - start
            found = killed.outputs()
        nodes.wait(1)
    secrets = [secret.encode() for secret in SECRETS.values()]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if any(secret in path.read_bytes() for secret in secrets)]
    print(f"\nundisturbed {whole_s:.0f} s, stages after {[round(one) for one in times]} s")
    print(f"killed and started again {killed_s:.0f} s, exit codes {killed.codes}", *hits, sep="\n")
    assert sum(ENDED not in hit for hit in hits) >= 8, hits
    assert sum(name.endswith(".tar") for name in wanted) >= 4
    assert sorted(n for n in found | wanted if found.get(n) != wanted.get(n)) == []


def strike(
    run: Run, nodes: Nodes, store: ObjectStore, number: int, lines: int, after_s: float
) -> str:
    """Kill node, driver or object store so long after a number of stages are done; says when."""
    if run.ended() and not (run.codes and run.codes[-1] == 0):
        run.start()
    until = time.monotonic() + 600
    while not run.ended() and run.lines() < lines and time.monotonic() < until:
        time.sleep(0.02)
    until = time.monotonic() + after_s
    while not run.ended() and time.monotonic() < until:
        time.sleep(0.02)
    stage = run.lines() if run.process else ENDED
    what = ("node", "driver", "object store")[number % 3]
    if what == "node":
        nodes.kill_node()
        nodes.start_node()
    elif what == "driver":
        run.kill()
    else:
        store.kill()
        time.sleep(2)
        store.start()
    return f"{what} killed after {stage} stages"
