"""A kernel that is wrong, or cannot be compiled, is replaced by plain torch with one warning."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from hgld.errors import UsageError
from hgld.ranking import losses, metrics
from hgld.ranking.evaluation import rank_blocks
from hgld.ranking.kernels import device, loss_cpu, rank_cpu
from hgld.ranking.levels import count_levels
from tests.ranking.ranking_oracles import random_pairs

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def first_use(monkeypatch) -> None:
    """Forget what was checked before, and forget it again after."""
    monkeypatch.setattr(device, "_verdicts", {})
    monkeypatch.setattr(device, "_refused", set())
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def batch():
    scores, levels = random_pairs(0, queries=50, gallery=100)
    return scores.float().requires_grad_(), levels


def loss_and_slope():
    scores, levels = batch()
    loss = losses.sup_h_ap(scores, levels, 3)
    return loss.detach(), torch.autograd.grad(loss.sum(), scores)[0]


def truth():
    with device.using("off"):
        return loss_and_slope()


def wrong_loss(solve):
    return lambda *given: (solve(*given)[0] * 1.001, solve(*given)[1])


def wrong_slope(solve):
    return lambda *given: (solve(*given)[0], solve(*given)[1].roll(1, 1))


def broken(solve):
    def fail(*given):
        raise RuntimeError("no compiler\nfound")

    return fail


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (wrong_loss, r"it differs from plain torch by 1\.0e-03 of the value"),
        (wrong_slope, r"it differs from plain torch by \S+ of the value"),
        (broken, "it failed with RuntimeError: no compiler found"),
    ],
)
def test_a_wrong_kernel_is_replaced_with_one_warning(spoil, reason, monkeypatch) -> None:
    monkeypatch.setattr(loss_cpu, "solve_rows", spoil(loss_cpu.solve_rows))
    with pytest.warns(device.KernelWarning, match=reason) as heard:
        found = loss_and_slope()
        loss_and_slope()
    assert len(heard) == 1
    assert "the CPU (torch " in str(heard[0].message)
    assert "numba " in str(heard[0].message)
    assert "hgld doctor --gpu" in str(heard[0].message)
    assert all(torch.equal(one, two) for one, two in zip(found, truth(), strict=True))


def test_a_wrong_kernel_ranks_no_gallery(monkeypatch) -> None:
    make = torch.Generator().manual_seed(0)
    vectors = torch.randint(-8, 9, (50, 4), generator=make) / 8
    sides = vectors[:20], torch.arange(20)[:, None] % 7, vectors, torch.arange(50)[:, None] % 7
    truth = metrics.rank_gallery(*sides, first=3)

    def wrong(*given):
        for levels, counts, first in rank_blocks(*given):
            yield levels, counts, first[:, ::-1].copy()

    rank_blocks = rank_cpu.rank_blocks
    monkeypatch.setattr(device, "_verdicts", {})
    monkeypatch.setattr(rank_cpu, "rank_blocks", wrong)
    with pytest.warns(device.KernelWarning, match="the kernel for ranks is not used on the CPU"):
        found = metrics.rank_gallery(*sides, first=3)
    for name, array in truth.to_arrays().items():
        assert (found.to_arrays()[name] == array).all()


def test_a_kernel_that_is_wrong_beyond_the_first_part_ranks_no_gallery_in_parts(
    monkeypatch,
) -> None:
    make = torch.Generator().manual_seed(0)
    vectors = torch.randint(-8, 9, (700, 4), generator=make) / 8
    labels = torch.arange(700)[:, None] % 7
    sides = vectors[300:320], labels[300:320], vectors, labels
    calls, sort_part = [], rank_cpu.sort_part

    def wrong(query, gallery, given, runs, order) -> None:
        sort_part(query, gallery, given, runs, order)
        calls.append(len(gallery))
        if len(calls) > 1:
            order[:] = order[:, ::-1].copy()

    def rank():
        blocks = list(rank_blocks(*sides, exclude_self=True, first=3, start=300, part=300))
        return [array for block in blocks for array in block.to_arrays().values()]

    truth = rank()
    assert device._verdicts[CPU, "ranks in parts"]
    monkeypatch.setattr(device, "_verdicts", {})
    monkeypatch.setattr(rank_cpu, "sort_part", wrong)
    with pytest.warns(device.KernelWarning, match="the kernel for ranks in parts is not used"):
        found = rank()
    assert calls == [256, 344]
    assert all((one == two).all() for one, two in zip(found, truth, strict=True))


def test_a_refused_device_uses_no_other_kernel(monkeypatch) -> None:
    monkeypatch.setattr(loss_cpu, "solve_rows", broken(None))
    with pytest.warns(device.KernelWarning):
        loss_and_slope()
    assert not device.agrees(CPU, "other", lambda: pytest.fail("computed"))


def test_a_right_kernel_is_checked_once(monkeypatch) -> None:
    calls, solve = [], loss_cpu.solve_rows
    monkeypatch.setattr(loss_cpu, "solve_rows", lambda *g: calls.append(len(g[0])) or solve(*g))
    loss_and_slope()
    loss_and_slope()
    assert calls == [4, 50, 50]


def test_the_check_changes_no_random_numbers() -> None:
    before = torch.get_rng_state()
    loss_and_slope()
    assert torch.equal(before, torch.get_rng_state())


def test_the_check_works_in_inference_mode_and_autocast() -> None:
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), warnings.catch_warnings():
        warnings.simplefilter("error")
        scores, levels = random_pairs(0, queries=50, gallery=100)
        found = losses.sup_h_ap(scores.float(), levels, 3)
    assert torch.equal(found, loss_and_slope()[0])


def test_kernels_are_skipped_if_they_are_off(monkeypatch) -> None:
    monkeypatch.setattr(loss_cpu, "solve_rows", broken(None))
    monkeypatch.setenv("HGLD_KERNELS", "off")
    scores, levels = batch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses.sup_h_ap(scores, levels, 3)
    assert torch.equal(count_levels(levels, 3), (levels[:, :, None] == torch.arange(4)).sum(1))


def test_another_setting_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("HGLD_KERNELS", "0")
    with pytest.raises(UsageError, match="HGLD_KERNELS is '0'; expected on or off"):
        loss_and_slope()


def test_nothing_is_compiled_if_kernels_are_off() -> None:
    program = (
        "import sys, torch; from hgld.ranking import losses; "
        "losses.sup_ap(torch.rand(64, 128), torch.ones(64, 128, dtype=torch.int8)); "
        "sys.exit('numba' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={"HGLD_KERNELS": "off"}, check=False
    )
    assert done.returncode == 0


def test_ranks_are_computed_in_a_process_without_numba() -> None:
    program = (
        "import sys, warnings; sys.modules['numba'] = None\n"
        "import torch; from hgld.ranking import losses\n"
        "with warnings.catch_warnings(record=True) as heard:\n"
        "    losses.sup_ap(torch.rand(64, 128), torch.ones(64, 128, dtype=torch.int8))\n"
        "print([w.category.__name__ for w in heard])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['KernelWarning']\n"
