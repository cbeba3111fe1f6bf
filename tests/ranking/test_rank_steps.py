import pytest
import torch

from hgld.errors import ShapeError
from hgld.ranking.steps import SigmoidStep, UpperStep
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


def test_without_offset_the_step_is_continuous_at_delta() -> None:
    ends = UpperStep()(torch.tensor([0.05, 0.05 + 1e-12], dtype=torch.float64))
    assert abs(ends[0] - ends[1]) < 1e-9


def test_sigmoid_step_is_half_at_a_tie_and_no_bound() -> None:
    assert SigmoidStep()(torch.zeros(1)).item() == 0.5


@pytest.mark.parametrize("options", [{"tau": 0.0}, {"tau": float("nan")}, {"rho": -1.0}])
def test_impossible_steps_are_refused(options) -> None:
    with pytest.raises(ShapeError):
        UpperStep(**options)
