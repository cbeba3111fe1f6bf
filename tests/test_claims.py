import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hgld.config import RunOptions
from hgld.ranking.losses import SmoothAP
from hgld.shards.batches import BatchOptions, BatchPlan, Samples
from hgld.train.objective import build_loss
from pipelines.claims.arms import Arm
from pipelines.claims.experiments import EXPERIMENTS, FINE_TUNED, Claim
from pipelines.claims.features import Photos, split_classes
from pipelines.claims.heads import Batches, measure_head, train_head
from pipelines.claims.measures import GAP, METRICS
from pipelines.claims.runs import Bench, Budget, Ledger
from pipelines.claims.verdicts import judge
from pipelines.record import claims_text

ARMS = {arm.name: arm for experiment in EXPERIMENTS for arm in experiment.arms}
SHORT = Budget(steps=3)
BUDGETS = {"head": EXPERIMENTS, "finetune": FINE_TUNED}


@pytest.fixture(scope="module")
def photos() -> Photos:
    """240 photos of 8 landmarks, 4 supercategories, 2 kinds; the direction says the landmark."""
    landmark = np.repeat(np.arange(8), 30)
    labels = np.column_stack([landmark // 4, landmark // 2, landmark])
    chance = torch.Generator().manual_seed(0)
    centres = torch.randn(8, 200, generator=chance)
    noise = torch.randn(240, 200, generator=chance)
    return Photos(centres[torch.from_numpy(landmark)] + 3 * noise, labels, "made")


def test_an_arm_is_the_same_in_every_experiment() -> None:
    for experiment in EXPERIMENTS:
        assert all(ARMS[arm.name] == arm for arm in experiment.arms)


def test_claims_speak_of_arms_and_metrics_that_are_measured() -> None:
    for experiment in EXPERIMENTS:
        assert set(experiment.metrics) <= {*METRICS, GAP}
        for claim in experiment.claims:
            assert set(claim.above + claim.below) <= {arm.name for arm in experiment.arms}
            assert set(claim.metrics) <= {*METRICS, GAP}


def test_every_arm_has_a_loss(photos: Photos) -> None:
    for arm in ARMS.values():
        if arm.loss:
            run = RunOptions(loss=arm.loss, loss_options=dict(arm.options), memory=arm.memory)
            build_loss(run, photos.class_labels, 8, 0)


def test_one_step_of_a_head_is_one_step_of_adam(photos: Photos) -> None:
    run = RunOptions(loss="SmoothAP", steps=1, head_lr=1e-2, weight_decay=0.0)
    start = train_head(photos, run.model_copy(update={"steps": 0}), Batches(4, 3), seed=5)
    plan = BatchPlan(Samples.of_labels(photos.labels), BatchOptions(4, 3), seed=5)
    rows = plan.at(0).rows
    seen = F.layer_norm(photos.features[rows], (200,))
    weight = start.head.weight.detach().clone().requires_grad_()
    bias = start.head.bias.detach().clone().requires_grad_()
    SmoothAP()(seen @ weight.T + bias, torch.from_numpy(photos.labels[rows])).backward()
    # The first step of Adam: the gradient over its own size.
    expected = weight - 1e-2 * weight.grad / (weight.grad.abs() + 1e-8)
    found = train_head(photos, run, Batches(4, 3), seed=5).head.weight
    large = weight.grad.abs() > 1e-5  # smaller ones are rounding
    assert large.float().mean() > 0.5
    assert torch.allclose(found[large], expected[large], atol=1e-5)


def test_a_head_begins_as_the_directions_of_largest_variance(photos: Photos) -> None:
    head = train_head(photos, RunOptions(loss="SmoothAP", steps=0), Batches(), seed=0).head
    weight = head.weight.detach()
    assert torch.allclose(weight @ weight.T, torch.eye(len(weight)), atol=1e-5)
    points = F.layer_norm(photos.features, (200,)) @ weight.T + head.bias.detach()
    assert points.mean(0).abs().max() < 1e-4
    variance = points.var(0)
    assert (variance.diff() < 1e-4).all() and variance.sum() > 0.7 * 200


def test_a_head_learns_what_it_is_shown(photos: Photos) -> None:
    run = RunOptions(loss="ROADMAP", steps=30, head_lr=1e-2)
    untrained = run.model_copy(update={"steps": 0})
    before = measure_head(train_head(photos, untrained, Batches(), 0), photos)
    after = measure_head(train_head(photos, run, Batches(8, 4), 0), photos)
    assert after["mAP@R:landmark"] > before["mAP@R:landmark"] + 0.2
    assert after[GAP] < before[GAP]


def test_held_out_landmarks_are_others(photos: Photos) -> None:
    fit, held_out = split_classes(photos, 0.25, seed=0)
    assert (len(fit.class_labels), len(held_out.class_labels)) == (6, 2)
    known = {tuple(row) for row in fit.features.tolist()}
    assert not known & {tuple(row) for row in held_out.features.tolist()}


def test_a_finished_run_is_not_run_again(photos: Photos, tmp_path: Path) -> None:
    arm = Arm("small", "SmoothAP", classes=4, images=3)
    found = []
    for _ in range(2):
        ledger = Ledger(tmp_path / "runs.jsonl")
        bench = Bench(photos, photos, {arm.name: arm}, ledger, SHORT)
        found.append(bench.values(arm, "evaluation"))
    assert found[0] == found[1]
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert len(lines) == len(set(lines)) >= 2 + len(SHORT.seeds)


def test_rates_are_never_chosen_on_the_evaluation_landmarks(photos: Photos, tmp_path: Path) -> None:
    arm = Arm("small", "SmoothAP", classes=4, images=3)
    evaluation = replace(photos, key="evaluation")
    ledger = Ledger(tmp_path / "runs.jsonl")
    bench = Bench(photos, evaluation, {arm.name: arm}, ledger, SHORT)
    rate, mean = bench.choose(arm)
    used = list(bench.used.values())
    assert {record["on"] for record in used} == {f"made held out {seed}" for seed in SHORT.seeds}
    found = [r["values"][arm.chosen_by] for r in used if r["head_lr"] == rate]
    assert len(found) == len(set(found)) == len(SHORT.seeds)
    assert mean == pytest.approx(sum(found) / len(found))


def test_a_line_that_was_cut_off_in_writing_is_a_run_to_do(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    ledger = Ledger(path)
    for key in "ab":
        ledger.keep({"key": key, "values": {}})
    path.write_text(path.read_text()[:-5])
    ledger = Ledger(path)
    assert ledger.records.keys() == {"a"}
    ledger.keep({"key": "c", "values": {}})
    assert Ledger(path).records.keys() == {"a", "c"}


def test_frozen_features_are_measured_as_they_are(photos: Photos, tmp_path: Path) -> None:
    arm = Arm("frozen features", "")
    bench = Bench(photos, photos, {arm.name: arm}, Ledger(tmp_path / "runs.jsonl"), SHORT)
    (found,) = bench.values(arm, "evaluation")
    unit = torch.nn.functional.normalize(photos.features, dim=1)
    scores = (unit @ unit.T).fill_diagonal_(-2)
    same = torch.from_numpy(photos.labels[:, -1])
    hits = (same[scores.argmax(1)] == same).float().mean()
    assert found["R@1:landmark"] == pytest.approx(float(hits)) and not bench.used


@pytest.mark.parametrize(
    ("above", "verdict"), [((0.6, 0.7), "holds"), ((0.3, 0.2), "fails"), ((0.6, 0.2), "open")]
)
def test_a_verdict_is_that_of_every_seed(above: tuple[float, float], verdict: str) -> None:
    values = {"a": [{"AP": value} for value in above], "b": [{"AP": 0.5}, {"AP": 0.4}]}
    assert judge(Claim(("a",), ("b",), ("AP",)), "AP", values)["verdict"] == verdict


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_page_holds_every_experiment_and_claim(budget: str) -> None:
    result = json.loads(Path(f"pipelines/results/claims-{budget}.json").read_text("utf-8"))
    text = claims_text(result)
    for experiment in BUDGETS[budget]:
        assert f"**{experiment.name}**" in text
    claims = [claim for e in result["experiments"] for claim in e["claims"]]
    assert text.count(" holds |") == sum(claim["verdict"] == "holds" for claim in claims)
    assert len(claims) == sum(len(c.metrics) for e in BUDGETS[budget] for c in e.claims)
