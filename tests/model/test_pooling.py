import pytest
import torch
from torch import Tensor

from hgld.config import TrainOptions
from hgld.errors import UsageError
from hgld.model import build_image_model, load_model, save_model
from hgld.model.image import GeM, Pooling

SMALL = TrainOptions(backbone="test_resnet", pretrained=False, dim=8, image_size=64)


def features(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0)) - 0.2


@pytest.mark.parametrize(("how", "p"), [("avg", None), ("max", None), ("gem", 3)])
def test_a_map_is_pooled_by_the_formula_wherever_its_channels_stand(how: str, p) -> None:
    grid = features(2, 5, 3, 4)
    flat = grid.double().reshape(2, 5, 12)
    expected = flat.mean(2) if how == "avg" else flat.amax(2)
    if p:
        expected = (flat.clamp(min=1e-6) ** p).sum(2).div(12) ** (1 / p)
    for given in (grid, grid.permute(0, 2, 3, 1)):
        torch.testing.assert_close(Pooling(how, 5)(given).double(), expected)


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("pooling", ["default", "gem"])
@pytest.mark.parametrize("backbone", ["mobilenetv3_small_050", "lcnet_035"])
def test_a_layer_between_features_and_classifier_gives_the_width(
    backbone: str, pooling: str, head: bool
) -> None:
    options = SMALL.model_copy(update={"backbone": backbone, "pooling": pooling})
    model = build_image_model(options, head=head).eval()
    with torch.inference_mode():
        found = model(features(2, 3, 64, 64))
    assert found.shape == (2, model.dim) and model.features > model.backbone.num_features


def test_a_vit_is_not_built_for_photos_that_it_cannot_take() -> None:
    vit = SMALL.model_copy(update={"backbone": "vit_tiny_patch16_224", "eval_crop": 96})
    with pytest.raises(UsageError, match=r"photos of image_size \(64\) alone, and .* \(96\)"):
        build_image_model(vit)
    assert build_image_model(vit, any_size=True).config.eval_crop == 96


def test_the_class_token_is_no_place() -> None:
    tokens = features(2, 7, 5)
    torch.testing.assert_close(Pooling("avg", 5, 1)(tokens), tokens[:, 1:].mean(1))


@pytest.mark.parametrize("backbone", ["test_vit", "vit_small_patch16_dinov3"])
def test_token_pooling_is_the_normed_class_token(tmp_path, backbone: str) -> None:
    options = SMALL.model_copy(update={"backbone": backbone, "pooling": "token", "dim": 8})
    model = build_image_model(options).eval()
    save_model(model, tmp_path, {})
    photos, plain = features(2, 3, 64, 64), model.backbone
    with torch.inference_mode():
        tokens = plain.fc_norm(plain.forward_features(photos))  # as published: after the norm
        torch.testing.assert_close(model.pool(plain(photos)), tokens[:, 0])
        assert torch.equal(load_model(tmp_path)(photos), model(photos))
        assert model.pool(plain(photos)).std(1) == pytest.approx(1.0, abs=0.05)


def test_token_pooling_needs_a_class_token() -> None:
    with pytest.raises(UsageError, match="test_resnet has no class token"):
        build_image_model(SMALL.model_copy(update={"pooling": "token"}))


def test_gem_goes_from_the_average_to_the_maximum_and_learns_on_the_way() -> None:
    places = features(2, 6, 3).clamp(min=0.1)
    torch.testing.assert_close(GeM(1.0)(places), places.mean(1))
    torch.testing.assert_close(
        GeM(200.0)(places.double()), places.amax(1).double(), rtol=0.02, atol=0
    )
    pool, power = GeM().double(), torch.tensor(3.0, dtype=torch.float64, requires_grad=True)

    def of(x: Tensor, p: Tensor) -> Tensor:
        return torch.func.functional_call(pool, {"p": p}, (x,))

    assert torch.autograd.gradcheck(of, (places.double().requires_grad_(), power))


def test_gem_of_half_precision_keeps_its_range() -> None:
    large = torch.full((1, 4, 2), 200.0, dtype=torch.float16)  # 200^3 is beyond float16
    torch.testing.assert_close(GeM()(large), torch.full((1, 2), 200.0))


@pytest.mark.parametrize("backbone", ["test_resnet", "test_vit", "test_efficientnet"])
@pytest.mark.parametrize("pooling", ["avg", "max", "gem"])
def test_every_pooling_is_saved_and_loaded_with_the_model(tmp_path, backbone, pooling) -> None:
    options = SMALL.model_copy(update={"backbone": backbone, "pooling": pooling})
    model = build_image_model(options).eval()
    save_model(model, tmp_path, {})
    loaded, photos = load_model(tmp_path), features(2, 3, 64, 64)
    with torch.inference_mode():
        assert torch.equal(loaded(photos), model(photos))
        grid = model.backbone(photos)
        torch.testing.assert_close(
            Pooling(pooling, model.features, backbone == "test_vit")(grid), model.pool(grid)
        )
    assert any(name.endswith("gem.p") for name, _ in model.named_parameters()) == (pooling == "gem")


def test_average_pooling_is_what_a_resnet_does_itself() -> None:
    photos = features(2, 3, 64, 64)
    default, average = (build_image_model(SMALL.model_copy(update={"pooling": p})).eval()
                        for p in ("default", "avg"))  # fmt: skip
    with torch.inference_mode():
        torch.testing.assert_close(default(photos), average(photos))
