"""Plan an export out of core: which images are exported, and the samples of each shard.

Of an image only numbers are held in memory: the row of its class and its place in the shards. They
say where its texts go, so these need no sort. The table is read in parts, each part is cut into
pieces on disk by the place of its rows, and a few shards are put together at a time. A sort of the
same rows by DuckDB takes three times the CPU time.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from hgld.artifacts import BOX, LargeTable, columns_of
from hgld.errors import InvalidData
from hgld.shards.classes import Classes
from hgld.shards.shard_plan import (
    DROPPED,
    SplitPlan,
    removals_of,
    report_strange,
    shard_name,
    split_permitted,
)
from hgld.words import level_noun

PART = 1 << 18  # rows whose texts are held at a time
PACKED = pa.ipc.IpcWriteOptions(compression="lz4")
SEEN = 1 << 20  # source files that are remembered as existing


@dataclass(frozen=True)
class PlannedShard:
    """The samples of one shard: a range of bytes in the file of a plan."""

    file: str
    plan: Path
    offset: int
    size_bytes: int

    def read(self) -> pd.DataFrame:
        """Read columns of images, level_1 .., name_1 .., shard and run, in the order of writing."""
        with self.plan.open("rb") as file:
            file.seek(self.offset)
            stream = pa.ipc.open_stream(file.read(self.size_bytes))
        samples: pd.DataFrame = stream.read_pandas()
        return samples


@dataclass(frozen=True)
class LabelledImages:
    """The classes of the images of a table, by row.

    Attributes:
        images: sorted by split and image_id.
        classes: of all landmarks.
        landmarks: (N,) row of ``classes.landmarks``; -1: the image is left out.
        splits: split -> its rows.
        size_bytes: split -> bytes of its images that are not left out.
        reasons: how many images are left out for each reason.
    """

    images: LargeTable
    classes: Classes
    landmarks: np.ndarray
    splits: dict[str, slice]
    size_bytes: Counter[str]
    reasons: Counter[str]

    def rows_of(self, split: str) -> np.ndarray:
        """(M,) rows of the images of a split that are not left out."""
        part = self.splits[split]
        rows = np.flatnonzero(self.landmarks[part] >= 0) + part.start
        return np.asarray(rows, np.int32 if len(self.landmarks) < 1 << 31 else np.int64)

    def take(self, rows: np.ndarray, columns: Sequence[str]) -> pd.DataFrame:
        """Read a few rows, given in ascending order."""
        parts, start = [], 0
        for batch in self.images.batches(columns):
            first, last = np.searchsorted(rows, [start, start + len(batch)])
            parts.append(batch.take(pa.array(rows[first:last] - start)))
            start += len(batch)
        found: pd.DataFrame = pa.Table.from_batches(parts).to_pandas()
        return found


def label_in_parts(
    images: LargeTable,
    classes: Classes,
    removals: pd.DataFrame | None,
    licenses: Sequence[str],
    *,
    source: Path,
    dropped: Path,
) -> LabelledImages:
    """Find the class of each image; leave out those without one, and those without permission.

    Args:
        images: sorted by split and image_id.
        classes: of all landmarks.
        removals: images to leave out (image_id, why).
        licenses: patterns of those that may be exported.
        source: folder that the images' paths are relative to.
        dropped: path of the new Parquet file of the images that are left out, each with its reason.

    Raises:
        InvalidData: a source file is missing.
    """
    why, files = removals_of(removals), _SourceFiles(source)
    finest = level_noun(classes.levels[-1])
    strange = dict.fromkeys(why)
    landmarks, bounds, at = [np.empty(0, np.int32)], dict[str, slice](), 0
    sizes, reasons = Counter[str](), Counter[str]()
    schema = pa.schema([(name, pa.string()) for name in DROPPED])
    columns = ["split", "image_id", "landmark_id", "license", "size_bytes", "path"]
    with parquet.ParquetWriter(dropped, schema) as writer:
        for batch in images.batches(columns, PART):
            rows = batch.to_pandas()
            for image_id in rows.loc[rows["image_id"].isin(list(strange)), "image_id"]:
                strange.pop(image_id, None)
            allowed, left_out = split_permitted(rows, why, licenses)
            found = np.full(len(rows), -1, np.int32)
            for split, places in rows.groupby("split").indices.items():
                found[places] = classes.find(split, rows["landmark_id"].to_numpy()[places])
                first = bounds.get(split, slice(at + int(places[0]), 0)).start
                bounds[split] = slice(first, at + int(places[-1]) + 1)
            found[left_out.index] = -1
            unlabelled = allowed[found[allowed.index] < 0]
            detail = (
                f"{finest} " + unlabelled["landmark_id"].astype("str") + " has no hierarchy row"
            )
            unlabelled = unlabelled.assign(reason="unlabelled", detail=detail)[DROPPED]
            left_out = pd.concat([left_out, unlabelled]).sort_index()
            labelled = rows.loc[found >= 0, ["split", "size_bytes", "path"]]
            files.require(labelled["path"])
            for split, size in labelled.groupby("split")["size_bytes"].sum().items():
                sizes[str(split)] += int(size)
            for reason, count in left_out["reason"].value_counts().items():
                reasons[str(reason)] += int(count)
            writer.write_table(pa.Table.from_pandas(left_out, schema, preserve_index=False))
            landmarks.append(found)
            at += len(rows)
    report_strange(why, list(strange))
    files.report_missing()
    found = np.concatenate(landmarks)
    splits = {split: bounds[split] for split in sorted(bounds) if (found[bounds[split]] >= 0).any()}
    return LabelledImages(images, classes, found, splits, sizes, reasons)


class _SourceFiles:
    """Check of the files that hold the images."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._seen: set[str] = set()
        self._missing: list[str] = []
        self._count = 0

    def require(self, paths: "pd.Series[str]") -> None:
        new = set(paths.unique()) - self._seen
        if len(self._seen) > SEEN:  # of a file an image each comes once
            self._seen.clear()
        self._seen |= new
        self._count += len(new)
        self._missing += [path for path in new if not (self._source / path).is_file()]

    def report_missing(self) -> None:
        """Raise for the first missing file, if there is one."""
        if self._missing:
            raise InvalidData(
                f"{self._source / min(self._missing)}: no such file ({len(self._missing)} of "
                f"{self._count} that images.parquet names); bring it back, or run collect again to "
                "list what is there"
            )


