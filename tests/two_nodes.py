"""A Ray cluster of two nodes on this machine that share no folder, home or network address.

The head is an ordinary process and runs no task. The other node has namespaces of its own: mounts,
in which /tmp (with the driver's folders) and the home are empty, and a network of one cable to the
head. It needs root and the command ip; without them the test is skipped, and in CI it fails.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import NoReturn

import pytest

from tests.object_store import free_port

__all__ = ["QUIET", "Nodes", "descendants", "driver_address", "two_nodes"]

START_S = 300.0
QUIET = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
HIDE = "mount --make-rprivate / && mount -t tmpfs none /tmp && mkdir /tmp/home && cd /tmp/home"


@dataclass
class Nodes:
    """The head and the other node.

    Attributes:
        address: of the cluster, for the option ray.
        ip: of the driver's machine, as the other node sees it.
    """

    address: str
    ip: str
    space: str
    environment: Mapping[str, str]
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start_head(self) -> None:
        """Start the head, which runs no task."""
        port = self.address.rpartition(":")[2]
        words = f"--port={port}", f"--node-ip-address={self.ip}", "--num-cpus=0"
        self._start([], "--head", *words, "--include-dashboard=false")

    def start_node(self, *more: str, **environment: str) -> "subprocess.Popen[bytes]":
        """Start the other node; what a person gives to ray start may be added."""
        own = self.ip.removesuffix("1") + "2"
        apart = ["ip", "netns", "exec", self.space, "unshare", "-m", "sh", "-c", f'{HIDE} && "$@"']
        words = (f"--address={self.address}", f"--node-ip-address={own}", "--num-cpus=1", *more)
        return self._start([*apart, "sh"], *words, HOME="/tmp/home", **environment)

    def kill_node(self) -> None:
        """Kill the other node at once: its raylet, its workers and what started them."""
        self._end(self.started.pop())

    def _start(
        self, before: list[str], *words: str, **environment: str
    ) -> "subprocess.Popen[bytes]":
        ray = [str(Path(sys.executable).with_name("ray")), "start", "--block"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(
            [*before, *ray, *words, "--object-store-memory=200000000"],
            env={**os.environ, **QUIET, **self.environment, **environment},
            start_new_session=True,
            **quiet,
        )
        self.started.append(process)
        return process

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        for found in [process.pid, *descendants(process.pid)]:
            with suppress(OSError):
                os.kill(found, signal.SIGKILL)
        process.wait()

    def wait(self, cpus: int) -> None:
        """Return once the cluster has so many cores."""
        code = (
            "import ray, sys; ray.init(sys.argv[1], log_to_driver=False, logging_level=40); "
            "sys.exit(ray.cluster_resources().get('CPU', 0) != int(sys.argv[2]))"
        )
        until = monotonic() + START_S
        while monotonic() < until:
            look = [sys.executable, "-W", "ignore", "-c", code, self.address, str(cpus)]
            with suppress(subprocess.TimeoutExpired):  # a busy machine takes longer; look again
                if not subprocess.run(look, capture_output=True, timeout=100).returncode:
                    return
            sleep(0.5)
        raise AssertionError("the nodes did not start")


def driver_address() -> str:
    """Address of this machine, as the other node sees it."""
    return f"10.213.{os.getpid() % 250}.1"


@contextmanager
def two_nodes(**environment: str) -> Iterator[Nodes]:
    """Start both nodes with these environment variables."""
    if shutil.which("ip") is None:
        _refuse()
    space, number, ip = f"hgld{os.getpid()}", os.getpid() % 250, driver_address()
    cable = [
        f"netns add {space}",
        f"link add hgld{number}a type veth peer name hgld{number}b netns {space}",
        f"addr add {ip}/24 dev hgld{number}a",
        f"link set hgld{number}a up",
        f"-n {space} addr add 10.213.{number}.2/24 dev hgld{number}b",
        f"-n {space} link set hgld{number}b up",
        f"-n {space} link set lo up",
    ]
    try:
        for words in cable:
            done = subprocess.run(["ip", *words.split()], capture_output=True, text=True)
            if done.returncode and words.startswith("netns"):
                _refuse()
            assert done.returncode == 0, f"ip {words}: {done.stderr}"
        nodes = Nodes(f"{ip}:{free_port()}", ip, space, environment)
        try:
            nodes.start_head()
            nodes.wait(0)
            nodes.start_node()
            nodes.wait(1)
            yield nodes
        finally:
            while nodes.started:
                nodes.kill_node()
            # A head that is killed leaves its address to whoever starts Ray next.
            left = Path(tempfile.gettempdir(), "ray", "ray_current_cluster")
            if left.exists() and left.read_text() == nodes.address:
                left.unlink()
    finally:
        # The kernel ends the other namespace, and the cable with it, only some time later.
        for words in (["link", "del", f"hgld{number}a"], ["netns", "del", space]):
            subprocess.run(["ip", *words], capture_output=True, check=False)


def _refuse() -> NoReturn:
    message = "namespaces need root and the command ip"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def descendants(process: int) -> list[int]:
    """Processes that a process started, and those that they started."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found
