"""Ranking whole galleries by the kernel: exact ranks against sorting in torch."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgld.errors import ShapeError
from hgld.ranking import evaluation, metrics
from hgld.ranking.kernels.device import score_rows
from hgld.ranking.kernels.rank_cpu import rank_rows
from hgld.ranking.levels import ClassRanges, count_levels, shared_levels
from hgld.ranking.rankings import Ranking, rank_columns

NAMES = ["H-AP", "NDCG", "ASI", "AP:1", "mAP@R:2", "mAP@3:1", "R@2:3", "TR@4:2", "wAP", "H-P@2"]


def labels_of(make, count, ids=(2, 4, 8)):
    return torch.stack([torch.randint(0, n, (count,), generator=make) for n in ids], 1)


def rank_all(scores, query_labels, gallery_labels, exclude_self=False, first=5):
    """Levels by rank and the first columns of each row by the kernel."""
    classes = ClassRanges.of(query_labels, gallery_labels, exclude_self)
    own = np.arange(len(scores)) if exclude_self else np.full(len(scores), -1)
    levels = np.empty(scores.shape, np.int8)
    order = np.empty((len(scores), min(first, scores.shape[1])), np.int32)
    ranges = classes.places().numpy(), classes.starts.numpy(), classes.ends.numpy()
    rank_rows(scores.numpy(), *ranges, own, levels, order)
    return levels.tolist(), order.tolist()


def by_sorting(scores, query_labels, gallery_labels, exclude_self=False, first=5):
    levels = shared_levels(query_labels, gallery_labels, exclude_self)
    order = rank_columns(scores.double(), levels)
    ranked = levels.gather(1, order).tolist(), order[:, :first].tolist()
    return ranked, count_levels(levels, gallery_labels.shape[1])


@settings(max_examples=80)
@given(
    seed=st.integers(0, 10**6),
    gallery=st.integers(1, 60),
    steps=st.sampled_from([1, 3, 10, 10**6]),
    exclude_self=st.booleans(),
)
def test_any_small_gallery_is_ranked_exactly(seed, gallery, steps, exclude_self) -> None:
    make = torch.Generator().manual_seed(seed)
    g_labels = labels_of(make, gallery)
    q_labels = g_labels if exclude_self else labels_of(make, 4)
    scores = (torch.rand(len(q_labels), gallery, generator=make) * 2 - 1).mul(steps).round() / steps
    expected, counts = by_sorting(scores, q_labels, g_labels, exclude_self)
    assert rank_all(scores, q_labels, g_labels, exclude_self) == expected
    assert torch.equal(ClassRanges.of(q_labels, g_labels, exclude_self).counts(), counts)


def spread(kind, make, n=3000):
    """Rows of scores that are hard to sort."""
    noise = torch.rand(2, n, generator=make)
    return {
        "equal": torch.full((2, n), 0.25),
        "outlier": torch.cat([noise[:, 1:] * 1e-6, torch.full((2, 1), -1.0)], 1),
        "beyond one": noise * 2.2 - 1.1,
        "large": noise * 1e30 - 5e29,
        "huge": (noise * 2 - 1) * 3.4e38,
        "signed zero": torch.where(noise > 0.5, 0.0, -0.0),
        "neighbours": torch.ones(2, n) + (noise * 40).floor() * torch.finfo(torch.float32).eps,
        "tiny": noise * 1e-38,
        "far from zero": 5.0 + noise * 1e-3,
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "equal",
        "outlier",
        "beyond one",
        "large",
        "huge",
        "signed zero",
        "neighbours",
        "tiny",
        "far from zero",
    ],
)
def test_hard_rows_are_ranked_exactly(kind) -> None:
    make = torch.Generator().manual_seed(1)
    scores = spread(kind, make).contiguous()
    q_labels, g_labels = labels_of(make, 2), labels_of(make, 3000)
    expected, _ = by_sorting(scores, q_labels, g_labels)
    assert rank_all(scores, q_labels, g_labels) == expected


def same(one, two, atol=1e-12) -> None:
    torch.testing.assert_close(one, two, atol=atol, rtol=0, equal_nan=True)


def vectors(make, count, dim=12):
    return torch.nn.functional.normalize(torch.randn(count, dim, generator=make), dim=1)


@pytest.fixture(scope="module")
def world():
    make = torch.Generator().manual_seed(5)
    return (vectors(make, 30), labels_of(make, 30), vectors(make, 200), labels_of(make, 200))


pytestmark = pytest.mark.filterwarnings("ignore::hgld.ranking.levels.RelevanceWarning")


def test_a_kept_ranking_gives_every_metric_again(world) -> None:
    ranking = metrics.rank_gallery(*world)
    again = Ranking.from_arrays(ranking.to_arrays())
    for names in (NAMES, ["H-AP(alpha=3)", "R@7:1"]):
        found, expected = again.evaluate(names), metrics.evaluate(*world, names)
        for name in names:
            same(found.per_query[name], expected.per_query[name], 0.0)


def test_a_ranking_is_built_of_tensors_too(world) -> None:
    arrays = metrics.rank_gallery(*world).to_arrays()
    again = Ranking.from_arrays({name: torch.from_numpy(array) for name, array in arrays.items()})
    assert all(np.array_equal(again.to_arrays()[name], array) for name, array in arrays.items())


def test_float32_by_kernel_and_float64_by_sorting_agree(world) -> None:
    query, q_labels, gallery, g_labels = world
    found = metrics.evaluate(query, q_labels, gallery, g_labels, NAMES)
    wide = metrics.evaluate(query.double(), q_labels, gallery.double(), g_labels, NAMES)
    for name in NAMES:
        same(found.per_query[name], wide.per_query[name])


def test_gallery_order_changes_nothing(world) -> None:
    query, q_labels, gallery, g_labels = world
    gallery = torch.cat([gallery, gallery[:50]])  # exact duplicates tie
    g_labels = torch.cat([g_labels, g_labels[50:100]])
    mixed = torch.randperm(250, generator=torch.Generator().manual_seed(0))
    one = metrics.evaluate(query, q_labels, gallery, g_labels, NAMES)
    two = metrics.evaluate(query, q_labels, gallery[mixed], g_labels[mixed], NAMES)
    for name in NAMES:
        same(one.per_query[name], two.per_query[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_ranking_keeps_what_only_its_own_precision_tells_apart(dtype) -> None:
    scores = torch.tensor([[1 - torch.finfo(dtype).eps], [1.0]], dtype=dtype)
    sides = torch.ones(1, 1, dtype=dtype), torch.tensor([[0]]), scores, torch.tensor([[1], [0]])
    assert metrics.evaluate(*sides, ["AP:1"]).mean() == {"AP:1": 1.0}
    assert metrics.rank_gallery(*sides).evaluate(["AP:1"]).mean() == {"AP:1": 1.0}


@pytest.mark.parametrize("exclude_self", [False, True])
def test_a_ranking_of_float64_is_kept_in_blocks(world, monkeypatch, exclude_self) -> None:
    monkeypatch.setattr(evaluation, "CELLS_AT_ONCE", 7 * 200)  # several blocks
    _, _, gallery, labels = world
    whole, wide = (
        metrics.rank_gallery(g[:30], labels[:30], g, labels, exclude_self)
        for g in (gallery, gallery.double())
    )
    for name, array in whole.to_arrays().items():
        assert np.array_equal(wide.to_arrays()[name], array)


def test_sides_of_different_precision_are_scored_in_the_finer(world) -> None:
    query, q_labels, gallery, g_labels = world
    both = metrics.evaluate(query.double(), q_labels, gallery.double(), g_labels, NAMES)
    one = metrics.evaluate(query, q_labels, gallery.double(), g_labels, NAMES)
    assert one.mean() == both.mean()


@pytest.mark.parametrize("size", [5, 11, 100, 1001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_vectors_tie_wherever_they_are_in_the_gallery(dtype, size) -> None:
    """The last two of a gallery got another last bit than the others, and the first ranks."""
    make = torch.Generator().manual_seed(1)
    query, image = (torch.randn(n, 64, generator=make, dtype=dtype) for n in (20, 1))
    labels = (torch.arange(size) >= size - 2).long()[:, None]
    sides = query, torch.ones(20, 1).long(), image.expand(size, -1)
    for gallery_labels in (labels, labels.flip(0)):
        found = metrics.evaluate(*sides, gallery_labels, ["AP"]).per_query["AP"]
        worst = (1 / (size - 1) + 2 / size) / 2  # the relevant ones rank last
        assert found.tolist() == pytest.approx([worst] * 20)


@pytest.mark.parametrize("size", [1279, 1281, 3000])
def test_scores_of_a_gallery_that_is_cut_have_the_bits_of_one_product(size) -> None:
    gallery = torch.randn(size, 512, generator=torch.Generator().manual_seed(1))
    scores = torch.empty(16, size)
    score_rows(gallery[:16], gallery, scores)
    assert torch.equal(scores, gallery[:16] @ gallery.T)


def test_finer_levels_that_weigh_less_are_counted_and_warned_about() -> None:
    labels = torch.tensor([[0, 0]] * 9 + [[0, 1]])
    gallery = torch.nn.functional.normalize(torch.randn(10, 4), dim=1)
    sides = gallery[:1], labels[:1], gallery, labels
    ranking = metrics.rank_gallery(*sides)
    for run in (lambda: metrics.evaluate(*sides, ["H-AP"]), lambda: ranking.evaluate(["H-AP"])):
        with pytest.warns(UserWarning, match="1 of 1 query has") as seen:
            assert run().inverted == 1
        assert seen[0].filename == __file__


@pytest.mark.filterwarnings("ignore::hgld.ranking.levels.RelevanceWarning")
def test_inverted_queries_are_those_of_the_alphas_that_are_measured() -> None:
    labels = torch.tensor([[0, 0]] * 9 + [[0, 1]])  # 1 / 9 against 0.5 ** alpha
    sides = torch.randn(1, 4), labels[:1], torch.randn(10, 4), labels
    counts = {
        names: metrics.evaluate(*sides, names).inverted
        for names in (("H-AP(alpha=3)",), ("H-AP(alpha=4)",), ("H-R(alpha=4)@3", "H-AP"))
    }
    assert [*counts.values()] == [1, 0, 1]


def test_levels_that_weigh_less_do_not_concern_metrics_of_one_level(
    recwarn: pytest.WarningsRecorder,
) -> None:
    labels = torch.tensor([[0, 0]] * 9 + [[0, 1]])
    sides = torch.randn(1, 4), labels[:1], torch.randn(10, 4), labels
    warnings.simplefilter("always")
    assert metrics.evaluate(*sides, ["AP:1", "NDCG", "wAP"]).inverted == 1
    assert not recwarn


def test_nan_embeddings_are_refused(world) -> None:
    query, q_labels, gallery, g_labels = world
    with pytest.raises(ShapeError, match="nan or inf"):
        metrics.evaluate(query * float("nan"), q_labels, gallery, g_labels, NAMES)


def test_a_broken_ranking_is_refused(world) -> None:
    arrays = metrics.rank_gallery(*world).to_arrays()
    with pytest.raises(ShapeError, match="without levels"):
        Ranking.from_arrays({n: a for n, a in arrays.items() if n != "levels"})
    with pytest.raises(ShapeError, match="differ in number"):
        Ranking.from_arrays({**arrays, "first": arrays["first"][:-1]})
    with pytest.raises(ShapeError, match="counts are not those of its levels"):
        Ranking.from_arrays({**arrays, "counts": arrays["counts"] + 1})


def test_an_image_that_is_not_in_the_gallery_has_no_rank_wherever_it_is() -> None:
    """The query itself has the highest score, and took the first rank."""
    names = ["AP:1", "R@1:2", "NDCG", "H-AP"]
    last, first = (
        Ranking.of(torch.tensor(levels), num_levels=2)
        for levels in ([[2, 0, 1, -1], [0, 1, 1, 0]], [[-1, 2, 0, 1], [0, 1, 1, 0]])
    )
    for name, values in last.evaluate(names).per_query.items():
        torch.testing.assert_close(first.evaluate(names).per_query[name], values, equal_nan=True)
    assert first.levels.tolist() == last.levels.tolist()
