"""The two sides of an evaluation: the query images and the gallery images.

The images of a side are in files, the shards or the data set's own tars. Each file is a part with a
key of its content and is embedded as one task, so that only a changed file is embedded again.

A gallery may be larger than memory: of the shards' index one part is read at a time, and the labels
of many images are in a temporary file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hgld.artifacts import BOX
from hgld.credit import CREDITS
from hgld.errors import UsageError
from hgld.evaluate.given import name_row
from hgld.ranking.kernels.device import new_array
from hgld.shards.index import ShardRows, labels_of, open_index, read_manifest
from hgld.shards.schema import IMAGE_CRC32, index_columns, numbered_levels

PHOTOS_PER_PART = 64  # photos that are files, embedded between two marks of progress on the disk
LABELS_AT_ONCE = 1 << 20  # label paths that are counted in memory
Rows = pd.DataFrame | ShardRows


@dataclass(frozen=True)
class Side:
    """Queries or gallery: the samples of one split, in the order of the index.

    A side may join several splits, ``A+B``. Splits that both sides begin with are in the gallery
    themselves, so that each of their queries is excluded from its own ranking.

    Attributes:
        split: its name.
        pieces: rows of the images, of one file or of a few small ones each.
        labels: (N, L) class numbers, coarse to fine.
        folder: of the files.
        hashes: of the content of each file.
        names: of classes that query as texts; then the rows are no photos.
    """

    split: str
    pieces: Sequence[Rows]
    labels: np.ndarray
    folder: Path
    hashes: Mapping[str, str]
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        """Read some columns of all rows into memory."""
        return pd.concat([piece[list(columns)] for piece in self.pieces], ignore_index=True)

    def ids(self) -> Iterator[np.ndarray]:
        """Yield the image ids of one piece after the other."""
        for piece in self.pieces:
            yield piece[["image_id"]]["image_id"].to_numpy(dtype=str)

    @property
    def image_ids(self) -> np.ndarray:
        """(N,) image ids."""
        return np.concatenate([*self.ids()])

    def name_row(self, row: int) -> str:
        """Return the id and the number of a row, for a message."""
        return name_row(self.image_ids, row)

    def own_queries(self, query: "Side") -> int:
        """Number of queries, from the first on, that are the gallery's own first images."""
        names = query.split.split("+")
        both = zip(self.split.split("+"), names, strict=False)
        shared = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], both)]
        if len(shared) == len(names):
            return len(query)
        if not shared:
            return 0
        return int(query.read(["split"])["split"].isin(shared).sum())

    def parts(self) -> Iterator[tuple[Rows, str]]:
        """Yield the samples of each file, or of each few small files, in order, and their key.

        The rows have shard (the file's name), key, offset and size_bytes. The key covers the files
        and the images read from them. A reader checks the bytes against the checksums of the rows,
        so embeddings always belong to the images that a key names.
        """
        for piece in self.pieces:
            columns = [n for n in ("offset", "size_bytes", IMAGE_CRC32) if n in piece]
            boxes = [name for name in BOX if name in piece]
            rows = piece[["shard", *columns, *boxes]]
            hashes = (self.hashes[str(file)] for file in rows["shard"].unique())
            key = sha256("".join(hashes).encode())
            key.update(rows[columns].to_numpy(np.int64).tobytes())
            if boxes:
                key.update(b"inside the photo")  # earlier embeddings had black beyond its edges
                key.update(rows[boxes].to_numpy(np.float64).tobytes())
            yield piece, key.hexdigest()[:32]


