from itertools import product

import numpy as np
import pytest

from hgld.bootstrap import count_draws, find_ends, paired_t_test, resample_means

TRIALS = 300


def test_the_interval_is_that_of_all_draws() -> None:
    """Of three values there are 27 draws; the quantiles of all of them, by hand."""
    values = np.array([[0.0], [0.3], [0.9]])
    means = sorted(sum(draw) / 3 for draw in product(values[:, 0], repeat=3))
    low, high = find_ends(resample_means(values, draws=20_000), share=0.8)[:, 0]
    assert low == pytest.approx(np.quantile(means, 0.1), abs=1e-9)
    assert high == pytest.approx(np.quantile(means, 0.9), abs=1e-9)


def test_a_class_is_drawn_with_all_its_queries() -> None:
    """Classes of one and of three queries: the mean is over the queries drawn, 0, 3/4 or 1."""
    values, classes = np.array([[0.0], [1], [1], [1]]), np.array(["a", "b", "b", "b"])
    means = resample_means(values, classes, draws=500)[:, 0]
    assert sorted(set(means.tolist())) == [0, 0.75, 1]
    assert np.mean(means == 0.75) == pytest.approx(0.5, abs=0.1)


def test_classes_of_one_query_each_are_drawn_as_queries_are() -> None:
    values = np.random.default_rng(0).random((9, 2))
    np.testing.assert_array_equal(
        resample_means(values, np.arange(9), seed=3), resample_means(values, seed=3)
    )


def test_names_of_classes_do_not_decide_what_is_drawn() -> None:
    values, classes = np.random.default_rng(0).random((9, 1)), np.array([*"aabbbcdee"])
    named = np.array([{"a": "z", "c": "b", "b": "y"}.get(name, name) for name in classes])
    np.testing.assert_array_equal(resample_means(values, classes), resample_means(values, named))


def test_a_value_that_is_missing_counts_in_no_mean() -> None:
    values = np.array([[0.2, 0.3], [0.4, 0.3], [np.nan, 0.3]])
    means = resample_means(values, draws=300)
    assert means[:, 1] == pytest.approx(0.3)
    assert set(np.round(means[~np.isnan(means[:, 0]), 0], 9)) == {0.2, 0.266666667, 0.3,
                                                                  0.333333333, 0.4}  # fmt: skip


@pytest.mark.parametrize("values", [[[0.5, np.nan]], [[0.5, 0.1], [np.nan, 0.3]]])
def test_a_single_unit_has_no_interval(values: list[list[float]]) -> None:
    assert np.isnan(find_ends(resample_means(np.array(values)))[:, 0]).all()


def test_draws_in_blocks_are_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.concatenate(list(count_draws(7, 50, seed=1)))
    monkeypatch.setattr("hgld.bootstrap.BLOCK_CELLS", 20)
    blocks = list(count_draws(7, 50, seed=1))
    assert len(blocks) == 25
    np.testing.assert_array_equal(np.concatenate(blocks), whole)


def test_seeds_alone_give_the_interval_of_student() -> None:
    """Queries that never differ leave t with 2 degrees of freedom: 4.303 standard errors."""
    by_seed = np.array([[0.1], [0.2], [0.6]])
    low, high = find_ends(np.full((2_000, 1), 0.3), by_seed)[:, 0]
    half = 4.303 * by_seed.std(ddof=1) / np.sqrt(3)
    assert (low, high) == (pytest.approx(0.3 - half, rel=0.05), pytest.approx(0.3 + half, rel=0.05))


def make_trials(spread: dict[str, float], seeds: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """(S, Q, T) differences with a true mean of 0, and the class of each query."""
    chance = np.random.default_rng(0)
    classes = np.repeat(np.arange(24), chance.integers(1, 20, 24))
    found = chance.normal(0, 0.1, (seeds, len(classes), TRIALS))
    found += chance.normal(0, spread["seed"], (seeds, 1, TRIALS))
    found += chance.normal(0, spread["class"], (24, TRIALS))[classes]
    found += chance.normal(0, spread["both"], (seeds, 24, TRIALS))[:, classes]
    return found, classes


def share_that_covers(ends: np.ndarray) -> float:
    """Share of the trials whose interval includes their true mean, 0."""
    return float(np.mean((ends[0] <= 0) & (ends[1] >= 0)))


@pytest.mark.parametrize(
    ("spread", "by_queries"),
    [
        ({"class": 0.1, "seed": 0.0, "both": 0.03}, 0.5),
        ({"class": 0.03, "seed": 0.03, "both": 0.03}, 0.5),
        ({"class": 0.0, "seed": 0.05, "both": 0.0}, 0.4),
    ],
    ids=["classes differ", "both differ", "seeds differ"],
)
def test_a_loss_with_other_seeds_does_not_differ_from_itself(
    spread: dict[str, float], by_queries: float
) -> None:
    """Queries drawn alone call every second comparison sure; classes and seeds one in ten."""
    trials, classes = make_trials(spread)
    alone = find_ends(resample_means(trials.mean(axis=0)))
    assert share_that_covers(alone) < by_queries
    both = find_ends(resample_means(trials.mean(axis=0), classes), trials.mean(axis=1))
    assert 0.9 <= share_that_covers(both) <= 1


@pytest.mark.parametrize("right", [[47, 49], [47, 49, 50], [12, 24, 36, 48, 50]])
def test_seeds_of_one_difference_have_no_t_test(right: list[int]) -> None:
    """The spread of R@1 that rises by 4 of 57 queries with each seed is rounding alone."""
    a = np.array(right)[:, None] / 57
    tested = paired_t_test(a, np.array(right)[:, None] / 57 + 4 / 57)
    assert tested is not None and np.isnan(tested).all()
    other = a.copy()
    other[0] += 1 / 57
    tested = paired_t_test(a, other)
    assert tested is not None and np.isfinite(tested).all()


def test_three_seeds_are_too_few_to_draw_from() -> None:
    """Why the spread of seeds is added as t: draws of three miss the truth in a fifth of trials."""
    by_seed = np.random.default_rng(1).normal(0, 1, (3, TRIALS))
    assert share_that_covers(find_ends(resample_means(by_seed))) < 0.83
    level = np.broadcast_to(by_seed.mean(axis=0), (2_000, TRIALS))
    assert share_that_covers(find_ends(level, by_seed)) > 0.92
