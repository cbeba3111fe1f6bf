"""Reads the index and the manifest of a folder of shards, and checks the shards against them."""

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd

from hgld.artifacts import Json, hash_file
from hgld.errors import InvalidData, MissingInput
from hgld.shards.files import FileReader, local_folder
from hgld.tasks import track

__all__ = [
    "is_export",
    "labels_of",
    "level_columns",
    "read_index",
    "read_manifest",
    "require_columns",
    "verify_shards",
    "whole_numbers",
]

REBUILD = "delete the folder and run export again"


def read_index(folder: Path | str) -> pd.DataFrame:
    """One row a sample, sorted by split, shard and offset.

    Raises:
        MissingInput: there is no index.
        InvalidData: it cannot be read.
    """
    path = local_folder(folder) / "index.parquet"
    if not path.is_file():
        raise MissingInput(f"{path}: no such file; run export first, or `hgld shards index`")
    try:
        return pd.read_parquet(path)
    except Exception as error:  # pyarrow raises whatever the damage leads to
        raise InvalidData(f"{path}: not a readable index ({error}); {REBUILD}") from None


def read_manifest(folder: Path | str) -> dict[str, Any]:
    """What the folder holds: levels, splits, shards with their hashes, options.

    Raises:
        MissingInput: there is no manifest, so the export is not complete.
        InvalidData: it is not a manifest.
    """
    path = local_folder(folder) / "manifest.json"
    if not path.is_file():
        raise MissingInput(f"{path}: no such file; run export (again) to complete the shards")
    manifest = Json(path.name).read(path)
    missing = [name for name in ("levels", "splits", "shards") if name not in manifest]
    if missing:
        raise InvalidData(f"{path}: '{missing[0]}' is missing; {REBUILD}")
    return manifest


def is_export(folder: Path) -> bool:
    """Whether hgld export wrote the shards of a folder, rather than only an index of them."""
    return (folder / "manifest.json").is_file() and bool(read_manifest(folder).get("options"))


def level_columns(index: pd.DataFrame) -> list[str]:
    """Names of the columns of class numbers, coarse to fine.

    Example:
        >>> level_columns(pd.DataFrame(columns=["key", "level_1", "level_2", "level_name"]))
        ['level_1', 'level_2']
    """
    levels = [c for c in index if re.fullmatch(r"level_\d+", str(c))]
    return [f"level_{i + 1}" for i in range(len(levels))]


def labels_of(rows: pd.DataFrame) -> np.ndarray:
    """(N, L) class numbers of rows of the index, coarse to fine; (N, 0) where they have none.

    Raises:
        InvalidData: a level lacks, or one does not hold whole numbers.
    """
    return whole_numbers(rows, level_columns(rows))


def whole_numbers(rows: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """(N, C) numbers of some columns of the index.

    Raises:
        InvalidData: a column lacks, or does not hold whole numbers.
    """
    require_columns(rows, columns)
    for name in columns:
        lacking = int(rows[name].isna().sum())
        if lacking:
            raise InvalidData(
                f"the rows' column '{name}' has no number in {lacking} of {len(rows)} rows; leave "
                "these rows out, or give them one"
            )
        if not pd.api.types.is_integer_dtype(rows[name]):
            raise InvalidData(
                f"the rows' column '{name}' is of {rows[name].dtype}; expected whole numbers, as "
                "read_index gives them (astype('int64'))"
            )
    return rows[list(columns)].to_numpy(np.int64, copy=True)


def require_columns(rows: pd.DataFrame, columns: Sequence[str]) -> None:
    """Refuse rows without these columns of the index."""
    missing = [name for name in columns if name not in rows]
    if missing:
        raise InvalidData(
            f"the rows have no column '{missing[0]}'; expected rows of read_index with all its "
            "columns"
        )


def verify_shards(folder: Path | str) -> None:
    """Check that every shard and the index are byte for byte what the manifest says.

    Raises:
        InvalidData: a shard is missing, of another size or changed (shard and key are named), a
            tar that the manifest does not know, an index that does not match.
    """
    folder = local_folder(folder)
    manifest = read_manifest(folder)
    if hash_file(folder / "index.parquet") != manifest.get("index_sha256"):
        raise InvalidData(
            f"{folder / 'index.parquet'}: is not the index that manifest.json was written with; "
            + REBUILD
        )
    index = read_index(folder)
    strange = {p.name for p in folder.glob("*.tar")} - {s["file"] for s in manifest["shards"]}
    if strange:
        raise InvalidData(f"{folder / min(strange)}: a shard unknown to manifest.json; remove it")
    for shard in track(manifest["shards"], "Verifying shards"):
        _verify_shard(folder, shard, index[index["shard"] == shard["file"]])


def _verify_shard(folder: Path, shard: dict[str, Any], rows: pd.DataFrame) -> None:
    path = folder / shard["file"]
    if not path.is_file():
        raise InvalidData(f"{path}: the shard is missing; {REBUILD}")
    size = path.stat().st_size
    if size != shard["bytes"]:
        cut = rows[rows["offset"] + rows["size_bytes"] > size]
        first = f"; the first key cut off is {cut['key'].iloc[0]}" if len(cut) else ""
        raise InvalidData(f"{path}: {size} bytes; expected {shard['bytes']}{first}; {REBUILD}")
    if hash_file(path) != shard["sha256"]:
        raise InvalidData(f"{path}: {_find_damage(folder, rows)}; {REBUILD}")


def _find_damage(folder: Path, rows: pd.DataFrame) -> str:
    """Which sample of a shard with a wrong hash is damaged, and where in it."""
    reader = FileReader(folder)
    for row in rows.to_dict("records"):
        whole = reader.read(row["shard"], row["extent_start"], row["extent_bytes"])
        if crc32(whole) != row["crc32"]:
            start = row["offset"] - row["extent_start"]
            image = whole[start : start + row["size_bytes"]]
            harmed = sha256(image).hexdigest() != row["sha256"]
            what = "the image" if harmed else "a header, the JSON or the class"
            return f"{what} of key {row['key']} was changed"
    return "the end of the archive was changed; its samples are whole"
