"""Growth of the exact ranking from 1 to 40 million gallery images: time and memory.

Each size is ranked in a process of its own, from mapped files, in parts of one size. Memory is that
which the system cannot drop (RssAnon); time is CPU time, since other work shares the machine.
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

import numpy as np
import torch

from hgld.ranking.evaluation import rank_blocks
from hgld.ranking.rankings import measure
from tests.benchmarks.measures import Row

__all__ = ["make_gallery", "rank_gallery_file", "rows"]

DIM, QUERIES, PART = 16, 4, 1 << 18
METRICS = ("H-AP", "NDCG", "ASI", "AP:1", "AP:3", "R@1")
STEP = 1 << 20


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


def rows(sizes: tuple[int, ...] = (1_000_000, 4_000_000, 16_000_000, 40_000_000)) -> list[Row]:
    """CPU seconds and memory at each size; the exponent and the ratio over all sizes."""
    with tempfile.TemporaryDirectory() as folder:
        make_gallery(Path(folder), sizes[-1])
        found = []
        for images in sizes:
            command = [sys.executable, "-m", __name__, folder, str(images)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found.append(json.loads(done.stdout))
    pairs = list(zip(sizes, found, strict=True))
    exponent = math.log(found[-1]["cpu_s"] / found[0]["cpu_s"]) / math.log(sizes[-1] / sizes[0])
    memory = found[-1]["anonymous_mb"] / found[0]["anonymous_mb"]
    of = f"{QUERIES} queries, {sizes[0]:,} to {sizes[-1]:,} images"
    return [
        *(Row(f"ranking {n:,} images in parts", f["cpu_s"], "s CPU") for n, f in pairs),
        *(Row(f"ranking {n:,} images in parts, wall", f["wall_s"], "s") for n, f in pairs),
        *(Row(f"ranking {n:,} images, memory", f["anonymous_mb"], "MB") for n, f in pairs),
        Row(f"growth of time, {of}", exponent, "exponent", most=1.05),
        Row(f"growth of memory, {of}", memory, "x", most=1.1),
    ]


def _watch(stop: Event, peak: list[float]) -> None:
    while not stop.wait(0.02):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("RssAnon"))
        peak.append(int(kilobytes) / 1024)


def main() -> None:
    """Print seconds, memory and metrics of one size as JSON."""
    folder, images = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    rank_gallery_file(folder, 2 * PART)  # compiles
    stop, peak = Event(), [0.0]
    watch = Thread(target=_watch, args=(stop, peak))
    watch.start()
    cpu, wall = time.process_time(), time.perf_counter()
    means = rank_gallery_file(folder, images)
    spent = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
    stop.set()
    watch.join()
    print(json.dumps({**spent, "anonymous_mb": max(peak), "means": means}))


if __name__ == "__main__":
    main()
