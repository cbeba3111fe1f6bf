import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch

from hgld.ranking import curves, metrics
from hgld.ranking.curves import (
    ALPHAS,
    CurveValues,
    batch_sizes,
    gaps_by_batch,
    measure_curves,
)


def ranked(queries: int, gallery: int, levels: int, seed: int = 0) -> np.ndarray:
    """Shared levels by rank; nearer ones tend to come first."""
    chance = np.random.default_rng(seed)
    table = chance.choice(levels + 1, p=[0.5, *[0.5 / levels] * levels], size=(queries, gallery))
    noise = table - chance.gumbel(size=table.shape)
    return np.take_along_axis(table, np.argsort(-noise, axis=1), axis=1).astype(np.int8)


def h_ap(levels: np.ndarray, num_levels: int, alpha: float) -> float:
    scores = -torch.arange(levels.shape[1], dtype=torch.float64).expand(len(levels), -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(metrics.h_ap(scores, torch.from_numpy(levels), num_levels, alpha).nanmean())


@pytest.mark.parametrize("num_levels", [1, 2, 3, 7])
def test_h_ap_at_each_alpha_is_that_of_the_metrics(num_levels: int) -> None:
    levels = ranked(12, 60, num_levels)
    found = measure_curves(levels, num_levels).by_alpha
    assert found == pytest.approx([h_ap(levels, num_levels, alpha) for alpha in ALPHAS], abs=1e-12)


@pytest.mark.parametrize("num_levels", [1, 3])
def test_the_area_below_precision_and_recall_is_h_ap(num_levels: int) -> None:
    levels = ranked(40, 400, num_levels)
    area = measure_curves(levels, num_levels).precision.mean()
    assert area == pytest.approx(h_ap(levels, num_levels, 1.0), abs=2e-3)


def test_precision_at_a_recall_is_that_of_the_rank_which_reaches_it() -> None:
    # Right at ranks 1 and 4: precision 1 until half of the recall, 2/4 from there on.
    found = measure_curves(np.array([[1, 0, 0, 1]], np.int8), 1).precision
    assert found[:50] == pytest.approx(1.0) and found[50:] == pytest.approx(0.5)


def test_a_recall_that_is_reached_exactly_is_reached_at_that_rank() -> None:
    # with 8 images of a level recalls of 1/8, 3/8, ... are reached, up to rounding
    levels = ranked(60, 40, 3)
    found = CurveValues.of(levels, 3).precision
    for row, shared in enumerate(levels.tolist()):
        sizes = [shared.count(level) for level in range(4)]
        rel = [Fraction(level, 3 * max(sizes[level], 1)) for level in range(4)]
        total = sum(rel[level] for level in shared)
        expected: list[float] = []
        for rank, level in enumerate(shared, 1):
            seen = [rel[other] for other in shared[:rank]]
            precision = sum(min(other, rel[level]) for other in seen) / (rank * (rel[level] or 1))
            recall = sum(seen) / total
            while level and len(expected) < 100 and recall >= Fraction(2 * len(expected) + 1, 200):
                expected.append(float(precision))
        assert found[row] == pytest.approx(expected, abs=1e-12), row


def test_curves_in_pieces_are_those_of_the_whole(monkeypatch) -> None:
    levels = ranked(7, 300, 3)
    levels[3, -4:] = -1
    levels[5] = 0
    whole = CurveValues.of(levels, 3)
    monkeypatch.setattr(curves, "AT_ONCE", 100)  # a query at a time, a batch or twelve
    pieces = CurveValues.of(levels, 3)
    assert np.array_equal(pieces.precision, whole.precision, equal_nan=True)
    assert np.array_equal(pieces.by_alpha, whole.by_alpha, equal_nan=True)
    assert pieces.gaps == pytest.approx(whole.gaps, abs=1e-12, nan_ok=True)
    assert np.isnan(whole.gaps[5]).all() and not np.isnan(whole.gaps[3]).any()


def test_a_query_without_anything_to_find_is_left_out() -> None:
    levels = np.array([[1, 0], [0, 0]], np.int8)
    found = measure_curves(levels, 1)
    assert found.precision == pytest.approx(1.0) and found.by_alpha == pytest.approx(1.0)


def test_the_query_itself_at_the_end_counts_for_nothing() -> None:
    levels = ranked(5, 40, 2)
    with_self = np.concatenate([levels, np.full((5, 1), -1, np.int8)], axis=1)
    without, found = measure_curves(levels, 2), measure_curves(with_self, 2)
    assert found.precision == pytest.approx(without.precision)
    assert found.by_alpha == pytest.approx(without.by_alpha)


def test_the_gap_is_that_of_the_metrics_for_the_same_batches() -> None:
    hits = ranked(6, 32, 1) == 1
    scores = -torch.arange(32, dtype=torch.float64).expand(6, -1)
    batches = np.empty(32, np.int64)
    batches[np.random.default_rng(0).permutation(32)] = np.arange(32) // 8
    expected = metrics.decomposability_gap(
        scores,
        torch.from_numpy(hits.astype(np.int8)),
        torch.from_numpy(batches),
        lambda s, v: metrics.average_precision(s, v, 1),
    )
    assert gaps_by_batch(hits, [8]) == {8: pytest.approx(float(expected.nanmean()), abs=1e-12)}


def test_larger_batches_leave_a_smaller_gap() -> None:
    gaps = gaps_by_batch(ranked(200, 256, 1) == 1, batch_sizes(256))
    assert list(gaps) == [8, 16, 32, 64, 128]
    assert list(gaps.values()) == sorted(gaps.values(), reverse=True) and gaps[128] > 0


def test_an_empty_gallery_has_no_curve_and_is_no_error() -> None:
    found = measure_curves(np.empty((2, 0), np.int8), 2)
    assert np.isnan(found.precision).all() and np.isnan(found.by_alpha).all() and not found.gaps
