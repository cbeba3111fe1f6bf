"""Fine-tunes the whole network on the photos of a fold, by the trainer's own step and loader."""

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch

from hgld.artifacts import hash_file
from hgld.config import RunOptions, TrainOptions
from hgld.model import ImageModel, build_image_model
from hgld.train.data import TrainingData, number_levels
from hgld.train.learner import Learner
from hgld.train.objective import build_loss
from pipelines.claims.features import embed, read_shards
from pipelines.claims.measures import measure
from pipelines.claims.runs import Batches

OPTIONS = TrainOptions(backbone="offline:efficientnet-lite0", dim=256, image_size=64)


@dataclass(frozen=True)
class Images:
    """Photos as files.

    Attributes:
        data: the images with their labels.
        key: one word for all that decides them.
    """

    data: TrainingData
    key: str

    @property
    def labels(self) -> np.ndarray:
        """(N, L), coarse to fine, the classes of each level numbered 0, 1, 2 ..."""
        return self.data.labels

    def of(self, rows: np.ndarray, name: str) -> Self:
        """Some of the photos, their classes renumbered."""
        labels, class_labels = number_levels(self.labels[rows])
        own = replace(self.data.images.take(rows), labels=labels)
        data = replace(self.data, images=own, class_labels=class_labels)
        return type(self)(data, f"{self.key} {name}")


def read_images(shards: Path) -> Images:
    """All photos of the shards."""
    return Images(read_shards(shards), hash_file(shards / "manifest.json"))


def fine_tune(images: Images, run: RunOptions, batches: Batches, seed: int) -> ImageModel:
    """A network that has learned from the photos; the seed draws head, proxies and batches."""
    shape = {"classes_per_batch": batches.classes, "images_per_class": batches.images}
    options = OPTIONS.model_copy(update={**shape, "seed": seed})
    model = build_image_model(options).train()
    criterion = build_loss(run, images.data.class_labels, model.dim, seed)
    learner = Learner(model, criterion, images.labels.shape[1], options, run)
    labels = torch.from_numpy(images.labels)
    loader = images.data.loader(model.config, options)
    with closing(loader.load(range(run.steps))) as loaded:
        for step, batch in enumerate(loaded):
            rows = torch.from_numpy(batch.planned.rows)
            learner.learn(step, batch.images, labels[rows], rows)
    return model.eval()


def measure_images(model: ImageModel | None, images: Images) -> dict[str, float]:
    """What a network retrieves of photos; without one, what the pretrained backbone retrieves."""
    network = model or build_image_model(OPTIONS, head=False).eval()
    return measure(embed(images.data, network.config, network), images.labels)
