"""Run one function over many tasks, and let whoever started the run watch the progress.

``map_tasks`` is the only place where work is spread over processes. ``track`` reports progress to
a sink that the command line installs, ``say`` tells it what a person should know; without a sink
items only pass through and nothing is said, so that a stage never prints.
"""

import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread
from typing import Any, Protocol, TypeVar

from hgld.errors import HgldError, Resumable
from hgld.stopping import blocked_for_children, ignore_requests

__all__ = [
    "Label",
    "ProgressSink",
    "also_watched_by",
    "map_tasks",
    "say",
    "say_or_warn",
    "start_workers",
    "track",
    "watched_by",
]

Item = TypeVar("Item")
Task = TypeVar("Task")
Result = TypeVar("Result")
Label = str | Callable[[], str]  # of a progress; a function where it changes on the way


class ProgressSink(Protocol):
    """Shows progress: gets each iterable with its label and total, and passes its items on."""

    def __call__(
        self, items: Iterable[Item], label: Label, total: int | None, done: int = 0
    ) -> Iterator[Item]:
        """Pass the items on; ``done`` others were done before, and count in the total."""
        ...


_sink: ContextVar[ProgressSink | None] = ContextVar("progress sink", default=None)
_notes: ContextVar[Callable[[str], object] | None] = ContextVar("sink of notes", default=None)


def track(
    items: Iterable[Item], label: Label, total: int | None = None, done: int = 0
) -> Iterator[Item]:
    """Pass the items through, one step of progress each.

    Args:
        items: what is left to do.
        label: of the progress.
        total: number of all items, those done before included; None: not known.
        done: number of items that were done before.

    Example:
        >>> list(track("ab", "Reading"))
        ['a', 'b']
    """
    sink = _sink.get()
    before = {"done": done} if done else {}  # few sinks need it
    yield from items if sink is None else sink(items, label, total, **before)


def say(text: str) -> None:
    """Tell whoever watches what a person should know, in short lines.

    Example:
        >>> with watched_by(lambda items, label, total: iter(items), print):
        ...     say("2 images are left out")
        2 images are left out
    """
    note = _notes.get()
    if note is not None:
        note(text)


def say_or_warn(text: str) -> None:
    """Say it, or warn where nobody watches: of what a script that uses the library should know."""
    if _notes.get() is None:
        warnings.warn(text, stacklevel=3)
    say(text)


@contextmanager
def watched_by(sink: ProgressSink, notes: Callable[[str], object] | None = None) -> Iterator[None]:
    """Report all progress inside the block to this sink, and what is said to ``notes``."""
    tokens = _sink.set(sink), _notes.set(notes)
    try:
        yield
    finally:
        _sink.reset(tokens[0])
        _notes.reset(tokens[1])


@contextmanager
def also_watched_by(sink: ProgressSink) -> Iterator[None]:
    """Report all progress inside the block to this sink and to the one outside of the block.

    Example:
        >>> seen = []
        >>> def watch(items, label, total):
        ...     for item in items:
        ...         seen.append((label, total))
        ...         yield item
        >>> with watched_by(watch), also_watched_by(watch):
        ...     list(track("ab", "Reading"))
        ['a', 'b']
        >>> len(seen), seen[0]
        (4, ('Reading', 2))
    """
    outer = _sink.get()

    def both(
        items: Iterable[Item], label: Label, total: int | None, done: int = 0
    ) -> Iterator[Item]:
        size = len(items) if total is None and isinstance(items, Sized) else total
        before = {"done": done} if done else {}
        inner = sink(items, label, size, **before)
        return inner if outer is None else outer(inner, label, size, **before)

    token = _sink.set(both)
    try:
        yield
    finally:
        _sink.reset(token)


@contextmanager
def start_workers(
    function: Callable[[Any], Any], processes: int
) -> Iterator[ProcessPoolExecutor | None]:
    """Processes that load a function's module while its tasks are still being planned.

    None for one process: then no other is needed.
    """
    if processes <= 1:
        yield None
        return
    with _pool(processes) as workers:
        with blocked_for_children():
            for _ in range(processes):
                workers.submit(import_module, function.__module__)
        yield workers


def map_tasks(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    label: str,
    processes: int = 1,
    cluster: str | None = None,
    workers: ProcessPoolExecutor | None = None,
) -> list[Result]:
    """Results of ``function`` in the order of the tasks, whatever the number of processes.

    The function and its tasks must be picklable where there is more than one process. On a Ray
    cluster (extra ``ray``) the same function runs as Ray tasks; hgld must be installed on its
    nodes, and they must see the same folders.

    Args:
        function: what to do with a task.
        tasks: the tasks.
        label: what the progress is called.
        processes: on this machine, where there is no cluster.
        cluster: address of a Ray cluster, "auto" for the one of this machine.
        workers: processes that ``start_workers`` has started; they end with the last task.

    Raises:
        Resumable: a worker process died (on a cluster: again and again).
        HgldError: Ray is not installed, or the cluster does not answer.

    Example:
        >>> map_tasks(abs, [-1, 2], "Absolute values")
        [1, 2]
    """
    if cluster is not None:
        return _map_on_cluster(function, tasks, label, cluster)
    if processes <= 1 or len(tasks) <= 1:
        return [function(task) for task in track(tasks, label, len(tasks))]
    workers = workers or _pool(processes)
    finished = False
    try:
        with blocked_for_children():
            mapped = workers.map(function, tasks)
        results = list(track(mapped, label, len(tasks)))
        finished = True
        return results
    except BrokenProcessPool:
        raise Resumable(
            f"{label}: a worker process died (out of memory, or killed); finished tasks are kept, "
            "run the same command again"
        ) from None
    finally:  # after a fault nothing may go on writing behind the back of whoever tells it
        workers.shutdown(wait=not finished, cancel_futures=True)


def _pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, get_context("spawn"), initializer=_serve)


def _serve() -> None:
    """In a worker: end when the main process is gone, even by kill -9."""
    ignore_requests()
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


RETRIES = 4  # of a task whose worker or node was lost


def _map_on_cluster(
    function: Callable[[Task], Result], tasks: Sequence[Task], label: str, cluster: str
) -> list[Result]:
    with _connected(cluster) as ray:
        remote = ray.remote(max_retries=RETRIES)(function)
        waiting = [remote.remote(task) for task in tasks]
        try:
            return [ray.get(result) for result in track(waiting, label, len(tasks))]
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError):
            raise Resumable(
                f"{label}: a Ray worker died {RETRIES + 1} times on the same task; finished tasks "
                "are kept, run the same command again"
            ) from None


@contextmanager
def _connected(cluster: str) -> Iterator[Any]:
    """The ray module, connected to the cluster; a connection that was there stays."""
    try:
        import ray
    except ImportError:
        raise HgldError('Ray is not installed; pip install "hgld[ray]"') from None
    connected = ray.is_initialized()
    if not connected:
        try:
            _require_answer(cluster)
            ray.init(address=cluster, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, OSError) as error:
            raise HgldError(f"no Ray cluster answers at {cluster} ({error})") from None
    try:
        yield ray
    finally:
        if not connected:
            ray.shutdown()


def _require_answer(cluster: str) -> None:
    """Knock at host:port first, since Ray itself waits for minutes where nobody is."""
    host, found, port = cluster.removeprefix("ray://").rpartition(":")
    if found and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()
