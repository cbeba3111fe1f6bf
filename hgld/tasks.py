"""Parallel map over tasks, progress reports and notices.

``map_tasks`` is the only place that spreads work over processes. ``track`` reports progress to a
sink that the command line installs, ``say`` sends it notices for the user. Without a sink, items
only pass through and notices are dropped, so that a stage never prints.
"""

import os
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from contextvars import ContextVar
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from multiprocessing.forkserver import ensure_running, set_forkserver_preload
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from typing import Protocol, TypeVar

from hgld.errors import Resumable
from hgld.ray_tasks import Reserve, run_on_cluster
from hgld.stopping import REQUESTS, blocked_for_children, ignore_requests

Item = TypeVar("Item")
Task = TypeVar("Task")
Result = TypeVar("Result")
ONE_CORE = Reserve()
CPU_MAX = Path("/sys/fs/cgroup/cpu.max")  # of the own control group: microseconds in each period
Label = str | Callable[[], str]  # of a progress bar; a function if it changes with time


class ProgressSink(Protocol):
    """Display of progress: called with each iterable, its label and total; passes the items on."""

    def __call__(
        self, items: Iterable[Item], label: Label, total: int | None, done: int
    ) -> Iterator[Item]:
        """Pass the items on; ``done`` others were finished before and count in the total."""
        ...


_sink: ContextVar[ProgressSink | None] = ContextVar("progress sink", default=None)
_notes: ContextVar[Callable[[str], object] | None] = ContextVar("sink of notes", default=None)


def track(
    items: Iterable[Item], label: Label, total: int | None = None, done: int = 0
) -> Iterator[Item]:
    """Pass the items through and report each as one step of progress.

    Args:
        items: the remaining items.
        label: of the progress bar.
        total: number of all items, including those finished before; None: unknown.
        done: number of items finished before.

    Example:
        >>> list(track("ab", "Reading"))
        ['a', 'b']
    """
    sink = _sink.get()
    yield from items if sink is None else sink(items, label, total, done)


def say(text: str) -> None:
    """Send a notice for the user to the current sink; without a sink it is dropped.

    Example:
        >>> with watched_by(None, print):
        ...     say("2 images are left out")
        2 images are left out
    """
    note = _notes.get()
    if note is not None:
        note(text)


def say_or_warn(text: str) -> None:
    """Send a notice, or raise a Python warning without a sink, so that scripts notice it, too."""
    if _notes.get() is None:
        warnings.warn(text, stacklevel=3)
    say(text)


@contextmanager
def watched_by(
    sink: ProgressSink | None, notes: Callable[[str], object] | None = None
) -> Iterator[None]:
    """Report all progress inside the block to ``sink`` and all notices to ``notes``, if given."""
    tokens = _sink.set(sink), _notes.set(notes)
    try:
        yield
    finally:
        _sink.reset(tokens[0])
        _notes.reset(tokens[1])


