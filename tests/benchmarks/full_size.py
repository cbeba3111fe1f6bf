"""GLDv2's data stages at its true size: ``python -m tests.benchmarks.full_size``.

Each stage works on the made world of its size in a process of its own, at 1 %, 10 % and 100 %:
seconds of the processor, elapsed time, peak of its memory, and the exponent with which the seconds
of the processor grow from 1 % and from 10 % to 100 %; what a process spends before its stage
starts, as on imports, does not count.
``collect`` is the first run, the headers of all tars included. ``export`` is all that comes before
the first photo is read. Needs 7 GB of disk below the temporary folder, for a few minutes; the part
``large collect``, of ten times GLDv2, needs 40 GB and a quarter of an hour.
"""

import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.benchmarks.meters import Row, from_process, reset_peak, status_kb

SHARES = (0.01, 0.1, 1.0)
BOUNDS = {
    "collect": (65.0, 1000.0), "label": (60.0, None), "plan": (10.0, 1000.0),
    "batches": (60.0, 1000.0), "large plan": (None, 4000.0), "large collect": (None, 4000.0),
}  # fmt: skip
LARGE = "50 million images"
AIMS = {"collect": 30.0, "plan": 5.0}  # elapsed, on two cores
OF = {"batches": "100 million images", **dict.fromkeys(("large plan", "large collect"), LARGE)}
# exponents; the batch plan of 1 % is in the processor's caches, that of 100 % is not
GROWTH = {**dict.fromkeys(BOUNDS, 1.1), "batches": 1.3}
MAKERS = {"large plan": "make large", "large collect": "make large set"}  # others: make
USUAL = ("collect", "label", "plan", "batches")


