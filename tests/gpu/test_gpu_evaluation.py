"""Ranks counted in Triton, and the metrics read off them, against sorted lists."""

import math
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hgld.config import EvaluateOptions
from hgld.errors import ShapeError
from hgld.evaluate.ranking import measure_and_write
from hgld.evaluate.sides import Side
from hgld.ranking import metrics
from hgld.ranking.evaluation import rank_blocks
from hgld.ranking.kernels import rank_gpu
from hgld.ranking.kernels.device import using
from hgld.ranking.levels import ClassRanges, shared_levels
from hgld.ranking.parts import merge_parts, rank_part
from hgld.ranking.rankings import Ranking, parse, rank_columns
from tests.gpu.devices import DEVICE, INTERPRETED, needs_cpu_kernels, needs_triton, quiet
from tests.ranking.ranking_oracles import (
    ap_of,
    asi_of,
    h_ap_of,
    hops_of,
    ndcg_of,
    of_paths,
    ranking_of,
    rel_of,
    votes_of,
)

pytestmark = [
    needs_triton,
    quiet,
    pytest.mark.filterwarnings("ignore::hgld.ranking.levels.RelevanceWarning"),
]
NAMES = [
    "H-AP", "NDCG", "ASI", "AP:1", "AP:3", "mAP@R:2", "mAP@5:1", "R@1:2", "R@3", "TR@4:1", "AHD@4",
    "hF@4", "hP@4", "hR@4", "MS", "HOPS", "P@4:2", "mMP@5", "P@R", "MRR:2",
]  # fmt: skip


def by_hand(name, ranked):
    """A metric of a ranked list of levels, rank by rank."""
    at, k = parse(name).at_level(("1", "2", "3")), parse(name).k
    hits = [x >= at for x in ranked]
    if name == "H-AP":
        return h_ap_of(ranked, dict(zip(ranked, rel_of(ranked, 3), strict=True)))
    if name in ("NDCG", "ASI"):
        return ndcg_of(ranked) if name == "NDCG" else asi_of(ranked)
    if name == "HOPS":
        return hops_of(ranked)
    if name == "MS":
        return 1 - ranked[0] / 3 if 3 in ranked and ranked[0] < 3 else math.nan
    if parse(name).metric in ("AHD", "hF", "hP", "hR"):
        found = of_paths(ranked, 3, k) if any(ranked) else {}
        return found.get(f"{parse(name).metric.lower()}_at_{k}", math.nan)
    if parse(name).metric in ("AP", "mAP"):
        return ap_of(ranked, at, "R" if k == 0 else k, k or None)
    if not any(hits):
        return math.nan
    if parse(name).metric == "TR":
        return sum(hits[:k]) / min(k, sum(hits))
    if parse(name).metric in ("mMP", "P"):
        cut = min(k, sum(hits)) if parse(name).metric == "mMP" else k or sum(hits)
        return sum(hits[:cut]) / cut
    if parse(name).metric == "MRR":
        return 1 / (hits.index(True) + 1)
    return float(any(hits[:k]))


