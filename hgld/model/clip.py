"""open_clip models: the lookup of their weights, and their image towers as photo encoders.

Weights are located first and loaded explicitly, so that no tower silently keeps random values.
Photos are prepared as the model's own configuration requires, not as for hgld's models.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hgld.errors import MissingWeights, UsageError
from hgld.lazy import lazy_module
from hgld.model.weights import fault_of, hub_file, one_line, split_name
from hgld.words import nearest

if TYPE_CHECKING:
    from hgld.model.transforms import ImageTransform

open_clip = lazy_module("open_clip")  # imports transformers; models that are no CLIP need neither
constants = lazy_module("open_clip.constants")
LOCAL = "local-dir:"
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")


class ClipTower(nn.Module):
    """Image tower of a CLIP: photos (B, 3, H, W) to unit vectors (B, D)."""

    def __init__(self, visual: nn.Module) -> None:
        super().__init__()
        self.visual = visual

    def forward(self, images: Tensor) -> Tensor:
        """Embed normalised photos."""
        features: Tensor = self.visual(images)
        return F.normalize(features, dim=-1)


def load_clip_tower(
    name: str,
    weights: Path,
    device: torch.device,
    image_size: int | None = None,
    **preparation: Any,
) -> "tuple[ClipTower, ImageTransform]":
    """Load the image tower of a model that ``find_clip`` found, and its image transform.

    Args:
        name: of the model.
        weights: file of them.
        device: of the tower.
        image_size: side of the photos, for which positions are interpolated; None: its own.
        preparation: mean, std and interpolation in place of the model's.

    Raises:
        MissingWeights: the file does not hold weights of the model.
    """
    clip = create_clip(name, weights, image_size)
    tower = ClipTower(clip.visual).eval().to(device)
    own: Any = tower.visual.preprocess_cfg
    look = open_clip.transform.PreprocessCfg(**{**own, **preparation})
    transform: ImageTransform = open_clip.transform.image_transform_v2(look, is_train=False)
    return tower, transform


def create_clip(name: str, weights: Path, image_size: int | None = None) -> Any:
    """Build a CLIP of that name with these weights, for photos of that side (None: its own).

    Raises:
        MissingWeights: the file does not hold weights of the model, or one half of it is missing.
    """
    model = architecture_of(name)
    tag = {} if name.startswith(LOCAL) else open_clip.get_pretrained_cfg(*split_name(name))
    try:
        for part, what in (("text_cfg", "texts"), ("vision_cfg", "photos")):
            if part not in open_clip.get_model_config(model):
                raise ValueError(f"no {part}, so it embeds no {what}; expected a CLIP")
        logging.disable(logging.WARNING)  # of random weights, not yet loaded
        clip = open_clip.create_model(
            model,
            load_weights=False,
            pretrained_text=False,
            force_quick_gelu=bool(tag.get("quick_gelu")),
            force_image_size=image_size,
            # mean, std, interpolation and resizing are those of the weights
            force_preprocess_cfg={k: v for k, v in tag.items() if k != "size"},
        )
        open_clip.load_checkpoint(clip, str(weights))
    except Exception as error:  # open_clip's errors have no common class
        raise MissingWeights(
            f"{weights}: cannot be loaded as weights of {model}: {fault_of(weights, error)}"
        ) from None
    finally:
        logging.disable(logging.NOTSET)
    return clip


def architecture_of(name: str) -> str:
    """open_clip's name of the architecture.

    Example:
        >>> architecture_of("ViT-B-32/openai"), architecture_of("local-dir:/data/clip")
        ('ViT-B-32', 'local-dir:/data/clip')
    """
    return name if name.startswith(LOCAL) else split_name(name)[0]


def find_clip(name: str, option: str, helps: str) -> Path:
    """Locate the file of a model's weights.

    Args:
        name: ``MODEL/PRETRAINED`` or ``MODEL/FILE`` as in open_clip, or ``local-dir:FOLDER`` as
            open_clip saves one.
        option: that holds the name, for error messages.
        helps: advice for the user if the weights are out of reach.

    Raises:
        MissingWeights: the weights are neither here nor within reach; raised within seconds.
        UsageError: open_clip has no such model.
    """
    if name.startswith(LOCAL):
        folder = Path(name.removeprefix(LOCAL))
        config = folder / "open_clip_config.json"
        if not config.is_file():
            raise MissingWeights(
                f"{folder}: not a folder with {config.name}, as open_clip's local-dir: wants it"
            )
        try:
            open_clip.get_model_config(name)
        except Exception as error:  # open_clip's errors have no common class
            raise MissingWeights(
                f"{config}: no configuration of open_clip ({one_line(error)}); save the model again"
            ) from None
        found = sorted(path for path in folder.iterdir() if path.suffix in WEIGHT_SUFFIXES)
        own = (constants.HF_SAFE_WEIGHTS_NAME, constants.HF_WEIGHTS_NAME)
        named = [folder / file for file in own if (folder / file).is_file()]
        if not named and len(found) != 1:
            what = ", ".join(path.name for path in found) or "no weights"
            raise MissingWeights(f"{folder}: found {what}; expected one {own[0]}")
        return (named or found)[0]
    model, weights = split_name(name)
    if open_clip.get_model_config(model) is None:
        known = nearest(model, open_clip.list_models())
        raise UsageError(f"{option}: open_clip has no model '{model}'{known}")
    tag = open_clip.get_pretrained_cfg(model, weights)
    if tag:
        repo, _, file = tag["hf_hub"].rpartition("/")
        file = file or constants.HF_WEIGHTS_NAME
        # safetensors first, as open_clip does
        safe = str(Path(file).with_suffix(".safetensors"))
        if file == constants.HF_WEIGHTS_NAME:
            safe = constants.HF_SAFE_WEIGHTS_NAME
        names = [safe, file] if file.endswith((".bin", ".pth")) else [file]
        return hub_file(repo, names, helps)
    if Path(weights).is_file():
        return Path(weights)
    tags = open_clip.list_pretrained_tags_by_model(model)
    raise MissingWeights(
        f"{option}: '{weights}' is neither a file nor weights that open_clip has for {model} "
        f"({', '.join(tags) or 'it has none'}){nearest(weights, tags)}"
    )
