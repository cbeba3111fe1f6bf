import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from hgld.artifacts import hash_file
from hgld.config import TrainOptions
from hgld.errors import InvalidData
from hgld.model import ImageModel, build_image_model, load_model, save_model
from hgld.model.transforms import evaluation_transform, training_transform

SMALL = TrainOptions(backbone="test_resnet", pretrained=False, dim=8, image_size=64)


@pytest.fixture(scope="module")
def model() -> ImageModel:
    return build_image_model(SMALL).eval()


def photos(count: int = 2, size: int = 64) -> torch.Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(1))


def test_an_embedding_is_the_head_of_the_normalised_pooled_features(model: ImageModel) -> None:
    with torch.inference_mode():
        pooled = model.backbone(photos()).double()
        found = model(photos()).double()
    assert model.head is not None
    spread = pooled.var(1, correction=0, keepdim=True)
    normal = (pooled - pooled.mean(1, keepdim=True)) / (spread + 1e-5).sqrt()
    head = normal @ model.head.weight.double().T + model.head.bias.double()
    torch.testing.assert_close(found, head / head.norm(dim=1, keepdim=True), atol=1e-5, rtol=0)
    assert found.shape == (2, model.dim) == (2, 8)


def test_without_a_head_the_pooled_features_are_the_embedding() -> None:
    model = build_image_model(SMALL, head=False).eval()
    with torch.inference_mode():
        pooled = model.backbone(photos())
        expected = pooled / pooled.norm(dim=1, keepdim=True)
        torch.testing.assert_close(model(photos()), expected)
    assert model.dim == pooled.shape[1]


def test_the_seed_decides_every_random_weight() -> None:
    first, again = build_image_model(SMALL), build_image_model(SMALL)
    other = build_image_model(SMALL.model_copy(update={"seed": 1}))
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
    assert not torch.equal(first.head.weight, other.head.weight)


def test_building_a_model_leaves_the_random_numbers_of_others_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    build_image_model(SMALL)
    assert torch.equal(torch.rand(1), expected)


def test_pretrained_batch_norm_is_frozen_in_training() -> None:
    options = TrainOptions(backbone="offline:efficientnet-lite0", image_size=64)
    model = build_image_model(options).train()
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    before = norms[0].running_mean.clone()
    model(photos())
    assert len(norms) == 49 and not any(norm.training for norm in norms)
    assert torch.equal(norms[0].running_mean, before)


def test_batch_norm_that_starts_at_random_learns_its_statistics() -> None:
    model = build_image_model(SMALL).train()
    norm = next(m for m in model.modules() if isinstance(m, nn.BatchNorm2d))
    before = norm.running_mean.clone()
    model(photos())
    assert not torch.equal(norm.running_mean, before)


def test_a_vision_transformer_takes_the_image_size_of_the_options() -> None:
    options = SMALL.model_copy(update={"backbone": "test_vit", "image_size": 96})
    model = build_image_model(options).eval()
    assert model(photos(1, 96)).shape == (1, 8)


def test_a_saved_model_loads_back_with_one_call(model: ImageModel, tmp_path: Path) -> None:
    save_model(model, tmp_path, {"loss": "HAPPIER", "steps": 3})
    loaded = load_model(tmp_path)
    with torch.inference_mode():
        assert torch.equal(loaded(photos()), model(photos()))
    assert loaded.config == model.config and not loaded.training
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["loss"] == "HAPPIER"
    assert config["sha256"] == hash_file(tmp_path / "model.safetensors")


