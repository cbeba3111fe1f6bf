"""Tasks on a Ray cluster whose nodes share no folder with this machine.

A task that reads or writes local files is a ``FileTask``. The driver puts the ranges of bytes that
it reads into Ray's object store, a worker writes them at the same offsets of sparse files in a
temporary folder and runs the same function there, and the files that it makes come back through
the object store. Few tasks are under way at a time, so that neither driver nor store fills.
"""

import logging
import os
import pickle
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, Self, runtime_checkable

from hgld import __version__
from hgld.errors import HgldError, Resumable, UsageError
from hgld.stopping import held_back
from hgld.words import single_blanks

RETRIES = 4  # of a task whose worker or node was lost, or that may pass on another node
PIECE_BYTES = 64 << 20  # an object in Ray's store; the most of a task's input in memory at once
QUEUED = 3  # tasks for each that can run: bytes arrive meanwhile, and an autoscaler sees the demand
PATIENCE_S = 300.0  # to wait for a node that can run a task after the last one was lost
# of a stage, by Ray's name of what they reserve
OPTIONS = {"CPU": "cpus_per_task", "GPU": "gpus_per_task", "memory": "memory_gb_per_task"}
LOOK_S = 10.0  # between two looks at the nodes while no task ends
FileRange = tuple[Path, int, int]  # file, offset, bytes


@runtime_checkable
class FileTask(Protocol):
    """Task that names its local files, so that it can run on a machine that does not have them.

    By default it has none.
    """

    def reads(self) -> Iterable[FileRange]:
        """Ranges of local files that the task reads."""
        return ()

    def shares(self) -> Iterable[Path]:
        """Local files that all tasks of a map read whole, which a worker gets once."""
        return ()

    def writes(self) -> Sequence[Path]:
        """Local files that the task makes, in the order in which they must appear."""
        return ()

    def moved(self, place: Callable[[Path], Path]) -> Self:
        """Return the task with ``place`` applied to each of its local paths."""
        ...


@dataclass(frozen=True)
class Reserve:
    """Resources of a node that a task on a Ray cluster has to itself.

    Attributes:
        cpus: cores.
        gpus: GPUs; a share below 1 lets tasks share one. None: one if the cluster has any.
        memory_gb: memory in GB; 0: none is reserved.
    """

    cpus: float = 1.0
    gpus: float | None = 0.0
    memory_gb: float = 0.0

    def resources(self, gpus: float) -> dict[str, float]:
        """Return Ray's names and amounts of all that a task needs."""
        found = {"CPU": self.cpus, "GPU": gpus, "memory": self.memory_gb * 1e9}
        return {name: amount for name, amount in found.items() if amount}


Outputs = list[tuple[Path, Any]]  # contents as buffers


def run_on_cluster(
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    label: str,
    cluster: str,
    reserve: Reserve,
) -> Generator[tuple[int, Any, Outputs]]:
    """Yield number, result and files of each task in the order in which they end.

    Args:
        function: of a module of hgld, called with each task.
        tasks: picklable; a ``FileTask`` takes its files along.
        label: for messages.
        cluster: address of a Ray cluster, "auto" for the one on this machine.
        reserve: what each task has to itself.

    Raises:
        Resumable: a worker or node was lost in all tries, or no node is left that fits.
        HgldError: Ray is not installed, the cluster does not answer, no node has what a task
            reserves, or a node has another version of hgld.
    """
    with cluster_connection(cluster) as ray:
        gpus = reserve.gpus
        if gpus is None:
            gpus = float(ray.cluster_resources().get("GPU", 0) >= 1)
        needs = reserve.resources(gpus)
        _require_fit(ray, label, needs)
        remote = ray.remote(_worker(__version__, gpus)).options(
            name=function.__name__,
            num_cpus=reserve.cpus,
            num_gpus=gpus,
            memory=needs.get("memory"),
            max_retries=0,  # Ray itself repeats without end what ran out of memory
        )
        running: dict[Any, _Try] = {}
        token = os.urandom(8).hex()
        try:
            yield from _run_all(ray, remote, function, tasks, label, needs, running, token)
            if tasks and isinstance(tasks[0], FileTask):
                _remove_folders(ray, token)
        finally:  # after an error the others end, also if the connection stays open
            for result in running:
                ray.cancel(result, force=True)


@dataclass(frozen=True)
class _Try:
    """One try of a task: its number, its input in the store, and the tries before it."""

    number: int
    own: list[Any]
    before: int = 0

    @property
    def size_bytes(self) -> int:
        return sum(size for piece, _ in self.own for _, _, size in piece)


