"""Trains a head on frozen features, by the trainer's own step, and measures what it retrieves.

The model is the trainer's: a norm without learned scale, a linear layer, unit length; only its
backbone is taken away, for it has already seen the photos. Batches, rates, memory and losses are
the trainer's too, so what is found here is found of them. The head begins as the directions in
which the training photos vary most: a loss has to add to what the features can do already.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from hgld.config import RunOptions, TrainOptions
from hgld.model import ImageModel
from hgld.model.image import ImageConfig
from hgld.shards.batches import BatchOptions, BatchPlan, Samples
from hgld.train.learner import Learner, set_rates
from hgld.train.objective import build_loss
from pipelines.claims.features import DIM, Photos
from pipelines.claims.measures import measure

__all__ = ["Batches", "measure_features", "measure_head", "train_head"]


@dataclass(frozen=True)
class Batches:
    """P classes of K photos."""

    classes: int = 16
    images: int = 4


class Seen(nn.Flatten):
    """A backbone for photos that it has already seen: (N, F, 1, 1) -> (N, F)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.num_features = features


def train_head(photos: Photos, run: RunOptions, batches: Batches, seed: int) -> ImageModel:
    """A head that has learned from the photos; the seed draws proxies and batches."""
    model = _new_model(photos)
    criterion = build_loss(run, photos.class_labels, model.dim, seed)
    learner = Learner(model, criterion, photos.labels.shape[1], TrainOptions(), run)
    labels, images = torch.from_numpy(photos.labels), photos.features[:, :, None, None]
    options = BatchOptions(batches.classes, batches.images)
    plan = BatchPlan(Samples.of_labels(photos.labels), options, seed=seed)
    for step in range(run.steps):
        rows = torch.from_numpy(plan.at(step).rows)
        set_rates(learner.optimizers, run, step)
        learner.differentiate(images[rows], labels[rows], rows)
        for optimizer in learner.optimizers:
            optimizer.step()
    return model.eval()


@torch.inference_mode()
def measure_head(model: ImageModel, photos: Photos) -> dict[str, float]:
    """What the head retrieves of photos."""
    return measure(model(photos.features[:, :, None, None]), photos.labels)


def measure_features(photos: Photos) -> dict[str, float]:
    """What the features retrieve as they are, without a head."""
    return measure(F.normalize(photos.features, dim=1), photos.labels)


def _new_model(photos: Photos) -> ImageModel:
    facts: Mapping[str, object] = {"backbone": "", "architecture": "", "image_size": 1}
    rest = {"mean": (), "std": (), "interpolation": "", "freeze_batch_norm": True}
    config = ImageConfig(**facts, **rest, dim=DIM, pretrained_sha256="")  # type: ignore[arg-type]
    with torch.random.fork_rng(devices=[]):
        model = ImageModel(config, Seen(photos.features.shape[1]))
    model.load_state_dict(photos.directions)
    return model
