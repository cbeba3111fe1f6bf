"""The Triton kernels of the losses against a float64 loop over all pairs."""

import numpy as np
import pytest
import torch

from hgld.errors import ShapeError
from hgld.ranking import levels as grades
from hgld.ranking import losses, surrogates
from hgld.ranking.kernels import device, loss_gpu
from hgld.ranking.steps import SigmoidStep, UpperStep
from hgld.ranking.surrogates import Goal, gain_table
from tests.gpu.devices import DEVICE, needs_cpu_kernels, needs_triton, quiet
from tests.ranking.ranking_oracles import random_pairs, rel_of, rows, sup_loss

pytestmark = [needs_triton, quiet]
KS = (1, 2, 4)
KINDS = ["ratio", "dcg", "recall"]
STEPS = {
    "paper": UpperStep(),
    "inat": UpperStep(start=0.0, offset=1.44),
    "flat": UpperStep(start=0.0, rho=0.0, offset=1.0),
    "no bend": UpperStep(delta=0.0),
    "sharp": UpperStep(tau=0.001),
    "sigmoid": SigmoidStep(),
}
BOUNDS = {torch.float32: (1e-6, 2e-6), torch.float64: (1e-12, 1e-10)}


def given_step(step):
    """The step in the words of the oracle: the sigmoid has no jump and no bend."""
    if isinstance(step, SigmoidStep):
        return {"tau": step.tau, "start": 0.0, "delta": np.inf}
    return {name: getattr(step, name) for name in ("tau", "rho", "delta", "start", "offset")}


def expected(scores, levels, kind, step, num_levels=3):
    """Losses and gradients, pair by pair in float64."""
    found = []
    for s, x in rows(scores, levels):
        rel = 2.0 ** np.maximum(x, 0) - 1.0 if kind == "dcg" else rel_of(x, num_levels)
        what = (KS, 1.0) if kind == "recall" else kind
        found.append(sup_loss(s, x, rel, what, **given_step(step)))
    return np.array([loss for loss, _ in found]), np.stack([slope for _, slope in found])


def by_kernel(scores, levels, kind, step, num_levels=3):
    table = grades.relevance_table(grades.count_levels(levels, num_levels))
    if kind == "dcg":
        table = gain_table(num_levels).expand(len(scores), -1)
    goal = Goal(kind, step, ks=KS if kind == "recall" else ())
    s, levels, table = (part.to(DEVICE) for part in (scores, levels, table))
    found = loss_gpu.solve_rows(s, levels, table, goal)
    return tuple(part.cpu().double().numpy() for part in found)


def agree(found, truth, dtype) -> None:
    loss, slope = BOUNDS[dtype]
    np.testing.assert_allclose(found[0], truth[0], rtol=0, atol=loss)
    np.testing.assert_allclose(found[1], truth[1], rtol=0, atol=slope * abs(truth[1]).max() + 1e-15)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wide", [False, True], ids=["one walk", "two walks"])
