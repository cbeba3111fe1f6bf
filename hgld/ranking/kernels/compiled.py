"""How kernels are compiled: cached on disk, without the interpreter lock, without zero checks.

numba checks each division for zero unless told otherwise, which keeps loops from being vectorised
(ten times slower). ``fast`` also lets sums be reordered; it is for short loops alone. ``part`` is
for what runs once for each score: a call costs as much as the work.

A compiled kernel holds the kernels of other files that it calls, but numba compiles it anew only
when its own file changes. Here it does when any file with kernels has changed. Where neither the
package nor the home folder can be written, kernels are compiled once for each process.
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
ANY_ORDER = {"reassoc", "contract", "arcp", "nsz", "nnan"}  # infinity stays what it is


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first use."""
    return _compiled(function)


def fast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first use, sums in any order."""
    return _compiled(function, fastmath=ANY_ORDER)


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile into the kernels that call it."""
    return _compiled(function, forceinline=True)


def _compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    found = numba.njit(nogil=True, error_model="numpy", **options)(function)
    try:
        found.enable_caching()
    except RuntimeError:  # no folder that can be written
        _warn_uncached()
    file = getattr(found._cache, "_cache_file", None)
    if file is not None:
        file._source_stamp = STAMP
        # compared before numba unpickles the rest, which fails if a class was renamed since
        file._version = f"{numba.__version__} {STAMP}"
    compiled: Callable[..., Any] = found
    return compiled


@cache
def _warn_uncached() -> None:
    """Say once that compiled kernels are lost with the process."""
    warnings.warn(
        "no folder to keep compiled kernels in: each process compiles its own; "
        "set NUMBA_CACHE_DIR to a folder that can be written",
        stacklevel=2,
    )


def _stamp() -> str:
    """Hash of the files of this package that hold kernels."""
    sources = (file.read_bytes() for file in sorted(Path(__file__).parent.parent.rglob("*.py")))
    kernels = (source for source in sources if b"hgld.ranking.kernels.compiled" in source)
    return sha256(b"".join(kernels)).hexdigest()


STAMP = _stamp()
