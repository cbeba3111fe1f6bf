"""The compiled kernels against all pairs in plain torch and float64, and both against the loop."""

import copy
import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld import compiled
from hgld.ranking import levels as grades
from hgld.ranking import losses, surrogates
from hgld.ranking.kernels import loss_cpu
from hgld.ranking.kernels.loss_cpu import run_rows
from hgld.ranking.kernels.sort import new_row, sort_row
from hgld.ranking.kernels.step_sums import fit_tail
from hgld.ranking.steps import SigmoidStep, Step, UpperStep
from hgld.ranking.surrogates import Goal, gain_table, plain_loss
from tests.ranking.ranking_oracles import random_pairs, rel_of, rows, sup_loss

ROOT = Path(__file__).parents[2]
NOT_CODE = shutil.ignore_patterns("__pycache__")
GOALS = ["ratio", "dcg", "recall"]
STEPS: list[Step] = [
    UpperStep(),
    UpperStep(start=0.0, offset=1.0),
    UpperStep(offset=1.44),
    UpperStep(tau=0.001),
    UpperStep(tau=0.05, delta=0.25),
    UpperStep(delta=0.0),
    UpperStep(start=0.0, rho=0.0, offset=1.0),
    SigmoidStep(),
]


def goal_of(kind: str, step: Step = UpperStep(), smooth: bool = False) -> Goal:  # noqa: B008
    return Goal(kind, step, smooth, ks=(1, 2, 4, 8, 16) if kind == "recall" else ())


SMOOTH = [goal_of(kind, SigmoidStep(tau), True) for kind in GOALS for tau in (0.01, 0.001)]


def both(scores, levels, goal, num_levels):
    """Losses and gradients by kernel, and by all pairs in float64."""
    table = grades.relevance_table(grades.count_levels(levels, num_levels))
    if goal.kind == "dcg":
        table = gain_table(num_levels).expand(len(scores), -1)
    rel = grades.look_up(table, levels)
    return (
        loss_cpu.solve_rows(scores, levels, table, goal),
        plain_loss(scores.double(), levels, rel, goal),
    )


def agree(found, truth, loss_tolerance, gradient_tolerance) -> None:
    dropped = 1e-12  # what lies below the window: a slope of exp(-35) / tau for each pair
    scale = truth[1].abs().max()
    assert (found[0].double() - truth[0]).abs().max() <= loss_tolerance
    assert (found[1].double() - truth[1]).abs().max() <= gradient_tolerance * scale + dropped


@pytest.mark.parametrize("step", STEPS, ids=str)
@pytest.mark.parametrize("kind", GOALS)
def test_float64_window_is_exact(kind, step) -> None:
    scores, levels = random_pairs(1, queries=20, gallery=90)
    agree(*both(scores, levels, goal_of(kind, step), 3), 1e-12, 1e-10)


@pytest.mark.parametrize("kind", GOALS)
def test_float32_window_is_as_near_as_float32_can_be(kind) -> None:
    scores, levels = random_pairs(2, queries=20, gallery=200)
    agree(*both(scores.float(), levels, goal_of(kind), 3), 1e-6, 2e-6)


def in_range(low, high, seed=3, dtype=torch.float64):
    scores, levels = random_pairs(seed, queries=12, gallery=150)
    scores = low + (scores - scores.min()) / (scores.max() - scores.min()) * (high - low)
    scores[:, 0], scores[:, 1] = high, low
    return scores.to(dtype), levels


