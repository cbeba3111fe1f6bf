import errno
import json
import os
from pathlib import Path

import pytest
import timm
import torch

from hgld.config import RunOptions
from hgld.errors import InvalidData
from hgld.shards.damaged import DamagedImages
from hgld.tasks import watched_by
from hgld.train import verify_models
from hgld.train.runs import RunFolder
from tests.listening import heard
from tests.made_shards import visible

SHORT = RunOptions(loss="HAPPIER", steps=2)
OTHER = SHORT.model_copy(update={"lr": 1e-3})


def unfinished(train) -> Path:
    """A run that has a checkpoint and no model."""
    run = train({"run": SHORT}) / "run"
    (run / "config.json").unlink()
    return run


def said_by(train, run: RunOptions) -> list[str]:
    with heard() as said:
        train({"run": run})
    return said


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
    with pytest.raises(InvalidData, match=r"run/metrics\.jsonl: is not the file that"):
        verify_models(models)


def test_a_run_whose_folder_is_a_link_forgets_other_options_too(train, tmp_path: Path) -> None:
    run, elsewhere = unfinished(train), tmp_path / "elsewhere"
    run.rename(elsewhere)
    run.symlink_to(elsewhere)
    train({"run": OTHER})
    assert run.is_symlink()
    assert visible(run) == visible(train({"run": OTHER}, out=tmp_path / "fresh") / "run")


def test_files_of_a_person_in_the_folder_of_a_run_stay(train) -> None:
    models = train({"run": SHORT})
    (models / "run" / "notes.txt").write_text("mine")
    train({"run": OTHER})
    assert (models / "run" / "notes.txt").read_text() == "mine"


def test_only_the_runs_of_the_pipeline_are_checked(models: Path) -> None:
    (models / "mine").mkdir()
    (models / "mine" / "notes.txt").write_text("")
    verify_models(models)


def test_a_checkpoint_of_other_options_is_never_loaded(tmp_path: Path) -> None:
    RunFolder(tmp_path, "these").save(1, {})
    says = r"\.checkpoint\.pt: was made with other options or shards"
    with pytest.raises(InvalidData, match=says):
        RunFolder(tmp_path, "others").resume({}, torch.device("cpu"))


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        PermissionError(errno.EACCES, os.strerror(errno.EACCES)),
        RuntimeError("unable to mmap 8 bytes from file <x>: Cannot allocate memory (12)"),
        MemoryError(),
    ],
    ids=["files", "permission", "map", "memory"],
)
def test_a_checkpoint_that_cannot_be_read_now_is_not_deleted(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    run = RunFolder(tmp_path, "these")
    run.save(1, {"undecodable": DamagedImages(0, str)})
    monkeypatch.setattr(torch, "load", refuse)
    with pytest.raises(type(error)):
        run.prepare()
    assert run.has_checkpoint


def change_checkpoint(run: Path) -> None:
    path = run / ".checkpoint.pt"
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(byte ^ 0xFF for byte in data[middle : middle + 64])
    path.write_bytes(data)


def change_metrics(run: Path, cut: bool = False) -> None:
    path = run / "metrics.jsonl"
    text = path.read_text()
    path.write_text(text.splitlines(True)[0] if cut else text.replace("1", "7"))


def remove_losses(run: Path) -> None:
    state = torch.load(run / ".checkpoint.pt", weights_only=True)
    del state["metrics.jsonl"]
    torch.save(state, run / ".checkpoint.pt")


@pytest.mark.parametrize(
    ("harm", "options", "why"),
    [
        (change_checkpoint, SHORT, r".checkpoint.pt is damaged"),
        (remove_losses, SHORT, r".checkpoint.pt is damaged"),
        (lambda run: None, OTHER, "its checkpoint at step 2 was made with other options or shards"),
    ],
)
def test_what_cannot_be_gone_on_from_begins_again_and_is_told(
    train, tmp_path: Path, harm, options: RunOptions, why: str
) -> None:
    run = unfinished(train)
    harm(run)
    assert f"run: {why}; it starts again" in said_by(train, options)
    assert visible(run) == visible(train({"run": options}, out=tmp_path / "fresh") / "run")


def test_other_weights_in_the_same_file_are_trained_from(train, tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    given = {"pretrained": True, "backbone": f"test_resnet/{file}"}
    models, said = [], list[str]()
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        torch.save(timm.create_model("test_resnet").state_dict(), file)
        with watched_by(None, said.append):
            run = train({"run": SHORT}, **given) / "run"
        models.append((run / "model.safetensors").read_bytes())
    assert models[0] == models[1] != models[2]
    again = "run: its checkpoint at step 2 was made with other pretrained weights; it starts again"
    assert said.count(again) == 1


@pytest.mark.parametrize("cut", [True, False])
def test_changed_losses_come_back_from_the_checkpoint(train, cut: bool) -> None:
    run = train({"run": SHORT}) / "run"
    before = visible(run)
    change_metrics(run, cut)
    assert not [line for line in said_by(train, SHORT) if "starts again" in line]
    assert visible(run) == before


CHANGES = [('"classes": 4', '"classes": 5'), ('"HAPPIER"', '"CSL"'), ("seal", "sfal")]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_fact_of_a_model_is_named_and_made_again(train, change) -> None:
    models = train({"run": SHORT})
    config, before = models / "run" / "config.json", visible(models / "run")
    assert change[0] in config.read_text()
    config.write_text(config.read_text().replace(*change, 1))
    with pytest.raises(
        InvalidData, match=r"run/config\.json: was changed since the model was saved"
    ):
        verify_models(models)
    train({"run": SHORT})
    assert visible(models / "run") == before


def crash_at_the_second(items, label, total, done):
    for done, item in enumerate(items):
        if label.startswith("Training") and done == 1:
            raise RuntimeError("as if the power went")
        yield item


@pytest.mark.parametrize("damage", [b"\0" * 40, b"\xff\n[]\n", b'{"step": 1, "da', b"{}\n"])
def test_timings_that_are_damaged_stop_nothing(train, tmp_path: Path, damage: bytes) -> None:
    with watched_by(crash_at_the_second), pytest.raises(RuntimeError):
        train({"run": SHORT}, checkpoint_steps=1)
    timings = tmp_path / "models" / "run" / ".timings.jsonl"
    timings.write_bytes(damage)
    train({"run": SHORT})
    assert [json.loads(line)["step"] for line in timings.read_text().splitlines()] == [2]
