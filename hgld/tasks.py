"""Run one function over many tasks, and let whoever started the run watch the progress.

``map_tasks`` is the only place where work is spread over processes. ``track`` reports progress to
a sink that the command line installs; without one it only passes the items through, so that a
stage never prints.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from multiprocessing import get_context
from typing import Protocol, TypeVar

from hgld.errors import Resumable

__all__ = ["ProgressSink", "map_tasks", "track", "watched_by"]

Item = TypeVar("Item")
Task = TypeVar("Task")
Result = TypeVar("Result")


class ProgressSink(Protocol):
    """Shows progress: gets each iterable with its label and total, and passes its items on."""

    def __call__(self, items: Iterable[Item], label: str, total: int | None) -> Iterator[Item]:
        """Pass the items on."""
        ...


_sink: ContextVar[ProgressSink | None] = ContextVar("progress sink", default=None)


def track(items: Iterable[Item], label: str, total: int | None = None) -> Iterator[Item]:
    """Pass the items through, one step of progress each.

    Example:
        >>> list(track("ab", "Reading"))
        ['a', 'b']
    """
    sink = _sink.get()
    yield from items if sink is None else sink(items, label, total)


@contextmanager
def watched_by(sink: ProgressSink) -> Iterator[None]:
    """Report all progress inside the block to this sink."""
    token = _sink.set(sink)
    try:
        yield
    finally:
        _sink.reset(token)


def map_tasks(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    label: str,
    processes: int = 1,
) -> list[Result]:
    """Results of ``function`` in the order of the tasks, whatever the number of processes.

    The function and its tasks must be picklable where there is more than one process.

    Raises:
        Resumable: a worker process died.

    Example:
        >>> map_tasks(abs, [-1, 2], "Absolute values")
        [1, 2]
    """
    if processes <= 1 or len(tasks) <= 1:
        return [function(task) for task in track(tasks, label, len(tasks))]
    workers = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    try:
        with workers:
            return list(track(workers.map(function, tasks), label, len(tasks)))
    except BrokenProcessPool:
        raise Resumable(
            f"{label}: a worker process died (out of memory, or killed); finished tasks are kept, "
            "run the same command again"
        ) from None
