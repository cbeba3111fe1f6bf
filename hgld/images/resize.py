"""Resize photos and cut parts out of them, and record the changes in a resized file.

A photo is resized when it becomes a sample, or already on download if the disk has no space for the
original. Both give the same pixels. Licences require a statement of changes, so a photo that is
resized on download carries a note in a JPEG comment, from which the sample's record is made.

A box names a part of a photo, such as a face: a table has it in the columns ``hgld.artifacts.BOX``,
in pixels of the upright photo.
"""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from hgld.artifacts import BOX
from hgld.images.decode import Undecodable, decoding, is_turned, open_image, upright_rgb

if TYPE_CHECKING:
    import pandas as pd

HEAD_BYTES = 256  # enough: the comment is among the first markers
MARK = "hgld, from {width} x {height}: {changes}\n"
PATTERN = re.compile(rb"hgld, from (\d+) x (\d+): ([^\n]+)\n")


@dataclass(frozen=True)
class Note:
    """Upright size of a photo before it was resized, and the changes made to it."""

    width: int
    height: int
    changes: str


def resize(image: Image.Image, short_side: int) -> Image.Image:
    """Return the image with that short side, proportions kept; a smaller one is unchanged.

    Example:
        >>> resize(Image.new("RGB", (800, 600)), 256).size
        (341, 256)
        >>> resize(Image.new("RGB", (80, 60)), 256).size
        (80, 60)
    """
    scale = short_side / min(image.size)
    if scale >= 1:
        return image
    width, height = (max(1, round(side * scale)) for side in image.size)
    return image.resize((width, height), Image.Resampling.BICUBIC)


def describe_changes(turned: bool, short_side: int | None, quality: int, cut: bool = False) -> str:
    """Describe the changes made to a photo, for its record.

    Example:
        >>> describe_changes(True, 256, 90)
        'turned upright, resized to short side 256, JPEG quality 90'
        >>> describe_changes(False, None, 90, cut=True)
        'cut out of the photo, JPEG quality 90'
    """
    changes = ["turned upright"] if turned else []
    changes += ["cut out of the photo"] if cut else []
    changes += [] if short_side is None else [f"resized to short side {short_side}"]
    return ", ".join([*changes, f"JPEG quality {quality}"])


def shrink_jpeg(data: bytes, short_side: int, quality: int) -> bytes:
    """Return the photo as a smaller JPEG with its note.

    Huffman tables are optimised for each photo: 4 % smaller, with the same pixels. A photo that is
    small enough is returned unchanged. So is one that cannot be decoded: export drops it later,
    with the reason.
    """
    try:
        with decoding(), open_image(data) as image:
            if min(image.size) <= short_side:
                return data
            turned, own = is_turned(image), image.info.get("comment", b"")
            upright = upright_rgb(image)
        changes = describe_changes(turned, short_side, quality)
        note = MARK.format(width=upright.width, height=upright.height, changes=changes).encode()
        own = own.encode() if isinstance(own, str) else own  # a PNG's is text
        buffer = io.BytesIO()
        # A JPEG segment holds 65,533 bytes at most.
        comment = (note + own)[:65_000]
        made = resize(upright, short_side)
        made.save(buffer, "JPEG", quality=quality, optimize=True, comment=comment)
    except (Undecodable, OSError):  # OSError: a side is longer than a JPEG's 65,500 pixels
        return data
    return buffer.getvalue()


def read_note(data: bytes) -> Note | None:
    """Read the note of a resized photo; None if it has none.

    Example:
        >>> read_note(b"no photo") is None
        True
    """
    found = PATTERN.search(data[:HEAD_BYTES])
    if found is None:
        return None
    return Note(int(found[1]), int(found[2]), found[3].decode("ascii", "replace"))


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
