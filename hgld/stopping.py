"""Requests to stop: Ctrl-C, SIGTERM and SIGHUP, sent to one process or to its whole group."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["blocked_for_children", "handle_with", "held_back", "ignore_requests", "stop_requests"]

Handler = Callable[[int, FrameType | None], object]
REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def handle_with(handler: Handler, numbers: Iterable[int]) -> dict[int, Any]:
    """Handle these signals; what did so before.

    Those that are ignored, as nohup has it, or handled by other code than Python's stay so.
    """
    before = {number: signal.getsignal(number) for number in numbers}
    heeded = {n: was for n, was in before.items() if was not in (signal.SIG_IGN, None)}
    for number in heeded:
        signal.signal(number, handler)
    return heeded


@contextmanager
def _handled(handler: Handler, numbers: Iterable[int] = REQUESTS) -> Iterator[None]:
    """Handle signals within the block; where it is not the main thread's, others do."""
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
    """Take a request as a wish; what is yielded tells whether one came.

    Where the block does not stop for it, it is heard when the block has ended.
    """
    asked: list[int] = []
    with _handled(lambda number, _: asked.append(number)):
        yield lambda: bool(asked)
    for number in asked[:1]:
        signal.raise_signal(number)


@contextmanager
def held_back(numbers: Iterable[int] = REQUESTS) -> Iterator[None]:
    """Hear these signals when the block has ended."""
    asked: list[int] = []
    try:
        with _handled(lambda number, _: asked.append(number), numbers):
            yield
    finally:
        for number in asked[:1]:
            signal.raise_signal(number)


@contextmanager
def blocked_for_children() -> Iterator[None]:
    """Start processes in the block: a request reaches them only after ``ignore_requests``.

    Ctrl-C is sent to the whole group, and a new process would end with a traceback while it still
    imports. It inherits the mask of the thread that starts it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_requests(_: int = 0) -> None:
    """Let no request end this process: a worker, whose group is asked too, or one that ends."""
    for number in REQUESTS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, REQUESTS)
