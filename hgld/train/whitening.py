"""Initialise the head by PCA whitening, as in the recipe of H-GLDv2.

Whitened features of the pretrained backbone are already good embeddings: all directions have equal
variance, and the mean that all photos share is removed. Training starts there, not at random.
"""

from contextlib import closing

import numpy as np
import torch
from torch import Tensor

from hgld.config import TrainOptions
from hgld.errors import UsageError
from hgld.model import ImageModel
from hgld.model.transforms import evaluation_transform
from hgld.shards.damaged import DamagedImages
from hgld.shards.load import ImageLoader
from hgld.tasks import track
from hgld.train.data import TrainingData

BATCH = 64
LEAST_VARIANCE = 1e-10  # of the largest; below it whitening would amplify rounding noise


def pca_whitening(features: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Weight (dim, F) and bias (dim,) that make the covariance of features the identity.

    W = V / sqrt(var), b = -W mean, where V are the directions of largest variance, each with its
    largest entry positive, so that the sign is reproducible.

    Args:
        features: (N, F), more than ``dim`` of them.
        dim: directions kept.

    Raises:
        UsageError: the features vary in fewer directions.

    Example:
        >>> weight, bias = pca_whitening(torch.tensor([[0.0, 1.0], [4.0, 1.0]]).repeat(2, 1), 1)
        >>> [round(value, 3) for value in [*weight[0].tolist(), *bias.tolist()]]
        [0.433, 0.0, -0.866]
    """
    points = features.double()
    mean = points.mean(0)
    _, spread, directions = torch.linalg.svd(points - mean, full_matrices=False)
    variance = spread.square() / max(1, len(points) - 1)
    found = int((variance > LEAST_VARIANCE * variance.max()).sum())
    if found < dim:
        raise UsageError(
            f'train.head_init "pca_whitening": {len(points)} images vary in {found} directions, '
            f"but train.dim is {dim}; lower it, or raise train.head_init_images"
        )
    top = directions[:dim]  # (dim, F)
    largest = top.gather(1, top.abs().argmax(1, keepdim=True))
    weight = top * largest.sign() / variance[:dim, None].sqrt()
    return weight, -weight @ mean


def require_images(options: TrainOptions, images: int) -> None:
    """Refuse to whiten the head with too few images: N of them vary in N - 1 directions at most.

    Args:
        options: head_init, head_init_images and dim.
        images: of the split that is trained on.

    Raises:
        UsageError: there are too few.
    """
    count = min(options.head_init_images, images)
    if options.head_init == "pca_whitening" and count <= options.dim:
        more = "raise train.head_init_images" if count < images else "train on more images"
        raise UsageError(
            f'train.head_init "pca_whitening": {count:,} images vary in {count - 1:,} directions '
            f"at most, but train.dim is {options.dim}; lower it, or {more}"
        )


def whiten_head(
    model: ImageModel,
    data: TrainingData,
    options: TrainOptions,
    damaged: DamagedImages | None = None,
) -> None:
    """Set the head from features of some training images, with the evaluation's transform.

    Damaged images are left out and added to ``damaged``.

    Raises:
        InvalidData: more images are damaged than the budget allows.
        UsageError: there are too few images.
    """
    assert model.head is not None
    require_images(options, len(data.images))
    damaged = damaged or DamagedImages(options.undecodable_budget, data.name)
    weight, bias = pca_whitening(_features(model, data, options, damaged), options.dim)
    with torch.no_grad():
        model.head.weight.copy_(weight)
        model.head.bias.copy_(bias)


@torch.inference_mode()
def _features(
    model: ImageModel, data: TrainingData, options: TrainOptions, damaged: DamagedImages
) -> Tensor:
    """(N, F) input features of the head for images drawn at random."""
    count = min(options.head_init_images, len(data.images))
    rows = np.arange(len(data.images), dtype=np.int32)
    np.random.default_rng(options.seed).shuffle(rows)
    loader = ImageLoader(
        data.place,
        data.images,
        evaluation_transform(model.config),
        batch_size=BATCH,
        numbers=np.sort(rows[:count]),
        workers=options.workers,
        damaged=damaged,
    )
    device, training = next(model.parameters()).device, model.training
    model.eval()
    found = []
    with closing(iter(loader)) as batches:
        for images, _, _ in track(batches, "Whitening the head", len(loader)):
            found.append(model.head_input(images.to(device)).float().cpu())
    model.train(training)
    return torch.cat(found)
