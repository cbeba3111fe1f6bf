"""Class names that search for photos: with a small CLIP, a network of a file, given vectors."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from open_clip.model import CLIP

from hgld.artifacts import ARTIFACTS
from hgld.cli import app, guarded
from hgld.config import EvaluateOptions, ReportOptions
from hgld.errors import UsageError
from hgld.evaluate import evaluate_names
from hgld.evaluate.embedded import open_embedded
from hgld.evaluate.results import open_measured
from hgld.ranking import levels as grades
from hgld.ranking import metrics
from hgld.report import write_report
from hgld.shards.files import read_image
from hgld.shards.index import labels_of, read_index
from hgld.tasks import watched_by
from tests.made_clip import save_clip
from tests.made_shards import HIERARCHY, PLACES, make_context, make_shards
from tests.ranking import ranking_oracles as oracle
from tests.report.reading import parse, text

METRICS = ("H-AP", "AP:kind", "AP:supercategory", "CPCC")
LEVELS = ("kind", "supercategory", "landmark")
FRAMES = [("same", "same supercategory"), ("near", "same kind")]  # of names of supercategories
LANDMARKS = HIERARCHY[["split", "landmark_id"]].assign(
    name=[f"Place {number}" if number != 2 else "unknown" for _, number in PLACES], commons_url=""
)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    make_shards(folder, images=3)
    for name, table in (("hierarchy", HIERARCHY), ("landmarks", LANDMARKS)):
        artifact: Any = ARTIFACTS[name]
        artifact.write(table, folder / artifact.file)
    (folder / "models").mkdir()
    return folder


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, CLIP]:
    folder = tmp_path_factory.mktemp("clip")
    model = save_clip(folder)
    return f"open_clip:local-dir:{folder}", model


def measure(work: Path, model: str, **options: object) -> tuple[dict[str, Any], pd.DataFrame]:
    splits = {"queries": "names", "query": "train", "gallery": "train", "device": "cpu"}
    context = replace(make_context(work), state=work / ".state" / "evaluate")
    return evaluate_names(
        work / "shards",
        work / "models",
        HIERARCHY,
        LANDMARKS,
        options=EvaluateOptions(models={"m": model}, **splits, **options),
        context=context,
        out=work / "ranked_levels",
    )


def write_tables(work: Path, report: dict[str, Any], values: pd.DataFrame) -> None:
    for name, value in (("evaluation", report), ("per_query", values)):
        artifact: Any = ARTIFACTS[name]
        artifact.write(value, work / artifact.file)


def photos(work: Path) -> tuple[pd.DataFrame, list[Any]]:
    index = read_index(work / "shards")
    rows = index[index["split"] == "train"]
    return rows, [read_image(work / "shards", row) for _, row in rows.iterrows()]


def test_names_of_a_level_find_photos_by_the_mean_of_the_prompts(
    work: Path, clip: tuple[str, CLIP]
) -> None:
    prompts = ("a photo of a {}", "{} from afar")
    wanted = {"name_level": "supercategory", "prompts": prompts, "metrics": METRICS}
    report, values = measure(work, clip[0], **wanted)
    rows, images = photos(work)
    columns = ["level_1", "level_2"]
    classes = rows.drop_duplicates(columns).sort_values(columns)
    paths = [PLACES["train", number][:2] for number in classes["landmark_id"]]
    look, tokenize = open_clip.image_transform(32, is_train=False), open_clip.SimpleTokenizer()
    with torch.inference_mode():
        gallery = clip[1].encode_image(torch.stack([look(i) for i in images]), normalize=True)
        texts = [
            clip[1].encode_text(tokenize([p.format(group) for _, group in paths]), normalize=True)
            for p in prompts
        ]
    scores = F.normalize(torch.stack(texts).mean(0), dim=-1) @ gallery.T
    labels = torch.from_numpy(labels_of(classes)).clone()
    labels[:, 2] = -1
    shared = grades.shared_levels(labels, torch.from_numpy(labels_of(rows)))
    expected = {
        "H-AP": metrics.h_ap(scores, shared, 3),
        "AP:kind": metrics.average_precision(scores, shared, 1),
        "AP:supercategory": metrics.average_precision(scores, shared, 2),
    }
    found = values.pivot(index="image_id", columns="metric", values="value")
    for name, of_queries in expected.items():
        one_by_one = found[name][["/".join(path) for path in paths]]
        assert one_by_one.tolist() == pytest.approx(of_queries.tolist())
    assert report["protocol"]["name"] == "names-to-photos"
    assert report["protocol"]["names"] == {"level": "supercategory", "prompts": list(prompts)}
    assert report["protocol"]["unmatched"] == {"queries": 0, "classes": 0}
    assert "CPCC" in report["models"]["m"]["mean"]


@pytest.mark.parametrize("level", ["supercategory", None])
def test_names_have_metrics_of_distances_and_votes(work: Path, tmp_path: Path, level) -> None:
    (tmp_path / "net.py").write_text(NETWORK)
    names = ("MS", "AHD@4", "HOPS", "hF@4", "HC@3")
    wanted = {"name_level": level, "metrics": names}
    report, values = measure(work, f"python:{tmp_path}/net.py:build", **wanted)
    write_tables(work, report, values)
    made = open_embedded(open_measured(str(work)))
    query, gallery = (np.asarray(made.vectors[s.split]) for s in (made.query, made.gallery))
    sides = [torch.from_numpy(side.labels) for side in (made.query, made.gallery)]
    found = {name: dict.fromkeys(made.query.image_ids, math.nan) for name in names}
    for row in values.to_dict("records"):
        found[row["metric"]][row["image_id"]] = row["value"]
    for i, one in enumerate(made.query.image_ids):
        scores, levels = query[i] @ gallery.T, grades.shared_levels(*sides)[i].numpy()
        order = sorted(range(len(scores)), key=lambda j, s=scores, x=levels: (-s[j], x[j]))
        ranked, first = levels[order].tolist(), sides[1][order[:3]].tolist()
        paths = oracle.of_paths(ranked, 3, 4)
        expected = {
            "MS": 1 - ranked[0] / 3 if 3 in ranked and ranked[0] < 3 else math.nan,
            "AHD@4": paths["ahd_at_4"], "hF@4": paths["hf_at_4"],
            "HOPS": oracle.hops_of(ranked),
            "HC@3": oracle.votes_of(first, sides[0][i].tolist())[0],
        }  # fmt: skip
        for name, value in expected.items():
            assert found[name][one] == pytest.approx(value, abs=1e-12, nan_ok=True), name
    has_own = level is None  # a name above the finest level has no image at distance 0
    assert (report["models"]["m"]["skipped"]["MS"] < len(sides[0])) == has_own


def test_a_metric_without_a_level_is_of_the_level_of_the_names(work: Path, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NETWORK)
    wanted = {"name_level": "supercategory", "metrics": ("R@1", "AP:kind")}
    report, _ = measure(work, f"python:{tmp_path}/net.py:build", **wanted)
    assert list(report["models"]["m"]["mean"]) == ["R@1:supercategory", "AP:kind"]
    assert report["models"]["m"]["mean"]["R@1:supercategory"] is not None


def test_the_finest_classes_are_called_as_landmarks_are_and_those_without_a_name_are_counted(
    work: Path, clip: tuple[str, CLIP]
) -> None:
    said: list[str] = []
    with watched_by(lambda items, *_: iter(items), said.append):
        report, values = measure(work, clip[0], metrics=("R@1",))
    assert report["protocol"]["queries"] == len(set(values["image_id"])) == 3
    assert "natural/lake/train:4" in set(values["image_id"])
    assert any("1 of 4 classes has no name" in line for line in said)


@pytest.mark.slow
def test_report_and_export_take_names_as_queries(
    work: Path, clip: tuple[str, CLIP], tmp_path: Path
) -> None:
    report, values = measure(work, clip[0], name_level="supercategory")
    write_tables(work, report, values)
    write_report(
        HIERARCHY, work / "shards", work / "models", report, values, work / "ranked_levels",
        LANDMARKS, options=ReportOptions(vector_figures=()), context=make_context(tmp_path),
        out=tmp_path / "report",
    )  # fmt: skip
    page = (tmp_path / "report" / "report.html").read_text()
    assert "names of classes as texts (a photo of a {}), searched among" in page
    assert "a photo of a church" in page
    embedded = open_embedded(open_measured(str(work)))
    assert embedded.query.image_ids.tolist() == sorted(set(values["image_id"]))
    assert np.asarray(embedded.vectors["names of train"]).shape == (3, 16)
    # no photo is of a landmark, so none counts as found or missed there
    assert "find another landmark" not in page
    assert set(pd.read_csv(tmp_path / "report" / "classes.csv")["level"]) == {*LEVELS[:2]}
    assert json.dumps({"levels": LEVELS[:2]})[1:-1] in page  # the table opens on the last
    photos = parse(tmp_path / "report").xpath("//div[@class='found']/figure")
    frames = {(photo.get("class"), text(photo.xpath(".//b")[0])) for photo in photos}
    assert {*FRAMES} <= frames
    assert frames <= {*FRAMES, ("far", "another kind")}
    assert (
        guarded(lambda: app(["evaluations", "map", str(work), "--out", str(tmp_path / "map")])) == 0
    )
    copied = shutil.copytree(work, tmp_path / "work")
    pages = ["--out", str(tmp_path / "pages")]
    assert guarded(lambda: app(["evaluations", "compare", str(work), str(copied), *pages])) == 0
    legend = parse(tmp_path / "pages", "comparison").xpath("//ul[@class='legend']/li")
    assert [(part.get("class"), text(part)) for part in legend][:2] == FRAMES


NETWORK = """
import torch
from torch import nn