def write_plan(
    labelled: LabelledImages, plans: Mapping[str, SplitPlan], path: Path
) -> tuple[list[PlannedShard], str]:
    """Write the samples of all shards to one file; return the shards, and the file's SHA-256.

    Args:
        labelled: the images.
        plans: of each split, of the rows that are not left out.
        path: of the new file.
    """
    total = sum(len(plan.order) for plan in plans.values())
    place = np.full(len(labelled.landmarks), -1, np.int32 if total < 1 << 31 else np.int64)
    names, bounds, runs = list[str](), [0], list[np.ndarray]()
    for split, plan in plans.items():
        start, rows = bounds[-1], labelled.rows_of(split)[plan.order]
        place[rows] = np.arange(start, start + len(rows), dtype=place.dtype)
        del rows  # as large as the order
        names += [shard_name(split, number) for number in range(len(plan.shards) - 1)]
        bounds += (plan.shards[1:] + start).tolist()
        runs += np.split(plan.runs, plan.shards[1:-1])
    without_key = labelled.classes.landmarks.drop(columns=["split", "landmark_id"])
    classes = pa.Table.from_pandas(without_key, preserve_index=False)
    shards, digest = list[PlannedShard](), sha256()
    with path.open("wb") as file:
        ordered = _in_order(labelled, place, bounds, path.parent)
        for name, run, samples in zip(names, runs, ordered, strict=True):
            known = classes.take(samples["class"])
            samples = samples.drop_columns("class")
            for column in known.column_names:
                samples = samples.append_column(column, known[column])
            samples = samples.append_column("shard", pa.array([name] * samples.num_rows))
            samples = samples.append_column("run", pa.array(run, pa.int64()))
            buffer = pa.BufferOutputStream()
            with pa.ipc.new_stream(buffer, samples.schema, options=PACKED) as stream:
                stream.write_table(samples.combine_chunks())
            written = memoryview(buffer.getvalue())
            digest.update(written)
            shards.append(PlannedShard(name, path, file.tell(), len(written)))
            file.write(written)
    return shards, digest.hexdigest()


def _in_order(
    labelled: LabelledImages, place: np.ndarray, bounds: Sequence[int], folder: Path
) -> Iterator[pa.Table]:
    """Yield the rows between two bounds of their places, in order, from the first to the last.

    The column "class" is the row of ``classes.landmarks``.
    """
    # Bounds of pieces: those of some shards, so that few pieces are read at a time.
    marks = [0]
    while marks[-1] < len(bounds) - 1:
        after = bisect_right(bounds, bounds[marks[-1]] + PART)
        marks.append(min(max(after - 1, marks[-1] + 1), len(bounds) - 1))
    edges = np.array([bounds[mark] for mark in marks])
    with TemporaryFile(dir=folder) as file:
        pieces, schema = _cut(labelled, place, edges, file)
        for group, (low, high) in enumerate(pairwise(marks)):
            parts = []
            for offset, size in pieces[group]:
                file.seek(offset)
                parts.append(pa.ipc.read_record_batch(pa.py_buffer(file.read(size)), schema))
            rows = pa.Table.from_batches(parts)
            rows = rows.take(pa.array(np.argsort(rows["place"]))).drop_columns("place")
            for first, last in pairwise(bounds[low : high + 1]):
                yield rows.slice(first - bounds[low], last - first)


def _cut(
    labelled: LabelledImages, place: np.ndarray, edges: np.ndarray, file: IO[bytes]
) -> tuple[list[list[tuple[int, int]]], pa.Schema]:
    """Write the rows between two edges of their places in pieces, and return their ranges."""
    pieces: list[list[tuple[int, int]]] = [[] for _ in edges[1:]]
    start, schema = 0, pa.schema([])
    boxes = [name for name in BOX if name in labelled.images.columns()]
    for batch in labelled.images.batches([*columns_of("images"), *boxes], PART):
        part = slice(start, start + len(batch))
        own, start = place[part], part.stop
        order = np.argsort(own)[np.count_nonzero(own < 0) :]
        batch = batch.append_column("class", pa.array(labelled.landmarks[part]))
        batch = batch.append_column("place", pa.array(own)).take(pa.array(order))
        cuts = np.searchsorted(own[order], edges).tolist()
        for held, (first, last) in zip(pieces, pairwise(cuts), strict=True):
            if first < last:
                piece = batch.slice(first, last - first).serialize()
                held.append((file.tell(), piece.size))
                file.write(piece)
        schema = batch.schema
    return pieces, schema
