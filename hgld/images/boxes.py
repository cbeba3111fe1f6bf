"""Boxes that name a part of a photo, such as a face: extended, and cut out.

A table has a box in the columns ``hgld.artifacts.BOX``, in pixels of the upright photo.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PIL import Image

from hgld.artifacts import BOX
from hgld.images.decode import Undecodable

if TYPE_CHECKING:
    import pandas as pd


class OutsidePhoto(Undecodable):
    """A box has no pixel of its photo; the message names both."""


def extended_boxes(sides: "pd.DataFrame", share: float) -> dict[str, "pd.Series[float]"]:
    """Return the columns ``BOX`` of boxes that grow by a share of their sides, about their centre.

    Args:
        sides: left, top, width and height of each box, in this order.
        share: by which width and height grow, half of it on each side.

    Example:
        >>> import pandas as pd
        >>> boxes = extended_boxes(pd.DataFrame([[10, 20, 100, 60]]), 0.3)
        >>> [round(float(column[0]), 1) for column in boxes.values()]
        [-5.0, 11.0, 125.0, 89.0]
    """
    left, top, width, height = (sides[name] for name in sides)
    half = share / 2
    box = (left - half * width, top - half * height,
           left + (1 + half) * width, top + (1 + half) * height)  # fmt: skip
    return dict(zip(BOX, box, strict=True))


def cut_out(image: Image.Image, box: Sequence[float]) -> Image.Image:
    """Return the part of an upright photo in a box, without what the box has beyond the photo.

    Args:
        image: the photo.
        box: left, top, right, bottom in pixels; each is rounded.

    Raises:
        OutsidePhoto: nothing of the photo is in the box.

    Example:
        >>> cut_out(Image.new("RGB", (40, 30)), (-5.2, 10.0, 20.0, 99.0)).size
        (20, 20)
    """
    ends = zip(box, image.size * 2, strict=True)
    left, top, right, bottom = (min(max(round(edge), 0), end) for edge, end in ends)
    if left >= right or top >= bottom:
        edges = ", ".join(f"{edge:g}" for edge in box)
        raise OutsidePhoto(
            f"the box ({edges}) from left, top to right, bottom has no pixel of the photo of "
            f"{image.width} x {image.height}; correct it in the data set's file of boxes"
        )
    return image.crop((left, top, right, bottom))
