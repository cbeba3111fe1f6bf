"""Text and image encoders, and the lookup of their weights.

Names are loaded on first use, so that a text encoder does not load timm, nor an image encoder
open_clip. Both import torchvision, so the import hook for torchvision is installed here and not by
``import hgld``.
"""

from typing import TYPE_CHECKING

from hgld.lazy import lazy_names
from hgld.torchvision_operators import install_hook

if TYPE_CHECKING:
    from hgld.model.image import ImageModel, build_image_model, load_model, save_model
    from hgld.model.text import TextEncoder, load_text_encoder

__all__ = [
    "ImageModel",
    "TextEncoder",
    "build_image_model",
    "load_model",
    "load_text_encoder",
    "save_model",
]


install_hook()

__getattr__ = lazy_names(
    __name__,
    image="ImageModel build_image_model load_model save_model",
    text="TextEncoder load_text_encoder",
)
