"""Ranking a gallery part by part gives the bits of a single pass, wherever it is cut."""

import numpy as np
import pytest
import torch

from hgld.errors import HgldError, ShapeError
from hgld.ranking import evaluation, parts
from hgld.ranking.kernels import device
from hgld.ranking.rankings import Ranking

GALLERY, DIM = 3000, 24


def sides(queries=9, ties=False, seed=0):
    make = torch.Generator().manual_seed(seed)
    vectors = torch.nn.functional.normalize(torch.randn(GALLERY, DIM, generator=make))
    if ties:
        vectors = (vectors * 4).round() / 4
    landmark = torch.randint(0, 40, (GALLERY,), generator=make)
    labels = torch.stack([landmark // 20, landmark // 4, landmark], 1)
    return vectors[:queries], labels[:queries], vectors, labels


def ranked(given, part=None, **options) -> dict[str, np.ndarray]:
    return Ranking.join(evaluation.rank_blocks(*given, part=part, **options)).to_arrays()


def same(found, truth) -> None:
    assert all(np.array_equal(found[name], truth[name]) for name in truth)


@pytest.mark.parametrize("part", [1, 300, 777, 1000, 2999, 3000])
@pytest.mark.parametrize("ties", [False, True])
def test_a_gallery_in_parts_has_the_ranking_of_the_whole(part, ties) -> None:
    for own in (False, True):
        given = sides(ties=ties)
        truth = ranked(given, exclude_self=own, first=20)
        same(ranked(given, part, exclude_self=own, first=20), truth)


@pytest.mark.parametrize("queries", [1, 2, 3, 4, 300])
def test_the_number_of_queries_changes_no_bit(queries) -> None:
    given, every = sides(queries), sides(300)
    truth = {name: array[:queries] for name, array in ranked(every, first=5).items()}
    same(ranked(given, first=5), truth)
    same(ranked(given, 1000, first=5), truth)


@pytest.mark.parametrize("part", [None, 1000])
def test_some_of_the_queries_are_ranked_as_all(part) -> None:
    for dtype in (torch.float32, torch.float64):
        query, labels, gallery, paths = sides(300)
        query = query.to(dtype)
        truth = ranked((query, labels, gallery, paths), exclude_self=True, first=5)
        some = query[100:130], labels[100:130], gallery, paths
        found = ranked(some, part, exclude_self=True, first=5, start=100)
        same(found, {name: array[100:130] for name, array in truth.items()})


def test_a_part_of_more_images_than_a_kernel_numbers_is_cut(monkeypatch) -> None:
    given, cut = sides(), []
    truth, whole = ranked(given, 500, first=20), evaluation.rank_in_parts  # checks the kernel once
    monkeypatch.setattr(evaluation, "MOST_PART", 1000)
    monkeypatch.setattr(evaluation, "rank_in_parts", lambda *a: cut.append(a[-1]) or whole(*a))
    same(ranked(given, 1 << 26, first=20), truth)
    assert cut == [1000]


def test_the_last_part_is_no_longer_than_a_kernel_numbers(monkeypatch) -> None:
    given, asked = sides(), []
    truth, whole = ranked(given, 500, first=20), evaluation.rank_in_parts  # checks the kernel once

    def watched(query, rows_of, *others):
        def rows(a: int, b: int) -> torch.Tensor:
            asked.append(b - a)
            return rows_of(a, b)

        return whole(query, rows, *others)

    monkeypatch.setattr(evaluation, "rank_in_parts", watched)
    for module in (evaluation, parts):
        monkeypatch.setattr(module, "MOST_PART", 1400)  # leaves 200 of the 3000 images
    same(ranked(given, 1 << 26, first=20), truth)
    assert sum(asked) == GALLERY and max(asked) <= 1400


def test_pieces_of_embeddings_need_not_be_parts() -> None:
    query, labels, gallery, paths = sides()
    given = query, labels, list(gallery.split([100, 900, 2000])), paths
    same(ranked(given, 1024, first=3), ranked(sides(), first=3))


def test_one_score_for_all_images_is_sorted_by_level(monkeypatch) -> None:
    query, labels, gallery, paths = sides()
    given = query, labels, torch.ones_like(gallery), paths
    same(ranked(given, 500, first=9), ranked(given, first=9))


def test_chunks_and_temporary_files_change_nothing(monkeypatch) -> None:
    make = torch.Generator().manual_seed(3)
    gallery = torch.nn.functional.normalize(torch.randn(400_000, 4, generator=make))
    paths = torch.randint(0, 3, (400_000, 1), generator=make)
    given = gallery[:6], paths[:6], gallery, paths
    truth = ranked(given, exclude_self=True, first=100)
    monkeypatch.setattr(device, "IN_MEMORY", 1000)
    monkeypatch.setattr(parts, "LEAST_ROWS", 2)
    monkeypatch.setattr(parts, "RUN_CELLS", 1)
    same(ranked(given, 90_000, exclude_self=True, first=100), truth)


def test_a_full_disk_is_one_line(monkeypatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(HgldError, match=r"no room for 0\.1 GB .*No space left.*; set TMPDIR"):
        device.new_array((100_000_000,), np.int8)
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    with pytest.raises(HgldError, match=r"^/no/such/folder: no room .*No such file.*; set TMPDIR"):
        device.new_array((100_000_000,), np.int8)


def test_a_score_that_is_not_finite_is_found_in_any_part() -> None:
    query, labels, gallery, paths = sides()
    gallery[2500] = torch.nan
    with pytest.raises(ShapeError, match="nan or inf"):
        ranked((query, labels, gallery, paths), 1000)


def test_more_images_than_ranks_can_count_are_refused_before_any_work(monkeypatch) -> None:
    monkeypatch.setattr(evaluation, "MOST_IMAGES", 2999)
    with pytest.raises(ShapeError, match=r"3000 gallery images; ranks are counted to 2999"):
        ranked(sides())


def test_the_gpu_sorts_a_part_into_the_same_runs() -> None:
    from hgld.ranking.kernels import rank_gpu
    from hgld.ranking.kernels.device import score_rows
    from hgld.ranking.kernels.rank_cpu import rank_rows
    from hgld.ranking.levels import ClassRanges

    query, labels, gallery, paths = sides(ties=True)
    ranges = ClassRanges.of(labels, paths)
    own = np.arange(len(query)) - 2
    own[:2] = -1
    given = (*(x.numpy() for x in (ranges.places(), ranges.starts, ranges.ends)), own)
    runs, order = (np.zeros((9, n), kind) for n, kind in ((GALLERY, np.uint64), (50, np.int32)))
    rank_gpu.sort_part(query, gallery, given, runs, order)
    truth, scores = [np.zeros_like(runs), np.zeros_like(order)], torch.empty(9, GALLERY)
    score_rows(query, gallery, scores)
    rank_rows(scores.numpy(), *given, *truth)
    assert np.array_equal(runs, truth[0]) and np.array_equal(order, truth[1])
