"""Compile loops with numba: cached on disk, without the interpreter lock, without zero checks.

By default numba checks each division for zero, which prevents vectorised loops (ten times slower).
Python calls a ``kernel``; kernels call ``inner``, ``fast`` and ``part``, which have no code to be
called from Python and are not kept by themselves: both took a third of the time to compile.
``fast`` also allows sums to be reordered; use it only for short loops. ``part`` inlines a function
that runs once per score: a call costs as much as its work.

A compiled kernel includes the kernels of other files that it calls, but numba recompiles it only
if its own file changes. Here it is recompiled if any file with kernels, or one that these import,
has changed. If neither the package nor the home folder is writable, each process compiles its
kernels.

On CPUs with AVX-512 kernels use vectors of 64 bytes. LLVM prefers 32 bytes on Intel's CPUs, because
the first of them lowered their clock for 64; torch's products use 64. A user's NUMBA_CPU_FEATURES
is not changed. numba keeps kernels of other features apart.
"""

import re
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core import cgutils, codegen, config
from numba.extending import intrinsic, register_jitable

from hgld.stopping import held_back

Array = np.ndarray[Any, Any]
IMPORTED = re.compile(rb"^from hgld\.([\w.]+) import", re.M)
COMMON: Mapping[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}  # C calls none
ANY_ORDER = {"reassoc", "contract", "arcp", "nsz", "nnan"}  # no "ninf": scores may be infinite


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first use, and keep the machine code; for functions that Python calls."""
    found = numba.njit(nogil=True, **COMMON)(function)
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
    compile_one = found.compile

    def compile_whole(signature: Any) -> Any:
        # LLVM calls back into Python, where what the handler of a stop request raises is dropped
        with held_back():
            return compile_one(signature)

    found.compile = compile_whole
    compiled: Callable[..., Any] = found
    return compiled


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with the kernels that call it; Python runs the function itself."""
    return _within_kernels(function)


def fast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like ``inner``, with sums in any order."""
    return _within_kernels(function, fastmath=ANY_ORDER)


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like ``inner``, but compile it into each place that calls it."""
    return _within_kernels(function, forceinline=True)


def _within_kernels(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    compiled: Callable[..., Any] = register_jitable(**COMMON, **options)(function)
    return compiled


def _prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Fetch an item of a (N,) array into the processor's caches, for a later line of a kernel.

    Otherwise a loop over random items of a large array waits for each.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        found = context.make_array(signature.args[0])(context, builder, values[0])
        place = context.cast(builder, values[1], signature.args[1], types.intp)
        tools: Any = cgutils  # numba's helpers have no types
        ir = tools.ir
        item = tools.get_item_pointer(context, builder, array, found, [place])
        flags = [ir.Constant(tools.int32_t, flag) for flag in (0, 3, 1)]  # read, all caches, data
        kinds = [tools.voidptr_t, *(flag.type for flag in flags)]
        form = ir.FunctionType(ir.VoidType(), kinds)
        call = builder.module.declare_intrinsic("llvm.prefetch", kinds[:1], form)
        builder.call(call, [builder.bitcast(item, tools.voidptr_t), *flags])
        return context.get_dummy_value()

    return types.void(array, index), generate


prefetch: Callable[..., None] = intrinsic(_prefetch)


@cache
def _warn_uncached() -> None:
    """Warn once that compiled kernels are lost when the process ends."""
    warnings.warn(
        "no folder to keep compiled kernels in: each process compiles its own; "
        "set NUMBA_CACHE_DIR to a folder that can be written",
        stacklevel=2,
    )


def _stamp() -> str:
    """Hash of the files that hold kernels, and of those whose constants a kernel may contain."""
    package = Path(__file__).parent
    sources = {file: file.read_bytes() for file in package.rglob("*.py")}
    kernels = {file for file, source in sources.items() if b"hgld.compiled" in source}
    names = {name.decode() for file in kernels for name in IMPORTED.findall(sources[file])}
    imported = {package.joinpath(*name.split(".")).with_suffix(".py") for name in names}
    files = sorted(kernels | imported & sources.keys())
    return sha256(b"".join(sources[file] for file in files)).hexdigest()


def _widen_vectors() -> None:
    """Allow 64-byte vectors, before numba makes its target with the first kernel."""
    features = codegen.get_host_cpu_features()  # type: ignore[no-untyped-call]
    settings: Any = config  # its names are made when it is imported
    if settings.CPU_FEATURES is None and "+avx512f" in features.split(","):
        settings.CPU_FEATURES = f"{features},-prefer-256-bit"


STAMP = _stamp()
_widen_vectors()
