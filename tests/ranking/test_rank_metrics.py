"""Metrics: the papers' worked figures, hand-made cases, and a second route by sorting in python."""

import inspect
import json
import math
import re

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import pearsonr
from sklearn.metrics import average_precision_score

from hgld.errors import ShapeError
from hgld.ranking import levels as grades
from hgld.ranking import metrics, structure
from hgld.ranking.rankings import rank_columns
from tests.ranking import ranking_oracles as oracle

L = 3
WORKED = torch.tensor([0.0, 1 / 3, 2 / 3, 1.0], dtype=torch.float64)  # relevance of level 0..3


def in_order(*ranked: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and levels of one query whose ranked levels are given."""
    return torch.linspace(1.0, 0.0, len(ranked))[None], torch.tensor([ranked])


def worked(*ranked: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    scores, levels = in_order(*ranked)
    return scores, levels, WORKED[levels]


@pytest.mark.parametrize(("first", "expected"), [(2, 5 / 3), (1, 4 / 3)])
def test_h_rank_plus_of_figures_4_and_13(first, expected) -> None:
    scores, levels, rel = worked(first, 3)
    found = metrics.h_rank_plus(scores, levels, L, relevance=rel)
    assert found[0, 1].item() == pytest.approx(expected)


@pytest.mark.parametrize(("ranked", "expected"), [((2, 3, 0, 1, 3), 0.78), ((1, 3, 0, 2, 3), 0.67)])
def test_h_ap_of_figure_14(ranked, expected) -> None:
    scores, levels, rel = worked(*ranked)
    assert round(metrics.h_ap(scores, levels, L, relevance=rel).item(), 2) == expected
    assert round(metrics.average_precision(scores, levels, 3).item(), 2) == 0.45


def test_relevant_images_far_apart_in_a_ranking_are_all_counted() -> None:
    ranked = torch.zeros(1000, dtype=torch.int64)
    ranked[[4, 127, 128, 999]] = 1
    found = metrics.average_precision(*in_order(*ranked.tolist()), 1)
    assert found.item() == pytest.approx((1 / 5 + 2 / 128 + 3 / 129 + 4 / 1000) / 4)


@pytest.mark.filterwarnings("ignore::hgld.ranking.levels.RelevanceWarning")
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_every_metric_is_its_loop(seed, ties) -> None:
    scores, levels = oracle.random_pairs(seed, ties=ties)
    by_rank = levels.gather(1, rank_columns(scores, levels))
    found = {
        "h_ap": metrics.h_ap(scores, levels, L, alpha=1.5),
        "ndcg": metrics.ndcg(scores, levels),
        "asi": metrics.asi(scores, levels, L),
        "ap": metrics.average_precision(scores, levels, 2),
        "map_at_r": metrics.map_at_r(scores, levels, 2),
        "ap_at_4": metrics.ap_at_k(scores, levels, 1, 4),
        "asi_2": metrics.Ranking.of(by_rank, L).evaluate(["ASI:2"]).per_query["ASI:2"],
        "p_at_4": metrics.precision_at_k(scores, levels, 2, 4),
        "mmp_at_4": metrics.precision_at_k(scores, levels, 2, 4, modified=True),
        "p_at_r": metrics.precision_at_k(scores, levels, 2, None),
        "mrr": metrics.reciprocal_rank(scores, levels, 2),
        "mrr_at_4": metrics.reciprocal_rank(scores, levels, 2, 4),
        "ms": metrics.mistake_severity(scores, levels, L),
        "hops": metrics.hops(scores, levels, L),
        "hops_at_4": metrics.hops(scores, levels, L, 4),
        "ahd_at_4": metrics.hierarchical_distance_at_k(scores, levels, L, 4),
        "ahd_at_30": metrics.hierarchical_distance_at_k(scores, levels, L, 30),
        "hp_at_4": metrics.set_overlap_at_k(scores, levels, L, 4, "precision"),
        "hr_at_4": metrics.set_overlap_at_k(scores, levels, L, 4, "recall"),
        "hf_at_4": metrics.set_overlap_at_k(scores, levels, L, 4),
    }
    for i, (s, x) in enumerate(oracle.rows(scores, levels)):
        ranked = oracle.ranking_of(s, x)
        rel = [(v / L) ** 1.5 / max(1, ranked.count(v)) if v else 0.0 for v in range(L + 1)]
        binary = oracle.ranking_of(s, (x >= 2).astype(int) - (x < 0))
        right = sum(x > 0 for x in binary)
        first = binary.index(1) + 1 if right else 0
        one = oracle.ranking_of(s, (x >= 1).astype(int) - (x < 0))
        expected = {
            "h_ap": oracle.h_ap_of(ranked, rel),
            "ndcg": oracle.ndcg_of(ranked),
            "asi": oracle.asi_of(ranked),
            "ap": oracle.ap_of(binary, 1),
            "map_at_r": oracle.ap_of(binary, 1, cut="R"),
            "ap_at_4": oracle.ap_of(one, 1, cut=4, limit=4),
            "asi_2": oracle.asi_of(binary),
            "p_at_4": sum(x > 0 for x in binary[:4]) / 4 if right else math.nan,
            "mmp_at_4": sum(x > 0 for x in binary[: min(4, right)]) / min(4, right)
            if right
            else math.nan,
            "p_at_r": sum(x > 0 for x in binary[:right]) / right if right else math.nan,
            "mrr": 1 / first if right else math.nan,
            "mrr_at_4": (first <= 4) / first if right else math.nan,
            "ms": 1 - ranked[0] / L if L in ranked and ranked[0] < L else math.nan,
            **oracle.of_paths(ranked, L, 4),
            "hops": oracle.hops_of(ranked),
            "hops_at_4": oracle.hops_of(ranked, 4),
            "ahd_at_30": sum(1 - x / L for x in ranked) / len(ranked),
        }
        assert set(expected) == set(found)
        for name, value in expected.items():
            assert found[name][i].item() == pytest.approx(value, abs=1e-12, nan_ok=True), name


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [1, 4, 30])
def test_ap_at_k_is_that_of_scikit_learn_by_the_positives_that_are_found(seed, k) -> None:
    scores, levels = oracle.random_pairs(seed)
    found = metrics.ap_at_k(scores, levels, 2, k)
    for i, (s, x) in enumerate(oracle.rows(scores, levels)):
        first = [j for j in (-s).argsort() if x[j] >= 0][:k]
        right = x[first] >= 2
        precision = average_precision_score(right, s[first]) if right.any() else 0.0
        positives = int((x >= 2).sum())
        expected = precision * right.sum() / min(k, positives) if positives else math.nan
        assert found[i].item() == pytest.approx(expected, abs=1e-12, nan_ok=True)


@pytest.mark.filterwarnings("ignore::hgld.ranking.levels.RelevanceWarning")
@pytest.mark.parametrize("k", [1, 5, 15])
def test_overlap_of_paths_is_that_of_sets_of_labels(k) -> None:
    make = torch.Generator().manual_seed(k)
    labels = torch.randint(0, 2, (20, L), generator=make)  # ids start at 0 below each parent
    vectors = torch.randn(20, 6, generator=make, dtype=torch.float64)
    names = [f"hP@{k}", f"hR@{k}", f"hF@{k}"]
    found = metrics.evaluate(vectors[:5], labels[:5], vectors[5:], labels[5:], names).per_query
    order = (vectors[:5] @ vectors[5:].T).argsort(1, descending=True)
    for i, row in enumerate(order):
        expected = oracle.of_path_sets(labels[5:][row].tolist(), labels[i].tolist(), k)
        assert [found[name][i].item() for name in names] == pytest.approx(expected, abs=1e-12)


def test_ties_rank_the_less_relevant_first() -> None:
    scores, levels = torch.zeros(1, 3), torch.tensor([[2, 0, 1]])
    assert metrics.average_precision(scores, levels, 2).item() == pytest.approx(1 / 3)
    assert metrics.ndcg(scores, levels).item() == pytest.approx(
        (1 / math.log2(3) + 3 / 2) / (3 + 1 / math.log2(3))
    )


def test_a_query_with_nothing_to_find_is_nan_not_0() -> None:
    scores, levels = torch.rand(1, 4), torch.tensor([[1, 1, 0, -1]])
    assert metrics.average_precision(scores, levels, 2).isnan().all()
    assert not metrics.average_precision(scores, levels, 1).isnan().any()


def test_a_perfect_order_by_level_scores_1() -> None:
    scores, levels = in_order(3, 2, 1, 1, 0, 0)
    for value in (
        metrics.h_ap(scores, levels, L), metrics.ndcg(scores, levels),
        metrics.asi(scores, levels, L), metrics.average_precision(scores, levels, 2),
    ):  # fmt: skip
        assert value.item() == pytest.approx(1.0)


def test_equal_relevance_on_two_levels_is_not_counted_twice() -> None:
    # L = 2: level 2 weighs 1 over two images, level 1 weighs 1/2 over one: both 1/2
    scores, levels = in_order(2, 2, 1, 0)
    assert metrics.h_ap(scores, levels, 2).item() == pytest.approx(1.0)


def test_a_finer_level_with_less_relevance_is_warned_about_with_its_number() -> None:
    scores, levels = in_order(*[2] * 9, 1, 1, 0)
    with pytest.warns(grades.RelevanceWarning, match="1 of 1 query has"):
        value = metrics.h_ap(scores, levels, 2)
    assert value.item() < 0.9  # the best order would be coarse first
    with pytest.warns(grades.RelevanceWarning):
        best = metrics.h_ap(*in_order(1, 1, *[2] * 9, 0), 2)
    assert best.item() == pytest.approx(1.0)


NAN, INF = float("nan"), float("inf")
SENSELESS = {
    "alpha nan": lambda s, x: metrics.h_ap(s, x, L, alpha=NAN),
    "alpha inf": lambda s, x: metrics.h_rank_plus(s, x, L, alpha=INF),
    "relevance inf": lambda s, x: metrics.h_ap(s, x, L, relevance=torch.full(x.shape, INF)),
    "weights nan": lambda s, x: metrics.weighted_ap(s, x, [NAN, 1.0, 0.0]),
    "no levels": lambda s, x: metrics.asi(s, x.clamp(max=0), 0),
    "losses of others": lambda s, x: metrics.ap_approximation_error(torch.zeros(9), s, x),
    "k between two": lambda s, x: metrics.recall_at_k(s, x, 1, 1.5),
    "k as a word": lambda s, x: metrics.ap_at_k(s, x, 1, "5"),
    "a level between two": lambda s, x: metrics.average_precision(s, x, 1.5),
    "levels between two": lambda s, x: metrics.asi(s, x, 3.5),
    "scores as integers": lambda s, x: metrics.ndcg(s.long(), x),
}


@pytest.mark.parametrize("name", SENSELESS)
def test_what_would_make_a_nan_is_refused(name) -> None:
    with pytest.raises(ShapeError):
        SENSELESS[name](*oracle.random_pairs(0))


OF_THE_FIRST = {name for name in metrics.__all__ if name.endswith("_at_k")}


@pytest.mark.parametrize("name", sorted(OF_THE_FIRST - {"precision_at_k"}))  # of which None is R
def test_a_metric_of_the_first_k_needs_k(name) -> None:
    with pytest.raises(ShapeError, match="k is None"):
        getattr(metrics, name)(*oracle.random_pairs(0), L, k=None)


def test_recalls_differ_by_their_formula() -> None:
    scores, levels = in_order(0, 1, 1, 1, 0)
    assert metrics.recall_at_k(scores, levels, 1, 2).item() == 1.0
    assert metrics.tr_at_k(scores, levels, 1, 2).item() == 0.5
    assert metrics.recall_at_k(scores, levels, 1, 1).item() == 0.0


@pytest.mark.filterwarnings("ignore::hgld.ranking.levels.RelevanceWarning")
@pytest.mark.parametrize("seed", range(10))
def test_h_ap_is_the_area_of_eq_32(seed) -> None:
    scores, levels = oracle.random_pairs(seed)
    area, before = 0.0, 0.0
    for k in range(1, scores.shape[1] + 1):
        recall = metrics.h_recall_at_k(scores, levels, L, k)
        area = area + (recall - before) * metrics.h_precision_at_k(scores, levels, L, k)
        before = recall
    torch.testing.assert_close(area, metrics.h_ap(scores, levels, L), equal_nan=True)


@pytest.mark.parametrize("seed", range(10))
def test_weighted_ap_is_the_weighted_sum_of_aps(seed) -> None:
    scores, levels = oracle.random_pairs(seed, absent=0.0, gallery=30)
    weights = [0.2, 0.3, 0.5]
    expected = sum(
        w * metrics.average_precision(scores, levels, at) for at, w in enumerate(weights, 1)
    )
    torch.testing.assert_close(metrics.weighted_ap(scores, levels, weights), expected)
    rel = grades.weighted_relevance(levels, weights)
    torch.testing.assert_close(metrics.h_ap(scores, levels, L, relevance=rel), expected)


def test_weighted_ap_shares_the_weight_of_a_level_without_images() -> None:
    scores, levels = in_order(0, 1, 0)
    found = metrics.weighted_ap(scores, levels, [0.2, 0.3, 0.5])
    assert found.item() == pytest.approx(0.5)  # AP at level 1, as no image has another


def test_relevance_as_a_table_and_as_pairs_agree() -> None:
    scores, levels = oracle.random_pairs(4, absent=0.0)
    rel = grades.weighted_relevance(levels, [0.5, 0.25, 0.25])
    found = metrics.h_ap(scores, levels, L, relevance=rel)
    torch.testing.assert_close(found, metrics.weighted_ap(scores, levels, [0.5, 0.25, 0.25]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers_are_refused(bad) -> None:
    with pytest.raises(ShapeError, match="nan or inf"):
        metrics.ndcg(torch.tensor([[bad, 1.0]]), torch.tensor([[1, 0]]))


def test_half_precision_ranks_as_float32() -> None:
    scores, levels = oracle.random_pairs(1)
    found = metrics.ndcg(scores.half(), levels)
    torch.testing.assert_close(found, metrics.ndcg(scores.half().float(), levels), equal_nan=True)


def test_decomposability_gap_by_hand() -> None:
    scores, levels = in_order(1, 0, 1, 0)
    batches = torch.tensor([0, 0, 1, 1])
    gap = metrics.decomposability_gap(
        scores, levels, batches, lambda s, x: metrics.average_precision(s, x, 1)
    )
    assert gap.item() == pytest.approx(1.0 - (1 + 2 / 3) / 2)


@pytest.mark.parametrize(
    ("order", "expected"),  # found by the authors' notebook, of classes
    [
        ((0, 1, 1, 2, 2, 2, 3), 1.0),
        ((1, 0, 2, 1, 3, 2, 2), 0.46846846846846846),
        ((3, 2, 2, 0, 1, 2, 1), 0.0),
        ((0, 2, 1, 3, 1, 2, 2), 0.7657657657657657),
    ],
)
def test_hops_of_classes_is_that_of_its_authors(order, expected) -> None:
    levels = torch.tensor([[3 - step for step in order]])
    found = metrics.hops(torch.linspace(1, 0, 7)[None], levels, L)
    assert found.item() == pytest.approx(expected, abs=1e-12)


def test_hops_needs_two_levels_to_order() -> None:
    scores = torch.rand(2, 3)
    assert metrics.hops(scores, torch.tensor([[2, 2, 2], [0, 0, -1]]), L).isnan().all()


def test_cpcc_is_the_correlation_of_distances_of_means_and_of_the_tree() -> None:
    labels = torch.tensor([[0, 0], [0, 0], [0, 1], [1, 2], [1, 2], [1, 3]])
    vectors = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    means = [vectors[labels[:, 1] == c].double().mean(0) for c in range(4)]
    pairs = [(i, j) for i in range(4) for j in range(i)]
    apart = [float((means[i] - means[j]).norm()) for i, j in pairs]
    tree = [1.0 if i // 2 == j // 2 else 2.0 for i, j in pairs]
    assert metrics.cpcc(vectors, labels) == pytest.approx(pearsonr(apart, tree).statistic)
    assert math.isnan(metrics.cpcc(vectors[:3], labels[:3]))
    with pytest.raises(ShapeError, match="embeddings have shape"):
        metrics.cpcc(vectors, labels[:2])


def test_images_without_a_label_are_no_class_of_cpcc() -> None:
    labels = torch.tensor([[0, 0], [0, 0], [0, 1], [1, 2], [1, 2], [1, 3], [-1, -1], [1, -1]])
    vectors = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    expected = metrics.cpcc(vectors[:6], labels[:6])
    assert metrics.cpcc(vectors, labels) == expected
    parts = [metrics.ClassSums.of(vectors[cut], labels[cut]) for cut in (slice(6), slice(6, 8))]
    assert metrics.ClassSums.join(parts).cpcc() == expected
    assert math.isnan(metrics.cpcc(vectors[6:], labels[6:]))


def test_cpcc_of_many_classes_is_found_in_blocks(monkeypatch) -> None:
    labels = torch.arange(40)[:, None] // torch.tensor([10, 1])
    vectors = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    whole = metrics.cpcc(vectors, labels)
    monkeypatch.setattr(structure, "ROWS", 7)
    assert metrics.cpcc(vectors, labels) == pytest.approx(whole, abs=1e-12)


def test_cpcc_is_that_of_its_authors_code() -> None:
    """Pairs of class means by pdist, and 2, 4 or 6 edges between classes of three levels."""
    make = torch.Generator().manual_seed(1)
    paths = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [1, 3, 4], [1, 3, 5]])
    numbers = torch.randint(0, 6, (40,), generator=make)
    vectors = torch.randn(40, 4, generator=make, dtype=torch.float64)
    means = torch.stack([vectors[numbers == number].mean(0) for number in range(6)])
    edges = [
        2 if paths[i, 1] == paths[j, 1] else 4 if paths[i, 0] == paths[j, 0] else 6
        for i in range(6)
        for j in range(i + 1, 6)
    ]
    both = torch.stack([F.pdist(means), torch.tensor(edges).double()])
    expected = torch.corrcoef(both)[0, 1].item()
    assert metrics.cpcc(vectors, paths[numbers]) == pytest.approx(expected, abs=1e-12)


def test_cpcc_by_its_name_is_a_value_of_the_gallery() -> None:
    vectors = F.normalize(torch.randn(30, 4, generator=torch.Generator().manual_seed(0)))
    labels = torch.arange(30)[:, None] % 10 // torch.tensor([5, 1])
    given, whole = (vectors[:6], labels[:6], vectors, labels), metrics.cpcc(vectors, labels)
    found = metrics.evaluate(*given, ["CPCC", "R@1"])
    assert found.of_gallery == {"CPCC": whole} and list(found.per_query) == ["R@1"]
    assert found.mean() == {"R@1": 1.0, "CPCC": whole} and found.skipped == {"R@1": 0}
    assert json.loads(found.to_json())["mean"]["CPCC"] == whole
    parts = [metrics.ClassSums.of(vectors[cut], labels[cut]) for cut in (slice(13), slice(13, 30))]
    ranking, sums = metrics.rank_gallery(*given), metrics.ClassSums.join(parts)
    of_parts = ranking.evaluate(["CPCC"], class_sums=sums).mean()
    assert of_parts == {"CPCC": pytest.approx(whole, abs=1e-12)}
    pieces = metrics.ClassSums.of(vectors.split(7), labels)
    assert pieces.cpcc() == whole
    with pytest.raises(ShapeError, match="CPCC needs the embeddings of the gallery"):
        ranking.evaluate(["CPCC"])


def test_votes_are_counted_level_by_level_and_the_nearest_settles_ties() -> None:
    gallery = torch.tensor([[0, 0], [0, 1], [1, 2], [1, 2]])
    first = torch.tensor([[0, 1, 2, 3], [2, 3, 0, 1], [0, 2, 3, 1], [0, 1, 3, 2]])
    expected = []
    for row in first.tolist():
        votes = [[int(gallery[i, level]) for i in row] for level in (0, 1)]
        expected.append([max(v, key=lambda x, v=v: (v.count(x), -v.index(x))) for v in votes])
    assert metrics.vote_paths(first, gallery).tolist() == expected
    assert expected[0] == [0, 2]  # not a path of the tree


RANKED = [
    name
    for name in metrics.__all__
    if [*getattr(metrics, name).__annotations__][:2] == ["scores", "levels"]
    and name not in ("decomposability_gap", "h_rank_plus")  # no metric of a query
]


@pytest.mark.parametrize("name", RANKED)
def test_a_docstring_states_ties_range_and_an_example(name) -> None:
    text = inspect.getdoc(getattr(metrics, name))  # Python 3.13 keeps no indentation
    assert "equal scores the less" in text or "among equals the less" in text
    assert re.search(r"\(Q,\) in [\[(]0, 1\]", text)
    assert "\nExample:\n    >>>" in text