def _run_all(
    ray: Any,
    remote: Any,
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    label: str,
    needs: dict[str, float],
    running: dict[Any, _Try],
    token: str,
) -> Iterator[tuple[int, Any, Outputs]]:
    shared: list[Any] = []

    def start(one: _Try) -> None:
        packed = pickle.dumps((function, tasks[one.number], Path.cwd()))
        running[remote.remote(packed, one.own, shared, token)] = one

    own = ray.get_runtime_context().get_node_id()
    nodes = [node["Resources"] for node in ray.nodes() if node["NodeID"] == own]
    budget = nodes[0]["object_store_memory"] / 2 if nodes else 0.0  # half of the driver's store
    room = _count_fits(ray, needs)
    waiting, idle_since = list(range(len(tasks)))[::-1], monotonic()
    if tasks and isinstance(tasks[0], FileTask):
        shared += _put(ray, ((path, 0, None) for path in tasks[0].shares()))
    while waiting or running:
        while waiting and (
            not running
            or (
                len(running) < QUEUED * room
                and sum(t.size_bytes for t in running.values()) < budget
            )
        ):
            task = tasks[number := waiting.pop()]
            start(_Try(number, list(_put(ray, task.reads())) if isinstance(task, FileTask) else []))
        done, _ = ray.wait(list(running), num_returns=1, timeout=LOOK_S)
        room = _count_fits(ray, needs)  # nodes join and leave
        if done or room:
            idle_since = monotonic()
        elif monotonic() - idle_since > PATIENCE_S:
            raise Resumable(
                f"{label}: no node is left in the Ray cluster that has {_amounts(needs)}; finished "
                "tasks are kept, run the same command again when there is one"
            )
        for ended in done:
            one = running.pop(ended)
            try:
                found, node, value, contents = ray.get(ended)
            except ray.exceptions.RayError as error:
                if one.before == RETRIES or not _may_pass(ray, error):
                    raise _explain(ray, error, label) from None
                start(replace(one, before=one.before + 1))
                continue
            if node:
                raise HgldError(
                    f"{label}: Ray's node {node} has {found}, this machine has hgld "
                    f"{__version__}; install the same version on all nodes"
                )
            task = tasks[one.number]
            paths = task.writes() if isinstance(task, FileTask) else []
            yield one.number, value, list(zip(paths, contents, strict=True))


def _remove_folders(ray: Any, token: str) -> None:
    """Remove the files of a map from all nodes; on one that does not answer the next map does."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def remove() -> None:  # nested, as the worker's function
        import shutil
        import tempfile
        from pathlib import Path

        for folder in Path(tempfile.gettempdir()).glob(f"hgld-task-*-{token}-*"):
            shutil.rmtree(folder, ignore_errors=True)

    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    there = (NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes)
    task = ray.remote(remove)
    ends = [task.options(num_cpus=0, scheduling_strategy=one).remote() for one in there]
    ray.wait(ends, num_returns=len(ends), timeout=LOOK_S)


def _may_pass(ray: Any, error: Exception) -> bool:
    """Whether another try may pass: the worker or its node was lost, or it stopped as Resumable."""
    raised = isinstance(error, ray.exceptions.RayTaskError)
    return not raised or isinstance(error.cause, Resumable | MemoryError)  # type: ignore[attr-defined]


def _explain(ray: Any, error: Exception, label: str) -> BaseException:
    cause: BaseException = getattr(error, "cause", None) or error
    if isinstance(error, ray.exceptions.OutOfMemoryError) or isinstance(cause, MemoryError):
        return Resumable(
            f"{label}: a task ran out of memory on its node {RETRIES + 1} times; reserve more with "
            "the stage's options memory_gb_per_task or cpus_per_task, and run the same command "
            "again; finished tasks are kept"
        )
    if isinstance(error, ray.exceptions.RayTaskError):
        return cause
    return Resumable(
        f"{label}: a Ray worker or its node died {RETRIES + 1} times on the same task "
        f"({type(error).__name__}); finished tasks are kept, run the same command again"
    )


def _put(ray: Any, ranges: Iterable[tuple[Path, int, int | None]]) -> Iterator[Any]:
    """Put ranges of files into the store, in pieces: ([(path, offset, size) ...], reference)."""
    import numpy as np  # Ray shares its arrays with other processes without a copy

    piece: list[FileRange] = []
    data = bytearray()
    for path, start, size in ranges:
        with suppress(FileNotFoundError), path.open("rb") as file:  # the task reports it
            end = file.seek(0, os.SEEK_END) if size is None else start + size
            for at in range(start, end, PIECE_BYTES) or [start]:  # an empty file is there, too
                if len(data) >= PIECE_BYTES:
                    yield piece, ray.put(np.frombuffer(data, np.uint8))
                    piece, data = [], bytearray()
                file.seek(at)
                found = file.read(min(PIECE_BYTES, end - at))
                piece.append((path, at, len(found)))
                data += found
    if piece:
        yield piece, ray.put(np.frombuffer(data, np.uint8))


def _worker(version: str, gpus: float) -> Callable[..., Any]:
    # A nested function is sent as code: the node's hgld may be another version, or missing.
    def run(packed: bytes, own: Any, shared: Any, token: str) -> Any:
        import os
        import pickle
        import socket

        try:
            import hgld

            found = f"hgld {hgld.__version__}"
        except ImportError:
            found = "no hgld"
        if found != f"hgld {version}":
            return found, socket.gethostname(), None, []
        if not gpus:  # Ray shows all GPUs to a task that has reserved none
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        import hgld.ray_tasks

        given = *pickle.loads(packed), own, shared, token
        value, contents = hgld.ray_tasks.run_moved(*given)
        return found, "", value, contents

    return run


def run_moved(
    function: Callable[[Any], Any], task: Any, cwd: Path, own: Any, shared: Any, token: str
) -> tuple[Any, list[Any]]:
    """Run a task on a node; return its result and the content of the files that it made."""
    import numpy as np

    if not isinstance(task, FileTask):
        return function(task), []
    root = _own_folder(token)

    def place(path: Path) -> Path:
        return Path(f"{root}{os.path.normpath(cwd / path)}")

    used = {place(path) for piece, _ in own for path, _, _ in piece}
    made = [place(path) for path in task.writes()]
    try:
        _lay(own, place)
        if not (root / "shared").exists():  # paths of weights stay, so that a model loads once
            _lay(shared, place)
            (root / "shared").touch()
        result = function(task.moved(place))
        return result, [np.fromfile(path, np.uint8) for path in made]
    except HgldError as error:
        texts = [str(text).replace(str(root), "") for text in error.args]
        raise type(error)(*texts) from None
    finally:
        for path in used.union(made):
            path.unlink(missing_ok=True)


def _lay(pieces: Any, place: Callable[[Path], Path]) -> None:
    """Write pieces of files at their offsets."""
    import ray

    for piece, reference in pieces:
        data, start = memoryview(ray.get(reference)), 0
        for path, offset, size in piece:
            path = place(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT), "wb") as file:
                file.seek(offset)
                file.write(data[start : start + size])
            start += size


@cache
def _own_folder(token: str) -> Path:
    """Return this process's folder for a map; folders of ended processes and maps are removed."""
    folders = Path(tempfile.gettempdir())
    # TMPDIR may be shared by nodes, and a node knows only its own processes.
    ours = f"hgld-task-{sha256(socket.gethostname().encode()).hexdigest()[:8]}"
    for left in folders.glob(f"{ours}-*"):
        process = left.name.split("-")[3]
        if process == str(os.getpid()) or not Path("/proc", process).exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{ours}-{os.getpid()}-{token}-", dir=folders))


