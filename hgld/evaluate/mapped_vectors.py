"""Embeddings of one side of an evaluation, mapped from one file for each shard.

The system reads pages of the files when they are used and drops them when memory is short, so that
a gallery may be larger than memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path

import numpy as np
import torch

ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class MappedVectors:
    """(N, D) embeddings in pieces; ``np.asarray`` reads all of them.

    Attributes:
        pieces: (n, D) float32 arrays, in the order of the images.

    Example:
        >>> vectors = MappedVectors((np.eye(2), np.zeros((1, 2))))
        >>> len(vectors), vectors[np.array([2, 0])].tolist()
        (3, [[0.0, 0.0], [1.0, 0.0]])
    """

    pieces: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, vectors: "MappedVectors | np.ndarray") -> "MappedVectors":
        """Return vectors in pieces; an array is one piece."""
        return vectors if isinstance(vectors, MappedVectors) else cls((vectors,))

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        return np.concatenate(self.pieces)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return copies of some rows, by number."""
        # piece by piece: a row of the whole is found by where its piece ends
        ends = np.cumsum([len(piece) for piece in self.pieces])
        numbers = np.searchsorted(ends, rows, side="right")
        found = np.empty((len(rows), self.pieces[0].shape[1]), np.float32)
        for number in np.unique(numbers):
            here, piece = numbers == number, self.pieces[number]
            found[here] = piece[rows[here] - (ends[number] - len(piece))]
        return found

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows, some thousand at a time."""
        for piece in self.pieces:
            for start in range(0, len(piece), ROWS_AT_ONCE):
                yield piece[start : start + ROWS_AT_ONCE]

    def files(self, stem: Path) -> tuple[Path, ...]:
        """Return the .npy files of the pieces; pieces that are only in memory are saved first."""
        found = []
        for number, piece in enumerate(self.pieces):
            # the base of a part of a map is an array
            if isinstance(piece, np.memmap) and isinstance(piece.base, mmap):
                found.append(Path(str(piece.filename)))
                continue
            found.append(stem.with_name(f"{stem.name}-{number}.npy"))
            np.save(found[-1], piece)
        return tuple(found)

    def tensors(self) -> Sequence[torch.Tensor]:
        """Return the pieces as tensors of the same memory."""
        return [torch.from_numpy(piece) for piece in self.pieces]
