"""Losses of scores and levels: against float64 loops, by hand, and by finite differences."""

from itertools import permutations

import numpy as np
import pytest
import torch

from hgld.errors import ShapeError
from hgld.ranking import levels as grades
from hgld.ranking import losses
from hgld.ranking.blackbox import interpolated_loss
from hgld.ranking.steps import SigmoidStep, UpperStep
from tests.ranking.ranking_oracles import random_pairs, rel_of, rows, sup_loss

INAT = {"start": 0.0, "offset": 1.0}
SOP = {"offset": 1.44}
KS = (1, 2, 4, 8, 16)
L = 3


def check(found, scores, levels, rel_of_row, kind, **step) -> None:
    """Losses and gradients of all rows against the loop."""
    scores = scores.clone().requires_grad_()
    values = found(scores)
    (gradient,) = torch.autograd.grad(values.sum(), scores)
    for i, (s, x) in enumerate(rows(scores.detach(), levels)):
        loss, slope = sup_loss(s, x, rel_of_row(x), kind, **step)
        assert values[i].item() == pytest.approx(loss, rel=1e-12, abs=1e-12)
        np.testing.assert_allclose(gradient[i].numpy(), slope, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("step", [{}, INAT, SOP])
def test_sup_h_ap_is_the_loop(seed, step) -> None:
    scores, levels = random_pairs(seed)
    check(
        lambda s: losses.sup_h_ap(s, levels, L, alpha=1.5, step=UpperStep(**step)),
        scores, levels, lambda x: rel_of(x, L, 1.5), "ratio", **step,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
def test_sup_h_ap_by_relevance_is_the_loop_by_relevance(seed, alpha) -> None:
    scores, levels = random_pairs(seed, queries=6, num_levels=4)
    scores.requires_grad_()
    found = losses.sup_h_ap(scores, levels, 4, alpha, compare="relevance")
    (gradient,) = torch.autograd.grad(found.sum(), scores)
    for i, (s, x) in enumerate(rows(scores.detach(), levels)):
        rel = rel_of(x, 4, alpha)
        # the loop compares what stands in place of the levels; rounded, since quotients differ
        loss, slope = sup_loss(s, np.where(x < 0, -1.0, rel.round(12)), rel, "ratio")
        assert found[i].item() == pytest.approx(loss, rel=1e-11, abs=1e-11)
        np.testing.assert_allclose(gradient[i].numpy(), slope, rtol=1e-9, atol=1e-9)


def test_relevance_and_level_differ_for_inverted_queries_only() -> None:
    levels = torch.tensor([[2, 2, 2, 1, 0], [2, 1, 1, 1, 0]])  # three images share 1; one has 1
    scores = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5], [0.1, 0.2, 0.3, 0.4, 0.5]])
    by_level = losses.sup_h_ap(scores, levels, 2)
    by_relevance = losses.sup_h_ap(scores, levels, 2, compare="relevance")
    assert (by_level != by_relevance).tolist() == [True, False]


def test_a_comparison_that_means_nothing_is_refused() -> None:
    scores, levels = random_pairs(0)
    with pytest.raises(ShapeError, match="compare is 'rel'; expected 'level' or 'relevance'"):
        losses.sup_h_ap(scores, levels, L, compare="rel")
    with pytest.raises(ShapeError, match="give no other relevance"):
        rel = grades.relevance(levels, L)
        losses.sup_h_ap(scores, levels, L, relevance=rel, compare="relevance")
    with pytest.raises(ShapeError, match="compare levels"):
        losses.SupHAP(2, weights=(0.5, 0.5), compare="relevance")


@pytest.mark.parametrize("seed", range(5))
def test_sup_ap_is_the_loop_with_all_levels_as_one(seed) -> None:
    scores, levels = random_pairs(seed)
    binary = grades.at_least(levels, 1)
    rel = lambda x: (x > 0).astype(float)  # noqa: E731
    check(lambda s: losses.sup_ap(s, levels), scores, binary, rel, "ratio")


