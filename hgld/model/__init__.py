"""Text and image encoders, and where their weights come from.

Names are loaded when they are used, so that a text encoder does not load timm, nor an image
encoder open_clip. Both import torchvision; this package is the only one that imports the three, so
the import hook for torchvision is installed here and not by ``import hgld``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hgld.model.torchvision_operators import install_hook

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

_HOME = {
    "ImageModel": "image",
    "TextEncoder": "text",
    "build_image_model": "image",
    "load_model": "image",
    "load_text_encoder": "text",
    "save_model": "image",
}

install_hook()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
