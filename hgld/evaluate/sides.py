"""The two sides of an evaluation: the query images and the gallery images.

The images of a side are in files, the shards or the data set's own tars. Each file is a part with a
key of its content and is embedded as one task, so that only a changed file is embedded again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile
from pathlib import Path

import numpy as np
import pandas as pd

from hgld.artifacts import BOX
from hgld.credit import CREDITS
from hgld.errors import UsageError
from hgld.shards.index import labels_of, read_index, read_manifest
from hgld.shards.schema import IMAGE_CRC32, index_columns

PHOTOS_PER_PART = 64  # photos that are files, embedded between two marks of progress on the disk


@dataclass(frozen=True)
class Part:
    """Images of one file, or of a few small ones.

    Attributes:
        rows: the images, with shard (the file's name), key, offset and size_bytes.
        key: hash of the files and the images read from them.
    """

    rows: pd.DataFrame
    key: str


@dataclass(frozen=True)
class Side:
    """Queries or gallery: the samples of one split, in the order of the index.

    A side may join several splits, ``A+B``. Splits that both sides begin with are in the gallery
    themselves, so that each of their queries is excluded from its own ranking.
    """

    split: str
    rows: pd.DataFrame
    labels: np.ndarray  # (N, L), coarse to fine
    folder: Path
    hashes: dict[str, str]
    names: tuple[str, ...] = ()  # of classes that query as texts; then the rows are no photos
    files_per_part: int = 1

    @property
    def image_ids(self) -> np.ndarray:
        """(N,) image ids."""
        return self.rows["image_id"].to_numpy(dtype=str)

    def own_queries(self, query: "Side") -> int:
        """Number of queries, from the first on, that are the gallery's own first images."""
        names = query.split.split("+")
        both = zip(self.split.split("+"), names, strict=False)
        shared = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], both)]
        if len(shared) == len(names):
            return len(query.rows)
        if not shared:
            return 0
        return int(query.rows["split"].isin(shared).sum())

    def parts(self) -> Iterator[Part]:
        """Yield the samples of each file, or of each few small files, in order.

        The key covers the files and the images read from them. A reader checks the bytes against
        the checksums of the rows, so embeddings always belong to the images that a key names.
        """
        columns = ["offset", "size_bytes", *([IMAGE_CRC32] if IMAGE_CRC32 in self.rows else [])]
        numbers, _ = pd.factorize(self.rows["shard"])
        for _, rows in self.rows.groupby(numbers // self.files_per_part, sort=False):
            files = rows["shard"].unique()
            key = sha256("".join(self.hashes[str(file)] for file in files).encode())
            key.update(rows[columns].to_numpy(np.int64).tobytes())
            if set(BOX) <= set(rows):
                key.update(b"inside the photo")  # earlier embeddings had black beyond its edges
                key.update(rows[list(BOX)].to_numpy(np.float64).tobytes())
            yield Part(rows, key.hexdigest()[:32])


@dataclass(frozen=True)
class Shards:
    """Index and manifest of a folder of shards, for an evaluation."""

    folder: Path
    levels: tuple[str, ...]
    index: pd.DataFrame
    hashes: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> "Shards":
        """Read the manifest of the folder, and its index without hashes and credits of images."""
        manifest = read_manifest(folder)
        hashes = {str(shard["file"]): str(shard["sha256"]) for shard in manifest["shards"]}
        levels = tuple(str(name) for name in manifest["levels"])
        # these long texts are most of an index
        columns = [c for c in index_columns(len(levels)) if c not in ("sha256", *CREDITS)]
        return cls(folder, levels, read_index(folder, columns=columns), hashes)

    def side(self, split: str, option: str = "split") -> Side:
        """Return the samples of a split, or of several in their order, ``A+B``.

        ``option`` names the split in messages.

        Raises:
            UsageError: a split has no samples.
        """
        rows = pd.concat([self._rows(name, option) for name in split.split("+")], ignore_index=True)
        return Side(split, rows, labels_of(rows), self.folder, self.hashes)

    def _rows(self, split: str, option: str) -> pd.DataFrame:
        rows = self.index[self.index["split"] == split]
        if rows.empty:
            raise UsageError(
                f"{option} '{split}' has no samples; the shards hold "
                + (", ".join(sorted(self.index["split"].unique())) or "none at all")
            )
        return rows


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
    labels = np.empty((len(rows), 0), np.int64)
    return Side(split, rows, labels, folder, hashes, files_per_part=files_per_part)


def without_match(
    query: np.ndarray, gallery: np.ndarray, own: np.ndarray | bool = False
) -> np.ndarray:
    """Find the queries that no image of the gallery matches.

    Args:
        query: (Q, L) label paths; two images match if all columns are equal.
        gallery: (G, L) label paths.
        own: (Q,) whether the gallery holds the query itself, which does not count.

    Returns:
        (Q,) bool.

    Example:
        >>> without_match(np.array([[7], [8]]), np.array([[7], [7]])).tolist()
        [False, True]
    """
    # Counted by class: all pairs would not fit in memory. Hashed, as a sort of millions is slow.
    every = pd.DataFrame(np.concatenate([query, gallery]))
    number = every.groupby(list(every), sort=False).ngroup().to_numpy()
    images = np.bincount(number[len(query) :], minlength=int(number.max()) + 1)
    return np.asarray(images[number[: len(query)]] <= own)
