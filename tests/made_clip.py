"""A small CLIP drawn at random, in a folder as open_clip saves one."""

import json
from pathlib import Path

import torch
from open_clip.model import CLIP
from safetensors.torch import save_file

SMALL_CLIP = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}


def save_clip(folder: Path) -> CLIP:
    torch.manual_seed(0)
    clip = CLIP(**SMALL_CLIP).eval()
    save_file(clip.state_dict(), folder / "open_clip_model.safetensors")
    config = {"model_cfg": SMALL_CLIP, "preprocess_cfg": {}}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    return clip
