"""How kernels are compiled: cached on disk, without the interpreter lock, without zero checks.

numba checks each division for zero unless told otherwise, which keeps loops from being vectorised
(ten times slower). ``fast`` also lets sums be reordered; it is for short loops over slices alone.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

__all__ = ["Array", "fast", "kernel"]

Array = np.ndarray[Any, Any]


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first use."""
    compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled


def fast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first use, sums in any order."""
    compiled: Callable[..., Any] = numba.njit(
        cache=True, nogil=True, error_model="numpy", fastmath=True
    )(function)
    return compiled
