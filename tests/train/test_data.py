import json
import re
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from hgld.config import RunOptions, SamplingOptions
from hgld.errors import UsageError
from hgld.shards.batches import BatchPlan, plan_epoch
from hgld.shards.index import read_index
from hgld.shards.sampling import BatchOptions
from hgld.tasks import watched_by
from hgld.train.data import TrainingData, batch_options
from tests.listening import heard
from tests.made_shards import feed_batches, make_context, make_shards, small_options

SHORT = RunOptions(loss="HAPPIER", steps=2)


def rows_of(data: TrainingData, steps: int, **batches: object) -> list[list[int]]:
    """Row numbers of the first batches."""
    options = small_options(batches=SamplingOptions(**batches), classes_per_batch=2)
    from hgld.model.image import build_image_model

    config = build_image_model(options).config
    return [rows.tolist() for _, _, rows, _ in feed_batches(data, config, options, range(steps))]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    folder = make_shards(tmp_path_factory.mktemp("data"), images=7)
    return TrainingData.read(folder, small_options())


def test_a_rank_reads_the_rows_of_its_split_and_no_texts_of_theirs(data: TrainingData) -> None:
    whole = read_index(data.folder).query("split == 'train'").reset_index(drop=True)
    images = data.images
    assert [*images.keys] == [*whole["key"]] and (images.runs == whole["run"]).all()
    assert [images.names[shard] for shard in images.shards] == [*whole["shard"]]
    assert (images.places == whole[["offset", "size_bytes"]]).all(axis=None)
    assert (images.crc32 == whole["image_crc32"]).all()
    texts = {name for name, held in vars(images).items() if not isinstance(held, np.ndarray)}
    assert texts == {"keys", "names", "boxes"} and images.boxes is None


def test_without_sampling_options_batches_are_those_of_the_plain_plan(data: TrainingData) -> None:
    plan = BatchPlan(data.samples, BatchOptions(2, 2), seed=0)
    expected = [plan.at(step).rows.tolist() for step in range(13)]
    assert rows_of(data, 13) == expected


@pytest.mark.parametrize("order", ["random", "shards"])
def test_the_steps_walk_through_the_epochs(data: TrainingData, order: str) -> None:
    options = batch_options(small_options(batches=SamplingOptions(order=order)))
    plans = [plan_epoch(data.samples, options, seed=5, epoch=epoch) for epoch in range(4)]
    expected = np.concatenate(plans).tolist()
    steps = BatchPlan(data.samples, options, seed=5)
    assert [steps.at(i).rows.tolist() for i in range(len(expected))] == expected
    anew = BatchPlan(data.samples, options, seed=5)
    assert anew.at(len(expected) - 1).rows.tolist() == expected[-1]


def test_the_order_shards_reaches_the_batches(data: TrainingData) -> None:
    found = rows_of(data, 6, order="shards", window=2)
    assert found != rows_of(data, 6)
    classes = data.labels[:, -1]
    for rows in found:
        assert len(set(rows)) == 4
        assert sorted(np.unique(classes[rows], return_counts=True)[1].tolist()) == [2, 2]


def test_a_cap_shows_fewer_images_of_a_class_in_an_epoch(data: TrainingData) -> None:
    """4 classes of 7 images: capped to 2 each, an epoch has 2 batches of 2 x 2."""
    rows = rows_of(data, 4, images_cap=2)
    for epoch in (rows[:2], rows[2:]):
        assert len({row for batch in epoch for row in batch}) == 8


def test_groups_share_a_batch_equally(data: TrainingData) -> None:
    for rows in rows_of(data, 6, groups_per_batch=2):
        groups = data.labels[rows, -2]
        assert sorted(np.unique(groups, return_counts=True)[1].tolist()) == [2, 2]


def test_small_classes_may_be_repeated(tmp_path: Path) -> None:
    options = small_options(images_per_class=4, batches=SamplingOptions(small_classes="repeat"))
    data = TrainingData.read(make_shards(tmp_path, images=3), options)
    assert data.describe_coverage(options) == (
        "train: batches of an epoch: 1; classes in them: 3 of 4; images: 9 of 12; "
        "classes without room or partners: 1; images left for other epochs: 3; repeated images: 3"
    )


def test_options_that_do_not_fit_together_are_a_usage_error(data: TrainingData) -> None:
    with pytest.raises(UsageError, match="groups_per_batch 3 does not divide classes_per_batch 2"):
        rows_of(data, 1, groups_per_batch=3)


def test_an_option_that_came_later_counts_only_where_it_is_not_at_its_default(data) -> None:
    options = small_options()
    names = "backbone pretrained dim image_size classes_per_batch images_per_class split seed"
    of_run = "loss steps lr head_lr proxy_lr weight_decay loss_options"
    document = {
        "shards": sha256((data.folder / "manifest.json").read_bytes()).hexdigest(),
        "options": options.model_dump(mode="json", include=set(names.split())),
        "run": SHORT.model_dump(mode="json", include=set(of_run.split())),
        "revision": 2,
    }
    expected = sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    assert data.fingerprint(options, SHORT) == expected
    others = [SamplingOptions(window=9), SamplingOptions(order="shards")]
    found = {data.fingerprint(small_options(batches=o), SHORT) for o in others}
    found |= {data.fingerprint(small_options(pooling="gem"), SHORT)}
    found |= {data.fingerprint(options, SHORT.model_copy(update={"memory": 8}))}
    assert len(found | {expected}) == 5
    assert data.fingerprint(small_options(tensorboard=True, workers=3), SHORT) == expected


def test_coverage_is_said_once_and_only_where_something_trains(shards, tmp_path) -> None:
    from hgld.train import train_models

    options = small_options(runs={"a": SHORT, "b": SHORT, "plain": RunOptions(steps=0)})
    with heard() as said:
        for _ in range(2):
            train_models(
                shards, options=options, context=make_context(tmp_path), out=tmp_path / "models"
            )
    assert said[0] == (
        "train: batches of an epoch: 2; classes in them: 4 of 4; images: 12 of 16; "
        "images left for other epochs: 4"
    )
    paces = [re.sub(r"[\d.e+]+ images/s", "N images/s", line) for line in said[1:]]
    assert [line.split(" of the time")[0] for line in paces] == [
        f"{name}: epoch 1, step 2 of 2: N images/s;" for name in ("a", "b")
    ]


def test_a_run_in_the_order_shards_resumes_in_the_same_bytes(train, tmp_path: Path) -> None:
    batches = SamplingOptions(order="shards", window=3)
    longer = RunOptions(loss="HAPPIER", steps=5)
    whole = train({"run": longer}, out=tmp_path / "whole", batches=batches)

    def stop_after_three(items, label, total, done):
        for done, item in enumerate(items):
            if label.startswith("Training") and done == 3:
                raise RuntimeError("as if the power went")
            yield item

    with watched_by(stop_after_three), pytest.raises(RuntimeError):
        train({"run": longer}, out=tmp_path / "cut", batches=batches, checkpoint_steps=2)
    cut = train({"run": longer}, out=tmp_path / "cut", batches=batches, checkpoint_steps=2)
    for file in ("model.safetensors", "config.json"):
        assert (cut / "run" / file).read_bytes() == (whole / "run" / file).read_bytes()
