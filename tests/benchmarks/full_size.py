"""GLDv2's data stages at its true size: ``python -m tests.benchmarks.full_size``.

Each stage works on the made world of its size in a process of its own, at 1 %, 10 % and 100 %:
seconds of the processor, peak of its memory, and the exponent with which the seconds grow from
1 % and from 10 % to 100 %; what a process spends before its stage starts, as on imports, does not
count.
``collect`` is the first run, the headers of all tars included. ``export`` is all that comes before
the first photo is read. Needs 7 GB of disk below the temporary folder, for a few minutes.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.measures import Row

__all__ = ["rows"]

SHARES = (0.01, 0.1, 1.0)
BOUNDS = {"collect": (120.0, 4000.0), "label": (60.0, None), "plan": (60.0, None)}
GROWTH = 1.1


def rows(shares: tuple[float, ...] = SHARES) -> list[Row]:
    """Seconds, megabytes and growth of each stage."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WORKS}
    with tempfile.TemporaryDirectory(prefix="hgld-full-size-") as name:
        for share in shares:
            folder = Path(name) / f"{share:g}"
            for work in ("make", *WORKS):
                measured = _in_a_process(work, folder, share)
                if work in found:
                    found[work].append(measured)
            shutil.rmtree(folder)
    return [row for work, measured in found.items() for row in _rows_of(work, measured, shares)]


def _rows_of(work: str, measured: list[dict[str, float]], shares: tuple[float, ...]) -> list[Row]:
    last, size = measured[-1], f"{shares[-1]:.0%}"
    most_s, most_mb = BOUNDS[work] if shares[-1] == 1 else (None, None)
    found = [
        Row(f"{work} of {size} of GLDv2", last["seconds"], "s", most=most_s),
        Row(f"{work} of {size}: peak memory", last["megabytes"], "MB", most=most_mb),
    ]
    for start, most in ((0, GROWTH), (-2, None))[: len(shares) - 1]:
        ratio = last["seconds"] / measured[start]["seconds"]
        growth = math.log(ratio) / math.log(shares[-1] / shares[start])
        found.append(Row(f"{work}: growth from {shares[start]:.0%}", growth, "^n", most=most))
    return found


def _in_a_process(work: str, folder: Path, share: float) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.full_size", work, str(folder), str(share)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return dict(json.loads(done.stdout))


def _make(folder: Path, share: float) -> None:
    from tests.full_size.made_world import make_world

    make_world(folder / "source", share)


def _collect(folder: Path, share: float) -> None:
    """The stage as the runner runs it: tables made, checked and written."""
    from hgld.artifacts import ARTIFACTS
    from hgld.config import CollectOptions
    from hgld.sources.gldv2 import collect

    tables = collect(folder / "source", options=CollectOptions(), context=_context(folder))
    for name, table in zip(
        ("landmarks", "images", "queries", "images_dropped"), tables, strict=True
    ):
        ARTIFACTS[name].write(table, folder / ARTIFACTS[name].file)


def _label(folder: Path, share: float) -> None:
    from hgld.artifacts import ARTIFACTS
    from hgld.config import LabelOptions
    from hgld.hierarchy.label import build_labels
    from tests.full_size.made_words import make_words

    landmarks = ARTIFACTS["landmarks"].read(folder / "landmarks.csv")
    words = make_words(landmarks, share)
    _start()
    tables = build_labels(landmarks, *words, options=LabelOptions(), context=_context(folder))
    names = ("train_labels", "index_labels", "hierarchy", "lineage", "label_dropped")
    for name, table in zip(names, tables, strict=True):
        ARTIFACTS[name].write(table, folder / ARTIFACTS[name].file)


def _plan(folder: Path, share: float) -> None:
    """All that export does before it reads a photo, on every clean and index photo with a label.

    The made photos are small, so shards are too: as many as real photos of short side 256 fill.
    """
    from hgld.artifacts import ARTIFACTS
    from hgld.config import ExportOptions
    from hgld.shards import write
    from hgld.shards.classes import number_classes
    from hgld.shards.shard_plan import withhold

    options, source = ExportOptions(shard_megabytes=42), folder / "source"
    images = ARTIFACTS["images"].read(folder / "images.parquet")
    hierarchy = ARTIFACTS["hierarchy"].read(folder / "hierarchy.csv")
    classes = number_classes(hierarchy)
    images, _ = withhold(images, None, options.licenses)
    labelled, _ = write._label(images, classes)
    del images
    write._require_files(labelled["path"], source)
    samples = write.plan_shards(
        labelled.assign(expected_bytes=labelled["size_bytes"]), run_length=options.run_length,
        shard_bytes=options.shard_megabytes * 1e6, seed=options.seed,
    )  # fmt: skip
    labels_hash = write._hash_table(hierarchy.sort_values(["split", "landmark_id"]))
    write._hash_input(samples, labels_hash, source, options)
    write._cut_tasks(samples, classes, labels_hash, source, folder, folder / "state", options)


WORKS: dict[str, Callable[[Path, float], None]] = {
    "collect": _collect, "label": _label, "plan": _plan,
}  # fmt: skip
_started = [0.0, 0.0]


def _start() -> None:
    """What comes before does not count: it makes the input."""
    Path("/proc/self/clear_refs").write_text("5")
    _started[:] = time.process_time(), time.perf_counter()


def _context(folder: Path):
    from hgld.config import SourceOptions, StageContext

    source = SourceOptions(folder=folder / "source")
    return StageContext("2026-11-21", folder / "state", source, folder / "labels")


def main() -> None:
    """One work of a process of its own, or all of them as a table."""
    if len(sys.argv) == 1:
        from tests.benchmarks.__main__ import show

        for row in rows():
            show(row)
        return
    work, folder, share = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    _start()
    {**WORKS, "make": _make}[work](folder, share)
    seconds, wall = time.process_time() - _started[0], time.perf_counter() - _started[1]
    status = Path("/proc/self/status").read_text()  # getrusage counts the parent's memory too
    megabytes = int(status.split("VmHWM:")[1].split()[0]) / 1e3
    print(json.dumps({"seconds": seconds, "wall": wall, "megabytes": megabytes}))


if __name__ == "__main__":
    main()
