"""Convert photos to tensors: the papers' augmentations, and the transforms for evaluation.

The training transform returns bytes: workers pass on a quarter of the data that floats would be,
and the model normalises them on its device.
"""

from collections.abc import Callable
from functools import partial

import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import InterpolationMode, v2

from hgld.config import AugmentationOptions
from hgld.images import WHOLE_SIDE
from hgld.model.model_folder import ImageConfig

ImageTransform = Callable[[Image.Image], Tensor]
AUTHORS = AugmentationOptions()


def training_transform(
    config: ImageConfig, augmentation: AugmentationOptions = AUTHORS
) -> ImageTransform:
    """Resize (or not), a random crop (or the whole), a flip (or none), in this order.

    The default is a crop of 0.16 to 1 of the area and a flip, as in the authors' recipes. The
    result is bytes (3, H, W), which the model normalises.
    """
    side, mode = config.image_size, InterpolationMode(config.interpolation)
    steps: list[nn.Module] = []
    if augmentation.resize is not None:
        steps.append(v2.Resize(augmentation.resize, mode))
    if augmentation.crop:
        scale, ratio = augmentation.crop_scale, augmentation.crop_ratio
        steps.append(v2.RandomResizedCrop(side, scale=scale, ratio=ratio, interpolation=mode))
    # All images of a batch must have the same shape.
    elif augmentation.resize != (side, side):
        steps.append(v2.Resize((side, side), mode))
    if augmentation.flip:
        steps.append(v2.RandomHorizontalFlip())
    transform: ImageTransform = v2.Compose([*steps, v2.RGB(), v2.PILToTensor()])
    return transform


def evaluation_transform(config: ImageConfig) -> ImageTransform:
    """The whole photo squeezed into a square (H-GLDv2), unless the config sets another size."""
    size = config.eval_resize or (config.image_size, config.image_size)
    steps: list[nn.Module] = [v2.Resize(size, InterpolationMode(config.interpolation))]
    if config.eval_crop is not None:
        steps.append(v2.CenterCrop(config.eval_crop))
    return _to_numbers(config, *steps, v2.RGB())


def own_size_transform(config: ImageConfig, max_side: int) -> ImageTransform:
    """Shrink a photo so that its longer side is at most ``max_side``; a smaller one is kept.

    This is how landmarks are evaluated (Radenovic et al., "Fine-tuning CNN Image Retrieval with No
    Human Annotation", 2019): no photo is enlarged, distorted or cropped. Photos of different sizes
    form no batch, so that each is embedded alone.
    A part that was cut from a photo (``WHOLE_SIDE``) is shrunk by the factor of its photo.
    """
    return _to_numbers(config, v2.RGB(), partial(_shrink, max_side=max_side))


def _shrink(image: Image.Image, max_side: int) -> Image.Image:
    longer = max(image.size)
    side = max_side * longer / image.info.get(WHOLE_SIDE, longer)
    shrunk = image.copy()  # thumbnail works in place
    shrunk.thumbnail((side, side), Image.Resampling.LANCZOS)
    return shrunk


def _to_numbers(
    config: ImageConfig, *steps: Callable[[Image.Image], Image.Image]
) -> ImageTransform:
    """Return these steps, and those from a photo to the normalised floats that a model takes."""
    to_floats = v2.ToDtype(torch.float32, scale=True)
    scaled = v2.Normalize(list(config.mean), list(config.std))
    transform: ImageTransform = v2.Compose([*steps, v2.PILToTensor(), to_floats, scaled])
    return transform
