"""A step's gradient, by every road that should lead to the same one.

Two processes with half of the batch each, and one process that embeds it in small parts, have to
find what one process with one big batch finds: in float64, for every loss, proxies included.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from hgld.config import LossName, RunOptions, TrainOptions
from hgld.errors import HgldError
from hgld.model import ImageModel, build_image_model
from hgld.ranking.rank_loss import takes_references
from hgld.tasks import watched_by
from hgld.train.learner import Learner, NotANumber
from hgld.train.objective import build_loss
from hgld.train.ranks import ALONE, Ranks
from tests.listening import heard
from tests.ranks import run_to_end

LABELS = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]])
OPTIONS = TrainOptions(
    backbone="test_resnet", pretrained=False, dim=8, image_size=32, freeze_batch_norm=True
)
ROWS = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
Gradients = dict[str, Tensor]


def images(seed: int = 0) -> Tensor:
    return torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(seed)).double()


def pixels() -> Tensor:
    return (255 * images()).to(torch.uint8)


@cache
def model_of_options() -> ImageModel:
    return build_image_model(OPTIONS).double()


def learner_of(run: RunOptions, ranks: Ranks = ALONE, **changes: Any) -> Learner:
    options = OPTIONS.model_copy(update=changes)
    model = deepcopy(model_of_options())
    model.config = replace(model.config, freeze_batch_norm=bool(options.freeze_batch_norm))
    model.train()
    criterion = build_loss(run, LABELS, model.dim, 0).double()
    return Learner(model, criterion, 3, options, run, ranks)


def gradients(run: RunOptions, ranks: Ranks = ALONE, **changes: Any) -> Gradients:
    """Gradients of the second of two batches; a memory holds the first by then."""
    learner = learner_of(run, ranks, **changes)
    labels = torch.from_numpy(LABELS[ROWS])
    for seed in (0, 1):
        ids = 8 * seed + torch.arange(8)
        loss = learner.differentiate(images(seed)[ranks.slice_of(8)], labels, ids)
    named = [*learner.model.named_parameters(), *learner.criterion.named_parameters("proxies")]
    return {name: p.grad for name, p in named} | {"loss": torch.tensor(loss)}


def runs() -> Iterator[RunOptions]:
    """Every loss, and with a memory those that take one."""
    for name in get_args(LossName):
        run = RunOptions(loss=name)
        yield run
        if takes_references(build_loss(run, LABELS, 8, 0)):
            yield RunOptions(loss=name, memory=12)
    yield RunOptions(loss="ROADMAP", loss_options={"calibration": "pair"}, memory=12)


def name_of(run: RunOptions) -> str:
    return f"{run.loss}{'-memory' if run.memory else ''}{'-pair' if run.loss_options else ''}"


def of_two_processes(folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, found = torch.distributed.get_rank(), {}
    for run in runs():
        for micro_batch in (None, 3):
            found[name_of(run), micro_batch] = gradients(
                run, Ranks(rank, 2), micro_batch=micro_batch
            )
    torch.save(found, Path(folder) / f"rank{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Gradients]]:
    """What each of two processes found."""
    folder = tmp_path_factory.mktemp("ranks")
    code = f"from {__name__} import of_two_processes; of_two_processes({str(folder)!r})"
    run_to_end(2, "-c", code)
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


def assert_same(found: Gradients, expected: Gradients) -> None:
    """Equal to 1e-10 of the largest entry of each gradient."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        size = float(value.abs().max())
        torch.testing.assert_close(found[name], value, rtol=1e-10, atol=1e-10 * size, msg=name)


@pytest.mark.parametrize("run", [*runs()], ids=name_of)
def test_parts_of_a_batch_find_the_gradients_of_the_whole(run) -> None:
    expected = gradients(run)
    assert any(g.abs().max() > 1e-9 for n, g in expected.items() if n.startswith("backbone"))
    assert_same(gradients(run, micro_batch=3), expected)


@pytest.mark.slow
@pytest.mark.parametrize("run", [*runs()], ids=name_of)
def test_processes_find_the_gradients_of_one(together, run) -> None:
    expected = gradients(run)
    for micro_batch in (None, 3):
        for found in together:
            assert_same(found[name_of(run), micro_batch], expected)


