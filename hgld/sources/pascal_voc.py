"""Boxes of Pascal VOC in its published layout, for detection (``hgld.ranking.detection``).

``ImageSets/Main/SPLIT.txt`` names the images, ``Annotations/IMAGE.xml`` has their boxes: corners in
pixels, counted from 1, both inside the box.
"""

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from hgld.errors import InvalidData
from hgld.sources.native.listing import read_words, require_file

__all__ = ["TrueBoxes", "read_voc"]

CORNERS = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True)
class TrueBoxes:
    """The annotated boxes of a split.

    Attributes:
        images: names of all images of the split, also of those without a box.
        image_of: (M,) row of ``images``.
        classes: (M,) names.
        boxes: (M, 4) xmin, ymin, xmax, ymax in pixels from 1.
        difficult: (M,) whether a box counts neither as found nor as missed.
    """

    images: tuple[str, ...]
    image_of: np.ndarray
    classes: np.ndarray
    boxes: np.ndarray
    difficult: np.ndarray


def read_voc(folder: Path, split: str = "test") -> TrueBoxes:
    """Read the boxes of a split, such as train, trainval or test of VOCdevkit/VOC2007.

    Raises:
        InvalidData: a file is missing or damaged, or a box is empty or reaches beyond its image.
    """
    file = folder / "ImageSets" / "Main" / f"{split}.txt"
    images = tuple(read_words(file, {"image": "text"}, "the images of a split")["image"])
    rows = [
        (number, *box)
        for number, image in enumerate(images)
        for box in _boxes_of(folder / "Annotations" / f"{image}.xml")
    ]
    numbers, classes, corners, difficult = zip(*rows, strict=True) if rows else ((), (), (), ())
    return TrueBoxes(
        images,
        np.array(numbers, np.int64),
        np.array(classes, np.str_),
        np.array(corners, np.float64).reshape(-1, 4),
        np.array(difficult, bool),
    )


def _boxes_of(file: Path) -> list[tuple[str, list[float], bool]]:
    require_file(file, "the boxes of an image")
    try:
        root = ElementTree.parse(file).getroot()
        width, height = (float(root.findtext(f"size/{side}", "")) for side in ("width", "height"))
    except (ElementTree.ParseError, ValueError) as error:
        raise InvalidData(
            f"{file}: {error}; expected VOC's XML with the size of the image; get it again"
        ) from None
    return [
        _read_box(file, number, element, width, height)
        for number, element in enumerate(root.findall("object"), start=1)
    ]


def _read_box(
    file: Path, number: int, element: ElementTree.Element, width: float, height: float
) -> tuple[str, list[float], bool]:
    texts = [element.findtext(f"bndbox/{name}", "") for name in CORNERS]
    name, hard = element.findtext("name", ""), element.findtext("difficult", "0")
    try:
        left, top, right, bottom = corners = [float(text) for text in texts]
        inside = 1 <= left <= right <= width and 1 <= top <= bottom <= height
        difficult = bool(int(hard))
    except ValueError:
        inside = False
    if not inside or not name:
        raise InvalidData(
            f"{file} object {number}: '{name}' with {', '.join(CORNERS)} = {', '.join(texts)}, "
            f"difficult = {hard}; expected a name, a box inside 1 to {width:g} and 1 to "
            f"{height:g}, and 0 or 1; correct the file"
        )
    return name, corners, difficult
