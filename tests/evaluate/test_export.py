"""Exports of a real evaluation: full rankings and embeddings, found again by the model's name."""

from pathlib import Path

import numpy as np
import pytest

from hgld.artifacts import ARTIFACTS
from hgld.cli import app, guarded
from hgld.config import EvaluateOptions, SourceOptions, StageContext
from hgld.evaluate import evaluate_models
from hgld.evaluate.results import open_measured
from hgld.evaluate.sides import Shards
from hgld.ranking.interchange import read_kaggle, read_trec_run
from tests.made_shards import make_shards

METRICS = ("H-AP", "AP:landmark")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work folder in which embeddings of 110 images were measured, all against all."""
    work = tmp_path_factory.mktemp("export")
    shards = make_shards(work, images=55)
    side = Shards.read(shards).side("index", "query")
    vectors = np.random.default_rng(0).normal(size=(len(side), 8)).astype(np.float32)
    np.savez(work / "mine.npz", ids=side.image_ids[::-1], vectors=vectors)
    context = StageContext("2026-01-01", work / ".state/evaluate", SourceOptions(), work)
    outputs = evaluate_models(
        shards,
        work,
        options=EvaluateOptions(
            query="index",
            gallery="index",
            metrics=METRICS,
            models={"mine": str(work / "mine.npz")},
        ),
        context=context,
        out=work / "ranked_levels",
    )
    for name, value in zip(("evaluation", "per_query"), outputs, strict=True):
        artifact = ARTIFACTS[name]
        artifact.write(value, work / artifact.file)  # type: ignore[union-attr]
    return work


@pytest.fixture
def work(made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)  # no path may depend on the folder of the first command
    return made


def hgld(*arguments: object) -> int:
    return guarded(lambda: app(["evaluations", *(str(word) for word in arguments)]))


def test_a_full_ranking_holds_every_image_and_begins_with_the_kept_ranks(
    work: Path, capsys
) -> None:
    assert hgld("export", work) == 0
    first = read_trec_run(capsys.readouterr().out.splitlines())
    assert hgld("export", work, "--depth", "all") == 0
    full = read_trec_run(capsys.readouterr().out.splitlines())
    ids = set(full)
    assert len(ids) == 110
    for query, images in full.items():
        assert set(images) == ids - {query} and len(images) == 109
        assert images[:100] == first[query]


def test_full_average_precision_can_be_computed_from_the_exported_ranking(
    work: Path, capsys
) -> None:
    assert hgld("export", work, "--depth", "109", "--format", "kaggle") == 0
    full = read_kaggle(capsys.readouterr().out.splitlines())
    side = Shards.read(work / "shards").side("index", "query")
    finest = dict(zip(side.image_ids, side.labels[:, -1], strict=True))
    values = open_measured(str(work)).values()["mine"]["AP:landmark"]
    for query, images in full.items():
        right = np.array([finest[image] == finest[query] for image in images])
        precision = np.cumsum(right) / np.arange(1, len(right) + 1)
        assert values[query] == pytest.approx(precision[right].mean(), abs=1e-6)


@pytest.mark.parametrize("form", ["npz", "parquet"])
def test_exported_embeddings_are_named_by_model_and_split_and_measure_the_same(
    form: str, work: Path, tmp_path: Path, capsys
) -> None:
    assert hgld("export", work, "--format", form, "--out", tmp_path / "e") == 0
    path = tmp_path / "e" / f"mine-index.{form}"
    assert capsys.readouterr().out.split() == [str(path)]
    first = path.read_bytes()
    words = ["--metric", "AP:3" if form == "npz" else "AP:landmark", "--json"]
    assert hgld("measure", path, *words) == 0
    mean = open_measured(str(work)).values()["mine"]["AP:landmark"].mean()
    assert f"{mean:.6f}" in capsys.readouterr().out
    assert hgld("export", work, "--format", form, "--out", tmp_path / "e") == 0
    assert path.read_bytes() == first


def test_rows_of_exported_embeddings_are_in_the_order_of_the_index(
    work: Path, tmp_path: Path
) -> None:
    assert hgld("export", work, "--format", "npz") == 0
    side = Shards.read(work / "shards").side("index", "query")
    with np.load(tmp_path / "mine-index.npz") as data, np.load(work / "mine.npz") as given:
        assert data["ids"].tolist() == side.image_ids.tolist()
        own = given["vectors"][::-1]
        assert data["vectors"] == pytest.approx(
            own / np.linalg.norm(own, axis=1, keepdims=True), abs=1e-6
        )


def test_embeddings_of_a_model_that_changed_are_refused_in_one_line(
    work: Path, tmp_path: Path, capsys
) -> None:
    before = (work / "mine.npz").read_bytes()
    with np.load(work / "mine.npz") as data:
        np.savez(work / "mine.npz", ids=data["ids"], vectors=-data["vectors"])
    try:
        assert hgld("export", work, "--format", "npz") == 3
    finally:
        (work / "mine.npz").write_bytes(before)
    text = capsys.readouterr()
    assert text.out == "" and "changed since mine was measured" in text.err
    assert not list(tmp_path.iterdir())


def test_an_evaluation_without_a_record_of_its_models_is_named(work: Path, capsys) -> None:
    record = work / ".state/evaluate/models.json"
    content = record.read_bytes()
    record.unlink()
    try:
        assert hgld("export", work, "--depth", "all") == 1
    finally:
        record.write_bytes(content)
    text = capsys.readouterr()
    assert text.out == "" and "run the evaluate stage again" in text.err
