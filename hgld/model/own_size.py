"""Embed photos at their own size and at several scales, as landmark retrieval does.

Radenovic et al. ("Fine-tuning CNN Image Retrieval with No Human Annotation", 2019): the longer side
is at most 1024 pixels, no photo is enlarged, distorted or cropped, and the unit vectors of several
scales are averaged. Photos of different sizes form no batch, so that each is embedded alone.
"""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import v2

from hgld.images import WHOLE_SIDE
from hgld.model.model_folder import ImageConfig
from hgld.model.transforms import ImageTransform, to_numbers

__all__ = ["MultiScale", "own_size_transform"]


class MultiScale(nn.Module):
    """Mean over scales of a network's unit vectors, as a unit vector.

    Args:
        network: (B, 3, H, W) of any H and W -> (B, D).
        scales: factors of H and W; the photo is resized bilinearly.

    Example:
        >>> network = MultiScale(nn.Flatten(), [1.0])
        >>> network(torch.tensor([[[[3.0, 4.0]]]])).tolist()
        [[0.6000000238418579, 0.800000011920929]]
    """

    def __init__(self, network: nn.Module, scales: Sequence[float] = (1.0,)) -> None:
        super().__init__()
        self.network, self.scales = network, tuple(scales)

    def forward(self, photos: Tensor) -> Tensor:
        """Embed (B, 3, H, W) photos as (B, D) unit vectors, float32."""
        vectors = [F.normalize(self.network(self._resize(photos, s)).float()) for s in self.scales]
        return F.normalize(torch.stack(vectors).mean(0))

    def _resize(self, photos: Tensor, scale: float) -> Tensor:
        if scale == 1:
            return photos
        return F.interpolate(photos, scale_factor=scale, mode="bilinear", align_corners=False)


def own_size_transform(config: ImageConfig, max_side: int) -> ImageTransform:
    """Shrink a photo so that its longer side is at most ``max_side``; a smaller one is kept.

    A part that was cut from a photo (``WHOLE_SIDE``) is shrunk by the factor of its photo.
    """
    transform: ImageTransform = v2.Compose(
        [v2.RGB(), partial(_shrink, max_side=max_side), v2.PILToTensor(), *to_numbers(config)]
    )
    return transform


def _shrink(image: Image.Image, max_side: int) -> Image.Image:
    longer = max(image.size)
    side = max_side * longer / image.info.get(WHOLE_SIDE, longer)
    shrunk = image.copy()  # thumbnail works in place
    shrunk.thumbnail((side, side), Image.Resampling.LANCZOS)
    return shrunk
