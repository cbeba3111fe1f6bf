from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from hgld.config import CollectOptions
from hgld.errors import InvalidData, UsageError
from hgld.sources.open_set import hold_out, split_classes


def test_the_keys_with_the_smallest_hashes_are_held_out() -> None:
    keys = [str(i) for i in range(50)]
    hashes = [int(sha256(f"7:{key}".encode()).hexdigest()[:16], 16) for key in keys]
    held = hold_out(keys, 0.24, seed=7)
    assert held.sum() == 12
    assert set(np.flatnonzero(held)) == set(np.argsort(hashes)[:12])


@pytest.mark.parametrize("seed", range(6))
def test_half_of_six_is_three_for_every_seed(seed: int) -> None:
    assert hold_out("abcdef", 0.5, seed).sum() == 3


@pytest.mark.parametrize("share", [0.1, 0.25, 1 / 3, 0.5, 0.9])
def test_each_group_gives_its_part_and_the_sum_is_exact(share: float) -> None:
    sizes = np.array([1, 2, 3, 10, 24])
    groups = np.repeat(np.arange(len(sizes)), sizes)
    names = groups.astype(str)
    held = hold_out([str(i) for i in range(len(groups))], share, seed=1, groups=names)
    parts = np.bincount(groups[held], minlength=len(sizes))
    assert held.sum() == round(share * 40)
    assert (np.abs(parts - share * sizes) < 1).all()


def test_the_order_of_the_keys_changes_nothing() -> None:
    keys, groups = [str(i) for i in range(40)], (np.arange(40) % 3).astype(str)
    held = hold_out(keys, 0.3, 2, groups)
    assert np.array_equal(hold_out(keys[::-1], 0.3, 2, groups[::-1]), held[::-1])


def test_the_seed_draws_which_of_equal_groups_give_a_class_more() -> None:
    keys, groups = [str(i) for i in range(40)], np.repeat([f"g{i}" for i in range(20)], 2)
    given = [set(groups[hold_out(keys, 0.2, seed, groups)]) for seed in range(3)]
    assert [len(names) for names in given] == [8, 8, 8]
    assert len(given[0] | given[1] | given[2]) > 12
    hashes = {name: sha256(f"2:{name}".encode()).hexdigest() for name in groups}
    assert given[2] == {*sorted(hashes, key=hashes.__getitem__)[:8]}


def test_a_larger_share_keeps_what_a_smaller_one_held_out() -> None:
    keys = [str(i) for i in range(500)]
    assert not (hold_out(keys, 0.1, 0) & ~hold_out(keys, 0.3, 0)).any()


def test_validation_is_an_exact_share_of_what_evaluation_leaves() -> None:
    keys = [str(i) for i in range(100)]
    splits = split_classes(keys, CollectOptions(evaluation_share=0.4, validation_share=0.25))
    assert [(splits == s).sum() for s in ("evaluation", "validation", "train")] == [40, 15, 45]


def test_listed_classes_are_held_out_and_no_others(tmp_path: Path) -> None:
    file = tmp_path / "held.txt"
    file.write_text("teal\r\n\n raven\n", encoding="utf-8-sig")
    for listed in (("teal", "raven"), file):
        splits = split_classes(
            ["mallard", "raven", "teal"], CollectOptions(evaluation_classes=listed)
        )
        assert splits.tolist() == ["train", "evaluation", "evaluation"]


def test_a_listed_name_in_the_other_unicode_form_is_found() -> None:
    options = CollectOptions(evaluation_classes=("Cafe\u0301", "tea"))
    assert split_classes(["Caf\u00e9", "bar", "tea"], options).tolist().count("evaluation") == 2


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (("ravn", "teal"), "no class with images is named 'ravn'; did you mean 'raven'"),
        (Path("no/such/list"), "evaluation_classes: .*/no/such/list: not readable"),
    ],
)
def test_a_list_that_does_not_fit_is_refused(listed: tuple[str, ...] | Path, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        split_classes(["raven", "teal"], CollectOptions(evaluation_classes=listed))


def test_an_evaluation_of_one_class_is_refused() -> None:
    with pytest.raises(UsageError, match=r"evaluation_share holds out 1 of 4 classes"):
        split_classes(["a", "b", "c", "d"], CollectOptions(evaluation_share=0.25))
