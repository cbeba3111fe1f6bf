"""Write one shard atomically, with a marker file that holds its index rows; copy samples.

A shard is fully planned before its first image is read, so any process may write it, or write it
again; on another machine it gets the images' bytes with the task. The marker identifies the shard's
inputs: the plan and options by a seal, the source files by size, times and inode and, if these
differ, by a hash of the images' bytes. A photo that was replaced is therefore exported again even
if its size and modification time are unchanged, and a copied source costs only one read.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self
from zlib import crc32

import pandas as pd
import pyarrow as pa
from pyarrow import feather

from hgld.artifacts import atomic_path, hash_file, read_sealed, records, write_sealed
from hgld.errors import DISK_FULL, InvalidData, Resumable
from hgld.images import OutsidePhoto, Undecodable
from hgld.ray_tasks import FileRange, FileTask
from hgld.shards.export_plan import PlannedShard
from hgld.shards.files import OTHER, FileReader
from hgld.shards.index import read_manifest
from hgld.shards.location import tar_folder
from hgld.shards.sample import (
    Encoded,
    Encoding,
    box_of,
    describe,
    encode_image,
    sample_key,
)
from hgld.shards.schema import IMAGE_CRC32, TEXTS, index_columns
from hgld.shards.shard_plan import shard_name
from hgld.shards.tar import BLOCK, ShardFile
from hgld.storage import RemoteFolder, join_location, local_folder

PLACE = ["path", "offset", "size_bytes"]
NOTE = b"hgld"  # metadata key of a marker's facts beside its rows


@dataclass(frozen=True)
class ShardTask(FileTask):
    """All that a process needs to write one shard."""

    planned: PlannedShard
    source: Path
    out: Path
    state: Path
    levels: tuple[str, ...]
    labels_version: str
    encoding: Encoding
    made_from: str
    url: str | None = None  # of the folder that gets the shard instead of ``out``
    stamp: str = ""  # of the source files, where another machine reads copies of them

    @property
    def file(self) -> str:
        """Name of the shard."""
        return self.planned.file

    @property
    def marker(self) -> Path:
        """Path of the finished shard's marker."""
        return self.state / f"{self.file}.arrow"

    @property
    def holds(self) -> str:
        """Identity that seals the marker: the hash of the input and the shard's name."""
        return f"{self.made_from} {self.file}"

    def reads(self) -> Iterator[FileRange]:
        """Ranges of the files that hold the shard's plan and images."""
        for offset, size in self.planned.ranges:
            yield self.planned.plan, offset, size
        for path, offset, size in self.planned.read()[PLACE].itertuples(index=False):
            yield self.source / path, offset, size

    def writes(self) -> Sequence[Path]:
        """The shard, unless the task uploads it, then its marker."""
        return (self.marker,) if self.url else (self.out / self.file, self.marker)

    def moved(self, place: Callable[[Path], Path]) -> Self:
        """Return the task for other folders."""
        source, out, state = map(place, (self.source, self.out, self.state))
        planned = replace(self.planned, plan=place(self.planned.plan))
        return replace(self, planned=planned, source=source, out=out, state=state)


def write_or_keep(task: ShardTask) -> Path:
    """Write a shard unless it is intact; return the path of its marker."""
    if not is_intact(task):
        try:
            _write_shard(task)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            raise Resumable(
                f"{join_location(task.url or task.out, task.file)}: no space left for it "
                f"({error.strerror}); finished shards are kept, make room and run the same command "
                "again"
            ) from None
    return task.marker


def is_intact(task: ShardTask) -> bool:
    """Whether the shard matches its marker, and the marker matches the source's current state."""
    kept = _read_marker(task)
    if kept is None:
        return False
    rows, note = kept
    if task.url is not None:
        stored = _stored(task)  # None: missing; the marker of a local shard has none either
        if stored is None or note.get("stored") != stored:
            return False
    else:
        shard = task.out / task.file
        if not shard.is_file() or hash_file(shard) != note["facts"]["sha256"]:
            return False
    files = stamp_files(task)
    # Equal stamps save reading the source.
    if note["files"] == files:
        return True
    source, reader = sha256(), FileReader(task.source)
    for path, offset, size in task.planned.read()[PLACE].itertuples(index=False):
        source.update(reader.read(path, offset, size))
    if note["source"] != source.hexdigest():
        return False
    # The same bytes with new stamps: record these, so that the source is read only once.
    _write_marker(task, rows, note | {"files": files})
    return True