@contextmanager
def also_watched_by(sink: ProgressSink) -> Iterator[None]:
    """Report all progress inside the block to this sink and to the one installed before.

    Example:
        >>> seen = []
        >>> def watch(items, label, total, done):
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

    def both(items: Iterable[Item], label: Label, total: int | None, done: int) -> Iterator[Item]:
        size = len(items) if total is None and isinstance(items, Sized) else total
        inner = sink(items, label, size, done)
        return inner if outer is None else outer(inner, label, size, done)

    token = _sink.set(both)
    try:
        yield
    finally:
        _sink.reset(token)


def count_cores() -> int:
    """Return the number of cores that this process may use; of the machine if unknown.

    A container with a quota (``docker run --cpus``) sees all cores, but gets a part of them.
    """
    allowed = getattr(os, "sched_getaffinity", None)  # not on macOS
    cores = len(allowed(0)) if allowed else os.cpu_count() or 1
    try:
        quota, period = map(int, CPU_MAX.read_text(encoding="ascii").split())
    except (OSError, ValueError):  # no control groups, or "max 100000": no quota
        return cores
    return max(1, min(cores, -(-quota // period)))


def prepare_workers(module: str) -> BaseContext:
    """Start the process that forks workers, if none runs; it imports the module of their function.

    Call it before work that plans the tasks, and both happen at once. A fork of this process
    instead would copy locks held by the threads of torch and OpenMP, and new processes would each
    import the module.

    Returns:
        Context of ``multiprocessing`` for the workers.
    """
    resource_tracker.ensure_running()  # first, since its start unblocks signals
    set_forkserver_preload([module])
    try:
        with blocked_for_children():
            ensure_running()
    except OSError:  # TMPDIR is too long for the address of a socket
        return get_context("spawn")
    return get_context("forkserver")


def map_tasks(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    label: str,
    processes: int = 1,
    cluster: str | None = None,
    reserve: Reserve = ONE_CORE,
    meanwhile: Callable[[], object] | None = None,
) -> list[Result]:
    """Return the results of ``function`` in the order of the tasks, for any number of processes.

    With more than one process, the function and its tasks must be picklable. On a Ray cluster
    (extra ``ray``) the same function runs as Ray tasks; hgld must be installed on its nodes. They
    need no folder of this machine if the tasks are ``FileTask``s.

    Args:
        function: called with each task.
        tasks: its arguments, one each.
        label: of the progress bar.
        processes: number on this machine; unused with a cluster.
        cluster: address of a Ray cluster, "auto" for the one on this machine.
        reserve: resources that each task has to itself on a cluster.
        meanwhile: other work of this process: while workers on this machine begin, else first.

    Raises:
        Resumable: a worker process died (on a cluster: also in all retries).
        HgldError: Ray is not installed, the cluster does not answer, no node has what a task
            reserves, or a node has another version of hgld.

    Example:
        >>> map_tasks(abs, [-1, 2], "Absolute values")
        [1, 2]
    """
    alone = processes <= 1 or len(tasks) <= 1
    if meanwhile is not None and (alone or cluster is not None):
        meanwhile()
    if cluster is not None:
        from hgld.artifacts import write_file  # slow to import, and few maps need it

        found: dict[int, Result] = {}
        # an error here disconnects, too
        with closing(run_on_cluster(function, tasks, label, cluster, reserve)) as ended:
            for number, result, files in track(ended, label, len(tasks)):
                found[number] = result
                for path, content in files:
                    write_file(path, content)
        return [found[number] for number in range(len(tasks))]
    if alone:
        return [function(task) for task in track(tasks, label, len(tasks))]
    context, environment = prepare_workers(function.__module__), dict(os.environ)
    workers = ProcessPoolExecutor(min(processes, len(tasks)), context, _serve, (environment,))
    running = workers._processes
    try:
        with blocked_for_children():
            mapped = workers.map(function, tasks)
        if meanwhile is not None:
            meanwhile()
        return list(track(mapped, label, len(tasks)))
    except (KeyboardInterrupt, SystemExit):  # a stop request waits for no task of minutes
        _kill(running)
        raise
    except BrokenProcessPool:
        # The executor ends the others by SIGTERM, which they ignore, and waits for them; they may
        # wait for a lock that the dead one holds.
        _kill(running)
        raise Resumable(
            f"{label}: a worker process died (out of memory, or killed); finished tasks are kept, "
            "run the same command again"
        ) from None
    # No worker may still write when the caller reports an error; and if Python ends while the pool
    # closes its pipe, it writes to that pipe.
    finally:
        try:
            workers.shutdown(cancel_futures=True)
        except (KeyboardInterrupt, SystemExit):
            _kill(running)  # else Python would wait for them as it ends
            raise


def _kill(processes: Mapping[int, BaseProcess]) -> None:
    for process in list(processes.values()):
        process.kill()


def start_aside(function: Callable[[], object]) -> BaseProcess:
    """Start a function in a separate process, which prints nothing and ends with this one."""
    resource_tracker.ensure_running()  # first, since its start unblocks signals
    process = get_context("spawn").Process(target=_run_aside, args=(function,), daemon=True)
    with blocked_for_children():
        process.start()
    return process


def _run_aside(function: Callable[[], object]) -> None:
    # SIGTERM ends it with its parent, also one that came while this process started
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _serve(dict(os.environ), (signal.SIGINT, signal.SIGHUP))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    function()


def _serve(environment: dict[str, str], ignored: Iterable[int] = REQUESTS) -> None:
    """Prepare a worker: exit when the main process is gone, even by SIGKILL."""
    ignore_requests(ignored)
    os.environ.clear()
    os.environ.update(environment)  # it may have changed since the process that forks was started
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
