"""What bounds what, and what tends to what: laws over thousands of cases, and counterexamples."""

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.errors import ShapeError, UsageError
from hgld.ranking import levels as grades
from hgld.ranking import losses, metrics, presets
from hgld.ranking.metrics import gap_bound, gap_bound_with_calibration
from hgld.ranking.steps import UpperStep
from hgld.ranking.surrogates import Goal, gain_table, plain_loss
from tests.ranking.ranking_oracles import random_pairs

L = 3
ROUNDING = 1e-12
BOUNDING = [name for name, preset in presets.PRESETS.items() if preset.bounds]
pytestmark = pytest.mark.filterwarnings("ignore::hgld.ranking.levels.RelevanceWarning")


class Step:
    """H itself: 1 where t >= 0. With it a Sup-loss is the true loss of Eq. 3, counted in pairs."""

    def __call__(self, t):
        return (t >= 0).to(t.dtype)


def true_loss(scores, levels, kind):
    table = grades.relevance_table(grades.count_levels(levels, L))
    if kind == "dcg":
        table = gain_table(L).expand(len(scores), -1)
    if kind == "ap":
        levels = grades.at_least(levels, 1)
        table = torch.tensor([0.0, 1.0]).expand(len(scores), -1)
    goal = Goal("dcg" if kind == "dcg" else "ratio", Step())
    return plain_loss(scores, levels, grades.look_up(table, levels), goal)[0]


LOSSES = {
    "ap": lambda s, x, step: losses.sup_ap(s, x, step),
    "ratio": lambda s, x, step: losses.sup_h_ap(s, x, L, step=step),
    "dcg": lambda s, x, step: losses.sup_ndcg(s, x, step),
}


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6), kind=st.sampled_from(sorted(LOSSES)), ties=st.booleans(),
    name=st.sampled_from(BOUNDING),
)  # fmt: skip
def test_sup_losses_bound_the_true_loss_ties_included(seed, kind, ties, name) -> None:
    scores, levels = random_pairs(seed, queries=60, gallery=12, ties=ties)  # 2400 rankings a kind
    scores = scores * (0.1 if seed % 2 else 1.0)  # near ones too
    step = presets.preset(name).step
    gap = LOSSES[kind](scores, levels, step) - true_loss(scores, levels, kind)
    assert gap.min() >= -ROUNDING


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(sorted(LOSSES)))
def test_the_authors_losses_bound_the_true_loss_without_ties(seed, kind) -> None:
    scores, levels = random_pairs(seed, queries=60, gallery=12, ties=False)
    scores = scores * (0.1 if seed % 2 else 1.0)
    step = presets.preset("suprank_sop").step
    gap = LOSSES[kind](scores, levels, step) - true_loss(scores, levels, kind)
    assert gap.min() >= -ROUNDING


@pytest.mark.parametrize("kind", sorted(LOSSES))
@pytest.mark.parametrize(
    ("name", "negative"),
    [
        ("suprank_sop", 0.5),  # at a tie
        # a negative just above the positive counts sigma(0.001 / 0.01) = 0.52 instead of 1
        ("suprank_inat", 0.501),
    ],
)
def test_the_authors_losses_are_no_bound_at_a_tie_or_just_above(kind, name, negative) -> None:
    scores, levels = torch.tensor([[0.5, negative]]).double(), torch.tensor([[3, 0]])
    found = LOSSES[kind](scores, levels, presets.preset(name).step)
    assert found.item() < true_loss(scores, levels, kind).item() - 0.05


def test_sup_recall_is_no_bound() -> None:
    # ranks 1 and 9 of k = 2: the true loss is 1/2; sigma(1) and sigma(-7) give less at a larger
    # temperature than the positive outside deserves
    scores = torch.linspace(1.0, 0.0, 9, dtype=torch.float64)[None]
    levels = torch.tensor([[1, 0, 0, 0, 0, 0, 0, 0, 1]])
    true = 1.0 - metrics.tr_at_k(scores, levels, 1, 2)
    step = UpperStep(rho=0.0)
    assert losses.sup_recall(scores, levels, (2,), temperature=20.0, step=step) < true + 0.06
    near = torch.tensor([[0.9, 0.5]]).double(), torch.tensor([[0, 1]])
    found = losses.sup_recall(*near, ks=(1,), temperature=10.0)
    assert found.item() < (1.0 - metrics.tr_at_k(*near, 1, 1)).item()


