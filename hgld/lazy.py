"""Lazy imports, so that a command starts fast: a package's exports (PEP 562), and whole modules."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def lazy_module(name: str) -> Any:
    """Return a stand-in that imports the module when an attribute is read.

    A module that uses it needs ``from __future__ import annotations``, since annotations read
    attributes, too.

    Example:
        >>> lazy_module("json").dumps([1])
        '[1]'
    """
    return _LazyModule(name)


def lazy_names(package: str, **modules: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package.

    Args:
        package: its ``__name__``.
        modules: submodule -> the names that the package exports from it, separated by blanks.

    Example:
        >>> load = lazy_names("json", decoder="JSONDecoder JSONDecodeError")
        >>> load("JSONDecoder").__name__
        'JSONDecoder'
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return load