@pytest.mark.parametrize("seed", range(5))
def test_sup_ndcg_is_the_loop(seed) -> None:
    scores, levels = random_pairs(seed)
    gain = lambda x: np.where(x > 0, 2.0**x - 1, 0.0)  # noqa: E731
    check(lambda s: losses.sup_ndcg(s, levels), scores, levels, gain, "dcg")


@pytest.mark.parametrize("seed", range(5))
def test_sup_recall_is_the_loop(seed) -> None:
    scores, levels = random_pairs(seed)
    binary = grades.at_least(levels, 2)
    rel = lambda x: (x > 0).astype(float)  # noqa: E731
    check(
        lambda s: losses.sup_recall(s, binary, KS, 0.7),
        scores, binary, rel, (KS, 0.7),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_a_relevance_of_its_own_takes_the_place_of_eq_20(seed) -> None:
    scores, levels = random_pairs(seed)
    make = torch.Generator().manual_seed(seed)
    rel = torch.rand(levels.shape, generator=make, dtype=torch.float64)
    table = {
        tuple(x): r for x, r in zip(levels.tolist(), (rel * (levels > 0)).numpy(), strict=True)
    }
    check(
        lambda s: losses.sup_h_ap(s, levels, L, relevance=rel),
        scores, levels, lambda x: table[tuple(x.tolist())], "ratio",
    )  # fmt: skip


def test_full_range_of_scores_is_exact() -> None:
    scores, levels = random_pairs(0, gallery=30)
    scores[:, 0], scores[:, 1] = 1.0, -1.0
    check(
        lambda s: losses.sup_h_ap(s, levels, L),
        scores, levels, lambda x: rel_of(x, L), "ratio",
    )  # fmt: skip


def test_smooth_ap_by_hand() -> None:
    # positive at 0.50, negatives at 0.51 and 0.20: rank = 1 + sigma(1) + sigma(-30)
    scores = torch.tensor([[0.50, 0.51, 0.20]], dtype=torch.float64)
    found = losses.smooth_ap(scores, torch.tensor([[1, 0, 0]]))
    rank = 1 + 1 / (1 + np.exp(-1.0)) + 1 / (1 + np.exp(30.0))
    assert found.item() == pytest.approx(1 - 1 / rank, rel=1e-12)


def test_smooth_ap_is_the_papers_pseudocode() -> None:
    scores, levels = random_pairs(6, num_levels=1, absent=0.0)
    found = losses.smooth_ap(scores, levels)
    for i, (s, x) in enumerate(rows(scores, levels)):
        soft = 1 / (1 + np.exp(-(s[None] - s[:, None]) / 0.01)) * (1 - np.eye(len(s)))
        rank, among = 1 + soft.sum(1), 1 + (soft * x[None]).sum(1)
        assert found[i].item() == pytest.approx(1 - (x * among / rank).sum() / x.sum())


def test_smooth_h_ap_is_smooth_ap_with_one_level() -> None:
    scores, levels = random_pairs(3, num_levels=1)
    torch.testing.assert_close(
        losses.smooth_h_ap(scores, levels, 1), losses.smooth_ap(scores, levels)
    )


@pytest.mark.parametrize("seed", range(3))
def test_smooth_h_ap_is_its_loop(seed) -> None:
    scores, levels = random_pairs(seed)
    found = losses.smooth_h_ap(scores, levels, L)
    for i, (s, x) in enumerate(rows(scores, levels)):
        rel, value = rel_of(x, L), 0.0
        for k in np.flatnonzero(x > 0):
            soft = 1 / (1 + np.exp(-(s - s[k]) / 0.01)) * (x >= 0)
            soft[k] = 1.0  # the item itself counts one
            value += (np.minimum(rel, rel[k]) * soft).sum() / soft.sum()
        expected = 1 - value / rel.sum() if rel.sum() else 0.0
        assert found[i].item() == pytest.approx(expected, abs=1e-12)


def test_smooth_recall_by_hand_counts_at_most_k() -> None:
    scores = torch.tensor([[0.9, 0.5, 0.1]], dtype=torch.float64)
    found = losses.smooth_recall(scores, torch.tensor([[1, 1, 1]]), ks=(1, 2), temperature=1.0)
    sigma = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    at_1 = min(1.0, sigma(0) + sigma(-1) + sigma(-2)) / 1
    at_2 = min(2.0, sigma(1) + sigma(0) + sigma(-1)) / 2
    assert found.item() == pytest.approx(1 - (at_1 + at_2) / 2, rel=1e-9)


def test_a_sigmoid_step_replaces_h_minus_only() -> None:
    # two positives above each other count the step, not the sigmoid
    scores = torch.tensor([[0.52, 0.51, 0.50]], dtype=torch.float64)
    found = losses.sup_ap(scores, torch.tensor([[1, 1, 0]]), SigmoidStep())
    lower_1, lower_2 = 1 / (1 + np.exp(2.0)), 1 / (1 + np.exp(1.0))
    assert found.item() == pytest.approx(1 - (1 / (1 + lower_1) + 2 / (2 + lower_2)) / 2)


def test_soft_bin_ap_by_hand() -> None:
    # 3 bins at 1, 0, -1. Positive at 0.5: half on bin 1, half on bin 0. Negative at 0.
    found = losses.soft_bin_ap(
        torch.tensor([[0.5, 0.0]], dtype=torch.float64), torch.tensor([[1, 0]]), bins=3
    )
    precision = [0.5 / 0.5, 1.0 / 2.0]
    assert found.item() == pytest.approx(1 - (0.5 * precision[0] + 0.5 * precision[1]))


def test_soft_bin_ap_stays_flat_beyond_its_range() -> None:
    scores = torch.tensor([[-0.4, -0.2, 0.7]], requires_grad=True)
    losses.soft_bin_ap(scores, torch.tensor([[1, 0, 0]]), bins=25, low=0.0).sum().backward()
    assert scores.grad is not None and scores.grad[0, :2].tolist() == [0.0, 0.0]


def test_pair_calibration_divides_each_side_by_all_its_pairs() -> None:
    scores = torch.tensor([[0.95, 0.5, 0.8, 0.1]], dtype=torch.float64)
    found = losses.pair_calibration(scores, torch.tensor([[1, 1, 0, 0]]))
    assert found.item() == pytest.approx(0.4 / 2 + 0.2 / 2)


def test_pooled_calibration_divides_by_the_pairs_that_have_a_loss() -> None:
    scores = torch.tensor([[0.95, 0.5, 0.8, 0.1]], dtype=torch.float64)
    found = losses.pooled_calibration(scores, torch.tensor([[1, 1, 0, 0]]))
    assert found.item() == pytest.approx(0.4 + 0.2)


def test_an_empty_side_adds_nothing() -> None:
    found = losses.pair_calibration(torch.tensor([[0.5]]).double(), torch.tensor([[1]]))
    assert found.item() == pytest.approx(0.4)


def test_xbm_contrastive_by_hand() -> None:
    scores = torch.tensor([[0.75, 0.625, 0.25]])
    found = losses.xbm_contrastive(scores, torch.tensor([[1, 0, 0]]))
    assert found.item() == 0.25 + 0.125


GRADCHECK = {
    "smooth_ap": lambda s, x: losses.smooth_ap(s, x, tau=0.1),
    "smooth_h_ap": lambda s, x: losses.smooth_h_ap(s, x, L, tau=0.1),
    "sup_ap": lambda s, x: losses.sup_ap(s, x),
    "sup_h_ap": lambda s, x: losses.sup_h_ap(s, x, L),
    "sup_ndcg": lambda s, x: losses.sup_ndcg(s, x),
    "sup_recall": lambda s, x: losses.sup_recall(s, x),
    "smooth_recall": lambda s, x: losses.smooth_recall(s, x, tau=0.1),
    "soft_bin_ap": lambda s, x: losses.soft_bin_ap(s, x),
    "pair_calibration": lambda s, x: losses.pair_calibration(s, x),
    "pooled_calibration": lambda s, x: losses.pooled_calibration(s, x),
    "xbm_contrastive": lambda s, x: losses.xbm_contrastive(s, x),
}


@pytest.mark.parametrize("name", GRADCHECK)
def test_gradients_pass_finite_differences(name) -> None:
    scores, levels = random_pairs(7, queries=3, gallery=8)
    function = GRADCHECK[name]
    leaf = scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: function(s, levels), leaf, eps=1e-7, atol=1e-4)