@pytest.mark.parametrize("seed", range(10))
def test_without_ties_the_true_loss_is_one_minus_the_metric(seed) -> None:
    scores, levels = random_pairs(seed, queries=20)
    has = (levels > 0).any(1)
    for kind, metric in (
        ("ap", metrics.average_precision(scores, levels, 1)),
        ("ratio", metrics.h_ap(scores, levels, L)),
        ("dcg", metrics.ndcg(scores, levels)),
    ):
        torch.testing.assert_close(true_loss(scores, levels, kind)[has], 1.0 - metric[has])


@pytest.mark.parametrize("seed", range(5))
def test_smooth_ap_tends_to_ap_as_tau_falls(seed) -> None:
    scores, levels = random_pairs(seed, queries=20)
    exact = 1.0 - metrics.average_precision(scores, levels, 1)
    errors = [
        (losses.smooth_ap(scores, levels, tau) - exact).abs().nanmean() for tau in (0.1, 0.01, 1e-7)
    ]
    assert errors[0] > errors[1] > errors[2] and errors[2] < 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_sup_ap_tends_to_ap_without_jump_and_slope(seed) -> None:
    scores, levels = random_pairs(seed, queries=20)
    exact = (1.0 - metrics.average_precision(scores, levels, 1)).nan_to_num(0.0)
    step = UpperStep(tau=1e-7, rho=0.0, delta=1e-5, start=0.0)
    torch.testing.assert_close(losses.sup_ap(scores, levels, step), exact)


def test_with_the_papers_slope_sup_ap_stays_above_where_a_negative_leads() -> None:
    scores, levels = torch.tensor([[0.9, 0.5]]).double(), torch.tensor([[0, 1]])
    sharp = losses.sup_ap(scores, levels, UpperStep(tau=1e-7, delta=1e-6))
    assert sharp.item() > 0.9 > 1.0 - metrics.average_precision(scores, levels, 1).item()
    swapped = losses.sup_ap(scores.flip(1), levels, UpperStep(tau=1e-7, delta=1e-6))
    assert swapped.item() == pytest.approx(0.0, abs=1e-9)


def test_soft_bin_ap_comes_nearer_to_ap_with_more_bins() -> None:
    scores, levels = random_pairs(3, queries=40, absent=0.0)
    exact = (1.0 - metrics.average_precision(scores, levels, 1)).nan_to_num(0.0)
    errors = [
        (losses.soft_bin_ap(scores, levels, bins) - exact).abs().mean() for bins in (5, 20, 2001)
    ]
    assert errors[0] > errors[1] > errors[2] and errors[2] < 0.01


def test_soft_bin_ap_is_exact_where_scores_lie_on_bin_centres() -> None:
    scores, levels = random_pairs(3, queries=40, absent=0.0, gallery=6)
    places = scores.argsort(1).argsort(1).double()  # 0..5, no ties
    exact = (1.0 - metrics.average_precision(scores, levels, 1)).nan_to_num(0.0)
    found = losses.soft_bin_ap(places / 5, levels, bins=6, low=0.0, high=1.0)
    torch.testing.assert_close(found, exact)


@pytest.mark.parametrize("bins", [11, 1001, 100_001])
def test_soft_bin_ap_between_centres_stays_off_however_many_bins(bins) -> None:
    # AP is 1/2; the positive gives half of itself to each of two bins:
    # 1/2 * (1/2) / (3/2) + 1/2 * 1/2 = 5/12
    step = 1.0 / (bins - 1)
    scores = torch.tensor([[1.0, 0.5 + step / 2]], dtype=torch.float64)
    found = losses.soft_bin_ap(scores, torch.tensor([[0, 1]]), bins, 0.0, 1.0)
    assert found.item() == pytest.approx(1 - 5 / 12, abs=1e-6)


