"""The part of ``config.json`` from which an image encoder is rebuilt, without its weights.

It includes the preparation of photos: a checkpoint is evaluated as it was trained for, even if the
pipeline has other options by then.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError

from hgld.config import Size

__all__ = ["ImageConfig"]


@dataclass(frozen=True)
class ImageConfig:
    """Everything needed to rebuild a model, except its weights.

    Attributes:
        backbone: as the pipeline names it.
        architecture: timm's name.
        dim: outputs of the linear head; None: no head.
        freeze_batch_norm: keep the pretrained statistics during training, as the papers do; a
            backbone with random weights has none to keep.
        pretrained_sha256: of the file of pretrained weights; empty: random.
        pooling: of the backbone's features: default (its own), avg, max or gem.
        head_norm: between pooling and head: layer_norm, l2 or none.
        eval_resize: short side, or (height, width); None: a square of image_size.
        eval_crop: side of the centre crop that follows; None: no crop.
    """

    backbone: str
    architecture: str
    dim: Annotated[int, Field(ge=1, le=65536)] | None
    image_size: Annotated[int, Field(ge=1, le=16384)]
    mean: tuple[float, ...]
    std: tuple[Annotated[float, Field(gt=0)], ...]
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
    freeze_batch_norm: bool
    pretrained_sha256: str
    pooling: Literal["default", "avg", "max", "gem"] = "default"
    head_norm: Literal["layer_norm", "l2", "none"] = "layer_norm"
    eval_resize: Size | None = None
    eval_crop: Annotated[int, Field(ge=1)] | None = None

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Self:
        """Read the fields from a ``config.json``, which has other facts, too.

        Raises:
            ValueError: a field is missing, or not valid for building a model.
        """
        own = {field.name: facts[field.name] for field in fields(cls) if field.name in facts}
        try:
            return TypeAdapter(cls).validate_python(own)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ValueError(f"{where}: {first['msg']}") from None
