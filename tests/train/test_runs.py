from pathlib import Path

import pytest

from hgld.config import RunOptions
from hgld.errors import InvalidData
from hgld.train import verify_models


@pytest.fixture
def models(train) -> Path:
    return train({"plain": RunOptions(steps=0)})


def test_models_as_they_were_written_pass(models: Path) -> None:
    verify_models(models)


def test_changed_weights_are_named(models: Path) -> None:
    weights = models / "plain" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(InvalidData, match=r"plain/model\.safetensors: is not the file that"):
        verify_models(models)


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_missing_file_is_named(models: Path, file: str) -> None:
    (models / "plain" / file).unlink()
    with pytest.raises(InvalidData, match=rf"plain/{file}: no such file"):
        verify_models(models)


def test_an_edited_config_is_named(models: Path) -> None:
    (models / "plain" / "config.json").write_text("[]x")
    with pytest.raises(InvalidData, match=r"plain/config\.json: not the config\.json of a model"):
        verify_models(models)


def test_a_folder_without_models_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="holds no model; run train"):
        verify_models(tmp_path / "models")


def test_losses_that_are_not_of_every_step_are_named(train) -> None:
    models = train({"run": RunOptions(loss="HAPPIER", steps=2)})
    verify_models(models)
    metrics = models / "run" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().splitlines(True)[0])
    with pytest.raises(InvalidData, match=r"run/metrics\.jsonl: holds 1 of 2 steps"):
        verify_models(models)