def test_losses_and_gradients_are_those_of_the_loop(kind, dtype, wide, monkeypatch) -> None:
    if wide:
        monkeypatch.setattr(loss_gpu, "WIDEST", 8)
    scores, levels = random_pairs(1, queries=3, gallery=70)
    scores = scores.to(dtype)
    found = by_kernel(scores, levels, kind, UpperStep())
    agree(found, expected(scores, levels, kind, UpperStep()), dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_levels", [1, 2])
@pytest.mark.parametrize("width", [2, 16, 33])
def test_the_check_before_a_first_use_accepts_batches_of_any_size(kind, num_levels, width) -> None:
    """With one level and few images it refused the kernels, and all others of the device."""
    goal = Goal(kind, UpperStep(), ks=KS if kind == "recall" else ())
    assert surrogates._kernel_agrees(torch.zeros(1, width, device=DEVICE), goal, num_levels)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_every_step_is_that_of_the_loop(step) -> None:
    scores, levels = random_pairs(2, queries=2, gallery=40)
    found = by_kernel(scores, levels, "ratio", step)
    agree(found, expected(scores, levels, "ratio", step), torch.float64)


@pytest.mark.parametrize("num_levels", [1, 2, 6])
def test_any_number_of_levels(num_levels) -> None:
    scores, levels = random_pairs(3, queries=2, gallery=33, num_levels=num_levels)
    for kind in ("ratio", "dcg"):
        found = by_kernel(scores, levels, kind, UpperStep(), num_levels)
        agree(found, expected(scores, levels, kind, UpperStep(), num_levels), torch.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_ties_count_as_in_eq_3(kind) -> None:
    scores, levels = random_pairs(4, queries=2, gallery=40, ties=True)
    found = by_kernel(scores, levels, kind, UpperStep())
    agree(found, expected(scores, levels, kind, UpperStep()), torch.float64)


@pytest.mark.parametrize("low_high", [(-1.0, 1.0), (-30.0, 30.0), (5.0, 5.001)], ids=str)
def test_any_range_of_scores(low_high) -> None:
    low, high = low_high
    scores, levels = random_pairs(5, queries=2, gallery=50)
    scores = (low + (scores + 0.8) / 1.6 * (high - low)).float()
    found = by_kernel(scores, levels, "ratio", UpperStep())
    agree(found, expected(scores, levels, "ratio", UpperStep()), torch.float32)


@pytest.mark.parametrize("wide", [False, True], ids=["one walk", "two walks"])
def test_a_query_without_a_positive_has_loss_0_and_no_gradient(wide, monkeypatch) -> None:
    if wide:
        monkeypatch.setattr(loss_gpu, "WIDEST", 2)
    scores = torch.tensor([[0.1, 0.9, 0.3], [0.5, 0.5, 0.4]])
    levels = torch.tensor([[0, -1, 0], [1, 0, 0]], dtype=torch.int8)
    loss, slope = by_kernel(scores, levels, "ratio", UpperStep(), 1)
    assert loss[0] == 0.0
    assert not slope[0].any()
    assert loss[1] == pytest.approx(0.5, abs=1e-4)  # one tie: rank+ 1, rank 2


def test_float32_bends_where_float64_does() -> None:
    delta = np.float32(0.05)  # a little above 0.05, so that this difference is beyond the bend
    scores = torch.tensor([[0.0, delta], [0.0, np.nextafter(delta, np.float32(0))]])
    levels = torch.tensor([[1, 0]] * 2, dtype=torch.int8)
    found = by_kernel(scores, levels, "ratio", UpperStep(), 1)
    agree(found, expected(scores, levels, "ratio", UpperStep(), 1), torch.float32)
    assert found[1][0, 1] > 100 * found[1][1, 1]


def test_one_image_alone() -> None:
    found = by_kernel(
        torch.tensor([[0.3]]), torch.tensor([[1]]).to(torch.int8), "dcg", UpperStep(), 1
    )
    assert found[0].tolist() == [0.0]
    assert found[1].tolist() == [[0.0]]


LOSSES = {
    "sup_ap": (lambda s, x: losses.sup_ap(s, x), "ratio", 1),
    "sup_h_ap": (lambda s, x: losses.sup_h_ap(s, x, 3), "ratio", 3),
    "sup_ndcg": (lambda s, x: losses.sup_ndcg(s, x), "dcg", 3),
    "sup_recall": (lambda s, x: losses.sup_recall(s, x, KS), "recall", 1),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_public_losses_go_through_the_kernels(name, monkeypatch) -> None:
    public, kind, num_levels = LOSSES[name]
    calls, solve = [], loss_gpu.solve_rows
    monkeypatch.setattr(loss_gpu, "solve_rows", lambda *g: calls.append(len(g[0])) or solve(*g))
    scores, levels = random_pairs(6, queries=2, gallery=40)
    leaf = scores.clone().to(DEVICE).requires_grad_()
    loss = public(leaf, levels.to(DEVICE))
    (slope,) = torch.autograd.grad(loss.sum(), leaf)
    assert calls[-1] == 2  # after a small case of another size, if it is the first
    levels = levels if num_levels == 3 else grades.at_least(levels, 1)
    truth = expected(scores, levels, kind, UpperStep(), num_levels)
    agree((loss.detach().cpu().numpy(), slope.cpu().numpy()), truth, torch.float64)


@pytest.mark.parametrize("fault", ["steep", "raises"])
def test_a_wrong_kernel_is_replaced_by_plain_torch_with_one_warning(fault, monkeypatch) -> None:
    monkeypatch.setattr(device, "_verdicts", {})
    monkeypatch.setattr(device, "_refused", set())
    numbers = loss_gpu._numbers

    def wrong(step, dtype):
        if fault == "raises":
            raise RuntimeError("Failed to find C compiler")
        return {**numbers(step, dtype), "RHO": 101.0}

    monkeypatch.setattr(loss_gpu, "_numbers", wrong)
    scores, levels = (part.to(DEVICE) for part in random_pairs(6, queries=3, gallery=40))
    with pytest.warns(device.KernelWarning, match="differs|Failed to find C compiler") as heard:
        found = [losses.sup_ndcg(scores, levels) for _ in range(2)]
    (warning,) = [w.message for w in heard if w.category is device.KernelWarning]
    assert "triton " in str(warning)
    with device.using("off"):
        assert all(torch.equal(loss, losses.sup_ndcg(scores, levels)) for loss in found)


def test_a_relevance_of_each_pair() -> None:
    scores, levels = random_pairs(7, queries=3, gallery=40)
    rel = torch.rand(scores.shape, dtype=torch.float64) * (levels > 0)
    leaf = scores.clone().to(DEVICE).requires_grad_()
    loss = losses.sup_h_ap(leaf, levels.to(DEVICE), 3, relevance=rel.to(DEVICE))
    (slope,) = torch.autograd.grad(loss.sum(), leaf)
    for i, (s, x) in enumerate(rows(scores, levels)):
        truth = sup_loss(s, x, rel[i].numpy(), "ratio")
        assert loss[i].item() == pytest.approx(truth[0], abs=1e-12)
        np.testing.assert_allclose(slope[i].cpu(), truth[1], atol=1e-10 * abs(truth[1]).max())


@pytest.mark.skipif(DEVICE.type != "cuda", reason="no GPU: too many pairs for the interpreter")
@pytest.mark.parametrize("size", [1024, 4096, 5000])
@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_batch_is_that_of_the_cpu_kernels_bit_by_bit_again(size, kind) -> None:
    needs_cpu_kernels()
    from hgld.ranking.kernels import loss_cpu

    scores, levels = random_pairs(8, queries=64, gallery=size)
    found = by_kernel(scores.float(), levels, kind, UpperStep())
    again = by_kernel(scores.float(), levels, kind, UpperStep())
    assert all((one == two).all() for one, two in zip(found, again, strict=True))
    table = grades.relevance_table(grades.count_levels(levels, 3))
    table = gain_table(3).expand(len(scores), -1) if kind == "dcg" else table
    goal = Goal(kind, UpperStep(), ks=KS if kind == "recall" else ())
    truth = loss_cpu.solve_rows(scores.float().double(), levels, table, goal)
    agree(found, tuple(part.numpy() for part in truth), torch.float32)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda s, x: s.__setitem__((1, 30), float("nan")), "nan or inf"),
        (lambda s, x: s.__setitem__((2, 0), -float("inf")), "nan or inf"),
        (lambda s, x: x.__setitem__((0, 39), 4), "run from -1 to 4; expected -1..3"),
        (lambda s, x: x.__setitem__((2, 1), -2), "run from -2 to 3; expected -1..3"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int64])
def test_faults_are_found_as_on_a_cpu(spoil, text, dtype) -> None:
    scores, levels = random_pairs(9, queries=3, gallery=40)
    levels = levels.to(dtype)
    spoil(scores, levels)
    with pytest.raises(ShapeError, match=text):
        losses.sup_h_ap(scores.to(DEVICE), levels.to(DEVICE), 3)


@pytest.mark.parametrize("num_levels", [1, 3, 7])
def test_images_on_each_level_are_counted(num_levels) -> None:
    _, levels = random_pairs(10, queries=5, gallery=200, num_levels=num_levels)
    found = grades.count_levels(levels.to(DEVICE), num_levels).cpu().numpy()
    truth = [[(row == at).sum() for at in range(num_levels + 1)] for row in levels.numpy()]
    assert (found == np.array(truth)).all()
