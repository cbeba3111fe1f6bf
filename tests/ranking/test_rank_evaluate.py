"""Whole galleries: the same as the metrics on the score matrix, whatever the block size."""

import json

import numpy as np
import pytest
import torch

from hgld.errors import ShapeError, UsageError
from hgld.ranking import metrics
from hgld.ranking.kernels import rank_cpu
from hgld.ranking.levels import at_least, shared_levels
from hgld.ranking.rankings import first_ranks, parse
from tests.ranking.ranking_oracles import h_ap_of, ranking_of, rows, votes_of

NAMES = [
    "H-AP", "H-AP(alpha=2)", "NDCG", "NDCG@5", "ASI", "AP:kind", "AP:supercategory", "AP:landmark",
    "mAP@R:landmark", "mAP@100:landmark", "R@1:kind", "R@10", "TR@5:supercategory", "H-R@10",
    "H-P@3", "wAP", "wAP(weights=0.2/0.3/0.5)", "ASI:kind", "ASI:landmark", "P@4:kind", "P@30",
    "mMP@5:supercategory", "mMP@30", "MS", "HOPS", "HOPS@7", "AHD@5", "AHD@300",
    "hP@5", "hR@5", "hF@5", "P@R:supercategory", "MRR:kind", "MRR@3",
]  # fmt: skip
LEVELS = ["kind", "supercategory", "landmark"]
pytestmark = pytest.mark.filterwarnings("ignore::hgld.ranking.levels.RelevanceWarning")


