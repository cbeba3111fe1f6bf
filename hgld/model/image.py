"""Image encoders: photos to unit vectors.

A timm backbone, pooled; then, as in the authors' recipes, LayerNorm without learned scale, a linear
head and L2 normalisation. Without a head the pooled pretrained features are the embedding. A saved
model is a folder of ``model.safetensors`` and ``config.json``, and loads back with one call.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

import safetensors.torch
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torchvision.transforms import InterpolationMode, v2

from hgld.artifacts import atomic_path, hash_file
from hgld.config import TrainOptions
from hgld.errors import InvalidData, MissingWeights, UsageError
from hgld.model.backbones import LITE0, create_backbone, find_backbone
from hgld.model.weights import one_line

__all__ = [
    "ImageConfig",
    "ImageModel",
    "ImageTransform",
    "build_image_model",
    "evaluation_transform",
    "load_model",
    "save_model",
    "training_transform",
]

ImageTransform = Callable[[Image.Image], Tensor]


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

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Self:
        """From a ``config.json``, which holds other facts too."""
        found = {field.name: facts[field.name] for field in fields(cls)}
        return cls(**{**found, "mean": tuple(found["mean"]), "std": tuple(found["std"])})


class ImageModel(nn.Module):
    """Photos (B, 3, H, W) to unit vectors (B, D)."""

    def __init__(self, config: ImageConfig, backbone: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.features = int(backbone.num_features)  # type: ignore[arg-type]
        self.head = nn.Linear(self.features, config.dim) if config.dim else None
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a quarter faster

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self.config.dim or self.features

    def forward(self, images: Tensor) -> Tensor:
        """Embed (B, 3, H, W) normalised images as (B, D) unit vectors."""
        pooled = self.backbone(images.contiguous(memory_format=torch.channels_last))  # (B, F)
        if self.head is None:
            return F.normalize(pooled, dim=-1)
        return F.normalize(self.head(F.layer_norm(pooled, pooled.shape[1:])), dim=-1)

    def train(self, mode: bool = True) -> Self:
        """Switch to training; frozen batch-norm stays as in evaluation."""
        super().train(mode)
        if self.config.freeze_batch_norm:
            for module in self.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self


def build_image_model(options: TrainOptions, *, head: bool = True) -> ImageModel:
    """A backbone with its pretrained weights, and a head drawn from the seed.

    Args:
        options: backbone, pretrained, dim, image_size and seed count.
        head: False: the pooled features are the embedding.

    Raises:
        MissingWeights: the weights are neither here nor within reach; said within seconds.
        UsageError: timm has no such model.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        architecture, weights = find_backbone(options)
        lite0 = options.backbone == LITE0
        backbone = create_backbone(architecture, options.image_size, weights, lite0)
        config = _describe(options, architecture, weights, backbone, head)
        return ImageModel(config, backbone)


def save_model(model: ImageModel, folder: Path, facts: Mapping[str, Any]) -> None:
    """Write ``model.safetensors``, then ``config.json`` with the facts and the weights' SHA-256."""
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    weights = folder / "model.safetensors"
    with atomic_path(weights) as temporary:
        temporary.write_bytes(safetensors.torch.save(state))
    config = {**facts, **asdict(model.config), "sha256": hash_file(weights)}
    with atomic_path(folder / "config.json") as temporary:
        temporary.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def load_model(folder: Path, device: torch.device | str = "cpu") -> ImageModel:
    """Load what ``save_model`` wrote, in evaluation mode.

    Raises:
        InvalidData: a file is missing or damaged, or the weights are of another architecture.
    """
    config = _read_config(folder / "config.json")
    path = folder / "model.safetensors"
    try:
        state = safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise InvalidData(f"{path}: not readable as weights ({error}); train it again") from None
    try:
        model = ImageModel(config, create_backbone(config.architecture, config.image_size))
    except (MissingWeights, UsageError) as error:
        raise InvalidData(f"{folder / 'config.json'}: {error}") from None
    _load_state(model, state, path)
    return model.eval().to(device)


def training_transform(config: ImageConfig) -> ImageTransform:
    """Random crop of 0.16 to 1 of the area, and flip: the papers' augmentation."""
    crop = v2.RandomResizedCrop(
        config.image_size,
        scale=(0.16, 1.0),
        ratio=(0.75, 1.33),
        interpolation=InterpolationMode(config.interpolation),
    )
    transform: ImageTransform = v2.Compose([crop, v2.RandomHorizontalFlip(), *_to_tensor(config)])
    return transform


def evaluation_transform(config: ImageConfig) -> ImageTransform:
    """The whole photo, squeezed into a square: what the H-GLDv2 recipe evaluates on."""
    size = (config.image_size, config.image_size)
    transform: ImageTransform = v2.Compose(
        [v2.Resize(size, InterpolationMode(config.interpolation)), *_to_tensor(config)]
    )
    return transform


def _to_tensor(config: ImageConfig) -> list[nn.Module]:
    return [
        v2.RGB(),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(list(config.mean), list(config.std)),
    ]


def _describe(
    options: TrainOptions, architecture: str, weights: Path | None, backbone: nn.Module, head: bool
) -> ImageConfig:
    data: Any = backbone.pretrained_cfg
    return ImageConfig(
        backbone=options.backbone,
        architecture=architecture,
        dim=options.dim if head else None,
        image_size=options.image_size,
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
        interpolation=data["interpolation"],
        freeze_batch_norm=weights is not None,
        pretrained_sha256=hash_file(weights) if weights else "",
    )


def _read_config(path: Path) -> ImageConfig:
    try:
        return ImageConfig.read(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidData(
            f"{path}: not the config.json of a model ({one_line(error)}); train it again"
        ) from None


def _load_state(model: ImageModel, state: Mapping[str, Tensor], path: Path) -> None:
    own = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in state.items()}
    wrong = sorted(name for name in own.keys() | found.keys() if own.get(name) != found.get(name))
    if wrong:
        name = wrong[0]
        raise InvalidData(
            f"{path}: holds another architecture than config.json says "
            f"({model.config.architecture}): {len(wrong)} of {len(own)} tensors differ; {name}: "
            f"expected {own.get(name, 'none')}, found {found.get(name, 'none')}"
        )
    model.load_state_dict(dict(state))