def _require_fit(ray: Any, label: str, needs: dict[str, float]) -> None:
    """Raise at once if no node has what a task reserves: Ray itself would wait for one forever."""
    if not _count_fits(ray, needs):
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        largest = {name: max(node.get(name, 0.0) for node in nodes) for name in needs}
        less = ", ".join(OPTIONS[name] for name in needs)
        raise HgldError(
            f"{label}: a task reserves {_amounts(needs)}, but no node of the Ray cluster has that "
            f"(the largest have {_amounts(largest)}); start such a node, or reserve less ({less})"
        )


def _count_fits(ray: Any, needs: dict[str, float]) -> int:
    """Number of tasks that the nodes can run at a time."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    fits = (min(node.get(name, 0.0) // amount for name, amount in needs.items()) for node in nodes)
    return int(sum(fits))


def _amounts(resources: dict[str, float]) -> str:
    """Resources as text.

    Example:
        >>> _amounts({"CPU": 1.0, "GPU": 0.5, "memory": 2e9})
        '1 CPU, 0.5 GPU, 2 GB of memory'
    """
    return ", ".join(
        f"{amount / 1e9:.3g} GB of memory" if name == "memory" else f"{amount:,.4g} {name}"
        for name, amount in resources.items()
    )


@contextmanager
def cluster_connection(cluster: str) -> Iterator[Any]:
    """Yield the ray module, connected to the cluster; an existing connection is kept open.

    Raises:
        HgldError: Ray is not installed, the cluster does not answer, or runs other versions.
        UsageError: the address has another form.
    """
    try:
        import ray
    except ImportError:
        raise HgldError('Ray is not installed; pip install "hgld[ray]"') from None
    connected = ray.is_initialized()
    if not connected:
        try:
            # Ray itself waits for minutes if nothing listens at host:port.
            host, found, port = cluster.removeprefix("ray://").rpartition(":")
            if found and port.isdigit():
                socket.create_connection((host, int(port)), timeout=10).close()
            with held_back((signal.SIGTERM,)):  # then our handler is set again, which Ray replaces
                ray.init(address=cluster, log_to_driver=False, logging_level=logging.ERROR)
        except ValueError:
            raise UsageError(
                f"'{cluster}' is no address of a Ray cluster; expected host:port, ray://host:port, "
                "or auto for the one on this machine"
            ) from None
        except (ConnectionError, OSError) as error:
            raise HgldError(
                f"no Ray cluster answers at {cluster} ({error}); start it (ray start --head), or, "
                "if it has token authentication, set RAY_AUTH_MODE=token"
            ) from None
        except RuntimeError as error:  # other versions of Ray or Python
            raise HgldError(f"{cluster}: {single_blanks(str(error))}") from None
    try:
        yield ray
    finally:
        if not connected:
            with held_back((signal.SIGTERM,)):
                ray.shutdown()
