import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import get_args

import pytest
import torch

from hgld.config import RunOptions
from hgld.errors import HgldError, InvalidData, Resumable, UsageError
from hgld.model import build_image_model, load_model
from hgld.shards.index import read_index
from hgld.tasks import watched_by
from hgld.train.data import TrainingData, step_seed
from hgld.train.objective import build_loss
from tests.made_shards import small_options

SHORT = RunOptions(loss="HAPPIER", steps=6)


def losses(run: Path) -> list[float]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, len(lines) + 1))
    return [json.loads(line)["loss"] for line in lines]


def proxies(run: Path) -> torch.Tensor:
    state = torch.load(run / ".checkpoint.pt", weights_only=True)
    assert state["step"] == 6
    return state["loss"]["proxies"]


def before_step(number: int, act: Callable[[], object]) -> Callable[..., Iterator[object]]:
    """A progress sink that does something before a step of training."""

    def sink(items: Iterable[object], label: str, total: int | None) -> Iterator[object]:
        for done, item in enumerate(items):
            if label.startswith("Training") and done == number:
                act()
            yield item

    return sink


def crash() -> None:
    raise RuntimeError("as if the power went")


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_each_run_gets_a_model_that_loads_back_and_says_what_it_is(train) -> None:
    models = train({"plain": RunOptions(steps=0), "happier": SHORT})
    plain, happier = load_model(models / "plain"), load_model(models / "happier")
    assert plain.head is None and happier.dim == 8
    config = json.loads((models / "happier" / "config.json").read_text())
    assert (config["loss"], config["steps"], config["classes"]) == ("HAPPIER", 6, 4)
    assert config["levels"] == ["kind", "supercategory", "landmark"]
    assert json.loads((models / "plain" / "config.json").read_text())["loss"] == "pretrained"


def test_a_run_without_steps_is_the_backbone_as_it_is(train) -> None:
    models = train({"plain": RunOptions(steps=0)})
    expected = build_image_model(small_options(), head=False).state_dict()
    found = load_model(models / "plain").state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_one_step_is_adam_on_the_gradient_of_the_loss(train, shards: Path) -> None:
    """The same step written out: one graph through model and loss, Adam's first update by hand."""
    run = RunOptions(steps=1, lr=1e-3, head_lr=2e-3, weight_decay=0.0)
    models = train({"run": run})
    options = small_options(runs={"run": run})
    data = TrainingData.read(shards, options)
    model = build_image_model(options).train()
    images, labels, _ = next(iter(data.batches(model.config, options, range(1))))
    torch.manual_seed(step_seed(0, 0, "model"))
    loss = build_loss(run, data.class_labels, 8, 0)(model(images), labels)
    loss.backward()
    found = load_model(models / "run")
    rates = {"backbone": 1e-3, "head": 2e-3}
    for name, value in model.named_parameters():
        step = value.grad / (value.grad.abs() + 1e-8)  # Adam's first: gradient over its size
        expected = value - rates[name.split(".")[0]] * step
        torch.testing.assert_close(found.get_parameter(name), expected, atol=1e-5, rtol=1e-4)
    assert losses(models / "run") == pytest.approx([loss.item()], rel=1e-5)


def test_training_lowers_the_loss(train) -> None:
    run = RunOptions(loss="HAPPIER", steps=40, lr=1e-3, head_lr=1e-2, proxy_lr=0.1)
    found = losses(train({"run": run}) / "run")
    assert sum(found[-5:]) < 0.5 * sum(found[:5])


@pytest.mark.parametrize("loss", get_args(RunOptions.model_fields["loss"].annotation))
def test_every_loss_trains(train, loss: str) -> None:
    found = losses(train({"run": RunOptions(loss=loss, steps=2)}) / "run")
    assert len(found) == 2 and all(0 <= value < 100 for value in found)


@pytest.mark.parametrize("step", [0, 1, 4])
def test_a_run_that_crashed_goes_on_and_ends_in_the_same_bytes(train, tmp_path, step) -> None:
    whole = train({"run": SHORT}, out=tmp_path / "whole", checkpoint_steps=2)
    with watched_by(before_step(step, crash)), pytest.raises(RuntimeError):
        train({"run": SHORT}, out=tmp_path / "cut", checkpoint_steps=2)
    cut = train({"run": SHORT}, out=tmp_path / "cut", checkpoint_steps=2)
    for file in ("model.safetensors", "config.json"):
        assert (cut / "run" / file).read_bytes() == (whole / "run" / file).read_bytes()
    assert losses(cut / "run") == losses(whole / "run")
    assert torch.equal(proxies(cut / "run"), proxies(whole / "run"))


