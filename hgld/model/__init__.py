"""Text and image encoders, and where their weights come from.

Names are loaded when they are used, so that a text encoder does not load timm, nor an image
encoder open_clip.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
