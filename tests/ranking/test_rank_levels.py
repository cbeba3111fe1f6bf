import pytest
import torch

from hgld.errors import ShapeError
from hgld.ranking import levels


def test_shared_level_is_the_length_of_the_common_prefix() -> None:
    query = torch.tensor([[1, 2, 3]])
    gallery = torch.tensor([[1, 2, 3], [1, 2, 4], [1, 9, 3], [7, 2, 3]])
    assert levels.shared_levels(query, gallery).tolist() == [[3, 2, 1, 0]]


def test_exclude_self_takes_out_the_diagonal_alone() -> None:
    labels = torch.tensor([[0, 0], [0, 0], [0, 1]])
    found = levels.shared_levels(labels, labels, exclude_self=True)
    assert found.tolist() == [[-1, 2, 1], [2, -1, 1], [1, 1, -1]]


def test_ids_above_32_bits_stay_different() -> None:
    labels = torch.tensor([[2**40], [2**40 + 2**32]])
    assert levels.shared_levels(labels, labels).tolist() == [[1, 0], [0, 1]]


def test_ids_that_overflow_are_refused() -> None:
    labels = torch.tensor([[2**63]], dtype=torch.uint64)
    with pytest.raises(ShapeError, match="renumber"):
        levels.shared_levels(labels, labels)


@pytest.mark.parametrize(
    ("query", "gallery", "text"),
    [
        (torch.zeros(1, 2).long(), torch.zeros(1, 3).long(), "levels"),
        (torch.zeros(1, 2), torch.zeros(1, 2).long(), "integers"),
        (torch.zeros(0, 2).long(), torch.zeros(1, 2).long(), "shape"),
        (torch.zeros(2).long(), torch.zeros(1, 2).long(), "shape"),
    ],
)
def test_labels_that_do_not_fit_are_refused(query, gallery, text) -> None:
    with pytest.raises(ShapeError, match=text):
        levels.shared_levels(query, gallery)


def test_relevance_of_eq_20_shares_a_levels_weight_among_its_images() -> None:
    found = levels.relevance(torch.tensor([[3, 2, 2, 1, 0, -1]]), num_levels=3)
    expected = torch.tensor([[1.0, 1 / 3, 1 / 3, 1 / 3, 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(found, expected)


def test_alpha_lowers_coarse_levels() -> None:
    found = levels.relevance(torch.tensor([[3, 2, 1]]), num_levels=3, alpha=2.0)
    expected = torch.tensor([[1.0, 4 / 9, 1 / 9]], dtype=torch.float64)
    torch.testing.assert_close(found, expected)


def test_weighted_relevance_always_grows_with_the_level() -> None:
    found = levels.weighted_relevance(torch.tensor([[2] * 9 + [1] * 2 + [0]]), [0.5, 0.5])
    assert found[0, 0] > found[0, 10] > found[0, 11] == 0


def test_weights_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(ShapeError, match="sum"):
        levels.weighted_relevance(torch.tensor([[1]]), [0.5])


@pytest.mark.parametrize("at", [1, 2, 126, 127, 128, 200, 300])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int64])
def test_at_least_compares_levels_of_any_type(at: int, dtype: torch.dtype) -> None:
    table = torch.tensor([[-1, 0, 1, 2, 3, 126, 127]], dtype=dtype)
    found = levels.at_least(table, at)
    assert found.dtype == torch.int8
    assert found.tolist() == [[-1, *(int(level >= at) for level in (0, 1, 2, 3, 126, 127))]]


def test_at_least_keeps_what_is_absent_absent() -> None:
    assert levels.at_least(torch.tensor([[2, 1, 0, -1]]), 2).tolist() == [[1, 0, 0, -1]]


def test_inverted_queries_are_counted() -> None:
    # 9 images on level 2 weigh 1/9 each, 2 images on level 1 weigh 1/4 each
    counts = torch.tensor([[0, 2, 9], [0, 2, 2], [0, 0, 9]])
    assert levels.inverted_queries(levels.relevance_table(counts), counts) == 1


def test_a_query_with_equal_relevances_is_not_inverted_by_rounding() -> None:
    counts = torch.tensor([[0, 1, 0, 3, 0, 0]])  # (1 / 5) / 1 is (3 / 5) / 3, but not in floats
    table = levels.relevance_table(counts)
    assert table[0, 3] < table[0, 1]
    assert levels.inverted_queries(table, counts) == 0


def test_a_query_counted_among_the_relevant_lowers_its_finest_level_only() -> None:
    counts = torch.tensor([[5, 2, 3], [4, 1, 0]])
    found = levels.relevance_table(counts, count_query=True)
    assert found.tolist() == [[0.0, 0.25, 0.25], [0.0, 0.5, 0.0]]
    assert counts.tolist() == [[5, 2, 3], [4, 1, 0]]
