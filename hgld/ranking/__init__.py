"""Hierarchical retrieval losses and metrics, exact; usable alone, on torch tensors.

``levels`` computes how many levels two label paths share, ``steps`` has smooth steps for
differentiable ranks, ``losses`` the training losses and ``metrics`` the reported metrics; ``parts``
ranks a gallery that is split into parts, and ``interchange`` reads and writes rankings of other
programs. It imports only torch and numpy, and modules and kernels only on first use:
``lower_is_better`` needs no torch, which takes a second to load.
"""

import re
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hgld.ranking import interchange, levels, losses, metrics, parts, steps

__all__ = ["interchange", "levels", "losses", "lower_is_better", "metrics", "parts", "steps"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def lower_is_better(name: str) -> bool:
    """Whether a metric is a distance, so that its least value is the best.

    Example:
        >>> lower_is_better("AHD@5"), lower_is_better("MS over kind"), lower_is_better("H-AP")
        (True, True, False)
    """
    return re.split("[@ ]", name)[0] in ("AHD", "MS")
