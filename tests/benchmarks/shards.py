"""Measures the shards: reading, decoding, writing, planning, memory.

Each function returns plain numbers; ratios are of methods that ran in turns in one process, each
by the least CPU time of its rounds. ``python -m tests.benchmarks.shards`` prints all of them.
"""

import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from PIL import Image

from hgld.config import ExportOptions, SourceOptions, StageContext
from hgld.shards import export_shards, read_index
from hgld.shards.batches import BatchOptions, Samples, plan_epoch
from hgld.shards.jpeg import decode_pixels
from hgld.shards.plan import plan_shards

if TYPE_CHECKING:
    from hgld.shards.read import ShardImages
    from tests.benchmarks.measures import Row

__all__ = [
    "export",
    "export_in_processes",
    "plan",
    "read",
    "read_and_decode",
    "rows",
    "run",
    "stream_memory",
]

ROUNDS = 3
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


def make_source(folder: Path, samples: int, side: int = 224) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A tar as webdataset reads it, and the tables that export takes; 20 images a class."""
    photos = [draw_photo(seed, side) for seed in range(200)]
    rows = []
    folder.mkdir(parents=True)
    with tarfile.open(folder / "images.tar", "w") as tar:
        for i in range(samples):
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
    paths = [
        json.dumps({"kind": f"k{n % 2}", "supercategory": f"s{n % 8}", "landmark": f"train:{n}"})
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


def webdataset_of(files: list[Path], decode: str = "") -> Any:
    """The same shards as webdataset reads them."""
    import webdataset

    dataset = webdataset.WebDataset([str(file) for file in files], shardshuffle=False)
    return dataset.decode(decode) if decode else dataset


def compare(
    methods: dict[str, Callable[[], object]], clock: Callable[[], float]
) -> dict[str, float]:
    """Least seconds of each method over the rounds, in turns."""
    least = dict.fromkeys(methods, float("inf"))
    for _ in range(ROUNDS):
        for name, method in methods.items():
            start = clock()
            method()
            least[name] = min(least[name], clock() - start)
    return least


def read(samples: int = 4500, side: int = 224) -> dict[str, Any]:
    """JPEG bytes only, page cache, no DataLoader: the indexed reader, the raw file, webdataset."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        shards = write_shards(folder, "shards", make_source(folder / "source", samples, side))
        index = read_index(shards)
        images = open_images(shards)
        files = sorted(shards.glob("*.tar"))
        total = sum(file.stat().st_size for file in files)
        order = np.random.default_rng(0).permutation(len(index)).tolist()
        preads = stack.enter_context(_calls(shards, index.iloc[order]))
        least = compare(
            {
                "raw": lambda: _read_raw(files),
                "indexed, in order": lambda: _read_in_order(images),
                "indexed, at random": lambda: _read_each(images, order),
                "pread alone, at random": lambda: _pread_each(preads),
                "webdataset": lambda: _count(webdataset_of(files)),
            },
            time.thread_time,
        )
        speed = {method: total / seconds / 1e6 for method, seconds in least.items()}
        return {
            "image_bytes": int(index["size_bytes"].mean()),
            "megabytes_per_s": {method: round(value) for method, value in speed.items()},
            "in order, of raw": round(speed["indexed, in order"] / speed["raw"], 3),
            "at random, of raw": round(speed["indexed, at random"] / speed["raw"], 3),
            "at random, of pread alone": round(
                speed["indexed, at random"] / speed["pread alone, at random"], 3
            ),
            "in order, of webdataset": round(speed["indexed, in order"] / speed["webdataset"], 1),
            "at random, of webdataset": round(speed["indexed, at random"] / speed["webdataset"], 1),
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
        least = compare(
            {
                "memory": lambda: [decode_pixels(data) for data in held] and None,
                "memory, at random": lambda: [decode_pixels(held[i]) for i in order] and None,
                "in order": lambda: (
                    [decode_pixels(d) for _, d in images.iterate(range(samples))] and None
                ),
                "at random": lambda: [decode_pixels(images.read_bytes(i)) for i in order] and None,
                "webdataset": lambda: _count(webdataset_of(files, "rgb8")),
            },
            time.thread_time,
        )
        micros = {method: round(seconds / samples * 1e6) for method, seconds in least.items()}
        return {
            "microseconds_per_image": micros,
            "in order, of memory": round(least["memory"] / least["in order"], 3),
            "at random, of memory": round(least["memory, at random"] / least["at random"], 3),
            "of webdataset rgb8": round(least["webdataset"] / least["at random"], 2),
        }


def export(samples: int = 4500) -> dict[str, Any]:
    """Export without re-encoding against webdataset's reader and ShardWriter (wall clock)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = make_source(folder / "source", samples)
        count = iter(range(10**6))

        def ours(**options: Any) -> Callable[[], object]:
            return lambda: write_shards(folder, f"out{next(count)}", tables, **options)

        least = compare(
            {
                "hgld": ours(decode_all=False),
                "hgld, every image checked": ours(),
                "webdataset": lambda: _rewrite(folder, next(count)),
            },
            time.perf_counter,
        )
        return {
            "microseconds_per_sample": {m: round(s / samples * 1e6) for m, s in least.items()},
            "of webdataset": round(least["webdataset"] / least["hgld"], 2),
            "of webdataset, every image checked": round(
                least["webdataset"] / least["hgld, every image checked"], 2
            ),
        }


def export_in_processes(samples: int = 60_000) -> dict[str, Any]:
    """The same with two processes against one (wall clock, start-up included, once)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = make_source(folder / "source", samples)
        seconds = {}
        for processes in (1, 2):
            start = time.perf_counter()
            write_shards(folder, f"of{processes}", tables, decode_all=False, processes=processes)
            seconds[processes] = time.perf_counter() - start
        return {
            "seconds": {count: round(value, 2) for count, value in seconds.items()},
            "2 processes, of one": round(seconds[1] / seconds[2], 2),
        }


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
    table = pd.DataFrame(
        {
            "split": "train",
            "image_id": np.char.mod("%07d", np.arange(images)),
            "level_1": finest // 1000,
            "level_2": finest,
            "expected_bytes": 3e4,
        }
    )
    table = plan_shards(table, run_length=16, shard_bytes=256e6, seed=0)
    samples = Samples.of_index(table)
    del table
    small = Samples(np.arange(64)[:, None] // 8, np.arange(64) // 8, np.zeros(64, np.int64))
    result: dict[str, Any] = {"images": len(finest), "classes": classes}
    for order in ("random", "shards"):
        options = BatchOptions(64, 4, order=order)  # type: ignore[arg-type]
        plan_epoch(small, BatchOptions(4, 4, order=order), seed=0, epoch=0)  # type: ignore[arg-type]
        start = time.process_time()
        steps = len(plan_epoch(samples, options, seed=0, epoch=0))
        seconds = time.process_time() - start
        tracemalloc.start()
        plan_epoch(samples, options, seed=0, epoch=0)
        most = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        result[order] = {"seconds": round(seconds, 2), "megabytes": round(most), "steps": steps}
    return result


def stream_memory(samples: int = 24_000) -> dict[str, Any]:
    """Memory of a stream reader above its size after imports, P = 64, K = 4, 28 KB an image."""
    return _in_fresh_process(f"_stream_memory({samples})")


def _stream_memory(samples: int) -> dict[str, Any]:
    import torch

    from hgld.shards.load import BatchLoader

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards = write_shards(folder, "shards", make_source(folder / "source", samples, 320))
        index = read_index(shards)
        options = BatchOptions(64, 4, order="shards")

        def small(image: Image.Image) -> torch.Tensor:
            return torch.from_numpy(np.array(image.resize((8, 8))))

        child = os.fork()
        if child == 0:  # as a DataLoader's worker is: imports done, nothing read
            _reset_peak()
            before = _memory("VmRSS")
            loader = BatchLoader(shards, index, small, options, seed=0, reader="stream")
            steps = sum(1 for _ in loader)
            grown = (_memory("VmHWM") - before) / 1e6
            (folder / "result").write_text(json.dumps([steps, grown]))
            os._exit(0)
        os.waitpid(child, 0)
        steps, grown = json.loads((folder / "result").read_text())
        mean = int(index["size_bytes"].mean())
        return {"steps": steps, "image_bytes": mean, "megabytes": round(grown)}


def _in_fresh_process(call: str) -> dict[str, Any]:
    code = f"import json; from tests.benchmarks import shards; print(json.dumps(shards.{call}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _memory(field: str) -> int:
    """VmRSS or VmHWM of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run() -> dict[str, Any]:
    """All measurements, name -> numbers."""
    warnings.simplefilter("ignore", ResourceWarning)
    benchmarks = (read, read_and_decode, export, export_in_processes, plan, stream_memory)
    return {benchmark.__name__: benchmark() for benchmark in benchmarks}


def rows() -> "list[Row]":
    """The measurements as rows of the table, with the bounds that they should keep."""
    from tests.benchmarks.measures import Row  # loads torch, which no exporting process should

    found = run()
    small, decoded, written = found["read"], found["read_and_decode"], found["export"]
    kilobytes = f"{small['image_bytes'] / 1e3:.0f} KB"
    table = [
        Row(f"indexed reader at random, {kilobytes}, of raw", small["at random, of raw"], "x", 0.4),
        Row("  of pread alone", small["at random, of pread alone"], "x"),
        Row("  of webdataset", small["at random, of webdataset"], "x", 20),
        Row("indexed reader in order, of raw", small["in order, of raw"], "x", 0.4),
        Row("reader + decode, of memory", decoded["at random, of memory"], "x", 0.95),
        Row("reader + decode, of webdataset rgb8", decoded["of webdataset rgb8"], "x", 2),
        Row("export, of webdataset", written["of webdataset"], "x", 2),
        Row("export, images checked", written["of webdataset, every image checked"], "x", 2),
        Row(
            "export, 2 processes, of one",
            found["export_in_processes"]["2 processes, of one"],
            "x",
            1.8,
        ),
        Row("memory of a stream reader", found["stream_memory"]["megabytes"], "MB", most=300),
    ]
    for order in ("random", "shards"):
        planned = found["plan"][order]
        table += [
            Row(f"plan of GLDv2-clean, {order}", planned["seconds"], "s", most=5),
            Row("  its memory", planned["megabytes"], "MB", most=1000),
        ]
    return table


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
