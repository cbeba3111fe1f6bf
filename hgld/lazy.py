"""Lazy exports of a package: a name is imported on first use, so import stays fast (PEP 562)."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


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
