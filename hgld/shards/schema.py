"""Columns of an index of shards, and validation of an index that was read.

An index decides which bytes of which file are read, and its numbers become array indices. It may
come from an untrusted source, so nothing in it is used before it is checked here. The checks run on
whole columns: for 5 million rows they take a fraction of the time of reading them.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from hgld.artifacts import Json
from hgld.credit import CREDITS
from hgld.errors import HgldError, InvalidData

TEXTS = ("key", "image_id", "split", "shard", "sha256", *CREDITS)  # the others are numbers
IN_ERRORS = ("key", "image_id", "split")  # printed in messages, so they must fit on one line
IMAGE_CRC32 = "image_crc32"  # of the image's bytes; an index of another program may omit it
RULES = "index_rules.json"  # how `hgld shards index` was asked for, if not by levels alone
HIERARCHY = "index_hierarchy.csv"  # the hierarchy that it was given
CLASS = "class"  # the level of a .cls member; the column of a hierarchy that has the classes
INDEX_AGAIN = "make it again: run export, or `hgld shards index` for shards of others"

MOST_IMAGE = 1 << 30  # bytes of an image's file
MOST_TEXT = 1 << 24  # bytes of a JSON or .cls member
MOST_BYTES = 1 << 52  # of a shard; sums of such offsets fit in 64 bits
MOST_CLASSES = 1 << 25  # of a level; arrays are indexed by class number, so this limits memory
MOST_RUNS = 1 << 31
BOUNDS = {  # column of numbers: smallest and largest valid value
    "landmark_id": (-1, 2**63 - 1),
    "offset": (0, MOST_BYTES),
    "size_bytes": (1, MOST_IMAGE),
    "json_offset": (-1, MOST_BYTES),
    "json_size": (0, MOST_TEXT),
    "run": (0, MOST_RUNS - 1),
    "width": (1, 2**31 - 1),
    "height": (1, 2**31 - 1),
    "extent_start": (0, MOST_BYTES),
    "extent_bytes": (1, MOST_BYTES),
    "crc32": (0, 2**32 - 1),
    IMAGE_CRC32: (0, 2**32 - 1),
}
PLACES = ("extent_start", "extent_bytes", "offset", "size_bytes", "json_offset", "json_size")
_SHARD = re.compile(r"[^/\\\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]+\.tar")


def index_columns(levels: int) -> list[str]:
    """Return the columns of an index in their order."""
    return [
        *("key", "image_id", "split", "landmark_id", "shard", "offset", "size_bytes"),
        *("json_offset", "json_size", "run", "sha256", "width", "height", *CREDITS),
        *("extent_start", "extent_bytes", "crc32"),  # of all members of the sample together
        IMAGE_CRC32,
        *numbered_levels(levels),
    ]


def numbered_levels(count: int) -> list[str]:
    """Return the names of the columns of class numbers, coarse to fine.

    Example:
        >>> numbered_levels(2)
        ['level_1', 'level_2']
    """
    return [f"level_{number}" for number in range(1, count + 1)]


def level_columns(index: pd.DataFrame) -> list[str]:
    """Return the names of the columns of class numbers of an index, coarse to fine.

    Example:
        >>> level_columns(pd.DataFrame(columns=["key", "level_1", "level_2", "level_name"]))
        ['level_1', 'level_2']
    """
    return numbered_levels(sum(bool(re.fullmatch(r"level_\d+", str(c))) for c in index))


def is_shard_name(name: str) -> bool:
    """Whether a name is that of a tar in the folder itself, and prints on one line.

    Example:
        >>> is_shard_name("train-000000.tar"), is_shard_name("../train-000000.tar")
        (True, False)
    """
    return _SHARD.fullmatch(name) is not None


def index_again(folder: Path) -> str:
    """Return what to do about a wrong index: the command that makes the same one, if it is known.

    Args:
        folder: of the index; its tars are beside it, unless they are at a URL.
    """
    try:
        manifest = Json("manifest.json").read(folder / "manifest.json")
        if manifest.get("options"):
            return "make it again: run export"
        if not any(folder.glob("*.tar")):
            return INDEX_AGAIN
        rules = Json(RULES).read(folder / RULES) if (folder / RULES).is_file() else {}
        levels = rules.get("levels", manifest["levels"] if manifest["levels"] != [CLASS] else [])
        flags = [word for level in levels for word in ("--level", level)]
        flags += ["--hierarchy", str(folder / HIERARCHY)] * bool(rules.get("hierarchy"))
        others = ("skip_unlabelled", "skip_damaged", "last_dot")
        flags += [f"--{name.replace('_', '-')}" for name in others if rules.get(name)]
        command = shlex.join(["hgld", "shards", "index", str(folder), *flags])
        return f"make it again: `{command}`"
    except (HgldError, OSError, LookupError, TypeError, AttributeError):
        return INDEX_AGAIN


def wrong_index(path: Path, fault: str) -> InvalidData:
    """The error for a wrong file of an index: what is wrong, and how to make the index again."""
    return InvalidData(f"{path}: {fault}; {index_again(path.parent)}")


@dataclass
class IndexCheck:
    """Validation of an index, at once or in blocks of whole shards, one after the other.

    Names must be those of tars in the folder, offsets within their sample and without overlap,
    numbers within their bounds; a shard has one split, a run one class, a class one parent.

    Attributes:
        path: its file, for error messages.
        columns: those that are read, beside shard and split; None: all. What they do not show is
            not checked.
        rows: number of rows of the blocks before.
        shards: their shards.
        parents: level -> number of the class above each of its classes; -1: not known.
    """

    path: Path
    columns: Sequence[str] | None = None
    rows: int = 0
    shards: set[str] = field(default_factory=set)
    parents: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, rows: pd.DataFrame) -> None:
        """Check the next block.

        Raises:
            InvalidData: a column is missing or of another type, or a row is invalid (it is named).
        """
        levels = level_columns(rows)
        for name in index_columns(max(1, len(levels))):
            if self.columns is None and name not in rows and name != IMAGE_CRC32:
                raise wrong_index(self.path, f"column '{name}' is missing")
        for name in (name for name in TEXTS if name in rows):
            if not _is_text(rows[name], name in IN_ERRORS):
                fault = f"column '{name}' is not text, has gaps or control characters"
                raise wrong_index(self.path, fault)
        if rows.empty:
            return
        limits = {**BOUNDS, **dict.fromkeys(levels, (0, MOST_CLASSES - 1))}
        for name, (least, most) in limits.items():
            if name not in rows:
                continue
            dtype = rows[name].dtype
            if not (isinstance(dtype, np.dtype) and dtype.kind in "iu"):
                fault = f"column '{name}' is of {dtype}; expected whole numbers without gaps"
                raise wrong_index(self.path, fault)
            values = rows[name].to_numpy()
            if int(values.min()) < least or int(values.max()) > most:
                wrong = (values < least) | (values > most)
                self._refuse(rows, name, wrong, f"{least} to {most}")
        # Rows of a shard must be adjacent, so its first row marks the whole shard.
        changes = text_changes(rows["shard"])
        firsts = np.r_[0, np.flatnonzero(changes) + 1]  # first row of each shard
        self._require_shards(rows, changes, firsts)
        if self.columns is None or {*PLACES} <= set(rows):
            self._require_places(rows, changes)
        if self.columns is None or ("run" in rows and levels and levels[-1] in rows):
            self._require_classes(rows, levels, np.r_[0, np.cumsum(changes)])
        self.rows += len(rows)

    def _refuse(self, rows: pd.DataFrame, name: str, wrong: np.ndarray, expected: str) -> None:
        """Raise for the first wrong row, if there is one."""
        if wrong.any():
            row = int(wrong.argmax())
            found = rows[name].iloc[row]
            shown = repr(found) if isinstance(found, str) else found
            place = f"row {self.rows + row} (counted from 0)"
            raise wrong_index(self.path, f"{place}: {name} is {shown}; expected {expected}")

    def _require_shards(self, rows: pd.DataFrame, changes: np.ndarray, firsts: np.ndarray) -> None:
        """Check that each shard is a tar of this folder with one split and adjacent rows."""
        names = rows["shard"].iloc[firsts]
        wrong = np.zeros(len(rows), bool)
        wrong[firsts] = [not is_shard_name(str(name)) for name in names]
        self._refuse(rows, "shard", wrong, "the name of a .tar file in this folder")
        # not by isin, which builds a set of all shards for each part of the index
        met = [name in self.shards for name in names]
        wrong[firsts] = names.duplicated().to_numpy() | met
        self._refuse(rows, "shard", wrong, "the rows of a shard one after the other")
        wrong[1:] = text_changes(rows["split"]) & ~changes
        self._refuse(rows, "split", wrong, "one split for all rows of a shard")
        self.shards.update(names)

    def _require_places(self, rows: pd.DataFrame, changes: np.ndarray) -> None:
        """Check that image and JSON are within their sample, and samples do not overlap."""
        start = rows["extent_start"].to_numpy(np.int64)
        end = start + rows["extent_bytes"].to_numpy(np.int64)
        for offset, size in (("offset", "size_bytes"), ("json_offset", "json_size")):
            place, length = rows[offset].to_numpy(np.int64), rows[size].to_numpy(np.int64)
            wrong = ((place < start) | (place + length > end)) & (length > 0)
            self._refuse(rows, offset, wrong, f"a place within the sample, with {size}")
        wrong = np.zeros(len(rows), bool)
        wrong[1:] = (start[1:] < end[:-1]) & ~changes
        self._refuse(rows, "extent_start", wrong, "a place behind the sample before it")

    def _require_classes(
        self, rows: pd.DataFrame, levels: Sequence[str], shard: np.ndarray
    ) -> None:
        """Check one class per run of a shard, and one parent per class; ``shard`` numbers shards.

        A class may be in many blocks.
        """
        classes = [rows[name].to_numpy(np.int64) for name in levels]
        run = shard * MOST_RUNS + rows["run"].to_numpy(np.int64)
        begins = np.r_[True, (run[1:] != run[:-1]) | (classes[-1][1:] != classes[-1][:-1])]
        stretches = np.flatnonzero(begins)  # of one run and one class
        _, first, number = np.unique(run[stretches], return_index=True, return_inverse=True)
        finest = classes[-1][stretches]
        wrong = np.zeros(len(rows), bool)
        wrong[stretches] = finest != finest[first][number]
        self._refuse(rows, "run", wrong, f"one class ({levels[-1]}) for all rows of a run")
        for name, above, own, upper in zip(levels[1:], levels, classes[1:], classes, strict=False):
            known = self.parents.get(name, np.empty(0, np.int32))
            more = max(0, int(own.max()) + 1 - len(known))
            self.parents[name] = parent = np.pad(known, (0, more), constant_values=-1)
            new = parent[own] < 0
            parent[own[new][::-1]] = upper[new][::-1]  # that of its first row
            wrong = parent[own] != upper
            self._refuse(rows, name, wrong, f"one class of {above} above each class")


def _is_text(column: "pd.Series[Any]", printed: bool) -> bool:
    """Whether a column is UTF-8 without gaps, and a printed one without control characters."""
    try:
        found = pa.array(column)
        found.validate(full=True)  # full: checks that the bytes are UTF-8
    except (pa.ArrowException, ValueError, TypeError):
        return False
    if not (pa.types.is_string(found.type) or pa.types.is_large_string(found.type)):
        return not len(found)
    parts = found.chunks if isinstance(found, pa.ChunkedArray) else [found]
    texts = [part.buffers()[2] for part in parts if printed]
    steering = any(
        text is not None and (np.frombuffer(text, np.uint8) < ord(" ")).any() for text in texts
    )
    return not found.null_count and not steering


def text_changes(column: "pd.Series[Any]") -> np.ndarray:
    """(N - 1,) whether a text differs from the previous one."""
    texts = pa.array(column)
    return np.asarray(pc.not_equal(texts[1:], texts[:-1])).astype(bool)