ALL = {
    **GRADCHECK,
    "blackbox_ap": losses.blackbox_ap,
    "blackbox_recall": losses.blackbox_recall,
}
PER_QUERY = [n for n in ALL if n not in ("pooled_calibration", "xbm_contrastive")]


@pytest.mark.parametrize("name", [n for n in PER_QUERY if n != "pair_calibration"])
def test_a_query_without_positive_has_loss_0_and_gradient_0(name) -> None:
    scores = torch.rand(2, 5, dtype=torch.float64, requires_grad=True)
    levels = torch.tensor([[0, 0, 0, 0, -1], [1, 0, 0, 0, 0]])
    found = ALL[name](scores, levels)
    (gradient,) = torch.autograd.grad(found[0], scores)
    assert found[0].item() == 0.0 and not gradient.any()


@pytest.mark.parametrize("queries", [2, 300])  # by all pairs, and by a kernel
def test_a_query_whose_positives_have_no_relevance_has_loss_0(queries) -> None:
    levels = torch.zeros(queries, 20, dtype=torch.int8)
    levels[:, 3], levels[1:, 5] = 1, 2
    scores = torch.rand(levels.shape, dtype=torch.float64, requires_grad=True)
    relevance = grades.weighted_relevance(levels, (0.0, 1.0))
    found = losses.sup_h_ap(scores, levels, 2, relevance=relevance)
    (gradient,) = torch.autograd.grad(found[0], scores)
    assert found[0].item() == 0.0 < found[1].item() and not gradient.any()


