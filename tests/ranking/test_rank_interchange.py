"""Rankings in other tools' formats, scored by a second route where one is at hand."""

import csv
from itertools import pairwise
from urllib.parse import unquote

import numpy as np
import pytest
import torch

from hgld.errors import InvalidData, ShapeError
from hgld.ranking import interchange, metrics
from hgld.ranking.levels import shared_levels
from hgld.ranking.parts import merge_parts, rank_part

SOLUTION = ["id,images,Usage", "q1,a b,Public", "q2,c,Private", "q3,None,Ignored", "q4,d,Public"]


def test_kaggle_score_follows_the_official_rules() -> None:
    submission = {
        "q1": ["a", "a", "x", "b"],  # the second a scores nothing but keeps its rank
        "q2": ["x", "c"],
        "q3": ["a"],  # ignored
    }  # q4 is missing: 0
    found = interchange.kaggle_score(submission, SOLUTION)
    assert found.per_query == {"q1": (1 + 2 / 4) / 2, "q2": 0.5, "q4": 0.0}
    assert found.mean == {"Private": 0.5, "Public": 0.75 / 2}
    assert found.missing == ("q4",) and found.ignored == ("q3",)


def test_kaggle_cuts_at_k() -> None:
    found = interchange.kaggle_score({"q2": ["x", "c"], "q1": ["b"]}, SOLUTION, k=1)
    assert found.per_query == {"q1": 1.0, "q2": 0.0, "q4": 0.0}


def test_kaggle_score_is_map_at_100_where_nothing_is_special() -> None:
    make = torch.Generator().manual_seed(0)
    scores = torch.rand(5, 300, generator=make)
    levels = (torch.rand(5, 300, generator=make) < 0.4).to(torch.int8)  # over 100 relevant
    order = scores.argsort(1, descending=True)
    submission = {f"q{i}": [f"g{j}" for j in row.tolist()] for i, row in enumerate(order)}
    solution = ["id,images,Usage"] + [
        f"q{i},{' '.join(f'g{j}' for j in row.nonzero()[:, 0].tolist())},Public"
        for i, row in enumerate(levels)
    ]
    found = interchange.kaggle_score(submission, solution)
    expected = metrics.ap_at_k(scores, levels, 1, 100)
    assert list(found.per_query.values()) == pytest.approx(expected.tolist())


def test_a_submission_reads_back() -> None:
    rankings = {"q1": ["a", "b"], "q2": []}
    with pytest.raises(InvalidData, match="twice"):
        interchange.read_kaggle(["id,images", "q,a", "q,b"])
    with pytest.raises(InvalidData, match=r"submission line 2: 2 more cells .* blanks between"):
        interchange.read_kaggle(["id,images", "q,a,b,c"])
    with pytest.raises(InvalidData, match="submission: is empty; expected a CSV with a header"):
        interchange.read_kaggle([])
    assert interchange.read_kaggle(interchange.kaggle_lines(rankings)) == rankings


def test_a_submission_with_a_whole_gallery_reads_back() -> None:
    limit = csv.field_size_limit(131_072)  # python's default, which another test may have raised
    rankings = {"q": [f"{number:016x}" for number in range(10_000)]}
    try:
        assert interchange.read_kaggle(interchange.kaggle_lines(rankings, 10_000)) == rankings
        solution = ["id,images,Usage", f"q,{' '.join(rankings['q'])},Public"]
        assert interchange.kaggle_score(rankings, solution).mean == {"Public": 1.0}
    finally:
        csv.field_size_limit(limit)


@pytest.mark.parametrize("encode", [str, interchange.encode_id])
def test_ids_of_a_submission_and_of_a_solution_may_be_encoded_or_not(encode) -> None:
    ids = ["50%", "a%25b", "a,b"]
    rankings = {"my 1%": ids, "q2": ["x", *ids]}
    submission = interchange.read_kaggle(interchange.kaggle_lines(rankings))
    names = [encode(query) for query in rankings]
    rows = [f'{name},"{" ".join(map(encode, ids))}",Public' for name in names]
    found = interchange.kaggle_score(submission, ["id,images,Usage", *rows])
    assert found.missing == ()
    assert found.per_query == {names[0]: 1.0, names[1]: pytest.approx((1 / 2 + 2 / 3 + 3 / 4) / 3)}


