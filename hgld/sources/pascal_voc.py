"""Boxes of Pascal VOC in its published layout, and the AP of detections of them.

``ImageSets/Main/SPLIT.txt`` names the images, ``Annotations/IMAGE.xml`` has their boxes: corners in
pixels, counted from 1, both inside the box.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import numpy as np

from hgld.errors import InvalidData, ShapeError
from hgld.ranking.detection import match_boxes, voc_average_precision
from hgld.sources.listing import read_words, require_file

CORNERS = ("xmin", "ymin", "xmax", "ymax")
UNPACK = "give the folder of a year, such as VOCdevkit/VOC2007, and unpack all of it"


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
        InvalidData: a file is missing or damaged, an image is listed twice, or a box is empty or
            reaches beyond its image.
    """
    what = "the images of a split"
    file = require_file(folder / "ImageSets" / "Main" / f"{split}.txt", what, UNPACK)
    lines = read_words(file, {"image": "text"}, what)
    images = tuple(lines["image"])
    twice = lines[lines["image"].duplicated()]
    if not twice.empty:
        raise InvalidData(
            f"{file} line {twice['line'].iloc[0]}: '{twice['image'].iloc[0]}' again; expected each "
            f"image once ({len(twice)} such lines); get the file again"
        )
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


def measure_detections(
    boxes: np.ndarray,
    scores: np.ndarray,
    classes: np.ndarray,
    images: np.ndarray,
    truth: TrueBoxes,
    overlap: float = 0.5,
    protocol: Literal["2007", "2012"] = "2007",
) -> dict[str, float]:
    """Return the AP of each class of a split; their mean is the challenge's mAP, or AP50.

    Args:
        boxes: (N, 4) detections: xmin, ymin, xmax, ymax in pixels from 1.
        scores: (N,) confidences; of equal ones, the first counts first.
        classes: (N,) names.
        images: (N,) row of ``truth.images``.
        truth: the annotated boxes.
        overlap: intersection over union from which on a box is found.
        protocol: the year whose rule holds; see ``voc_average_precision``.

    Returns:
        Class to AP in [0, 1]; nan if all boxes of the class are difficult.

    Raises:
        ShapeError: other shapes, an image or class that the split does not have, or another
            protocol.

    Example:
        >>> box, here = np.array([[1.0, 1.0, 10.0, 10.0]]), np.array([0])
        >>> truth = TrueBoxes(("000001",), here, np.array(["dog"]), box, np.array([False]))
        >>> measure_detections(box, np.array([0.9]), np.array(["dog"]), here, truth)
        {'dog': 1.0}
    """
    shapes = boxes.shape, scores.shape, classes.shape, images.shape
    if shapes != ((len(boxes), 4), *[(len(boxes),)] * 3):
        raise ShapeError(
            f"boxes, scores, classes and images are {shapes}; expected (N, 4) and (N,)"
        )
    if len(images) and not 0 <= images.min() <= images.max() < len(truth.images):
        raise ShapeError(
            f"images are {images.min()} to {images.max()}; expected rows of {len(truth.images)}"
        )
    names = np.unique(truth.classes)
    if strange := sorted(set(classes.tolist()) - set(names.tolist())):
        raise ShapeError(f"'{strange[0]}' is not a class of the split; it has {', '.join(names)}")
    found = {}
    for name in names.tolist():
        own, here = classes == name, truth.classes == name
        given = boxes[own], scores[own], images[own], truth.boxes[here], truth.image_of[here]
        right = match_boxes(*given, truth.difficult[here], overlap)
        positives = int((~truth.difficult[here]).sum())
        found[name] = voc_average_precision(scores[own], right, positives, protocol)
    return found


def _boxes_of(file: Path) -> list[tuple[str, list[float], bool]]:
    try:
        root = ElementTree.parse(require_file(file, "the boxes of an image", UNPACK)).getroot()
        width, height = (float(root.findtext(f"size/{side}", "")) for side in ("width", "height"))
    except (ElementTree.ParseError, ValueError) as error:
        raise InvalidData(
            f"{file}: {error}; expected VOC's XML with the size of the image; get it again"
        ) from None
    found = []
    for number, element in enumerate(root.findall("object"), start=1):
        texts = [element.findtext(f"bndbox/{name}", "") for name in CORNERS]
        name, hard = element.findtext("name", ""), element.findtext("difficult", "0")
        try:
            left, top, right, bottom = corners = [float(text) for text in texts]
            inside = 1 <= left <= right <= width and 1 <= top <= bottom <= height
            difficult = {"0": False, "1": True}[hard.strip()]
        except (ValueError, KeyError):
            inside = False
        if not inside or not name:
            raise InvalidData(
                f"{file} object {number}: '{name}' with {', '.join(CORNERS)} = {', '.join(texts)}, "
                f"difficult = {hard}; expected a name, a box inside 1 to {width:g} and 1 to "
                f"{height:g}, and 0 or 1; correct the file"
            )
        found.append((name, corners, difficult))
    return found
