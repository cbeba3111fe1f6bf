"""What an image encoder is, but for its weights: the part of ``config.json`` that builds it again.

It says how photos are prepared, too: a checkpoint is evaluated as it was meant to be, whoever loads
it and whatever the pipeline says by then.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Self

__all__ = ["ImageConfig"]


@dataclass(frozen=True)
class ImageConfig:
    """All that is needed to build a model again, but for its weights.

    Attributes:
        backbone: as the pipeline names it.
        architecture: timm's name.
        dim: outputs of the linear head; None: no head.
        freeze_batch_norm: keep the pretrained statistics while training, as the papers do; a
            backbone that starts at random has none to keep.
        pretrained_sha256: of the file of pretrained weights; empty: random.
        pooling: of the backbone's features: default (its own), avg, max or gem.
        head_norm: between pooling and head: layer_norm, l2 or none.
        eval_resize: short side, or (height, width); None: a square of image_size.
        eval_crop: side of the centre that is then taken.
    """

    backbone: str
    architecture: str
    dim: int | None
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str
    freeze_batch_norm: bool
    pretrained_sha256: str
    pooling: str = "default"
    head_norm: str = "layer_norm"
    eval_resize: int | tuple[int, int] | None = None
    eval_crop: int | None = None

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Self:
        """From a ``config.json``, which holds other facts too, or, being older, not all of these.

        Example:
            >>> names = "backbone architecture image_size interpolation freeze_batch_norm"
            >>> old = dict.fromkeys([*names.split(), "dim", "pretrained_sha256"], 1)
            >>> ImageConfig.read({**old, "mean": [0], "std": [1], "loss": "CSL"}).pooling
            'default'
        """
        names = [f.name for f in fields(cls) if f.name in facts or f.default is MISSING]
        values = [facts[name] for name in names]
        found: Any = [tuple(value) if isinstance(value, list) else value for value in values]
        return cls(**dict(zip(names, found, strict=True)))
