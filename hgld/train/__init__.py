"""Trains image encoders on shards: one folder a run, resumable at any step.

``loop.py`` is the trainer, to be read from top to bottom. Names are loaded when they are used, so
that checking a model's files does not load torch's optimisers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hgld.train.loop import train_models
    from hgld.train.preconditions import check_split, check_training
    from hgld.train.runs import list_models, verify_models

__all__ = ["check_split", "check_training", "list_models", "train_models", "verify_models"]

_HOME = {
    "check_split": "preconditions",
    "check_training": "preconditions",
    "list_models": "runs",
    "train_models": "loop",
    "verify_models": "runs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