def test_soft_bin_ap_goes_with_ap_as_its_paper_found() -> None:
    """Correlation about .98 (Revaud et al. 2019, section 2) on scores like a trained model's."""
    make = torch.Generator().manual_seed(0)
    levels = (torch.rand(200, 600, generator=make) < 0.05).to(torch.int8)
    hardness = torch.rand(200, 1, generator=make) * 0.5
    noise = torch.randn(200, 600, generator=make) * 0.12
    scores = (noise + levels * (0.55 - hardness)).clamp(-1, 1).double()
    pair = torch.stack([
        1.0 - losses.soft_bin_ap(scores, levels, 25, 0.0, 1.0),
        metrics.average_precision(scores, levels, 1),
    ])  # fmt: skip
    assert torch.corrcoef(pair)[0, 1] > 0.97


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6))
def test_laws_of_every_metric(seed) -> None:
    scores, levels = random_pairs(seed, queries=8, gallery=15, absent=0.0)
    make = torch.Generator().manual_seed(seed)
    mixed = torch.randperm(15, generator=make)
    for metric in (
        lambda s, x: metrics.h_ap(s, x, L), metrics.ndcg, lambda s, x: metrics.asi(s, x, L),
        lambda s, x: metrics.average_precision(s, x, 2), lambda s, x: metrics.map_at_r(s, x, 2),
    ):  # fmt: skip
        value = metric(scores, levels)
        found = value[~value.isnan()]
        assert ((found >= 0) & (found <= 1 + ROUNDING)).all()
        shuffled = metric(scores[:, mixed], levels[:, mixed])
        torch.testing.assert_close(value, shuffled, equal_nan=True, rtol=0, atol=ROUNDING)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), place=st.integers(0, 13))
def test_moving_a_better_image_up_never_lowers_h_ap(seed, place) -> None:
    _, levels = random_pairs(seed, queries=1, gallery=15, absent=0.0)
    scores = torch.linspace(1, 0, 15, dtype=torch.float64)[None]
    swapped = levels.clone()
    swapped[0, [place, place + 1]] = levels[0, [place + 1, place]]
    better = levels[0, place + 1] > levels[0, place]
    weights = [0.2, 0.3, 0.5]
    one, two = (metrics.weighted_ap(scores, x, weights) for x in (levels, swapped))
    if better and not one.isnan().any():
        assert two.item() >= one.item() - ROUNDING


def separated(make, batches, per_batch):
    """Batches that each rank perfectly: (scores, levels, batch numbers) of one query."""
    scores, levels, numbers = [], [], []
    for batch in range(batches):
        low, high = np.sort(make.uniform(-1, 1, 2))
        scores += [*make.uniform(high, high + 0.1, per_batch[0]),
                   *make.uniform(low - 0.1, low, per_batch[1])]  # fmt: skip
        levels += [1] * per_batch[0] + [0] * per_batch[1]
        numbers += [batch] * sum(per_batch)
    return torch.tensor([scores]), torch.tensor([levels]), torch.tensor(numbers)


def gap_of(scores, levels, numbers):
    return metrics.decomposability_gap(
        scores, levels, numbers, lambda s, x: metrics.average_precision(s, x, 1)
    ).item()


@pytest.mark.parametrize("seed", range(200))
def test_the_gap_keeps_to_its_bounds(seed) -> None:
    make = np.random.default_rng(seed)
    batches, per_batch = int(make.integers(1, 6)), (int(make.integers(1, 5)),
                                                    int(make.integers(1, 5)))  # fmt: skip
    scores, levels, numbers = separated(make, batches, per_batch)
    bound = gap_bound([per_batch[0]] * batches, [per_batch[1]] * batches)
    assert -ROUNDING <= gap_of(scores, levels, numbers) <= bound + ROUNDING


def test_the_bound_is_reached_by_batches_one_after_the_other() -> None:
    scores = torch.linspace(1, 0, 12, dtype=torch.float64)[None]
    levels, numbers = torch.tensor([[1, 0, 0] * 4]), torch.arange(4).repeat_interleave(3)
    assert gap_of(scores, levels, numbers) == pytest.approx(gap_bound([1] * 4, [2] * 4))


@pytest.mark.parametrize("seed", range(200))
def test_calibrated_scores_keep_to_both_bounds(seed) -> None:
    make = np.random.default_rng(seed)
    alpha, beta, batches, each = 0.9, 0.6, 4, 3
    scores, levels, numbers, good, bad = [], [], [], [], []
    kept, strayed = int(make.integers(0, each + 1)), int(make.integers(0, each + 1))
    for batch in range(batches):
        # positives that keep to alpha lead, strayed negatives stay below the batch's positives
        low = make.uniform(beta + 0.05, alpha - 0.05)
        scores += [*make.uniform(alpha, 1.0, kept), *make.uniform(low, alpha, each - kept)]
        scores += [*make.uniform(beta, low, strayed), *make.uniform(-1, beta, each - strayed)]
        levels += [1] * each + [0] * each
        numbers += [batch] * (2 * each)
        good.append(kept)
        bad.append(strayed)
    bound = gap_bound_with_calibration([each] * batches, [each] * batches, good, bad)
    gap = gap_of(torch.tensor([scores]), torch.tensor([levels]), torch.tensor(numbers))
    assert -ROUNDING <= gap <= bound + ROUNDING
    assert gap <= gap_bound([each] * batches, [each] * batches) + ROUNDING