def stamp_files(task: ShardTask) -> str:
    """Return a hash of sizes, times and inodes of the shard's source files."""
    digest = sha256()
    for path in sorted(task.planned.read()["path"].unique()):
        facts = (task.source / path).stat()
        stamp = [path, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino]
        digest.update(json.dumps(stamp).encode())
    return digest.hexdigest()


def _write_shard(task: ShardTask) -> None:
    rows: list[dict[str, Any]] = []
    dropped: list[dict[str, Any]] = []
    # before the first read, so that a later change is noticed
    files = task.stamp or stamp_files(task)
    samples = task.planned.read()
    source, reader = sha256(), FileReader(task.source)
    with _destination(task) as temporary, closing(ShardFile(temporary)) as shard:
        for row in records(samples):
            data = reader.read(row["path"], row["offset"], row["size_bytes"])
            source.update(data)
            try:
                image = encode_image(data, task.encoding, box_of(row))
            except Undecodable as error:
                reason = "box outside photo" if isinstance(error, OutsidePhoto) else "undecodable"
                place = {"split": row["split"], "image_id": row["image_id"]}
                dropped.append({**place, "reason": reason, "detail": str(error)})
            else:
                rows.append(_add_sample(shard, task, row, image))
        shard.finish()
    runs = len({row["run"] for row in rows})
    facts = shard.facts(task.file, task.planned.split, len(rows), runs)
    names = index_columns(len(task.levels))
    kinds = [pa.string() if name in TEXTS else pa.int64() for name in names]
    table = pa.Table.from_pylist(rows, pa.schema(list(zip(names, kinds, strict=True))))
    note: dict[str, Any] = {"facts": facts, "dropped": dropped, "files": files}
    note["source"] = source.hexdigest()
    if task.url is not None:
        note["stored"] = _stored(task)
    # Written last: a marker means that its shard is complete.
    _write_marker(task, table, note)


@contextmanager
def _destination(task: ShardTask) -> Iterator[Path]:
    """Yield a path for the shard's bytes; the shard appears, here or at the URL, at the end."""
    if task.url is None:
        with atomic_path(task.out / task.file) as temporary:
            yield temporary
        return
    task.state.mkdir(parents=True, exist_ok=True)
    temporary = task.state / f".{task.file}.{os.getpid()}.tmp"  # the next run removes leftovers
    try:
        yield temporary
        RemoteFolder(task.url).upload(temporary, task.file)
    finally:
        temporary.unlink(missing_ok=True)


def _stored(task: ShardTask) -> list[int | str] | None:
    """Size and version of the shard at its URL; None if it is not there."""
    found = RemoteFolder(task.url or "").stat(task.file)
    return None if found is None else found.stamp


def _add_sample(
    shard: ShardFile, task: ShardTask, row: dict[str, Any], image: Encoded
) -> dict[str, Any]:
    """Append a sample to the shard; return its row of the index."""
    row["key"] = sample_key(row["split"], row["image_id"])
    row["sha256"] = sha256(image.data).hexdigest()
    text = describe(row, image, task.levels, task.labels_version)
    label = str(row[f"level_{len(task.levels)}"]).encode()
    sample, (offset, json_offset, _) = shard.add(
        row["key"], [("jpg", image.data), ("json", text), ("cls", label)]
    )
    return row | {
        "offset": offset,
        "size_bytes": len(image.data),
        "json_offset": json_offset,
        "json_size": len(text),
        "width": image.width,
        "height": image.height,
        "extent_start": offset - BLOCK,
        "extent_bytes": len(sample),
        "crc32": crc32(sample),
        IMAGE_CRC32: crc32(image.data),
    }


def _write_marker(task: ShardTask, rows: pa.Table, note: dict[str, Any]) -> None:
    buffer = pa.BufferOutputStream()
    feather.write_feather(rows.replace_schema_metadata({NOTE: json.dumps(note)}), buffer)
    write_sealed(task.marker, memoryview(buffer.getvalue()), task.holds)


