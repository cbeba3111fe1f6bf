"""Train image encoders on shards: one folder per run, resumable at any step.

``loop.py`` is the trainer, to be read from top to bottom. Names are loaded on first use, so that
checking a model's files does not load torch's optimisers.
"""

from typing import TYPE_CHECKING

from hgld.lazy import lazy_names

if TYPE_CHECKING:
    from hgld.train.loop import train_models
    from hgld.train.preconditions import check_split, check_training
    from hgld.train.runs import list_models, verify_models

__all__ = ["check_split", "check_training", "list_models", "train_models", "verify_models"]

__getattr__ = lazy_names(
    __name__,
    loop="train_models",
    preconditions="check_split check_training",
    runs="list_models verify_models",
)