@pytest.mark.parametrize("name", ALL)
def test_what_is_not_in_the_gallery_changes_nothing(name) -> None:
    scores, levels = random_pairs(5, absent=0.0)
    more = torch.cat([scores, torch.rand(4, 3).double()], 1)
    absent = torch.full((4, 3), -1, dtype=torch.int8)
    found = ALL[name](more, torch.cat([levels, absent], 1))
    torch.testing.assert_close(found, ALL[name](scores, levels))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(name, dtype) -> None:
    scores, levels = random_pairs(5)
    found = ALL[name](scores.to(dtype), levels)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, ALL[name](scores.to(dtype).float(), levels))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers_are_refused(name, bad) -> None:
    scores, levels = random_pairs(5)
    scores[1, 2] = bad
    with pytest.raises(ShapeError, match="nan or inf"):
        ALL[name](scores, levels)


@pytest.mark.parametrize("name", ALL)
def test_shapes_that_differ_are_refused(name) -> None:
    scores, levels = random_pairs(5)
    with pytest.raises(ShapeError, match="shape"):
        ALL[name](scores[:, 1:], levels)


@pytest.mark.parametrize("name", ALL)
def test_an_empty_batch_is_refused(name) -> None:
    with pytest.raises(ShapeError, match="shape"):
        ALL[name](torch.zeros(0, 3), torch.zeros(0, 3, dtype=torch.int8))


