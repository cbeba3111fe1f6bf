"""Makes tensors of JPEG bytes, and bears with as many damaged images as it was told to.

One flipped bit should not end a run of days, and a disk that loses images should. So undecodable
images are counted against a budget; within it, another image of the class takes the place: one
that the batch does not hold, as long as the class has one. Which one depends on the plan and on
the damaged image alone, so that all readers, ranks and workers give the same batch.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from hgld.errors import InvalidData
from hgld.images import Undecodable, decode_rgb
from hgld.shards.damaged import exceeded
from hgld.shards.schema import require_intact
from hgld.shards.sequence import GlobalBatch

__all__ = ["Decoder", "Source", "Transform", "decode_image"]

Transform = Callable[[Image.Image], Tensor]


def decode_image(data: bytes | memoryview, name: str) -> Image.Image:
    """Return an image, upright in RGB.

    Raises:
        InvalidData: it cannot be decoded; ``name`` says which.
    """
    try:
        return decode_rgb(data)
    except Undecodable as error:
        raise InvalidData(
            f"{name}: the image cannot be decoded ({error}), so the shard is damaged; run `hgld "
            "shards verify`"
        ) from None


class Source(Protocol):
    """Where single images come from when another has to take a place."""

    labels: np.ndarray  # (N, L)

    def read_bytes(self, number: int) -> bytes:
        """The JPEG of a row."""
        ...

    def crc32(self, number: int) -> int | None:
        """The CRC-32 that the JPEG of a row has to have, if it is known."""
        ...

    def name(self, number: int) -> str:
        """Shard and key of a row, for an error."""
        ...


class Decoder:
    """Decodes and transforms the images of batches.

    Args:
        transform: makes a tensor of a PIL image in RGB; may draw from torch's random numbers on
            the CPU.
        seed: the numbers that it draws depend on this, the epoch, the step and the place in the
            global batch, never on workers or ranks.
        budget: undecodable images that are borne with. A decoder counts those that its own process
            meets, and those that are known; ``DamagedImages`` counts those of all processes.
        known: row numbers of undecodable images that were met before.

    Attributes:
        undecodable: row numbers of all undecodable images that are known.
    """

    def __init__(
        self, transform: Transform, seed: int, budget: int, known: Iterable[int] = ()
    ) -> None:
        self.transform, self.seed, self.budget = transform, seed, budget
        self.undecodable = set(known)

    def batch(
        self,
        batch: GlobalBatch,
        jpegs: Iterable[tuple[int, bytes | memoryview]],
        source: Source,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Images (B, ...), labels (B, L) and row numbers (B,) of a rank's part of a batch.

        Padding is an image of zeros with the labels and the row number -1.

        Args:
            batch: what is wanted.
            jpegs: place in the rank's part, and JPEG, of all that is no padding, in any order.
            source: of the images that take the place of damaged ones.
        """
        rows = batch.mine.copy()
        images: list[Tensor | None] = [None] * len(rows)
        with torch.random.fork_rng(devices=[]):
            for place, jpeg in jpegs:
                torch.default_generator.manual_seed(self._seed_of(batch, place))
                rows[place], images[place] = self.image(batch, place, jpeg, source)
            blank = self._padding(batch, images, source)
        whole = [blank if image is None else image for image in images]
        labels = np.where(rows[:, None] >= 0, source.labels[rows], -1)
        return torch.stack(whole), torch.from_numpy(labels), torch.from_numpy(rows)

    def image(
        self, batch: GlobalBatch, place: int, jpeg: bytes | memoryview, source: Source
    ) -> tuple[int, Tensor]:
        """The row and the tensor for a place, of another image where its own is damaged.

        The transform draws from torch's random numbers as they stand.

        Raises:
            InvalidData: more images are damaged than the budget bears with, or all of the class.
        """
        row = int(batch.mine[place])
        image = self._make(jpeg, row, source)
        return self._replace(batch, place, source) if image is None else (row, image)

    def _padding(
        self, batch: GlobalBatch, images: Iterable[Tensor | None], source: Source
    ) -> Tensor:
        """Zeros in the shape of an image: of this part, or of the batch where all are padding."""
        elsewhere = batch.rows[batch.rows >= 0].tolist()
        others = (self._make(source.read_bytes(row), row, source) for row in elsewhere)
        return torch.zeros_like(next(i for i in chain(images, others) if i is not None))

    def _seed_of(self, batch: GlobalBatch, place: int) -> int:
        numbers = [self.seed, batch.epoch, batch.step, batch.part.start + place]
        return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)

    def _make(self, jpeg: bytes | memoryview, row: int, source: Source) -> Tensor | None:
        """The tensor of an image; None if its bytes were changed or cannot be decoded."""
        try:
            require_intact(jpeg, source.crc32(row), source.name(row))
            image = decode_image(jpeg, source.name(row))
        except InvalidData as error:
            self.undecodable.add(row)
            if len(self.undecodable) > self.budget:
                raise exceeded(str(error), len(self.undecodable), self.budget) from None
            return None
        return self.transform(image)

    def _replace(self, batch: GlobalBatch, place: int, source: Source) -> tuple[int, Tensor]:
        """Another image of the class for a place, and its row."""
        for row in _spares(batch, place, source.labels, self.seed):
            image = self._make(source.read_bytes(row), row, source)
            if image is not None:
                return row, image
        damaged = source.name(int(batch.mine[place]))
        raise InvalidData(f"{damaged}: no image of its class can be decoded")


def _spares(batch: GlobalBatch, place: int, labels: np.ndarray, seed: int) -> Iterator[int]:
    """Rows that may take a place, best first.

    First those that are not in the batch: each place of the class has a share of its own, so that
    two damaged images are not replaced by the same one. Where the class has no other image, one
    that is in the batch already.
    """
    at = batch.part.start + place
    finest = labels[:, -1]
    label = finest[batch.rows[at]]
    together = np.flatnonzero((batch.rows >= 0) & (finest[batch.rows] == label))  # its K places
    nth = int(np.searchsorted(together, at))
    others = np.setdiff1d(np.flatnonzero(finest == label), batch.rows[together])
    np.random.default_rng([seed, batch.epoch, batch.step, int(label)]).shuffle(others)
    for turn in range(len(together)):
        yield from others[(nth + turn) % len(together) :: len(together)].tolist()
    yield from batch.rows[np.roll(together, -nth)[1:]].tolist()
