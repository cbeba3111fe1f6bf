"""Training that streams its shards, from a folder or a URL."""

import os
import shutil
import subprocess
from pathlib import Path
from time import sleep

import pytest
import torch
from pydantic import ValidationError

from hgld.config import RunOptions, SamplingOptions
from hgld.errors import HgldError, InvalidData
from hgld.model import build_image_model
from hgld.shards.damaged import DamagedImages
from hgld.storage import RemoteFolder
from hgld.tasks import watched_by
from hgld.train import train_models
from hgld.train.data import TrainingData
from hgld.train.ranks import ALONE, Ranks
from tests.made_shards import feed_batches, make_context, make_shards, small_options, visible
from tests.object_store import Bucket, is_clean, proxy_to
from tests.shards.test_shards_load import serving
from tests.warm import Script, python

IN_SHARDS = SamplingOptions(order="shards", window=3)
STREAM = IN_SHARDS.model_copy(update={"reader": "stream"})
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*of the shards is read:UserWarning"),
]


def batches(shards: Path, sampling: SamplingOptions, ranks: Ranks = ALONE, workers: int = 0):
    options = small_options(batches=sampling, workers=workers)
    data, config = TrainingData.read(shards, options), build_image_model(options).config
    return [(i.clone(), *b) for i, *b in feed_batches(data, config, options, range(1, 9), ranks)]


def same(found: list, expected: list) -> bool:
    return len(found) == len(expected) and all(
        all(torch.equal(a, b) for a, b in zip(one[:3], two[:3], strict=True)) and one[3] == two[3]
        for one, two in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("ranks", [ALONE, Ranks(1, 2)], ids=["alone", "rank 1 of 2"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_stream_trains_on_the_batches_of_the_indexed_reader(
    shards: Path, workers: int, ranks: Ranks
) -> None:
    """Eight steps of two an epoch."""
    expected = batches(shards, IN_SHARDS, ranks)
    assert same(batches(shards, STREAM, ranks, workers), expected)
    assert {epoch for *_, epoch in expected} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("place", ["folder", "url"])
def test_a_model_that_streams_from_elsewhere_is_that_of_the_work_folder(
    shards: Path, train, tmp_path: Path, place: str
) -> None:
    run = {"run": RunOptions(loss="HAPPIER", steps=3)}
    here = train(run, batches=IN_SHARDS)
    sidecars = tmp_path / "sidecars"  # the work folder of a machine that has no tar
    sidecars.mkdir()
    for name in ("manifest.json", "index.parquet"):
        shutil.copy(shards / name, sidecars)
    with serving(shards) as url:
        folder = url if place == "url" else str(shards)
        far = STREAM.model_copy(update={"folder": folder})
        there = train(run, tmp_path / "there", sidecars, batches=far)
    assert visible(there / "run") == visible(here / "run")


@pytest.mark.parametrize("sampling", [SamplingOptions(), STREAM], ids=["indexed", "stream"])
def test_a_killed_training_from_a_bucket_resumes_to_the_bytes_of_a_local_one(
    shards: Path, bucket: Bucket, tmp_path: Path, sampling: SamplingOptions
) -> None:
    there = RemoteFolder(f"{bucket.url}/set")
    for path in shards.iterdir():
        there.upload(path, path.name)
    far = sampling.model_copy(update={"folder": there.url, "cache_gb": 0.0})
    with proxy_to(bucket.endpoint) as proxy:
        proxy.delay_s = 0.01
        environment = {**os.environ, **bucket.environment, "AWS_ENDPOINT_URL": proxy.address}
        words = ["-c", TRAIN, str(shards), str(tmp_path), far.model_dump_json()]
        for requests in (4, 9):
            with Script(words, env=environment, stderr=subprocess.PIPE) as process:
                seen = proxy.counts("GET", r"\.tar")
                while process.poll() is None and proxy.counts("GET", r"\.tar") < seen + requests:
                    sleep(0.005)
                process.kill()
                assert is_clean(process.communicate()[1].decode())
        python(Path(), *words, **environment)
    context, options = make_context(tmp_path / "near"), small_options(runs=RUN, batches=sampling)
    train_models(shards, options=options, context=context, out=tmp_path / "near/models")
    assert visible(tmp_path / "models/run") == visible(tmp_path / "near/models/run")


RUN = {"run": RunOptions(loss="HAPPIER", steps=12)}
TRAIN = """
import sys
from pathlib import Path
from hgld.config import RunOptions, SamplingOptions
from hgld.train import train_models
from tests.made_shards import make_context, small_options
shards, out, batches = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
options = small_options(
    runs={"run": RunOptions(loss="HAPPIER", steps=12)},
    batches=SamplingOptions.model_validate_json(batches),
    checkpoint_steps=2,
)
train_models(shards, options=options, context=make_context(out), out=out / "models")
"""


def test_how_it_is_read_makes_no_other_run(shards: Path) -> None:
    run, data = RunOptions(loss="HAPPIER", steps=1), TrainingData.read(shards, small_options())
    names = {
        data.fingerprint(small_options(batches=sampling), run)
        for sampling in (IN_SHARDS, STREAM, STREAM.model_copy(update={"folder": "s3://b"}))
    }
    assert len(names) == 1


def test_other_shards_than_those_of_the_work_folder_are_refused(
    shards: Path, tmp_path: Path
) -> None:
    other = make_shards(tmp_path, images=5)
    with pytest.raises(InvalidData, match=r"its manifest\.json is not that of .*"):
        batches(shards, STREAM.model_copy(update={"folder": str(other)}))


@pytest.mark.parametrize("place", ["empty", "http://127.0.0.1:9/shards"])
def test_a_copy_that_is_not_there_costs_no_finished_model(
    train, tmp_path: Path, place: str
) -> None:
    """The order makes another model; the old one is removed only once its images can be read."""
    run = {"run": RunOptions(loss="HAPPIER", steps=3)}
    before = visible(train(run) / "run")
    copy = place if "://" in place else str(tmp_path / place)
    with pytest.raises(HgldError) as caught:
        train(run, batches=STREAM.model_copy(update={"folder": copy}))
    assert visible(tmp_path / "models" / "run") == before
    assert copy in str(caught.value) and "run export" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"reader": "stream"}, 'reader = "stream" needs order = "shards"'),
        ({"cache_gb": -1}, "greater than or equal to 0"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_pipeline(options, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        SamplingOptions(**options)


def test_lanes_let_ranks_read_each_byte_once(shards: Path) -> None:
    """Two ranks would read every byte twice; with two lanes each reads its own shards."""
    reports: dict[int, list[str]] = {1: [], 2: []}
    for lanes, said in reports.items():
        options = small_options(
            batches=STREAM.model_copy(update={"lanes": lanes}), classes_per_batch=2
        )
        data, config = TrainingData.read(shards, options), build_image_model(options).config
        with watched_by(None, said.append):
            data.loader(config, options, Ranks(0, 2), DamagedImages(0, data.name))
    assert "is read 2 times an epoch" in reports[1][0] and reports[2] == []
