"""Runs that start from the model of another run, or from a folder."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hgld.config import RunOptions, TrainOptions, load_pipeline
from hgld.errors import HgldError, InvalidData, UsageError
from hgld.model import build_image_model, load_model, save_model
from hgld.model.image import normalise
from hgld.pipeline.lock import Lock, Workspace, stage_options
from hgld.pipeline.stages import active_stages
from hgld.shards.batches import step_seed
from hgld.tasks import watched_by
from hgld.train.data import TrainingData
from hgld.train.objective import build_loss
from tests.listening import heard
from tests.made_shards import feed_batches, small_options, visible

pytestmark = pytest.mark.filterwarnings("ignore:.*takes its place:UserWarning")

BASE = RunOptions(loss="NormSoftmax", steps=2, head_lr=0.1)
TUNED = RunOptions(loss="SupCon", steps=4, init_from="base")
RUNS = {"base": BASE, "tuned": TUNED}


def facts(run: Path) -> dict[str, Any]:
    return json.loads((run / "config.json").read_text())


def first_loss(run: Path) -> float:
    return json.loads((run / "metrics.jsonl").read_text().splitlines()[0])["loss"]


def loss_of(model: torch.nn.Module, shards: Path, run: RunOptions, seed: int = 0) -> float:
    """Loss of a model on the first batch, written out."""
    options = small_options(seed=seed)
    data = TrainingData.read(shards, options)
    images, labels, *_ = next(feed_batches(data, model.config, options, range(1)))
    torch.manual_seed(step_seed(seed, 0, "model"))
    embeddings = model.train()(normalise(images, model.config))
    return float(build_loss(run, data.class_labels, 8, seed)(embeddings, labels).detach())


def crash_in_tuned(step: int) -> Callable[..., Iterator[object]]:
    def sink(items: Any, label: str, total: int | None, done: int) -> Iterator[object]:
        for number, item in enumerate(items):
            if label == "Training tuned from base" and number == step:
                raise RuntimeError("as if the power went")
            yield item

    return sink


def test_a_run_starts_from_the_final_weights_of_the_other(train, shards: Path) -> None:
    with heard() as said:
        models = train(RUNS)
    expected = loss_of(load_model(models / "base"), shards, TUNED)
    assert first_loss(models / "tuned") == pytest.approx(expected, rel=1e-5)
    assert expected != pytest.approx(loss_of(build_image_model(small_options()), shards, TUNED))
    assert "tuned: starts from base" in said
    assert facts(models / "tuned")["init_sha256"] == facts(models / "base")["sha256"]
    assert "init_sha256" not in facts(models / "base")


def test_each_seed_starts_from_its_own_model(train, shards: Path) -> None:
    models = train(RUNS, seeds=(3, 0))
    for seed in (3, 0):
        expected = loss_of(load_model(models / f"base-s{seed}"), shards, TUNED, seed)
        assert first_loss(models / f"tuned-s{seed}") == pytest.approx(expected, rel=1e-5)
    assert facts(models / "tuned-s3")["recipe"] == facts(models / "tuned-s0")["recipe"]


def test_a_run_that_was_killed_resumes_in_the_same_bytes_and_does_not_start_again(
    train, tmp_path: Path
) -> None:
    """An epoch has two steps, so the third is in the middle of one."""
    whole = train(RUNS, out=tmp_path / "whole")
    with watched_by(crash_in_tuned(3)), pytest.raises(RuntimeError):
        train(RUNS, checkpoint_steps=1)
    with heard() as said:
        cut = train(RUNS, checkpoint_steps=1)
    assert not [line for line in said if "starts from" in line or "starts again" in line]
    assert visible(cut / "tuned") == visible(whole / "tuned")


def test_a_changed_start_trains_the_run_again_and_an_unchanged_one_does_not(
    train, tmp_path: Path
) -> None:
    models = train(RUNS)
    before = (models / "tuned" / "model.safetensors").stat().st_mtime_ns
    train({**RUNS, "other": RunOptions(steps=0)})
    assert (models / "tuned" / "model.safetensors").stat().st_mtime_ns == before
    changed = {**RUNS, "base": BASE.model_copy(update={"head_lr": 0.2})}
    fresh = train(changed, out=tmp_path / "fresh")
    assert visible(train(changed) / "tuned") == visible(fresh / "tuned")


def test_a_start_with_the_same_options_but_other_weights_trains_the_run_again(train) -> None:
    """As after damaged images of the start were restored, or on a GPU, which rounds otherwise."""
    models = train(RUNS)
    before = visible(models / "tuned")
    model = load_model(models / "base")
    with torch.no_grad():
        model.head.weight.mul_(1.5)
    save_model(model, models / "base", facts(models / "base"))
    with heard() as said:
        train(RUNS)
    why = "tuned: its checkpoint at step 4 started from other weights of base; it starts again"
    assert why in said
    assert visible(models / "tuned") != before


def test_the_name_of_the_start_is_not_a_part_of_the_model(train, tmp_path: Path) -> None:
    models = train(RUNS)
    renamed = {"first": BASE, "tuned": TUNED.model_copy(update={"init_from": "first"})}
    other = train(renamed, out=tmp_path / "other")
    found = [facts(out / "tuned")["made_from"] for out in (models, other)]
    assert found[0] == found[1]


def test_a_run_starts_from_the_folder_of_a_model_elsewhere(train, tmp_path: Path) -> None:
    models = train(RUNS)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(models / "base", elsewhere)
    tuned = TUNED.model_copy(update={"init_from": str(elsewhere)})
    out = tmp_path / "out"
    train({"tuned": tuned}, out=out)
    for file in ("model.safetensors", "metrics.jsonl"):
        assert (out / "tuned" / file).read_bytes() == (models / "tuned" / file).read_bytes()
    assert facts(out / "tuned")["run"]["init_from"] == "elsewhere"
    before = (out / "tuned" / "model.safetensors").read_bytes()
    model = load_model(elsewhere)
    with torch.no_grad():
        model.head.weight.mul_(1.5)
    save_model(model, elsewhere, facts(elsewhere))
    train({"tuned": tuned}, out=out)
    assert (out / "tuned" / "model.safetensors").read_bytes() != before


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"dim": 4}, UsageError, r"base: its dim is 8, but 4 here; set train\.dim to that of"),
        (
            {"backbone": "test_vit"},
            UsageError,
            r"its architecture is test_resnet, but test_vit here; set train\.backbone",
        ),
        ({"pooling": "gem"}, UsageError, r"its pooling is default, but gem here; set train\.pool"),
        (None, InvalidData, r"/nothing/config\.json: no such file"),
    ],
)
def test_a_folder_that_cannot_be_the_start_is_one_clear_line_before_anything_trains(
    train, tmp_path: Path, changes: dict[str, object] | None, error: type[HgldError], says: str
) -> None:
    elsewhere = train({"base": BASE}, out=tmp_path / "elsewhere") / "base"
    folder = elsewhere if changes else tmp_path / "nothing"
    tuned = TUNED.model_copy(update={"init_from": str(folder)})
    with pytest.raises(error, match=rf"^train\.runs\.tuned\.init_from: [^\n]*{says}[^\n]*$"):
        train({"first": BASE, "tuned": tuned}, **(changes or {}))
    assert not (tmp_path / "models" / "first").exists()


def test_the_folder_of_a_run_that_is_trained_here_is_refused(train, tmp_path: Path) -> None:
    models = train({"tuned": BASE})
    before = visible(models / "tuned")
    itself = TUNED.model_copy(update={"init_from": str(models / "tuned")})
    with pytest.raises(UsageError, match=r"tuned is tuned, which this pipeline trains; name"):
        train({"tuned": itself})
    assert visible(models / "tuned") == before


def test_a_start_trains_first_wherever_it_is_written() -> None:
    runs = {"a": {"init_from": "b"}, "c": {}, "b": {"init_from": "d"}, "d": {}}
    assert list(TrainOptions.model_validate({"runs": runs}).runs) == ["d", "b", "a", "c"]
    only = TrainOptions.model_validate({"runs": runs, "only": ["b"]})
    assert list(only.runs) == ["d", "b"]


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        (
            {"tuned": {"init_from": "bass"}, "base": {}},
            r"runs\.tuned\.init_from: unknown run 'bass'; did you mean 'base'\? \(there are "
            r"tuned, base; a folder is a path such as \./bass\)",
        ),
        ({"a": {"init_from": "a"}}, r"runs\.a\.init_from: a -> a leads back; name a run that"),
        (
            {"a": {"init_from": "b"}, "b": {"init_from": "c"}, "c": {"init_from": "b"}},
            r"runs\.c\.init_from: b -> c -> b leads back",
        ),
        (
            {"plain": {"steps": 0}, "a": {"init_from": "plain"}},
            r"runs\.a\.init_from: plain has 0 steps, so it is the pretrained backbone",
        ),
        (
            {"b": {}, "plain": {"steps": 0, "init_from": "b"}},
            r'plain has 0 steps, .*; set its steps, or init_from = "" for plain',
        ),
        ({"a": {"init_from": 3}}, r"runs\.a\.init_from\n  Input should be a valid string"),
    ],
)
def test_a_start_that_cannot_be_is_one_clear_line(runs: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TrainOptions.model_validate({"runs": runs})


def test_a_folder_is_relative_to_its_pipeline_file_and_its_content_decides(tmp_path: Path) -> None:
    """What ``hgld status`` says of it: a changed folder makes the stage stale."""
    file = tmp_path / "pipelines" / "mine.toml"
    file.parent.mkdir()
    file.write_text('labels = "labels"\n[train.runs.tuned]\ninit_from = "../models/base"\n')
    train = load_pipeline(file).train
    assert train.runs["tuned"].init_folder == tmp_path / "models" / "base"
    assert train.brought_paths() == {"runs.tuned.init_from": tmp_path / "models" / "base"}
    workspace = Workspace(file, load_pipeline(file), tmp_path)
    (stage,) = (s for s in active_stages(workspace.pipeline) if s.name == "train")
    lock = Lock(workspace)
    before = stage_options(stage, lock)
    (tmp_path / "models" / "base").mkdir(parents=True)
    (tmp_path / "models" / "base" / "model.safetensors").write_text("weights")
    after = stage_options(stage, lock)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"what train.runs.tuned.init_from holds"}
    assert after["train.runs.tuned.init_from"] == "../models/base"
