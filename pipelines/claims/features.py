"""Features of every photo from the frozen backbone, computed once and kept.

A head learns from these numbers in seconds, so that whole tables of losses can be compared, on
several folds with several seeds. They are the pooled output of the pretrained backbone for the
photo as an evaluation shows it, without augmentation.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from hgld.artifacts import atomic_path, hash_file
from hgld.config import TrainOptions
from hgld.model import build_image_model
from hgld.model.model_folder import ImageConfig
from hgld.model.transforms import evaluation_transform
from hgld.shards.image_table import ImageTable
from hgld.shards.index import labels_of, read_index, read_manifest
from hgld.shards.load import ImageLoader
from hgld.tasks import track
from hgld.train.data import TrainingData, number_levels
from hgld.train.whitening import pca_whitening

BACKBONE = TrainOptions(backbone="offline:efficientnet-lite0", image_size=224)
TOGETHER = 16
DIM = 128


@dataclass(frozen=True)
class Photos:
    """Photos as the frozen backbone sees them, or made samples.

    Attributes:
        features: (N, F) pooled.
        labels: (N, L), coarse to fine, the classes of each level numbered 0, 1, 2 ...
        key: one word for all that decides them.
    """

    features: Tensor
    labels: np.ndarray
    key: str

    @cached_property
    def directions(self) -> dict[str, Tensor]:
        """A head's first weights: the directions in which normed features vary most (PCA)."""
        weight, bias = pca_whitening(F.layer_norm(self.features, self.features.shape[1:]), DIM)
        scale = weight.norm(dim=1)  # whitening divides by the deviations, which is not wanted here
        return {"head.weight": weight / scale[:, None], "head.bias": bias / scale}

    def of(self, rows: np.ndarray, name: str) -> Self:
        """Some of the photos, their classes renumbered."""
        labels, _ = number_levels(self.labels[rows])
        return type(self)(self.features[torch.from_numpy(rows)], labels, f"{self.key} {name}")


def read_shards(shards: Path) -> TrainingData:
    """The photos of both splits, which the folds split again."""
    index = read_index(shards)
    parts = [index[index["split"] == split] for split in ("train", "evaluation")]
    rows, levels = pd.concat(parts, ignore_index=True), read_manifest(shards)["levels"]
    # Runs are numbered within a split.
    runs = [parts[0]["run"], parts[1]["run"] + parts[0]["run"].max() + 1]
    labels, class_labels = number_levels(labels_of(rows))
    images = replace(ImageTable.of_rows(rows), labels=labels, runs=np.concatenate(runs))
    return TrainingData(shards, shards, images, levels, class_labels)


def read_photos(shards: Path, kept: Path) -> Photos:
    """All photos of the shards; their features are computed if ``kept`` does not hold them."""
    facts = (hash_file(shards / "manifest.json"), BACKBONE.backbone, BACKBONE.image_size)
    key = sha256(repr(facts).encode()).hexdigest()[:16]
    path, data = kept / f"features-{key}.npy", read_shards(shards)
    if not path.is_file():
        model = build_image_model(BACKBONE, head=False).eval()
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.save(file, embed(data, model.config, model.head_input).numpy())
    return Photos(torch.from_numpy(np.load(path)), data.labels, key)


@torch.inference_mode()
def embed(data: TrainingData, config: ImageConfig, network: Callable[[Tensor], Tensor]) -> Tensor:
    """(N, D) output of a network for every photo as an evaluation shows it."""
    transform = evaluation_transform(config)
    loader = ImageLoader(data.folder, data.images, transform, batch_size=TOGETHER)
    batches = track(loader, "Photos", len(loader))
    return torch.cat([network(batch) for batch, _, _ in batches])