def test_a_query_that_is_not_in_the_solution_is_refused() -> None:
    with pytest.raises(InvalidData, match="q9 is not in the solution"):
        interchange.kaggle_score({"q9": ["a"]}, SOLUTION)


def test_a_run_reads_back_with_strictly_falling_scores() -> None:
    rankings = {"q": ["b", "a", "c"], "r": ["a"]}
    lines = list(interchange.trec_run(rankings))
    scores = [int(line.split()[4]) for line in lines if line.startswith("q")]
    assert scores == [3, 2, 1]
    assert interchange.read_trec_run(lines) == rankings


def test_judgements_read_back_as_integer_gains() -> None:
    lines = list(interchange.trec_qrels({"q": {"a": 3, "b": 0}}))
    assert interchange.read_trec_qrels(lines) == {"q": {"a": 7, "b": 0}}


@pytest.mark.parametrize("kind", [np.int8, torch.tensor])
def test_gains_of_deep_levels_do_not_overflow(kind) -> None:
    """Levels of ``shared_levels`` and of a ranking are of 8 bits."""
    (line,) = interchange.trec_qrels({"q": {"a": kind(8)}})
    assert line == "q 0 a 255"


@pytest.mark.parametrize(
    ("read", "line"),
    [
        (interchange.read_trec_run, "q Q0 a 1 x run"),
        (interchange.read_trec_run, "q Q0 a 1"),
        (interchange.read_trec_qrels, "q 0 a"),
        (interchange.read_trec_qrels, "q 0 a nan"),
        (interchange.read_trec_qrels, "q 0 a inf"),
        (interchange.read_trec_qrels, "q 0 a 1.5"),
        (interchange.read_trec_qrels, "q 0 a 1"),  # the second of them
        (interchange.read_trec_run, "q Q0 a 1 nan run"),
        (interchange.read_kaggle, "id,image"),
    ],
)
def test_a_line_of_another_form_is_refused_with_its_number(read, line) -> None:
    with pytest.raises(InvalidData, match=r"line [12]"):
        read([line, line])


@pytest.mark.parametrize("image", ["two words", "a,b", 'a"b', "50%", "a\n"])
def test_ids_that_would_break_a_line_are_encoded_alike_by_all_writers(image) -> None:
    run = interchange.read_trec_run(interchange.trec_run({image: [image]}, name="my model"))
    qrels = interchange.read_trec_qrels(interchange.trec_qrels({image: {image: 1}}))
    submission = interchange.read_kaggle(interchange.kaggle_lines({image: [image]}))
    for found in (run, qrels, submission):
        ((query, images),) = found.items()
        assert unquote(query) == unquote(next(iter(images))) == image


@pytest.mark.parametrize("write", [interchange.trec_run, interchange.kaggle_lines])
def test_an_empty_id_is_refused(write) -> None:
    with pytest.raises(InvalidData, match="an id is empty"):
        list(write({"q": [""]}))


@pytest.mark.parametrize(
    "lines",
    [
        lambda: interchange.trec_run({"q": ["a", "a"]}),
        lambda: interchange.trec_qrels({"q": {"a": -1}}),
    ],
)
def test_what_no_reader_would_take_is_not_written(lines) -> None:
    with pytest.raises(InvalidData, match="query q"):
        list(lines())


def test_a_solution_with_a_query_twice_is_refused() -> None:
    solution = ["id,images,Usage", "q,a,Public", "q,b,Private"]
    with pytest.raises(InvalidData, match="line 3: query q is there twice"):
        interchange.kaggle_score({}, solution)


