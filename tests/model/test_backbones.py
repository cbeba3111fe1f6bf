import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter

import pandas as pd
import pytest
import timm
import torch
import torch.nn.functional as F
from PIL import Image
from timm.data import create_transform, resolve_data_config
from torch import Tensor

from hgld.artifacts import hash_file
from hgld.config import TrainOptions
from hgld.errors import MissingWeights, UsageError
from hgld.model import build_image_model
from hgld.model.backbones import (
    create_backbone,
    find_backbone,
    name_lite0_weights,
    pretrained_view,
)
from hgld.model.model_folder import ImageConfig
from hgld.model.transforms import evaluation_transform

LITE0 = TrainOptions(backbone="offline:efficientnet-lite0")
STAGES = [  # kernel, stride, expansion, channels, blocks (Tan & Le 2019, Table 1, without SE)
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
]


@pytest.fixture(scope="module")
def package_weights() -> dict[str, Tensor]:
    _, file = find_backbone(LITE0)
    assert file is not None
    weights: dict[str, Tensor] = torch.load(file, weights_only=True)
    return weights


@pytest.fixture(scope="module")
def classifier(package_weights: dict[str, Tensor]) -> torch.nn.Module:
    model = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    model.load_state_dict(name_lite0_weights(package_weights))  # strict: every name, once
    return model.eval()