def embeddings(count, seed, dim=16):
    make = torch.Generator().manual_seed(seed)
    landmark = torch.randint(0, 12, (count,), generator=make)
    labels = torch.stack([landmark // 6, landmark // 2, landmark], 1)
    centres = torch.nn.functional.one_hot(landmark, dim).float()
    noise = torch.randn(count, dim, generator=make)
    return torch.nn.functional.normalize(centres + 0.4 * noise, dim=1), labels


def by_hand(name, scores, levels):
    """The functional metric of a name."""
    at = {"kind": 1, "supercategory": 2, "landmark": 3, None: 3}[parse(name).level]
    k = parse(name).k
    return {
        "H-AP": lambda: metrics.h_ap(scores, levels, 3, parse(name).alpha or 1.0),
        "NDCG": lambda: metrics.ndcg(scores, levels, k),
        "ASI": lambda: (
            metrics.asi(scores, at_least(levels, at), 1)
            if parse(name).level
            else metrics.asi(scores, levels, 3)
        ),
        "AP": lambda: metrics.average_precision(scores, levels, at),
        "mAP": lambda: (
            metrics.ap_at_k(scores, levels, at, k) if k else metrics.map_at_r(scores, levels, at)
        ),
        "R": lambda: metrics.recall_at_k(scores, levels, at, k),
        "P": lambda: metrics.precision_at_k(scores, levels, at, k or None),
        "MRR": lambda: metrics.reciprocal_rank(scores, levels, at, k),
        "mMP": lambda: metrics.precision_at_k(scores, levels, at, k, modified=True),
        "TR": lambda: metrics.tr_at_k(scores, levels, at, k),
        "H-R": lambda: metrics.h_recall_at_k(scores, levels, 3, k),
        "H-P": lambda: metrics.h_precision_at_k(scores, levels, 3, k),
        "MS": lambda: metrics.mistake_severity(scores, levels, 3),
        "HOPS": lambda: metrics.hops(scores, levels, 3, k),
        "AHD": lambda: metrics.hierarchical_distance_at_k(scores, levels, 3, k),
        "hP": lambda: metrics.set_overlap_at_k(scores, levels, 3, k, "precision"),
        "hR": lambda: metrics.set_overlap_at_k(scores, levels, 3, k, "recall"),
        "hF": lambda: metrics.set_overlap_at_k(scores, levels, 3, k),
        "wAP": lambda: metrics.weighted_ap(scores, levels, parse(name).weights or [1 / 3] * 3),
    }[parse(name).metric]()


def test_query_and_gallery_give_the_metrics_of_the_score_matrix() -> None:
    (query, q_labels), (gallery, g_labels) = embeddings(20, 0), embeddings(90, 1)
    found = metrics.evaluate(query, q_labels, gallery, g_labels, NAMES, LEVELS)
    levels = shared_levels(q_labels, g_labels)
    for name in NAMES:
        expected = by_hand(name, query @ gallery.T, levels)
        torch.testing.assert_close(found.per_query[name], expected, equal_nan=True)


def test_all_against_all_takes_each_query_out_by_index(monkeypatch) -> None:
    vectors, labels = embeddings(60, 2)
    vectors[1], labels[1] = vectors[0], labels[0]  # a duplicate keeps its place
    monkeypatch.setattr(rank_cpu, "BLOCK_ROWS", 7)  # several blocks
    found = metrics.evaluate(vectors, labels, vectors, labels, NAMES, LEVELS, exclude_self=True)
    levels = shared_levels(labels, labels, exclude_self=True)
    for name in NAMES:
        expected = by_hand(name, vectors @ vectors.T, levels)
        torch.testing.assert_close(found.per_query[name], expected, equal_nan=True)
    assert found.per_query["R@1:kind"][0] == 1.0


def test_queries_with_nothing_to_find_are_counted_and_left_out() -> None:
    gallery, labels = torch.eye(3), torch.tensor([[0, 0], [0, 1], [1, 2]])
    strange = torch.tensor([[0, 0], [5, 9]])
    found = metrics.evaluate(gallery[:2], strange, gallery, labels, ["R@1", "H-AP"])
    assert found.skipped == {"R@1": 1, "H-AP": 1}
    assert found.mean()["R@1"] == 1.0


def test_json_says_means_sizes_and_skipped() -> None:
    vectors, labels = torch.eye(2), torch.tensor([[0], [1]])
    found = metrics.evaluate(vectors, labels, vectors, labels, ["R@1"], exclude_self=True)
    assert json.loads(found.to_json()) == {
        "gallery": 2, "inverted": 0, "mean": {"R@1": None}, "queries": 2, "skipped": {"R@1": 2},
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        *NAMES,
        "H-AP(alpha=1.23456789)",
        "wAP(weights=0.123456789/2)",
        "H-AP(query=1)",
        "mAP@100:size: fine (cm) @2",
        "H-R(query=1)@3",
    ],
)
def test_a_name_parses_back(name) -> None:
    assert str(parse(name)) == name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("recall_at_1", "metric 'recall_at_1'; examples"),
        ("MAP@R", "nearest is 'mAP'"), ("R", "needs @k"), ("AP@5", "takes no @k"),
        ("cpcc", "nearest is 'CPCC'"), ("CPCC@5", "takes no @k"), ("R@0k", "@0k; expected 1"),
        ("NDCG:kind", "takes no level"), ("R@0", "1 or more"), ("NDCG(alpha=1)", "takes no option"),
        ("R@R", "only mAP"), ("H-AP(query=2)", "query is 1"), ("wAP(query=1)", "takes weights"),
        ("H-AP(alpha=x)", "not a number"), ("H-AP(alpha=1/2)", "'1/2' is not a number"),
        ("wAP(weights=0.2,0.8)", "separated by '/'"),
    ],
)  # fmt: skip
def test_a_name_that_says_no_metric_is_refused(name, text) -> None:
    with pytest.raises(UsageError, match=text):
        parse(name)


def test_a_thousand_ranks_are_written_1k_and_named_1000() -> None:
    assert str(parse("mAP@1k:2")) == "mAP@1000:2" and parse("R@20k").k == 20_000
    assert first_ranks(["HC@1k"]) == 1000


def test_h_ap_with_the_query_counted_is_its_loop() -> None:
    make = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 3, (12, 2), generator=make)
    vectors = torch.randn(12, 5, generator=make, dtype=torch.float64)
    found = metrics.evaluate(vectors, labels, vectors, labels, ["H-AP(query=1)"], exclude_self=True)
    scores, levels = vectors @ vectors.T, shared_levels(labels, labels, exclude_self=True)
    for i, (s, x) in enumerate(rows(scores, levels)):
        rel = [0.0, *(level / 2 / max(1, sum(x == level) + (level == 2)) for level in (1, 2))]
        wanted = h_ap_of(ranking_of(s, x), rel)
        assert found.per_query["H-AP(query=1)"][i].item() == pytest.approx(wanted, nan_ok=True)


