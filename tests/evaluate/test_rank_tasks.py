"""Ranking shared among processes writes the bytes of one process, wherever queries are cut."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hgld.artifacts.ranking_file import RankingFile, write_ranking
from hgld.config import EvaluateOptions
from hgld.evaluate import ranking
from hgld.evaluate.mapped_vectors import MappedVectors
from hgld.evaluate.ranking import RankJob, measure_and_write, rank_and_reduce
from hgld.evaluate.sides import Side
from hgld.ranking.kernels import device
from hgld.ranking.levels import RelevanceWarning

IMAGES, DIM = 700, 24


@pytest.fixture(autouse=True)
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "FEW_PAIRS", {"cpu": 0})


def make_side(split: str, vectors: np.ndarray, labels: np.ndarray) -> Side:
    ids = [f"{split}{number:04}" for number in range(len(vectors))]
    return Side(split, [pd.DataFrame({"image_id": ids})], labels, Path(), {})


def make_sides(folder: Path, queries: int) -> tuple[dict[str, MappedVectors], Side, Side]:
    """Queries that search themselves and distractors; embeddings in three files and in memory."""
    chance = np.random.default_rng(0)
    landmark = chance.integers(0, 60, IMAGES)
    labels = np.stack([landmark // 30, landmark // 6, landmark], 1)
    vectors = chance.standard_normal((IMAGES, DIM)).astype(np.float32) + labels[:, 2:] % 7
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    pieces = []
    for number, piece in enumerate(np.split(vectors, [queries, 500])):
        np.save(folder / f"piece-{number}.npy", piece)
        pieces.append(np.load(folder / f"piece-{number}.npy", mmap_mode="c"))
    pieces[2] = np.array(pieces[2])
    mapped = {"q": MappedVectors((pieces[0],)), "q+more": MappedVectors(tuple(pieces))}
    query = make_side("q", vectors[:queries], labels[:queries])
    return mapped, query, make_side("q+more", vectors, labels)


def written(folder: Path, sides: tuple, **options: object) -> tuple[bytes, dict[str, list[float]]]:
    path = folder / f"{len(list(folder.iterdir()))}.npz"
    names = ["H-AP", "NDCG", "ASI", "AP:1", "AP:3", "R@1", "mAP@100:3", "HCA@9"]
    given = EvaluateOptions(**{"device": "cpu", "keep_ranks": 200, **options})
    result = measure_and_write(path, *sides, names, "abc", given)
    return path.read_bytes(), {name: v.tolist() for name, v in result.per_query.items()}


@pytest.mark.parametrize("part", [None, 256, 301])
def test_processes_write_the_bytes_of_one(part, tmp_path: Path, monkeypatch) -> None:
    sides = make_sides(tmp_path, 90)
    truth = written(tmp_path, sides)
    if part is not None:
        monkeypatch.setattr(device, "PART_IMAGES", part)
    found = [written(tmp_path, sides)] if part else []
    # tasks in this process: workers would not see the patch
    monkeypatch.setattr(ranking, "map_tasks", lambda do, tasks, *_, **__: [*map(do, tasks)])
    found += [written(tmp_path, sides, processes=count) for count in (2, 3, 5)]
    assert all(bytes_ == truth[0] and values == truth[1] for bytes_, values in found)


@pytest.mark.slow
def test_worker_processes_write_the_bytes_of_one(tmp_path: Path) -> None:
    sides = make_sides(tmp_path, 70)
    assert written(tmp_path, sides, processes=2) == written(tmp_path, sides)


def test_a_very_large_gallery_is_measured_without_curves(tmp_path: Path, monkeypatch) -> None:
    sides = make_sides(tmp_path, 20)
    with_curves = written(tmp_path, sides)[1]
    monkeypatch.setattr("hgld.ranking.curves.IMAGES", 100)
    assert written(tmp_path, sides)[1] == with_curves
    found = RankingFile.load(max(tmp_path.glob("*.npz"), key=lambda path: path.stat().st_mtime_ns))
    assert [len(found.curves[name]) for name in ("precision", "by_alpha", "gaps")] == [0, 0, 0]


def test_labels_and_ids_in_parts_write_the_bytes_of_a_table(tmp_path: Path, monkeypatch) -> None:
    mapped, query, gallery = make_sides(tmp_path, 20)
    ids = gallery.read(["image_id"])
    cut = replace(
        gallery, pieces=[ids[:1], ids[1:300], ids[300:]], labels=gallery.labels.astype("i4")
    )
    monkeypatch.setattr("hgld.evaluate.sides.LABELS_AT_ONCE", 64)
    monkeypatch.setattr(ranking, "ROWS_AT_ONCE", 50)
    in_parts = written(tmp_path, (mapped, query, cut))
    monkeypatch.undo()
    assert in_parts == written(tmp_path, (mapped, query, gallery))


def test_ids_of_other_lengths_are_written_in_the_type_of_the_longest(tmp_path: Path) -> None:
    ids = [np.array(["a", "bc"]), np.array(["defgh"])]
    classes = np.zeros((1, 1), np.int64), np.zeros((1, 2), np.float32)
    given = np.array(["q"]), partial(iter, ids), 3, *classes, 2
    with write_ranking(tmp_path / "a.npz", *given) as add:
        add(np.zeros((1, 3), np.int8), np.zeros((1, 3), np.int32), np.zeros((1, 2), np.int64))
    with np.load(tmp_path / "a.npz") as data:
        assert data["gallery_ids"].tolist() == ["a", "bc", "defgh"]
        assert data["gallery_ids"].dtype == "<U5"


def test_queries_that_are_few_need_no_workers(monkeypatch) -> None:
    options = EvaluateOptions(device="cpu", processes=4)
    assert [ranking.count_tasks(options, n, 1000) for n in (16, 17, 500)] == [1, 2, 4]
    monkeypatch.setattr(ranking, "FEW_PAIRS", {"cpu": 1 << 20})
    assert [ranking.count_tasks(options, 500, n) for n in (1000, 4000)] == [1, 4]


def test_warnings_of_workers_reach_the_user(monkeypatch) -> None:
    labels = np.stack([np.arange(40), np.arange(40) // 4], 1)  # finer before coarser
    side = np.eye(40, dtype=np.float32), labels
    monkeypatch.setattr(ranking, "map_tasks", lambda do, tasks, *_, **__: [*map(do, tasks)])
    options = EvaluateOptions(device="cpu", processes=3)
    with pytest.warns(RelevanceWarning, match="level 2 is coarser than level 1") as found:
        blocks = list(rank_and_reduce(RankJob(first=3), side, side, options=options))
    assert len(found) == 1 and sum(len(block.first) for block in blocks) == 40
