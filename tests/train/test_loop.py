import json
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from hgld.config import RunOptions, TrainOptions
from hgld.errors import HgldError, InvalidData, Resumable, UsageError
from hgld.model import build_image_model, load_model
from hgld.model.image import normalise
from hgld.shards.batches import step_seed
from hgld.shards.index import read_index
from hgld.tasks import watched_by
from hgld.train.data import TrainingData
from hgld.train.objective import build_loss
from hgld.train.runs import RunFolder
from hgld.words import duration_text
from tests.listening import heard
from tests.made_shards import feed_batches, small_options, visible

pytestmark = pytest.mark.filterwarnings("ignore:.*takes its place:UserWarning")

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

    def sink(items: Iterable[object], label: str, total: int | None, done: int) -> Iterator[object]:
        for step, item in enumerate(items):
            if label.startswith("Training") and step == number:
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
    images, labels, *_ = next(feed_batches(data, model.config, options, range(1)))
    torch.manual_seed(step_seed(0, 0, "model"))
    numbers = normalise(images, model.config)
    loss = build_loss(run, data.class_labels, 8, 0)(model(numbers), labels)
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
    least = -1 if loss == "CLCD" else 0  # it is the negative of cosines
    assert len(found) == 2 and all(least <= value < 300 for value in found)  # a scale of 64


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


MUCH_STATE = {  # all that a run may carry from step to step
    "memory_and_warm_up": (
        RunOptions(loss="ROADMAP", steps=6, memory=9, warmup_steps=3, min_lr=1e-6),
        {"pooling": "gem", "micro_batch": 4},
    ),
    "momentum_and_proxies_of_adam": (
        RunOptions(loss="NormSoftmax", steps=6, optimizer="sgd", schedule="step", milestones=(4,)),
        {"freeze_batch_norm": False},
    ),
    "fp16_scale": (RunOptions(loss="HAPPIER", steps=6), {"precision": "fp16"}),
    "whitened_head": (
        RunOptions(loss="SupHAP", steps=6, optimizer="adamw"),
        {"head_init": "pca_whitening", "head_norm": "l2", "dim": 4},
    ),
}


@pytest.mark.parametrize("name", MUCH_STATE)
def test_whatever_state_a_run_has_it_goes_on_to_the_same_bytes(train, tmp_path, name: str) -> None:
    run, options = MUCH_STATE[name]
    options = {**options, "checkpoint_steps": 1}
    whole = train({"run": run}, out=tmp_path / "whole", **options)
    for step in (1, 2, 1):  # after steps 1, 3 and 4
        with watched_by(before_step(step, crash)), pytest.raises(RuntimeError):
            train({"run": run}, out=tmp_path / "cut", **options)
    cut = train({"run": run}, out=tmp_path / "cut", **options)
    for file in ("model.safetensors", "config.json", "metrics.jsonl"):
        assert (cut / "run" / file).read_bytes() == (whole / "run" / file).read_bytes()
    states = [torch.load(m / "run" / ".checkpoint.pt", weights_only=True) for m in (whole, cut)]
    assert states[0].keys() == states[1].keys()
    assert states[0]["scaler"] == states[1]["scaler"]
    for left, right in zip(leaves(states[0]), leaves(states[1]), strict=True):
        assert torch.equal(left, right)


def leaves(state: object) -> Iterator[torch.Tensor]:
    """All tensors of a checkpoint."""
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for value in state.values() if isinstance(state, dict) else state:
            yield from leaves(value)


def test_the_backbone_stands_still_while_the_head_warms_up(train) -> None:
    run = RunOptions(loss="SmoothAP", steps=2, warmup_steps=2)
    model, start = load_model(train({"run": run}) / "run"), build_image_model(small_options())
    for name, value in start.named_parameters():
        assert torch.equal(model.get_parameter(name), value) == name.startswith("backbone")