def rows(shares: tuple[float, ...] = SHARES, works: Sequence[str] = USUAL) -> list[Row]:
    """Seconds, megabytes and growth of each stage."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in works}
    with tempfile.TemporaryDirectory(prefix="hgld-full-size-") as name:
        for share in shares:
            folder = Path(name) / f"{share:g}"
            for work in (*dict.fromkeys(MAKERS.get(work, "make") for work in works), *works):
                measured = from_process(
                    "-m", "tests.benchmarks.full_size", work, folder, share, OMP_NUM_THREADS="1"
                )
                if work in found:
                    found[work].append(measured)
            shutil.rmtree(folder, ignore_errors=True)
    return [row for work, measured in found.items() for row in _rows_of(work, measured, shares)]


def _rows_of(work: str, measured: list[dict[str, float]], shares: tuple[float, ...]) -> list[Row]:
    last, size = measured[-1], f"{shares[-1]:.0%}"
    most_s, most_mb = BOUNDS[work] if shares[-1] == 1 else (None, None)
    found = [
        Row(f"{work} of {size} of {OF.get(work, 'GLDv2')}", last["seconds"], "s", most=most_s),
        Row(f"{work} of {size}: elapsed", last["wall"], "s", aim=AIMS.get(work)),
        Row(f"{work} of {size}: peak memory", last["megabytes"], "MB", most=most_mb),
    ]
    for start, most in ((0, GROWTH[work]), (-2, None))[: len(shares) - 1]:
        ratio = last["seconds"] / measured[start]["seconds"]
        growth = math.log(ratio) / math.log(shares[-1] / shares[start])
        found.append(Row(f"{work}: growth from {shares[start]:.0%}", growth, "^n", most=most))
    return found


def _make(folder: Path, share: float) -> None:
    from tests.full_size.made_world import make_world

    make_world(folder / "source", share)


def _collect(folder: Path, share: float, memory_gb: float = 1) -> None:
    """The stage as the runner runs it: tables made, checked and written."""
    from hgld.artifacts import ARTIFACTS
    from hgld.config import CollectOptions
    from hgld.sources.gldv2 import collect

    tables = collect(
        folder / "source", options=CollectOptions(memory_gb=memory_gb), context=_context(folder)
    )
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
    from hgld.shards.classes import number_classes
    from hgld.shards.export_plan import label_in_parts, write_plan
    from hgld.shards.write import plan_splits

    _start()
    options, state = ExportOptions(shard_megabytes=42), folder / "state"
    images = ARTIFACTS["images"].read_large(folder / "images.parquet")
    hierarchy = ARTIFACTS["hierarchy"].read(folder / "hierarchy.csv")
    labelled = label_in_parts(
        images, number_classes(hierarchy), None, options.licenses, source=folder / "source",
        dropped=state / "dropped",
    )  # fmt: skip
    write_plan(labelled, plan_splits(labelled, 1.0, options), state / "planned")


def _make_large(folder: Path, share: float) -> None:
    """The images of an export of 50 million, 20 a landmark, a third of a kilobyte each."""
    import pandas as pd
    import pyarrow as pa
    from pyarrow import parquet

    from hgld.artifacts import ARTIFACTS

    for name in ("source", "state"):
        (folder / name).mkdir(parents=True)
    (folder / "source" / "images.tar").touch()
    total, writer = round(50_000_000 * share), None
    for first in range(0, total, 1 << 20):
        number = pd.RangeIndex(first, min(first + (1 << 20), total)).to_series(index=None)
        texts = number.astype("str").str.zfill(16).reset_index(drop=True)
        part = pa.Table.from_pandas(pd.DataFrame({
            "image_id": texts, "split": "train",
            "landmark_id": number.to_numpy() * 7919 % (total // 20), "path": "images.tar",
            "offset": number.to_numpy() * 1_000, "size_bytes": 500,
            "author": "Photographer " + texts, "license": "CC0",
            "title": "File:Photo of a place, seen from the south " + texts + ".jpg",
            "url": "https://upload.wikimedia.org/wikipedia/commons/a/a4/A_photo_" + texts + ".jpg",
        }), preserve_index=False)  # fmt: skip
        writer = writer or parquet.ParquetWriter(folder / "images.parquet", part.schema)
        writer.write_table(part)
    assert writer is not None
    writer.close()
    paths = [json.dumps({"group": str(n % 97), "landmark": str(n)}) for n in range(total // 20)]
    hierarchy = pd.DataFrame({"split": "train", "landmark_id": range(len(paths)), "path": paths})
    ARTIFACTS["hierarchy"].write(hierarchy, folder / "hierarchy.csv")


def _make_large_set(folder: Path, share: float) -> None:
    """The lists of ten times GLDv2, 50 million photos; one in twenty is in a tar, for the disk."""
    from tests.full_size.made_world import make_world

    make_world(folder / "source", 10 * share, in_tars=0.05)


def _batches(folder: Path, share: float) -> None:
    """A rank's plan of an epoch of 100 million images, 20 a class, and 100 of its batches."""
    import numpy as np

    from hgld.shards.batches import BatchPlan, plan_epoch
    from hgld.shards.sampling import BatchOptions, Samples

    options = BatchOptions(64, 4)
    small = Samples.of_labels(np.repeat(np.arange(100, dtype=np.int32), 20)[:, None])
    plan_epoch(small, options, seed=0, epoch=0)  # compiles
    rows = round(100_000_000 * share)
    labels = np.random.default_rng(0).integers(0, rows // 20, (rows, 1), np.int32)
    samples = Samples.of_labels(labels)
    del labels  # the samples of so many are in a file
    _start()
    plan = BatchPlan(samples, options, seed=0)
    for step in range(100):
        plan.at(step)


WORKS: dict[str, Callable[[Path, float], None]] = {
    "collect": _collect, "label": _label, "plan": _plan, "batches": _batches,
    "large plan": _plan, "large collect": partial(_collect, memory_gb=4), "make": _make,
    "make large": _make_large, "make large set": _make_large_set,
}  # fmt: skip
_started = [0.0, 0.0]


def _start() -> None:
    """What comes before does not count: it makes the input."""
    reset_peak()
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
    WORKS[work](folder, share)
    seconds, wall = time.process_time() - _started[0], time.perf_counter() - _started[1]
    print(json.dumps({"seconds": seconds, "wall": wall, "megabytes": status_kb("VmHWM") / 1e3}))


if __name__ == "__main__":
    main()