NAN, INF = float("nan"), float("inf")
SENSELESS = {
    "alpha nan": lambda s, x: losses.sup_h_ap(s, x, L, alpha=NAN),
    "alpha below 0": lambda s, x: losses.smooth_h_ap(s, x, L, alpha=-1.0),
    "no levels": lambda s, x: losses.sup_h_ap(s, x.clamp(max=0), 0),
    "relevance inf": lambda s, x: losses.sup_h_ap(s, x, L, relevance=torch.full(x.shape, INF)),
    "offset nan": lambda s, x: losses.sup_ap(s, x, UpperStep(offset=NAN)),
    "tau nan": lambda s, x: losses.smooth_ap(s, x, NAN),
    "temperature 0": lambda s, x: losses.smooth_recall(s, x, temperature=0.0),
    "lam 0": lambda s, x: losses.blackbox_ap(s, x, lam=0.0),
    "blackbox margin nan": lambda s, x: losses.blackbox_recall(s, x, margin=NAN),
    "bins to inf": lambda s, x: losses.soft_bin_ap(s, x, high=INF),
    "pair alpha nan": lambda s, x: losses.pair_calibration(s, x, alpha=NAN),
    "pooled beta nan": lambda s, x: losses.pooled_calibration(s, x, beta=NAN),
    "contrastive margin inf": lambda s, x: losses.xbm_contrastive(s, x, INF),
    "weights nan": lambda s, x: grades.weighted_relevance(x, [NAN, 0.5, 0.5]),
    "eta 0": lambda s, x: losses.proxy_calibration(s, x[:, 0].clamp(min=0), s, eta=0.0),
    "classes in a table": lambda s, x: losses.proxy_calibration(s, x[:, :1].clamp(min=0), s),
    "classes as floats": lambda s, x: losses.proxy_calibration(s, s[:, 0].abs(), s),
    "a number for a step": lambda s, x: losses.sup_ap(s, x, 0.01),
    "a word for tau": lambda s, x: losses.smooth_ap(s, x, "0.01"),
    "a number for ks": lambda s, x: losses.sup_recall(s, x, 5),
    "k between two": lambda s, x: losses.smooth_recall(s, x, (1.5,)),
    "bins between two": lambda s, x: losses.soft_bin_ap(s, x, 20.5),
    "a level between two": lambda s, x: grades.at_least(x, 1.5),
    "levels between two": lambda s, x: losses.sup_h_ap(s, x, 2.5),
    "a word for alpha": lambda s, x: losses.sup_h_ap(s, x, L, alpha="1"),
    "a word for lam": lambda s, x: losses.blackbox_ap(s, x, lam="4"),
    "no queries": lambda s, x: losses.blackbox_ap(s, x, queries=0),
    "half a chunk": lambda s, x: losses.SupAP(chunk=2.5),
    "half a class": lambda s, x: losses.ProxyCalibration(2.5, 4),
    "lam of two words": lambda s, x: losses.ROADMAP(lam="0.1", calibration="pair"),
    "half a memory": lambda s, x: losses.ScoreMemory(1.5),
    "float8": lambda s, x: losses.sup_ap(s.to(torch.float8_e4m3fn), x),
}


@pytest.mark.parametrize("name", SENSELESS)
def test_a_number_that_makes_no_sense_is_refused_and_no_nan_comes_out(name) -> None:
    with pytest.raises(ShapeError, match=r"expected|at most|holds") as told:
        SENSELESS[name](*random_pairs(5))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("name", ["blackbox_ap", "blackbox_recall"])
def test_blackbox_ranks_scores_of_any_size_without_what_is_absent(name, size) -> None:
    scores = torch.tensor([[1.0, -1.0, 0.2, 0.0]]) * size
    found = ALL[name](scores, torch.tensor([[1, 1, -1, 0]]), margin=0.0)
    # ranks 1 and 3 of three: AP = (1 + 2/3) / 2; one negative above one of two positives
    expected = 1 / 6 if name == "blackbox_ap" else np.log(2) / 2
    assert found.item() == pytest.approx(expected)


@pytest.mark.parametrize("name", [n for n in PER_QUERY if n != "pair_calibration"])
@pytest.mark.parametrize("size", [1e-42, 1e30, 3e38])
def test_scores_of_any_size_give_numbers_even_where_nothing_is_in_the_gallery(name, size) -> None:
    scores, levels = random_pairs(5)
    scores = (scores.float() * size).requires_grad_()
    for x in (levels, torch.full_like(levels, -1)):
        found = ALL[name](scores, x)
        (slope,) = torch.autograd.grad(found.sum(), scores)
        assert bool(torch.isfinite(found).all()) and bool(torch.isfinite(slope).all())


