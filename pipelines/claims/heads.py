"""Train a network on features, by the trainer's own step, and measure what it retrieves.

The model is the trainer's: a norm without learned scale, a linear layer, unit length; only its
backbone is taken away, for it has already seen the photos. Batches, rates, memory and losses are
the trainer's too, so what is found here is found of them. The head of photos begins as the
directions in which the training photos vary most: a loss has to add to what the features can do
already. On made samples two layers below it are trained too, all from random weights.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn

from hgld.config import RunOptions, TrainOptions
from hgld.model import ImageModel
from hgld.model.model_folder import ImageConfig
from hgld.shards.batches import BatchPlan
from hgld.shards.sampling import BatchOptions, Samples
from hgld.train.data import number_levels
from hgld.train.learner import Learner
from hgld.train.objective import build_loss
from pipelines.claims.features import DIM, Photos
from pipelines.claims.measures import measure
from pipelines.claims.runs import Batches

HIDDEN, NETWORK_DIM = 128, 64


class Layers(nn.Sequential):
    """A backbone of vectors: (N, F, 1, 1) -> (N, hidden), or (N, F) as they are."""

    def __init__(self, features: int, hidden: int | None = None) -> None:
        layers = [nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()] \
            if hidden else []  # fmt: skip
        super().__init__(nn.Flatten(), *layers)
        self.num_features = hidden or features


def train_head(photos: Photos, run: RunOptions, batches: Batches, seed: int) -> ImageModel:
    """A head that has learned from the photos; the seed draws proxies and batches."""
    model = _new_model(Layers(photos.features.shape[1]), DIM, seed)
    model.load_state_dict(photos.directions)
    return _train(model, photos, run, batches, seed)


def train_network(photos: Photos, run: RunOptions, batches: Batches, seed: int) -> ImageModel:
    """A network of three layers that has learned from random weights, drawn from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _new_model(Layers(photos.features.shape[1], HIDDEN), NETWORK_DIM, seed)
    return _train(model, photos, run, batches, seed)


@torch.inference_mode()
def measure_head(model: ImageModel | None, photos: Photos) -> dict[str, float]:
    """What a model retrieves of photos; without one, what their features retrieve."""
    if model is None:
        return measure(F.normalize(photos.features, dim=1), photos.labels)
    return measure(model(photos.features[:, :, None, None]), photos.labels)


def _train(
    model: ImageModel, photos: Photos, run: RunOptions, batches: Batches, seed: int
) -> ImageModel:
    criterion = build_loss(run, number_levels(photos.labels)[1], model.dim, seed)
    learner = Learner(model, criterion, photos.labels.shape[1], TrainOptions(), run)
    labels, images = torch.from_numpy(photos.labels), photos.features[:, :, None, None]
    options = BatchOptions(batches.classes, batches.images)
    plan = BatchPlan(Samples.of_labels(photos.labels), options, seed=seed)
    for step in range(run.steps):
        rows = torch.from_numpy(plan.at(step).rows)
        learner.learn(step, images[rows], labels[rows], rows)
    return model.eval()


def _new_model(backbone: nn.Module, dim: int, seed: int) -> ImageModel:
    facts: Mapping[str, object] = {"backbone": "", "architecture": "", "image_size": 1}
    rest = {"mean": (), "std": (), "interpolation": "", "freeze_batch_norm": True}
    config = ImageConfig(**facts, **rest, dim=dim, pretrained_sha256="")  # type: ignore[arg-type]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ImageModel(config, backbone)
