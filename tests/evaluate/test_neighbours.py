"""Near-duplicates and suspect labels, against plain numpy and on shards with known faults."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hgld.artifacts import declared_table
from hgld.cli import app, guarded
from hgld.errors import UsageError
from hgld.evaluate import neighbours
from hgld.evaluate.given import unit_rows
from hgld.evaluate.mapped_vectors import MappedVectors
from hgld.evaluate.neighbours import find_duplicates, find_suspects, nearest, suspect_tables
from hgld.evaluate.sides import Side
from hgld.report.examples import Images
from hgld.shards.index import read_index
from tests.made_shards import PLACES, make_shards
from tests.report.reading import look


def random_units(count: int, dim: int, seed: int) -> np.ndarray:
    return unit_rows(np.random.default_rng(seed).normal(size=(count, dim)))


def test_the_nearest_images_are_those_of_a_full_sort(monkeypatch) -> None:
    monkeypatch.setattr(neighbours, "ROWS_AT_ONCE", 7)
    query, gallery = random_units(30, 6, 0), random_units(200, 6, 1)
    pieces = MappedVectors((gallery[:50], gallery[50:]))
    rows, cosines = nearest(query, pieces, 4)
    scores = query @ gallery.T
    assert rows.tolist() == np.argsort(-scores, axis=1)[:, :4].tolist()
    assert cosines == pytest.approx(np.take_along_axis(scores, rows, 1), abs=1e-6)


def groups(seed: int, classes: int = 12, images: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Points around the centres of classes, four of which share a parent."""
    random = np.random.default_rng(seed)
    parents = np.repeat(random.normal(size=(classes // 4, 16)), 4, axis=0)
    centres = np.repeat(parents + 0.7 * random.normal(size=(classes, 16)), images, axis=0)
    finest = np.repeat(np.arange(classes), images)
    points = unit_rows(centres + 0.4 * random.normal(size=centres.shape))
    return points, np.stack([finest // 4, finest], axis=1)


def test_flipped_labels_are_the_most_suspect() -> None:
    vectors, labels = groups(0)
    flipped = labels.copy()
    for row, to in ((3, 90), (40, 0), (77, 20)):
        flipped[row] = labels[to]
    found = find_suspects(vectors, flipped)
    assert set(np.argsort(-found.score)[:3]) == {3, 40, 77}
    assert labels[found.elsewhere[[3, 40, 77]]].tolist() == labels[[3, 40, 77]].tolist()


def test_votes_and_margins_are_those_of_a_plain_loop() -> None:
    vectors, labels = groups(1, classes=8, images=5)
    found, own = find_suspects(vectors, labels, count=4), labels[:, 1]
    scores = vectors @ vectors.T
    for i in range(len(vectors)):
        others = [j for j in np.argsort(-scores[i]) if j != i][:4]
        shares = {c: np.mean([own[j] == c for j in others]) for c in set(own)}
        mine = shares.pop(own[i])
        assert found.votes[i] == pytest.approx(mine - max(shares.values()))
        rest = {c: [j for j in range(len(own)) if own[j] == c and j != i] for c in set(own)}
        cosines = {
            c: vectors[i] @ (m := vectors[rows].mean(0)) / np.linalg.norm(m)
            for c, rows in rest.items()
        }
        mine = cosines.pop(own[i])
        assert found.margin[i] == pytest.approx(mine - max(cosines.values()), abs=1e-5)


def test_an_image_alone_in_its_class_is_not_judged() -> None:
    vectors, labels = groups(2, classes=4, images=3)
    labels[0] = (9, 9)
    found = find_suspects(vectors, labels, count=3)
    assert np.flatnonzero(np.isnan(found.score)).tolist() == [0]


def test_one_class_has_no_suspects() -> None:
    with pytest.raises(UsageError, match="expected at least three images of two classes"):
        find_suspects(random_units(5, 3, 0), np.zeros((5, 1), np.int64))


def test_classes_of_one_image_each_have_no_suspects() -> None:
    with pytest.raises(UsageError, match="two of them of one class"):
        find_suspects(random_units(4, 3, 0), np.arange(4)[:, None])


def test_classes_without_siblings_are_listed_with_the_score_of_their_images() -> None:
    """Two classes of two parents: images are judged, but no class by a sibling."""
    vectors, labels = random_units(4, 3, 0), np.array([[0, 0], [0, 0], [1, 1], [1, 1]])
    rows = pd.DataFrame({"image_id": list("abcd"), "split": "train", "landmark_id": labels[:, 1]})
    images, classes = suspect_tables(
        rows, vectors, labels, pd.Series(["x > a"] * 2 + ["y > b"] * 2)
    )
    assert len(images) == 4 and images["score"].notna().all()
    assert classes["images"].tolist() == [2, 2] and "elsewhere" not in classes


def test_a_class_of_one_image_has_no_score_and_comes_last() -> None:
    vectors, labels = random_units(5, 3, 0), np.array([[0], [0], [1], [1], [2]])
    rows = pd.DataFrame({"image_id": list("abcde"), "split": "train", "landmark_id": labels[:, 0]})
    images, classes = suspect_tables(rows, vectors, labels, pd.Series(list("xxyyz")))
    for table in (images, classes):
        assert table["score"].isna().tolist() == [False] * (len(table) - 1) + [True]
    assert classes["path"].iloc[-1] == "z"
    means = images.groupby("path")["score"].mean()
    assert classes["score"].tolist()[:2] == pytest.approx(means[classes["path"][:2]], abs=1e-4)


def test_equal_images_have_a_cosine_of_one() -> None:
    vectors = random_units(100, 64, 0)
    assert (np.einsum("nd,nd->n", vectors, vectors) < 1).any()  # by rounding
    rows = pd.DataFrame({"image_id": np.arange(100).astype(str), "landmark_id": 0})
    splits = {
        split: (Side(split, [rows.assign(split=split)], np.zeros((100, 1)), Path(), {}), pieces)
        for split, pieces in (
            ("train", MappedVectors((vectors,))),
            ("test", MappedVectors((vectors,))),
        )
    }
    assert len(find_duplicates(splits, 1.0, device="cpu")) == 100


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline whose embeddings repeat one training photo, with one label that is wrong."""
    folder = tmp_path_factory.mktemp("suspects")
    work = folder / "work"
    index = read_index(make_shards(work))
    colours = [PLACES[_place(row)][2] for row in index.to_dict("records")]
    vectors = unit_rows(np.array(colours) - 128.0)
    vectors = unit_rows(vectors + 0.01 * np.random.default_rng(0).normal(size=vectors.shape))
    rows = {image_id: i for i, image_id in enumerate(index["image_id"])}
    vectors[rows["te10"]] = vectors[rows["tr11"]]  # test and train photos of one name space each
    vectors[rows["tr40"]] = vectors[rows["tr31"]]
    np.savez(folder / "mine.npz", vectors=vectors, ids=index["image_id"].to_numpy(str))
    paths = {key: [*place[:2], f"{key[0]}:{key[1]}"] for key, place in PLACES.items()}
    levels = ("kind", "supercategory", "landmark")
    keys = [{"split": space, "landmark_id": number} for space, number in paths]
    texts = [json.dumps(dict(zip(levels, path, strict=True))) for path in paths.values()]
    names = [f"Place {number}" for _, number in paths]
    for name, columns in (
        ("hierarchy", {"path": texts}),
        ("landmarks", {"name": names, "commons_url": ""}),
    ):
        table = declared_table(name)
        table.write(pd.DataFrame(keys).assign(**columns), work / table.file)
    file = folder / "pipeline.toml"
    file.write_text('labels = "labels"\n[evaluate.models]\nmine = "mine.npz"\n')
    return file


def _place(row: dict[str, object]) -> tuple[str, int]:
    space = "index" if row["split"] in ("index", "test") else "train"
    return space, int(str(row["landmark_id"]))


def hgld(*words: object) -> int:
    return guarded(lambda: app([str(word) for word in words]))


def test_a_training_photo_that_is_also_evaluated_is_listed(pipeline: Path, capsys) -> None:
    out, page = pipeline.parent / "pairs.csv", pipeline.parent / "pairs.html"
    words = ("--work", pipeline.parent / "work", "--cosine", 0.99999, "--out", out, "--page", page)
    assert hgld("evaluations", "duplicates", pipeline, *words) == 0
    evaluated = (read_index(pipeline.parent / "work/shards")["split"] != "train").sum()
    assert capsys.readouterr().out == (
        "1.0000  test/te10  =  train/tr11\n"
        f"1 pair with 1 of {evaluated} evaluation images, cosine 0.99999 or more\n"
    )
    assert pd.read_csv(out).to_dict("records") == [
        {"image_id": "tr11", "split": "train", "landmark_id": 1, "evaluated_id": "te10",
         "evaluated_split": "test", "evaluated_landmark": 1, "cosine": 1.0}
    ]  # fmt: skip
    assert page.read_text().count("<figure>") == 2
    assert "<h1>Near-duplicates between splits</h1>" in page.read_text()


def test_any_two_splits_are_compared_and_a_split_with_itself(pipeline: Path, capsys) -> None:
    def pairs(*words: object) -> list[list[str]]:
        work = ("--work", pipeline.parent / "work", "--json")
        assert hgld("evaluations", "duplicates", pipeline, *work, *words) == 0
        keys = ("split", "image_id", "evaluated_split", "evaluated_id")
        return [[row[key] for key in keys] for row in json.loads(capsys.readouterr().out)]

    page = pipeline.parent / "within.html"
    equal = pairs("--between", "train,train", "--cosine", 0.99999, "--page", page)
    assert "<h1>Near-duplicates within train</h1>" in page.read_text()
    assert ["train", "tr31", "train", "tr40"] in equal and len(equal) <= 2
    near = pairs("--between", "train,test", "--cosine", -1, "--count", 2)
    queries = [row[3] for row in near]
    assert {row[0] for row in near} == {"train"} and {row[2] for row in near} == {"test"}
    assert ["train", "tr11", "test", "te10"] in near
    assert [queries.count(image) for image in sorted(set(queries))] == [2] * len(set(queries))
    assert len(pairs("--between", "train, train", "--cosine", -1, "--count", 99)) == 16 * 15 / 2


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("nine", "--model: there is no model 'nine' among evaluate.models (mine), nor such a path"),
        ("timm:resnet5", "--model: timm has no model 'resnet5'"),
        ("python:nine.py:build", "--model: nine.py:build: FileNotFoundError"),
        ("run:nine", "--model: train has no run 'nine' (it has one)"),
        (Path(__file__).parent, f"--model: {Path(__file__).parent} is neither a model's folder"),
    ],
)
def test_a_model_of_the_command_line_is_named_by_its_option(
    pipeline: Path, capsys, model: str, says: str
) -> None:
    work = pipeline.parent / "work"
    (work / "models").mkdir(exist_ok=True)
    (work / "models" / "runs.json").write_text('{"runs": ["one"]}')
    words = (pipeline, "--work", work, "--model", model)
    assert hgld("evaluations", "duplicates", *words) in (2, 3)
    said = " ".join(capsys.readouterr().err.split())
    assert f"hgld: {says}" in said and "evaluate.models." not in said


def test_splits_to_compare_are_two(pipeline: Path, capsys) -> None:
    words = ("--work", pipeline.parent / "work", "--between", "train")
    assert hgld("evaluations", "duplicates", pipeline, *words) == 2
    assert "--between train: expected two splits, as in index,test" in capsys.readouterr().err


def test_a_label_that_its_photo_contradicts_comes_first(pipeline: Path, capsys) -> None:
    out, page = pipeline.parent / "suspects.csv", pipeline.parent / "suspects.html"
    words = ("--work", pipeline.parent / "work", "--neighbours", 3, "--rows", 1, "--page", page)
    assert hgld("labels", "suspects", pipeline, *words, "--out", out) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].startswith("tr40") and max(map(len, printed.split("\n"))) <= 80
    assert hgld("labels", "suspects", pipeline, *words[:-4]) == 0
    table = capsys.readouterr().out.splitlines()
    scores = [line.split()[1] for line in table[-6:-2]]
    assert scores == ["0.50", "-0.50", "-", "-"]  # two are alone in their supercategory
    sheet = pd.read_csv(out)
    first = sheet.iloc[0]
    assert sheet.columns[0] == "decision" and sheet["decision"].isna().all()
    assert (first["image_id"], first["path"]) == ("tr40", "natural > lake > Place 4")
    assert first["elsewhere"] == "human-made > bridge > Place 3"
    classes = pd.read_csv(out.with_name("suspects-classes.csv"))
    assert classes["images"].tolist() == [4, 4, 4, 4]
    assert hgld("labels", "suspects", pipeline, *words, "--json") == 0
    found = json.loads(capsys.readouterr().out)  # all, not --rows of them
    assert (len(found["images"]), len(found["classes"])) == (16, 4)
    assert "natural &gt; lake &gt; Place 4, or human-made" in page.read_text()


def test_suspects_of_two_splits_are_of_one_table(pipeline: Path) -> None:
    out, page = pipeline.parent / "joined.csv", pipeline.parent / "joined.html"
    words = ("--work", pipeline.parent / "work", "--split", "evaluation+index", "--page", page)
    assert hgld("labels", "suspects", pipeline, *words, "--neighbours", 3, "--out", out) == 0
    sheet = pd.read_csv(out)
    index = read_index(pipeline.parent / "work/shards").set_index("image_id")
    assert set(sheet["split"]) == {"evaluation", "index"}
    assert sheet["split"].tolist() == index.loc[sheet["image_id"], "split"].tolist()
    ends = sheet["path"].str.rpartition("Place ")[2].astype(int)
    assert ends.tolist() == index.loc[sheet["image_id"], "landmark_id"].tolist()
    assert "<figure>" in page.read_text()


def test_paths_and_photos_of_suspects_do_not_load_matplotlib() -> None:
    code = "import hgld.report.examples, sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_suspects_can_be_a_workbook(pipeline: Path) -> None:
    out = pipeline.parent / "suspects.xlsx"
    words = ("--work", pipeline.parent / "work", "--neighbours", 3, "--out", out)
    assert hgld("labels", "suspects", pipeline, *words) == 0
    sheets = pd.read_excel(out, sheet_name=None)
    assert list(sheets) == ["images", "classes"] and len(sheets["images"]) == 16


def test_a_gallery_of_splits_with_different_id_spaces_has_the_paths_of_both(pipeline: Path) -> None:
    (found,) = Images.of_work(pipeline.parent / "work", "evaluation+index")
    assert found.path("ev50") == ("natural", "lake", "train:5")
    assert found.path("in20") == ("human-made", "church", "index:2")


@pytest.mark.parametrize("command", [("labels", "suspects"), ("evaluations", "duplicates")])
def test_rows_of_photos_are_readable_on_a_phone(
    pipeline: Path, command: tuple[str, str], chromium: Any
) -> None:
    page = pipeline.parent / "phone.html"
    assert hgld(*command, pipeline, "--work", pipeline.parent / "work", "--page", page) == 0
    found = look(chromium, page)
    assert found["beyond"] == [] and found["cut"] == [] and found["silent"] == []
    assert found["page"] <= 0 and found["blank"] == 0 and found["said"] == []
    assert min(found["widths"]) >= 140  # pixels of a photo: two side by side
