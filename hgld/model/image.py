"""Image encoders: photos to unit vectors.

A timm backbone with pooling; then, as in the recipes, a norm without learned scale (LayerNorm or
L2), a linear head and L2 normalisation. Without a head the pooled pretrained features are the
embedding. Backbones pool in different ways (a class token, a norm after the mean), so the pooling
that a recipe names is applied to the features of any backbone. A saved model is a folder with
``model.safetensors`` and ``config.json``; one call loads it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import safetensors.torch
import torch
import torch.nn.functional as F
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torchvision.transforms import v2

from hgld.artifacts import hash_file, write_file
from hgld.config import TrainOptions, without_folders
from hgld.errors import InvalidData, MissingWeights, UsageError
from hgld.model.backbones import create_backbone, find_backbone
from hgld.model.model_folder import CONFIG, WEIGHTS, ImageConfig, check_model, write_config
from hgld.words import part_text

LEAST = 1e-6  # 0 to a power has no gradient
COMPARED = {  # facts that decide what weights mean: the option of each
    "architecture": "train.backbone",
    "dim": "train.dim",
    "pooling": "train.pooling",
    "head_norm": "train.head_norm",
    "mean": "train.backbone",
    "std": "train.backbone",
}


class Pooling(nn.Module):
    """Pool (B, F, H, W), (B, H, W, F) or (B, tokens, F) features to (B, F).

    Args:
        how: avg, max, gem or token (the first token, which is the class token).
        features: F.
        prefix_tokens: leading tokens that are not image positions (the class token).

    Example:
        >>> Pooling("max", 2)(torch.tensor([[[[1.0, 5.0]], [[2.0, 3.0]]]])).tolist()
        [[5.0, 3.0]]
    """

    def __init__(self, how: str, features: int, prefix_tokens: int = 0) -> None:
        super().__init__()
        self.how, self.features, self.prefix_tokens = how, features, prefix_tokens
        self.gem = GeM() if how == "gem" else None

    def forward(self, features: Tensor) -> Tensor:
        """Pool over all positions, or take the class token."""
        if self.how == "token":
            return features[:, 0]
        if features.ndim == 3:
            places = features[:, self.prefix_tokens :]  # (B, N, F)
        elif features.shape[1] == self.features:
            places = features.flatten(2).transpose(1, 2)
        else:
            places = features.flatten(1, 2)
        if self.gem is not None:
            pooled: Tensor = self.gem(places)
            return pooled
        return places.amax(1) if self.how == "max" else places.mean(1)


class GeM(nn.Module):
    """Generalised mean over positions (Radenovic et al. 2019): (mean x^p)^(1/p), p learned.

    Example:
        >>> round(GeM(2.0)(torch.tensor([[[1.0], [7.0]]])).item(), 4)
        5.0
    """

    def __init__(self, p: float = 3.0) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor(p))

    def forward(self, places: Tensor) -> Tensor:
        """(B, N, F) to (B, F), in float32 at least: powers exceed the range of half precision."""
        half = places.dtype in (torch.float16, torch.bfloat16)
        with torch.autocast(places.device.type, enabled=False):
            powers = (places.float() if half else places).clamp(min=LEAST) ** self.p
            pooled: Tensor = powers.mean(1) ** (1.0 / self.p)
            return pooled


class ImageModel(nn.Module):
    """Image encoder: photos (B, 3, H, W) to unit vectors (B, D)."""

    def __init__(self, config: ImageConfig, backbone: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        # some networks have another layer between the features and the classifier
        width: Any = getattr(backbone, "head_hidden_size", None) or backbone.num_features
        self.features = int(width)
        self.pool: Pooling | None = None
        if config.pooling == "token" and getattr(backbone, "cls_token", None) is None:
            raise UsageError(
                f"train.pooling: {config.architecture} has no class token; set it to default"
            )
        if config.pooling != "default":
            tokens = int(getattr(backbone, "num_prefix_tokens", 0))
            self.pool = Pooling(config.pooling, self.features, tokens)
        self.head = nn.Linear(self.features, config.dim) if config.dim else None
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a quarter faster

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self.config.dim or self.features

    def forward(self, images: Tensor) -> Tensor:
        """Embed (B, 3, H, W) images, as bytes or normalised, as (B, D) unit vectors."""
        if images.dtype == torch.uint8:
            images = normalise(images, self.config)
        features = self.head_input(images)
        return F.normalize(features if self.head is None else self.head(features), dim=-1)

    def head_input(self, images: Tensor) -> Tensor:
        """(B, F) pooled features; with a head, after the norm that precedes it."""
        pooled: Tensor = self.backbone(images.contiguous(memory_format=torch.channels_last))
        if self.pool is not None:
            pooled = self.pool(pooled)
        if self.head is None or self.config.head_norm == "none":
            return pooled
        if self.config.head_norm == "l2":
            return F.normalize(pooled, dim=-1)
        return F.layer_norm(pooled, pooled.shape[1:])

    def train(self, mode: bool = True) -> Self:
        """Switch to training mode; frozen batch-norm stays in evaluation mode."""
        super().train(mode)
        if self.config.freeze_batch_norm:
            for module in self.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self


class MultiScale(nn.Module):
    """Mean over scales of a network's unit vectors, as a unit vector (Radenovic et al. 2019).

    Args:
        network: (B, 3, H, W) of any H and W -> (B, D).
        scales: factors of H and W; the photo is resized bilinearly.

    Example:
        >>> network = MultiScale(nn.Flatten(), [1.0])
        >>> network(torch.tensor([[[[3.0, 4.0]]]])).tolist()
        [[0.6000000238418579, 0.800000011920929]]
    """

    def __init__(self, network: nn.Module, scales: Sequence[float]) -> None:
        super().__init__()
        self.network, self.scales = network, tuple(scales)

    def forward(self, photos: Tensor) -> Tensor:
        """Embed (B, 3, H, W) photos as (B, D) unit vectors, float32."""
        vectors = []
        for scale in self.scales:
            resized = photos
            if scale != 1:
                # a side of a narrow photo keeps a pixel
                factors = [max(scale, (1 + 1e-9) / side) for side in photos.shape[-2:]]
                resized = F.interpolate(photos, scale_factor=factors, mode="bilinear")
            vectors.append(F.normalize(self.network(resized).float()))
        return F.normalize(torch.stack(vectors).mean(0))


def normalise(images: Tensor, config: ImageConfig) -> Tensor:
    """Convert bytes (B, 3, H, W) to the normalised floats that the model takes, on any device."""
    numbers = v2.functional.to_dtype(images, torch.float32, scale=True)
    found: Tensor = v2.functional.normalize(numbers, list(config.mean), list(config.std))
    return found


def build_image_model(
    options: TrainOptions,
    *,
    head: bool = True,
    preparation: Mapping[str, Any] | None = None,
    any_size: bool = False,
) -> ImageModel:
    """Build a backbone with its pretrained weights, and a head drawn from the seed.

    Args:
        options: backbone, pretrained, pooling, head, image_size and seed count.
        head: False: the pooled features are the embedding.
        preparation: mean, std and interpolation in place of the pretrained model's.
        any_size: take photos of any size.

    Raises:
        MissingWeights: the weights are neither here nor within reach; raised within seconds.
        UsageError: timm has no such model.
    """
    # The head draws from the seed; forking keeps the caller's random numbers unchanged.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        architecture, weights = find_backbone(options)
        backbone = create_backbone(
            architecture,
            options.image_size,
            weights,
            pooled=options.pooling == "default",
            any_size=any_size,
        )
        data: Any = backbone.pretrained_cfg
        own = options.image_size
        side = options.eval_crop or options.eval_resize or own
        fixed = data.get("fixed_input_size") and not getattr(backbone, "dynamic_img_size", False)
        if fixed and side not in (own, (own, own)):
            raise UsageError(
                f"{options.backbone} takes photos of image_size ({own}) alone, and eval_crop or "
                f"eval_resize makes others ({side}); leave them out, or set image_size to it"
            )
        frozen = options.freeze_batch_norm
        mean, std = tuple(data["mean"]), tuple(data["std"])
        look = {"mean": mean, "std": std, "interpolation": data["interpolation"]}
        config = ImageConfig(
            backbone=without_folders(options.backbone),
            architecture=architecture,
            dim=options.dim if head else None,
            image_size=own,
            freeze_batch_norm=weights is not None if frozen is None else frozen,
            pretrained_sha256=hash_file(weights) if weights else "",
            pooling=options.pooling,
            head_norm=options.head_norm,
            eval_resize=options.eval_resize,
            eval_crop=options.eval_crop,
            **{**look, **(preparation or {})},
        )
        return ImageModel(config, backbone)


def save_model(model: ImageModel, folder: Path, facts: Mapping[str, Any]) -> None:
    """Write ``model.safetensors``, then ``config.json`` with the facts and the files' SHA-256."""
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    write_file(folder / WEIGHTS, safetensors.torch.save(state))
    write_config(folder, {**facts, **asdict(model.config)})


