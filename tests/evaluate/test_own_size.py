"""Photos are embedded at their own size, against a plain reading of the published evaluation."""

import math
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torchvision.transforms.functional import normalize, to_tensor

from hgld.config import ModelOptions
from hgld.errors import UsageError
from hgld.evaluate.models import Model, find_given
from hgld.images import WHOLE_SIDE
from hgld.model.image import MultiScale

SCALES = (1 / math.sqrt(2), 1.0, math.sqrt(2))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def model(folder: Path, architecture: str, **look: object) -> Model:
    torch.manual_seed(3)
    network = timm.create_model(architecture, num_classes=1000)
    save_file(network.state_dict(), folder / "weights.safetensors")
    source = f"timm:{architecture}/{folder}/weights.safetensors"
    options = ModelOptions.model_validate({"source": source, "mean": MEAN, "std": STD, **look})
    return find_given({"m": options})[0]


def embed(found: Model, photo: Image.Image) -> np.ndarray:
    encoder = found.load(torch.device("cpu"))
    with torch.inference_mode():
        return encoder.network(encoder.transform(photo)[None])[0].numpy()


def noise(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 255, (height, width, 3), np.uint8)
    return Image.fromarray(pixels)


def by_hand(architecture: str, folder: Path, photo: Image.Image, **sized: object) -> np.ndarray:
    """Each scale in turn, as the published evaluation does it."""
    network = timm.create_model(
        architecture, checkpoint_path=folder / "weights.safetensors", num_classes=1000, **sized
    )
    network.reset_classifier(0)
    batch = normalize(to_tensor(photo), MEAN, STD)[None]
    total = torch.zeros(network.num_features)
    with torch.inference_mode():
        for scale in SCALES:
            scaled = F.interpolate(batch, scale_factor=scale, mode="bilinear", align_corners=False)
            vector = network.eval()(batch if scale == 1 else scaled)[0]
            total += vector / vector.norm()
    return (total / total.norm()).numpy()


@pytest.mark.parametrize("side", [1, 3, 49])
def test_a_narrow_photo_keeps_a_pixel_at_a_small_scale(side: int) -> None:
    seen = []
    network = MultiScale(nn.Flatten(), [0.5 / side])
    network.network.register_forward_pre_hook(lambda _, given: seen.append(given[0].shape))
    network(torch.ones(1, 3, 400, side))
    assert seen == [(1, 3, 200 // side, 1)]


@pytest.mark.parametrize(
    ("architecture", "sized"),
    [("test_resnet", {}), ("test_vit", {"dynamic_img_size": True, "dynamic_img_pad": True})],
)
def test_three_scales_are_the_mean_of_their_unit_vectors(
    architecture: str, sized: dict[str, object], tmp_path: Path
) -> None:
    photo = noise(200, 120)
    found = embed(model(tmp_path, architecture, max_side=100, scales=SCALES), photo)
    photo.thumbnail((100, 100), Image.Resampling.LANCZOS)
    expected = by_hand(architecture, tmp_path, photo, **sized)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_photo_is_not_enlarged_and_a_part_shrinks_like_its_photo(tmp_path: Path) -> None:
    transform = model(tmp_path, "test_resnet", max_side=100).load(torch.device("cpu")).transform
    assert transform(noise(80, 60)).shape == (3, 60, 80)
    assert transform(noise(400, 200)).shape == (3, 50, 100)
    part = noise(400, 200).crop((0, 0, 200, 80))
    part.info[WHOLE_SIDE] = 400
    assert transform(part).shape == (3, 20, 50)
    assert part.size == (200, 80)


def test_a_model_of_one_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="takes photos of one size; remove max_side"):
        model(tmp_path, "swin_tiny_patch4_window7_224", max_side=64).load(torch.device("cpu"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"source": "run:one", "scales": [1.0]}, "scales needs max_side"),
        ({"source": "timm:resnet18", "max_side": 64, "eval_crop": 64}, "delete eval_crop"),
        ({"source": "run:one", "mean": MEAN}, "a trained model takes max_side and scales"),
        ({"source": "open_clip:a/b", "max_side": 64}, "max_side is not for open_clip"),
        ({"source": "run:one", "max_side": 64, "scales": []}, "at least 1 item"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ModelOptions.model_validate(options)


def test_given_embeddings_have_no_size(tmp_path: Path) -> None:
    np.save(tmp_path / "given.npy", np.eye(2, dtype=np.float32))
    options = ModelOptions(source=str(tmp_path / "given.npy"), max_side=64)
    with pytest.raises(UsageError, match="holds embeddings; delete max_side"):
        find_given({"m": options})
