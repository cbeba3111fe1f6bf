"""Ids of clusters from one clustering to the next."""

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hgld.hierarchy.cluster_ids import Before, Change, keep_ids, tell_changes

KEYS = [f"v{i}" for i in range(12)]
partitions = st.lists(st.integers(0, 3), min_size=12, max_size=12)


def relabelled(labels: list[int]) -> np.ndarray:
    """0..k-1 in the order of appearance."""
    place = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return np.array([place[label] for label in labels])


def before_of(labels: list[int], free: int = 90) -> Before:
    return Before({key: 10 + label for key, label in zip(KEYS, labels, strict=True)}, free)


@given(partitions, partitions)
def test_ids_tell_the_same_clusters_apart_and_new_ones_were_never_given(
    now: list[int], then: list[int]
) -> None:
    labels = relabelled(now)
    ids = keep_ids(KEYS, labels, before_of(then), {})
    assert len(set(zip(labels.tolist(), ids.tolist(), strict=True))) == len(set(now))
    assert len(set(ids.tolist())) == len(set(now))
    known = {10 + label for label in then}
    assert all(i in known or i >= 90 for i in ids.tolist())


@given(partitions)
def test_the_same_clusters_keep_all_their_ids(labels: list[int]) -> None:
    ids = keep_ids(KEYS, relabelled(labels), before_of(labels), {})
    assert ids.tolist() == [10 + label for label in labels]


@given(partitions, partitions)
def test_no_other_matching_keeps_more_of_the_overlap(now: list[int], then: list[int]) -> None:
    labels = relabelled(now)
    ids = keep_ids(KEYS, labels, before_of(then), {})
    old = [10 + label for label in then]
    overlap = {
        (new, i): np.mean([a == new and b == i for a, b in zip(labels, old, strict=True)])
        / np.mean([a == new or b == i for a, b in zip(labels, old, strict=True)])
        for new in range(labels.max() + 1)
        for i in {*old, -1, -2, -3}
    }
    kept = dict(zip(labels.tolist(), ids.tolist(), strict=True))
    found = sum(overlap[new, i] for new, i in kept.items() if i < 90)
    choices = permutations([*sorted(set(old)), -1, -2, -3], int(labels.max()) + 1)
    best = max(
        sum(overlap[new, i] * (overlap[new, i] >= 0.5) for new, i in enumerate(choice))
        for choice in choices
    )
    assert found >= best - 1e-9  # all that is kept overlaps by one half or more
    assert all(overlap[new, i] >= 0.5 for new, i in kept.items() if i < 90)


def test_values_that_are_new_or_gone_do_not_count() -> None:
    before = Before({"a": 4, "gone": 4, "lost": 4, "b": 5}, 6)
    found = keep_ids(["a", "b", "x", "y"], np.array([0, 1, 0, 0]), before, {})
    assert found.tolist() == [4, 5, 4, 4]


def test_what_became_of_each_cluster_is_told() -> None:
    before = {"a": 0, "b": 0, "c": 1, "d": 1, "e": 2, "f": 3, "g": 4}
    now = {"a": 0, "b": 0, "c": 5, "d": 6, "e": 2, "f": 2, "new": 7}
    assert tell_changes(before, now) == [
        Change(0, "kept"),
        Change(2, "merged", (2, 3)),
        Change(5, "split", (1,)),
        Change(6, "split", (1,)),
        Change(7, "new"),
        Change(1, "gone", (5,)),
        Change(3, "gone", (2,)),
        Change(4, "gone", ()),
    ]