def test_no_cut_off_is_refused() -> None:
    with pytest.raises(ShapeError, match="k is 0"):
        interchange.kaggle_score({}, ["id,images,Usage", "q,a,Public"], k=0)


@pytest.mark.parametrize(
    ("factor", "message"),
    [(torch.nan, "nan or inf"), (torch.ones(1, dtype=torch.float64), r"convert by \.float\(\)")],
)
def test_parts_with_nan_or_in_double_precision_are_refused(factor, message) -> None:
    vectors, labels = torch.eye(2), torch.zeros(2, 1).long()
    with pytest.raises(ShapeError, match=message):
        rank_part(vectors * factor, labels, vectors, labels)


def test_parts_smaller_than_the_first_ranks_give_the_rows_of_all() -> None:
    torch.manual_seed(0)
    gallery, labels = torch.randn(9, 4), torch.arange(9)[:, None] // 3
    whole = metrics.rank_gallery(gallery[:4], labels[:4], gallery, labels, first=8)
    parts = [
        rank_part(gallery[:4], labels[:4], gallery[a : a + 3], labels[a : a + 3], None, 8, a)
        for a in (0, 3, 6)
    ]
    found = merge_parts(parts)
    assert found.first[:, :8].tolist() == whole.first.tolist()
    assert (
        found.evaluate(["HC@8"], gallery_labels=labels).mean()
        == whole.evaluate(["HC@8"], gallery_labels=labels).mean()
    )


def test_parts_asked_for_different_ranks_give_those_that_all_were_asked_for() -> None:
    torch.manual_seed(0)
    gallery, labels = torch.randn(40, 4), torch.arange(40)[:, None] // 4
    whole = metrics.rank_gallery(gallery[:4], labels[:4], gallery, labels, first=10)
    halves = [
        rank_part(gallery[:4], labels[:4], gallery[a : a + 20], labels[a : a + 20], None, first, a)
        for a, first in ((0, 2), (20, 10))
    ]
    assert merge_parts(halves).first.tolist() == whole.first[:, :2].tolist()


@pytest.mark.parametrize(
    ("queries", "labels", "dim", "message"),
    [
        (3, 9, 4, r"part_labels have shape \(9, 1\); expected \(10, 1\)"),
        (2, 10, 4, r"query_labels have shape \(2, 1\); expected \(3, 1\)"),
        (3, 10, 3, "query has 4 dimensions, part 3"),
    ],
)
def test_parts_that_do_not_fit_are_refused(queries, labels, dim, message) -> None:
    vectors, paths = torch.ones(10, 4), torch.zeros(10, 1).long()
    with pytest.raises(ShapeError, match=message):
        rank_part(vectors[:3], paths[:queries], vectors[:, :dim], paths[:labels])


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ([4, 5], "from 4 to 5; expected 0 to 3 within the part, or -1"),
        ([0, -2], "from -2 to 0; expected"),
        ([0], r"own has shape \(1,\); expected \(2,\)"),
        ([], r"own has shape \(0,\); expected \(2,\)"),
        (1, r"own has shape \(\); expected \(2,\)"),
        ([2, 3], "own has rows whose part_labels are not query_labels"),
    ],
)
def test_rows_of_the_queries_that_are_not_theirs_in_the_part_are_refused(own, message) -> None:
    vectors, labels = torch.eye(8), torch.arange(8)[:, None] // 2
    with pytest.raises(ShapeError, match=message):
        rank_part(vectors[4:6], labels[4:6], vectors[4:], labels[4:], torch.tensor(own))


def test_parts_that_count_their_rows_from_0_are_refused() -> None:
    vectors, labels = torch.eye(4), torch.arange(4)[:, None]
    halves = [(vectors[a : a + 2], labels[a : a + 2]) for a in (0, 2)]
    found = [rank_part(vectors, labels, *half, first=2) for half in halves]
    with pytest.raises(ShapeError, match="rows in common; give rank_part the start of each part"):
        merge_parts(found)


