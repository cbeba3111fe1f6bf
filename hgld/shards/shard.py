"""Writes one shard, whole or not at all, and leaves a marker with its index rows.

A shard is planned in full before its first image is read, so any process on any machine that sees
the folders may write it, and write it again.
"""

import errno
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow import feather

from hgld.artifacts import atomic_path, hash_file
from hgld.errors import Resumable
from hgld.shards.files import FileReader
from hgld.shards.permission import DROPPED
from hgld.shards.sample import (
    Encoded,
    Encoding,
    Undecodable,
    describe,
    encode_image,
    sample_key,
)
from hgld.shards.tar import BLOCK, ShardFile

__all__ = ["ShardTask", "read_markers", "write_or_keep"]

NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
CREDITS = ["author", "license", "title", "url"]
TEXTS = ("key", "image_id", "split", "shard", "sha256", *CREDITS)  # the others are numbers
NOTE = b"hgld"  # key of what a marker says beside its rows


@dataclass(frozen=True)
class ShardTask:
    """All that a process needs to write one shard."""

    file: str
    source: Path
    out: Path
    state: Path
    samples: pd.DataFrame
    levels: tuple[str, ...]
    labels_version: str
    encoding: Encoding


def _marker(task: ShardTask) -> Path:
    return task.state / f"{task.file}.arrow"


def write_or_keep(task: ShardTask) -> Path:
    """The marker of a shard, which is written unless it is there as its marker says."""
    marker, shard = _marker(task), task.out / task.file
    if not (marker.is_file() and shard.is_file() and _is_intact(marker, shard)):
        try:
            _write_shard(task)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise Resumable(
                f"{shard}: no space left for it ({error.strerror}); finished shards are kept, "
                "make room and run the same command again"
            ) from None
    return marker


def _is_intact(marker: Path, shard: Path) -> bool:
    try:
        facts = _read_note(marker)["facts"]
    except Exception:  # pyarrow raises whatever the damage leads to
        return False
    return bool(hash_file(shard) == facts["sha256"])


def _write_shard(task: ShardTask) -> None:
    rows: list[dict[str, Any]] = []
    dropped: list[dict[str, Any]] = []
    with atomic_path(task.out / task.file) as temporary:
        shard = ShardFile(temporary)
        try:
            _fill(shard, task, rows, dropped)
            shard.finish()
        finally:
            shard.close()
    facts = {
        "file": task.file,
        "split": str(task.samples["split"].iloc[0]),
        "sha256": shard.sha256,
        "bytes": shard.size_bytes,
        "samples": len(rows),
        "runs": len({row["run"] for row in rows}),
    }
    _write_marker(_marker(task), rows, {"facts": facts, "dropped": dropped}, task.levels)


def _fill(
    shard: ShardFile,
    task: ShardTask,
    rows: list[dict[str, Any]],
    dropped: list[dict[str, Any]],
) -> None:
    reader = FileReader(task.source)
    for row in _records(task.samples):
        data = reader.read(row["path"], row["offset"], row["size_bytes"])
        try:
            image = encode_image(data, task.encoding)
        except Undecodable as error:
            place = {"split": row["split"], "image_id": row["image_id"]}
            dropped.append({**place, "reason": "undecodable", "detail": str(error)})
        else:
            rows.append(_add_sample(shard, task, row, image))
    reader.close()


def _records(samples: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Each row as a dictionary, in a fifth of the time of pandas' own."""
    names = [str(name) for name in samples.columns]
    columns = [samples[name].to_numpy(object).tolist() for name in names]
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))


def _add_sample(
    shard: ShardFile, task: ShardTask, row: dict[str, Any], image: Encoded
) -> dict[str, Any]:
    """Append a sample to the shard; its row of the index."""
    row["key"] = sample_key(row["split"], row["image_id"])
    row["sha256"] = sha256(image.data).hexdigest()
    text = describe(row, image, task.levels, task.labels_version)
    label = str(row[f"level_{len(task.levels)}"]).encode()
    span = shard.add(row["key"], [("jpg", image.data), ("json", text), ("cls", label)])
    return row | {
        "offset": span.offsets[0],
        "size_bytes": len(image.data),
        "json_offset": span.offsets[1],
        "json_size": len(text),
        "width": image.width,
        "height": image.height,
        "extent_start": span.offsets[0] - BLOCK,
        "extent_bytes": span.extent_bytes,
        "crc32": span.crc32,
    }


def _index_columns(levels: Sequence[str]) -> list[str]:
    return [
        *("key", "image_id", "split", "landmark_id", "shard", "offset", "size_bytes"),
        *("json_offset", "json_size", "run", "sha256", "width", "height", *CREDITS),
        *("extent_start", "extent_bytes", "crc32"),  # of all members of the sample together
        *(f"level_{i + 1}" for i in range(len(levels))),
    ]


def _write_marker(
    marker: Path,
    rows: Sequence[dict[str, Any]],
    note: dict[str, Any],
    levels: Sequence[str],
) -> None:
    names = _index_columns(levels)
    kinds = [pa.string() if name in TEXTS else pa.int64() for name in names]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    table = pa.Table.from_pylist(rows, schema).replace_schema_metadata({NOTE: json.dumps(note)})
    with atomic_path(marker) as temporary:
        feather.write_feather(table, str(temporary))


def _read_note(marker: Path) -> dict[str, Any]:
    return dict(json.loads(feather.read_table(str(marker), columns=[]).schema.metadata[NOTE]))


def read_markers(
    markers: Sequence[Path],
) -> tuple[pd.DataFrame, list[dict[str, Any]], pd.DataFrame]:
    """Index rows, what the manifest says of each shard, and what was left out, of all markers."""
    tables = [feather.read_table(str(marker), memory_map=False) for marker in markers]
    notes = [json.loads(table.schema.metadata[NOTE]) for table in tables]
    rows = pa.concat_tables(table.replace_schema_metadata() for table in tables).to_pandas()
    dropped = [image for note in notes for image in note["dropped"]]
    return rows, [note["facts"] for note in notes], pd.DataFrame(dropped, columns=DROPPED)