def _read_marker(task: ShardTask) -> tuple[pa.Table, dict[str, Any]] | None:
    """Index rows and facts of a shard; None if its marker is missing or changed."""
    content = read_sealed(task.marker, task.holds)
    if content is None:
        return None
    rows = feather.read_table(pa.BufferReader(content))
    return rows.replace_schema_metadata(), json.loads(rows.schema.metadata[NOTE])


def read_markers(
    tasks: Sequence[ShardTask], dropped: list[dict[str, Any]]
) -> Iterator[tuple[pd.DataFrame, dict[str, Any]]]:
    """Yield index rows and manifest entry of each shard, from its marker.

    Args:
        tasks: one for each shard.
        dropped: gets the dropped images of the shards.

    Raises:
        Resumable: a marker was damaged after its shard was written.
    """
    for task in tasks:
        kept = _read_marker(task)
        if kept is None:
            raise Resumable(
                f"{task.marker}: was damaged since its shard was written; run the same command "
                "again to have it made again"
            )
        rows, note = kept
        dropped += note["dropped"]
        yield rows.to_pandas(), note["facts"]


def copy_samples(
    folder: Path | str, rows: pd.DataFrame, out: Path | str, *, shard_megabytes: float = 256.0
) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """Copy the samples of some index rows, in their order, into new shards of their splits.

    The tar members of a sample are copied byte for byte with their headers, so nothing is decoded
    and the cost is that of a file copy. The JSON is unchanged and keeps its ``run_id``.

    Args:
        folder: of the shards to copy from.
        rows: rows of its index.
        out: an empty folder, or one that does not exist.
        shard_megabytes: size at which a shard is full.

    Returns:
        The rows with their new shards and offsets, and the manifest's entry of each shard.

    Raises:
        InvalidData: ``rows`` is empty, ``out`` is not empty, a new shard would have a key twice, or
            a sample is damaged (shard and key are named).
        UsageError: ``out`` is a URL.
    """
    out = local_folder(out)
    if out.exists() and any(out.iterdir()):
        raise InvalidData(f"{out}: is not empty; give a new folder")
    if rows.empty:
        raise InvalidData(f"{folder}: no samples to copy were given")
    read_manifest(folder)  # a folder without one is not complete
    # Shard number of each sample, by the position of its last byte.
    ends = rows.groupby("split")["extent_bytes"].cumsum().to_numpy()
    number = (ends - 1) // int(shard_megabytes * 1e6)
    twice = rows[rows[["split", "key"]].assign(number=number).duplicated().to_numpy()]
    if len(twice):  # readers would take the two for one sample
        raise InvalidData(
            f"{join_location(folder, twice['shard'].iloc[0])}: key {twice['key'].iloc[0]}: would "
            "stand twice in a new shard; leave one of the rows out, or copy them to other folders"
        )
    reader, tables, facts = FileReader(tar_folder(folder)), [], []
    for split, places in sorted(rows.groupby("split").indices.items()):
        for i, (_, samples) in enumerate(rows.iloc[places].groupby(number[places])):
            table, fact = _copy_shard(reader, samples, out / shard_name(str(split), i))
            tables.append(table)
            facts.append(fact)
    return pd.concat(tables, ignore_index=True), facts


def _copy_shard(
    reader: FileReader, samples: pd.DataFrame, path: Path
) -> tuple[pd.DataFrame, dict[str, Any]]:
    start = samples["extent_bytes"].cumsum() - samples["extent_bytes"]
    places = samples[["shard", "extent_start", "extent_bytes", "crc32", "key"]]
    with atomic_path(path) as temporary, closing(ShardFile(temporary)) as shard:
        for name, at, size, checksum, key in places.itertuples(index=False):
            members = reader.read(name, at, size)
            if crc32(members) != checksum:
                where = join_location(reader.folder, name)
                raise InvalidData(f"{where}: key {key}: its bytes were changed (CRC-32), {OTHER}")
            shard.append(members)
        shard.finish()
    # All offsets of a sample move by the same distance.
    moved = start - samples["extent_start"]
    table = samples.assign(
        shard=path.name,
        offset=samples["offset"] + moved,
        json_offset=(samples["json_offset"] + moved).where(samples["json_size"] > 0, -1),
        extent_start=start,
    )
    split, runs = str(table["split"].iloc[0]), int(table["run"].nunique())
    return table, shard.facts(path.name, split, len(table), runs)
