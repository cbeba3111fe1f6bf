"""Makes tensors of JPEG bytes, and bears with as many damaged images as it was told to.

One flipped bit should not end a run of days, and a disk that loses images should. So undecodable
images are counted against a budget; within it, another image of the class takes the place.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from hgld.errors import InvalidData
from hgld.shards.jpeg import decode_rgb

__all__ = ["Decoder", "decode_image"]

Transform = Callable[[Image.Image], Tensor]


def decode_image(data: bytes | memoryview, name: str) -> Image.Image:
    """The image in RGB.

    Raises:
        InvalidData: it cannot be decoded; ``name`` says which.
    """
    try:
        return decode_rgb(data)
    except (OSError, SyntaxError, ValueError) as error:
        raise InvalidData(
            f"{name}: the image cannot be decoded ({type(error).__name__}), so the shard is "
            "damaged; run `hgld shards verify`"
        ) from None


class Decoder:
    """Decodes and transforms the images of batches.

    Args:
        transform: makes a tensor of a PIL image in RGB; may draw from torch's random numbers.
        seed: the numbers that it draws depend on this, the epoch, the step and the place in the
            global batch, never on workers or ranks.
        budget: undecodable images that are borne with, in each worker process.
    """

    def __init__(self, transform: Transform, seed: int, budget: int) -> None:
        self.transform, self.seed, self.budget = transform, seed, budget
        self.undecodable = 0

    def batch(
        self,
        data: Sequence[bytes | None],
        names: Sequence[str],
        classes: np.ndarray,
        place: tuple[int, int, int],
    ) -> Tensor:
        """Images (B, ...); None gives an image of zeros, as padding.

        Args:
            data: a JPEG for each place, or None.
            names: what to call each of them in an error.
            classes: (B,) finest class of each place.
            place: epoch, step, and number of the first place in the global batch.
        """
        epoch, step, first = place
        images: list[Tensor | None] = []
        with torch.random.fork_rng(devices=[]):
            for i, jpeg in enumerate(data):
                seeds = np.random.SeedSequence([self.seed, epoch, step, first + i])
                torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0] >> 1))
                images.append(None if jpeg is None else self._try(jpeg, names[i]))
        return torch.stack(self._fill(images, data, classes, names))

    def _try(self, jpeg: bytes, name: str) -> Tensor | None:
        try:
            return self.transform(decode_image(jpeg, name))
        except InvalidData as error:
            self.undecodable += 1
            if self.undecodable > self.budget:
                raise InvalidData(
                    f"{error} ({self.undecodable} undecodable images; {self.budget} are allowed)"
                ) from None
            return None

    @staticmethod
    def _fill(
        images: Sequence[Tensor | None],
        data: Sequence[bytes | None],
        classes: np.ndarray,
        names: Sequence[str],
    ) -> list[Tensor]:
        """Put another image of the class where one is damaged, and zeros where none belongs."""
        there = {
            int(c): image for c, image in zip(classes, images, strict=True) if image is not None
        }
        if not there:
            raise InvalidData(f"{names[0]}: no image of its batch can be decoded")
        shape = next(iter(there.values()))
        filled = []
        for image, jpeg, label, name in zip(images, data, classes, names, strict=True):
            if image is None and jpeg is not None and int(label) not in there:
                raise InvalidData(f"{name}: no image of its class in this batch can be decoded")
            spare = there.get(int(label)) if jpeg is not None else torch.zeros_like(shape)
            filled.append(spare if image is None else image)
        return [image for image in filled if image is not None]