def load_model(
    folder: Path, device: torch.device | str = "cpu", *, any_size: bool = False
) -> ImageModel:
    """Load what ``save_model`` wrote, in evaluation mode; ``any_size``: for photos of any size.

    Raises:
        InvalidData: a file is missing or damaged, or the weights are of another architecture.
    """
    config, state = _read_model(folder)
    try:
        pooled = config.pooling == "default"
        backbone = create_backbone(
            config.architecture, config.image_size, pooled=pooled, any_size=any_size
        )
        model = ImageModel(config, backbone)
    except (MissingWeights, UsageError) as error:
        raise InvalidData(f"{folder / CONFIG}: {error}") from None
    if wrong := _differences(model, state):
        raise InvalidData(
            f"{folder / WEIGHTS}: holds another architecture than config.json says "
            f"({config.architecture}): {wrong}"
        )
    model.load_state_dict(state)
    return model.eval().to(device)


def load_weights(model: ImageModel, folder: Path) -> None:
    """Replace all weights of a model by those of a saved one of the same architecture.

    Raises:
        InvalidData: a file is missing or damaged.
        UsageError: the saved model has another architecture, or takes photos of another form.
    """
    config, state = _read_model(folder)
    own, found = (
        # pretrained weights, named after a dot, make no other model
        asdict(one) | {"architecture": one.architecture.partition(".")[0]}
        for one in (model.config, config)
    )
    for name, option in COMPARED.items():
        if own[name] != found[name]:
            raise UsageError(
                f"{folder}: its {name} is {found[name]}, but {own[name]} here; set {option} to "
                "that of the saved model, or name another one"
            )
    if wrong := _differences(model, state):  # a ViT has position embeddings of one image size
        raise UsageError(
            f"{folder}: is of images of {config.image_size} px, but train.image_size is "
            f"{model.config.image_size}: {wrong}; set it to that, or name another model"
        )
    model.load_state_dict(state)


def _read_model(folder: Path) -> tuple[ImageConfig, dict[str, Tensor]]:
    facts, path = check_model(folder), folder / WEIGHTS
    try:
        config = TypeAdapter(ImageConfig).validate_python(facts)  # ignores other facts
    except ValidationError as error:
        first = error.errors()[0]
        wrong = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise InvalidData(
            f"{folder / CONFIG}: not the config.json of a model ({wrong}); train it again"
        ) from None
    try:
        return config, safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise InvalidData(f"{path}: not readable as weights ({error}); train it again") from None


def _differences(model: ImageModel, state: Mapping[str, Tensor]) -> str:
    """Describe how a state differs in form from the model's; empty: it fits."""
    own = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in state.items()}
    wrong = sorted(name for name in own.keys() | found.keys() if own.get(name) != found.get(name))
    if not wrong:
        return ""
    name = wrong[0]
    return (
        f"{part_text(len(wrong), len(own), 'tensor', 'differ')}; {name}: expected "
        f"{own.get(name, 'none')}, found {found.get(name, 'none')}"
    )