def test_options_that_begin_only_after_the_last_step_are_reported(train) -> None:
    late = {"warmup_steps": 3, "memory": 8, "memory_start": 2, "schedule": "step"}
    with heard() as said:
        train({"run": RunOptions(loss="SmoothAP", steps=2, milestones=(2, 5), **late)})
    assert [line for line in said if line.endswith("and the run has 2 steps")] == [
        "run: the backbone does not train: warmup_steps is 3, and the run has 2 steps",
        "run: the memory is not used: memory_start is 2, and the run has 2 steps",
        "run: the learning rate never falls: milestones is 2, and the run has 2 steps",
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"milestones": (1,)}, 'milestones has no effect: it is of schedule = "step", not of "cos'),
        ({"schedule": "step", "milestones": (1,), "min_lr": 1e-5}, "min_lr has no effect: it is "),
        ({"schedule": "step"}, 'the learning rate never falls: schedule = "step" has no milestone'),
        ({"schedule": "step", "milestones": (1,)}, ""),
        ({"min_lr": 1e-5}, ""),
    ],
)
def test_options_of_another_schedule_are_reported(train, options: dict[str, Any], says) -> None:
    with heard() as said:
        train({"run": RunOptions(loss="SmoothAP", steps=2, **options)})
    found = [line for line in said if "schedule" in line]
    assert len(found) == bool(says) and all(line.startswith(f"run: {says}") for line in found)


def test_a_checkpoint_of_another_architecture_is_one_clear_line(train, tmp_path: Path) -> None:
    with watched_by(before_step(3, crash)), pytest.raises(RuntimeError):
        train({"run": SHORT}, checkpoint_steps=1)
    path = tmp_path / "models" / "run" / ".checkpoint.pt"
    state = torch.load(path, weights_only=True)
    state["model"]["head.weight"] = torch.zeros(16, 96)
    torch.save(state, path)
    with pytest.raises(InvalidData, match=r"\.checkpoint\.pt: holds the state of another archi"):
        train({"run": SHORT})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named_before_anything_is_changed(train, tmp_path) -> None:
    with pytest.raises(UsageError, match=r"device 'cuda': there is no GPU here"):
        train({"run": SHORT}, device="cuda")
    assert not (tmp_path / "models" / "run").exists()


@pytest.mark.parametrize("device", ["mps", "meta", "gpu"])
def test_a_device_that_is_neither_cpu_nor_gpu_is_refused(train, device: str) -> None:
    with pytest.raises(UsageError, match=rf"'{device}' is unknown; expected auto, cpu, cuda or "):
        train({"run": SHORT}, device=device)


@pytest.mark.parametrize("changes", [{"dim": 10**15}, {"dim": 10**18}, {"image_size": 10**7}])
def test_sizes_beyond_the_memory_are_one_clear_line(train, changes: dict[str, int]) -> None:
    with pytest.raises(HgldError, match=r"^out of memory with train\.dim = [^\n]*; lower one of"):
        train({"run": SHORT}, **changes)


@pytest.mark.parametrize(
    "run", [{"lr": 1e38}, {"min_lr": 1e300}, {"gamma": 1e300}, {"milestones": [10**25]}]
)
def test_numbers_that_overflow_in_a_step_are_refused(run: dict[str, Any]) -> None:
    most = 31 if "milestones" in run else 63  # a count, others are numbers
    expected = rf"{next(iter(run))}\n  .*expected a number below 2\^{most}"
    with pytest.raises(ValueError, match=expected):
        RunOptions(**run)


@pytest.mark.parametrize("option", ["seed", "dim", "image_size"])
def test_numbers_beyond_what_torch_can_hold_are_refused(option: str) -> None:
    expected = "Value error, expected a number below" if option == "dim" else "Input should be less"
    with pytest.raises(ValueError, match=rf"{option}\n  {expected}"):
        TrainOptions(**{option: 10**23})


def test_options_that_do_not_fit_the_labels_are_named_before_any_run_trains(train, tmp_path):
    wrong = RunOptions(loss="CSL", loss_options={"margins": (0.2, 0.3)})
    with pytest.raises(UsageError, match=r"CSL has 2 margins, but the labels have 3 levels"):
        train({"run": SHORT, "wrong": wrong})
    assert not (tmp_path / "models" / "run").exists()


