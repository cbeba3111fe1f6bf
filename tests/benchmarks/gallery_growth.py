"""Growth of the exact ranking, and of the whole ``evaluate`` stage, from 1 to 40 million images.

Each size is measured in a process of its own, from mapped files, in parts of one size. Memory is
that which the system cannot drop (RssAnon); time is CPU time, since other work shares the machine.
The stage reads the index of made shards, whose embeddings are kept from an earlier run. Up to 16.7
million images have curves.
"""

import io
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

from hgld.artifacts import hash_file, write_sealed
from hgld.config import EvaluateOptions, SourceOptions, StageContext
from hgld.evaluate import evaluate_models
from hgld.evaluate.embeddings import EmbeddingStore
from hgld.evaluate.models import find_models
from hgld.evaluate.sides import Shards
from hgld.ranking.evaluation import rank_blocks
from hgld.ranking.kernels import device
from hgld.ranking.rankings import measure
from tests.benchmarks.meters import Row, from_process, status_kb

DIM, QUERIES, PART = 16, 4, 1 << 18
METRICS = ("H-AP", "NDCG", "ASI", "AP:1", "AP:3", "R@1")
STEP = 1 << 20
SHARD = 8000  # images of a made shard; a divisor of all sizes
OPTIONS = EvaluateOptions(
    query="test", gallery="index", models={"made": "offline:efficientnet-lite0"}, device="cpu"
)


