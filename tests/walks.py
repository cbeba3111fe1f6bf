"""Modules of hgld that a piece of work passes, in the order in which it enters them first.

The walk of data is counted: a module counts if one of its functions receives, holds or returns a
tensor or an array. A compiled kernel is no Python frame, so the modules of the kernels that are
called, and of those that these call, are added when the kernel is called.
"""

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import torch


def modules_passed(work: Callable[[], object]) -> list[str]:
    """Names of the modules, without the package, e.g. ``ranking.levels``."""
    passed: dict[str, None] = {}
    kernels = {id(kernel): kernel for kernel in _kernels()}

    def note(frame: FrameType, event: str, result: Any) -> None:
        name = str(frame.f_globals.get("__name__", ""))
        if not name.startswith("hgld."):
            return
        if event in ("call", "return") and any(map(_is_data, (*frame.f_locals.values(), result))):
            passed.setdefault(name.removeprefix("hgld."))
        for word in frame.f_code.co_names if event == "return" else ():
            if id(frame.f_globals.get(word)) in kernels:
                _add_kernel(frame.f_globals[word], passed)
        for value in frame.f_locals.values() if event == "return" else ():
            if id(value) in kernels:  # imported in the function
                _add_kernel(value, passed)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return list(passed)


def _is_data(value: object) -> bool:
    values = value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(part, torch.Tensor | np.ndarray) for part in values)


def _kernels() -> Iterator[Any]:
    """All compiled kernels of the modules that are loaded."""
    from numba.core.dispatcher import Dispatcher

    for name, module in list(sys.modules.items()):
        if name.startswith("hgld."):
            yield from (value for value in vars(module).values() if isinstance(value, Dispatcher))


def _add_kernel(kernel: Any, passed: dict[str, None]) -> None:
    """Add the module of a kernel, and those of the kernels that it calls."""
    function = kernel.py_func
    passed.setdefault(function.__module__.removeprefix("hgld."))
    for word in function.__code__.co_names:
        other = function.__globals__.get(word)
        if isinstance(other, type(kernel)) and other is not kernel:
            _add_kernel(other, passed)
