"""Writes one shard, whole or not at all, and leaves a marker with its index rows.

A shard is planned in full before its first image is read, so any process on any machine that sees
the folders may write it, and write it again.
"""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd

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

__all__ = ["Finished", "ShardTask", "read_marker", "write_or_keep"]

NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
CREDITS = ["author", "license", "title", "url"]


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


@dataclass(frozen=True)
class Finished:
    """A written shard: what the manifest says of it, its index rows, what was left out."""

    facts: dict[str, Any]
    rows: pd.DataFrame
    dropped: pd.DataFrame


def _marker(task: ShardTask) -> Path:
    return task.state / f"{task.file}.parquet"


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
        facts = read_marker(marker).facts
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
    table = pd.DataFrame(rows, columns=_index_columns(task.levels))
    table.attrs = {
        "file": task.file,
        "split": str(task.samples["split"].iloc[0]),
        "sha256": shard.sha256,
        "bytes": shard.size_bytes,
        "samples": len(rows),
        "runs": int(table["run"].nunique()),
        "dropped": dropped,
    }
    with atomic_path(_marker(task)) as temporary:
        table.to_parquet(temporary, index=False)


def _fill(
    shard: ShardFile,
    task: ShardTask,
    rows: list[dict[str, Any]],
    dropped: list[dict[str, Any]],
) -> None:
    reader = FileReader(task.source)
    for row in task.samples.to_dict("records"):
        data = reader.read(row["path"], row["offset"], row["size_bytes"])
        try:
            image = encode_image(data, task.encoding)
        except Undecodable as error:
            place = {"split": row["split"], "image_id": row["image_id"]}
            dropped.append({**place, "reason": "undecodable", "detail": str(error)})
        else:
            rows.append(_add_sample(shard, task, {str(k): v for k, v in row.items()}, image))
    reader.close()


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


def read_marker(marker: Path) -> Finished:
    """What was written of a finished shard."""
    rows = pd.read_parquet(marker)
    facts, rows.attrs = {str(name): fact for name, fact in rows.attrs.items()}, {}
    return Finished(facts, rows, pd.DataFrame(facts.pop("dropped"), columns=DROPPED))
