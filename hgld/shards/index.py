"""Read the index and the manifest of a folder of shards, and check both before use."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from hgld.artifacts import BOX, Json, hash_file
from hgld.errors import HgldError, InvalidData, MissingInput, unreadable
from hgld.shards.schema import (
    IMAGE_CRC32,
    INDEX_AGAIN,
    MOST_BYTES,
    IndexCheck,
    index_again,
    is_shard_name,
    level_columns,
    text_changes,
    wrong_index,
)
from hgld.storage import RemoteFolder, as_folder, is_web, join_location
from hgld.words import holds_controls

REBUILD = f"delete the file, and {INDEX_AGAIN}"
INDEX_FIRST = "run export first, or `hgld shards index`"
COMPLETE = "run export (again), or `hgld shards index`, to complete the shards"
PHOTO = ("key", "shard", "offset", "size_bytes", IMAGE_CRC32, *BOX)
LEAST_ROW = 8  # smallest plausible bytes per row: the hash of an image alone has 32
LEAST_SAMPLE = 512  # bytes of a sample in its tar: one header
BLOCK = 1 << 18  # rows that are read and checked together, if shards have fewer


def read_index(
    folder: Path | str,
    shards: Collection[str] | None = None,
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Read the index: one row per sample, sorted by split, shard and offset.

    Args:
        folder: of the shards, or its URL.
        shards: names of the shards whose rows are read; None: all. Each shard is a row group of
            its own, so only these bytes are decoded.
        columns: that are read, such as run and level_1; None: all. The index of another program may
            lack image_crc32, which is then left out.

    Raises:
        MissingInput: the index is missing.
        InvalidData: the index cannot be read, is not the one that the manifest names, lacks a
            shard or a column, or has impossible values, such as a shard outside the folder.

    Example:
        >>> def runs_of(folder):
        ...     return read_index(folder, ["train-000000.tar"], ["run"])["run"].nunique()
    """
    with local_copy(folder, "index.parquet", "manifest.json") as here:
        path = here / "index.parquet"
        _require_file(path, folder, INDEX_FIRST)
        with _opened(path) as file, file:
            names = None if columns is None else _names(file, columns)
            groups = range(file.num_row_groups) if shards is None else _groups_of(file, shards)
            rows: pd.DataFrame = file.read_row_groups([*groups], names).to_pandas()
        if shards is not None:
            rows = rows[rows["shard"].isin(list(shards))].reset_index(drop=True)
            _require_all(shards, rows["shard"], path)
        IndexCheck(path, columns).add(rows)
        if path.with_name("manifest.json").is_file():
            pairs = rows[["shard", "split"]].drop_duplicates().itertuples(index=False)
            levels = len(level_columns(rows)) if columns is None else None
            _require_known(path, read_manifest(here), pairs, levels)
    return rows if columns is None else rows[[name for name in columns if name in rows]]


@contextmanager
def local_copy(folder: Path | str, *files: str) -> Iterator[Path]:
    """Yield the folder, or for a URL a temporary folder with those of the files that exist."""
    found = as_folder(folder)
    if isinstance(found, Path):
        yield found
        return
    remote = RemoteFolder(found)
    with TemporaryDirectory(prefix="hgld-") as name:
        for file in files:
            with suppress(InvalidData):  # the caller reports a missing file
                remote.download(file, Path(name) / file)
        try:
            yield Path(name)
        except HgldError as error:
            # The user knows the URL, not the temporary folder.
            raise type(error)(str(error).replace(name, remote.location())) from None


@dataclass(frozen=True)
class ShardRows:
    """The rows of one shard in a checked index, read when they are needed.

    Like a table, it has a length, columns by name, and ``in`` for a column. Pickled for a worker,
    it becomes the table of ``photo_columns``.

    Attributes:
        read: reads row groups and columns of the open index, so that a new one at its path is
            never read. It keeps the last ones, which other shards may share.
        groups: numbers of the row groups that hold the shard.
        columns: those that may be read.
        shard: its name.
        split: of the shard.
        images: number of rows.
    """

    read: Callable[[range, tuple[str, ...]], pa.Table]
    groups: range
    columns: Sequence[str]
    shard: str
    split: str
    images: int

    def __len__(self) -> int:
        return self.images

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def __getitem__(self, columns: Sequence[str]) -> pd.DataFrame:
        """Read some columns."""
        table = self.read(self.groups, tuple(dict.fromkeys([*columns, "shard"])))
        own = pc.equal(table["shard"].cast(pa.string()), self.shard)
        rows: pd.DataFrame = table.filter(own).to_pandas()
        return rows[list(columns)]

    def __reduce__(self) -> tuple[Any, ...]:
        return pd.DataFrame, (photo_columns(self),)


def photo_columns(rows: "pd.DataFrame | ShardRows") -> pd.DataFrame:
    """Return the columns that are needed to read images."""
    return rows[[name for name in PHOTO if name in rows]]


