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

A wheel of ``make wheel`` holds machine code for the levels of instructions in ``LEVELS``. A process
loads that of the highest level of its CPU if Python, numba and the sources are those of the build;
otherwise, and if the user's NUMBA_CPU_NAME or NUMBA_CPU_FEATURES chooses a CPU, it compiles.
"""

import re
import sysconfig
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
from numba.core.caching import IndexDataCacheFile
from numba.core.compiler import CompileResult
from numba.extending import intrinsic, register_jitable

from hgld.stopping import held_back

Array = np.ndarray[Any, Any]
IMPORTED = re.compile(rb"^from hgld\.([\w.]+) import", re.M)
COMMON: Mapping[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}  # C calls none
ANY_ORDER = {"reassoc", "contract", "arcp", "nsz", "nnan"}  # no "ninf": scores may be infinite
WHOLE_VECTORS = "-prefer-256-bit"
AVX2 = "avx2 bmi bmi2 cx16 f16c fma lzcnt movbe popcnt sahf sse4.2 xsave"
AVX512 = f"{AVX2} avx512bw avx512cd avx512dq avx512f avx512vl"
# LLVM's name of a CPU, highest first: features to compile with, those that a CPU needs to run it
LEVELS = {"x86-64-v4": (WHOLE_VECTORS, AVX512), "x86-64-v3": ("", AVX2)}
MACHINE_CODE = Path(__file__).with_name("machine_code")  # in a wheel: a folder for each level
KERNELS: list[Any] = []
SETTINGS: Any = config  # its names are made when it is imported


def kernel(function: Callable[..., Any], allocates: bool = True) -> Callable[..., Any]:
    """Compile on first use, and keep the machine code; for functions that Python calls."""
    options: Mapping[str, Any] = {**COMMON, "_nrt": allocates}
    found = numba.njit(nogil=True, **options)(function)
    shipped = machine_code(function, MACHINE_CODE / LEVEL)
    try:
        found.enable_caching()
    except RuntimeError:  # no writable folder
        if not shipped._load_index():
            _warn_uncached()
    if hasattr(found._cache, "_cache_file"):
        place = found._cache.cache_path, found._cache._impl.filename_base
        found._cache._cache_file = _KernelFile(*place, numba.__version__, STAMP)
    load_kept, compile_one = found._cache.load_overload, found.compile

    def load(signature: Any, target: Any) -> Any:
        target.refresh()
        made = shipped.load(signature)
        if made is None:
            return load_kept(signature, target)
        return CompileResult._rebuild(target, *made)  # type: ignore[no-untyped-call]

    def compile_whole(signature: Any) -> Any:
        # LLVM calls back into Python, where what the handler of a stop request raises is dropped
        with held_back():
            return compile_one(signature)

    found._cache.load_overload, found.compile = load, compile_whole
    KERNELS.append(found)
    compiled: Callable[..., Any] = found
    return compiled


def bare_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like ``kernel``, without reference counts of arrays; for kernels that allocate none.

    For a short row, numba's atomic counts of the buffers took as long as the work on it.
    """
    return kernel(function, allocates=False)


def machine_code(function: Callable[..., Any], folder: Path) -> Any:
    """Return numba's store of a kernel's machine code, by signature, in a folder of one level."""
    name = f"{function.__module__}.{function.__qualname__}"
    # It calls functions of Python and numba, and of SVML if numba finds that.
    parts = numba.__version__, sysconfig.get_config_var("SOABI"), SETTINGS.USING_SVML, STAMP
    return _KernelFile(str(folder), name, *parts)


class _KernelFile(IndexDataCacheFile):
    """numba's store of a kernel; a file that was damaged, as by a power cut, counts as missing."""

    def __init__(self, folder: str, name: str, *version: object) -> None:
        # numba's own stamp covers one file only
        super().__init__(folder, name, STAMP)  # type: ignore[no-untyped-call]
        # compared before numba unpickles the rest, which would fail on a renamed class
        self._version = " ".join(map(str, version))

    def _load_index(self) -> Any:
        try:
            return super()._load_index()  # type: ignore[no-untyped-call]
        except Exception:  # pickle raises many types
            return {}

    def _load_data(self, name: str) -> Any:
        try:
            return super()._load_data(name)  # type: ignore[no-untyped-call]
        except Exception:
            return None


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


def levels_of_cpu() -> list[str]:
    """Return the levels of instructions that this CPU has, highest first."""
    features = codegen.get_host_cpu_features().split(",")  # type: ignore[no-untyped-call]
    return [
        level
        for level, (_, needed) in LEVELS.items()
        if {f"+{feature}" for feature in needed.split()} <= {*features}
    ]


def _choose_vectors() -> str:
    """Allow 64-byte vectors, before numba makes its target with the first kernel.

    Returns:
        The level of instructions for which a wheel may have machine code; "" if there is none.
    """
    features = codegen.get_host_cpu_features()  # type: ignore[no-untyped-call]
    if SETTINGS.CPU_FEATURES is not None:
        return ""
    if "+avx512f" in features.split(","):
        SETTINGS.CPU_FEATURES = f"{features},{WHOLE_VECTORS}"
    return "" if SETTINGS.CPU_NAME is not None else next(iter(levels_of_cpu()), "")


STAMP = _stamp()
LEVEL = _choose_vectors()
