"""Measures the shards: reading, decoding, writing, planning, memory.

Each function returns plain numbers; ratios are of methods that ran in turns in one process, each
by the least CPU time of its rounds. ``python -m tests.benchmarks.shards`` prints all of them.
"""

import io
import json
import os
import shutil
import tarfile
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import simplejpeg
from PIL import Image

from hgld.config import ExportOptions, SourceOptions, StageContext
from hgld.shards import export_shards, read_index
from hgld.shards.batches import plan_epoch
from hgld.shards.sampling import BatchOptions, Samples
from hgld.shards.shard_plan import plan_split
from tests.benchmarks.meters import PROCESSES, Row, fastest, from_process, reset_peak, status_kb

if TYPE_CHECKING:
    from hgld.shards.read import ShardImages
CREDIT = {
    "author": "An Author",
    "license": "https://creativecommons.org/licenses/by-sa/3.0/",
    "title": "File:A place.jpg",
    "url": "https://upload.wikimedia.org/wikipedia/commons/a/ab/A_place.jpg",
}


def draw_photo(seed: int, side: int) -> bytes:
    """A JPEG of about the size of a photo's: soft shapes and some grain (224 px: 15 KB)."""
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (9, 9, 3), np.uint8))
    pixels = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC), np.float32)
    pixels = np.clip(pixels + random.normal(0, 9, pixels.shape), 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def make_source(
    folder: Path, samples: int, side: int = 224, stored: int | None = None, groups: int = 8
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A tar as webdataset reads it, and the tables that export takes; 20 images a class.

    The classes are in so many groups. The tar holds ``stored`` images, which the tables list again
    and again.
    """
    photos = [draw_photo(seed, side) for seed in range(200)]
    rows = []
    folder.mkdir(parents=True)
    with tarfile.open(folder / "images.tar", "w") as tar:
        for i in range(stored or samples):
            data = photos[i % len(photos)]
            info = tarfile.TarInfo(f"{i:08x}.jpg")
            info.size = len(data)
            rows.append((f"{i:08x}", "train", i // 20, "images.tar", tar.offset + 512, len(data)))
            tar.addfile(info, io.BytesIO(data))
            for suffix, text in (("cls", b"%d" % (i // 20)), ("json", json.dumps(CREDIT).encode())):
                info = tarfile.TarInfo(f"{i:08x}.{suffix}")
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text))
    columns = ["image_id", "split", "landmark_id", "path", "offset", "size_bytes"]
    places = [row[3:] for row in rows]
    rows = [(f"{i:08x}", "train", i // 20, *places[i % len(rows)]) for i in range(samples)]
    paths = [
        json.dumps(
            {"kind": f"k{n % 2}", "supercategory": f"s{n % groups}", "landmark": f"train:{n}"}
        )
        for n in range(-(-samples // 20))
    ]
    hierarchy = pd.DataFrame({"split": "train", "landmark_id": range(len(paths)), "path": paths})
    return pd.DataFrame(rows, columns=columns).assign(**CREDIT), hierarchy


def write_shards(
    folder: Path, name: str, tables: tuple[pd.DataFrame, pd.DataFrame], **options: Any
) -> Path:
    """Export the source of ``make_source`` in shards of 17 MB."""
    source = SourceOptions(folder=folder / "source")
    export_shards(
        folder / "source",
        *tables,
        options=ExportOptions(shard_megabytes=17, **options),
        context=StageContext("2026-01-01", folder / f"{name}-state", source, folder),
        out=folder / name,
    )
    return folder / name


def open_images(shards: Path) -> "ShardImages":
    """The indexed reader of a folder; torch is loaded here, not in the export's processes."""
    from hgld.shards.read import ShardImages

    return ShardImages(shards, read_index(shards), lambda image: image)  # type: ignore[arg-type,return-value]


def webdataset_of(files: Sequence[Path | str], decode: str = "") -> Any:
    """The same shards as webdataset reads them."""
    import webdataset

    dataset = webdataset.WebDataset([str(file) for file in files], shardshuffle=False)
    return dataset.decode(decode) if decode else dataset


def read(samples: int = 4500, side: int = 224) -> dict[str, Any]:
    """JPEG bytes only, page cache, no DataLoader: the indexed reader, the raw file, webdataset."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        shards = write_shards(folder, "shards", make_source(folder / "source", samples, side))
        index = read_index(shards)
        images = open_images(shards)
        files = sorted(shards.glob("*.tar"))
        order = np.random.default_rng(0).permutation(len(index)).tolist()
        preads = stack.enter_context(_calls(shards, index.iloc[order]))
        least = fastest(
            {
                "raw": lambda: _read_raw(files),
                "in order": lambda: _read_in_order(images),
                "at random": lambda: _read_each(images, order),
                "pread alone, at random": lambda: _pread_each(preads),
                "webdataset": lambda: _count(webdataset_of(files)),
            },
            warm_up=False,
        )
        total = sum(file.stat().st_size for file in files)
        speed = {method: total / seconds / 1e6 for method, seconds in least.items()}
        return {
            "image_bytes": int(index["size_bytes"].mean()),
            "megabytes_per_s": {method: round(value) for method, value in speed.items()},
            "of raw": {method: round(value / speed["raw"], 3) for method, value in speed.items()},
            "of webdataset": {
                method: round(value / speed["webdataset"], 1) for method, value in speed.items()
            },
        }


def _read_raw(files: list[Path]) -> None:
    ring = bytearray(1 << 20)
    for file in files:
        with file.open("rb", buffering=0) as handle:
            while handle.readinto(ring):
                pass


def _read_in_order(images: "ShardImages") -> None:
    for _ in images.iterate(range(len(images))):
        pass


def _read_each(images: "ShardImages", order: list[int]) -> None:
    for number in order:
        images.read_bytes(number)


@contextmanager
def _calls(shards: Path, index: pd.DataFrame) -> Iterator[list[tuple[int, int, int]]]:
    """Arguments of pread for each sample."""
    handles = {name: os.open(shards / name, os.O_RDONLY) for name in index["shard"].unique()}
    columns = (index["shard"].map(handles), index["size_bytes"], index["offset"])
    yield list(zip(*(column.tolist() for column in columns), strict=True))
    for handle in handles.values():
        os.close(handle)


def _pread_each(calls: list[tuple[int, int, int]]) -> None:
    """What the operating system takes for the same reads, one a sample."""
    for handle, size, offset in calls:
        os.pread(handle, size, offset)


def _count(items: Any) -> int:
    return sum(1 for _ in items)


def read_and_decode(samples: int = 1000) -> dict[str, Any]:
    """Reader and decoder on one core, 224 px, against decoding from memory and webdataset."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards = write_shards(folder, "shards", make_source(folder / "source", samples))
        images = open_images(shards)
        held = [images.read_bytes(i) for i in range(len(images))]
        order = np.random.default_rng(0).permutation(len(images)).tolist()
        files = sorted(shards.glob("*.tar"))
        least = fastest(
            {
                "memory": lambda: _decode_all(held),
                "memory, at random": lambda: _decode_all(held[i] for i in order),
                "in order": lambda: _decode_all(d for _, d in images.iterate(range(samples))),
                "at random": lambda: _decode_all(images.read_bytes(i) for i in order),
                "webdataset": lambda: _count(webdataset_of(files, "rgb8")),
            },
            warm_up=False,
        )
        micros = {method: round(seconds / samples * 1e6) for method, seconds in least.items()}
        return {
            "microseconds_per_image": micros,
            "in order, of memory": round(least["memory"] / least["in order"], 3),
            "at random, of memory": round(least["memory, at random"] / least["at random"], 3),
            "of webdataset rgb8": round(least["webdataset"] / least["at random"], 2),
        }


def _decode_all(jpegs: "Iterable[bytes | memoryview]") -> None:
    """Decode to arrays as rgb8 does, and keep none: their memory costs as much as decoding."""
    for jpeg in jpegs:
        simplejpeg.decode_jpeg(jpeg, colorspace="RGB", strict=True)


def class_batches(samples: int = 3000) -> dict[str, Any]:
    """Images per second of P x K batches, decoded, against plain webdataset in its own order."""
    import torch

    from hgld.shards.load import BatchLoader
    from hgld.shards.webdataset import batches

    def pixels(image: Image.Image) -> torch.Tensor:
        return torch.from_numpy(np.array(image))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards = write_shards(folder, "shards", make_source(folder / "source", samples))
        files, index = sorted(shards.glob("*.tar")), read_index(shards)
        urls, shape = [str(file) for file in files], BatchOptions(16, 4, order="shards")
        by_stream = BatchLoader(shards, index, pixels, shape, seed=0, reader="stream")
        planned = batches(urls, 16, 4, pixels, rows=index)
        plain = webdataset_of(files, "pilrgb").to_tuple("jpg", "cls")
        methods: dict[str, Callable[[], int]] = {
            "webdataset": lambda: sum(1 for image, _ in plain if len(pixels(image))),
            "webdataset, as they come": lambda: _sum_images(batches(urls, 16, 4, pixels)),
            "webdataset, planned": lambda: _sum_images(planned),
            "stream": lambda: _sum_images(by_stream),
        }
        counts = {method: work() for method, work in methods.items()}
        least = fastest(methods, warm_up=False)
        speed = {method: counts[method] / seconds for method, seconds in least.items()}
        return {
            "images_per_s": {method: round(value) for method, value in speed.items()},
            "of webdataset": {
                method: round(value / speed["webdataset"], 2) for method, value in speed.items()
            },
        }


def _sum_images(batches: Any) -> int:
    return sum(len(batch[0]) for batch in batches)


def export(samples: int = 20_000) -> dict[str, Any]:
    """Export without re-encoding against webdataset's reader and ShardWriter.

    In processor seconds: hgld also waits until the disk has the files, webdataset does not.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = make_source(folder / "source", samples)
        count = iter(range(10**6))

        def ours(**options: Any) -> Callable[[], object]:
            return lambda: write_shards(folder, f"out{next(count)}", tables, **options)

        least = fastest(
            {
                "hgld": ours(decode_all=False),
                "hgld, every image checked": ours(),
                "webdataset": lambda: _rewrite(folder, next(count)),
            },
            clock=time.process_time,
            warm_up=False,
        )
        return {
            "microseconds_per_sample": {m: round(s / samples * 1e6) for m, s in least.items()},
            "of webdataset": round(least["webdataset"] / least["hgld"], 2),
            "of webdataset, every image checked": round(
                least["webdataset"] / least["hgld, every image checked"], 2
            ),
        }


def export_in_processes(samples: int = 240_000) -> dict[str, Any]:
    """Two processes against one (wall clock, start-up included, least of the rounds in turns).

    In memory where there is room for it: two writers may wait for one disk. In a process without
    torch, as ``hgld export`` is one, since a worker loads whatever its parent's main module does.
    """
    return _in_fresh_process(f"_export_in_processes({samples})")


def _export_in_processes(samples: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=_roomy_memory(samples * 20_000)) as name:
        folder = Path(name)
        tables = make_source(folder / "source", samples, stored=4000)

        def ours(processes: int) -> None:
            shutil.rmtree(write_shards(folder, "out", tables, processes=processes))

        works = {n: partial(ours, n) for n in (1, 2)}
        one, two = fastest(works, clock=time.perf_counter, warm_up=False).values()
        return {
            "seconds": {"1": round(one, 2), "2": round(two, 2)},
            "2 processes, of one": round(one / two, 2),
            "that only hash": _two_of_one(_hash_piece, folder),
            "that only copy": _two_of_one(_copy_piece, folder),
        }


def _two_of_one(work: Callable[[Path], None], folder: Path) -> float:
    """How much sooner two processes are done with some work than one; all have started before."""

    def all_of_it(pool: ProcessPoolExecutor) -> None:
        list(pool.map(work, [folder] * 8))

    start = partial(ProcessPoolExecutor, mp_context=get_context("spawn"))
    with start(1) as one, start(2) as two:
        for pool in (one, two):
            list(pool.map(time.sleep, [1, 1]))
        works = {1: partial(all_of_it, one), 2: partial(all_of_it, two)}
        least = fastest(works, clock=time.perf_counter, warm_up=False)
    return round(least[1] / least[2], 2)


def _hash_piece(_: Path) -> None:
    """Nothing but computing, for as long as some shards take."""
    data = bytes(1 << 20)
    for _ in range(300):
        sha256(data)


def _copy_piece(folder: Path) -> None:
    """Nothing but reading and writing, as many bytes as some shards have."""
    out = folder / f"copy-{os.getpid()}"
    for _ in range(4):
        with out.open("wb") as file:
            file.write((folder / "source/images.tar").read_bytes())
            os.fsync(file.fileno())
    out.unlink()


def _roomy_memory(size: int) -> str | None:
    """A folder in memory with so much room, or None."""
    try:
        return "/dev/shm" if shutil.disk_usage("/dev/shm").free > 2 * size else None
    except OSError:
        return None


def _rewrite(folder: Path, number: int) -> None:
    """What people do today: read a tar with webdataset, write it with its ShardWriter."""
    import webdataset

    out = folder / f"rewritten{number}"
    out.mkdir()
    source = webdataset_of([folder / "source/images.tar"])
    with webdataset.ShardWriter(str(out / "s-%06d.tar"), maxsize=17e6, verbose=0) as sink:
        for sample in source:
            sink.write({k: v for k, v in sample.items() if k == "__key__" or not k.startswith("_")})


def plan(images: int = 1_580_470, classes: int = 81_313) -> dict[str, Any]:
    """Planning an epoch of GLDv2-clean's size in each order, and the memory it takes."""
    return _in_fresh_process(f"_plan({images}, {classes})")


def _plan(images: int, classes: int) -> dict[str, Any]:
    weight = np.random.default_rng(0).lognormal(2.4, 1.1, classes)
    size = np.maximum(1, np.floor(weight / weight.sum() * (images - classes))).astype(np.int64)
    size[np.argmax(size)] += images - size.sum()
    finest = np.repeat(np.arange(classes), size)
    labels = np.column_stack([finest // 1000, finest]).astype(np.int32)
    laid = plan_split(labels, 3e4 * images, split="train", run_length=16, shard_bytes=256e6, seed=0)
    shard = np.repeat(np.arange(len(laid.shards) - 1, dtype=np.int32), np.diff(laid.shards))
    samples = Samples(labels[laid.order], laid.runs, shard)
    tiny = np.arange(64)
    small = Samples(np.column_stack([tiny // 32, tiny // 8]), tiny // 8, tiny * 0)
    result: dict[str, Any] = {"images": len(finest), "classes": classes}
    for name, order, groups in (
        ("random", "random", None),
        ("shards", "shards", None),
        ("shards, 2 groups", "shards", 2),
    ):
        options = BatchOptions(64, 4, order=order, groups_per_batch=groups)  # type: ignore[arg-type]
        plan_epoch(small, replace(options, classes_per_batch=4), seed=0, epoch=0)  # loads the code
        start = time.process_time()
        steps = len(plan_epoch(samples, options, seed=0, epoch=0))
        seconds = time.process_time() - start
        tracemalloc.start()
        plan_epoch(samples, options, seed=0, epoch=0)
        most = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        result[name] = {"seconds": round(seconds, 2), "megabytes": round(most), "steps": steps}
    return result


def stream_memory(samples: int = 24_000) -> dict[str, Any]:
    """Memory of a stream reader above its size after imports, P = 64, K = 4, 20 KB an image.

    With batches of 2 of 24 supercategories too, whose runs wait open for others of theirs.
    """
    return _in_fresh_process(f"_stream_memory({samples})")


def _stream_memory(samples: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = make_source(folder / "source", samples, 320, groups=24)
        shards = write_shards(folder, "shards", tables)
        index = read_index(shards)
        found: dict[str, Any] = {"image_bytes": int(index["size_bytes"].mean())}
        for what, groups in (("any", None), ("2 groups", 2)):
            options = BatchOptions(64, 4, order="shards", groups_per_batch=groups)
            steps, grown = _in_child(partial(_read_an_epoch, shards, index, options))
            found[what] = {"steps": steps, "megabytes": round(grown)}
        return found


def _read_an_epoch(shards: Path, index: pd.DataFrame, options: BatchOptions) -> tuple[int, float]:
    """Steps, and the megabytes by which the process grew."""
    import torch

    from hgld.shards.load import BatchLoader

    def small(image: Image.Image) -> torch.Tensor:
        return torch.from_numpy(np.array(image.resize((8, 8))))

    reset_peak()
    before = status_kb("VmRSS")
    loader = BatchLoader(shards, index, small, options, seed=0, reader="stream")
    steps = sum(1 for _ in loader)
    return steps, (status_kb("VmHWM") - before) * 1024 / 1e6


def _in_child(work: Callable[[], Any]) -> Any:
    """What some work gives in a child, as a DataLoader's worker is: imports done, nothing read."""
    from hgld.shards.load import BatchLoader  # noqa: F401  loads torch before the fork

    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, json.dumps(work()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        return json.load(answer)


def _in_fresh_process(call: str) -> dict[str, Any]:
    code = f"import json; from tests.benchmarks import shards; print(json.dumps(shards.{call}))"
    return dict(from_process("-c", code))


def run(quick: bool = False) -> dict[str, Any]:
    """All measurements, name -> numbers; ``quick`` has fewer samples, and leaves out two."""
    warnings.simplefilter("ignore", ResourceWarning)
    if quick:
        return {
            "read": read(1500),
            "read_and_decode": [read_and_decode(300)],
            "class_batches": class_batches(1000),
            "export": export(3000),
        }
    benchmarks = read, class_batches, export, export_in_processes, plan, stream_memory
    found: dict[str, Any] = {benchmark.__name__: benchmark() for benchmark in benchmarks}
    decoded = [_in_fresh_process("read_and_decode()") for _ in range(PROCESSES)]
    return {**found, "read_and_decode": decoded, "read_large": read(3000, 330)}


def rows(quick: bool = False) -> list[Row]:
    """The measurements as rows of the table, with the bounds that they should keep."""
    found = run(quick)
    table = _rows_of_reading(found) + _rows_of_export(found)
    return table if quick else table + _rows_of_planning(found)


def _rows_of_reading(found: dict[str, Any]) -> list[Row]:
    table = []
    for name in ("read", "read_large"):
        if name not in found:
            continue
        size = f"{found[name]['image_bytes'] / 1e3:.0f} KB"
        of_raw, of_webdataset = found[name]["of raw"], found[name]["of webdataset"]
        of_pread = of_raw["at random"] / of_raw["pread alone, at random"]
        table += [
            Row(f"indexed reader in order, {size}, of raw", of_raw["in order"], "x", 0.4),
            Row(f"indexed reader at random, {size}, of bare pread", of_pread, "x", 0.7),
            Row("  bare pread at random, of raw", of_raw["pread alone, at random"], "x"),
            Row("  indexed reader at random, of webdataset", of_webdataset["at random"], "x", 20),
        ]
    decoded_of_memory, decoded_of_webdataset = (
        median(measured[name] for measured in found["read_and_decode"])
        for name in ("at random, of memory", "of webdataset rgb8")
    )
    return [
        *table,
        *rows_of_batches(found["class_batches"]),
        Row("reader + decode, of memory", decoded_of_memory, "x", 0.95),
        Row("reader + decode, of webdataset rgb8", decoded_of_webdataset, "x", 2),
    ]


def rows_of_batches(found: dict[str, Any] | None = None) -> list[Row]:
    """P x K batches through webdataset's own stages, against webdataset without classes."""
    of_plain = (found or class_batches())["of webdataset"]
    return [
        Row("P x K by webdataset, planned, of plain", of_plain["webdataset, planned"], "x", 0.8),
        Row("  as they come, of plain", of_plain["webdataset, as they come"], "x", 0.8),
        Row("  reader stream, of plain webdataset", of_plain["stream"], "x", 1),
    ]


def _rows_of_export(found: dict[str, Any]) -> list[Row]:
    written = found["export"]
    table = [
        Row("export, of webdataset", written["of webdataset"], "x", 2),
        Row("export, images checked", written["of webdataset, every image checked"], "x", 2),
    ]
    if "export_in_processes" in found:
        two = found["export_in_processes"]
        table += [
            Row("export, 2 processes, of one", two["2 processes, of one"], "x", 1.8),
            Row("  2 processes that only hash, of one", two["that only hash"], "x"),
            Row("  2 processes that only copy, of one", two["that only copy"], "x"),
        ]
    return table


def _rows_of_planning(found: dict[str, Any]) -> list[Row]:
    table = [
        Row(f"memory of a stream reader, {what}", held["megabytes"], "MB", most=300)
        for what, held in found["stream_memory"].items()
        if what != "image_bytes"
    ]
    for order in ("random", "shards", "shards, 2 groups"):
        planned = found["plan"][order]
        table += [
            Row(f"plan of GLDv2-clean, {order}", planned["seconds"], "s", most=5),
            Row("  its memory", planned["megabytes"], "MB", most=1000),
        ]
    return table


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
