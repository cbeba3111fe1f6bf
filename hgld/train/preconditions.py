"""Check the data that training needs on the tables from which the shards will be made.

Training checks it again on the shards. The check before the export keeps a pipeline from failing
on a wrong option after hours.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from hgld.config import StageContext, TrainOptions
from hgld.errors import InvalidData, UsageError
from hgld.shards.batches import Samples, plan_epoch
from hgld.shards.classes import label_images, number_classes
from hgld.sources.open_set import describe_splits
from hgld.train.data import batch_options, number_levels
from hgld.train.objective import build_loss
from hgld.train.start import require_starts

__all__ = ["check_split", "check_training"]


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
        UsageError: the split has no labelled images, a loss does not fit the levels, or a run
            starts from a model of another architecture.
    """
    training = [run for run in options.runs.values() if run.steps]
    if not training:
        return
    classes = number_classes(hierarchy)
    levels = [f"level_{i + 1}" for i in range(len(classes.levels))]
    labelled = label_images(images[["split", "landmark_id"]], classes).dropna(subset=levels)
    rows = labelled[labelled["split"] == options.split]
    if rows.empty:
        raise UsageError(
            f"train.split '{options.split}' has no labelled images; there are: "
            f"{describe_splits(labelled) or 'none at all'}"
        )
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
