"""GLDv2's two protocols on a made data set with unlabelled landmarks in its index."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from hgld.config import EvaluateOptions, ExportOptions, RunOptions
from hgld.errors import InvalidData
from hgld.evaluate import evaluate_models, evaluate_officially
from hgld.model import load_model
from hgld.model.transforms import evaluation_transform
from hgld.shards.index import read_index
from hgld.shards.write import export_shards
from hgld.train import train_models
from tests.listening import heard
from tests.made_shards import make_context, small_options

LABELLED = {1: ("natural", "lake"), 2: ("human-made", "church")}  # landmark 3 has no label
COLOURS = {1: (40, 110, 220), 2: (220, 50, 90), 3: (130, 130, 130)}
IMAGES = {"index": {1: 3, 2: 3, 3: 2}, "test": {1: 1, 2: 1, 3: 1}}


class World:
    """Photos, shards of the labelled ones, one untrained model, and the official answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source, self.shards, self.models = (folder / n for n in ("source", "shards", "models"))
        self.source.mkdir()
        self.images = pd.DataFrame(
            [
                self._draw(split, landmark, number)
                for split, counts in IMAGES.items()
                for landmark, count in counts.items()
                for number in range(count)
            ]
        )
        paths = {i: {"kind": k, "supercategory": s, "landmark": str(i)} for i, (k, s) in
                 LABELLED.items()}  # fmt: skip
        hierarchy = pd.DataFrame(
            [{"split": "index", "landmark_id": i, "path": json.dumps(p)} for i, p in paths.items()]
            + [{"split": "train", "landmark_id": 1, "path": json.dumps(paths[1])}]
        )
        self.dropped = export_shards(
            self.source,
            self.images,
            hierarchy,
            options=ExportOptions(),
            context=make_context(folder / "export"),
            out=self.shards,
        ).read()
        self.queries = pd.DataFrame(
            [
                ("test-1-0", "Public", "index-1-0 index-1-1"),  # of three of its landmark
                ("test-2-0", "Private", "index-2-0 index-2-1 index-2-2"),
                ("test-3-0", "Private", "index-3-0 index-3-1"),
                ("test-9-0", "Ignored", ""),
            ],
            columns=["image_id", "usage", "relevant"],
        )

    def _draw(self, split: str, landmark: int, number: int) -> dict[str, Any]:
        name = f"{split}-{landmark}-{number}"
        random = np.random.default_rng([*name.encode()])
        noise = random.normal(0, 40, (40, 40, 3)) + np.array(COLOURS[landmark])
        path = self.source / f"{name}.jpg"
        Image.fromarray(np.clip(noise, 0, 255).astype(np.uint8)).save(path, quality=95)
        return {
            "image_id": name,
            "split": split,
            "landmark_id": landmark,
            "path": path.name,
            "offset": 0,
            "size_bytes": path.stat().st_size,
            "license": "CC0",
            **dict.fromkeys(("author", "title", "url"), "unknown"),
        }

    def train(self) -> None:
        options = small_options(runs={"plain": RunOptions(steps=0)}, split="index")
        train_models(self.shards, options=options, context=make_context(self.folder),
                     out=self.models)  # fmt: skip

    def evaluate(self, **tables: Any) -> tuple[dict[str, Any], pd.DataFrame]:
        inputs = {"export_dropped": self.dropped, "queries": self.queries, **tables}
        return evaluate_officially(
            self.shards,
            self.models,
            self.source,
            self.images,
            **inputs,
            options=options_of("gldv2-official"),
            context=make_context(self.folder),
            out=self.folder / "ranked",
        )

    def similarities(self) -> pd.DataFrame:
        """Queries by gallery, all images, embedded one by one."""
        model = load_model(self.models / "plain")
        look = evaluation_transform(model.config)
        with torch.inference_mode():
            vectors = {
                name: model(look(Image.open(self.source / f"{name}.jpg"))[None])[0].double()
                for name in self.images["image_id"]
            }
        sides = [self.images.loc[self.images["split"] == s, "image_id"] for s in ("test", "index")]
        rows = [[float(vectors[q] @ vectors[g]) for g in sides[1]] for q in sides[0]]
        return pd.DataFrame(rows, index=sides[0].to_list(), columns=sides[1].to_list())


def options_of(protocol: Any) -> EvaluateOptions:
    return EvaluateOptions(protocol=protocol, metrics=("H-AP", "mAP@100:landmark"), device="cpu")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("official"))
    world.train()
    return world


def average_precision(ranked: list[str], relevant: set[str]) -> float:
    hits = [rank for rank, name in enumerate(ranked, 1) if name in relevant]
    return sum((i + 1) / rank for i, rank in enumerate(hits)) / len(relevant)