def test_a_step_without_slope_takes_differences_beyond_float32() -> None:
    scores = torch.tensor([[3e38, -3e38, 0.0]], requires_grad=True)
    found = losses.sup_ap(scores, torch.tensor([[0, 1, 0]]), UpperStep(rho=0.0, offset=1.0))
    found.sum().backward()
    assert found.item() == pytest.approx(1 - 1 / 3)  # two below it in level stand above it
    assert scores.grad is not None and not scores.grad.any()


def test_ties_count_as_the_step_says_without_kernels() -> None:
    scores = torch.zeros(1, 5000)  # as many as a kernel takes
    levels = (torch.arange(5000) < 2).to(torch.int8)[None]
    half = losses.sup_ap(scores, levels, UpperStep(tie=0.5)).item()
    assert half == pytest.approx(1 - 2 / (2 + 0.5 * 4998))
    assert losses.sup_ap(scores, levels).item() == pytest.approx(1 - 2 / (2 + 4998))


def test_smooth_ap_pushes_positives_apart_and_sup_ap_does_not() -> None:
    levels = torch.tensor([[1, 1, 0]])  # Fig. 8 of ROADMAP: a negative far above two positives

    def slopes(loss) -> list[float]:
        scores = torch.tensor([[0.70, 0.71, 0.84]], dtype=torch.float64, requires_grad=True)
        return torch.autograd.grad(loss(scores, levels).sum(), scores)[0][0].tolist()

    first, second, negative = slopes(losses.smooth_ap)
    assert first < 0 < second == pytest.approx(-first, rel=1e-3) and abs(negative) < 1e-3
    first, second, negative = slopes(losses.sup_ap)
    assert first < 0 and second < 0 < negative
    flat = slopes(lambda s, x: losses.sup_ap(s, x, SigmoidStep()))  # Fig. 9a
    assert max(map(abs, flat)) < 1e-3


def test_gains_of_very_many_levels_stay_within_float32() -> None:
    levels = torch.tensor([[126] * 20 + [120, 1, 0]])
    scores = torch.linspace(-1, 1, 23)[None]
    found, expected = losses.sup_ndcg(scores, levels), losses.sup_ndcg(scores.double(), levels)
    torch.testing.assert_close(found.double(), expected)


def test_levels_above_the_declared_number_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"expected -1\.\.2"):
        losses.sup_h_ap(torch.zeros(1, 1), torch.tensor([[3]]), num_levels=2)


def test_blackbox_ap_has_the_exact_value_of_the_shifted_scores() -> None:
    # positive 0.500 - 0.01 is now below the negative 0.485 + 0.01: rank 2 of 2
    scores = torch.tensor([[0.500, 0.485, 0.1]])
    assert losses.blackbox_ap(scores, torch.tensor([[1, 0, 0]])).item() == 0.5
    assert losses.blackbox_ap(scores, torch.tensor([[1, 0, 0]]), margin=0.0).item() == 0.0


def test_blackbox_gradient_is_the_difference_of_two_rankings() -> None:
    # AP = (1/2)/(2/2), ranks being halved: d(1 - AP)/d rank = rank+/rank^2 = 0.5 at the positive
    scores = torch.tensor([[0.6, 0.5]], requires_grad=True)
    losses.blackbox_ap(scores, torch.tensor([[0, 1]]), lam=4.0, margin=0.0).sum().backward()
    # positive moves to 0.5 + 4 * 0.5: ranks (1, 2)/2 -> (2, 1)/2; -(rank - moved)/4 = (+1/8, -1/8)
    assert scores.grad is not None
    torch.testing.assert_close(scores.grad, torch.tensor([[0.125, -0.125]]))


