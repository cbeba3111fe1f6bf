import pickle
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.errors import InvalidData, Resumable, UsageError
from hgld.shards import image_table, sampling
from hgld.shards.batches import (
    BatchOptions,
    BatchPlan,
    Samples,
    measure_coverage,
    part_of_rank,
    plan_epoch,
)
from hgld.shards.sampling import count_rows, deal_rows, shuffle_classes
from hgld.shards.shard_plan import plan_split
from hgld.shards.window import draw_from_window

sizes = st.lists(st.integers(1, 40), min_size=4, max_size=30)


def labels_of(sizes: list[int]) -> np.ndarray:
    """Class i has sizes[i] rows; rows are mixed."""
    finest = np.repeat(np.arange(len(sizes)), sizes)
    finest = np.random.default_rng(0).permutation(finest)
    return np.stack([finest // 3, finest], 1)


@given(sizes, st.integers(2, 4), st.integers(2, 5), st.integers(0, 3))
@settings(max_examples=60)
def test_every_batch_has_p_classes_with_k_images(
    sizes: list[int], classes: int, images: int, epoch: int
) -> None:
    labels = labels_of(sizes)
    if sum(size >= images for size in sizes) < classes:
        return
    options = BatchOptions(classes, images)
    plan = plan_epoch(Samples.of_labels(labels), options, seed=1, epoch=epoch)
    for batch in plan:
        finest, counts = np.unique(labels[batch, -1], return_counts=True)
        assert len(finest) == classes and (counts == images).all()
        assert len(set(batch.tolist())) == classes * images
    assert len(np.unique(plan)) == plan.size  # no image twice in an epoch


@pytest.mark.parametrize("classes", [1, 3, 30_000, 1 << 24])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_classes_are_grouped_as_by_a_shuffle_and_a_stable_sort(classes: int, dtype: type) -> None:
    labels = np.random.default_rng(0).integers(0, classes, 200_000, dtype)
    labels[:150_000:2] = labels[0]  # more of one class than a bucket has rows
    random, plain = np.random.default_rng(5), np.random.default_rng(5)
    order, first, size = shuffle_classes(labels, random)
    rows = np.arange(len(labels))
    plain.shuffle(rows)
    expected = rows[np.argsort(labels[rows], kind="stable")]
    assert order.tolist() == expected.tolist()
    assert first.tolist() == np.unique(labels[expected], return_index=True)[1].tolist()
    assert size.tolist() == np.unique(labels, return_counts=True)[1].tolist()
    assert random.integers(1 << 60) == plain.integers(1 << 60)  # as many numbers were drawn


@given(sizes, st.integers(2, 4))
@settings(max_examples=60)
def test_no_more_rows_can_be_had(counts: list[int], width: int) -> None:
    """Against taking the fullest kinds first, which is known to be best."""
    left, rows = sorted(counts, reverse=True), 0
    while len(left) >= width and left[width - 1] > 0:
        left = sorted([n - 1 for n in left[:width]] + left[width:], reverse=True)
        rows += 1
    assert count_rows(np.array(counts), width) == rows
    table = deal_rows(np.array(counts), width, np.random.default_rng(0))
    assert table.shape == (rows, width)
    assert all(len(set(row)) == width for row in table.tolist())
    assert (np.bincount(table.ravel(), minlength=len(counts)) <= counts).all()


def test_a_plan_depends_on_seed_and_epoch_alone() -> None:
    samples = Samples.of_labels(labels_of([8] * 10))

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return plan_epoch(samples, BatchOptions(4, 4), seed=seed, epoch=epoch).tolist()

    assert plan(0, 0) == plan(0, 0)
    assert plan(0, 0) != plan(0, 1) and plan(0, 0) != plan(1, 0)


def test_every_step_of_the_endless_sequence_is_of_its_epoch() -> None:
    samples = Samples.of_labels(labels_of([8] * 10))
    plan = BatchPlan(samples, BatchOptions(4, 4), seed=3)
    steps = len(plan.rows(0))
    assert steps == 5
    second = plan_epoch(samples, BatchOptions(4, 4), seed=3, epoch=1)
    assert plan.at(steps + 2).rows.tolist() == second[2].tolist()


def test_classes_meet_as_by_chance() -> None:
    """20 classes of 10 groups, 5 a batch: a pair meets 40 * (5*4)/(20*19) = 2.1 times."""
    met = np.zeros((20, 20))
    for seed in range(50):
        table = deal_rows(np.full(20, 10), 5, np.random.default_rng(seed))
        for row in table:
            met[np.ix_(row, row)] += 1
    pairs = met[~np.eye(20, dtype=bool)] / 50
    assert abs(pairs.mean() - 40 * 20 / 380) < 1e-9
    assert pairs.std() < 0.35  # independent draws: sqrt(2.1 / 50) = 0.2


def test_a_class_meets_many_others_within_one_epoch() -> None:
    """A class in 10 batches of 5 meets up to 40 others; without mixing it met the same 4."""
    table = deal_rows(np.full(200, 10), 5, np.random.default_rng(0))
    others = [len(set(table[(table == c).any(1)].ravel())) - 1 for c in range(200)]
    assert np.mean(others) > 35


def test_too_few_classes_stop_with_the_numbers() -> None:
    with pytest.raises(InvalidData, match=r"2 of 3 classes have 4 images or more, but .* 3 of"):
        plan_epoch(Samples.of_labels(labels_of([4, 5, 3])), BatchOptions(3, 4), seed=0, epoch=0)


def test_the_order_of_shards_says_that_it_needs_runs() -> None:
    samples = Samples(np.arange(24)[:, None] % 4, np.arange(24), np.zeros(24, np.int64))
    plan_epoch(samples, BatchOptions(4, 4), seed=0, epoch=0)
    with pytest.raises(InvalidData, match=r"0 of 4 classes have a run of 4 .* order \"random\""):
        plan_epoch(samples, BatchOptions(4, 4, order="shards"), seed=0, epoch=0)


def test_the_order_at_random_is_advised_only_if_it_helps() -> None:
    samples = Samples(np.arange(24)[:, None] % 4, np.arange(24), np.zeros(24, np.int64))
    options = BatchOptions(4, 7, order="shards")
    with pytest.raises(
        InvalidData, match=r"0 of 4 classes have a run of 7 .* or images_per_class$"
    ):
        plan_epoch(samples, options, seed=0, epoch=0)


def test_a_batch_of_more_classes_than_there_are_is_told_so() -> None:
    options = BatchOptions(5, 4, small_classes="repeat")
    with pytest.raises(InvalidData, match=r"^there are 3 classes, but a batch needs 5; lower"):
        plan_epoch(Samples.of_labels(labels_of([4, 1, 3])), options, seed=0, epoch=0)
    with pytest.raises(InvalidData, match=r"^there is 1 class, but a batch needs 5; lower"):
        plan_epoch(Samples.of_labels(labels_of([4])), options, seed=0, epoch=0)


def samples_of(
    sizes: list[int], shards: int = 7, run_length: int = 16, classes_of_a_group: int = 4
) -> Samples:
    """Class i has sizes[i] images, laid out as the writer would."""
    finest = np.repeat(np.arange(len(sizes)), sizes)
    labels = np.column_stack([finest // classes_of_a_group, finest]).astype(np.int32)
    size = 1e6 * len(finest)
    plan = plan_split(labels, size, split="train", run_length=run_length,
                      shard_bytes=1.01 * size / shards, seed=0)  # fmt: skip
    shard = np.repeat(np.arange(len(plan.shards) - 1, dtype=np.int32), np.diff(plan.shards))
    return Samples(labels[plan.order], plan.runs, shard)


def require_exact(plan: np.ndarray, samples: Samples, options: BatchOptions) -> None:
    for batch in plan:
        counts = np.unique(samples.labels[batch, -1], return_counts=True)[1]
        assert counts.tolist() == [options.images_per_class] * options.classes_per_batch
        assert len(set(batch.tolist())) == plan.shape[1]
    assert len(np.unique(plan)) == plan.size


@given(sizes, st.sampled_from([1, 2, 4]), st.integers(1, 40), st.integers(0, 5))
@settings(max_examples=40)
def test_the_order_of_shards_gives_exact_batches_too(
    sizes: list[int], lanes: int, window: int, seed: int
) -> None:
    samples = samples_of([*sizes, 8, 8, 8, 8])
    options = BatchOptions(4, 3, order="shards", lanes=lanes, window=window)
    try:
        plan = plan_epoch(samples, options, seed=seed, epoch=0)
    except InvalidData:
        assert lanes > 1  # a lane may hold too few classes, never the whole
        return
    require_exact(plan, samples, options)
    lane_of, _ = BatchPlan(samples, options, seed=seed).shard_order(0)
    lane = lane_of[samples.shards[plan]].reshape(len(plan), lanes, -1)
    assert (lane == np.arange(lanes)[:, None]).all()


def test_splits_that_number_their_runs_alike_are_kept_apart() -> None:
    """Shards of one class each, whose only run is number 0; then two splits of many runs."""
    four = Samples(np.arange(16)[:, None] // 4, np.zeros(16, np.int64), np.arange(16) // 4)
    one = samples_of([9] * 12, shards=2)
    two = Samples(*(np.concatenate(pair) for pair in (
        (one.labels, one.labels + 12), (one.runs, one.runs), (one.shards, one.shards + 2)
    )))  # fmt: skip
    for samples in (four, two):
        for seed in range(10):
            options = BatchOptions(4, 3, order="shards", window=16)
            plan = plan_epoch(samples, options, seed=seed, epoch=0)
            assert len(plan)
            require_exact(plan, samples, options)


def test_few_runs_are_open_in_the_order_of_shards() -> None:
    """Between its first and its last image a run is open; so many are at most."""
    samples = samples_of([24] * 60, shards=12)
    options = BatchOptions(8, 4, order="shards", window=20)
    plan = plan_epoch(samples, options, seed=0, epoch=0)
    steps = np.repeat(np.arange(len(plan)), plan.shape[1])
    span = pd.DataFrame({"run": samples.runs[plan.ravel()], "step": steps}).groupby("run")["step"]
    first, last = span.min().to_numpy(), span.max().to_numpy()
    opened = [int(((first <= step) & (last >= step)).sum()) for step in range(len(plan))]
    assert max(opened) <= 20
    assert len(plan) >= 0.95 * 24 * 60 // 32


def test_shards_are_read_in_their_turn() -> None:
    samples = samples_of([24] * 60, shards=12)
    options = BatchOptions(8, 4, order="shards", window=20)
    plan = plan_epoch(samples, options, seed=0, epoch=0)
    _, turn_of = BatchPlan(samples, options, seed=0).shard_order(0)
    first_step = [int(np.flatnonzero((samples.shards[plan] == s).any(1))[0]) for s in range(12)]
    assert (np.diff(np.array(first_step)[np.argsort(turn_of)]) >= 0).all()


@pytest.mark.parametrize("order", ["random", "shards"])
def test_a_cap_limits_the_images_of_a_class(order: Literal["random", "shards"]) -> None:
    samples = samples_of([40, 33, 20, 9, 8, 5, 4])
    options = BatchOptions(3, 4, order=order, images_cap=8)
    plan = plan_epoch(samples, options, seed=0, epoch=0)
    require_exact(plan, samples, options)
    assert np.bincount(samples.labels[plan.ravel(), -1]).max() == 8


def test_a_batch_holds_two_supercategories_with_half_of_the_classes_each() -> None:
    samples = samples_of([12] * 40)  # ten groups of four classes
    options = BatchOptions(8, 4, groups_per_batch=2)
    plan = plan_epoch(samples, options, seed=0, epoch=0)
    require_exact(plan, samples, options)
    for batch in plan:
        groups, counts = np.unique(samples.labels[batch, 0], return_counts=True)
        assert len(groups) == 2 and counts.tolist() == [16, 16]
    assert plan.size == 12 * 40  # nothing is left out


def require_groups(plan: np.ndarray, samples: Samples, options: BatchOptions) -> None:
    """Each batch: so many groups, each with the same number of classes."""
    assert options.groups_per_batch is not None
    part = plan.shape[1] // options.groups_per_batch
    for batch in plan:
        groups, counts = np.unique(samples.labels[batch, 0], return_counts=True)
        assert len(groups) == options.groups_per_batch and set(counts.tolist()) == {part}


def products(groups: int, classes: tuple[int, int]) -> Samples:
    """Classes of 2 to 9 images in groups of unequal size, as SOP has them; rows are mixed."""
    make = np.random.default_rng(3)
    of_group = np.repeat(np.arange(groups), np.linspace(*classes, groups).astype(int))
    finest = np.repeat(np.arange(len(of_group)), make.integers(2, 10, len(of_group)))
    finest = make.permutation(finest)
    return Samples.of_labels(np.stack([of_group[finest], finest], 1))


def pairs_of(plan: np.ndarray, samples: Samples) -> Counter[tuple[int, ...]]:
    return Counter(tuple(np.unique(samples.labels[batch, 0]).tolist()) for batch in plan)


@pytest.mark.parametrize("small", ["repeat", "drop", "pad"])
def test_each_pair_of_groups_comes_equally_often_as_in_fastap(small: Any) -> None:
    samples = products(12, (60, 180))
    options = BatchOptions(
        64, 4, groups_per_batch=2, batches_per_combination=5, small_classes=small
    )
    for epoch in range(3):
        plan = plan_epoch(samples, options, seed=0, epoch=epoch)
        assert len(plan) == 330
        pairs = pairs_of(plan, samples)
        assert len(pairs) == 66 and set(pairs.values()) == {5}
        for batch in plan:
            kept = batch[batch >= 0]
            assert len(np.unique(samples.labels[kept, 1])) == 64
            # without repeats, K different images of each class
            assert small == "repeat" or len(np.unique(kept)) == len(kept)
    # within a group, each class comes equally often but for what is left of a permutation
    drawn = samples.labels[plan[:, ::4].ravel()] if small == "repeat" else np.empty((0, 2), int)
    for group in np.unique(drawn[:, 0]):
        times = np.unique(drawn[drawn[:, 0] == group, 1], return_counts=True)[1]
        whole = 55 * 32 / len(np.unique(samples.labels[samples.labels[:, 0] == group, 1]))
        assert abs(times - whole).max() <= 0.5 * whole


def test_the_batches_of_a_combination_follow_each_other_in_their_order() -> None:
    samples = products(6, (10, 30))
    base = BatchOptions(8, 2, groups_per_batch=2, batches_per_combination=4, small_classes="repeat")
    turns, pairs = [], []
    for epoch in range(30):
        plan = plan_epoch(samples, replace(base, order="combinations"), seed=0, epoch=epoch)
        met = [tuple(np.unique(samples.labels[batch, 0]).tolist()) for batch in plan]
        assert len(met) == 60 and all(len(set(met[i : i + 4])) == 1 for i in range(0, 60, 4))
        turns.append(met[::4])
        assert len(set(turns[-1])) == 15
        chance = plan_epoch(samples, base, seed=0, epoch=epoch)
        pairs += [np.unique(samples.labels[batch, 0]).tolist() for batch in chance]
    # Pairs take turns at random: each is first in about 2 of 30 epochs.
    assert max(Counter(turn[0] for turn in turns).values()) < 9
    follow = np.mean([one == other for one, other in pairwise(pairs)])
    assert follow == pytest.approx(3 / 59, abs=0.02)  # by chance; in turn it is 3 of 4


def test_by_size_large_groups_meet_more_often() -> None:
    samples = products(6, (40, 120))
    options = BatchOptions(32, 4, groups_per_batch=2, small_classes="repeat")
    finest, size = np.unique(samples.labels, axis=0, return_counts=True)
    fours = np.bincount(finest[:, 0], np.maximum(size // 4, 1))
    met = np.zeros(6)
    for epoch in range(40):
        plan = plan_epoch(samples, options, seed=0, epoch=epoch)
        rows = samples.labels[plan.ravel(), 0]
        met += np.bincount(rows, minlength=6)
        unique, times = np.unique(plan.reshape(-1, 4), axis=0, return_counts=True)
        assert len(unique) == times.sum()  # no group of K images twice
    assert np.corrcoef(met, fours)[0, 1] > 0.97 and met.max() > 2.5 * met.min()


@pytest.mark.parametrize("order", ["random", "shards"])
def test_by_chance_each_pair_of_classes_meets_equally_often(
    order: Literal["random", "shards"],
) -> None:
    """In the order of shards, too, if the window holds all runs."""
    samples, options = samples_of([8] * 10), BatchOptions(4, 4, order=order)
    met = np.zeros((10, 10))
    for epoch in range(400):  # 5 batches an epoch, each of 6 of the 45 pairs
        for batch in plan_epoch(samples, options, seed=0, epoch=epoch):
            here = np.unique(samples.labels[batch, -1])
            met[np.ix_(here, here)] += 1
    times = met[np.triu_indices(10, 1)]
    assert times.sum() == 400 * 5 * 6
    # chi-square of 44 degrees of freedom: beyond 85 in 2 of 10,000 cases
    assert ((times - times.mean()) ** 2 / times.mean()).sum() < 85


def test_in_a_small_window_classes_of_one_shard_meet_more_often() -> None:
    labels = np.repeat(np.arange(40), 8)
    samples = Samples(np.stack([labels // 5, labels], 1), labels % 5, labels // 5)
    first, second = np.triu_indices(40, 1)
    same = first // 5 == second // 5
    for window, least, most in ((8, 3, 6), (16, 1.5, 3), (40, 0.9, 1.1)):
        met, options = np.zeros((40, 40)), BatchOptions(4, 4, order="shards", window=window)
        for epoch in range(200):
            for batch in plan_epoch(samples, options, seed=1, epoch=epoch):
                here = np.unique(labels[batch])
                met[np.ix_(here, here)] += 1
        times = met[first, second]
        assert least < times[same].mean() / times[~same].mean() < most


def test_too_few_groups_for_a_combination_are_refused() -> None:
    options = BatchOptions(8, 2, groups_per_batch=4, batches_per_combination=1)
    with pytest.raises(InvalidData, match="3 groups have 2 classes of enough images"):
        plan_epoch(products(3, (5, 9)), options, seed=0, epoch=0)


@given(
    st.lists(st.integers(1, 40), min_size=8, max_size=40),
    st.sampled_from([1, 2]),
    st.integers(1, 60),
    st.integers(0, 5),
)
@settings(max_examples=60)
def test_the_order_of_shards_draws_whole_groups_too(
    sizes: list[int], lanes: int, window: int, seed: int
) -> None:
    samples = samples_of([*sizes, *[8] * 8])  # groups of four classes, the last two are whole
    options = BatchOptions(4, 3, order="shards", lanes=lanes, window=window, groups_per_batch=2)
    try:
        plan = plan_epoch(samples, options, seed=seed, epoch=0)
    except InvalidData:
        assert lanes > 1 or len(sizes) % 4  # lanes may hold too little, the whole never
        return
    require_exact(plan, samples, options)
    require_groups(plan, samples, options)
    assert np.array_equal(plan, plan_epoch(samples, options, seed=seed, epoch=0))


def test_groups_wait_for_their_classes_and_most_of_them_come() -> None:
    """30 groups of 8 classes and a window of 20 runs, where chance alone would fill no part."""
    samples = samples_of([24] * 240, shards=40, classes_of_a_group=8)
    options = BatchOptions(8, 4, order="shards", window=20, groups_per_batch=2)
    plan = plan_epoch(samples, options, seed=0, epoch=0)
    require_exact(plan, samples, options)
    require_groups(plan, samples, options)
    assert len(np.unique(samples.labels[plan, 0])) == 30
    assert plan.size > 0.85 * 24 * 240


def test_lanes_that_hold_no_whole_group_are_refused() -> None:
    samples = samples_of([8] * 8, shards=1)
    options = BatchOptions(4, 4, order="shards", lanes=2, groups_per_batch=2)
    with pytest.raises(InvalidData, match=r"2 lanes cannot .* give 1 x 2 classes of a group"):
        plan_epoch(samples, options, seed=0, epoch=0)


def test_a_group_with_too_few_classes_is_left_out_and_counted() -> None:
    samples = samples_of([12] * 13)  # three groups of four classes, and one class alone
    options = BatchOptions(4, 4, order="shards", groups_per_batch=2)
    report = measure_coverage(samples, options, seed=0)
    assert report.classes_reached <= 12 and report.classes == 13
    assert report.images_left_out >= 12


def test_parents_are_drawn_as_often_as_they_have_runs() -> None:
    """Groups of 10, 20 and 70 classes: the largest is in most batches, none in all of them."""
    group = np.repeat([0, 1, 2], [10, 20, 70])
    classes = np.repeat(np.arange(100), 5)
    table, peak = draw_from_window(
        classes,
        group[classes],
        np.ones(500, np.int64),
        np.zeros(500, np.int64),
        num_lanes=1,
        parts=1,
        width=5,
        window=500,
        seed=1,
    )
    share = np.bincount(group[classes[table]][:40, 0], minlength=3) / 40
    assert peak == 500 and abs(share - [0.1, 0.2, 0.7]).max() < 0.2
    assert all(len(set(classes[row])) == 5 for row in table)
    assert len(np.unique(table)) == table.size  # a run that gives once is taken once


@pytest.mark.parametrize("order", ["random", "shards"])
def test_small_classes_are_repeated(order: Literal["random", "shards"]) -> None:
    samples = samples_of([1, 2, 3, 4])
    options = BatchOptions(4, 4, order=order, small_classes="repeat")
    (batch,) = plan_epoch(samples, options, seed=0, epoch=0)
    found = [sorted(np.bincount(batch[samples.labels[batch, -1] == c]).tolist()) for c in range(4)]
    counts = [[n for n in count if n] for count in found]
    assert counts == [[4], [2, 2], [1, 1, 2], [1, 1, 1, 1]]
    report = measure_coverage(samples, options, seed=0)
    assert (report.repeats, report.classes_reached, report.images_left_out) == (6, 4, 0)


def test_a_small_class_in_several_runs_is_repeated_and_a_large_one_is_not() -> None:
    """Class 0 has runs of 1 and 2 images, as at the end of a shard, and class 1 four of 1."""
    classes = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
    runs, shards = np.array([0, 1, 1, 2, 3, 4, 5, 6, 6, 6, 6]), np.array([0] + [1] * 10)
    options = BatchOptions(2, 4, order="shards", small_classes="repeat")
    plan = plan_epoch(Samples(classes[:, None], runs, shards), options, seed=0, epoch=0)
    (batch,) = plan.tolist()
    assert sorted(batch) == [1, 1, 2, 2, 7, 8, 9, 10]


@pytest.mark.parametrize("order", ["random", "shards"])
def test_small_classes_are_padded(order: Literal["random", "shards"]) -> None:
    samples = samples_of([1, 2, 3, 4])
    options = BatchOptions(4, 4, order=order, small_classes="pad")
    (batch,) = plan_epoch(samples, options, seed=0, epoch=0)
    assert sorted(batch[batch >= 0].tolist()) == list(range(10))
    report = measure_coverage(samples, options, seed=0)
    assert report.padding == 6 and "padded places: 6" in report.describe(4)


@pytest.mark.parametrize("order", ["random", "shards"])
def test_coverage_is_what_the_epoch_shows(order: Literal["random", "shards"]) -> None:
    samples = samples_of([1, 3, 4, 5, 9, 17, 20, 33])
    options = BatchOptions(3, 4, order=order, lanes=1)
    report = measure_coverage(samples, options, seed=0)
    plan = plan_epoch(samples, options, seed=0, epoch=0)
    assert report.images_reached == len(set(plan.ravel().tolist()))
    assert (report.classes, report.images) == (8, 92)
    assert (report.classes_too_small, report.images_too_small) == (2, 4)
    total = report.images_reached + report.images_too_small + report.images_left_out
    assert total == report.images and report.steps == (len(plan),)


def test_over_epochs_every_class_that_is_large_enough_comes() -> None:
    samples = samples_of(np.random.default_rng(0).integers(1, 30, 300).tolist())
    options = BatchOptions(16, 4, order="shards", window=64)
    report = measure_coverage(samples, options, seed=0, epochs=3)
    assert report.classes_reached == report.classes - report.classes_too_small
    assert report.images_left_out < 0.05 * report.images


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_share_the_global_batch_without_a_duplicate(ranks: int) -> None:
    samples = samples_of([8] * 20)
    options = BatchOptions(4, 4)
    whole = plan_epoch(samples, options, seed=1, epoch=0)
    parts = [whole[:, part_of_rank(16, rank, ranks)] for rank in range(ranks)]
    assert np.array_equal(np.concatenate(parts, axis=1), whole)


def test_a_state_goes_on_in_the_next_epoch() -> None:
    samples, options = samples_of([8] * 8), BatchOptions(4, 4)
    plan = BatchPlan(samples, options, seed=1)
    state = plan.state_of(5)
    assert len(plan.rows(0)) == 4
    assert (state["epoch"], state["step"]) == (1, 1)
    assert BatchPlan(samples, options, seed=1).step_of(state) == 5


@pytest.mark.parametrize("order", ["random", "shards"])
def test_a_state_of_any_step_goes_on_with_the_same_rows(order: Literal["random", "shards"]) -> None:
    samples, options = samples_of([9] * 8), BatchOptions(4, 4, order=order)

    def rows(plan: BatchPlan, start: int, stop: int) -> list[list[int]]:
        return [plan.at(step).rows.tolist() for step in range(start, stop)]

    whole = rows(BatchPlan(samples, options, seed=1), 0, 15)
    for stop in range(15):
        first, second = (BatchPlan(samples, options, seed=1) for _ in range(2))
        head = rows(first, 0, stop)
        assert head + rows(second, second.step_of(first.state_of(stop)), 15) == whole


def test_a_state_of_other_batches_is_refused() -> None:
    samples = samples_of([8] * 8)
    state = BatchPlan(samples, BatchOptions(4, 4), seed=1).state_of(0)
    with pytest.raises(InvalidData, match="saved with other shards, batch options"):
        BatchPlan(samples, BatchOptions(4, 4), seed=2).step_of(state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups_per_batch": 3}, "groups_per_batch 3 does not divide classes_per_batch 4"),
        ({"lanes": 3, "order": "shards"}, "lanes 3 does not divide"),
        ({"images_cap": 2}, "images_cap 2 is below images_per_class 4"),
        (
            {"groups_per_batch": 2, "order": "shards", "lanes": 4},
            "lanes 4 does not divide groups_per_batch 2",
        ),
        ({"batches_per_combination": 5}, "batches_per_combination .* needs groups_per_batch"),
        (
            {"batches_per_combination": 5, "groups_per_batch": 2, "order": "shards"},
            "batches_per_combination .* and the order",
        ),
        ({"order": "combinations"}, 'order "combinations" needs batches_per_combination'),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BatchOptions(4, 4, **options)


def test_a_batch_that_the_ranks_cannot_share_is_refused() -> None:
    with pytest.raises(UsageError, match="3 ranks do not divide a batch of 16"):
        part_of_rank(16, rank=0, world_size=3)


@pytest.mark.parametrize(
    "options",
    [
        {"classes_per_batch": 0},
        {"images_per_class": -1},
        {"lanes": 0},
        {"window": 0},
        {"groups_per_batch": 0},
        {"classes_per_batch": 2.0},
        {"images_cap": "8"},
        {"order": "sorted"},
        {"small_classes": "keep"},
    ],
    ids=str,
)
def test_an_option_that_means_nothing_is_named(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(UsageError, match=f"{name} is"):
        BatchOptions(**{"classes_per_batch": 4, "images_per_class": 4, **options})


@pytest.mark.parametrize(("rank", "world_size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_that_is_none_is_refused(rank: int, world_size: int) -> None:
    with pytest.raises(UsageError, match="expected"):
        part_of_rank(16, rank, world_size)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="expected"):
        BatchPlan(samples_of([8] * 8), BatchOptions(4, 4), seed=-1)


@pytest.mark.parametrize("wrong", [{"step": -1}, {"step": 10**6}, {"epoch": -1}], ids=str)
def test_a_state_of_a_step_that_is_none_is_refused(wrong: dict[str, int]) -> None:
    plan = BatchPlan(samples_of([8] * 8), BatchOptions(4, 4), seed=0)
    with pytest.raises(InvalidData, match="there is none"):
        plan.step_of({**plan.state_of(0), **wrong})
    with pytest.raises(InvalidData, match="not a saved state"):
        plan.step_of({"step": 0})


@pytest.mark.parametrize("order", ["random", "shards"])
def test_no_samples_are_said_to_be_none(order: Literal["random", "shards"]) -> None:
    none = np.zeros(0, np.int64)
    with pytest.raises(InvalidData, match="no samples"):
        options = BatchOptions(4, 4, order=order)
        plan_epoch(Samples(np.zeros((0, 2), np.int64), none, none), options, seed=0, epoch=0)


def test_lanes_with_too_few_classes_are_refused() -> None:
    samples = samples_of([8, 8, 8, 8], shards=1)
    with pytest.raises(InvalidData, match="2 lanes cannot fill one batch"):
        plan_epoch(samples, BatchOptions(4, 4, order="shards", lanes=2), seed=0, epoch=0)


# Recorded when every plan was one table of 64-bit numbers.
RECORDED: dict[str, tuple[dict[str, Any], str]] = {
    "random": ({}, "a9da1711d0d15b78"),
    "repeat": ({"small_classes": "repeat"}, "981817950090d02c"),
    "pad": ({"images_per_class": 8, "small_classes": "pad"}, "d58a41d4319157df"),
    "cap": ({"images_cap": 8}, "3e4e2a99a2f698ef"),
    "groups": ({"groups_per_batch": 2}, "61692ee18b07e7c2"),
    "combination": ({"groups_per_batch": 2, "batches_per_combination": 2}, "d2086c299aadfe30"),
    "shards": ({"order": "shards", "window": 64}, "f0c228971601ecf4"),
    "lanes": (
        {"order": "shards", "window": 64, "lanes": 2, "small_classes": "repeat"},
        "926e3a114313c9fc",
    ),
}


def recorded_samples(count: int = 20_000) -> Samples:
    random = np.random.default_rng(0)
    classes = np.sort(random.integers(0, 2500, count))
    random.permutation(count)
    labels = np.column_stack([classes % 40 % 3, classes % 40, classes])
    begins = (classes[1:] != classes[:-1]) | (np.arange(1, count) % 7 == 0)
    runs = np.r_[0, np.cumsum(begins)]
    order = np.lexsort((runs, runs % 11))
    return Samples(labels[order], runs[order], (runs % 11)[order])


@pytest.mark.parametrize("name", RECORDED)
def test_a_plan_is_the_recorded_one(name: str) -> None:
    changes, digest = RECORDED[name]
    options = BatchOptions(**{"classes_per_batch": 16, "images_per_class": 4, **changes})
    samples = recorded_samples()
    plan = plan_epoch(samples, options, seed=3, epoch=1)
    assert plan.dtype == np.int64
    assert sha256(plan.tobytes()).hexdigest()[:16] == digest
    batches = BatchPlan(samples, options, seed=3)
    for step in (0, len(plan) - 1):
        first = batches.steps_of(1)[0]
        assert batches.at(first + step).rows.tolist() == plan[step].tolist()


def test_rows_of_a_shard_that_are_apart_have_the_recorded_plan() -> None:
    samples = recorded_samples()
    apart = np.random.default_rng(1).permutation(len(samples.runs))
    mixed = Samples(*(array[apart] for array in vars(samples).values()))
    options = BatchOptions(16, 4, order="shards", window=64)
    plan = plan_epoch(mixed, options, seed=3, epoch=1)
    assert sha256(plan.tobytes()).hexdigest()[:16] == "8fb2e010c97e5553"


def test_the_fingerprint_is_the_recorded_one_for_any_integers() -> None:
    samples = recorded_samples()
    short = Samples(*(array.astype(np.int32) for array in vars(samples).values()))
    for held in (samples, short):
        found = BatchPlan(held, BatchOptions(16, 4), seed=3).fingerprint
        assert found[:16] == "f64f431c0e34db9c"
    of_numpy = BatchOptions(np.int64(16), np.int32(4))  # type: ignore[arg-type]
    found = BatchPlan(samples, of_numpy, seed=np.int64(3)).fingerprint  # type: ignore[arg-type]
    assert found[:16] == "f64f431c0e34db9c"


def test_a_run_of_several_classes_is_refused_in_the_order_of_shards() -> None:
    """Else the class of its first image counted for all, and batches had another P and K."""
    labels = np.repeat(np.arange(8), 4)[:, None]
    samples = Samples(labels, np.arange(32) // 4, np.arange(32) // 8)
    options = BatchOptions(2, 2, order="shards")
    assert len(plan_epoch(samples, options, seed=0, epoch=0))
    mixed = replace(samples, labels=np.roll(labels, 1, axis=0))
    with pytest.raises(InvalidData, match='a run has images of several classes, but the order "sh'):
        plan_epoch(mixed, options, seed=0, epoch=0)
    assert len(plan_epoch(mixed, replace(options, order="random"), seed=0, epoch=0))


def test_many_swaps_drawn_in_pieces_are_those_drawn_at_once() -> None:
    whole = np.random.default_rng(5).integers(0, 999_983, (7_001, 2))
    random = np.random.default_rng(5)
    parts = [random.integers(0, 999_983, (n, 2)) for n in (3_001, 1_024, 2_976)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_arrays_of_many_samples_are_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    held = recorded_samples()
    rows = pd.DataFrame({"shard": held.shards.astype(str), "run": held.runs})
    rows[[f"level_{level}" for level in (1, 2, 3)]] = held.labels
    plain = Samples.of_index(rows)
    monkeypatch.setattr(image_table, "MANY", 1000)
    monkeypatch.setattr(sampling, "PIECE", 300)
    monkeypatch.setattr(image_table, "PIECE", 300)
    in_files = Samples.of_index(rows)
    for name, array in vars(in_files).items():
        assert isinstance(array, np.memmap) and (array == getattr(plain, name)).all()
    for options in (BatchOptions(16, 4), BatchOptions(16, 4, order="shards", window=64)):
        one, other = (BatchPlan(samples, options, seed=3) for samples in (plain, in_files))
        assert (one.rows(1) == other.rows(1)).all()
        assert one.fingerprint == other.fingerprint


def test_a_plan_of_samples_in_files_may_be_sent_to_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(image_table, "MANY", 4)
    held = recorded_samples()
    rows = pd.DataFrame({"shard": held.shards.astype(str), "run": held.runs})
    rows[[f"level_{level}" for level in (1, 2, 3)]] = held.labels
    plan = BatchPlan(Samples.of_index(rows), BatchOptions(16, 4), seed=3)
    assert pickle.loads(pickle.dumps(plan)).fingerprint == plan.fingerprint


def test_labels_that_were_changed_in_a_private_map_stay(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", np.zeros((12, 1), np.int32))
    labels = np.load(tmp_path / "labels.npy", mmap_mode="c")
    labels[6:] = 1
    list(image_table.pieces(labels))
    assert labels[:, 0].tolist() == [0] * 6 + [1] * 6


def test_a_disk_without_room_for_the_samples_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(image_table, "MANY", 10)
    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(Resumable, match=r"no room for 0\.0 GB .*No space left.*; make room"):
        Samples.of_labels(np.zeros((11, 1), np.int32))


def test_a_folder_of_temporary_files_that_is_gone_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_table, "MANY", 10)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(Resumable, match=r"gone: no room .*No such file.*; make room, or set TMP"):
        Samples.of_labels(np.zeros((11, 1), np.int32))