@pytest.mark.parametrize("k", [1, 3, 8, 40])
@pytest.mark.parametrize("exclude_self", [False, True])
def test_consistency_counts_the_votes_of_the_first_images(k, exclude_self) -> None:
    vectors, labels = embeddings(30, 3, dim=12)
    names = [f"HC@{k}", f"HCA@{k}", "R@1"]
    sides = vectors, labels, vectors, labels
    found = metrics.evaluate(*sides, names, exclude_self=exclude_self)
    order = (vectors @ vectors.T).argsort(1, descending=True).tolist()
    every = shared_levels(labels, labels, exclude_self=exclude_self)
    for i, row in enumerate(order):
        first = [labels[j].tolist() for j in row if j != i or not exclude_self][:k]
        right = bool((every[i] == 3).any())
        wanted = votes_of(first, labels[i].tolist())
        values = [found.per_query[name][i].item() for name in names[:2]]
        assert values == pytest.approx([wanted[0], wanted[1] if right else np.nan], nan_ok=True)
    if k == 1:
        torch.testing.assert_close(found.per_query["HCA@1"], found.per_query["R@1"], equal_nan=True)
    if k == 8:
        assert 0 < found.mean()["HCA@8"] < found.mean()["HC@8"] < 1


def test_a_class_is_its_whole_path_wherever_ids_are_counted_from_0() -> None:
    labels = torch.tensor([[0, 0], [1, 0], [1, 1]])  # the two classes 0 have different parents
    gallery = torch.tensor([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0]])
    found = metrics.evaluate(gallery[:1], labels[:1], gallery, labels, ["HC@3", "HCA@3"])
    assert found.mean() == {"HC@3": 0.0, "HCA@3": 0.0}  # most have kind 1, the first class is of 0


def test_images_without_a_label_do_not_vote() -> None:
    gallery = torch.tensor([[5.0], [4.0], [3.0], [2.0], [1.0]])
    labels = torch.tensor([[-1, -1], [0, 3], [-1, -1], [-1, -1], [0, -1]])
    names = ["HC@1", "HCA@1", "R@1", "HC@3", "HCA@3", "HC@5", "HCA@5"]
    found = metrics.evaluate(gallery[:1], labels[1:2], gallery, labels, names)
    assert list(found.mean().values()) == [0, 0, 0, 1, 1, 1, 1]
    assert metrics.vote_paths(torch.tensor([[0, 1, 2], [0, 2, 4]]), labels).tolist() == [
        [0, 3],
        [0, -1],
    ]
    coarse = metrics.evaluate(gallery[:1], labels[1:2], gallery[4:], labels[4:], ["HC@1"])
    assert coarse.mean() == {"HC@1": 0.0}  # no image votes for a finest class


def test_consistency_needs_the_first_images() -> None:
    vectors, labels = torch.eye(3), torch.tensor([[0], [0], [1]])
    ranking = metrics.rank_gallery(vectors, labels, vectors, labels, first=2)
    assert ranking.evaluate(["HCA@2"], gallery_labels=labels).mean()["HCA@2"] == 1.0
    for given in ({}, {"gallery_labels": labels}):
        with pytest.raises(ShapeError, match="rank with first=3"):
            ranking.evaluate(["HC@3"], **given)


def test_an_unknown_level_is_refused_before_any_work() -> None:
    vectors, labels = torch.eye(2), torch.tensor([[0], [1]])
    with pytest.raises(UsageError, match="none of place"):
        metrics.evaluate(vectors, labels, vectors, labels, ["R@1:kind"], ["place"])


def test_sizes_that_differ_are_refused() -> None:
    vectors, labels = torch.eye(2), torch.tensor([[0], [1]])
    with pytest.raises(ShapeError, match="query_labels"):
        metrics.evaluate(vectors, labels[:1], vectors, labels, ["R@1"])
    with pytest.raises(ShapeError, match="dimensions"):
        metrics.evaluate(vectors[:, :1], labels, vectors, labels, ["R@1"])


