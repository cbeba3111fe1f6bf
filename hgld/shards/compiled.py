"""Compiles the loops that plan and scan, and keeps them on disk for the next process.

Where neither the package nor the home folder can be written (a read-only container), numba refuses
to compile at all if asked to keep; then each process compiles its own.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba

__all__ = ["compiled"]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first use; kept where a folder can be written."""
    found = numba.njit(function)
    with suppress(RuntimeError):  # no folder that can be written
        found.enable_caching()
    made: Callable[..., Any] = found
    return made
