import errno
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any, Literal

import fsspec
import numpy as np
import pandas as pd
import pytest
import torch
import webdataset
from torch.utils.data import DataLoader

from hgld.errors import HgldError, InvalidData, MissingInput, Resumable, UsageError
from hgld.shards import index_shards, load, read_index, read_manifest, verify_shards
from hgld.shards.batches import plan_epoch
from hgld.shards.files import SequentialFile
from hgld.shards.load import BatchLoader, ImageLoader
from hgld.shards.sampling import BatchOptions
from hgld.shards.stream import HeldImages, reads_per_byte
from hgld.shards.webdataset import batches as webdataset_batches
from hgld.storage import RemoteFolder, join_location
from tests.listening import heard
from tests.ranks import run_to_end
from tests.shards.shard_world import World, draw, make_world
from tests.shards.walk_batches import noisy, walk_steps
from tests.sources.small_disk import small_disk
from tests.warm import Script, python

# more workers than cores are wanted here
pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*of the shards is read|.*takes its place:UserWarning"),
]

PAGE = Path(__file__).parent.parent.parent / "docs" / "shards.md"
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
def url(shards: Path) -> Iterator[str]:
    with serving(shards) as url:
        yield url


@contextmanager
def serving(folder: Path, kind: type[SimpleHTTPRequestHandler] | None = None) -> Iterator[str]:
    """A web server's address."""
    handler = partial(kind or _Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


class _Cutting(_Quiet):
    """Sends a half of as many answers as ``cuts``."""

    cuts = 0

    def copyfile(self, source: Any, outputfile: Any) -> None:
        data = source.read()
        whole = type(self).cuts == 0
        type(self).cuts -= not whole
        outputfile.write(data if whole else data[: len(data) // 2])


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


WAYS = [("indexed", "random"), ("indexed", "shards"), ("stream", "shards")]


@pytest.mark.parametrize(
    ("workers", "ranks"),
    [(0, 1), (0, 4), (1, 2), (4, 1), pytest.param(4, 4, marks=pytest.mark.slow)],
)
def test_any_reader_workers_and_ranks_give_the_same_batches_pixel_for_pixel(
    shards: Path, rows: pd.DataFrame, workers: int, ranks: int
) -> None:
    def batches(way: tuple[str, str], workers: int, ranks: int) -> list[tuple[torch.Tensor, ...]]:
        options = replace(IN_SHARDS, order=way[1])  # type: ignore[arg-type]
        parts = [
            BatchLoader(
                shards, rows, noisy, options, seed=3, reader=way[0],  # type: ignore[arg-type]
                rank=rank, world_size=ranks, workers=workers,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        assert len(parts[0]) < 8  # so that the walk goes beyond the first epoch
        columns = [walk(part, 8 if workers < 4 else 4) for part in parts]
        return [
            tuple(map(torch.cat, zip(*step, strict=True))) for step in zip(*columns, strict=True)
        ]

    one = {order: batches(("indexed", order), 0, 1) for order in ("random", "shards")}
    for way in WAYS:
        found = batches(way, workers, ranks)
        assert same(found, one[way[1]][: len(found)]), way


@pytest.mark.parametrize("in_memory", [0, 1 << 27])
def test_both_readers_give_the_same_batches_of_whole_groups(
    shards: Path, rows: pd.DataFrame, in_memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hgld.shards.stream.HeldImages", partial(HeldImages, in_memory=in_memory))
    options = replace(IN_SHARDS, groups_per_batch=2, lanes=1)
    indexed, stream = (
        walk(BatchLoader(shards, rows, noisy, options, seed=3, reader=reader), 6)
        for reader in ("indexed", "stream")
    )
    assert same(indexed, stream)
    for _, labels, _ in indexed:
        groups, counts = np.unique(labels[:, 1], return_counts=True)
        assert len(groups) == 2 and counts.tolist() == [8, 8]


def test_the_reader_and_the_plan_share_the_columns_of_a_table(
    shards: Path, rows: pd.DataFrame
) -> None:
    loader = BatchLoader(shards, rows, noisy, BatchOptions(4, 4), seed=3)
    samples = loader.plan.samples
    assert np.shares_memory(samples.labels, loader._images.labels)
    assert np.shares_memory(samples.shards, loader._images.shards)
    assert np.array_equal(samples.runs, rows["run"])


@pytest.mark.parametrize("column", ["level_1", "run", "shard", "key"])
def test_a_column_that_batches_need_is_named(column: str, shards: Path, rows: pd.DataFrame) -> None:
    with pytest.raises(InvalidData, match=f"no column '{column}'; expected rows of read_index"):
        BatchLoader(shards, rows.drop(columns=column), noisy, BatchOptions(4, 4), seed=3)


def test_a_batch_is_its_images_and_labels(shards: Path, rows: pd.DataFrame, world: World) -> None:
    options = BatchOptions(4, 4)
    images, labels, numbers = next(iter(BatchLoader(shards, rows, noisy, options, seed=3)))
    assert images.shape == (16, 3, 15, 20)
    assert np.array_equal(labels, rows.loc[numbers, ["level_1", "level_2", "level_3"]])
    plan = plan_epoch(
        BatchLoader(shards, rows, noisy, options, seed=3).plan.samples,
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


def test_a_state_belongs_to_its_shards_wherever_they_are_read(
    shards: Path, rows: pd.DataFrame, world: World, url: str
) -> None:
    images = world.images.assign(title="File:Other.jpg")
    others, _ = replace(world, images=images).export("others", shard_megabytes=0.05)
    there, far, other = (
        BatchLoader(folder, rows, noisy, IN_SHARDS, seed=3, reader="stream")
        for folder in (shards, url, others)
    )
    other_rows = read_index(others).query("split == 'train'")
    columns = ["key", "shard", "run", "sha256"]  # what a plan and a reader go by is the same
    assert (other_rows[columns].to_numpy() == rows[columns].to_numpy()).all()
    far.load_state_dict(there.state_dict())
    with pytest.raises(InvalidData, match="saved with other shards"):
        other.load_state_dict(there.state_dict())


def _quick() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "workers"), [(2, 1), (4, 0)])
def test_ranks_give_the_same_global_batches(
    shards: Path, tmp_path: Path, ranks: int, workers: int
) -> None:
    run_to_end(ranks, WALK, shards, tmp_path, 7, workers, 0, *map(":".join, WAYS))
    for reader, order in WAYS:
        alone = tmp_path / "alone" / f"{reader}-{order}"
        alone.parent.mkdir(exist_ok=True)
        walk_steps(shards, alone, 7, reader, order, 0)
        one = read_lines(alone)
        assert len(one) == 7 and all(len(set(line["keys"])) == 16 for line in one)
        assert read_lines(tmp_path / alone.name) == one, (reader, order)


@pytest.mark.parametrize(("reader", "order"), WAYS)
def test_a_killed_run_goes_on_with_the_same_keys(
    shards: Path, tmp_path: Path, reader: Reader, order: str
) -> None:
    walk_steps(shards, tmp_path / "whole", 12, reader, order, 0)
    stopped = tmp_path / f"{reader}-{order}"
    for after in (3, 8):
        words = [WALK, shards, tmp_path, 12, 1, 0.2, f"{reader}:{order}"]
        process = Script(words, env=_quick(), start_new_session=True)
        deadline = time.monotonic() + 120
        while not stopped.exists() or len(stopped.read_text().splitlines()) < after:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    walk_steps(shards, stopped, 12, reader, order, 0)
    assert read_lines(stopped) == read_lines(tmp_path / "whole")


@pytest.mark.slow
def test_a_worker_that_is_busy_delays_no_end() -> None:
    code = """if True:
        import time
        from hgld.shards.load import _load_ahead
        def work(numbers):
            for number in numbers:
                time.sleep(1000 * number)  # the first item is ready at once
                yield (number,)
        items = _load_ahead(work, 4, 1)
        print(next(items))
        items.close()"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(0,)\n", "")


def test_the_stream_reads_from_a_web_server(shards: Path, rows: pd.DataFrame, url: str) -> None:
    near = BatchLoader(shards, rows, noisy, IN_SHARDS, seed=3, reader="stream")
    far = BatchLoader(url, rows, noisy, IN_SHARDS, seed=3, reader="stream")
    assert same(walk(far, 6), walk(near, 6))


def test_the_index_is_read_from_a_web_server_too(shards: Path, url: str) -> None:
    assert read_index(url).equals(read_index(shards))
    assert read_manifest(url) == read_manifest(shards)
    with pytest.raises(MissingInput, match=rf"^{url}/nowhere/index\.parquet: no such file"):
        read_index(f"{url}/nowhere")


def test_rows_of_the_evaluation_among_those_that_train_are_said(
    shards: Path, rows: pd.DataFrame
) -> None:
    others = rows.assign(split=["index", *["train"] * (len(rows) - 1)])
    with pytest.warns(UserWarning, match=r"of the splits index, train; rows\.query"):
        BatchLoader(shards, others, noisy, BatchOptions(2, 2), seed=0)


def test_groups_that_leave_most_batches_out_are_said_once(shards: Path, rows: pd.DataFrame) -> None:
    size = rows.groupby("level_3").size()
    rare = rows["level_3"] == size[size >= 2].idxmin()
    kept = rows.assign(level_2=rare.astype("int64"), level_1=0)
    loader = BatchLoader(shards, kept, noisy, BatchOptions(2, 2, groups_per_batch=2), seed=0)
    with pytest.warns(UserWarning, match=r"groups_per_batch=2 makes \d+ of \d+ batches an epoch"):
        walk(loader, len(loader) + 1)


def test_groups_too_small_for_a_combination_are_said(shards: Path, rows: pd.DataFrame) -> None:
    size = rows.groupby("level_3").size()
    alone = rows["level_3"] == size.idxmin()  # a group of one class, which fills no half batch
    group = np.where(alone, 2, rows["level_3"] % 2)
    options = BatchOptions(
        4, 2, groups_per_batch=2, batches_per_combination=3, small_classes="repeat"
    )
    loader = BatchLoader(shards, rows.assign(level_2=group, level_1=0), noisy, options, seed=0)
    with pytest.warns(UserWarning, match="groups_per_batch=2 makes 3 of 9 batches an epoch"):
        walk(loader, 1)


@pytest.mark.parametrize("number", [-1, 1 << 40])
def test_classes_that_are_no_numbers_of_an_index_are_refused(
    shards: Path, rows: pd.DataFrame, number: int
) -> None:
    wrong = rows.assign(level_3=rows["level_3"].where(rows.index > 0, number))
    with pytest.raises(InvalidData, match=r"the rows' classes are numbered .*; expected 0 to "):
        BatchLoader(shards, wrong, noisy, IN_SHARDS, seed=0)


def test_a_disk_that_fails_in_a_worker_is_one_line(
    shards: Path, rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", fail)
    loader = BatchLoader(shards, rows, noisy, IN_SHARDS, seed=0, workers=1)
    with pytest.raises(HgldError, match=r"^[^\n]*\.tar: cannot be read \(Input/output error\)$"):
        walk(loader, 1)


def test_a_pipe_in_place_of_a_shard_is_refused_at_once(
    shards: Path, rows: pd.DataFrame, tmp_path: Path
) -> None:
    for name in rows["shard"].unique():
        os.mkfifo(tmp_path / name)
    with pytest.raises(InvalidData, match=r"\.tar: not a regular file"):
        walk(BatchLoader(tmp_path, rows, noisy, IN_SHARDS, seed=0, reader="stream"), 1)


def test_a_shard_that_the_server_does_not_have_is_named(rows: pd.DataFrame, url: str) -> None:
    loader = BatchLoader(f"{url}/nowhere", rows, noisy, IN_SHARDS, seed=3, reader="stream")
    with pytest.raises(HgldError, match=r"/nowhere/train-\d+\.tar: no such file"):
        walk(loader, 1)


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_the_stream_reads_from_any_file_system_of_fsspec(
    shards: Path, rows: pd.DataFrame, scheme: str
) -> None:
    folder = f"{scheme}://{shards}"
    if scheme == "memory":
        fsspec.filesystem("memory").put(str(shards), str(shards), recursive=True)
    near = BatchLoader(shards, rows, noisy, IN_SHARDS, seed=3, reader="stream")
    far = BatchLoader(folder, rows, noisy, IN_SHARDS, seed=3, reader="stream")
    assert same(walk(far, 6), walk(near, 6))


@pytest.mark.parametrize(
    ("folder", "says"),
    [
        ("sftp://host/shards", r"the package that reads sftp:// is not installed \(.*paramiko"),
        ("nonsense://host", r"cannot be opened \(Protocol not known: nonsense"),
        ("memory://nowhere", r"train-\d+\.tar: no such file"),
        ("http://127.0.0.1:9", r"cannot be opened .*refused"),
    ],
)
def test_a_place_that_cannot_be_read_is_one_line(
    rows: pd.DataFrame, folder: str, says: str
) -> None:
    with pytest.raises(HgldError, match=f"^{folder}/[^\n]*{says}[^\n]*$"):
        first_batch(folder, rows, reader="stream")


def test_an_answer_that_breaks_off_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(range(256)) * 20
    (tmp_path / "a.tar").write_bytes(data)
    with serving(tmp_path, _Cutting) as url:
        folder = RemoteFolder(url)
        _Cutting.cuts = 1
        assert folder.read_range("a.tar", 3000, 1000) == data[3000:4000]
        _Cutting.cuts = 1
        folder.download("a.tar", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == data
        _Cutting.cuts = 2
        with closing(SequentialFile(f"{url}/a.tar")) as file:
            assert file.take(3000, 2000) == data[3000:5000]
        monkeypatch.setattr("hgld.shards.files.WAITS_S", (0.01,))
        _Cutting.cuts = 9
        with (
            closing(SequentialFile(f"{url}/a.tar")) as file,
            pytest.raises(Resumable, match="at byte 2560"),
        ):
            file.take(0, 5000)
        _Cutting.cuts = 0


def test_names_with_blanks_and_letters_beyond_ascii_are_read_anywhere(tmp_path: Path) -> None:
    folder = tmp_path / "caf\u00e9 one"
    folder.mkdir()
    with webdataset.ShardWriter(
        str(folder / "d\u00e9j\u00e0 vu-%03d.tar"), maxcount=7, verbose=0
    ) as sink:
        for i in range(32):
            sink.write({"__key__": f"kl\u00f6 {i:02d}", "jpg": draw(i), "cls": i // 4})
    rows = index_shards(folder)
    verify_shards(folder)
    found = [first_batch(folder, rows, reader=reader) for reader in ("indexed", "stream")]
    with serving(tmp_path) as url:
        found.append(first_batch(f"{url}/caf\u00e9 one", rows, reader="stream"))
    assert same([tuple(found[0])] * 2, [tuple(batch) for batch in found[1:]])
    assert rows["key"].str.startswith("kl\u00f6 ").all()


def test_names_with_the_signs_of_a_url_are_read_from_a_web_server(
    shards: Path, tmp_path: Path
) -> None:
    """``?`` and ``#`` ended a name, and ``%`` began the code of a letter."""
    folder = tmp_path / "100% of #1?"
    folder.mkdir()
    names = ["a#b-0.tar", "50%-1.tar", "what?-2.tar", "x%20y-3.tar"]
    for name, tar in zip(names, sorted(shards.glob("train-*.tar")), strict=False):
        shutil.copy(tar, folder / name)
    index_shards(folder)
    with serving(tmp_path) as url:
        place = f"{url}/100%25%20of%20%231%3F"
        rows = read_index(place)
        assert {*rows["shard"]} == {*names} and rows.equals(read_index(folder))
        as_typed = f"{url}/100% of %231%3F"
        every = [numbers for *_, numbers in ImageLoader(as_typed, rows, noisy, batch_size=9)]
        assert torch.cat(every).tolist() == list(range(len(rows)))
        options = BatchOptions(2, 2, order="shards")
        one, two = (
            list(BatchLoader(at, rows, noisy, options, seed=0, reader="stream"))
            for at in (folder, place)
        )
        assert same([tuple(batch) for batch in one], [tuple(batch) for batch in two])
        urls = [join_location(place, name) for name in names]
        assert len(list(webdataset_batches(urls, 2, 2, noisy, rows=rows))) == len(one)
    with pytest.raises(UsageError, match=r"/set#1: .* has no fragment; write # as %23"):
        read_index("http://host/set#1")


@pytest.mark.parametrize(
    ("folder", "options", "says"),
    [
        ("here", {"reader": "Indexed"}, "reader is 'Indexed'; expected one of indexed, stream"),
        (Path("http://host/shards"), {}, "given as text"),
        (Path("http://host/shards"), {"reader": "stream"}, "given as text"),
        (
            "here",
            {"undecodable_budget": -1},
            "undecodable_budget is -1; expected a whole number, 0",
        ),
        ("here", {"undecodable_budget": math.nan}, "undecodable_budget is nan; expected a whole"),
        ("here", {"workers": -1}, "workers is -1; expected a whole number, 0 or more"),
        ("here", {"workers": 1.5}, "workers is 1.5; expected a whole number, 0 or more"),
        ("here", {"world_size": 0}, "world_size is 0; expected a whole number, 1 or more"),
        ("memory://box", {"cache_gb": math.nan}, "cache_gb is nan; expected a number of GB, 0 or"),
        ("memory://box", {"cache_gb": math.inf}, "cache_gb is inf; expected a number of GB, 0 or"),
        ("here", {"cache_gb": -1}, "cache_gb is -1; expected a number of GB, 0 or more"),
    ],
    ids=str,
)
def test_what_a_loader_cannot_do_is_one_line(
    rows: pd.DataFrame, folder: Any, options: Any, says: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        first_batch(folder, rows, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch_size": 0}, "batch_size is 0; expected a whole number, 1 or more"),
        ({"workers": -1}, "workers is -1; expected a whole number, 0 or more"),
        ({"rank": -1}, "rank is -1 of 1; expected 0..0"),
        ({"numbers": np.array([True, False])}, "numbers are bool of shape (2,); expected row "
         "numbers: np.flatnonzero(numbers)"),
        ({"numbers": [1.7]}, "numbers are float64 of shape (1,); expected row numbers"),
        ({"numbers": [-1, 2]}, "numbers run from -1 to 2; the rows are 0 to "),
    ],
)  # fmt: skip
def test_what_a_loader_of_images_cannot_do_is_one_line(
    shards: Path, rows: pd.DataFrame, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        ImageLoader(shards, rows, noisy, **{"batch_size": 4, **options})


def to_array(image: Any) -> Any:
    return np.asarray(image)


def to_own_size(image: Any) -> torch.Tensor:
    return torch.zeros(3, int(torch.randint(1, 1_000, ())))


def to_error(image: Any) -> torch.Tensor:
    raise RuntimeError("a shape that the network of this transform refuses")


@pytest.mark.parametrize("name", ["BatchLoader", "ImageLoader"])
def test_a_data_loader_passes_whole_batches_on(name: str, shards: Path, rows: pd.DataFrame) -> None:
    """By default it took each batch for one sample, and returned (1, B, ...)."""

    def make() -> BatchLoader | ImageLoader:
        if name == "ImageLoader":
            return ImageLoader(shards, rows, noisy, batch_size=8)
        return BatchLoader(shards, rows, noisy, BatchOptions(2, 4), seed=0)

    own = [numbers.tolist() for _, _, numbers in make()]
    for loader in (DataLoader(make()), DataLoader(make(), batch_size=None)):
        passed = list(loader)
        assert [numbers.tolist() for _, _, numbers in passed] == own
        assert len(loader) == len(own) and {labels.ndim for _, labels, _ in passed} == {2}
    with pytest.raises(UsageError, match="a whole batch already; give DataLoader batch_size=None"):
        list(DataLoader(make(), batch_size=2))
    with pytest.raises(UsageError, match=rf"give num_workers=0, and workers to {name}"):
        list(DataLoader(make(), num_workers=2))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_transform_that_gives_no_batch_is_named(
    workers: int, shards: Path, rows: pd.DataFrame
) -> None:
    """With workers its error was told as a process that had died for want of memory."""
    for transform, error, says in (
        (to_array, UsageError, "the transform returned ndarray; expected a torch.Tensor"),
        (to_own_size, UsageError, "shapes .* a batch needs one shape: resize and crop"),
        (to_error, RuntimeError, "that the network of this transform refuses"),
    ):
        images = ImageLoader(shards, rows, transform, batch_size=4, workers=workers)
        loader = BatchLoader(shards, rows, transform, BatchOptions(2, 4), seed=0, workers=workers)
        for batches in (images, loader):
            with pytest.raises(error, match=says):
                next(iter(batches))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (noisy, "torch.float32 of shape (3, 15, 20)"),
        (lambda image: noisy(image)[:1].byte(), "torch.uint8 of shape (1, 15, 20)"),
    ],
)
def test_images_that_are_not_those_of_image_shape_are_refused(
    shards: Path, rows: pd.DataFrame, transform: Any, says: str, workers: int
) -> None:
    """Else floats would become 0 and 1, and a grey image would be repeated."""
    promised = {"image_shape": (3, 15, 20), "workers": workers}
    loader = BatchLoader(shards, rows, transform, BatchOptions(4, 4), seed=3, **promised)
    with pytest.raises(UsageError, match=re.escape(f"the transform returned {says}; image_shape")):
        next(iter(loader))


def test_a_script_is_warned_of_what_a_command_says(
    damaged: tuple[Path, int], rows: pd.DataFrame
) -> None:
    with pytest.warns(UserWarning) as warned:
        first_batch(damaged[0], rows, reader="stream", workers=2, undecodable_budget=1)
    first, second = (str(one.message) for one in warned if one.category is UserWarning)
    assert "read 2 times an epoch" in first and f"key {rows['key'][damaged[1]]}: " in second


def test_loading_leaves_the_random_numbers_of_the_gpu(
    shards: Path, rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    first_batch(shards, rows)
    assert seeds == []


@pytest.mark.parametrize(("workers", "says"), [(1, []), (3, ["3 times"])])
def test_the_stream_says_how_often_it_reads_a_byte(shards, rows, workers, says) -> None:
    with heard() as said:
        BatchLoader(shards, rows, noisy, IN_SHARDS, seed=3, reader="stream", workers=workers)
    assert len(said) == len(says) and all(a in b for a, b in zip(says, said, strict=True))


def test_the_stream_needs_the_order_of_shards(shards: Path, rows: pd.DataFrame) -> None:
    with pytest.raises(UsageError, match="needs the order 'shards'"):
        BatchLoader(shards, rows, noisy, BatchOptions(4, 4), seed=0, reader="stream")


def test_lanes_let_ranks_share_the_reading() -> None:
    assert reads_per_byte(IN_SHARDS, world_size=2, workers=1) == 1
    assert reads_per_byte(IN_SHARDS, world_size=4, workers=1) == 2
    assert reads_per_byte(IN_SHARDS, world_size=1, workers=3) == 3


def harm(folder: Path, rows: pd.DataFrame, row: int) -> None:
    """Make an image undecodable."""
    shard = folder / rows["shard"][row]
    data = bytearray(shard.read_bytes())
    data[rows["offset"][row] : rows["offset"][row] + 30] = bytes(30)
    shard.write_bytes(data)


def first_batch(folder: Path | str, rows: pd.DataFrame, **options: Any) -> list[Any]:
    return list(walk(BatchLoader(folder, rows, noisy, IN_SHARDS, seed=3, **options), 1)[0])


@pytest.fixture
def copied(shards: Path, tmp_path: Path) -> Path:
    """Shards of their own, to be damaged."""
    return Path(shutil.copytree(shards, tmp_path / "copied"))


@pytest.fixture
def damaged(copied: Path, rows: pd.DataFrame) -> tuple[Path, int]:
    """Shards with one image that cannot be decoded, in the first batch."""
    row = int(first_batch(copied, rows)[2][5])
    harm(copied, rows, row)
    return copied, row


@pytest.mark.parametrize("reader", ["indexed", "stream"])
def test_an_undecodable_image_stops_with_its_key(
    damaged: tuple[Path, int], rows: pd.DataFrame, reader: Reader
) -> None:
    said = f"key {rows['key'][damaged[1]]}: .* undecodable_budget allows 0"
    with pytest.raises(InvalidData, match=said):
        first_batch(damaged[0], rows, reader=reader)


def test_more_damaged_images_than_the_budget_stop_the_run(copied: Path, rows: pd.DataFrame) -> None:
    for row in first_batch(copied, rows)[2][:3].tolist():
        harm(copied, rows, row)
    with pytest.raises(InvalidData, match=r"3 undecodable images; undecodable_budget allows 2"):
        first_batch(copied, rows, undecodable_budget=2)


def large_place(rows: pd.DataFrame, numbers: torch.Tensor) -> int:
    """A place of the batch whose class has more images than the batch holds."""
    size = rows.groupby("level_3")["key"].transform("size")
    return int(np.argmax(size.to_numpy()[numbers.numpy()]))


def test_within_the_budget_an_image_that_the_batch_does_not_hold_takes_the_place(
    copied: Path, rows: pd.DataFrame
) -> None:
    images, labels, numbers = first_batch(copied, rows)
    place = large_place(rows, numbers)
    harm(copied, rows, int(numbers[place]))
    after, same_labels, others = first_batch(copied, rows, undecodable_budget=1)
    assert len(set(others.tolist())) == 16 and torch.equal(labels, same_labels)
    assert (others != numbers).nonzero().flatten().tolist() == [place]
    assert (images != after).flatten(1).any(1).nonzero().flatten().tolist() == [place]


def test_all_damaged_images_of_a_class_get_different_ones(copied: Path, rows: pd.DataFrame) -> None:
    _, labels, numbers = first_batch(copied, rows)
    place = large_place(rows, numbers)
    of_class = (labels[:, -1] == labels[place, -1]).nonzero().flatten()
    for row in numbers[of_class].tolist():
        harm(copied, rows, row)
    others = first_batch(copied, rows, undecodable_budget=4)[2]
    assert len(set(others.tolist())) == 16
    assert not set(others[of_class].tolist()) & set(numbers.tolist())


def test_a_replacement_that_is_damaged_too_is_replaced(copied: Path, rows: pd.DataFrame) -> None:
    numbers = first_batch(copied, rows)[2]
    place = large_place(rows, numbers)
    seen = {int(numbers[place])}
    for budget in (1, 2, 3):
        harm(copied, rows, int(first_batch(copied, rows, undecodable_budget=budget)[2][place]))
        found = int(first_batch(copied, rows, undecodable_budget=budget)[2][place])
        assert found not in seen
        seen.add(found)


def test_where_a_class_has_no_other_image_one_of_the_batch_is_repeated(
    copied: Path, rows: pd.DataFrame
) -> None:
    options = BatchOptions(4, 4)
    few = rows[rows.groupby("level_3")["key"].transform("size").isin([4, 5, 8])]
    few = few.drop(few.index[few["level_3"] == few["level_3"].mode()[0]][4:])  # one class of four
    few = few.reset_index(drop=True)
    loader = BatchLoader(copied, few, noisy, options, seed=3, undecodable_budget=1)
    numbers = walk(loader, 1)[0][2]
    size = few.groupby("level_3")["key"].transform("size").to_numpy()[numbers.numpy()]
    place = int(np.argmin(size))
    assert size[place] == 4
    harm(copied, few, int(numbers[place]))
    others = walk(BatchLoader(copied, few, noisy, options, seed=3, undecodable_budget=1), 1)[0][2]
    assert len(set(others.tolist())) == 15
    assert few["level_3"][int(others[place])] == few["level_3"][int(numbers[place])]


@pytest.mark.parametrize("reader", ["indexed", "stream"])
@pytest.mark.parametrize("workers", [0, 2])
def test_readers_ranks_and_workers_replace_alike(
    copied: Path, rows: pd.DataFrame, reader: Reader, workers: int
) -> None:
    for row in first_batch(copied, rows)[2][::5].tolist():
        harm(copied, rows, row)
    images, _, numbers = first_batch(copied, rows, undecodable_budget=9)
    parts = [
        first_batch(
            copied, rows, reader=reader, rank=rank, world_size=8, workers=workers,
            undecodable_budget=9,
        )
        for rank in range(8)
    ]  # fmt: skip
    assert torch.equal(torch.cat([part[2] for part in parts]), numbers)
    assert torch.equal(torch.cat([part[0] for part in parts]), images)


def watched_epochs(
    folder: Path, rows: pd.DataFrame, epochs: int, state: Any = None, **options: Any
) -> tuple[list[str], dict[str, Any]]:
    """What is said of some epochs, and the state behind them."""
    loader = BatchLoader(folder, rows, noisy, IN_SHARDS, seed=3, **options)
    if state is not None:
        loader.load_state_dict(state)
    with heard() as said:
        for _ in range(epochs):
            walk(loader, len(loader))
    return [line for line in said if "is damaged" in line], loader.state_dict()


@pytest.mark.parametrize("reader", ["indexed", "stream"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_image_is_said_once_over_all_workers_and_epochs(
    damaged: tuple[Path, int], rows: pd.DataFrame, reader: Reader, workers: int
) -> None:
    folder, row = damaged
    options = {"reader": reader, "workers": workers, "undecodable_budget": 1}
    said, state = watched_epochs(folder, rows, 3, **options)
    assert said == [
        f"{folder / rows['shard'][row]}: key {rows['key'][row]}: is damaged; another image "
        "of its class takes its place"
    ]
    saved = json.loads(json.dumps(state))
    assert watched_epochs(folder, rows, 1, saved, **options)[0] == []


def two_damaged(folder: Path, rows: pd.DataFrame) -> list[int]:
    """An image of each of the first two steps, which two workers load."""
    batches = walk(BatchLoader(folder, rows, noisy, IN_SHARDS, seed=3), 2)
    return [int(numbers[5]) for _, _, numbers in batches]


@pytest.mark.parametrize("reader", ["indexed", "stream"])
def test_the_budget_is_that_of_all_workers(
    copied: Path, rows: pd.DataFrame, reader: Reader
) -> None:
    for row in two_damaged(copied, rows):
        harm(copied, rows, row)
    with pytest.raises(InvalidData, match="2 undecodable images; undecodable_budget allows 1"):
        watched_epochs(copied, rows, 1, reader=reader, workers=2, undecodable_budget=1)


@pytest.mark.parametrize("reader", ["indexed", "stream"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_budget_is_not_new_with_a_loaded_state(
    copied: Path, shards: Path, rows: pd.DataFrame, reader: Reader, workers: int
) -> None:
    options = {"reader": reader, "workers": workers, "undecodable_budget": 1}
    first, second = two_damaged(copied, rows)
    harm(copied, rows, first)
    _, state = watched_epochs(copied, rows, 1, **options)
    shutil.copy(shards / rows["shard"][first], copied)  # it is mended, and another is damaged
    harm(copied, rows, second)
    with pytest.raises(InvalidData, match="2 undecodable images; undecodable_budget allows 1"):
        watched_epochs(copied, rows, 6, state, **options)  # which meet it in one of them


@pytest.mark.parametrize("reader", ["indexed", "stream"])
def test_an_error_of_a_worker_is_one_line(
    damaged: tuple[Path, int], rows: pd.DataFrame, reader: Reader
) -> None:
    with pytest.raises(InvalidData, match=r"^[^\n]*: key [^\n]* undecodable_budget allows 0\)$"):
        first_batch(damaged[0], rows, reader=reader, workers=2)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_full_disk_of_temporary_files_is_one_line(
    shards: Path, rows: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr("hgld.shards.stream.HeldImages", partial(HeldImages, in_memory=0))
    get_temp_dir()  # of this process, and it outlives the disk
    monkeypatch.setattr(tempfile, "tempdir", None)  # TMPDIR is looked up once
    monkeypatch.setenv("TMPDIR", str(tmp_path / "disk"))
    loader = BatchLoader(shards, rows, noisy, IN_SHARDS, seed=3, reader="stream", workers=workers)
    with small_disk(tmp_path / "disk", 16 << 10) as enlarge:
        with pytest.raises(
            Resumable,
            match=rf"^{tmp_path}/disk: no space left for the images [^\n]*; set TMPDIR to [^\n]*$",
        ):
            walk(loader, 6)
        enlarge()
        assert len(walk(loader, 6)) == 6
    (tmp_path / "disk").rmdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "disk"))
    with pytest.raises(Resumable, match=rf"^{tmp_path}/disk: no space left .*No such file.*TMPDIR"):
        walk(loader, 6)


def test_a_class_of_which_nothing_can_be_decoded_stops(copied: Path, rows: pd.DataFrame) -> None:
    numbers = first_batch(copied, rows)[2]
    label = rows["level_3"][int(numbers[0])]
    for row in rows.index[rows["level_3"] == label]:
        harm(copied, rows, row)
    with pytest.raises(InvalidData, match="no image of its class can be decoded"):
        first_batch(copied, rows, undecodable_budget=99)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_a_worker_ends_when_its_last_item_is_passed_on(start) -> None:
    context = get_context(start)
    queue = context.Queue()
    worker = context.Process(target=put_last, args=(queue, 10_000_000))
    worker.start()
    assert len(queue.get(timeout=60)) == 10_000_000
    worker.join()
    assert worker.exitcode == 0
    assert queue._wlock.acquire(timeout=60)  # no other worker could pass an item on


def put_last(queue: Any, size: int) -> None:
    load._begin_worker(0)
    queue.put(bytes(size))


@pytest.mark.slow
@pytest.mark.parametrize(  # large batches are still copied as the script ends
    ("side", "start"), [(64, "fork"), (640, "spawn")]
)
def test_the_example_in_the_pages_runs_as_a_script(
    shards: Path, tmp_path: Path, side: int, start: str
) -> None:
    code = next(c for c in PAGE.read_text().split("```")[1::2] if "BatchLoader" in c)
    code = code.removeprefix("python\n").replace("work/quickstart/shards", str(shards))
    code = code.replace("resize((64, 64))", f"resize(({side}, {side}))")
    how = f"import multiprocessing\nmultiprocessing.set_start_method('{start}', force=True)\n"
    show = "    print(*images.shape, *labels.shape, *numbers.shape, state['step'])\n"
    (tmp_path / "script.py").write_text(how + code + show)
    done = python(tmp_path, tmp_path / "script.py", OMP_NUM_THREADS="1")
    assert (done.stdout, done.stderr) == (f"32 3 {side} {side} 32 3 32 1\n", "")


def test_padding_is_an_image_of_zeros_without_labels(shards: Path, rows: pd.DataFrame) -> None:
    options = BatchOptions(4, 4, small_classes="pad")
    loader = BatchLoader(shards, rows, noisy, options, seed=3)
    padded = [(images[numbers < 0], labels[numbers < 0]) for images, labels, numbers in loader]
    assert sum(len(images) for images, _ in padded) == 4  # classes of 1 and 3 images
    assert all(not images.any() and (labels == -1).all() for images, labels in padded)


@pytest.mark.parametrize("reader", ["indexed", "stream"])
def test_a_rank_with_nothing_but_padding_has_as_many_steps(
    shards: Path, rows: pd.DataFrame, reader: Reader
) -> None:
    small = rows[rows["level_3"].isin(rows["level_3"].value_counts().index[-4:])]
    options = BatchOptions(4, 4, order="shards", small_classes="pad")
    parts = [
        list(
            BatchLoader(
                shards, small, noisy, options, seed=3, reader=reader, rank=rank, world_size=16
            )
        )
        for rank in range(16)
    ]
    assert {len(part) for part in parts} == {len(parts[0])} and parts[0]
    padding = [images for ((images, _, numbers), *_) in parts if (numbers < 0).all()]
    assert padding and all(images.shape == (1, 3, 15, 20) for images in padding)
    assert not any(images.any() for images in padding)


def test_a_truncated_shard_is_named_by_both_readers(world: World, rows: pd.DataFrame) -> None:
    folder, _ = world.export("cut", shard_megabytes=0.05)
    for shard in folder.glob("train-*.tar"):
        shard.write_bytes(shard.read_bytes()[:2000])
    for reader in ("indexed", "stream"):
        loader = BatchLoader(folder, rows, noisy, IN_SHARDS, seed=3, reader=reader)
        with pytest.raises(InvalidData, match=r"train-\d+\.tar: ends .* truncated"):
            walk(loader, 1)


@pytest.mark.parametrize(("workers", "ranks"), [(0, 1), (3, 1), (3, 4)])
def test_the_plain_reader_gives_each_sample_once(
    shards: Path, rows: pd.DataFrame, workers: int, ranks: int
) -> None:
    parts = []
    for rank in range(ranks):
        loader = ImageLoader(
            str(shards), rows, noisy, batch_size=8, rank=rank, world_size=ranks, workers=workers
        )
        parts.append([n for _, _, batch in loader for n in batch.tolist()])
    assert sorted(n for part in parts for n in part) == list(range(len(rows)))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("reader", ["indexed", "stream"])
def test_rows_of_one_image_are_samples_of_their_own(
    shards: Path, rows: pd.DataFrame, reader: Reader
) -> None:
    """The reader "stream" took what follows the image for the second row's."""
    twice = pd.concat([rows, rows[rows["level_3"] == rows["level_3"][0]]])
    twice = twice.sort_values(["shard", "offset"], ignore_index=True)
    loader = BatchLoader(shards, twice, noisy, IN_SHARDS, seed=0, reader=reader)
    places = twice[["shard", "offset"]].apply(tuple, axis=1)
    met = [places[n] for _, _, numbers in loader for n in numbers.tolist()]
    assert len(met) > len(set(met))


LARGE_IMAGES = """
import sys
import torch
from hgld.shards import read_index
from hgld.shards.sampling import BatchOptions
from hgld.shards.load import BatchLoader, ImageLoader

shape = (3, 512, 512)
folder = sys.argv[1]
given = folder, read_index(folder), lambda image: torch.zeros(shape, dtype=torch.uint8)
for loader in (
    BatchLoader(*given, BatchOptions(4, 4), seed=0, workers=1, image_shape=shape),
    BatchLoader(*given, BatchOptions(4, 4), seed=0, workers=1),
    ImageLoader(*given, batch_size=8, workers=1),
):
    try:
        next(iter(loader))
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_shared_memory_without_room_is_named(tmp_path: Path, world: World) -> None:
    # a container has 64 MB of it unless told otherwise
    with small_disk(tmp_path / "shm", 512_000):
        inside = f'mount --bind {tmp_path}/shm /dev/shm && exec "$@"'
        command = [sys.executable, "-W", "ignore", "-c", LARGE_IMAGES, world.folder / "shards"]
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", inside, "sh", *command],
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    lines = done.stdout.splitlines()
    sizes = [
        re.sub(r".* has no room for ([0-9.]+ MB) more; make it larger.*", r"\1", o) for o in lines
    ]
    assert sizes == ["50.3 MB", "12.6 MB", "6.3 MB"], done.stdout + done.stderr
    assert all(line.startswith("HgldError /dev/shm, ") for line in lines)
