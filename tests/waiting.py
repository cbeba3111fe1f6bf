"""Waiting for what another process does."""

import time
from collections.abc import Callable


def wait_for(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)
