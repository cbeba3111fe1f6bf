import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader

from hgld.errors import HgldError, InvalidData, UsageError
from hgld.shards import read_index
from hgld.shards.batches import BatchOptions, plan_epoch
from hgld.shards.load import BatchLoader, PlainImages, reads_per_byte
from hgld.tasks import watched_by
from tests.shards.shard_world import World, make_world
from tests.shards.walk_batches import noisy, walk_steps

# more workers than cores are wanted here
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

WALK = Path(__file__).parent / "walk_batches.py"
Reader = Literal["indexed", "stream"]
IN_SHARDS = BatchOptions(4, 4, order="shards", window=8, lanes=2)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = make_world(tmp_path_factory.mktemp("load"), [1, 3, 4, 5, 9, 17, 20, 33, 8, 8, 8, 12])
    world.export(shard_megabytes=0.05)
    return world


@pytest.fixture(scope="module")
def shards(world: World) -> Path:
    return world.folder / "shards"


@pytest.fixture(scope="module")
def rows(shards: Path) -> pd.DataFrame:
    return read_index(shards).query("split == 'train'").reset_index(drop=True)


@pytest.fixture(scope="module")
def url(shards: Path) -> Iterator[str]:
    handler = partial(_Quiet, directory=str(shards))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


def walk(loader: BatchLoader, steps: int) -> list[tuple[torch.Tensor, ...]]:
    batches: list[tuple[torch.Tensor, ...]] = []
    while len(batches) < steps:
        for batch in loader:
            batches.append(batch)
            if len(batches) == steps:
                break
    return batches


def same(left: list[tuple[torch.Tensor, ...]], right: list[tuple[torch.Tensor, ...]]) -> bool:
    return len(left) == len(right) and all(
        torch.equal(a, b)
        for x, y in zip(left, right, strict=True)
        for a, b in zip(x, y, strict=True)
    )


def test_both_readers_and_any_workers_give_the_same_batches_pixel_for_pixel(
    shards: Path, rows: pd.DataFrame
) -> None:
    def batches(reader: Reader, workers: int) -> list[tuple[torch.Tensor, ...]]:
        loader = BatchLoader(shards, rows, noisy, IN_SHARDS, seed=3, reader=reader, workers=workers)
        return walk(loader, 8)  # beyond the first epoch

    one = batches("indexed", 0)
    assert len(BatchLoader(shards, rows, noisy, IN_SHARDS, seed=3)) < 8
    for reader, workers in [("stream", 0), ("indexed", 1), ("stream", 1), ("stream", 4)]:
        assert same(batches(reader, workers), one), (reader, workers)


def test_a_batch_is_its_images_and_labels(shards: Path, rows: pd.DataFrame, world: World) -> None:
    options = BatchOptions(4, 4)
    images, labels, numbers = next(iter(BatchLoader(shards, rows, noisy, options, seed=3)))
    assert images.shape == (16, 3, 15, 20)
    assert np.array_equal(labels, rows.loc[numbers, ["level_1", "level_2", "level_3"]])
    plan = plan_epoch(
        BatchLoader(shards, rows, noisy, options, seed=3).sequence.samples,
        options,
        seed=3,
        epoch=0,
    )
    assert numbers.tolist() == plan[0].tolist()


@pytest.mark.parametrize("reader", ["indexed", "stream"])
def test_a_state_saved_anywhere_goes_on_with_the_same_batches(
    shards: Path, rows: pd.DataFrame, reader: Reader
) -> None:
    def loader() -> BatchLoader:
        return BatchLoader(shards, rows, noisy, IN_SHARDS, seed=3, reader=reader)

    whole = walk(loader(), 12)
    for stop in (1, 4, len(loader()), 7):
        first, second = loader(), loader()
        head = walk(first, stop)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert same(head + walk(second, 12 - stop), whole), stop


def run_walk(*arguments: object, ranks: int) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    command = [sys.executable, *launch, WALK, *arguments]
    subprocess.run(
        [str(c) for c in command], check=True, env=_quick(), timeout=300, capture_output=True
    )


def _quick() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("reader", ["indexed", "stream"])
def test_ranks_under_torchrun_give_the_same_global_batches(
    shards: Path, tmp_path: Path, reader: Reader
) -> None:
    walk_steps(shards, tmp_path / "1", 7, reader, 0)
    for ranks, workers in [(2, 1), (4, 0)]:
        run_walk(shards, tmp_path / str(ranks), 7, reader, workers, ranks=ranks)
    one = read_lines(tmp_path / "1")
    assert len(one) == 7 and all(len(set(line["keys"])) == 16 for line in one)
    for ranks in (2, 4):
        assert read_lines(tmp_path / str(ranks)) == one


@pytest.mark.parametrize("reader", ["indexed", "stream"])
def test_a_killed_run_goes_on_with_the_same_keys(
    shards: Path, tmp_path: Path, reader: Reader
) -> None:
    walk_steps(shards, tmp_path / "whole", 12, reader, 0)
    stopped = tmp_path / "stopped"
    for after in (3, 8):
        command = [sys.executable, WALK, shards, stopped, "12", reader, "1", "0.2"]
        process = subprocess.Popen([str(c) for c in command], env=_quick(), start_new_session=True)
        deadline = time.monotonic() + 120
        while not stopped.exists() or len(stopped.read_text().splitlines()) < after:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    walk_steps(shards, stopped, 12, reader, 0)
    assert read_lines(stopped) == read_lines(tmp_path / "whole")