def expected(world: World, relevant: dict[str, set[str]], gallery: list[str]) -> dict[str, float]:
    found = world.similarities()
    return {
        query: average_precision(
            found.loc[query, gallery].sort_values(ascending=False).index.to_list(), images
        )
        for query, images in relevant.items()
    }


def test_both_numbers_stand_side_by_side_each_under_its_protocols_name(world: World) -> None:
    """The official one: the full index, the listed images. The paper's: labelled ones only."""
    report, per_query = world.evaluate()
    everything = world.images.loc[world.images["split"] == "index", "image_id"].to_list()
    listed = world.queries[world.queries["relevant"] != ""].set_index("image_id")["relevant"]
    official = expected(world, {q: set(text.split()) for q, text in listed.items()}, everything)
    labelled = [name for name in everything if "-3-" not in name]
    same = {f"test-{i}-0": {n for n in labelled if f"-{i}-" in n} for i in LABELLED}
    paper = expected(world, same, labelled)

    mean = report["models"]["plain"]["mean"]
    assert mean["mAP@100 gldv2-official"] == pytest.approx(np.mean(list(official.values())))
    assert mean["mAP@100 gldv2-official public"] == pytest.approx(official["test-1-0"])
    private = (official["test-2-0"] + official["test-3-0"]) / 2
    assert mean["mAP@100 gldv2-official private"] == pytest.approx(private)
    assert mean["mAP@100 gldv2-paper"] == pytest.approx(np.mean(list(paper.values())))
    assert mean["mAP@100 gldv2-paper"] == mean["mAP@100:landmark"]
    assert mean["mAP@100 gldv2-paper"] != mean["mAP@100 gldv2-official"]
    assert report["metrics"] == list(mean)
    values = per_query.set_index(["metric", "image_id"])["value"]
    for query, value in official.items():
        assert values["mAP@100 gldv2-official", query] == pytest.approx(value)


def test_the_report_counts_both_galleries(world: World) -> None:
    protocol = world.evaluate()[0]["protocol"]
    assert (protocol["name"], protocol["queries"], protocol["gallery_images"]) == (
        "gldv2-official",
        2,
        6,
    )
    assert protocol["official"] == {
        "queries": 3,
        "gallery_images": 8,
        "missing": {"queries": 0, "relevant_images": 0},
    }


def test_photos_outside_the_shards_are_embedded_once(world: World) -> None:
    def kept() -> dict[str, int]:
        files = (world.folder / "state").rglob("*.npy")
        return {file.name: file.stat().st_mtime_ns for file in files}

    world.evaluate()
    found = kept()
    world.evaluate()
    assert kept() == found and found


def test_the_submission_is_the_whole_ranking_in_kaggles_form(world: World) -> None:
    world.evaluate()
    lines = (world.folder / "ranked" / "plain.submission.csv").read_text().splitlines()
    assert lines[0] == "id,images" and len(lines) == 4
    submitted = dict(line.split(",") for line in lines[1:])
    found = world.similarities()
    for query, images in submitted.items():
        best = found.loc[query].sort_values(ascending=False)
        assert images.split() == best.index.to_list()


def test_the_papers_protocol_needs_no_official_list(world: World) -> None:
    report, _ = evaluate_models(
        world.shards,
        world.models,
        options=options_of("gldv2-paper"),
        context=make_context(world.folder),
        out=world.folder / "paper",
    )
    assert report["protocol"]["name"] == "gldv2-paper"
    assert report["metrics"] == ["H-AP", "mAP@100:landmark", "mAP@100 gldv2-paper"]
    beside = world.evaluate()[0]["models"]["plain"]["mean"]
    mean = report["models"]["plain"]["mean"]
    assert mean == {name: beside[name] for name in mean}


def test_what_is_missing_is_told_and_a_lost_query_counts_0(world: World) -> None:
    gone = world.dropped["image_id"] == "test-3-0"
    dropped = world.dropped.assign(reason=world.dropped["reason"].mask(gone, "undecodable"))
    with heard() as told:
        report, per_query = world.evaluate(export_dropped=dropped)
    assert any("queries 1 (each counts 0), relevant images 0" in text for text in told)
    assert report["protocol"]["official"]["missing"] == {"queries": 1, "relevant_images": 0}
    values = per_query.set_index(["metric", "image_id"])["value"]
    assert values["mAP@100 gldv2-official", "test-3-0"] == 0


def test_without_the_list_of_answers_the_option_is_named(world: World) -> None:
    with pytest.raises(InvalidData, match=r"name it in collect\.retrieval_solution_csv"):
        world.evaluate(queries=world.queries.assign(relevant=""))


def test_only_labelled_images_are_in_the_shards(world: World) -> None:
    assert len(read_index(world.shards)) == 8 and len(world.images) == 11