@pytest.mark.parametrize("seed", range(300))
def test_unequal_batches_keep_to_the_bound_over_all_orders(seed) -> None:
    make = np.random.default_rng(seed)
    alpha, beta = 0.9, 0.6
    scores, levels, numbers, counts = [], [], [], []
    for batch in range(int(make.integers(2, 5))):
        there, wrong = (int(n) for n in make.integers(1, 5, 2))
        kept, strayed = int(make.integers(0, there + 1)), int(make.integers(0, wrong + 1))
        low = make.uniform(beta + 0.05, alpha - 0.05)
        scores += [*make.uniform(alpha, 1.0, kept), *make.uniform(low, alpha, there - kept)]
        scores += [*make.uniform(beta, low, strayed), *make.uniform(-1, beta, wrong - strayed)]
        levels += [1] * there + [0] * wrong
        numbers += [batch] * (there + wrong)
        counts.append((there, wrong, kept, strayed))
    columns = list(zip(*counts, strict=True))
    bound = gap_bound_with_calibration(*columns)
    gap = gap_of(torch.tensor([scores]), torch.tensor([levels]), torch.tensor(numbers))
    assert gap <= bound + ROUNDING
    tried = [
        gap_bound_with_calibration(*zip(*order, strict=True), as_printed=True)
        for order in permutations(counts)
    ]
    assert bound == pytest.approx(max(tried), abs=1e-12)


def test_eq_27_as_printed_is_no_upper_bound() -> None:
    counts = [1, 1, 1], [3, 3, 3], [1, 1, 1], [0, 0, 3]
    # the stray negatives of the last batch are above the positives of the others
    scores = torch.tensor([[0.91, 0.1, 0.2, 0.3, 0.92, 0.1, 0.2, 0.3, 0.99, 0.96, 0.97, 0.98]])
    levels = torch.tensor([[1, 0, 0, 0] * 3])
    gap = gap_of(scores, levels, torch.arange(3).repeat_interleave(4))
    assert gap > gap_bound_with_calibration(*counts, as_printed=True) + 0.3
    assert gap <= gap_bound_with_calibration(*counts) + ROUNDING


def test_too_many_different_batches_are_refused() -> None:
    each = list(range(1, 21))
    with pytest.raises(UsageError, match="20 different batches have 1,048,576 choices"):
        gap_bound_with_calibration(each, each, each, each)


@pytest.mark.parametrize("good", [[3, 1], [-1, 1]])
def test_good_positives_are_a_part_of_the_positives(good) -> None:
    with pytest.raises(ShapeError, match=r"good_positives are .*; expected a part of each batch"):
        gap_bound_with_calibration([2, 2], [1, 1], good, [0, 0])
    with pytest.raises(ShapeError, match="bad_negatives are"):
        gap_bound_with_calibration([2, 2], [1, 1], [1, 1], [0, 2])


def test_calibration_tightens_the_bound_where_all_keep_to_it() -> None:
    loose = gap_bound([3] * 4, [3] * 4)
    assert gap_bound_with_calibration([3] * 4, [3] * 4, [3] * 4, [1] * 4) < loose
    assert gap_bound_with_calibration([3] * 4, [3] * 4, [3] * 4, [0] * 4) == 0.0


def test_the_bound_of_eq_27_can_be_looser_than_that_of_eq_26() -> None:
    # all negatives stray and a positive does too: it is counted behind the good ones of its batch
    loose = gap_bound([3] * 4, [3] * 4)
    assert gap_bound_with_calibration([3] * 4, [3] * 4, [2] * 4, [3] * 4) > loose


def test_ap_approximation_error_falls_with_tau() -> None:
    scores, levels = random_pairs(1, queries=30)
    errors = [
        metrics.ap_approximation_error(losses.smooth_ap(scores, levels, tau), scores, levels)
        for tau in (0.1, 0.01)
    ]
    assert errors[0].nanmean() > errors[1].nanmean()