def algorithm_1(scores, binary, lam):
    """Gradient of the mean AP loss by the authors' Algorithm 1, step by step in numpy."""
    n, moved_by = scores.shape[1], []
    for s, x in zip(scores, binary, strict=True):
        rank = np.array([(s >= v).sum() for v in s]) / n  # no ties
        plus = np.array([(s[x > 0] >= v).sum() for v in s]) / n
        slopes = np.zeros((2, n))
        slopes[0][x > 0] = (plus / rank**2)[x > 0] / x.sum() / len(scores)
        slopes[1][x > 0] = -(1 / rank)[x > 0] / x.sum() / len(scores)
        moved_by.append(np.zeros(n))
        for slope, before, who in zip(slopes, (rank, plus), (x >= 0, x > 0), strict=True):
            far = s + lam * slope
            after = np.array([(far[who] >= v).sum() for v in far]) / n
            moved_by[-1] -= np.where(who, before - after, 0.0) / lam
    return np.stack(moved_by)


@pytest.mark.parametrize("seed", range(5))
def test_blackbox_gradient_of_a_mean_is_that_of_algorithm_1(seed) -> None:
    scores, levels = random_pairs(seed, queries=6, gallery=20, num_levels=1, absent=0.0)
    leaf = scores.clone().requires_grad_()
    losses.blackbox_ap(leaf, levels, lam=4.0, margin=0.0).mean().backward()
    expected = algorithm_1(scores.numpy(), levels.numpy(), 4.0)
    assert abs(expected).max() > 0
    np.testing.assert_allclose(leaf.grad, expected, atol=1e-15)


@pytest.mark.parametrize("name", ["blackbox_ap", "blackbox_recall"])
def test_undivided_ranks_need_a_lambda_as_many_times_as_large(name) -> None:
    scores, levels = random_pairs(4, queries=6, gallery=20, num_levels=1, absent=0.0)
    found = []
    for lam, ranks in ((4.0, "share"), (80.0, "count")):
        leaf = scores.clone().requires_grad_()
        value = ALL[name](leaf, levels, lam=lam, ranks=ranks)
        found.append((value, torch.autograd.grad(value.sum(), leaf)[0]))
    torch.testing.assert_close(*found)
    with pytest.raises(ShapeError, match="'share' or 'count'"):
        ALL[name](scores, levels, ranks="shares")


def test_the_interpolated_loss_has_the_gradient_of_algorithm_1() -> None:
    make = torch.Generator().manual_seed(0)
    points = torch.randn(30, 6, generator=make, dtype=torch.float64).requires_grad_()
    weights = torch.randn(6, generator=make, dtype=torch.float64)
    found = interpolated_loss(points, weights, lam=0.3)
    (gradient,) = torch.autograd.grad(found.sum(), points)
    for y, value, slope in zip(points.detach().numpy(), found, gradient, strict=True):
        a = weights.numpy()
        rank, moved = (np.array([(x >= v).sum() for v in x]) for x in (y, y + 0.3 * a))
        assert value.item() == pytest.approx(moved @ a - (y @ rank - y @ moved) / 0.3)
        np.testing.assert_allclose(slope, (moved - rank) / 0.3, atol=1e-12)