@dataclass(frozen=True)
class Shards:
    """Index and manifest of a folder of shards, for an evaluation."""

    folder: Path
    levels: tuple[str, ...]
    files: Sequence[ShardRows]
    hashes: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> "Shards":
        """Read the manifest of the folder, and check its index."""
        manifest = read_manifest(folder)
        hashes = {str(shard["file"]): str(shard["sha256"]) for shard in manifest["shards"]}
        levels = tuple(str(name) for name in manifest["levels"])
        # without hashes and credits of images: these long texts are most of an index
        columns = [c for c in index_columns(len(levels)) if c not in ("sha256", *CREDITS)]
        return cls(folder, levels, open_index(folder, columns), hashes)

    @property
    def splits(self) -> list[str]:
        """Names of the splits, sorted."""
        return sorted({file.split for file in self.files})

    def side(self, split: str, option: str = "split") -> Side:
        """Return the samples of a split, or of several in their order, ``A+B``.

        ``option`` names the split in messages.

        Raises:
            UsageError: a split has no samples.
        """
        pieces = self.files_of(split, option)
        columns = numbered_levels(len(self.levels))
        labels = new_array((sum(map(len, pieces)), len(columns)), np.int32)
        end = 0
        for piece in pieces:
            start, end = end, end + len(piece)
            labels[start:end] = labels_of(piece[columns])
        return Side(split, pieces, labels, self.folder, self.hashes)

    def files_of(self, split: str, option: str) -> list[ShardRows]:
        """Return the rows of the files of ``side``."""
        found = []
        for name in split.split("+"):
            own = [file for file in self.files if file.split == name]
            if not own:
                known = ", ".join(self.splits) or "none at all"
                raise UsageError(f"{option} '{name}' has no samples; the shards hold {known}")
            found += own
        return found


def side_of_files(split: str, rows: pd.DataFrame, folder: Path, files_per_part: int = 1) -> Side:
    """Return a side of images without labels from other files than shards: tars or photos.

    Args:
        split: name of the side.
        rows: image_id, path below the folder, offset and size_bytes; with ``BOX``, a part of each.
        folder: of the files.
        files_per_part: embedded as one task; more than one for photos.
    """
    rows = rows.sort_values(["path", "offset"], ignore_index=True)
    rows = rows.assign(shard=rows["path"], key=rows["image_id"])
    hashes = {}
    for path in rows["path"].unique():
        facts = (folder / str(path)).stat()
        times = f"{facts.st_mtime_ns} {facts.st_ctime_ns}"  # a copy may keep the mtime
        hashes[str(path)] = sha256(f"{path} {facts.st_size} {times}".encode()).hexdigest()
    numbers, _ = pd.factorize(rows["path"])
    pieces = [piece for _, piece in rows.groupby(numbers // files_per_part, sort=False)]
    return Side(split, pieces, np.empty((len(rows), 0), np.int64), folder, hashes)


def count_paths(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different label paths, (C, L) int64 and sorted, and the (C,) images of each.

    Args:
        labels: (N, L) label paths; some are in memory at a time.

    Example:
        >>> paths, images = count_paths(np.array([[1, 2], [0, 5], [1, 2]]))
        >>> paths.tolist(), images.tolist()
        ([[0, 5], [1, 2]], [1, 2])
    """
    levels = list(range(labels.shape[1]))
    counts: list[Any] = []
    for start in range(0, len(labels), LABELS_AT_ONCE):
        block = pd.DataFrame(labels[start : start + LABELS_AT_ONCE])
        # hashed, as a sort of millions is slow
        counts.append(block.groupby(levels, sort=False).size())
        counts = [pd.concat(counts).groupby(level=levels).sum()]
    paths = counts[0].index.to_frame()
    return paths.to_numpy(np.int64), counts[0].to_numpy(np.int64)


def without_match(
    query: np.ndarray, gallery: tuple[np.ndarray, np.ndarray], own: np.ndarray | bool = False
) -> np.ndarray:
    """Find the queries that no image of the gallery matches.

    Args:
        query: (Q, L) label paths; two images match if all columns are equal.
        gallery: (C, L) label paths, and the (C,) images of each.
        own: (Q,) whether the gallery holds the query itself, which does not count.

    Returns:
        (Q,) bool.

    Example:
        >>> without_match(np.array([[7], [8]]), count_paths(np.array([[7], [7]]))).tolist()
        [False, True]
    """
    paths, images = gallery
    every = pd.DataFrame(np.concatenate([query, paths]))
    number = every.groupby(list(every), sort=False).ngroup().to_numpy()
    matches = np.bincount(number[len(query) :], images, minlength=int(number.max()) + 1)
    return np.asarray(matches[number[: len(query)]] <= own)
