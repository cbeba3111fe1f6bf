"""Compile loops with numba: cached on disk, without the interpreter lock, without zero checks.

By default numba checks each division for zero, which prevents vectorised loops (ten times slower).
``fast`` also allows sums to be reordered; use it only for short loops. ``part`` inlines a function
that runs once per score: a call costs as much as its work.

A compiled kernel includes the kernels of other files that it calls, but numba recompiles it only
if its own file changes. Here it is recompiled if any file with kernels has changed. If neither the
package nor the home folder is writable, each process compiles its kernels.
"""

import warnings
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
import numpy as np

__all__ = ["Array", "fast", "kernel", "part"]

Array = np.ndarray[Any, Any]
ANY_ORDER = {"reassoc", "contract", "arcp", "nsz", "nnan"}  # no "ninf": scores may be infinite


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first use."""
    return _compiled(function)


def fast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first use, with sums in any order."""
    return _compiled(function, fastmath=ANY_ORDER)


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile into the kernels that call it."""
    return _compiled(function, forceinline=True)


def _compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    found = numba.njit(nogil=True, error_model="numpy", **options)(function)
    try:
        found.enable_caching()
    except RuntimeError:  # no writable folder
        _warn_uncached()
    file = getattr(found._cache, "_cache_file", None)
    if file is not None:
        # numba's own stamp covers one file only
        file._source_stamp = STAMP
        # compared before numba unpickles the rest, which would fail on a renamed class
        file._version = f"{numba.__version__} {STAMP}"
    compiled: Callable[..., Any] = found
    return compiled


@cache
def _warn_uncached() -> None:
    """Warn once that compiled kernels are lost when the process ends."""
    warnings.warn(
        "no folder to keep compiled kernels in: each process compiles its own; "
        "set NUMBA_CACHE_DIR to a folder that can be written",
        stacklevel=2,
    )


def _stamp() -> str:
    """Hash of the files of this package that hold kernels."""
    sources = (file.read_bytes() for file in sorted(Path(__file__).parent.rglob("*.py")))
    kernels = (source for source in sources if b"hgld.compiled" in source)
    return sha256(b"".join(kernels)).hexdigest()


STAMP = _stamp()