class Colours(nn.Module):
    def forward(self, photos):
        return photos.mean((2, 3))

    def encode_text(self, texts):
        return torch.tensor([[float("lake" in t), 1.0, float("church" in t)] for t in texts])

def build():
    return Colours()

def photos_only():
    return nn.Flatten()
"""


def test_a_network_of_a_file_and_given_vectors_embed_names_too(work: Path, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NETWORK)
    wanted = {"name_level": "supercategory", "metrics": ("H-AP", "AP:kind")}
    report, values = measure(work, f"python:{tmp_path}/net.py:build", **wanted)
    write_tables(work, report, values)
    found = open_embedded(open_measured(str(work)))
    sides = (found.gallery, found.query)
    vectors = np.concatenate([np.asarray(found.vectors[side.split]) for side in sides])
    ids = np.concatenate([side.image_ids for side in sides])
    np.savez(tmp_path / "given.npz", ids=ids, vectors=vectors)
    again, _ = measure(work, str(tmp_path / "given.npz"), **wanted)
    assert again["models"]["m"]["mean"] == pytest.approx(report["models"]["m"]["mean"])
    with pytest.raises(UsageError, match="photos_only: embeds no texts; it needs a method encode_"):
        measure(work, f"python:{tmp_path}/net.py:photos_only", **wanted)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"models": {"m": "timm:resnet18"}}, "models.m: timm:resnet18 embeds no texts"),
        ({"models": {"m": "run:model"}}, "models.m: run:model embeds no texts"),
        ({}, "names need models that embed texts"),
        (
            {"models": {"m": "open_clip:a/b"}, "prompts": ["a {}", "a photo"]},
            r"prompts: expected texts with one {} each, not \['a photo'\]",
        ),
        (
            {"models": {"m": "open_clip:a/b"}, "prompts": []},
            r"prompts: expected texts with one {} each, not \[\]",
        ),
        ({"models": {"m": "open_clip:a/b"}, "protocol": "gldv2-paper"}, "about photos"),
        ({"queries": "images", "name_level": "kind"}, 'name_level is for queries = "names"'),
    ],
)
def test_options_that_do_not_fit_names_are_refused(options: dict[str, Any], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        EvaluateOptions(**{"queries": "names", **options})


def test_a_level_that_does_not_exist_is_named(work: Path, clip: tuple[str, CLIP]) -> None:
    with pytest.raises(UsageError, match="name_level 'city' is none of kind, supercategory, land"):
        measure(work, clip[0], name_level="city")