@pytest.mark.parametrize("starts", [(0, 2, 2), (0, 2, 3), (0, 0, 2)])
def test_a_part_that_is_merged_twice_is_refused_without_first_ranks_too(starts) -> None:
    """Else its images counted twice in every metric."""
    vectors, labels = torch.eye(4), torch.arange(4)[:, None]
    parts = [rank_part(vectors, labels, vectors[:2], labels[:2], start=start) for start in starts]
    with pytest.raises(ShapeError, match="rows in common"):
        merge_parts(parts)
    alone = rank_part(vectors, labels, vectors[:2], labels[:2])
    with pytest.raises(ShapeError, match="rows in common"):
        merge_parts([alone, alone])


def test_votes_of_equal_scores_follow_the_gallery_and_the_other_metrics_do_not() -> None:
    labels = torch.tensor([[1, 1], [1, 2], [2, 3], [2, 3], [0, 0]])
    scores, query = torch.tensor([1.0, 1, 1, 1, 0])[:, None], torch.tensor([[0, 0]])
    found = [
        metrics.evaluate(torch.ones(1, 1), query, scores, side, ["HC@4", "AHD@4", "H-AP"]).mean()
        for side in (labels, labels[[3, 2, 1, 0, 4]])
    ]
    assert [one.pop("HC@4") for one in found] == [0.0, 1.0]  # [1, 3] is no path, [2, 3] is one
    assert found[0] == found[1]


def test_parts_for_different_queries_are_refused() -> None:
    vectors, labels = torch.eye(3), torch.zeros(3, 1).long()
    found = [rank_part(vectors[:n], labels[:n], vectors, labels) for n in (2, 3)]
    with pytest.raises(ShapeError, match="expected the same queries"):
        merge_parts(found)


NAMES = ["H-AP", "NDCG", "ASI", "AP:1", "AP:3", "mAP@R:2", "R@1:3"]


@pytest.mark.filterwarnings("ignore::hgld.ranking.levels.RelevanceWarning")
@pytest.mark.parametrize("cuts", [1, 2, 5])
@pytest.mark.parametrize("exclude_self", [False, True])
def test_a_gallery_in_parts_has_the_ranking_of_the_whole(cuts, exclude_self) -> None:
    make = torch.Generator().manual_seed(2)
    # coordinates of 1/16 make every inner product exact, so that ties are ties in any shape
    gallery = torch.randint(-4, 5, (90, 8), generator=make) / 16
    labels = torch.randint(0, 3, (90, 3), generator=make)
    labels[:, 1] += 3 * labels[:, 0]
    labels[:, 2] += 3 * labels[:, 1]
    query, q_labels = (gallery, labels) if exclude_self else (gallery[:20] + 1 / 16, labels[:20])
    whole = metrics.rank_gallery(query, q_labels, gallery, labels, exclude_self, first=7)
    edges = [90 * i // cuts for i in range(cuts + 1)]
    parts = []
    for a, b in pairwise(edges):
        numbers = torch.arange(len(query))
        inside = (numbers >= a) & (numbers < b)
        own = torch.where(inside, numbers - a, -1) if exclude_self else None
        parts.append((query, q_labels, gallery[a:b], labels[a:b], own, 7, a))
    found = merge_parts([rank_part(*part) for part in reversed(parts)])
    assert found.counts.tolist() == whole.counts.tolist()
    assert found.levels.tolist() == whole.levels.tolist()
    assert found.first.tolist() == whole.first.tolist()
    names = [*NAMES, "HC@7", "HCA@5"]
    one, two = (one.evaluate(names, gallery_labels=labels) for one in (found, whole))
    assert one.mean() == pytest.approx(two.mean(), nan_ok=True, abs=0)
    direct = metrics.ndcg(query @ gallery.T, shared_levels(q_labels, labels, exclude_self))
    torch.testing.assert_close(one.per_query["NDCG"], direct, equal_nan=True)
