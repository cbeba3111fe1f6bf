import csv
import io
import tarfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hgld.artifacts import ARTIFACTS
from hgld.config import CollectOptions, LabelOptions, SourceOptions, StageContext
from hgld.hierarchy.label import build_labels
from hgld.shards.tar import scan_tar
from hgld.sources.gldv2 import collect
from tests.full_size.made_tars import write_tar
from tests.full_size.made_words import make_words
from tests.full_size.made_world import draw_sizes, make_world, sizes_of

SHARE = 0.002


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "source"
    make_world(folder, SHARE)
    return folder


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def context_of(folder: Path, state: Path) -> StageContext:
    return StageContext("2026-11-21", state, SourceOptions(folder=folder), state)


def test_the_full_size_is_gldv2s() -> None:
    full = sizes_of(1)
    assert (full.train_images, full.train_landmarks) == (4_132_914, 203_094)
    assert (full.clean_images, full.clean_landmarks) == (1_580_470, 81_313)
    assert (full.index_images, full.test_images) == (761_757, 117_577)
    assert (full.train_tars, full.index_tars, full.test_tars) == (500, 100, 20)


def test_landmarks_have_as_many_photos_as_the_paper_says() -> None:
    sizes = draw_sizes(203_094, 4_132_914, np.random.default_rng(0))
    assert sizes.sum() == 4_132_914
    assert sizes.min() == 1
    assert (sizes <= 5).mean() == pytest.approx(0.38, abs=0.02)
    assert (sizes <= 10).mean() == pytest.approx(0.57, abs=0.02)


def test_every_csv_has_its_rows_and_its_quirks(world: Path) -> None:
    sizes = sizes_of(SHARE)
    train = rows(world / "metadata/train.csv")
    assert len(train) == len({row["id"] for row in train}) == sizes.train_images
    assert len(rows(world / "metadata/train_attribution.csv")) == sizes.train_images
    clean = rows(world / "metadata/train_clean.csv")
    assert sum(len(row["images"].split()) for row in clean) == sizes.clean_images
    assert len(clean) == sizes.clean_landmarks
    categories = rows(world / "metadata/train_label_to_category.csv")
    assert any(",_" in row["category"] for row in categories)
    index = [row["id"] for row in rows(world / "ground_truth/index_image_to_landmark.csv")]
    assert index == sorted(index) and len(index) == sizes.index_images


def test_queries_are_public_private_and_ignored(world: Path) -> None:
    found = rows(world / "ground_truth/retrieval_solution_v2.1.csv")
    sizes = sizes_of(SHARE)
    usage = [row["Usage"] for row in found]
    assert (usage.count("Public"), usage.count("Private")) == (sizes.public, sizes.private)
    assert all((row["images"] == "None") == (row["Usage"] == "Ignored") for row in found)


def test_tars_hold_valid_photos_under_their_names(world: Path) -> None:
    path = world / "index/images_000.tar"
    with tarfile.open(path) as tar:
        members = tar.getmembers()
        photos = [tar.extractfile(m).read() for m in members[:3]]  # type: ignore[union-attr]
    assert [(m.name, m.offset_data, m.size) for m in members] == [
        (m.name, m.offset, m.size_bytes) for m in scan_tar(path)
    ]
    for member, photo in zip(members, photos, strict=False):
        image = Image.open(io.BytesIO(photo))
        image.load()
        image_id = Path(member.name).stem
        assert image.info["comment"].decode().rstrip() == image_id
        assert member.name == f"{'/'.join(image_id[:3])}/{image_id}.jpg"


def test_a_share_of_the_photos_can_be_in_tars(tmp_path: Path) -> None:
    made = make_world(tmp_path, 0.0005, in_tars=0.5)
    held = sum(1 for tar in (tmp_path / "train").iterdir() for _ in scan_tar(tar))
    assert held == round(len(made.train) * 0.5)


def test_all_tars_are_there_where_asked_for(tmp_path: Path) -> None:
    make_world(tmp_path, 0.0005, all_tars=True)
    counts = {split: len([*(tmp_path / split).iterdir()]) for split in ("train", "index", "test")}
    assert counts == {"train": 500, "index": 100, "test": 20}


def test_photos_of_a_landmark_look_alike(tmp_path: Path) -> None:
    ids = np.array([b"%016x" % i for i in range(16)])
    write_tar(tmp_path / "0.tar", ids, np.repeat([3, 4], 8))
    with tarfile.open(tmp_path / "0.tar") as tar:
        files = [tar.extractfile(member) for member in tar]
        views = np.stack([np.asarray(Image.open(file), int) for file in files])  # type: ignore[arg-type]
    one, other = views[:8], views[8:]
    assert np.abs(one - one[:1]).mean() < np.abs(one - other).mean() / 2


def test_the_same_seed_makes_the_same_bytes_and_another_one_does_not(tmp_path: Path) -> None:
    digests = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        make_world(tmp_path / name, 0.0005, seed)
        files = sorted(p for p in (tmp_path / name).rglob("*") if p.is_file())
        digests.append(sha256(b"".join(p.read_bytes() for p in files)).hexdigest())
    assert digests[0] == digests[1] != digests[2]


def test_collect_and_label_account_for_every_row(world: Path, tmp_path: Path) -> None:
    context, sizes = context_of(world, tmp_path), sizes_of(SHARE)
    landmarks, listed, _, left_out = collect(world, options=CollectOptions(), context=context)
    images, dropped = listed.read(), left_out.read()
    counts = images["split"].value_counts()
    assert counts["train"] == sizes.clean_images
    assert counts["index"] == sizes.index_images
    assert (dropped["reason"] == "not clean").sum() == sizes.train_images - sizes.clean_images
    landmarks = ARTIFACTS["landmarks"].check(landmarks, tmp_path)  # type: ignore[union-attr]
    words = make_words(landmarks, SHARE)
    tables = build_labels(landmarks, *words, options=LabelOptions(), context=context)
    hierarchy, left_out = tables[2], tables[4]
    assert len(hierarchy) + len(left_out) == len(landmarks)
    assert len(hierarchy) / len(landmarks) == pytest.approx(0.64, abs=0.06)