def grid_vectors(count, seed, dim=4):
    """Coordinates of 1/8: inner products are exact on every machine, and many are equal."""
    make = torch.Generator().manual_seed(seed)
    landmark = torch.randint(0, 8, (count,), generator=make)
    labels = torch.stack([landmark // 4, landmark // 2, landmark], 1)
    return torch.randint(-8, 9, (count, dim), generator=make) / 8, labels


def ranked(query, gallery, labels, exclude_self=False, first=0):
    of_query, of_gallery = (part.to(DEVICE) for part in labels)
    ranges = ClassRanges.of(of_query, of_gallery, exclude_self)
    given = query.to(DEVICE), gallery.to(DEVICE), ranges, first, iter
    return Ranking.join(Ranking(*block) for block in rank_gpu.rank_blocks(*given))


def measured(query, gallery, labels, exclude_self=False, names=NAMES):
    found = ranked(query, gallery, labels, exclude_self).evaluate(names)
    return {name: values.numpy() for name, values in found.per_query.items()}


def agree(found, scores, levels) -> None:
    for name, values in found.items():
        lists = zip(scores.numpy(), levels.numpy(), strict=True)
        truth = [by_hand(name, ranking_of(s, x)) for s, x in lists]
        np.testing.assert_allclose(values, truth, rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.fixture
def small_tiles(monkeypatch):
    """Several tiles and blocks of queries in a small gallery."""
    monkeypatch.setattr(rank_gpu, "BLOCK", 16)
    monkeypatch.setattr(rank_gpu, "CELLS_AT_ONCE", 200)


@pytest.mark.usefixtures("small_tiles")
def test_metrics_are_those_of_the_sorted_list_ties_too() -> None:
    (query, q_labels), (gallery, g_labels) = grid_vectors(5, 0), grid_vectors(60, 1)
    found = measured(query, gallery, (q_labels, g_labels))
    agree(found, query @ gallery.T, shared_levels(q_labels, g_labels))


@pytest.mark.usefixtures("small_tiles")
def test_each_query_is_taken_out_by_index() -> None:
    gallery, labels = grid_vectors(24, 2)
    gallery[1], labels[1] = gallery[0], labels[0]  # a duplicate keeps its place
    found = measured(gallery, gallery, (labels, labels), exclude_self=True)
    agree(found, gallery @ gallery.T, shared_levels(labels, labels, exclude_self=True))
    assert found["R@1:2"][0] == 1.0 or (gallery @ gallery.T)[0].argmax() not in (0, 1)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("same", [False, True])
def test_crowded_bins_are_sorted_to_the_same_ranks(same, monkeypatch) -> None:
    monkeypatch.setattr(rank_gpu, "CROWDED", 0)
    gallery, labels = grid_vectors(24, 2)
    query, q_labels = (gallery, labels) if same else grid_vectors(5, 0)
    found = measured(query, gallery, (q_labels, labels), exclude_self=same)
    agree(found, query @ gallery.T, shared_levels(q_labels, labels, exclude_self=same))


def test_autocast_leaves_the_scores_whole() -> None:
    make = torch.Generator().manual_seed(0)
    gallery = torch.randn(20, 16, generator=make).to(DEVICE)
    labels = torch.arange(20)[:, None] // torch.tensor([10, 5, 2])
    given = gallery, labels, gallery, labels, NAMES
    plain = metrics.evaluate(*given, exclude_self=True)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        found = metrics.evaluate(*given, exclude_self=True)
    for name in NAMES:
        same = {"rtol": 0, "atol": 0, "equal_nan": True}  # MS of a query without a wrong image
        torch.testing.assert_close(found.per_query[name], plain.per_query[name], **same)


@pytest.mark.skipif(INTERPRETED, reason="no GPU: too many images for the interpreter")
def test_a_model_that_gives_one_score_to_all_is_ranked_in_time() -> None:
    labels = torch.arange(300_000)[:, None] // torch.tensor([150_000, 1000, 10])
    gallery = torch.ones(len(labels), 2)
    found = measured(gallery[:64], gallery, (labels[:64], labels))
    # all tie, so what is less relevant comes first: ten relevant ones at the very end
    assert found["AP:3"] == pytest.approx(sum(i / (299_990 + i) for i in range(1, 11)) / 10)


@pytest.mark.parametrize(
    "scores",
    [
        [0.5] * 12,
        [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1e9, 0.5, 0.5, 0.5, 0.5, 0.5],
        [0.0, -0.0] * 6,
        [1e-38, 2e-38, -1e-38, 3e-45, 0.0, -3e-45, 1e-38, 0.0, 2e-38, 3e-38, -2e-38, 1e-45],
        [3e38, -3e38, 1.0, 2.0, -1.0, -2.0, 3e38, -3e38, 0.0, 0.5, 0.25, -0.25],
    ],
    ids=["all equal", "collapsed with an outlier", "both zeros", "tiny", "huge"],
)
def test_any_scores_are_ranked_exactly(scores) -> None:
    gallery = torch.tensor(scores)[:, None]
    landmark = torch.arange(12) * 5 % 12
    labels = torch.stack([landmark // 8, landmark // 4, landmark // 2], 1)
    query, q_labels = torch.ones(1, 1), labels[3:4]
    found = measured(query, gallery, (q_labels, labels))
    agree(found, query @ gallery.T, shared_levels(q_labels, labels))


def test_nothing_to_find_is_nan() -> None:
    gallery, labels = grid_vectors(10, 3)
    found = measured(gallery[:1], gallery, (torch.full((1, 3), 99), labels))
    assert all(np.isnan(values).all() for values in found.values())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_refused(bad) -> None:
    gallery, labels = grid_vectors(10, 4)
    gallery[7] = bad
    with pytest.raises(ShapeError, match="nan or inf"):
        measured(gallery[:2], gallery, (labels[:2], labels))


def test_the_public_evaluation_goes_through_the_kernels(monkeypatch) -> None:
    calls, rank = [], rank_gpu.rank_blocks
    monkeypatch.setattr(rank_gpu, "rank_blocks", lambda *a: calls.append(1) or rank(*a))
    gallery, labels = grid_vectors(20, 5)
    with using("unchecked"):
        found = metrics.evaluate(gallery.to(DEVICE), labels, gallery.to(DEVICE), labels, ["AP:3"])
    assert calls == [1]
    agree(
        {"AP:3": found.per_query["AP:3"].numpy()},
        gallery @ gallery.T,
        shared_levels(labels, labels),
    )


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("same", [False, True])
def test_levels_and_first_images_are_those_of_a_sort(same) -> None:
    gallery, labels = grid_vectors(24, 2)
    query, q_labels = (gallery, labels) if same else grid_vectors(5, 0)
    found = ranked(query, gallery, (q_labels, labels), same, first=7)
    levels = shared_levels(q_labels, labels, exclude_self=same)
    order = rank_columns(query @ gallery.T, levels)
    assert torch.equal(torch.from_numpy(found.levels), levels.gather(1, order))
    assert torch.equal(torch.from_numpy(found.first).long(), order[:, :7])


@pytest.mark.skipif(INTERPRETED, reason="no GPU: too many images for the interpreter")
@pytest.mark.parametrize("same", [False, True])
def test_a_large_gallery_is_that_of_the_cpu_kernel(same) -> None:
    needs_cpu_kernels()
    gallery, labels = grid_vectors(20_000, 8, dim=16)
    query, q_labels = (gallery, labels) if same else grid_vectors(300, 9, dim=16)
    on_gpu = measured(query, gallery, (q_labels, labels), same)
    on_cpu = metrics.evaluate(query, q_labels, gallery, labels, NAMES, exclude_self=same)
    for name in NAMES:
        np.testing.assert_allclose(on_gpu[name], on_cpu.per_query[name], rtol=1e-12)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("same", [False, True])
def test_votes_are_those_of_the_sorted_list(same) -> None:
    gallery, labels = grid_vectors(60, 2)
    query, q_labels = (gallery[:20], labels[:20]) if same else grid_vectors(5, 0)
    found = ranked(query, gallery, (q_labels, labels), same, first=6)
    values = found.evaluate(["HC@6", "HCA@6"], gallery_labels=labels.to(DEVICE)).per_query
    for i, path in enumerate(q_labels.tolist()):
        first = [labels[row].tolist() for row in found.first[i]]
        wanted = dict(zip(("HC@6", "HCA@6"), votes_of(first, path), strict=True))
        assert all(float(values[name][i]) == wanted[name] for name in wanted)


def test_cpcc_is_that_of_the_cpu() -> None:
    vectors, labels = grid_vectors(200, 3)
    found = metrics.cpcc(vectors.to(DEVICE), labels.to(DEVICE))
    assert found == pytest.approx(metrics.cpcc(vectors, labels), abs=1e-12)


@cache  # Triton's interpreter takes seconds for each
def ranked_in_parts(part):
    """Of 16 queries in a gallery of 3000, which is read in parts of that size; None: at once."""
    vectors, labels = grid_vectors(3000, 5)
    given = vectors[:16].to(DEVICE), labels[:16], vectors, labels
    return Ranking.join(rank_blocks(*given, exclude_self=True, first=20, part=part)).to_arrays()


@pytest.mark.parametrize("part", [300, 1000])
def test_a_gallery_in_parts_has_the_ranking_of_the_whole(part) -> None:
    for name, array in ranked_in_parts(None).items():
        np.testing.assert_array_equal(ranked_in_parts(part)[name], array, err_msg=name)


@pytest.mark.parametrize("part", [None, 1000])
def test_some_of_the_queries_are_ranked_as_all(part) -> None:
    vectors, labels = grid_vectors(3000, 5)
    gallery, options = vectors.to(DEVICE), {"exclude_self": True, "first": 20, "part": part}
    some = rank_blocks(gallery[4:12], labels[4:12], gallery, labels, start=4, **options)
    for name, array in Ranking.join(some).to_arrays().items():
        np.testing.assert_array_equal(array, ranked_in_parts(part)[name][4:12], err_msg=name)


def test_ranked_parts_merge_into_the_ranking_of_the_whole() -> None:
    vectors, labels = grid_vectors(3000, 5)
    query = vectors[:8].to(DEVICE), labels[:8]
    whole = Ranking.join(rank_blocks(*query, vectors.to(DEVICE), labels, first=9))
    cuts = zip(vectors.split(1100), labels.split(1100), strict=True)
    found = merge_parts(
        [rank_part(*query, *piece, first=9, start=1100 * i) for i, piece in enumerate(cuts)]
    )
    np.testing.assert_array_equal(found.first, whole.first)
    np.testing.assert_array_equal(found.levels, whole.levels)
    np.testing.assert_array_equal(found.counts, whole.counts)


@pytest.mark.skipif(INTERPRETED or torch.cuda.device_count() < 2, reason="fewer than two GPUs")
def test_several_gpus_share_the_queries(tmp_path, monkeypatch) -> None:
    vectors, labels = grid_vectors(3000, 5, dim=16)
    ids = pd.DataFrame({"image_id": np.arange(3000).astype(str)})
    side = Side("s", [ids], labels.numpy(), Path(), {})
    given = {"s": vectors.numpy()}, side, side, ["H-AP"], "abc", EvaluateOptions(device="cuda")
    measure_and_write(tmp_path / "one.npz", *given)
    monkeypatch.setattr("hgld.evaluate.ranking.FEW_PAIRS", {"cuda": 0})
    measure_and_write(tmp_path / "many.npz", *given)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "many.npz").read_bytes()
