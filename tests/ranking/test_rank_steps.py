import math

import pytest
import torch

from hgld.errors import ShapeError
from hgld.ranking.steps import SigmoidStep, UpperStep, operating_region
from tests.ranking.ranking_oracles import h_minus

DIFFERENCES = torch.linspace(-1.9, 1.9, 4001, dtype=torch.float64)


@pytest.mark.parametrize("options", [{}, {"start": 0.0, "offset": 1.0}, {"offset": 1.44}])
def test_upper_step_is_eq_4(options) -> None:
    wanted = [h_minus(t.item(), **options) for t in DIFFERENCES]
    expected = torch.tensor(wanted, dtype=torch.float64)
    torch.testing.assert_close(UpperStep(**options)(DIFFERENCES), expected, rtol=0, atol=1e-12)


def test_the_default_bounds_the_step_ties_included() -> None:
    t = torch.cat([DIFFERENCES, torch.zeros(1, dtype=torch.float64)])
    assert bool((UpperStep()(t) >= (t >= 0).double()).all())


def test_a_tie_counts_start_plus_half() -> None:
    assert UpperStep()(torch.zeros(1)).item() == 1.0
    assert UpperStep(start=0.0)(torch.zeros(1)).item() == 0.5


def test_a_tie_counts_what_is_given_and_keeps_the_slope() -> None:
    t = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    found = UpperStep(tie=0.5)(t)
    assert found.item() == 0.5
    assert torch.autograd.grad(found.sum(), t)[0].item() == pytest.approx(25.0)  # 1 / (4 tau)
    assert torch.equal(UpperStep(tie=0.5)(DIFFERENCES[:9]), UpperStep()(DIFFERENCES[:9]))


def test_delta_is_where_the_sigmoid_has_saturated() -> None:
    assert 0.01 * math.log((1 - 0.01) / 0.01) == pytest.approx(UpperStep().delta, abs=0.005)


@pytest.mark.parametrize("tau", [0.001, 0.01, 0.1, 60.0])
def test_the_operating_region_is_the_share_of_pairs_with_a_slope(tau) -> None:
    scores = torch.rand(3, 40, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    scores[:, :5] = 0.5
    wanted = []
    for row in scores.tolist():
        t = [[(a - b) / tau for a in row] for b in row]
        slopes = [1 / (2 + math.exp(min(x, 500)) + math.exp(min(-x, 500))) for y in t for x in y]
        wanted.append(sum(slope / tau > 0.005 for slope in slopes) / len(slopes))
    assert operating_region(scores, tau).tolist() == pytest.approx(wanted)


def test_without_offset_the_step_is_continuous_at_delta() -> None:
    ends = UpperStep()(torch.tensor([0.05, 0.05 + 1e-12], dtype=torch.float64))
    assert abs(ends[0] - ends[1]) < 1e-9


def test_sigmoid_step_is_half_at_a_tie_and_no_bound() -> None:
    assert SigmoidStep()(torch.zeros(1)).item() == 0.5


@pytest.mark.parametrize("options", [{"tau": 0.0}, {"tau": float("nan")}, {"rho": -1.0}])
def test_impossible_steps_are_refused(options) -> None:
    with pytest.raises(ShapeError):
        UpperStep(**options)
