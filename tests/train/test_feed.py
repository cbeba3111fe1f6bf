import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from hgld.config import TrainOptions
from hgld.errors import InvalidData, Resumable, UsageError
from hgld.model import build_image_model
from hgld.shards.index import read_index
from hgld.train.data import TrainingData
from hgld.train.ranks import ALONE, Ranks
from hgld.train.whitening import whiten_head
from tests.hearing import Heard, hearing
from tests.listening import heard
from tests.made_shards import feed_batches, harm, make_shards, small_options

pytestmark = pytest.mark.filterwarnings("ignore:.*takes its place:UserWarning")


def batches(
    shards: Path, ranks: Ranks = ALONE, first: int = 0, steps: int = 20, **changes: object
) -> list:
    """Images, labels, rows and epoch of the steps, by default up to the twentieth."""
    options: TrainOptions = small_options(**changes)
    data, config = TrainingData.read(shards, options), build_image_model(options).config
    found = feed_batches(data, config, options, range(first, steps), ranks)
    return [(images.clone(), *others) for images, *others in found]


def assert_equal(found: list, expected: list) -> None:
    for one, two in zip(found, expected, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one[:3], two[:3], strict=True))
        assert one[3] == two[3]


def test_a_batch_has_bytes_paths_rows_and_its_epoch(shards: Path) -> None:
    images, labels, rows, epoch = batches(shards)[5]
    assert images.shape == (6, 3, 32, 32) and images.dtype == torch.uint8
    data = TrainingData.read(shards, small_options())
    assert labels.tolist() == data.labels[rows].tolist() and labels.shape == (6, 3)
    assert epoch == 2  # two batches an epoch


@pytest.mark.parametrize("workers", [1, 2])
def test_processes_that_load_give_the_batches_of_one(shards: Path, workers: int) -> None:
    """Twenty batches go round the ring of slots more than once."""
    assert_equal(batches(shards, workers=workers), batches(shards))


def test_a_late_start_gives_the_same_batches(shards: Path) -> None:
    assert_equal(batches(shards, first=7, workers=1), batches(shards)[7:])


@pytest.mark.parametrize("size", [2, 3])
def test_the_slices_of_all_ranks_are_the_batch_of_one(shards: Path, size: int) -> None:
    parts = [batches(shards, Ranks(rank, size)) for rank in range(size)]
    for whole, *slices in zip(batches(shards), *parts, strict=True):
        assert torch.equal(torch.cat([images for images, *_ in slices]), whole[0])
        assert all(torch.equal(labels, whole[1]) for _, labels, *_ in slices)


def test_processes_that_do_not_divide_the_batch_are_refused(shards: Path) -> None:
    with pytest.raises(UsageError, match="4 processes do not divide a batch of 6 images"):
        batches(shards, Ranks(0, 4))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_image_is_one_line_whoever_loads_it(tmp_path: Path, workers: int) -> None:
    folder = make_shards(tmp_path)
    index = read_index(folder)
    for row in index[index["split"] == "train"].itertuples():
        with (folder / row.shard).open("r+b") as file:
            file.seek(row.offset)
            file.write(b"nothing like a JPEG")
    with pytest.raises(
        InvalidData, match=r"^[^\n]*\.tar: key .* changed[^\n]*; undecodable_budget allows 0\)$"
    ):
        batches(folder, workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_within_the_budget_another_image_of_the_class_takes_the_place(
    tmp_path: Path, workers: int
) -> None:
    folder = make_shards(tmp_path)
    before = batches(folder)
    row = int(before[0][2][4])
    damaged = harm(folder, row)
    with heard() as said:
        after = batches(folder, workers=workers, undecodable_budget=1)
    for (images, labels, rows, _), (others, same, again, _) in zip(before, after, strict=True):
        assert torch.equal(labels, same) and torch.equal(rows, again)
        differ = (images != others).flatten(1).any(1)
        assert differ.tolist() == (rows == row).tolist()
        assert others.flatten(1).any(1).all()
    shard = folder / damaged["shard"]
    assert said == [
        f"{shard}: key {damaged['key']}: is damaged; another image of its class takes its place"
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_budget_is_that_of_all_processes_that_load(harmed, workers: int) -> None:
    """Two processes take turns with the steps, so each meets one damaged image."""
    folder, _ = harmed
    with pytest.raises(
        InvalidData, match=r"^[^\n]*2 undecodable images; undecodable_budget allows 1\)$"
    ):
        batches(folder, workers=workers, steps=2, undecodable_budget=1)


def kill_loaders() -> None:
    """Kill the processes that load; back when they are dead and this one has been told."""
    loaders = multiprocessing.active_children()
    assert loaders  # the tests' servers are children, too, and live on
    for loader in loaders:
        os.kill(loader.pid or 0, signal.SIGKILL)
        os.waitid(os.P_PID, loader.pid or 0, os.WEXITED | os.WNOWAIT)


def test_a_loading_process_that_is_killed_is_told_at_the_next_batch(shards: Path) -> None:
    """Torch would raise it wherever the main process is: here, in the test's own loop."""
    options = small_options(workers=1)
    data, config = TrainingData.read(shards, options), build_image_model(options).config
    two = [feed_batches(data, config, options, range(100_000)) for _ in range(2)]
    for found in (*two, *two):  # they take turns
        next(found)
    kill_loaders()
    for _ in range(100):
        signal.raise_signal(signal.SIGCHLD)
    for found in two:
        with pytest.raises(Resumable, match="a process that loads images died"):
            next(found)
    assert "hgld" not in getattr(signal.getsignal(signal.SIGCHLD), "__module__", "")


def feed_one(data: TrainingData, options: TrainOptions) -> None:
    config = build_image_model(options).config
    with closing(feed_batches(data, config, options, range(9))) as found:
        next(found)


def whiten(data: TrainingData, options: TrainOptions) -> None:
    whiten_head(build_image_model(options), data, options)


@pytest.mark.parametrize("load", [feed_one, whiten])
def test_a_request_to_stop_amid_the_end_of_the_loaders_is_heard_after_it(
    shards: Path, monkeypatch: pytest.MonkeyPatch, load: Callable[..., None]
) -> None:
    """Cut short, they would wait forever for more to do, and the main process for them."""
    asked, ended = [], []
    end = _MultiProcessingDataLoaderIter._shutdown_workers

    def amid_a_request(loaders: _MultiProcessingDataLoaderIter) -> None:
        if not asked:
            asked.append(True)
            signal.raise_signal(signal.SIGTERM)
        end(loaders)
        ended.append(loaders._workers[0].is_alive())

    monkeypatch.setattr(_MultiProcessingDataLoaderIter, "_shutdown_workers", amid_a_request)
    options = small_options(workers=1, dim=2)
    data = TrainingData.read(shards, options)
    with hearing(), pytest.raises(Heard):
        load(data, options)
    assert ended and not ended[0]
