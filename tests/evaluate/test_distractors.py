"""Queries that search among themselves and others: no query finds itself."""

from pathlib import Path

import numpy as np
import pytest

from hgld.config import EvaluateOptions
from hgld.evaluate import evaluate_models
from hgld.evaluate.sides import Shards
from tests.made_shards import make_context

NAMES = ("AP:landmark", "AP:kind", "R@1:landmark")
SPLITS = "test+index"


def values_by_hand(vectors: dict[str, np.ndarray], labels: dict[str, np.ndarray]) -> list[float]:
    """Average precision of each query at the finest level, image by image."""
    found = []
    gallery, paths = np.concatenate(list(vectors.values())), np.concatenate(list(labels.values()))
    for i, vector in enumerate(vectors["test"]):
        others = np.delete(np.arange(len(gallery)), i)
        order = others[np.argsort(-(gallery[others] @ vector), kind="stable")]
        right = (paths[order] == paths[i]).all(axis=1)
        if right.any():
            precisions = np.cumsum(right) / np.arange(1, len(right) + 1)
            found.append(float(precisions[right].mean()))
    return found


@pytest.mark.filterwarnings("ignore:.*Eq. 20")  # a set this small has odd class sizes
def test_queries_search_among_themselves_and_the_distractors(shards: Path, tmp_path: Path) -> None:
    found = Shards.read(shards)
    random = np.random.default_rng(0)
    sides = {split: found.side(split, "gallery") for split in ("test", "index")}
    vectors = {s: random.normal(size=(len(side), 4)) for s, side in sides.items()}
    vectors = {s: v / np.linalg.norm(v, axis=1, keepdims=True) for s, v in vectors.items()}
    ids = np.concatenate([side.image_ids for side in sides.values()])
    given = tmp_path / "given.npz"
    np.savez(given, ids=ids, vectors=np.concatenate(list(vectors.values())).astype(np.float32))
    report, per_query = evaluate_models(
        shards,
        tmp_path,
        options=EvaluateOptions(
            query="test", gallery=SPLITS, metrics=NAMES, models={"given": str(given)}
        ),
        context=make_context(tmp_path),
        out=tmp_path / "ranked_levels",
    )
    assert report["protocol"]["name"] == "distractors"
    assert report["protocol"]["gallery_images"] == len(ids)
    values = per_query[per_query["metric"] == "AP:landmark"]["value"].to_numpy()
    expected = values_by_hand(vectors, {s: side.labels for s, side in sides.items()})
    assert values == pytest.approx(expected, abs=1e-6)
    with np.load(tmp_path / "ranked_levels/given.npz") as ranking:
        assert (ranking["levels"][:, -1] == -1).all()
        assert (ranking["levels"][:, :-1] >= 0).all()


def test_a_gallery_of_two_splits_has_the_queries_first(shards: Path) -> None:
    found = Shards.read(shards)
    queries, gallery = found.side("test", "query"), found.side(SPLITS, "gallery")
    assert gallery.own_queries(queries) == len(queries)
    assert gallery.image_ids[: len(queries)].tolist() == queries.image_ids.tolist()
    assert found.side("index", "gallery").own_queries(queries) == 0


@pytest.mark.parametrize(
    ("query", "gallery"), [("test+index", "index"), ("test", "index+test"), ("test", "test+test")]
)
def test_queries_that_would_find_themselves_are_refused(query: str, gallery: str) -> None:
    with pytest.raises(ValueError, match="those of both sides first"):
        EvaluateOptions(query=query, gallery=gallery)
    clip = {"clip": "open_clip:ViT-B-32/a.pt"}  # texts are in no gallery
    assert EvaluateOptions(query=query, gallery="index", queries="names", models=clip).models
