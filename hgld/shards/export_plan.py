"""Plan an export out of core: which images are exported, and the samples of each shard.

Of an image only numbers are held in memory: the row of its class and its place in the shards. They
say where its texts go, so these need no sort. The table is read in parts, and each part is cut into
pieces on disk by the place of its rows; whoever writes a shard puts its pieces together. A sort of
the same rows by DuckDB takes more than three times the CPU time.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import IO

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from hgld.artifacts import BOX, LargeTable, columns_of, named_in_errors
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

ByteRange = tuple[int, int]  # offset, bytes

PART = 1 << 18  # rows whose texts are held at a time
SMALL = 1 << 8  # rows of a piece on average, at least; smaller ones are mostly overhead
SEEN = 1 << 20  # source files that are remembered as existing


@dataclass(frozen=True)
class PlannedShard:
    """The samples of one shard: ranges of bytes in the file of a plan.

    Attributes:
        file: name of the shard.
        split: its split.
        plan: path of the file.
        start: place of its first sample among those of all shards.
        stop: place after its last sample.
        ranges: that of its runs, then those that hold its images, in any order and among others.
    """

    file: str
    split: str
    plan: Path
    start: int
    stop: int
    ranges: Sequence[ByteRange]

    def read(self) -> pd.DataFrame:
        """Read columns of images, level_1 .., name_1 .., run, split and shard, as written."""
        tables = []
        with self.plan.open("rb") as file:
            for offset, size in self.ranges:
                file.seek(offset)
                tables.append(pa.ipc.open_stream(file.read(size)).read_all())
        runs, images = tables[0], pa.concat_tables(tables[1:])
        place = images["place"].to_numpy()
        order = np.argsort(place)
        first, last = np.searchsorted(place[order], [self.start, self.stop])
        own = images.take(pa.array(order[first:last])).drop_columns("place").to_pandas()
        of_run = np.repeat(np.arange(len(runs)), runs["samples"])
        known = runs.drop_columns("samples").to_pandas().iloc[of_run].reset_index(drop=True)
        samples: pd.DataFrame = pd.concat([own, known], axis=1)
        return samples.assign(split=self.split, shard=self.file)


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
    why = removals_of(removals)
    missing, seen, named = list[str](), set[str](), 0  # source files
    finest = level_noun(classes.levels[-1])
    strange = dict.fromkeys(why)
    landmarks, bounds, at = [np.empty(0, np.int32)], dict[str, slice](), 0
    sizes, reasons = Counter[str](), Counter[str]()
    schema = pa.schema([(name, pa.string()) for name in DROPPED])
    columns = ["split", "image_id", "landmark_id", "license", "size_bytes", "path"]
    with named_in_errors(dropped), parquet.ParquetWriter(dropped, schema) as writer:
        for batch in images.batches(columns, PART):
            rows = batch.to_pandas()
            for image_id in rows.loc[rows["image_id"].isin(list(strange)), "image_id"]:
                strange.pop(image_id, None)
            allowed, left_out = split_permitted(rows, why, licenses)
            found = classes.find(rows).astype(np.int32)
            for split, places in rows.groupby("split").indices.items():
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
            new = set(labelled["path"].unique()) - seen
            if len(seen) > SEEN:  # of a file an image each comes once
                seen.clear()
            seen |= new
            named += len(new)
            missing += [path for path in new if not (source / path).is_file()]
            for split, size in labelled.groupby("split")["size_bytes"].sum().items():
                sizes[str(split)] += int(size)
            for reason, count in left_out["reason"].value_counts().items():
                reasons[str(reason)] += int(count)
            writer.write_table(pa.Table.from_pandas(left_out, schema, preserve_index=False))
            landmarks.append(found)
            at += len(rows)
    report_strange(why, list(strange))
    if missing:
        raise InvalidData(
            f"{source / min(missing)}: no such file ({len(missing)} of {named} that images.parquet "
            "names); bring it back, or run collect again to list what is there"
        )
    found = np.concatenate(landmarks)
    splits = {split: bounds[split] for split in sorted(bounds) if (found[bounds[split]] >= 0).any()}
    return LabelledImages(images, classes, found, splits, sizes, reasons)


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
    starts, runs = [0], list[ByteRange]()
    with named_in_errors(path), path.open("wb") as opened:
        file = _PlanFile(opened)
        for split, plan in plans.items():
            rows = labelled.rows_of(split)[plan.order]
            place[rows] = np.arange(starts[-1], starts[-1] + len(rows), dtype=place.dtype)
            runs += file.write_runs(labelled, rows, plan)
            del rows  # as large as the order
            starts += (plan.shards[1:] + starts[-1]).tolist()
        # Neighbouring shards share pieces, so that none is tiny.
        group = np.array(starts[:-1]) // (SMALL * ceil(len(place) / PART))
        first = np.flatnonzero(np.diff(group, prepend=-1))
        pieces = file.write_images(labelled, place, np.r_[np.array(starts)[first], total])
    names = [(split, n) for split, plan in plans.items() for n in range(len(plan.shards) - 1)]
    ranges = np.searchsorted(first, np.arange(len(names)), side="right") - 1
    shards = [
        PlannedShard(shard_name(*name), name[0], path, *bounds, [own, *pieces[number]])
        for name, bounds, own, number in zip(names, pairwise(starts), runs, ranges, strict=True)
    ]
    return shards, file.digest.hexdigest()


class _PlanFile:
    """Tables in a row, each a stream of Arrow."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = sha256()

    def write_runs(
        self, labelled: LabelledImages, rows: np.ndarray, plan: SplitPlan
    ) -> list[ByteRange]:
        """Write the runs of each shard with their classes, of rows in the order of the plan."""
        first = np.flatnonzero(np.diff(plan.runs, prepend=-1))  # samples of the runs
        landmarks, sizes = labelled.landmarks[rows[first]], np.diff(first, append=len(rows))
        columns = labelled.classes.landmarks.drop(columns=["split", "landmark_id"])
        classes = pa.Table.from_pandas(columns, preserve_index=False).replace_schema_metadata()
        written = []
        for low, high in pairwise(np.searchsorted(first, plan.shards).tolist()):
            runs = classes.take(pa.array(landmarks[low:high]))
            runs = runs.append_column("run", pa.array(range(low, high), pa.int64()))
            runs = runs.append_column("samples", pa.array(sizes[low:high]))
            written.append(self._write(runs))
        return written

    def write_images(
        self, labelled: LabelledImages, place: np.ndarray, edges: np.ndarray
    ) -> list[list[ByteRange]]:
        """Write the rows between two edges of their places, in pieces in any order."""
        pieces: list[list[ByteRange]] = [[] for _ in edges[1:]]
        start, known = 0, labelled.images.columns()
        columns = [name for name in (*columns_of("images"), *BOX) if name in known]
        columns.remove("split")
        for batch in labelled.images.batches(columns, PART):
            own = place[start : start + len(batch)]
            start += len(batch)
            order = np.argsort(own)[np.count_nonzero(own < 0) :]
            images = batch.append_column("place", pa.array(own)).take(pa.array(order))
            images = images.replace_schema_metadata()
            cuts = np.searchsorted(own[order], edges).tolist()
            for held, (low, high) in zip(pieces, pairwise(cuts), strict=True):
                if low < high:
                    held.append(self._write(images.slice(low, high - low)))
        return pieces

    def _write(self, rows: pa.Table | pa.RecordBatch) -> ByteRange:
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, rows.schema) as stream:
            stream.write(rows)
        content = memoryview(buffer.getvalue())
        self.digest.update(content)
        self._file.write(content)
        return self._file.tell() - len(content), len(content)
