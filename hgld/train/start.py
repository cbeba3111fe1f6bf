"""Check the model folders that runs start from, before anything is exported or trained.

A run that starts from another run of its pipeline needs no check: they share the architecture.
"""

from collections.abc import Mapping
from pathlib import Path

from hgld.config import TrainOptions
from hgld.errors import HgldError, UsageError
from hgld.model import build_image_model
from hgld.model.image import load_weights

__all__ = ["require_starts"]


def require_starts(options: TrainOptions, own: Mapping[str, Path] | None = None) -> None:
    """Refuse a folder that a run cannot start from.

    Args:
        options: of the trainer and its runs.
        own: folder of each model that is trained; they are named by their run.

    Raises:
        InvalidData: a folder has no model, or its files are damaged.
        UsageError: the model has another architecture, or is one of those that are trained.
    """
    for name, run in options.runs.items():
        if run.init_folder is None:
            continue
        where = f"train.runs.{name}.init_from"
        for model, folder in (own or {}).items():
            if folder.resolve() == run.init_folder.resolve():
                raise UsageError(
                    f"{where}: {run.init_folder} is {model}, which this pipeline trains; name "
                    "another run, or a copy of the folder"
                )
        try:
            load_weights(build_image_model(options), run.init_folder)
        except HgldError as error:
            raise type(error)(f"{where}: {error}") from None
