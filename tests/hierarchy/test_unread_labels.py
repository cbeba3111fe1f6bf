import numpy as np
import pytest

from hgld.hierarchy.unread_labels import find_unread


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ("lake", "Lake!", False),
        ("São Paulo", "sao paulo", False),
        ("熊猫", "雨伞", True),
        ("🦁", "🐯", True),
        ("🦁", "🦁", False),
        ("किला", "केला", True),
        ("lake", "", True),
    ],
)
def test_labels_of_one_vector_differ_in_letters_or_are_symbols(
    one: str, other: str, differ: bool
) -> None:
    assert find_unread([one, other], np.ones((2, 3))).tolist() == [differ, differ]


def test_near_vectors_are_those_of_a_comparison_of_all_pairs() -> None:
    random = np.random.default_rng(0)
    base = random.normal(size=(300, 8))
    vectors = base / np.linalg.norm(base, axis=1, keepdims=True)
    vectors[150:200] = vectors[random.integers(0, 60, 50)]
    vectors = (vectors + random.normal(0, 5e-7, vectors.shape)).astype(np.float32).round(6)
    vectors = vectors[random.permutation(300)]
    apart = np.abs(vectors[:, None] - vectors[None]).max(axis=2) + np.eye(300)
    found = find_unread([f"label {row}" for row in range(300)], vectors)
    np.testing.assert_array_equal(found, (apart < 1e-5).any(axis=1))
    assert 50 < found.sum() < 300


def test_no_labels_give_an_empty_mask() -> None:
    assert find_unread([], np.empty((0, 0), np.float32)).shape == (0,)