def test_a_memory_changes_the_gradient() -> None:
    plain, remembered = (gradients(RunOptions(loss="SupAP", memory=m)) for m in (0, 12))
    assert not torch.allclose(plain["head.weight"], remembered["head.weight"])


@pytest.mark.parametrize("name", ["SupCon", "SmoothRecall", "XBMContrastive"])
def test_copies_of_an_image_pull_each_other_with_an_empty_memory_as_without_one(name: str) -> None:
    """A class of one image comes twice in a batch where small classes repeat their images."""
    labels = torch.from_numpy(LABELS[ROWS])
    alone, remembered = (
        learner_of(RunOptions(loss=name, memory=memory)).differentiate(images(), labels, ROWS)
        for memory in (0, 12)
    )
    assert remembered == pytest.approx(alone, abs=1e-12)


def test_parts_of_a_batch_have_statistics_of_their_own_unless_they_are_frozen() -> None:
    def told(**changes: Any) -> list[str]:
        with heard() as said:
            learner_of(RunOptions(loss="SupAP"), micro_batch=3, **changes)
        return said

    (line,) = told(freeze_batch_norm=False)
    assert line.startswith("batch-norm is not frozen: it takes its statistics from 3 images at a")
    assert not told() and not told(freeze_batch_norm=False, classes_per_batch=3, images_per_class=1)


def test_processes_and_parts_give_one_notice_of_their_statistics(monkeypatch) -> None:
    monkeypatch.setattr(Ranks, "parallel", lambda self, model: model)
    said: list[str] = []
    shape = {"classes_per_batch": 3, "images_per_class": 2, "freeze_batch_norm": False}
    for micro_batch in (None, 2):
        with watched_by(None, said.append):
            run, ranks = RunOptions(loss="SupAP"), Ranks(size=2)
            learner_of(run, ranks, micro_batch=micro_batch, **shape)
    assert [text.partition(" images at")[0][-2:] for text in said] == [" 3", " 2"]


def test_the_mean_of_two_losses_has_the_mean_of_their_gradients() -> None:
    memory = {"memory": 12}
    alone, joint, mean = (
        gradients(RunOptions(loss="SupAP", **options))
        for options in ({}, memory, memory | {"memory_loss": "mean"})
    )
    for name, gradient in mean.items():
        torch.testing.assert_close(gradient, (alone[name] + joint[name]) / 2)


def test_a_memory_that_starts_late_is_empty_until_then() -> None:
    run = RunOptions(loss="SupAP", memory=12, memory_start=2)
    learner = learner_of(run)
    for part in (learner.model, learner.criterion, learner.memory):
        part.float()
    kept = []
    for step in range(4):
        learner.learn(step, pixels(), torch.from_numpy(LABELS[ROWS]), 8 * step + torch.arange(8))
        kept.append(len(learner.memory))
    assert kept == [0, 0, 8, 12]


def test_momentum_of_the_backbone_begins_after_the_warm_up() -> None:
    run = RunOptions(
        loss="SupAP", optimizer="sgd", lr=0.1, schedule="constant", warmup_steps=3, weight_decay=0
    )
    learner = learner_of(run)
    for part in (learner.model, learner.criterion):
        part.float()
    weight = next(learner.model.backbone.parameters())
    before = weight.detach().clone()
    for step in range(4):
        assert torch.equal(weight, before)
        learner.learn(step, pixels(), torch.from_numpy(LABELS[ROWS]), torch.arange(8))
    # Nesterov's first step is 1 + 0.9 times the gradient
    torch.testing.assert_close(weight.detach(), before - 0.1 * 1.9 * weight.grad)


@pytest.mark.parametrize("micro_batch", [None, 3])
def test_a_warm_up_computes_no_gradient_of_the_backbone(micro_batch: int | None) -> None:
    found = []
    for warmup_steps in (0, 1):
        learner = learner_of(
            RunOptions(loss="HAPPIER", warmup_steps=warmup_steps), micro_batch=micro_batch
        )
        for part in (learner.model, learner.criterion):
            part.float()
        recorded: list[bool] = []
        learner.model.backbone.register_forward_hook(
            lambda *given, to=recorded: to.append(given[2].requires_grad)
        )
        for step in range(2):
            learner.learn(step, pixels(), torch.from_numpy(LABELS[ROWS]), torch.arange(8))
            named = [*learner.model.named_parameters(), *learner.criterion.named_parameters()]
            grads = {name: p.grad.clone() for name, p in named if p.grad is not None}
            found.append((sum(recorded), grads))
    (first, every), (second, _), (none, warm), (later, after) = found
    assert (none, later) == (0, first) and second == 2 * first
    assert [n for n in every if n not in warm] == [n for n in every if n.startswith("backbone")]
    assert all(torch.equal(grad, every[name]) for name, grad in warm.items())
    assert after.keys() == every.keys()


