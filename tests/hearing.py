"""Requests to stop, as an exception that a test can expect."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from hgld.stopping import handle_with


class Heard(BaseException):
    """A request to stop came."""


def _hear(*_: object) -> None:
    raise Heard


@contextmanager
def hearing() -> Iterator[None]:
    """Raise Heard where SIGTERM comes."""
    before = handle_with(_hear, [signal.SIGTERM])
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before[signal.SIGTERM])