def test_ranks_are_the_permutation_with_the_least_product() -> None:
    points = torch.randn(20, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    orders = torch.tensor([*permutations(range(1, 6))], dtype=torch.float64)
    for y in points:
        best = orders[(orders @ y).argmin()]  # Eq. 11
        # the loss a . rk(y) with a unit vector a is one rank
        ranks = [interpolated_loss(y, unit, 1e-12).item() for unit in torch.eye(5).double()]
        assert ranks == pytest.approx(best.tolist(), abs=1e-3)


def test_blackbox_ap_of_a_long_list_forms_no_pairs() -> None:
    make = torch.Generator().manual_seed(0)
    scores = torch.rand(1, 300_000, generator=make).requires_grad_()
    levels = (torch.rand(1, 300_000, generator=make) < 0.01).to(torch.int8)
    losses.blackbox_ap(scores, levels).sum().backward()  # all pairs would take 360 GB
    assert scores.grad is not None and bool(scores.grad.any())


def test_the_interpolated_loss_is_continuous_and_tends_to_the_loss() -> None:
    line = torch.linspace(-1, 1, 4001, dtype=torch.float64)
    points = torch.stack([line, 0.3 - line, torch.full_like(line, 0.1)], 1)
    weights = torch.tensor([1.0, -0.5, 0.2], dtype=torch.float64)
    steps = interpolated_loss(points, weights, lam=0.5).diff().abs()
    assert steps.max() < 0.02  # the loss itself jumps by 0.3 and more
    exact = (points[:, None] >= points[:, :, None]).double().sum(2) @ weights
    near = interpolated_loss(points, weights, lam=1e-6)
    assert (near - exact).abs().median() < 1e-9


def test_the_recall_loss_is_the_weighted_sum_over_all_k() -> None:
    scores, levels = random_pairs(3, queries=5, gallery=30, num_levels=1, absent=0.0)
    k = np.arange(1, 31)
    decays = {"log": np.log1p(1 / k), "loglog": np.log1p(np.log1p(1 / k) / (1 + np.log(k)))}
    for weight, weights in decays.items():
        found = losses.blackbox_recall(scores, levels, margin=0.0, weight=weight)
        for i, (s, x) in enumerate(rows(scores, levels)):
            above = [(s[x == 0] > v).sum() for v in s[x > 0]]  # r_i, Eq. 17
            missed = [np.mean([r >= k for r in above]) for k in range(1, 31)]  # L@K, Eq. 18
            assert found[i].item() == pytest.approx(np.dot(weights, missed))  # Eq. 19


@pytest.mark.parametrize("name", ["blackbox_ap", "blackbox_recall"])
@pytest.mark.parametrize("factor", [2.0**16, 2.0**-20, 1.0])
def test_a_factor_on_a_blackbox_loss_is_a_factor_on_its_gradient(name, factor) -> None:
    scores, levels = random_pairs(2, queries=6, gallery=20)
    plain, scaled = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    ALL[name](plain, levels).mean().backward()
    (ALL[name](scaled, levels).mean() * factor).backward()
    assert plain.grad.any()
    assert torch.equal(scaled.grad, plain.grad * factor)  # powers of two: exact


def test_blackbox_rows_in_parts_are_those_of_the_whole() -> None:
    scores, levels = random_pairs(2, queries=6, gallery=20)
    leaf, parts = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    losses.blackbox_ap(leaf, levels).mean().backward()
    some = [losses.blackbox_ap(parts[at], levels[at], queries=6) for at in (slice(2), slice(2, 6))]
    torch.cat(some).mean().backward()
    torch.testing.assert_close(parts.grad, leaf.grad, rtol=0, atol=0)


def test_blackbox_recall_counts_the_negatives_above_each_positive() -> None:
    scores = torch.tensor([[0.9, 0.8, 0.7, 0.6]], dtype=torch.float64)
    found = losses.blackbox_recall(scores, torch.tensor([[0, 1, 0, 1]]))
    assert found.item() == pytest.approx((np.log(2) + np.log(3)) / 2)
    twice = losses.blackbox_recall(scores, torch.tensor([[0, 1, 0, 1]]), weight="loglog")
    assert twice.item() == pytest.approx((np.log1p(np.log(2)) + np.log1p(np.log(3))) / 2)


def test_all_classes_rank_together() -> None:
    scores, labels = torch.tensor([[0.9, 0.2], [0.95, 0.1]]), torch.tensor([[1, 0], [0, 1]])
    # pooled: 0.95 n, 0.9 p, 0.2 n, 0.1 p -> (1/2 + 2/4) / 2
    assert losses.blackbox_ap_all_classes(scores, labels, margin=0.0).item() == 0.5


def test_score_memory_brings_back_the_last_batches_without_gradient() -> None:
    memory = losses.ScoreMemory(length=1)
    memory.extend(torch.tensor([[0.1]]), torch.tensor([[0]]))
    memory.extend(torch.tensor([[0.2]]), torch.tensor([[1]]))
    scores = torch.tensor([[0.3]], requires_grad=True)
    found, levels = memory.extend(scores, torch.tensor([[0]]))
    assert found.tolist() == [[pytest.approx(0.3), pytest.approx(0.2)]]
    assert levels.tolist() == [[0, 1]]
    found.sum().backward()
    assert scores.grad is not None and scores.grad.tolist() == [[1.0]]
