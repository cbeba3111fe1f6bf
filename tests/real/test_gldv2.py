import io
from pathlib import Path

import pytest
from PIL import Image

from hgld.artifacts import declared_table
from hgld.config import Download, FetchOptions, SourceOptions, StageContext, load_pipeline
from hgld.images import shrink_jpeg
from hgld.shards.tar import scan_tar
from hgld.sources.gldv2 import collect
from tests.sources.made_set import in_memory

pytestmark = pytest.mark.real
PIPELINE = Path(__file__).parent / "washington.toml"


@pytest.fixture
def washington(real_data: Path) -> Path:
    return real_data / "gldv2-washington"


def test_washington_is_collected_whole(washington: Path, tmp_path: Path) -> None:
    options = load_pipeline(PIPELINE).collect
    context = StageContext("2026-11-21", tmp_path, SourceOptions(folder=washington), tmp_path)
    tables = in_memory(collect(washington, options=options, context=context))
    landmarks, images, queries, dropped = tables
    assert (len(landmarks), len(images), len(queries), len(dropped)) == (844, 4625, 0, 0)
    assert images["landmark_id"].nunique() == 296
    assert landmarks.set_index("landmark_id").loc[262, "name"] == "Comet Falls"
    assert images["url"].str.startswith("http://").sum() == 1123
    for name, table in zip(("landmarks", "images"), tables, strict=False):
        declared = declared_table(name)
        declared.write(table, tmp_path / declared.file)
    first = images[images["image_id"] == "172999b2cc578a66"].iloc[0]
    assert first["landmark_id"] == 262
    assert first["url"].endswith("/Comet_Falls_%282844917672%29.jpg")


def test_washington_is_split_by_landmark(washington: Path, tmp_path: Path) -> None:
    options = load_pipeline(PIPELINE).collect
    context = StageContext("2026-11-21", tmp_path, SourceOptions(folder=washington), tmp_path)
    images = in_memory(collect(washington, options=options, context=context))[1]
    train = set(images[images["split"] == "train"]["landmark_id"])
    held = set(images[images["split"] == "evaluation"]["landmark_id"])
    assert not train & held
    assert len(held) == 105  # the recorded results are of these


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


def test_the_pipelines_state_what_real_photos_take_resized(washington: Path) -> None:
    sizes = []
    with (washington / "images_wa_000.tar").open("rb") as file:
        for member in list(scan_tar(washington / "images_wa_000.tar"))[::20]:
            file.seek(member.offset)
            data = file.read(member.size_bytes)
            assert Image.open(io.BytesIO(data)).size == (224, 224)
            sizes.append(len(recoded(data)))
    photo = sum(sizes) / len(sizes) * (256 * 1.39) * 256 / 224**2  # 1.39: from 4:3 to 3:2
    in_tar = photo + 512 + 256  # a header, the rest of a block
    train, index, test = kept("pipelines/gldv2.toml")
    labelled, _, _ = kept("pipelines/h-gldv2.toml")
    assert 500 * train == pytest.approx(1_580_470 * in_tar / 1e6, rel=0.03)
    assert 500 * labelled == pytest.approx(970_981 * in_tar / 1e6, rel=0.03)
    assert 100 * index == pytest.approx(761_757 * in_tar / 1e6, rel=0.03)
    assert 20 * test == pytest.approx(1_129 * in_tar / 1e6, rel=0.1)


def recoded(data: bytes) -> bytes:
    """The photo as fetch writes one, by way of twice the size that it is then reduced to."""
    buffer = io.BytesIO()
    image = Image.open(io.BytesIO(data))
    image.resize((448, 448), Image.Resampling.NEAREST).save(buffer, "BMP")
    return shrink_jpeg(buffer.getvalue(), 224, FetchOptions().jpeg_quality)


def kept(path: str) -> list[float]:
    listed: list[Download] = [d for d in load_pipeline(Path(path)).fetch.downloads if d.count > 1]
    return [download.kept_megabytes for download in listed]
