from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hgld.artifacts import VectorFile
from hgld.config import EmbedOptions
from hgld.errors import InvalidData, UsageError
from hgld.hierarchy.embed import embed_values
from hgld.model import load_text_encoder
from tests.listening import heard

OPTIONS = EmbedOptions(encoder="offline:minilm", device="cpu")
VALUES = pd.DataFrame(
    {
        "class_id": ["Q23397", "Q108325", "", "Q16970"],
        "instance_of": ["lake", "chapel", "pub", "church building"],
        "landmarks": [4, 3, 2, 1],
        "images": [8, 6, 4, 2],
    }
)


def test_each_value_gets_the_unit_vector_of_its_prompt_under_its_key() -> None:
    found = embed_values(VALUES, OPTIONS)
    assert found.ids == ["Q108325", "Q16970", "Q23397", "pub"]
    one = load_text_encoder("offline:minilm", "cpu").encode(["A picture of a chapel"])[0]
    np.testing.assert_allclose(found.vectors[0], one, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, atol=1e-5)
    assert found.vectors.dtype == np.float32


def test_the_vectors_name_encoder_weights_and_prompt() -> None:
    made_by = embed_values(VALUES, OPTIONS).made_by
    assert made_by["encoder"] == "offline:minilm" and len(made_by["weights_sha256"]) == 64
    assert made_by["prompt"] == "A picture of a {label}"


def test_the_same_values_give_the_same_bytes(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    for name, rows in [("a", VALUES), ("b", VALUES.iloc[::-1])]:
        torch.set_num_threads(threads + 1 if name == "b" else threads)
        VectorFile("x").write(embed_values(rows, OPTIONS), tmp_path / name)
    torch.set_num_threads(threads)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_chapel_lies_nearer_to_a_church_than_to_a_lake() -> None:
    chapel, church, lake, _ = embed_values(VALUES, OPTIONS).vectors
    assert chapel @ church > chapel @ lake


def test_a_prompt_without_a_place_for_the_label_is_refused() -> None:
    options = EmbedOptions(encoder="offline:minilm", prompt="A picture of a {}")
    with pytest.raises(UsageError, match=r"embed\.prompt .* has no \{label\}"):
        embed_values(VALUES, options)


def test_a_table_without_values_is_one_clear_line() -> None:
    with pytest.raises(InvalidData, match=r"values\.csv has no rows"):
        embed_values(VALUES[:0], OPTIONS)


def test_values_that_the_encoder_cannot_tell_apart_are_named() -> None:
    values = VALUES.assign(class_id="", instance_of=["熊猫", "茶杯", "Café", "cafe"])
    with heard() as notes:
        embed_values(values, OPTIONS)
    assert len(notes) == 1
    assert notes[0].startswith(
        "2 values have the vector of another: '熊猫', '茶杯'; offline:minilm"
    )
    assert "set embed.encoder to a multilingual one" in notes[0]


@pytest.mark.parametrize("labels", [
    ["熊猫", "old bridge over the long quiet river", "茶杯", "pub"],
    ["old " * 300 + "bridge", "lake", "old " * 300 + "river", "pub"],
    ["🦁", "old bridge over the long quiet river", "🐯", "pub"],
])  # fmt: skip
def test_values_of_one_vector_are_found_across_batches(labels: list[str]) -> None:
    values = VALUES.assign(class_id=["Q1", "Q2", "Q3", "Q4"], instance_of=labels)
    with heard() as notes:
        embed_values(values, OPTIONS.model_copy(update={"batch_size": 2}))
    assert len(notes) == 1
    assert f"'{labels[0]}', '{labels[2]}'" in notes[0]
    assert "does not know their characters or cuts long labels off" in notes[0]
