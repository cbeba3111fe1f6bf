"""Real GLDv2 photos, exported from their tar in place and read back, every byte accounted for."""

import json
import tarfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hgld.config import ExportOptions, SourceOptions, StageContext
from hgld.shards import export_shards, read_index, read_manifest, verify_shards
from hgld.shards.batches import plan_epoch
from hgld.shards.read import ShardImages
from hgld.shards.sampling import BatchOptions, Samples
from hgld.shards.tar import scan_tar

pytestmark = pytest.mark.real
TAR = "images_wa_000.tar"


@pytest.fixture(scope="module")
def images(real_data: Path) -> pd.DataFrame:
    folder = real_data / "gldv2-washington"
    rows = [(Path(m.name).stem, m.offset, m.size_bytes) for m in scan_tar(folder / TAR)]
    table = pd.DataFrame(rows, columns=["image_id", "offset", "size_bytes"])
    train = pd.read_csv(folder / "derived_train.csv", dtype=str).rename(columns={"id": "image_id"})
    table = table.merge(train, on="image_id").assign(
        landmark_id=lambda t: t["landmark_id"].astype(int)
    )
    unknown = dict.fromkeys(("author", "license", "title"), "unknown")
    return table.assign(split="train", path=TAR, **unknown)


@pytest.fixture(scope="module")
def shards(real_data: Path, images: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = real_data / "gldv2-washington"
    words = pd.read_csv(folder / "derived_scraped_supercategory.csv", keep_default_na=False)
    paths = [
        json.dumps({"supercategory": word or "none", "landmark": f"train:{n}"})
        for n, word in zip(words["landmark_id"], words["supercategory"], strict=True)
    ]
    hierarchy = words[["landmark_id"]].assign(split="train", path=paths)
    out = tmp_path_factory.mktemp("washington")
    source = SourceOptions(folder=folder)
    dropped = export_shards(
        folder,
        images,
        hierarchy,
        options=ExportOptions(shard_megabytes=8, licenses=("unknown",)),
        context=StageContext("2026-01-01", out / "state", source, out),
        out=out / "shards",
    )
    assert len(dropped) == 0
    return out / "shards"


def test_every_photo_comes_back_byte_for_byte(
    shards: Path, real_data: Path, images: pd.DataFrame
) -> None:
    verify_shards(shards)
    index = read_index(shards)
    found = dict(zip(index["image_id"], index["sha256"], strict=True))
    with tarfile.open(real_data / "gldv2-washington" / TAR) as tar:
        expected = {
            Path(m.name).stem: sha256(tar.extractfile(m).read()).hexdigest()  # type: ignore[union-attr]
            for m in tar
            if m.isfile()
        }
    assert len(found) == 4625 and found == expected


def test_every_byte_of_the_shards_is_a_samples_or_the_end_of_a_tar(shards: Path) -> None:
    index = read_index(shards)
    for shard in read_manifest(shards)["shards"]:
        part = index[index["shard"] == shard["file"]]
        end = int(part["extent_bytes"].sum())
        starts = np.cumsum(part["extent_bytes"]) - part["extent_bytes"]
        assert (part["extent_start"] == starts).all()
        assert not any((shards / shard["file"]).read_bytes()[end:])


def test_an_epoch_of_real_classes_is_exact(shards: Path) -> None:
    index = read_index(shards)
    samples, options = Samples.of_index(index), BatchOptions(16, 4)
    plan = plan_epoch(samples, options, seed=0, epoch=0)
    labels = samples.labels[plan, -1].reshape(len(plan), 16, 4)
    assert (labels == labels[..., :1]).all() and len(np.unique(plan)) == plan.size
    assert plan.size > 0.8 * len(index)


def test_the_ring_gives_what_single_reads_give(shards: Path) -> None:
    index = read_index(shards)
    images = ShardImages(shards, index, lambda image: image)  # type: ignore[arg-type,return-value]
    numbers = np.random.default_rng(0).permutation(len(index))[:1500]
    found = {number: bytes(data) for number, data in images.iterate(numbers)}
    assert sorted(found) == sorted(numbers.tolist())
    assert all(found[int(n)] == images.read_bytes(int(n)) for n in numbers)