@pytest.mark.parametrize("run", [metrics.evaluate, metrics.rank_gallery])
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda e, x: (e, x.float()), "query_labels are torch.float32; expected integers"),
        (lambda e, x: (e, x > 0), "query_labels are torch.bool; expected integers"),
        (lambda e, x: (e.long(), x), "query is torch.int64; expected floats"),
    ],
)
def test_tables_of_another_kind_are_refused(run, change, text) -> None:
    embeddings, labels = torch.randn(4, 3), torch.tensor([[0, 0], [0, 0], [0, 1], [1, 2]])
    more = () if run is metrics.rank_gallery else (["AP:1"],)
    with pytest.raises(ShapeError, match=text):
        run(*change(embeddings, labels), embeddings, labels, *more)


def test_ids_at_the_ends_of_int64_are_told_apart() -> None:
    ends = torch.tensor([[2**63 - 1], [2**63 - 1], [-(2**63)], [2**63 - 2]])
    eye = torch.eye(4)[[0, 0, 1, 2]]
    found = metrics.evaluate(eye, ends, eye, ends, ["R@1:1"], exclude_self=True)
    assert np.array_equal(found.per_query["R@1:1"], [1, 1, np.nan, np.nan], equal_nan=True)


def test_large_ids_of_two_types_are_told_apart() -> None:
    near = torch.tensor([[2**60], [2**60 + 1]])
    found = metrics.evaluate(torch.eye(2), near, torch.eye(2), near.to(torch.uint64), ["R@1"])
    assert found.per_query["R@1"].tolist() == [1.0, 1.0]
    ranking = metrics.rank_gallery(torch.eye(2), near, torch.eye(2), near.to(torch.uint64))
    assert ranking.counts[:, 1].tolist() == [1, 1]


def test_the_processs_default_precision_and_device_change_nothing() -> None:
    (query, q_labels), (gallery, g_labels) = embeddings(90, 0), embeddings(90, 1)
    given = query, q_labels, gallery, g_labels, ["NDCG", "AP"]
    expected = metrics.evaluate(*given).mean()
    torch.set_default_dtype(torch.float64)
    try:
        assert metrics.evaluate(*given).mean() == expected
        with torch.device("meta"):
            assert metrics.evaluate(*given).mean() == expected
    finally:
        torch.set_default_dtype(torch.float32)


def test_one_name_is_no_list_of_names() -> None:
    vectors, labels = torch.eye(2), torch.tensor([[0], [1]])
    with pytest.raises(ShapeError, match="expected a list"):
        metrics.evaluate(vectors, labels, vectors, labels, "H-AP")


def test_half_precision_embeddings_are_scored_in_float32() -> None:
    (query, q_labels), (gallery, g_labels) = embeddings(9, 0), embeddings(30, 1)
    found = metrics.evaluate(query.half(), q_labels, gallery.half(), g_labels, ["NDCG"])
    wide = metrics.evaluate(
        query.half().float(), q_labels, gallery.half().float(), g_labels, ["NDCG"]
    )
    assert found.mean() == wide.mean()


@pytest.mark.parametrize("run", [metrics.evaluate, metrics.rank_gallery])
@pytest.mark.parametrize("count", [3, 9, 20])
def test_queries_that_do_not_begin_the_gallery_cannot_be_taken_out(run, count) -> None:
    (query, q_labels), (gallery, g_labels) = embeddings(count, 0), embeddings(9, 1)
    more = () if run is metrics.rank_gallery else (["R@1"],)
    with pytest.raises(ShapeError, match="a gallery that begins with the queries"):
        run(query, q_labels, gallery, g_labels, *more, exclude_self=True)


def test_a_gallery_may_hold_more_than_the_queries_taken_out() -> None:
    vectors, labels = embeddings(60, 2)
    few = metrics.evaluate(vectors[:9], labels[:9], vectors, labels, ["AP"], exclude_self=True)
    every = metrics.evaluate(vectors, labels, vectors, labels, ["AP"], exclude_self=True)
    assert torch.equal(few.per_query["AP"], every.per_query["AP"][:9])
