import csv
import hashlib
import io
import re
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hgld.config import CollectOptions, FetchOptions, SourceOptions, StageContext, ToyOptions
from hgld.sources.gldv2 import collect
from hgld.sources.toy import draw_picture, draw_world
from hgld.sources.toy.world import CLASSES, INDEX_QUIRKS, TRAIN_QUIRKS, imagine
from tests.sources.made_set import in_memory

LABELS = Path(__file__).parent.parent.parent / "labels" / "toy"
SMALL = ToyOptions(landmarks=6, images=3, size=48)
FULL = ToyOptions(landmarks=40, images=4, size=48)


def context_of(folder: Path, toy: ToyOptions) -> StageContext:
    source = SourceOptions(kind="toy", folder=folder / "source", toy=toy)
    return StageContext("2026-11-21", folder / "state", source, LABELS)


def draw(folder: Path, toy: ToyOptions) -> Path:
    draw_world(options=FetchOptions(), context=context_of(folder, toy))
    return folder / "source"


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw(tmp_path_factory.mktemp("toy"), FULL)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    assert digests(draw(tmp_path / "a", SMALL)) == digests(draw(tmp_path / "b", SMALL))


def test_another_seed_gives_another_world(tmp_path: Path) -> None:
    other = SMALL.model_copy(update={"seed": 1})
    first, second = digests(draw(tmp_path / "a", SMALL)), digests(draw(tmp_path / "b", other))
    assert first.keys() == second.keys()
    assert not set(first.values()) & set(second.values())


def test_the_world_of_a_seed_is_the_same_on_every_machine(tmp_path: Path) -> None:
    """What does not hang on Pillow's version is held to the byte."""
    found = digests(draw(tmp_path, SMALL))
    assert found["metadata/train.csv"][:16] == "6616b9f95b2763f8"
    assert found["wiki.json"][:16] == "aaecff56c7d85197"


def test_the_files_lie_where_gldv2_has_them(world: Path) -> None:
    headers = {
        "metadata/train.csv": ["id", "url", "landmark_id"],
        "metadata/train_clean.csv": ["landmark_id", "images"],
        "metadata/train_attribution.csv": ["id", "url", "author", "license", "title"],
        "metadata/train_label_to_category.csv": ["landmark_id", "category"],
        "metadata/index.csv": ["id"],
        "metadata/test.csv": ["id"],
        "ground_truth/index_image_to_landmark.csv": ["id", "landmark_id"],
        "ground_truth/index_label_to_category.csv": ["landmark_id", "category"],
        "ground_truth/retrieval_solution_v2.1.csv": ["id", "images", "Usage"],
        "ground_truth/recognition_solution_v2.1.csv": ["id", "landmarks", "Usage"],
    }
    assert {name: rows(world / name)[0] for name in headers} == headers
    tars = {"train/images_000.tar", "train/images_001.tar", "index/images_000.tar",
            "test/images_000.tar"}  # fmt: skip
    assert digests(world).keys() == {*headers, *tars, "wiki.json"}


def test_tar_members_are_small_jpegs_named_by_their_id(world: Path) -> None:
    for path in world.rglob("*.tar"):
        with tarfile.open(path) as tar:
            members = tar.getmembers()
            for member in members:
                assert re.fullmatch(r"(.)/(.)/(.)/\1\2\3[0-9a-f]{13}\.jpg", member.name)
                assert (member.mtime, member.uid, member.uname) == (0, 0, "")
            file = tar.extractfile(members[0])
            assert file is not None
            image = Image.open(io.BytesIO(file.read()))
            assert (image.format, image.size, image.mode) == ("JPEG", (48, 48), "RGB")