def make_gallery(folder: Path, images: int) -> None:
    """Write unit vectors, and labels of 2 x 50 x 1,000 classes, in blocks."""
    open_new = np.lib.format.open_memmap
    vectors = open_new(folder / "vectors.npy", "w+", np.float32, (images, DIM))
    labels = open_new(folder / "labels.npy", "w+", np.int32, (images, 3))
    for start in range(0, images, STEP):
        chance, here = np.random.default_rng(start), slice(start, start + STEP)
        classes = chance.integers(0, 100_000, len(labels[here]))
        labels[here] = np.stack([classes // 50_000, classes // 1000, classes], 1)
        block = chance.standard_normal((len(classes), DIM), np.float32)
        vectors[here] = block / np.linalg.norm(block, axis=1, keepdims=True)


def rank_gallery_file(folder: Path, images: int, part: int | None = PART) -> dict[str, float]:
    """Measure the first queries against the first images of a gallery on disk."""
    vectors, labels = (
        torch.from_numpy(np.lib.format.open_memmap(folder / f"{name}.npy", "c")[:images])
        for name in ("vectors", "labels")
    )
    given = vectors[:QUERIES].clone(), labels[:QUERIES].clone(), vectors, labels
    return measure(rank_blocks(*given, exclude_self=True, part=part), METRICS).mean()


def make_shards(folder: Path, images: int) -> Path:
    """Write index and manifest of shards: one of the queries, others of the first images."""
    shards = folder / f"shards-{images}"
    shards.mkdir()
    labels = np.lib.format.open_memmap(folder / "labels.npy", "r")
    cuts = [("test", 0, QUERIES)]
    cuts += [("index", start, min(start + SHARD, images)) for start in range(0, images, SHARD)]
    tables = (
        index_rows(split, f"{split}-{number:06}.tar", start, labels[start:stop])
        for number, (split, start, stop) in enumerate(cuts)
    )
    write_index(shards, tables)
    return shards


def write_index(shards: Path, tables: Iterable[pa.Table]) -> None:
    """Write index and manifest of the rows of each shard."""
    facts, writer = [], None
    for table in tables:
        writer = writer or parquet.ParquetWriter(shards / "index.parquet", table.schema)
        writer.write_table(table)
        split, name = (table[column][0].as_py() for column in ("split", "shard"))
        about = {"file": name, "split": split, "sha256": name, "bytes": len(table) << 11}
        facts.append({**about, "samples": len(table), "runs": len(table["run"].unique())})
    assert writer is not None
    writer.close()
    manifest = {"levels": ["kind", "supercategory", "landmark"], "splits": {}, "shards": facts}
    manifest["index_sha256"] = hash_file(shards / "index.parquet")
    (shards / "manifest.json").write_text(json.dumps(manifest))


def index_rows(split: str, shard: str, start: int, labels: np.ndarray) -> pa.Table:
    """Rows of a shard: each image is a run, without credits and hashes, which are not read."""
    count, numbers = len(labels), np.arange(len(labels))
    digits = np.random.default_rng(start).bytes(8 * count).hex()
    names = pa.array(np.frombuffer(digits.encode(), "S16")).cast(pa.string())
    same = {"size_bytes": 1000, "json_size": 0, "width": 8, "height": 8, "extent_bytes": 2048}
    return pa.table({
        "key": names, "image_id": names, "split": [split] * count, "landmark_id": labels[:, 2],
        "shard": [shard] * count, "offset": numbers * 2048 + 512, "json_offset": numbers * 2048,
        "run": numbers, "extent_start": numbers * 2048, "crc32": numbers, "image_crc32": numbers,
        **{name: np.full(count, value) for name, value in same.items()},
        **{f"level_{level + 1}": labels[:, level] for level in range(3)},
    })  # fmt: skip


def make_embeddings(folder: Path, shards: Path) -> None:
    """Write the vectors as the stage keeps those that it has computed."""
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "r")
    store, found = EmbeddingStore(folder / "state", OPTIONS), Shards.read(shards)
    (model,) = find_models(OPTIONS.models, folder)
    for split in ("test", "index"):
        stop = 0
        for task in store._tasks(model, store._key(model), found.side(split)):
            start, stop, buffer = stop, stop + len(task.rows), io.BytesIO()
            np.save(buffer, vectors[start:stop])
            write_sealed(task.path, buffer.getbuffer(), task.holds, durable=False)


def evaluate_shards(folder: Path, images: int) -> dict[str, float]:
    """Run the stage on the shards of so many images; all are embedded."""
    context = StageContext(
        "2026-01-01", folder / "state", SourceOptions(folder=folder), folder / "labels"
    )
    report, _ = evaluate_models(
        folder / f"shards-{images}", folder, options=OPTIONS, context=context, out=folder / "ranked"
    )
    means: dict[str, float] = report["models"]["made"]["mean"]
    return means


WORKS = {"ranking": rank_gallery_file, "stage": evaluate_shards}


def rows(sizes: tuple[int, ...] = (1_000_000, 4_000_000, 16_000_000, 40_000_000)) -> list[Row]:
    """CPU seconds and memory at each size; their growth over all sizes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_gallery(folder, sizes[-1])
        *_, largest = [make_shards(folder, images) for images in (SHARD, *sizes)]
        make_embeddings(folder, largest)
        found = {
            work: [from_process("-m", __name__, folder, images, work) for images in sizes]
            for work in WORKS
        }
    of, table = f"{QUERIES} queries, {sizes[0]:,} to {sizes[-1]:,} images", list[Row]()
    for work, name, bound in (("ranking", "ranking", ""), ("stage", "evaluate stage,", ", stage")):
        pairs, (first, *_, last) = list(zip(sizes, found[work], strict=True)), found[work]
        exponent = math.log(last["cpu_s"] / first["cpu_s"]) / math.log(sizes[-1] / sizes[0])
        table += [Row(f"{name} {n:,} images in parts", f["cpu_s"], "s CPU") for n, f in pairs]
        table += [Row(f"{name} {n:,} images in parts, wall", f["wall_s"], "s") for n, f in pairs]
        table += [Row(f"{name} {n:,} images, memory", f["anonymous_mb"], "MB") for n, f in pairs]
        table.append(Row(f"growth of time{bound}, {of}", exponent, "exponent", most=1.05))
    held = {work: [facts["anonymous_mb"] for facts in found[work]] for work in WORKS}
    return [*table, *memory_rows(held["ranking"], held["stage"], sizes, of)]


def memory_rows(
    ranking: list[float], stage: list[float], sizes: tuple[int, ...], of: str
) -> list[Row]:
    """Growth of the memory, given in MB at each size.

    Curves are measured below the last size, so the stage may need most between the two.
    """
    each = (stage[-1] - stage[0]) * 2**20 / (sizes[-1] - sizes[0])
    spread = max(stage) / min(stage)
    return [
        Row(f"growth of memory, {of}", ranking[-1] / ranking[0], "x", most=1.1),
        Row(f"growth of memory, stage, largest over smallest, {of}", spread, "x", most=1.3),
        Row(f"largest memory, stage, {of}", max(stage), "MB", most=1000),
        Row(f"memory of each further image, stage, {of}", each, "B", most=8),
    ]


@contextmanager
def watched() -> Iterator[list[float]]:
    """Add the MB that the system cannot drop to the list every 20 ms."""
    stop, found = Event(), [0.0]

    def watch() -> None:
        while not stop.wait(0.02):
            found.append(status_kb("RssAnon") / 1024)

    thread = Thread(target=watch, daemon=True)
    thread.start()
    yield found
    stop.set()
    thread.join()


def main() -> None:
    """Print seconds, memory and metrics of one size as JSON."""
    folder, images, work = Path(sys.argv[1]), int(sys.argv[2]), WORKS[sys.argv[3]]
    torch.set_num_threads(1)
    device.PART_IMAGES = PART
    rank_gallery_file(folder, 2 * PART)  # compiles
    work(folder, SHARD)
    with watched() as peak:
        cpu, wall = time.process_time(), time.perf_counter()
        means = work(folder, images)
        spent = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
    print(json.dumps({**spent, "anonymous_mb": max(peak), "means": means}))


if __name__ == "__main__":
    main()