@pytest.mark.parametrize("low_high", [(-1.0, 1.0), (-30.0, 30.0), (-1e-9, 1e-9), (5.0, 5.001)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_range_of_scores_is_exact(low_high, dtype) -> None:
    scores, levels = in_range(*low_high, dtype=dtype)
    tight = dtype == torch.float64
    agree(*both(scores, levels, goal_of("ratio"), 3), *((1e-12, 1e-10) if tight else (1e-6, 2e-6)))


@pytest.mark.parametrize("kind", GOALS)
def test_ties_count_as_in_eq_3(kind) -> None:
    scores, levels = random_pairs(4, queries=20, gallery=90, ties=True)
    agree(*both(scores, levels, goal_of(kind), 3), 1e-12, 1e-10)


def test_all_scores_equal() -> None:
    _, levels = random_pairs(5, queries=20, gallery=90)
    agree(*both(torch.full((20, 90), 0.5), levels, goal_of("ratio"), 3), 1e-6, 2e-6)


def test_minus_zero_is_zero() -> None:
    scores = torch.tensor([[0.0, -0.0]], dtype=torch.float32)
    levels = torch.tensor([[1, 0]], dtype=torch.int8)
    agree(*both(scores, levels, goal_of("ratio"), 1), 1e-7, 1e-7)


@pytest.mark.parametrize("goal", SMOOTH, ids=str)
@pytest.mark.parametrize("ties", [False, True])
def test_a_sigmoid_for_every_step_is_exact_in_float64(goal, ties) -> None:
    scores, levels = random_pairs(10, queries=20, gallery=120, ties=ties)
    agree(*both(scores, levels, goal, 3), 1e-12, 1e-10)


@pytest.mark.parametrize("goal", SMOOTH, ids=str)
def test_a_sigmoid_for_every_step_is_as_near_as_float32_can_be(goal) -> None:
    scores, levels = random_pairs(11, queries=20, gallery=200)
    agree(*both(scores.float(), levels, goal, 3), 1e-6, 2e-6)


def test_a_cut_off_that_found_more_than_it_counts_gives_no_gradient() -> None:
    scores, levels = random_pairs(12, queries=20, gallery=300, num_levels=1)
    goal = Goal("recall", SigmoidStep(), True, (1, 2, 200), temperature=60.0, clip=True)
    found, truth = both(scores, levels, goal, 1)
    free = plain_loss(scores, levels, (levels > 0).double(), replace(goal, clip=False))
    agree(found, truth, 1e-12, 1e-10)
    assert (truth[0] - free[0]).abs().max() > 0.1, "no cut-off was full"


@pytest.mark.parametrize("temperature", [0.05, 0.1, 1.0])  # of the first, exponentials overflow
@pytest.mark.parametrize("step", [UpperStep(), SigmoidStep()], ids=str)
def test_cut_offs_that_are_far_apart_are_exact(step, temperature) -> None:
    scores, levels = random_pairs(13, queries=20, gallery=90)
    smooth = isinstance(step, SigmoidStep)
    goal = Goal("recall", step, smooth, (1, 3, 50), temperature=temperature)
    agree(*both(scores, levels, goal, 3), 1e-12, 1e-10)


GRID_GOALS = [goal_of(kind, step) for kind in GOALS for step in (UpperStep(), SigmoidStep())]


@pytest.mark.parametrize("goal", GRID_GOALS + SMOOTH[::2], ids=str)
@pytest.mark.parametrize("num_levels", [1, 2, 5])
def test_grid_is_the_plain_loss(goal, num_levels, monkeypatch) -> None:
    scores, levels = random_pairs(6, queries=40, gallery=300, num_levels=num_levels)
    scores = scores.float()
    span = float((scores.amax(1) - scores.amin(1)).max()) / goal.step.tau
    monkeypatch.setattr(loss_cpu, "grid_span", lambda *_: span)
    found, truth = both(scores, levels, goal, num_levels)
    agree(found, truth, 1e-6, 2e-6)


def test_the_grid_is_taken_where_windows_are_full() -> None:
    make = torch.Generator().manual_seed(13)
    scores = 0.01 * torch.randn(256, 4096, generator=make)
    levels = torch.randint(0, 2, scores.shape, generator=make).to(torch.int8)
    rule = loss_cpu.rule_of(goal_of("ratio"), 4096)
    assert loss_cpu.grid_span(scores.numpy(), levels.numpy(), 1, rule) > 0
    few = levels * (torch.arange(4096) % 64 == 0)
    assert loss_cpu.grid_span(scores.numpy(), few.to(torch.int8).numpy(), 1, rule) == 0
    assert loss_cpu.grid_span(scores.double().numpy(), levels.numpy(), 1, rule) == 0


@pytest.mark.parametrize("edge", [4.5, 5.5, 10.0])
def test_two_powers_stand_for_the_sigmoid_out_of_the_window(edge) -> None:
    x = np.exp(-np.linspace(edge, 60.0, 500))
    a, b, c, d = fit_tail(edge)
    assert abs(a * x + b * x**2 - x / (1 + x)).max() < 0.2 * np.exp(-3 * edge)
    assert abs(c * x + d * x**2 - x / (1 + x) ** 2).max() < 0.6 * np.exp(-3 * edge)


@pytest.mark.parametrize("far", [0.0, 1.0, 1e30])
@pytest.mark.parametrize("size", [1, 2, 300, 3000])
def test_a_row_is_sorted_whatever_stretches_its_range(far, size) -> None:
    scores = np.random.default_rng(0).normal(size=size).round(2).astype(np.float32) * 1e-6
    scores[0] += np.float32(far)
    levels = (np.arange(size) % 4 - 1).astype(np.int8)
    row = new_row(size, 2, np.dtype(np.float32))
    present = compiled.kernel(sort_row)(scores, levels, row)
    there = np.flatnonzero(levels >= 0)
    by_score = there[np.argsort(scores[there], kind="stable")]
    np.testing.assert_array_equal(row.col[:present], by_score)
    np.testing.assert_array_equal(row.val[:present], scores[by_score])
    by_level = np.lexsort((row.val[:present], row.lev[:present]))
    np.testing.assert_array_equal(row.lev[:present], levels[row.col[:present]])
    np.testing.assert_array_equal(
        row.val[:present][by_level][row.spot[:present]], row.val[:present]
    )


def test_a_kernel_is_compiled_anew_when_any_file_with_kernels_changes(
    tmp_path, monkeypatch
) -> None:
    assert run_rows._cache._cache_file._source_stamp == compiled.STAMP
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    (tmp_path / "one.py").write_text("from hgld.compiled import kernel\n")
    (tmp_path / "other.py").write_text("1\n")
    before = compiled._stamp()
    (tmp_path / "other.py").write_text("2\n")
    assert compiled._stamp() == before
    (tmp_path / "one.py").write_text("from hgld.compiled import fast\n")
    assert compiled._stamp() != before
    (tmp_path / "one.py").write_text("from hgld.compiled import kernel\nfrom hgld.other import X\n")
    before = compiled._stamp()
    (tmp_path / "other.py").write_text("X = 3\n")  # a kernel holds the value of a constant
    assert compiled._stamp() != before


def test_kept_kernels_that_know_a_class_of_another_name_are_compiled_anew(tmp_path) -> None:
    file = run_rows._cache._cache_file
    index = tmp_path / file._index_name
    missing = b"chgld.ranking.kernels.sort\nRenamed\n."  # a pickle of a class that is not there
    index.write_bytes(pickle.dumps(numba.__version__) + missing)
    stale = copy.copy(file)
    stale._index_path = str(index)
    assert stale._load_index() == {}


def test_threads_change_nothing() -> None:
    scores, levels = random_pairs(7, queries=50, gallery=100)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = losses.sup_h_ap(scores, levels, 3)
        torch.set_num_threads(3)
        three = losses.sup_h_ap(scores, levels, 3)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one, three)


def test_plain_kernel_and_loop_are_one() -> None:
    scores, levels = random_pairs(8, queries=4, gallery=40)
    found, truth = both(scores, levels, goal_of("ratio"), 3)
    for i, (s, x) in enumerate(rows(scores, levels)):
        loss, slope = sup_loss(s, x, rel_of(x, 3), "ratio")
        assert found[0][i].item() == pytest.approx(loss, abs=1e-12)
        np.testing.assert_allclose(found[1][i], slope, atol=1e-10 * abs(slope).max())
        np.testing.assert_allclose(truth[1][i], slope, atol=1e-10 * abs(slope).max())


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    gallery=st.integers(1, 60),
    num_levels=st.integers(1, 4),
    ties=st.booleans(),
    kind=st.sampled_from(GOALS),
)
def test_any_small_case_is_exact(seed, gallery, num_levels, ties, kind) -> None:
    scores, levels = random_pairs(seed, 3, gallery, num_levels, 0.2, ties)
    agree(*both(scores, levels, goal_of(kind), num_levels), 1e-12, 1e-10)