def test_the_same_model_is_saved_in_the_same_bytes(model: ImageModel, tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_model(build_image_model(SMALL), tmp_path / name, {})
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def without_seal(folder: Path) -> dict[str, object]:
    """The facts of a model, as an earlier version or a person writes them."""
    config = json.loads((folder / "config.json").read_text())
    return {name: fact for name, fact in config.items() if name not in ("seal", "format")}


def test_a_changed_fact_or_weight_is_not_loaded(model: ImageModel, tmp_path: Path) -> None:
    save_model(model, tmp_path, {"loss": "HAPPIER"})
    for file, says in (("config.json", "was changed"), ("model.safetensors", "is not the file")):
        data = (tmp_path / file).read_bytes()
        (tmp_path / file).write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        with pytest.raises(InvalidData, match=rf"{file}: {says}"):
            load_model(tmp_path)
        (tmp_path / file).write_bytes(data)


def test_weights_of_another_architecture_are_one_clear_line(
    model: ImageModel, tmp_path: Path
) -> None:
    save_model(model, tmp_path, {})
    config = without_seal(tmp_path)
    config["architecture"] = "test_vit"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidData, match=r"another architecture than config.json says \(test_vit"):
        load_model(tmp_path)


def test_an_architecture_that_timm_lacks_is_one_clear_line(
    model: ImageModel, tmp_path: Path
) -> None:
    save_model(model, tmp_path, {})
    config = {**without_seal(tmp_path), "architecture": "resnet5"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidData, match=r"timm cannot build resnet5: .*; pip install --upgrade"):
        load_model(tmp_path)


def test_a_head_of_another_size_is_named_with_both_shapes(
    model: ImageModel, tmp_path: Path
) -> None:
    save_model(model, tmp_path, {})
    config = without_seal(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "dim": 16}))
    with pytest.raises(InvalidData, match=r"head\.bias: expected \(16,\), found \(8,\)"):
        load_model(tmp_path)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_damaged_or_missing_file_is_named(model: ImageModel, tmp_path: Path, file: str) -> None:
    save_model(model, tmp_path, {})
    (tmp_path / file).write_text("{}")
    with pytest.raises(InvalidData, match=file):
        load_model(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(InvalidData, match=file):
        load_model(tmp_path)


@pytest.mark.parametrize("freeze", [True, False])
def test_batch_norm_is_frozen_where_the_options_say_so(freeze: bool) -> None:
    options = SMALL.model_copy(update={"freeze_batch_norm": freeze})
    model = build_image_model(options).train()
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert norms and all(norm.training != freeze for norm in norms)


@pytest.mark.parametrize("norm", ["l2", "none"])
def test_the_head_gets_features_normed_as_the_options_say(norm: str) -> None:
    model = build_image_model(SMALL.model_copy(update={"head_norm": norm})).eval()
    with torch.inference_mode():
        pooled = model.backbone(photos())
        given = pooled / pooled.norm(dim=1, keepdim=True) if norm == "l2" else pooled
        expected = given @ model.head.weight.T + model.head.bias
        found = model(photos())
    torch.testing.assert_close(found, expected / expected.norm(dim=1, keepdim=True))


def test_a_model_saved_before_an_option_came_loads_as_it_was(model, tmp_path: Path) -> None:
    save_model(model, tmp_path, {})
    config = without_seal(tmp_path)
    for name in ("pooling", "head_norm", "eval_resize", "eval_crop"):
        del config[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_model(tmp_path).config == model.config


def test_a_photo_is_evaluated_whole(model: ImageModel) -> None:
    """Left half black, right half white: both are there, scaled by mean 0.5 and std 0.5."""
    config = model.config.__class__(**{**vars(model.config), "mean": (0.5,) * 3, "std": (0.5,) * 3})
    photo = Image.fromarray(np.repeat(np.array([[0] * 100 + [255] * 100], np.uint8), 60, axis=0))
    found = evaluation_transform(config)(photo)  # grey becomes RGB
    assert found.shape == (3, 64, 64) and found.dtype == torch.float32
    assert torch.all(found[:, :, :28] == -1) and torch.all(found[:, :, -28:] == 1)


def test_augmentation_follows_the_random_seed(model: ImageModel) -> None:
    photo = Image.fromarray(
        np.arange(64 * 64 * 3, dtype=np.uint32).astype(np.uint8).reshape(64, 64, 3)
    )
    augment = training_transform(model.config)
    views = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        views.append(augment(photo))
    assert torch.equal(views[0], views[1]) and not torch.equal(views[0], views[2])
    assert views[0].shape == (3, 64, 64)