def test_the_csvs_have_the_quirks_of_the_real_ones(world: Path) -> None:
    categories = (world / "metadata/train_label_to_category.csv").read_text("utf-8")
    assert re.search(r'"http://commons[^"]*,', categories)  # a quoted comma
    assert re.search(r"%C3%89", categories)  # É, percent-encoded
    assert re.search(r"St_\w+'s_", categories)  # a bare apostrophe
    assert re.search(r"St_\w+%27s_", categories)  # and an escaped one
    ids = [row[0] for row in rows(world / "metadata/train.csv")[1:]]
    digits = [image_id for image_id in ids if image_id.isdigit()]
    assert digits
    assert digits[0].startswith("0")
    assert (world / "metadata/train_clean.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    assert b"\r\n" in (world / "ground_truth/index_label_to_category.csv").read_bytes()
    solution = rows(world / "ground_truth/retrieval_solution_v2.1.csv")[1:]
    assert Counter(row[2] for row in solution).keys() == {"Public", "Private", "Ignored"}
    assert {row[1] for row in solution if row[2] == "Ignored"} == {"None"}
    urls = {row[1].partition(":")[0] for row in rows(world / "metadata/train.csv")[1:]}
    assert urls == {"http", "https"}


def test_the_collector_finds_every_quirk_among_the_images(world: Path) -> None:
    context = context_of(world.parent, FULL)
    options = CollectOptions(evaluation_share=0.25)
    made = collect(world, options=options, context=context)
    landmarks, images, queries, dropped = in_memory(made)
    assert Counter(landmarks["split"]) == {"train": 40, "index": 20}
    assert set(images["split"]) == {"train", "evaluation", "index", "test"}
    assert len(queries) == len(rows(world / "metadata/test.csv")) - 1
    assert Counter(zip(dropped["split"], dropped["reason"], strict=True)) == {
        ("train", "not clean"): 7,  # landmarks 0, 6, .., 36
        ("train", "not in tar"): 1,
        ("train", "not in csv"): 1,
        ("index", "not in tar"): 1,
        ("index", "not in csv"): 1,
        ("test", "ignored query"): 10,
    }
    assert (images["author"] == "unknown").sum() == len(
        images[images["license"].str.len() > 15]
    ) + 1


def test_every_quirk_of_the_wiki_is_there() -> None:
    made = imagine(FULL)
    assert {landmark.quirk for landmark in made.of_space("train")} == {"", *TRAIN_QUIRKS}
    assert {landmark.quirk for landmark in made.of_space("index")} == {"", *INDEX_QUIRKS}


def test_most_landmarks_of_a_very_small_world_are_plain() -> None:
    plain = [landmark for landmark in imagine(SMALL).of_space("train") if not landmark.quirk]
    assert len(plain) == 5


def test_names_and_pages_are_the_landmarks_own() -> None:
    made = imagine(ToyOptions(landmarks=900, images=2))
    names = [landmark.name for landmark in made.of_space("train")]
    assert len(set(names)) == len(names)
    assert len({picture.image_id for picture in made.pictures}) == len(made.pictures)


def test_some_landmarks_stand_in_both_spaces_under_other_numbers() -> None:
    made = imagine(ToyOptions())
    train = {landmark.name: landmark.landmark_id for landmark in made.of_space("train")}
    shared = [x for x in made.of_space("index") if x.name in train]
    assert len(shared) == 2
    assert all(train[x.name] != x.landmark_id for x in shared)


def test_two_pictures_of_a_landmark_differ() -> None:
    made = imagine(SMALL)
    pictures = [p for p in made.pictures if p.landmark == made.landmarks[0]]
    assert len({draw_picture(picture, SMALL) for picture in pictures}) == len(pictures)


def test_pictures_look_like_their_landmark_and_their_supercategory() -> None:
    """Even by raw pixels the nearest other picture is far better than chance."""
    options = ToyOptions(landmarks=26, images=6, size=32)
    made = imagine(options)
    pictures = [p for p in made.of_split("train") if p.landmark and p.clean]
    pixels = [Image.open(io.BytesIO(draw_picture(p, options))) for p in pictures]
    vectors = np.stack([np.asarray(image, dtype=float).ravel() for image in pixels])
    vectors -= vectors.mean(axis=1, keepdims=True)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = vectors @ vectors.T - 2 * np.eye(len(vectors))
    nearest = [pictures[i].landmark for i in scores.argmax(axis=1)]
    own = [p.landmark for p in pictures]
    same = np.mean([a == b for a, b in zip(own, nearest, strict=True)])
    alike = np.mean([
        a.toy_class.supercategory == b.toy_class.supercategory
        for a, b in zip(own, nearest, strict=True) if a and b
    ])  # fmt: skip
    assert same > 0.15  # chance: 1 in 26
    assert alike > same + 0.1


def test_the_shipped_decisions_cover_every_value_and_agree_with_the_taxonomy() -> None:
    taxonomy = {row[0]: row[1] for row in rows(LABELS / "taxonomy.csv")[1:]}
    decisions = {row[0]: row for row in rows(LABELS / "decisions.csv")[1:]}
    assert decisions.keys() == {*(c.class_id for c in CLASSES), "Q570116"}
    for toy_class in CLASSES:
        row = decisions[toy_class.class_id]
        assert row[1:5] == ["qid", "keep", toy_class.supercategory, toy_class.kind]
        assert taxonomy[toy_class.supercategory] == toy_class.kind
    assert decisions["Q570116"][1:5] == ["qid", "drop", "", ""]
    assert set(taxonomy) == {c.supercategory for c in CLASSES}
    assert {row[5] for row in decisions.values()} == {"hgld (shipped with the toy world)"}
