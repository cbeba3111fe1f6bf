from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hgld.config import RunOptions, SourceOptions, StageContext
from hgld.errors import UsageError
from hgld.model import build_image_model, load_model
from hgld.model.transforms import evaluation_transform
from hgld.shards.read import ShardImages
from hgld.train.data import TrainingData
from hgld.train.preconditions import check_training
from hgld.train.whitening import pca_whitening, whiten_head
from tests.made_shards import small_options

WHITE = {"head_init": "pca_whitening", "head_norm": "l2", "dim": 4}


def test_whitened_features_vary_alike_and_apart_from_each_other() -> None:
    random = torch.Generator().manual_seed(0)
    features = torch.randn(200, 6, generator=random) @ torch.randn(6, 6, generator=random) + 3
    weight, bias = pca_whitening(features, 4)
    white = features.double() @ weight.T + bias
    torch.testing.assert_close(white.mean(0), torch.zeros(4).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(white.T.cov(), torch.eye(4).double(), atol=1e-9, rtol=0)


def test_the_directions_are_those_of_largest_variance_with_fixed_signs() -> None:
    axes = torch.tensor([[5.0, 0.0, 0.0], [0.0, 0.0, -2.0], [0.0, 1.0, 0.0]])
    features = torch.cat([axes, -axes])
    weight, _ = pca_whitening(features, 2)
    spread = [(2 * 25 / 5) ** 0.5, (2 * 4 / 5) ** 0.5]  # two points of six, over n - 1
    expected = torch.tensor([[1 / spread[0], 0, 0], [0, 0, 1 / spread[1]]]).double()
    torch.testing.assert_close(weight, expected)


def test_more_dimensions_than_the_features_vary_in_are_refused() -> None:
    flat = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)) @ torch.ones(2, 5)
    with pytest.raises(UsageError, match=r"50 images vary in 1 directions, but train\.dim is 3"):
        pca_whitening(flat, 3)


@pytest.mark.parametrize(
    ("images", "more"), [(4, "train on more images"), (90, r"raise train\.head_init_images")]
)
def test_too_few_images_are_refused_before_anything_is_exported(images: int, more: str) -> None:
    paths = [f'{{"group": "{i % 2}", "species": "{i}"}}' for i in range(2)]
    hierarchy = pd.DataFrame({"split": "train", "landmark_id": [0, 1], "path": paths})
    table = pd.DataFrame({"split": "train", "landmark_id": np.arange(images) % 2})
    context = StageContext("2026-01-01", Path(), SourceOptions(), Path())
    shape = {"classes_per_batch": 2, "images_per_class": 2, "runs": {"run": RunOptions(steps=1)}}
    options = small_options(**{**WHITE, **shape, "head_init_images": 4})
    with pytest.raises(
        UsageError, match=rf"4 images vary in 3 directions at most, .*; lower it, or {more}"
    ):
        check_training(table, hierarchy, options=options, context=context)
    enough = options.model_copy(update={"dim": 3})
    check_training(table, hierarchy, options=enough, context=context)


def test_the_heads_output_on_training_images_is_white(shards) -> None:
    options = small_options(**WHITE)
    data = TrainingData.read(shards, options)
    model = build_image_model(options)
    whiten_head(model, data, options)
    images = ShardImages(data.folder, data.images, evaluation_transform(model.config))
    batch = torch.stack([images[i][0] for i in range(len(images))])
    with torch.inference_mode():
        white = model.eval().head(model.head_input(batch)).double()
    assert white.mean(0).abs().max() < 1e-3
    torch.testing.assert_close(white.T.cov(), torch.eye(4).double(), atol=1e-2, rtol=0)


def test_training_starts_from_the_whitened_head(train) -> None:
    run = RunOptions(steps=1, lr=1e-12, head_lr=1e-12)
    head = load_model(train({"run": run}, **WHITE) / "run").head
    again = load_model(train({"run": run}, **WHITE, seed=1) / "run").head
    random = build_image_model(small_options(**WHITE)).head
    assert (head.weight - random.weight).abs().max() > 1
    assert head.weight.shape == again.weight.shape == (4, 96)
