"""Copy samples into new shards: in another order, with another shard size, or only some of them.

The tar members of a sample are copied byte for byte with their headers, so nothing is decoded and
the cost is that of a file copy. The JSON is unchanged and keeps its ``run_id``; the returned index
has the new offsets.
"""

from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import pandas as pd

from hgld.artifacts import atomic_path
from hgld.errors import InvalidData
from hgld.shards.files import FileReader
from hgld.shards.index import read_manifest
from hgld.shards.plan import shard_name
from hgld.shards.tar import ShardFile

__all__ = ["copy_samples"]


def copy_samples(
    folder: Path, rows: pd.DataFrame, out: Path, *, shard_megabytes: float = 256.0
) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """Copy the samples of some index rows, in their order, into new shards of their splits.

    Args:
        folder: of the shards to copy from.
        rows: rows of its index.
        out: an empty folder, or one that does not exist.
        shard_megabytes: size at which a shard is full.

    Returns:
        The rows with their new shards and offsets, and the manifest's entry of each shard.

    Raises:
        InvalidData: there are no rows, ``out`` is not empty, or a sample is damaged (shard and key
            are named).
    """
    if out.exists() and any(out.iterdir()):
        raise InvalidData(f"{out}: is not empty; give a new folder")
    if rows.empty:
        raise InvalidData(f"{folder}: no samples to copy were given")
    read_manifest(folder)  # a folder without one is not complete
    reader, tables, facts = FileReader(folder), [], []
    for split, part in rows.groupby("split", sort=True):
        # Shard number of each sample, by the position of its last byte.
        number = (part["extent_bytes"].cumsum() - 1) // int(shard_megabytes * 1e6)
        for i, (_, samples) in enumerate(part.groupby(number)):
            table, fact = _copy_shard(reader, samples, out / shard_name(str(split), i))
            tables.append(table)
            facts.append({"file": shard_name(str(split), i), "split": str(split), **fact})
    reader.close()
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
                raise InvalidData(
                    f"{reader.folder / name}: key {key}: its bytes were changed (CRC-32), so "
                    "the shard is damaged; run `hgld shards verify`"
                )
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
    facts = {
        "sha256": shard.sha256,
        "bytes": shard.size_bytes,
        "samples": len(table),
        "runs": int(table["run"].nunique()),
    }
    return table, facts
