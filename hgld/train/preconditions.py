"""Check the data and the models that training needs, before anything is exported.

Training checks them again, on the shards. The check on the tables from which the shards will be
made keeps a pipeline from failing on a wrong option after hours.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from hgld.config import StageContext, TrainOptions
from hgld.errors import HgldError, InvalidData, UsageError
from hgld.model import build_image_model
from hgld.model.backbones import find_architecture
from hgld.model.image import load_weights
from hgld.shards.batches import plan_epoch
from hgld.shards.classes import label_images, number_classes
from hgld.shards.sampling import Samples
from hgld.shards.schema import numbered_levels
from hgld.sources.open_set import describe_splits
from hgld.train.data import batch_options, number_levels
from hgld.train.objective import build_loss
from hgld.train.whitening import require_images


def check_split(images: pd.DataFrame, *, options: TrainOptions, context: StageContext) -> None:
    """Refuse a training split without images, before anything is scraped or reviewed.

    Raises:
        UsageError: the split has no images, for example because all classes are held out.
    """
    trains = any(run.steps for run in options.runs.values())
    if trains and not (images["split"] == options.split).any():
        raise UsageError(
            f"train.split '{options.split}' has no images; there are: "
            f"{describe_splits(images) or 'none at all'}; hold fewer classes out, or give trained "
            "models in evaluate.models"
        )


def check_training(
    images: pd.DataFrame, hierarchy: pd.DataFrame, *, options: TrainOptions, context: StageContext
) -> None:
    """Refuse options that do not fit the labelled images.

    Raises:
        InvalidData: not a single batch can be made of the split, or a run starts from a folder
            without a model.
        UsageError: the split has no labelled images, or too few for train.head_init; a loss does
            not fit the levels, timm has no such backbone, or a run starts from a model of another
            architecture.
    """
    find_architecture(options)  # not its weights: the machine that exports may have no network
    training = [run for run in options.runs.values() if run.steps]
    if not training:
        return
    classes = number_classes(hierarchy)
    levels = numbered_levels(len(classes.levels))
    labelled = label_images(images[["split", "landmark_id"]], classes).dropna(subset=levels)
    rows = labelled[labelled["split"] == options.split]
    if rows.empty:
        raise UsageError(
            f"train.split '{options.split}' has no labelled images; there are: "
            f"{describe_splits(labelled) or 'none at all'}"
        )
    if not all(run.init_from for run in training):
        require_images(options, len(rows))
    labels, class_labels = number_levels(rows[levels].to_numpy(np.int64))
    for run in training:
        build_loss(run, class_labels, options.dim, options.seed)
    require_starts(options)
    # The order "shards" needs runs, which do not exist before the export.
    batches = replace(batch_options(options), order="random")
    try:
        plan_epoch(Samples.of_labels(labels), batches, seed=options.seed, epoch=0)
    except InvalidData as error:
        raise InvalidData(f"train.split '{options.split}': {error}") from None


def require_starts(options: TrainOptions, own: Mapping[str, Path] | None = None) -> None:
    """Refuse a folder that a run cannot start from.

    A run that starts from another run of its pipeline needs no check: they share the architecture.

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