def open_index(folder: Path, columns: Sequence[str]) -> list[ShardRows]:
    """Check the index as ``read_index`` does, but part by part, and return its shards in order.

    Memory holds the rows of two shards, or of two row groups if these are larger.

    Args:
        folder: of the shards, with a manifest.
        columns: that are checked and may be read; image_crc32 may be missing.

    Raises:
        MissingInput, InvalidData: as ``read_index``.
    """
    path, manifest = folder / "index.parquet", read_manifest(folder)
    _require_file(path, folder, INDEX_FIRST)
    found, check = list[ShardRows](), IndexCheck(path, columns)
    with _opened(path) as file:
        names, read = _names(file, columns), lru_cache(maxsize=1)(file.read_row_groups)
        parts = ([group] for group in range(file.num_row_groups))
        for groups, rows in _whole_shards(file, names, parts):
            check.add(rows)
            for shard, splits in rows.groupby("shard", sort=False)["split"]:
                own = str(shard), str(splits.iloc[0]), len(splits)
                found.append(ShardRows(read, groups, names, *own))
    _require_known(path, manifest, ((one.shard, one.split) for one in found))
    return found


def read_blocks(
    folder: Path | str, shards: Collection[str], columns: Sequence[str]
) -> Iterator[pd.DataFrame]:
    """Yield the rows of some shards, checked as ``read_index`` does, in blocks of whole shards.

    Memory holds two blocks, of ``BLOCK`` rows or of a shard that is larger. An index that the
    manifest does not name is refused after the last block.

    Args:
        folder: of the shards, with a manifest, or its URL.
        shards: names of the shards whose rows are read.
        columns: that are read; image_crc32 may be missing.

    Raises:
        MissingInput, InvalidData: as ``read_index``.
    """
    with local_copy(folder, "index.parquet", "manifest.json") as here:
        path, manifest = here / "index.parquet", read_manifest(here)
        _require_file(path, folder, INDEX_FIRST)
        check, pairs, wanted = IndexCheck(path, columns), list[tuple[str, str]](), {*shards}
        with _opened(path) as file, file:
            groups = np.array(_groups_of(file, shards), int)
            number = [file.metadata.row_group(group).num_rows for group in groups.tolist()]
            # Groups are read together that have ``BLOCK`` rows, if they have fewer each.
            parts = np.split(groups, np.flatnonzero(np.diff(np.cumsum(number) // BLOCK)) + 1)
            wholes = _whole_shards(file, _names(file, columns), (part.tolist() for part in parts))
            for _, rows in wholes:
                found = [name for name in rows["shard"].unique() if name in wanted]
                own = rows[rows["shard"].isin(found)]  # isin looks at each name that it gets
                check.add(own)
                pairs += own[["shard", "split"]].drop_duplicates().itertuples(index=False)
                yield own
        _require_all(shards, check.shards, path)
        _require_known(path, manifest, pairs)


def _whole_shards(
    file: parquet.ParquetFile, columns: Sequence[str], parts: Iterable[Sequence[int]]
) -> Iterator[tuple[range, pd.DataFrame]]:
    """Yield the rows of one or more whole shards, and the row groups that hold them.

    Args:
        file: the index.
        columns: that are read.
        parts: row groups that are read together.
    """
    held, first = None, 0  # rows of the last shard, and the group in which it begins
    for part in parts:
        rows = file.read_row_groups(part, columns).to_pandas()
        before = 0 if held is None else len(held)
        rows = pd.concat([held, rows], ignore_index=True) if before else rows
        cut = int(np.flatnonzero(text_changes(rows["shard"])).max(initial=-1)) + 1
        if cut:
            yield range(first, part[-1] + 1 if cut > before else part[0]), rows[:cut]
            first = part[0]
        held = rows[cut:]
    if held is not None:
        yield range(first, file.num_row_groups), held


def _require_all(shards: Collection[str], found: Iterable[str], path: Path) -> None:
    """Check that the index has rows of each shard that was asked for."""
    if strange := sorted({*shards} - {*found}):
        raise InvalidData(f"{path}: has no rows of {strange[0]}; `hgld shards ls` lists the shards")


@contextmanager
def _opened(path: Path) -> Iterator[parquet.ParquetFile]:
    """Open the index, which the caller may close; name it in the error of a damaged one."""
    try:
        file = parquet.ParquetFile(path, pre_buffer=False)  # its buffer is for one reading thread
        count = file.metadata.num_rows
        # a forged row count must not allocate memory
        if count > path.stat().st_size / LEAST_ROW:
            raise ValueError(f"it states {count:,} rows")
        yield file
    except HgldError:
        raise
    except Exception as error:  # pyarrow has no common class for damaged files
        raise unreadable(path, "index", error, index_again(path.parent)) from None


def _names(file: parquet.ParquetFile, columns: Sequence[str]) -> list[str]:
    """Return the columns to read: also those that every check needs."""
    names = file.schema_arrow.names
    chosen = dict.fromkeys([*columns, "shard", "split"])
    wanted = [name for name in chosen if name != IMAGE_CRC32 or name in names]
    if missing := set(wanted) - set(names):
        raise ValueError(f"column '{min(missing)}' is missing")
    return wanted


def _groups_of(file: parquet.ParquetFile, shards: Collection[str]) -> list[int]:
    """Return the row groups that may have rows of some shards, by their statistics."""
    column, names, found = file.schema_arrow.names.index("shard"), sorted(shards), list[int]()
    for group in range(file.num_row_groups):
        facts = file.metadata.row_group(group).column(column).statistics
        known = facts is not None and facts.has_min_max
        if not known or bisect_left(names, facts.min) < bisect_right(names, facts.max):
            found.append(group)
    return found


def _require_known(
    path: Path,
    manifest: dict[str, Any],
    pairs: Iterable[tuple[str, str]],
    levels: int | None = None,
) -> None:
    """Check that the manifest was written with this index.

    Args:
        path: of the index.
        manifest: beside it.
        pairs: shards of the index that were read, with their splits.
        levels: number of its levels; None: it was not read.
    """
    if hash_file(path) != manifest.get("index_sha256"):
        raise wrong_index(path, "is not the index that manifest.json was written with")
    known = len(manifest["levels"])
    if levels not in (None, known):
        raise wrong_index(path, f"{levels} levels, but manifest.json has {known}")
    split_of = {shard["file"]: shard["split"] for shard in manifest["shards"]}
    for shard, split in pairs:
        if split_of.get(shard) != split:
            raise wrong_index(path, f"{shard} of the split '{split}' is not in manifest.json")


def read_manifest(folder: Path | str) -> dict[str, Any]:
    """Read the manifest: levels, splits, shards with their hashes, options.

    Raises:
        MissingInput: the manifest is missing, so the export is incomplete.
        InvalidData: it is not a manifest.
    """
    with local_copy(folder, "manifest.json") as here:
        path = here / "manifest.json"
        _require_file(path, folder, COMPLETE)
        manifest = Json(path.name).read(path)
        missing = [name for name in ("levels", "splits", "shards") if name not in manifest]
        levels, shards = manifest.get("levels", []), manifest.get("shards")
        are_names = isinstance(levels, list) and bool(levels) and all(map(_is_name, levels))
        if missing:
            fault = f"'{missing[0]}' is missing"
        elif not are_names or len(set(levels)) < len(levels):
            fault = "'levels' is not a list of different names"
        elif not all(isinstance(manifest.get(name, {}), dict) for name in ("splits", "options")):
            fault = "'splits' or 'options' is not an object with keys"
        elif not isinstance(shards, list) or not all(map(_is_shard, shards)):
            fault = (
                "'shards' is not a list of shards, each with file (a .tar of this folder), split, "
                "sha256, bytes, samples and runs"
            )
        elif len({shard["file"] for shard in shards}) < len(shards):
            fault = "'shards' names a file twice"
        else:
            return manifest
        raise InvalidData(f"{path}: {fault}; {REBUILD}")


def _require_file(path: Path, folder: Path | str, advice: str) -> None:
    """Refuse a folder that lacks a file, or does not exist; ``path`` is of a copy that is here."""
    if path.is_file():
        return
    place = as_folder(folder)
    if isinstance(place, Path):
        known = place.is_dir()
    else:
        known = is_web(place) or bool(RemoteFolder(place).list())  # a web server lists nothing
    if known:
        raise MissingInput(f"{join_location(place, path.name)}: no such file; {advice}")
    raise MissingInput(f"{place}: no such folder of shards; correct its name, or run export first")


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name != "" and not holds_controls(name)


def _is_shard(shard: object) -> bool:
    """Whether a manifest's entry has all fields that readers use."""
    if not isinstance(shard, dict):
        return False
    file, counts = shard.get("file"), [shard.get(n) for n in ("bytes", "samples", "runs")]
    return (
        isinstance(file, str)
        and is_shard_name(file)
        and _is_name(shard.get("split"))
        and isinstance(shard.get("sha256"), str)
        and all(type(count) is int and 0 <= count <= MOST_BYTES for count in counts)
        # a forged count must not reserve memory or disk
        and shard["samples"] * LEAST_SAMPLE <= shard["bytes"]
    )


def is_export(folder: Path) -> bool:
    """Whether hgld export wrote the shards of a folder, rather than only an index of them."""
    return (folder / "manifest.json").is_file() and bool(read_manifest(folder).get("options"))


def labels_of(rows: pd.DataFrame) -> np.ndarray:
    """(N, L) class numbers of rows of the index, coarse to fine; (N, 0) if they have none.

    Raises:
        InvalidData: a level is missing, or does not hold whole numbers.
    """
    return whole_numbers(rows, level_columns(rows))


def whole_numbers(rows: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """(N, C) values of some integer columns of the index.

    Raises:
        InvalidData: a column is missing, or does not hold whole numbers.
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
