"""Stop requests: handling of SIGINT (Ctrl-C), SIGTERM and SIGHUP in a process and its workers."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], object]
REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def handle_with(handler: Handler, numbers: Iterable[int]) -> dict[int, Any]:
    """Install a handler for these signals and return the previous handlers.

    Signals that are ignored (nohup ignores SIGHUP) or handled outside Python are left alone.
    """
    before = {number: signal.getsignal(number) for number in numbers}
    heeded = {n: was for n, was in before.items() if was not in (signal.SIG_IGN, None)}
    for number in heeded:
        signal.signal(number, handler)
    return heeded


@contextmanager
def handled(handler: Handler, numbers: Iterable[int] = REQUESTS) -> Iterator[None]:
    """Handle signals inside the block; in any thread but the main one, change nothing."""
    # Python allows signal handlers to be set in the main thread only
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = handle_with(handler, numbers)
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a stop was requested, so the block can stop cleanly.

    If the block completes instead, the signal is raised when it has ended.
    """
    asked: list[int] = []
    with handled(lambda number, _: asked.append(number)):
        yield lambda: bool(asked)
    for number in asked[:1]:
        signal.raise_signal(number)


@contextmanager
def held_back(
    numbers: Iterable[int] = REQUESTS, heard: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Delay these signals until the block has ended; call ``heard`` at each of them."""
    asked: list[int] = []

    def hear(number: int, _: FrameType | None) -> None:
        asked.append(number)
        heard()

    try:
        with handled(hear, numbers):
            yield
    finally:
        for number in asked[:1]:
            signal.raise_signal(number)


def heard_despite_library(stop: Callable[[], object]) -> AbstractContextManager[None]:
    """Interrupt the block at a stop request, and raise the signal again when it has ended.

    A library may replace what a handler raises, or drop it: DuckDB ends a query with
    ``RuntimeError: Query interrupted``, and only when its threads have ended their tasks.

    Args:
        stop: ends the work of the library's threads; called at the request.
    """

    def interrupt() -> None:
        stop()
        raise KeyboardInterrupt

    return held_back(heard=interrupt)


@contextmanager
def blocked_for_children() -> Iterator[None]:
    """Block stop requests in processes that are started here, until they call ``ignore_requests``.

    A terminal sends Ctrl-C to all processes of the group, and a new process would end with a
    traceback while it still imports. It inherits the signal mask of the thread that starts it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    try:
        # Another thread may take the signal, and a child whose start is interrupted stays unknown.
        with held_back():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_requests(numbers: Iterable[int] = REQUESTS) -> None:
    """Ignore stop requests: in a worker, which its parent stops, or in an exiting process."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, REQUESTS)
