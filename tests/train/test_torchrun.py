"""Training by several processes on a folder of photos, started by torchrun or as torchrun does."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from hgld.cli import app, guarded
from hgld.config import SamplingOptions, load_pipeline
from hgld.shards.batches import BatchPlan
from hgld.train import train_models
from hgld.train.data import TrainingData, batch_options
from tests.made_shards import harm, make_context, small_options
from tests.object_store import free_port
from tests.ranks import run_ranks, run_to_end
from tests.train.stopped_training import train as train_and_stop
from tests.warm import Command, Script, hgld

pytestmark = pytest.mark.slow

PIPELINE = """
labels = "labels"
[source]
kind = "folder"
folder = "photos"
[label]
source = "folder"
[export]
licenses = ["unknown"]
[train]
backbone = "test_resnet"
pretrained = false
freeze_batch_norm = true
dim = 8
image_size = 32
classes_per_batch = 2
images_per_class = 2
checkpoint_steps = 1000
device = "cpu"
[train.runs.run]
loss = "ROADMAP"
memory = 6
steps = 4
warmup_steps = 2
"""
IN_LANES = SamplingOptions(order="shards", window=4, lanes=2)
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline file, exported up to its shards in work/."""
    folder = tmp_path_factory.mktemp("torchrun")
    random = np.random.default_rng(0)
    lines = ["path,group,species,split"]
    (folder / "photos").mkdir()
    for number in range(12):
        colour = 60 * (number // 4) + random.integers(0, 60, (36, 36, 3))
        Image.fromarray(colour.astype(np.uint8)).save(folder / "photos" / f"{number}.jpg")
        lines.append(f"{number}.jpg,g{number // 8},s{number // 4},train")
    (folder / "photos" / "labels.csv").write_text("\n".join(lines) + "\n")
    (folder / "pipeline.toml").write_text(PIPELINE)
    run_alone(folder, "run", "--until", "export")
    return folder / "pipeline.toml"


def words(folder: Path, verb: str, *more: str) -> list[str]:
    return [verb, str(folder / "pipeline.toml"), "--work", str(folder / "work"), *more]


def run_alone(folder: Path, verb: str, *more: str) -> str:
    done = hgld(folder, *words(folder, verb, *more))
    done.check_returncode()
    return done.stderr


def train(folder: Path, *settings: str) -> list[str]:
    given = [word for setting in settings for word in ("--set", setting)]
    return ["-m", "hgld", *words(folder, "train", *given)]


ONE_MACHINE = ("--standalone", "--nproc_per_node", "2")


def torchrun(
    folder: Path, *settings: str, how: Sequence[str] = ONE_MACHINE
) -> "subprocess.Popen[str]":
    words = ["-m", "torch.distributed.run", *how, *train(folder, *settings)]
    return Script(words, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)


def said(text: str) -> list[str]:
    """What hgld said, without what torchrun says."""
    return [line for line in text.splitlines() if line.startswith(("hgld", "train", "   "))]


def ranks_of(launcher: "subprocess.Popen[str]") -> list[int]:
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text()
    return [int(child) for child in children.split()]


def wait_for(path: Path, lines: int) -> None:
    for _ in range(3000):
        if path.is_file() and len(path.read_text().splitlines()) >= lines:
            return
        time.sleep(0.1)
    raise AssertionError(f"{path} never had {lines} lines")


def losses(folder: Path) -> Sequence[float]:
    lines = (folder / "work" / "models" / "run" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def test_two_processes_train_the_model_of_one_and_one_of_them_speaks(pipeline: Path) -> None:
    folder = pipeline.parent
    alone = run_alone(folder, "train")
    expected, weights = losses(folder), folder / "work" / "models" / "run" / "model.safetensors"
    before = load_file(weights)
    (folder / "work" / "models" / "run" / "config.json").unlink()
    (folder / "work" / "models" / "run" / ".checkpoint.pt").unlink()
    told = said(run_to_end(2, *train(folder)))
    assert losses(folder) == pytest.approx(expected, rel=1e-4)
    for name, value in load_file(weights).items():
        torch.testing.assert_close(value, before[name], rtol=1e-3, atol=1e-4)
    assert len(told) == len(said(alone)) + 1  # why it is trained again
    again = run_to_end(2, *train(folder), "--force")  # finished: nobody is left waiting for orders
    assert said(again)[0] == "train     asked for"


def test_two_machines_over_a_rendezvous_train_the_model_of_one(pipeline: Path) -> None:
    folder = pipeline.parent
    run_alone(folder, "train", "--force")
    expected = losses(folder)
    (folder / "work" / "models" / "run" / "config.json").unlink()
    (folder / "work" / "models" / "run" / ".checkpoint.pt").unlink()
    place = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
    how = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=7", place]
    machines = [torchrun(folder, how=how) for _ in range(2)]
    texts = [machine.communicate(timeout=300)[1] for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], texts
    assert losses(folder) == pytest.approx(expected, rel=1e-4)
    assert sorted(bool(said(text)) for text in texts) == [False, True]  # rank 0 alone reports


def test_a_request_to_stop_on_one_rank_stops_all_with_a_checkpoint(pipeline: Path) -> None:
    folder = pipeline.parent
    run = folder / "work" / "models" / "run"
    shutil.rmtree(run, ignore_errors=True)
    thawed = "train.freeze_batch_norm=false"
    launcher = torchrun(folder, "train.runs.run.steps=100000", thawed)
    wait_for(run / ".timings.jsonl", 2)
    os.kill(ranks_of(launcher)[1], signal.SIGTERM)
    text = launcher.communicate(timeout=300)[1]
    assert len([line for line in said(text) if "was stopped after step" in line]) == 1
    assert text.count("batch-norm is not frozen") == 1
    assert text.count("exitcode  : 75") == 2  # both, as torchrun tells it
    state = torch.load(run / ".checkpoint.pt", weights_only=True)
    assert state["step"] == len(losses(folder)) > 0


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_request_to_stop_that_reaches_the_loading_processes_too_leaves_a_checkpoint(
    pipeline: Path, ending: signal.Signals
) -> None:
    folder = pipeline.parent
    run = folder / "work" / "models" / "run"
    shutil.rmtree(run, ignore_errors=True)
    endless = ("--set", "train.runs.run.steps=100000", "--set", "train.workers=2")
    process = Command(
        words(folder, "train", *endless), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        wait_for(run / ".timings.jsonl", 2)
        os.killpg(process.pid, ending)
        text = process.communicate(timeout=300)[1]
    finally:
        process.kill()
    assert process.returncode == 75 and "was stopped after step" in text.splitlines()[-1], text
    state = torch.load(run / ".checkpoint.pt", weights_only=True)
    assert state["step"] == len(losses(folder)) > 0


def test_two_processes_that_stop_in_an_epoch_are_resumed_by_four(
    shards: Path, tmp_path: Path
) -> None:
    """Each loss is that of the whole batch, so equal losses show equal batches."""
    script = Path(__file__).parent / "stopped_training.py"
    words = [script, shards, tmp_path / "cut", "stream"]
    train_and_stop(shards, tmp_path / "whole", "indexed")
    assert [rank.returncode for rank in run_ranks(2, *words, "5")] == [1, 1]
    folders = [tmp_path / name / "run" for name in ("whole", "cut")]
    data = TrainingData.read(shards, small_options())
    options = batch_options(small_options(classes_per_batch=2, batches=IN_LANES))
    epoch = BatchPlan(data.samples, options, seed=0).steps_of(0)
    done = torch.load(folders[1] / ".checkpoint.pt", weights_only=True)["step"]
    assert done == 5 and done % len(epoch) != 0
    run_to_end(4, *words)
    lines = [(folder / "metrics.jsonl").read_text().splitlines() for folder in folders]
    whole, cut = ([json.loads(line)["loss"] for line in found] for found in lines)
    assert len(whole) == 8 and cut == pytest.approx(whole, rel=1e-4)
    ends = [load_file(folder / "model.safetensors") for folder in folders]
    for name, value in ends[0].items():
        torch.testing.assert_close(ends[1][name], value, rtol=1e-3, atol=1e-4)


def test_two_processes_start_from_the_same_model_as_one(pipeline: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(pipeline.parent, tmp_path / "own"))
    started = "run={loss='SupCon',steps=3,init_from='base'}"
    runs = f"train.runs={{{started},base={{loss='NormSoftmax',steps=2,head_lr=0.1}}}}"
    text = run_to_end(2, *train(folder, runs))
    assert text.count("run: starts from base") == 1
    train_models(
        folder / "work" / "shards",
        options=load_pipeline(folder / "pipeline.toml", [runs]).train,
        context=make_context(tmp_path),
        out=tmp_path / "work" / "models",
    )
    assert losses(folder) == pytest.approx(losses(tmp_path), rel=1e-4)
    configs = [
        json.loads((folder / "work" / "models" / name / "config.json").read_text())
        for name in ("base", "run")
    ]
    assert configs[1]["init_sha256"] == configs[0]["sha256"]


def harm_first_batch(folder: Path) -> list[str]:
    """Damage an image of each rank's part of the first step; their keys."""
    options = load_pipeline(folder / "pipeline.toml").train
    data = TrainingData.read(folder / "work" / "shards", options)
    plan = BatchPlan(data.samples, batch_options(options), seed=options.seed)
    rows = plan.at(0).rows[[0, 3]]
    return [str(harm(data.folder, int(row))["key"]) for row in rows]


def test_the_budget_of_damaged_images_is_that_of_all_ranks_and_one_speaks(
    pipeline: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(pipeline.parent, tmp_path / "harmed"))
    keys = harm_first_batch(folder)
    (folder / "work" / "lock.json").unlink()  # rot below the file system changes no time either
    once = "train.runs.run.steps=1"
    ranks = run_ranks(2, *train(folder, once, "train.undecodable_budget=1"))
    text = "".join(rank.stderr for rank in ranks)
    assert text.count("2 undecodable images; undecodable_budget allows 1") == 1, text
    assert [rank.returncode for rank in ranks] == [3, 3]
    text = run_to_end(2, *train(folder, once, "train.undecodable_budget=2"))
    assert [text.count(f"{key}: is damaged; another image") for key in keys] == [1, 1]
    config = json.loads((folder / "work" / "models" / "run" / "config.json").read_text())
    assert sorted(config["undecodable"]["keys"]) == sorted(keys)
    checkpoint = folder / "work" / "models" / "run" / ".checkpoint.pt"
    state = torch.load(checkpoint, weights_only=True)
    remembered = state["memory"]["ids"].tolist()  # a replacement by its own number, on all ranks
    assert len(remembered) == 4 and not {*remembered} & {*state["undecodable"]["rows"]}


@pytest.mark.parametrize(
    ("verb", "instead"),
    [
        ("run", "first `hgld run PIPELINE --until export`"),
        ("evaluate", "--set evaluate.processes=N, or --set evaluate.ray=ADDRESS on a cluster"),
        ("report", "run `hgld report"),
    ],
)
def test_torchrun_of_anything_but_training_is_refused(
    pipeline: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    instead: str,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert guarded(lambda: app(words(pipeline.parent, verb))) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "torchrun starts one stage, train" in line
    assert instead in line