def test_the_stream_reads_from_a_web_server(shards: Path, rows: pd.DataFrame, url: str) -> None:
    near = BatchLoader(shards, rows, noisy, IN_SHARDS, seed=3, reader="stream")
    far = BatchLoader(url, rows, noisy, IN_SHARDS, seed=3, reader="stream")
    assert same(walk(far, 6), walk(near, 6))


def test_a_shard_that_the_server_does_not_have_is_named(rows: pd.DataFrame, url: str) -> None:
    loader = BatchLoader(f"{url}/nowhere", rows, noisy, IN_SHARDS, seed=3, reader="stream")
    with pytest.raises(HgldError, match=r"/nowhere/train-\d+\.tar: cannot be opened .*404"):
        walk(loader, 1)


@pytest.mark.parametrize(("workers", "says"), [(1, []), (3, ["3 times"])])
def test_the_stream_says_how_often_it_reads_a_byte(shards, rows, workers, says) -> None:
    said: list[str] = []
    with watched_by(lambda items, label, total: iter(items), said.append):
        BatchLoader(shards, rows, noisy, IN_SHARDS, seed=3, reader="stream", workers=workers)
    assert len(said) == len(says) and all(a in b for a, b in zip(says, said, strict=True))


def test_the_stream_needs_the_order_of_shards(shards: Path, rows: pd.DataFrame) -> None:
    with pytest.raises(UsageError, match="needs the order 'shards'"):
        BatchLoader(shards, rows, noisy, BatchOptions(4, 4), seed=0, reader="stream")


def test_lanes_let_ranks_share_the_reading() -> None:
    assert reads_per_byte(IN_SHARDS, world_size=2, workers=1) == 1
    assert reads_per_byte(IN_SHARDS, world_size=4, workers=1) == 2
    assert reads_per_byte(IN_SHARDS, world_size=1, workers=3) == 3


@pytest.fixture
def damaged(world: World, rows: pd.DataFrame) -> tuple[Path, int]:
    """Shards of their own with one image that cannot be decoded, of the first batch."""
    folder, _ = world.export("damaged", shard_megabytes=0.05)
    loader = BatchLoader(folder, rows, noisy, IN_SHARDS, seed=3)
    row = int(loader.sequence.plan(0)[0][5])
    shard = folder / rows["shard"][row]
    data = bytearray(shard.read_bytes())
    data[rows["offset"][row] : rows["offset"][row] + 30] = bytes(30)
    shard.write_bytes(data)
    return folder, row


@pytest.mark.parametrize("reader", ["indexed", "stream"])
def test_an_undecodable_image_stops_with_its_key(
    damaged: tuple[Path, int], rows: pd.DataFrame, reader: Reader
) -> None:
    loader = BatchLoader(damaged[0], rows, noisy, IN_SHARDS, seed=3, reader=reader)
    with pytest.raises(InvalidData, match=f"key {rows['key'][damaged[1]]}: .* 0 are allowed"):
        walk(loader, 1)


def test_within_the_budget_another_image_of_the_class_takes_the_place(
    damaged: tuple[Path, int], rows: pd.DataFrame
) -> None:
    loader = BatchLoader(damaged[0], rows, noisy, IN_SHARDS, seed=3, undecodable_budget=1)
    images, labels, numbers = walk(loader, 1)[0]
    place = numbers.tolist().index(damaged[1])
    others = [i for i in range(16) if i != place and torch.equal(images[i], images[place])]
    assert others and labels[others[0], -1] == labels[place, -1]


def test_padding_is_an_image_of_zeros_without_labels(shards: Path, rows: pd.DataFrame) -> None:
    options = BatchOptions(4, 4, small_classes="pad")
    loader = BatchLoader(shards, rows, noisy, options, seed=3)
    padded = [(images[numbers < 0], labels[numbers < 0]) for images, labels, numbers in loader]
    assert sum(len(images) for images, _ in padded) == 4  # classes of 1 and 3 images
    assert all(not images.any() and (labels == -1).all() for images, labels in padded)


def test_a_truncated_shard_is_named_by_both_readers(world: World, rows: pd.DataFrame) -> None:
    folder, _ = world.export("cut", shard_megabytes=0.05)
    for shard in folder.glob("train-*.tar"):
        shard.write_bytes(shard.read_bytes()[:2000])
    for reader in ("indexed", "stream"):
        loader = BatchLoader(folder, rows, noisy, IN_SHARDS, seed=3, reader=reader)
        with pytest.raises(InvalidData, match=r"train-\d+\.tar: ends .* truncated"):
            walk(loader, 1)


@pytest.mark.parametrize(("workers", "ranks"), [(0, 1), (3, 1), (2, 2)])
def test_the_plain_reader_gives_each_sample_once(
    shards: Path, rows: pd.DataFrame, workers: int, ranks: int
) -> None:
    numbers = []
    for rank in range(ranks):
        plain = PlainImages(shards, rows, noisy, rank=rank, world_size=ranks)
        loader = DataLoader(plain, batch_size=8, num_workers=workers)
        numbers += [n for _, _, batch in loader for n in batch.tolist()]
    assert sorted(numbers) == list(range(len(rows)))
