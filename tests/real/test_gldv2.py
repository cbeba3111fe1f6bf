import io
from pathlib import Path

import pytest
from PIL import Image

from hgld.artifacts import ARTIFACTS, Table
from hgld.config import SourceOptions, StageContext, load_pipeline
from hgld.sources.gldv2 import collect
from hgld.sources.tars import scan_tar

pytestmark = pytest.mark.real
PIPELINE = Path(__file__).parent / "washington.toml"


@pytest.fixture
def washington(real_data: Path) -> Path:
    return real_data / "gldv2-washington"


def test_washington_is_collected_whole(washington: Path, tmp_path: Path) -> None:
    options = load_pipeline(PIPELINE).collect
    context = StageContext("2026-11-21", tmp_path, SourceOptions(folder=washington), tmp_path)
    tables = collect(washington, options=options, context=context)
    landmarks, images, queries, dropped = tables
    assert (len(landmarks), len(images), len(queries), len(dropped)) == (844, 4625, 0, 0)
    assert images["landmark_id"].nunique() == 296
    assert landmarks.set_index("landmark_id").loc[262, "name"] == "Comet Falls"
    assert images["url"].str.startswith("http://").sum() == 1123
    for name, table in zip(("landmarks", "images"), tables, strict=False):
        declared = ARTIFACTS[name]
        assert isinstance(declared, Table)
        declared.write(table, tmp_path / declared.file)
    first = images[images["image_id"] == "172999b2cc578a66"].iloc[0]
    assert first["landmark_id"] == 262
    assert first["url"].endswith("/Comet_Falls_%282844917672%29.jpg")


def test_washington_is_split_by_landmark(washington: Path, tmp_path: Path) -> None:
    options = load_pipeline(PIPELINE).collect
    context = StageContext("2026-11-21", tmp_path, SourceOptions(folder=washington), tmp_path)
    _, images, _, _ = collect(washington, options=options, context=context)
    train = set(images[images["split"] == "train"]["landmark_id"])
    held = set(images[images["split"] == "evaluation"]["landmark_id"])
    assert not train & held
    assert 75 <= len(held) <= 121  # 98 +- 2.9 standard deviations


def test_real_photos_open_where_the_index_says(washington: Path) -> None:
    tar = washington / "images_wa_000.tar"
    members = list(scan_tar(tar))
    assert len(members) == 4625
    with tar.open("rb") as file:
        for member in members[::500]:
            file.seek(member.offset)
            photo = Image.open(io.BytesIO(file.read(member.size_bytes)))
            assert photo.size == (224, 224)
            photo.load()