def test_curves_for_tensorboard_go_on_where_a_run_was_stopped(train, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with watched_by(before_step(4, crash)), pytest.raises(RuntimeError):
        train({"run": SHORT}, checkpoint_steps=2, tensorboard=True)
    run = train({"run": SHORT}, checkpoint_steps=2, tensorboard=True) / "run"
    found = EventAccumulator(str(run / ".tensorboard")).Reload()
    points = found.Scalars("loss")
    assert [point.step for point in points] == [1, 2, 3, 4, 5, 6]
    assert [point.value for point in points] == pytest.approx(losses(run))


def test_the_pace_is_told_at_the_end_of_each_epoch_that_took_a_while(train, monkeypatch) -> None:
    seconds, slow = RunFolder.seconds, 1e5  # a step takes minutes

    def slowed(*args: Any) -> dict[str, float]:
        return {part: slow * taken for part, taken in seconds(*args).items()}

    monkeypatch.setattr(RunFolder, "seconds", slowed)
    with heard() as said:
        run = train({"run": RunOptions(steps=5)}) / "run"
    found = [
        re.fullmatch(
            r"run: epoch (\d), step (\d) of 5: (\S+) images/s; of the time data "
            r"(\d+) %, model (\d+) %, loss (\d+) %, optimizer (\d+) %; an epoch takes (.+)",
            line,
        )
        for line in said[1:]
    ]
    assert [(m[1], m[2]) for m in found] == [("1", "2"), ("2", "4"), ("3", "5")]
    assert all(abs(sum(int(m[i]) for i in (4, 5, 6, 7)) - 100) <= 1 for m in found)
    lines = [json.loads(line) for line in (run / ".timings.jsonl").read_text().splitlines()]
    parts = ("data_s", "model_s", "loss_s", "optimizer_s")
    # Another order of summing can round half a minute to another one.
    first, last = (seconds(RunFolder(run, ""), *steps)["all"] for steps in ((0, 2), (4, 5)))
    assert first == pytest.approx(sum(line[part] for line in lines[:2] for part in parts))
    assert last == pytest.approx(sum(lines[4][part] for part in parts))
    assert float(found[0][3]) == pytest.approx(2 * 6 / (slow * first), rel=0.01)
    assert found[0][8] == duration_text(slow * first)
    assert found[2][8] == duration_text(slow * 2 * last)  # of two steps


@pytest.mark.parametrize("workers", [0, 2])
def test_replaced_images_stand_in_the_config_also_of_a_run_that_was_stopped(
    train, harmed, tmp_path: Path, workers: int
) -> None:
    shards, keys = harmed
    options = {"shards": shards, "undecodable_budget": 2, "checkpoint_steps": 1}
    whole = train({"run": SHORT}, out=tmp_path / "whole", **options)
    found = json.loads((whole / "run" / "config.json").read_text())["undecodable"]
    assert found["images"] == 2 and sorted(found["keys"]) == keys
    with watched_by(before_step(2, crash)), pytest.raises(RuntimeError):
        train({"run": SHORT}, out=tmp_path / "cut", workers=workers, **options)
    with heard() as said:
        cut = train({"run": SHORT}, out=tmp_path / "cut", workers=workers, **options)
    assert not [line for line in said if "is damaged" in line]  # it was said before
    assert visible(cut / "run") == visible(whole / "run")


def test_a_replacement_is_remembered_under_its_own_row(train, harmed) -> None:
    shards, _ = harmed
    run = RunOptions(loss="ROADMAP", steps=1, memory=6)
    models = train({"run": run}, shards=shards, undecodable_budget=2)
    state = torch.load(models / "run" / ".checkpoint.pt", weights_only=True)
    (damaged,) = state["undecodable"]["rows"]
    ids = state["memory"]["ids"].tolist()
    assert len(ids) == 6 and damaged not in ids


def test_steps_that_fp16_leaves_out_are_reported(train) -> None:
    said: list[str] = []
    with watched_by(None, said.append):
        models = train({"run": SHORT}, precision="fp16", checkpoint_steps=2)
    state = torch.load(models / "run" / ".checkpoint.pt", weights_only=True)
    found = [re.match(r"run: (\d) steps? up to step (\d) changed nothing: ", line) for line in said]
    assert sum("fp16 is many times slower on a CPU" in line for line in said) == 1
    counts = {int(line[2]): int(line[1]) for line in found if line}
    assert counts and counts.keys() <= {2, 4, 6}
    assert state["scaler"]["scale"] == 2.0 ** (16 - sum(counts.values()))  # each halves the scale


@pytest.mark.parametrize("finished", [True, False])
def test_a_model_that_missed_damaged_images_is_trained_again_once_they_are_whole(
    train, harmed, shards: Path, tmp_path: Path, finished: bool
) -> None:
    runs, options = {"run": SHORT}, {"shards": harmed[0], "undecodable_budget": 2}
    if finished:
        train(runs, **options)
        before = visible(tmp_path / "models" / "run")
        assert visible(train(runs, **options) / "run") == before
    else:
        with watched_by(before_step(4, crash)), pytest.raises(RuntimeError):
            train(runs, checkpoint_steps=1, **options)
    for tar in shards.glob("*.tar"):
        (harmed[0] / tar.name).write_bytes(tar.read_bytes())
    with heard() as said:
        healed = train(runs, **options)
    assert visible(healed / "run") == visible(train(runs, out=tmp_path / "new") / "run")
    healed_now = "run: 2 images that were damaged when it was trained are undamaged now; it starts"
    assert healed_now in str(said)


def test_the_budget_is_not_new_after_a_resume(train, harmed) -> None:
    runs, options = {"run": RunOptions(steps=2)}, {"shards": harmed[0], "checkpoint_steps": 1}
    with watched_by(before_step(1, crash)), pytest.raises(RuntimeError):
        train(runs, undecodable_budget=1, **options)
    for _ in range(2):
        with pytest.raises(InvalidData, match="2 undecodable images; undecodable_budget allows 1"):
            train(runs, undecodable_budget=1, **options)
    train(runs, undecodable_budget=2, **options)


@pytest.mark.parametrize("step", [4, 6])  # the last one, too
def test_a_request_to_stop_saves_and_says_how_to_go_on(train, tmp_path: Path, step: int) -> None:
    handler, says = signal.getsignal(signal.SIGTERM), f"after step {step} of 6"
    with watched_by(before_step(step - 1, stop)), pytest.raises(Resumable, match=says):
        train({"run": SHORT}, out=tmp_path / "cut")
    assert signal.getsignal(signal.SIGTERM) == handler
    assert not (tmp_path / "cut" / "run" / "config.json").exists()
    cut = train({"run": SHORT}, out=tmp_path / "cut")
    whole = train({"run": SHORT}, out=tmp_path / "whole")
    for file in ("model.safetensors", "config.json"):
        assert (cut / "run" / file).read_bytes() == (whole / "run" / file).read_bytes()


def test_ctrl_c_while_the_last_checkpoint_is_saved_is_a_request_to_stop(
    train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = RunFolder.save

    def save_and_interrupt(*given: Any) -> None:
        save(*given)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(RunFolder, "save", save_and_interrupt)
    with pytest.raises(Resumable, match="was stopped after step 6 of 6"):
        train({"run": SHORT}, out=tmp_path / "cut")
    cut = train({"run": SHORT}, out=tmp_path / "cut")
    assert len(losses(cut / "run")) == 6


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


def test_a_model_that_is_not_asked_for_stays_and_is_named(train) -> None:
    models = train({"a": RunOptions(steps=0), "b": RunOptions(steps=0)})
    before, said = (models / "a" / "model.safetensors").read_bytes(), list[str]()
    with watched_by(None, said.append):
        train({"b": RunOptions(steps=0)})
    assert (models / "a" / "model.safetensors").read_bytes() == before
    assert json.loads((models / "runs.json").read_text()) == {"runs": ["b"]}
    assert "models/: not in train.runs, left as they are: a; " in " ".join(said)
    with watched_by(None, said.append):
        train({"a": RunOptions(steps=0)}, only=("a",))
    assert "models/: not in train.only, left as they are: b; " in " ".join(said)


def test_runs_are_listed_in_the_order_they_are_asked_for(train) -> None:
    models = train({"b": RunOptions(steps=0), "a": RunOptions(steps=0)})
    assert json.loads((models / "runs.json").read_text()) == {"runs": ["b", "a"]}


def test_a_run_is_trained_with_each_seed_as_if_it_were_the_only_one(train, tmp_path: Path) -> None:
    runs = {"plain": RunOptions(steps=0), "a": RunOptions(loss="HAPPIER", steps=2)}
    models = train(runs, seeds=(3, 0))
    assert json.loads((models / "runs.json").read_text()) == {
        "runs": ["plain", "a-s3", "a-s0"],
        "seeds": {"a": ["a-s3", "a-s0"]},
    }
    for seed in (3, 0):
        alone = train({"a": runs["a"]}, out=tmp_path / f"alone {seed}", seed=seed)
        assert visible(models / f"a-s{seed}") == visible(alone / "a")


def test_models_of_one_run_name_one_recipe(train) -> None:
    """By it a comparison knows that two models differ in their seeds alone."""
    runs = {"a": RunOptions(loss="HAPPIER", steps=1), "b": RunOptions(loss="SupAP", steps=1)}
    models = train(runs, seeds=(0, 1))
    names = ("a-s0", "a-s1", "b-s0")
    configs = [json.loads((models / name / "config.json").read_text()) for name in names]
    first, second, other = (config["recipe"] for config in configs)
    assert first == second != other


def test_a_run_of_another_seed_is_added_without_training_the_first_again(train) -> None:
    run = RunOptions(loss="HAPPIER", steps=2)
    models = train({"a": run}, seeds=(0,))
    before = (models / "a-s0" / "model.safetensors").stat().st_mtime_ns
    train({"a": run}, seeds=(0, 1))
    assert (models / "a-s0" / "model.safetensors").stat().st_mtime_ns == before
    assert losses(models / "a-s1") != losses(models / "a-s0")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seeds": [1, 1]}, "seeds names a seed twice"),
        ({"seeds": [1], "runs": {"a": {}, "a-s1": {"steps": 0}}}, "two models .* called a-s1"),
    ],
)
def test_seeds_that_give_two_models_one_name_are_refused(
    options: dict[str, object], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        TrainOptions.model_validate(options)


def test_a_loss_that_is_no_number_stops_and_keeps_the_keys_of_its_batch(train, tmp_path, shards):
    run = RunOptions(steps=6, lr=1e18, head_lr=1e18)
    with pytest.raises(HgldError, match=r"the loss of step 2 is nan; the keys of its 6 images"):
        train({"run": run})
    kept = json.loads((tmp_path / "models" / "run" / "bad_batch.json").read_text())
    assert kept["step"] == 2 and len(kept["keys"]) == 6
    assert set(kept["keys"]) <= set(read_index(shards)["key"])


def test_a_bad_batch_that_passes_after_a_resume_leaves_no_file(train, tmp_path: Path) -> None:
    whole = train({"run": SHORT}, out=tmp_path / "whole")
    with watched_by(before_step(4, crash)), pytest.raises(RuntimeError):
        train({"run": SHORT}, checkpoint_steps=2)
    kept = tmp_path / "models" / "run" / "bad_batch.json"
    kept.write_text('{"step": 5, "keys": ["a"]}')  # as after a fault of a GPU
    assert visible(train({"run": SHORT}, checkpoint_steps=2) / "run") == visible(whole / "run")


def test_a_split_without_samples_names_those_there_are(train) -> None:
    with pytest.raises(
        UsageError, match=r"'dev' has no samples; the shards hold evaluation, index"
    ):
        train({"run": SHORT}, split="dev")


def test_untrained_runs_need_no_samples_of_their_split(train) -> None:
    models = train({"run": RunOptions(steps=0)}, split="dev")
    config = json.loads((models / "run" / "config.json").read_text())
    assert config["classes"] == 0


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
    parts = ("data_s", "model_s", "loss_s", "optimizer_s")
    assert lines[0].keys() == {"step", *parts}
    assert all(0 <= line[name] < 60 for line in lines for name in parts)
    assert any(line["optimizer_s"] for line in lines)


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