def test_a_request_to_stop_saves_and_says_how_to_go_on(train, tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    with watched_by(before_step(3, stop)), pytest.raises(Resumable, match="after step 4 of 6"):
        train({"run": SHORT}, out=tmp_path / "cut")
    assert signal.getsignal(signal.SIGTERM) == handler
    assert not (tmp_path / "cut" / "run" / "config.json").exists()
    cut = train({"run": SHORT}, out=tmp_path / "cut")
    whole = train({"run": SHORT}, out=tmp_path / "whole")
    for file in ("model.safetensors", "config.json"):
        assert (cut / "run" / file).read_bytes() == (whole / "run" / file).read_bytes()


def test_loader_processes_change_nothing(train, tmp_path: Path) -> None:
    alone = train({"run": SHORT}, out=tmp_path / "alone")
    helped = train({"run": SHORT}, out=tmp_path / "helped", workers=2)
    for file in ("model.safetensors", "config.json"):
        assert (alone / "run" / file).read_bytes() == (helped / "run" / file).read_bytes()


def test_the_seed_makes_another_model(train, tmp_path: Path) -> None:
    first = train({"run": SHORT}, out=tmp_path / "first")
    other = train({"run": SHORT}, out=tmp_path / "other", seed=1)
    assert losses(first / "run") != losses(other / "run")


def test_a_finished_run_is_not_trained_again(train) -> None:
    first = train({"a": SHORT})
    before = (first / "a" / "model.safetensors").stat().st_mtime_ns
    with watched_by(before_step(0, crash)):
        train({"a": SHORT, "plain": RunOptions(steps=0)})
    assert (first / "a" / "model.safetensors").stat().st_mtime_ns == before


def test_a_changed_option_trains_the_run_from_its_start(train, tmp_path: Path) -> None:
    models = train({"a": SHORT})
    train({"a": RunOptions(loss="HAPPIER", steps=6, lr=1e-3)})
    fresh = train({"a": RunOptions(loss="HAPPIER", steps=6, lr=1e-3)}, out=tmp_path / "fresh")
    for file in ("model.safetensors", "config.json"):
        assert (models / "a" / file).read_bytes() == (fresh / "a" / file).read_bytes()


def test_the_folder_of_a_run_that_is_not_asked_for_goes(train) -> None:
    models = train({"a": RunOptions(steps=0), "b": RunOptions(steps=0)})
    train({"b": RunOptions(steps=0)})
    assert sorted(path.name for path in models.iterdir()) == ["b", "runs.json"]
    assert json.loads((models / "runs.json").read_text()) == {"runs": ["b"]}


def test_runs_are_listed_in_the_order_they_are_asked_for(train) -> None:
    models = train({"b": RunOptions(steps=0), "a": RunOptions(steps=0)})
    assert json.loads((models / "runs.json").read_text()) == {"runs": ["b", "a"]}


def test_a_loss_that_is_no_number_stops_and_keeps_the_keys_of_its_batch(train, tmp_path, shards):
    run = RunOptions(steps=6, lr=1e30, head_lr=1e30)
    with pytest.raises(HgldError, match=r"the loss of step 2 is nan; the keys of its 6 images"):
        train({"run": run})
    kept = json.loads((tmp_path / "models" / "run" / "bad_batch.json").read_text())
    assert kept["step"] == 2 and len(kept["keys"]) == 6
    assert set(kept["keys"]) <= set(read_index(shards)["key"])


def test_a_split_without_samples_names_those_there_are(train) -> None:
    with pytest.raises(
        UsageError, match=r"'dev' has no samples; the shards hold evaluation, index"
    ):
        train({"run": SHORT}, split="dev")


def test_too_few_classes_for_a_batch_are_one_clear_line(train) -> None:
    with pytest.raises(
        InvalidData, match="4 of 4 classes have 2 images or more, but a batch needs 9"
    ):
        train({"run": SHORT}, classes_per_batch=9)


def test_seconds_stand_in_a_hidden_file_beside_the_losses(train) -> None:
    run = train({"run": SHORT}) / "run"
    assert json.loads((run / "metrics.jsonl").read_text().splitlines()[0]).keys() == {
        "step",
        "loss",
    }
    lines = [json.loads(line) for line in (run / ".timings.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert lines[0].keys() == {"step", "data_s", "model_s", "loss_s"}
    assert all(0 <= lines[0][name] < 60 for name in ("data_s", "model_s", "loss_s"))


def visible(run: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in run.iterdir() if not p.name.startswith(".")}


def test_equal_trainings_end_in_equal_visible_files(train, tmp_path: Path) -> None:
    first, second = (train({"run": SHORT}, out=tmp_path / name) for name in ("one", "two"))
    assert visible(first / "run") == visible(second / "run")
    assert set(visible(first / "run")) == {"config.json", "metrics.jsonl", "model.safetensors"}


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "metrics.jsonl"])
@pytest.mark.parametrize("checkpoint", ["kept", "gone"])
@pytest.mark.parametrize("harm", [b"", b"\xff\x00 not what it was"])
def test_a_damaged_run_is_mended(train, file: str, checkpoint: str, harm: bytes) -> None:
    run = train({"run": SHORT}) / "run"
    before = visible(run)
    (run / file).write_bytes(harm) if harm else (run / file).unlink()
    if checkpoint == "gone":
        (run / ".checkpoint.pt").unlink()
    train({"run": SHORT})
    assert visible(run) == before
