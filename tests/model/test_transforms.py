from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import TypeAdapter

from hgld.config import AugmentationOptions, TrainOptions
from hgld.model import ImageModel, build_image_model
from hgld.model.image import normalise
from hgld.model.model_folder import ImageConfig
from hgld.model.transforms import evaluation_transform, training_transform

CONFIG = ImageConfig("x", "x", 8, 64, (0.5,) * 3, (0.5,) * 3, "bilinear", True, "")


def ramp(width: int, height: int) -> Image.Image:
    """Grey that rises from 0 to 255 from left to right."""
    row = np.linspace(0, 255, width).round().astype(np.uint8)
    return Image.fromarray(np.repeat(row[None], height, axis=0))


def view(photo: Image.Image, options: AugmentationOptions) -> torch.Tensor:
    """A photo as training sees it."""
    pixels = training_transform(CONFIG, options)(photo)
    assert pixels.dtype == torch.uint8
    return normalise(pixels[None], CONFIG)[0]


def span(picture: torch.Tensor) -> tuple[float, float]:
    """Greys of the outermost columns, 0..1."""
    columns = (picture.mean((0, 1)) + 1) / 2
    return float(columns[0]), float(columns[-1])


def test_the_whole_photo_unless_told_otherwise() -> None:
    left, right = span(evaluation_transform(CONFIG)(ramp(200, 100)))
    assert left < 0.02 and right > 0.98


@pytest.mark.parametrize(
    ("resize", "size", "columns"),
    [
        ((256, 256), (400, 100), (16 / 256, 1 - 16 / 256)),  # as of SOP
        (256, (512, 256), (144 / 512, 368 / 512)),  # the short side, as of iNaturalist
    ],
)
def test_the_centre_of_a_resized_photo_is_evaluated(
    resize: int | tuple[int, int], size: tuple[int, int], columns: tuple[float, float]
) -> None:
    config = replace(CONFIG, eval_resize=resize, eval_crop=224)
    picture = evaluation_transform(config)(ramp(*size))
    assert picture.shape == (3, 224, 224)
    assert span(picture) == pytest.approx(columns, abs=0.01)


def test_a_photo_may_be_shown_whole_and_unflipped_in_training() -> None:
    plain = AugmentationOptions(resize=(64, 64), crop=False, flip=False)
    photo = ramp(200, 100)
    expected = evaluation_transform(CONFIG)(photo)
    for options in (plain, AugmentationOptions(crop=False, flip=False)):
        assert torch.equal(view(photo, options), expected)


def test_the_crop_keeps_to_its_share_of_the_area() -> None:
    most = AugmentationOptions(crop_scale=(0.25, 0.25), crop_ratio=(1.0, 1.0), flip=False)
    for seed in range(5):
        torch.manual_seed(seed)
        left, right = span(view(ramp(128, 128), most))
        assert right - left == pytest.approx(0.5, abs=0.02)


def test_flips_are_half_of_the_views() -> None:
    flips = AugmentationOptions(resize=(64, 64), crop=False)
    torch.manual_seed(0)
    found = [np.subtract(*span(view(ramp(64, 64), flips))) > 0 for _ in range(200)]
    assert 70 < sum(found) < 130


def test_a_resize_before_the_crop_takes_detail_away() -> None:
    """Noise of one pixel is gone after a resize to 8 pixels."""
    noise = np.random.default_rng(0).integers(0, 256, (256, 256), np.uint8)
    coarse, fine = (
        view(Image.fromarray(noise), AugmentationOptions(resize=resize)).std()
        for resize in (8, 256)
    )
    assert coarse < 0.5 * fine


def test_a_checkpoint_carries_how_it_is_evaluated() -> None:
    options = TrainOptions(
        backbone="test_resnet", pretrained=False, image_size=64, eval_resize=72, eval_crop=64
    )
    model: ImageModel = build_image_model(options)
    assert (model.config.eval_resize, model.config.eval_crop) == (72, 64)
    saved = {**vars(model.config), "eval_resize": [72, 80]}
    assert TypeAdapter(ImageConfig).validate_python(saved).eval_resize == (72, 80)