def test_the_public_losses_use_the_kernel_and_pass_finite_differences() -> None:
    scores, levels = random_pairs(9, queries=2, gallery=2048)
    assert surrogates.fits_cpu(scores)
    leaf = scores[:, :].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(losses.sup_h_ap(leaf, levels, 3).sum(), leaf)
    direction = torch.randn(
        2, 2048, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    h = 1e-9
    ahead = losses.sup_h_ap(scores + h * direction, levels, 3).sum()
    behind = losses.sup_h_ap(scores - h * direction, levels, 3).sum()
    assert ((ahead - behind) / (2 * h)).item() == pytest.approx(
        (gradient * direction).sum().item(), rel=1e-4
    )


def test_a_forked_process_computes_losses_too() -> None:
    program = (  # two threads, so that there is a pool to be left behind
        "import os, sys, torch, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from hgld.ranking.kernels.device import over_rows\n"
        "torch.set_num_threads(2)\n"
        "over_rows(lambda _: None, 64)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    over_rows(lambda _: None, 64)\n"
        "    os._exit(7)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=300, check=False)
    assert done.returncode == 7


@pytest.mark.parametrize(
    ("part", "program"),
    [
        ("ranking/kernels", "from hgld.ranking.kernels.loss_cpu import count_rows as f"),
        ("shards", "from hgld.shards.window import _play as f"),
    ],
)
def test_kernels_run_where_no_folder_can_be_written(tmp_path: Path, part, program) -> None:
    package = tmp_path / "hgld"
    shutil.copytree(ROOT / "hgld", package, ignore=NOT_CODE)
    (package / part / "__pycache__").touch()  # a file: no folder can be made, not even by root
    nowhere = {"HOME": "/proc", "XDG_CACHE_HOME": "/proc/none", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program + "; print(f.py_func.__name__)"], cwd=tmp_path,
        capture_output=True, text=True, timeout=300,
        env={k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"} | nowhere, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("count_rows", "_play")
    assert done.stderr.count("set NUMBA_CACHE_DIR to a folder that can be written") == 1


def test_losses_in_several_threads_are_those_of_one() -> None:
    make = torch.Generator().manual_seed(0)
    scores = torch.rand(80, 80, generator=make)
    levels = torch.randint(0, 3, (80, 80), generator=make).to(torch.int8)
    expected = losses.sup_h_ap(scores, levels, 2)
    with ThreadPoolExecutor(4) as pool:
        every = list(pool.map(lambda _: losses.sup_h_ap(scores, levels, 2), range(24)))
    assert all(torch.equal(found, expected) for found in every)


def test_ranking_alone_loads_neither_tables_nor_kernels() -> None:
    program = (
        "import sys, hgld.ranking; "
        "print(sorted({'numba', 'pandas', 'pyarrow', 'pydantic', 'pytorch_metric_learning', "
        "'sklearn', 'timm', 'torchvision', 'triton', 'webdataset'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