@pytest.mark.parametrize("micro_batch", [None, 3])
@pytest.mark.parametrize("loss", ["SupAP", "NormSoftmax"])
def test_an_optimiser_of_the_backbone_alone_waits_for_the_warm_up(
    loss: LossName, micro_batch: int | None
) -> None:
    """Without a projection; GradScaler refuses an optimiser without gradients."""
    changes = {"dim": None, "precision": "fp16", "micro_batch": micro_batch}
    options = OPTIONS.model_copy(update=changes)
    run = RunOptions(loss=loss, optimizer="sgd", proxy_optimizer="adam", warmup_steps=1)
    model = build_image_model(options).train()
    learner = Learner(model, build_loss(run, LABELS, model.dim, 0), 3, options, run)
    before = deepcopy(model.state_dict())
    learner.learn(0, pixels(), torch.from_numpy(LABELS[ROWS]), torch.arange(8))
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name]), name


def test_one_graph_through_model_and_loss_gives_the_same() -> None:
    run = RunOptions(loss="HAPPIER")
    learner = learner_of(run)
    labels = torch.from_numpy(LABELS[ROWS])
    learner.criterion(learner.model(images(1)), labels).backward()
    named = [*learner.model.named_parameters(), *learner.criterion.named_parameters("proxies")]
    expected = {name: p.grad for name, p in named}
    found = gradients(run)
    assert_same({name: found[name] for name in expected}, expected)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_learns_nearly_the_same(precision: str) -> None:
    run = RunOptions(
        loss="NormSoftmax", optimizer="sgd", lr=0.1, head_lr=0.1, proxy_optimizer="sgd"
    )
    after = []
    for kind in ("float32", precision):
        learner = learner_of(run, precision=kind)
        learner.model.float()
        learner.criterion.float()
        before = learner.model.head.weight.detach().clone()
        for _ in range(20):  # fp16 leaves steps out until its scale fits
            learner.learn(0, pixels(), torch.from_numpy(LABELS[ROWS]), torch.arange(8))
            if not torch.equal(learner.model.head.weight, before):
                break
        after.append(learner.model.head.weight.detach() - before)
    assert 0 < float((after[0] - after[1]).norm()) < 0.1 * float(after[0].norm())


def test_a_batch_without_a_number_changes_nothing() -> None:
    learner = learner_of(RunOptions(memory=4))
    learner.model.float()
    learner.criterion.float()
    with torch.no_grad():
        learner.model.head.bias[3] = float("nan")
    before = [p.detach().nan_to_num() for p in learner.model.parameters()]
    with pytest.raises(NotANumber):
        learner.learn(0, pixels(), torch.from_numpy(LABELS[ROWS]), torch.arange(8))
    after = [p.nan_to_num() for p in learner.model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert len(learner.memory) == 0


@pytest.mark.parametrize(("micro_batch", "helps"), [(None, 4), (3, 1)])
def test_short_memory_is_one_line_that_suggests_smaller_parts(micro_batch, helps) -> None:
    learner = learner_of(RunOptions(), micro_batch=micro_batch)
    learner.model.register_forward_pre_hook(lambda *_: torch.empty(1 << 60))  # really too much
    with pytest.raises(HgldError, match=rf"out of memory .* set train\.micro_batch = {helps} "):
        learner.learn(0, pixels(), torch.from_numpy(LABELS[ROWS]), torch.arange(8))


def test_a_fault_that_is_not_of_memory_stays_what_it_is() -> None:
    learner = learner_of(RunOptions())  # in float64, while images come in float32
    with pytest.raises(RuntimeError, match="type"):
        learner.learn(0, pixels(), torch.from_numpy(LABELS[ROWS]), torch.arange(8))
