"""What the frozen backbone sees in every photo, found once and kept.

A head learns from these numbers in seconds, so that whole tables of losses can be compared, with
several seeds each. What is kept is the pooled output of the pretrained backbone for the photo as
an evaluation shows it: no augmentation, nothing of it is learned.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hgld.artifacts import atomic_path, hash_file
from hgld.config import TrainOptions
from hgld.model import build_image_model
from hgld.model.model_folder import ImageConfig
from hgld.model.transforms import evaluation_transform
from hgld.shards.load import ImageLoader
from hgld.tasks import track
from hgld.train.data import TrainingData
from hgld.train.whitening import pca_whitening

__all__ = ["BACKBONE", "DIM", "Photos", "read_split", "show", "split_classes"]

BACKBONE = TrainOptions(backbone="offline:efficientnet-lite0", image_size=224)
TOGETHER = 16
DIM = 128


@dataclass(frozen=True)
class Photos:
    """Photos as the frozen backbone sees them.

    Attributes:
        features: (N, F) pooled.
        labels: (N, L), coarse to fine, the classes of each level numbered 0, 1, 2 ...
        key: one word for all that decides them.
    """

    features: Tensor
    labels: np.ndarray
    key: str

    @property
    def class_labels(self) -> np.ndarray:
        """(C, L) labels of each finest class."""
        _, first = np.unique(self.labels[:, -1], return_index=True)
        return np.asarray(self.labels[first])

    @cached_property
    def directions(self) -> dict[str, Tensor]:
        """A head's first weights: the directions in which normed features vary most (PCA)."""
        weight, bias = pca_whitening(F.layer_norm(self.features, self.features.shape[1:]), DIM)
        scale = weight.norm(dim=1)  # whitening divides by the deviations, which is not wanted here
        return {"head.weight": weight / scale[:, None], "head.bias": bias / scale}

    def of(self, rows: np.ndarray, name: str) -> Self:
        """Some of the photos, their classes numbered anew."""
        columns = self.labels[rows].T
        labels = np.column_stack([np.unique(c, return_inverse=True)[1] for c in columns])
        return type(self)(self.features[torch.from_numpy(rows)], labels, f"{self.key} {name}")


def read_split(shards: Path, split: str, kept: Path) -> Photos:
    """The photos of a split; their features are found where they are not yet kept.

    Args:
        shards: folder of the shards.
        split: train or evaluation.
        kept: folder for the features.
    """
    options = BACKBONE.model_copy(update={"split": split})
    data = TrainingData.read(shards, options)
    facts = (hash_file(shards / "manifest.json"), split, BACKBONE.backbone, BACKBONE.image_size)
    key = sha256(repr(facts).encode()).hexdigest()[:16]
    path = kept / f"{split}-{key}.npy"
    if not path.is_file():
        kept.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.save(file, _find(data, options).numpy())
    return Photos(torch.from_numpy(np.load(path)), data.labels, key)


def split_classes(photos: Photos, share: float, seed: int) -> tuple[Photos, Photos]:
    """Photos to learn from and, of other landmarks, to choose rates by.

    Args:
        photos: of the training landmarks.
        share: of the landmarks that are held out.
        seed: draws them.
    """
    classes = len(photos.class_labels)
    held = np.random.default_rng(seed).permutation(classes)[: round(share * classes)]
    out = np.isin(photos.labels[:, -1], held)
    return (
        photos.of(np.flatnonzero(~out), f"fit {seed}"),
        photos.of(np.flatnonzero(out), f"held out {seed}"),
    )


def _find(data: TrainingData, options: TrainOptions) -> Tensor:
    model = build_image_model(options, head=False).eval()
    return show(data, model.config, model.head_input)


@torch.inference_mode()
def show(data: TrainingData, config: ImageConfig, network: Callable[[Tensor], Tensor]) -> Tensor:
    """What a network makes of every photo, as an evaluation shows it: (N, D)."""
    transform = evaluation_transform(config)
    loader = ImageLoader(data.folder, data.rows, transform, batch_size=TOGETHER)
    batches = track(loader, "Photos", len(loader))
    return torch.cat([network(batch) for batch, _, _ in batches])
