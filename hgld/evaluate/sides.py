"""The two sides of an evaluation: the query images and the gallery images.

The images of a side are in files, the shards or the data set's own tars. Each file is a part with a
key of its content and is embedded as one task, so that only a changed file is embedded again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd

from hgld.errors import UsageError
from hgld.shards.index import labels_of, read_index, read_manifest
from hgld.shards.schema import IMAGE_CRC32

__all__ = ["Part", "Shards", "Side", "side_of_files"]


@dataclass(frozen=True)
class Part:
    """Images of one file.

    Attributes:
        folder: of the file.
        rows: the images, with shard (the file's name), key, offset and size_bytes.
        key: hash of the file and the images read from it.
    """

    folder: Path
    rows: pd.DataFrame
    key: str


@dataclass(frozen=True)
class Side:
    """Queries or gallery: the samples of one split, in the order of the index.

    A gallery may join several splits, ``A+B``. If the first one is the queries, they search
    themselves and the others (distractors), and each is excluded from its own ranking.
    """

    split: str
    rows: pd.DataFrame
    labels: np.ndarray  # (N, L), coarse to fine
    folder: Path
    hashes: dict[str, str]

    @property
    def image_ids(self) -> np.ndarray:
        """(N,) image ids."""
        return self.rows["image_id"].to_numpy(dtype=str)

    def begins_with(self, query: "Side") -> bool:
        """Whether its first images are the queries, so that each would find itself."""
        return self.split.split("+")[0] == query.split

    def parts(self) -> Iterator[Part]:
        """Yield the samples of each file, in order.

        The key covers the file and the images read from it. A reader checks the bytes against the
        checksums of the rows, so embeddings always belong to the images that a key names.
        """
        columns = ["offset", "size_bytes", *([IMAGE_CRC32] if IMAGE_CRC32 in self.rows else [])]
        for file, rows in self.rows.groupby("shard", sort=False):
            key = sha256(self.hashes[str(file)].encode())
            key.update(rows[columns].to_numpy(np.int64).tobytes())
            yield Part(self.folder, rows, key.hexdigest()[:32])


@dataclass(frozen=True)
class Shards:
    """Index and manifest of a folder of shards, for an evaluation."""

    folder: Path
    levels: tuple[str, ...]
    index: pd.DataFrame
    hashes: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> "Shards":
        """Read index and manifest of the folder."""
        manifest = read_manifest(folder)
        hashes = {str(shard["file"]): str(shard["sha256"]) for shard in manifest["shards"]}
        levels = tuple(str(name) for name in manifest["levels"])
        return cls(folder, levels, read_index(folder), hashes)

    def side(self, split: str, option: str) -> Side:
        """Return the samples of a split, or of several in their order, ``A+B``.

        Raises:
            UsageError: a split has no samples.
        """
        rows = pd.concat([self._rows(name, option) for name in split.split("+")], ignore_index=True)
        return Side(split, rows, labels_of(rows), self.folder, self.hashes)

    def _rows(self, split: str, option: str) -> pd.DataFrame:
        rows = self.index[self.index["split"] == split]
        if rows.empty:
            raise UsageError(
                f"evaluate.{option} '{split}' has no samples; the shards hold "
                + (", ".join(sorted(self.index["split"].unique())) or "none at all")
            )
        return rows


def side_of_files(split: str, rows: pd.DataFrame, folder: Path) -> Side:
    """Return a side of images without labels from other files than shards: tars or photos.

    Args:
        split: name of the side.
        rows: image_id, path below the folder, offset and size_bytes.
        folder: of the files.
    """
    rows = rows.sort_values(["path", "offset"], ignore_index=True)
    rows = rows.assign(shard=rows["path"], key=rows["image_id"])
    hashes = {}
    for path in rows["path"].unique():
        facts = (folder / str(path)).stat()
        times = f"{facts.st_mtime_ns} {facts.st_ctime_ns}"  # a copy may keep the mtime
        hashes[str(path)] = sha256(f"{path} {facts.st_size} {times}".encode()).hexdigest()
    return Side(split, rows, np.empty((len(rows), 0), np.int64), folder, hashes)
