"""Compile the loops that plan and scan with numba, and cache them on disk.

If neither the package nor the home folder is writable (a read-only container), numba refuses to
compile at all when caching is requested; each process then compiles for itself.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba

__all__ = ["compiled"]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first use; cache the result if a folder is writable."""
    found = numba.njit(function)
    with suppress(RuntimeError):  # no writable folder
        found.enable_caching()
    made: Callable[..., Any] = found
    return made