def lite0_logits(images: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """EfficientNet-Lite0 in plain functions, by the package's own names."""

    def conv(x: Tensor, name: str, stride: int = 1, groups: int = 1) -> Tensor:
        kernel = weights[f"{name}.weight"]
        size, side = kernel.shape[-1], x.shape[-1]
        missing = max((-(-side // stride) - 1) * stride + size - side, 0)  # "same", as TensorFlow
        before, after = missing // 2, missing - missing // 2
        return F.conv2d(F.pad(x, [before, after] * 2), kernel, stride=stride, groups=groups)

    def norm(x: Tensor, name: str) -> Tensor:
        kinds = ("running_mean", "running_var", "weight", "bias")
        return F.batch_norm(x, *(weights[f"{name}.{kind}"] for kind in kinds), eps=1e-3)

    x = F.relu6(norm(conv(images, "_conv_stem", 2), "_bn0"))
    number = 0
    for kernel, stride, expansion, channels, blocks in STAGES:
        for i in range(blocks):
            block, entry = f"_blocks.{number}", x
            if expansion > 1:
                x = F.relu6(norm(conv(x, f"{block}._expand_conv"), f"{block}._bn0"))
            assert weights[f"{block}._depthwise_conv.weight"].shape[-1] == kernel
            x = conv(x, f"{block}._depthwise_conv", stride if i == 0 else 1, groups=x.shape[1])
            x = F.relu6(norm(x, f"{block}._bn1"))
            x = norm(conv(x, f"{block}._project_conv"), f"{block}._bn2")
            assert x.shape[1] == channels
            x = x + entry if i else x
            number += 1
    x = F.relu6(norm(conv(x, "_conv_head"), "_bn1")).mean((2, 3))
    return F.linear(x, weights["_fc.weight"], weights["_fc.bias"])


def test_lite0_in_timm_computes_what_the_packages_own_layout_computes(
    package_weights: dict[str, Tensor], classifier: torch.nn.Module
) -> None:
    images = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.inference_mode():
        expected = lite0_logits(images, package_weights)
        torch.testing.assert_close(classifier(images), expected, atol=1e-4, rtol=1e-4)
    assert expected.std() > 0.1


def test_the_pooled_features_are_those_below_the_classifier(
    package_weights: dict[str, Tensor], classifier: torch.nn.Module
) -> None:
    model = build_image_model(LITE0, head=False).eval()
    images = torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        features = classifier.forward_head(classifier.forward_features(images), pre_logits=True)
        torch.testing.assert_close(model(images), F.normalize(features, dim=1))


def test_lite0_is_normalised_as_it_was_trained() -> None:
    config = build_image_model(LITE0).config
    assert config.mean == config.std == (0.5, 0.5, 0.5)
    _, file = find_backbone(LITE0)
    assert file is not None and config.pretrained_sha256 == hash_file(file)


@pytest.mark.slow
@pytest.mark.real
def test_lite0_sees_lighthouses_in_photos_of_lighthouses(
    real_data: Path, classifier: torch.nn.Module
) -> None:
    folder = real_data / "gldv2-washington"
    names = pd.read_csv(folder / "derived_train_label_to_category.csv")
    lighthouses = names[names["category"].str.endswith("_Lighthouse")]["landmark_id"]
    images = pd.read_csv(folder / "derived_train.csv", dtype={"id": str})
    ids = sorted(images[images["landmark_id"].isin(lighthouses)]["id"])[:40]
    transform = evaluation_transform(build_image_model(LITE0).config)
    with tarfile.open(folder / "images_wa_000.tar") as tar:
        data = [tar.extractfile(f"{i[0]}/{i[1]}/{i[2]}/{i}.jpg").read() for i in ids]
    batch = torch.stack([transform(Image.open(io.BytesIO(photo))) for photo in data])
    with torch.inference_mode():
        best = classifier(batch).topk(5).indices  # (40, 5)
    beacon = 437  # ImageNet: beacon, lighthouse; by chance 5 in 1,000
    assert len(ids) == 40 and (best == beacon).any(1).float().mean() > 0.5


def test_weights_are_loaded_from_a_file(tmp_path: Path) -> None:
    torch.manual_seed(3)
    source = timm.create_model("test_resnet", pretrained=False)
    torch.save(source.state_dict(), tmp_path / "weights.pth")
    options = TrainOptions(backbone=f"test_resnet/{tmp_path / 'weights.pth'}")
    model = build_image_model(options)
    for name, value in model.backbone.state_dict().items():
        assert torch.equal(value, source.state_dict()[name])
    assert model.config.pretrained_sha256 == hash_file(tmp_path / "weights.pth")


def test_weights_of_another_backbone_are_refused(tmp_path: Path) -> None:
    torch.save(timm.create_model("test_vit").state_dict(), tmp_path / "weights.pth")
    with pytest.raises(MissingWeights, match="cannot be loaded as weights of test_resnet"):
        create_backbone("test_resnet", 64, tmp_path / "weights.pth")


def test_photos_are_prepared_as_for_the_pretrained_model(tmp_path: Path) -> None:
    """Each way of timm's pretrained models to resize and crop, on a photo that is no square."""
    file = tmp_path / "weights"
    file.touch()
    photo = Image.radial_gradient("L").convert("RGB").resize((90, 61))
    configs = {name: timm.get_pretrained_cfg(name) for name in timm.list_pretrained()}
    ways = {
        (c.input_size, c.crop_pct, c.crop_mode): (name, c)
        for name, c in configs.items()
        if c.crop_mode != "border" and c.input_size[1] == c.input_size[2] <= 384
    }
    assert {("squash", 0.95), ("squash", 1.0), ("center", 0.875)} <= {w[:0:-1] for w in ways}
    for name, config in ways.values():
        view = pretrained_view(f"{name}/{file}")
        own = evaluation_transform(config_of(view, config))
        theirs = create_transform(**resolve_data_config(pretrained_cfg=config.to_dict()))
        torch.testing.assert_close(own(photo), theirs(photo), msg=name)


def config_of(view: TrainOptions, timms: timm.models.PretrainedCfg) -> ImageConfig:
    return ImageConfig(
        backbone=view.backbone,
        architecture="",
        dim=None,
        image_size=view.image_size,
        mean=timms.mean,
        std=timms.std,
        interpolation=timms.interpolation,
        freeze_batch_norm=False,
        pretrained_sha256="",
        eval_resize=view.eval_resize,
        eval_crop=view.eval_crop,
    )


def test_a_model_of_photos_with_a_border_is_refused(tmp_path: Path) -> None:
    """A newer version of timm may have other models of this kind."""
    configs = {name: timm.get_pretrained_cfg(name) for name in timm.list_pretrained()}
    name = next(n for n, config in configs.items() if config.crop_mode == "border")
    (tmp_path / "weights").touch()
    with pytest.raises(UsageError, match=rf"timm shows {name} photos of .* with a border or"):
        pretrained_view(f"{name}/{tmp_path}/weights")


def test_weights_out_of_reach_fail_at_once_and_name_the_way_out() -> None:
    start = perf_counter()
    with pytest.raises(MissingWeights, match=r'train\.backbone = "offline:efficientnet-lite0"'):
        find_backbone(TrainOptions(backbone="resnet50"))
    assert perf_counter() - start < 5


@pytest.mark.parametrize(
    ("backbone", "error", "found"),
    [
        ("resnet5", UsageError, "timm has no model 'resnet5'; did you mean 'resnet50'"),
        ("offline:resnet50", UsageError, "offline there is offline:efficientnet-lite0"),
        ("resnet50/nowhere.pth", MissingWeights, r"nowhere\.pth is no file; expected MODEL/FILE"),
        ("test_mambaout", MissingWeights, "timm has no pretrained weights for test_mambaout"),
    ],
)
def test_a_backbone_that_does_not_exist_is_named(
    backbone: str, error: type[Exception], found: str
) -> None:
    with pytest.raises(error, match=found):
        find_backbone(TrainOptions(backbone=backbone))
