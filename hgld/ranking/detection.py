"""Detection: the average precision loss of RaMBO for box scores, and Pascal VOC's own AP.

Rolinek et al. (2020, section 5.2) replace the cross entropy of a detector's classifier by AP
losses. ``hgld.sources.pascal_voc`` reads the boxes of the data set; the page "Detection" has the
whole way.
"""

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from hgld.errors import ShapeError
from hgld.ranking.blackbox import ScoreMemory, blackbox_ap, blackbox_ap_all_classes
from hgld.ranking.checks import check_choice, check_positive

RECALLS_2007 = np.arange(11) / 10


class DetectionAP(nn.Module):
    """AP losses of box scores (5.2): mean over the classes (Eq. 22), and over all at once (Eq. 23).

    Boxes of the last batches are ranked, too, without gradient (4.3). Classes without a box in
    batch and memory are left out of the mean.

    Args:
        classes: number of classes C, without the background.
        lam: lambda of Algorithm 1.
        margin: alpha of section 4.4.
        memory: number of earlier batches that are kept; tau of the paper.
        mean_weight: weight of the mean over the classes; the loss over all at once has 1.

    Example:
        >>> loss = DetectionAP(classes=2)
        >>> scores = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.1, 0.3]])
        >>> loss(scores, torch.tensor([1, 2, 0])).item()
        0.0
    """

    def __init__(
        self,
        classes: int,
        lam: float = 0.5,
        margin: float = 0.15,
        memory: int = 7,
        mean_weight: float = 2.0,
    ) -> None:
        super().__init__()
        check_positive(classes=classes, lam=lam, mean_weight=mean_weight)
        self.classes, self.lam, self.margin = classes, lam, margin
        self.mean_weight = mean_weight
        self.memory = ScoreMemory(memory)

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the weighted mean of both losses; one number in [0, 1].

        Args:
            scores: (N, C) score of each box for each class, without the background.
            labels: (N,) class 1 ... C of each box, 0 for the background.

        Raises:
            ShapeError: another number of classes, or a label beyond it.
        """
        if scores.ndim != 2 or scores.shape != (len(labels), self.classes):
            raise ShapeError(
                f"scores are {tuple(scores.shape)} for {len(labels)} labels; expected "
                f"({len(labels)}, {self.classes})"
            )
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) <= self.classes:
            raise ShapeError(
                f"labels are {int(labels.min())} to {int(labels.max())}; expected 0 (background) "
                f"to {self.classes}"
            )
        wanted = torch.arange(1, self.classes + 1, device=labels.device)
        right = (labels[None] == wanted[:, None]).long()
        scores, right = self.memory.extend(scores.T, right)
        found = (right > 0).any(1)
        classes = max(1, int(found.sum()))
        mean = blackbox_ap(scores, right, self.lam, self.margin, classes).sum() / classes
        at_once = blackbox_ap_all_classes(scores, right, self.lam, self.margin)
        return (self.mean_weight * mean + at_once) / (self.mean_weight + 1)


def overlaps(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union, with the corner pixels inside, as VOC's program counts them.

    Args:
        boxes: (N, 4) xmin, ymin, xmax, ymax.
        others: (M, 4).

    Returns:
        (N, M) in [0, 1].

    Example:
        >>> overlaps(np.array([[1, 1, 10, 10]]), np.array([[1, 1, 10, 20], [11, 11, 12, 12]]))
        array([[0.5, 0. ]])
    """
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    common = np.clip(high - low + 1, 0, None).prod(axis=2)
    areas = [(b[:, 2:] - b[:, :2] + 1).prod(axis=1) for b in (boxes, others)]
    found: np.ndarray = common / (areas[0][:, None] + areas[1][None] - common)
    return found


def match_boxes(
    boxes: np.ndarray,
    scores: np.ndarray,
    images: np.ndarray,
    truth: np.ndarray,
    truth_images: np.ndarray,
    difficult: np.ndarray,
    overlap: float = 0.5,
) -> np.ndarray:
    """Find which detections of a class are right, by the rules of VOC's program.

    In the order of their scores, each detection is compared with the true box of its image that
    it overlaps most. It is right if that overlap is large enough and no earlier detection took the
    box; it is left out if the box is difficult.

    Args:
        boxes: (N, 4) detections: xmin, ymin, xmax, ymax.
        scores: (N,) confidences; of equal ones, the first counts first.
        images: (N,) image of each.
        truth: (M, 4) true boxes of the class.
        truth_images: (M,) image of each.
        difficult: (M,) whether a box counts neither as found nor as missed.
        overlap: intersection over union from which on a box is found.

    Returns:
        (N,) int8: 1 right, 0 wrong, -1 left out.

    Example:
        >>> box = np.array([[1, 1, 10, 10], [1, 1, 10, 10]])
        >>> here = np.array([7, 7])
        >>> match_boxes(box, np.array([0.5, 0.9]), here, box[:1], here[:1], np.array([False]))
        array([0, 1], dtype=int8)
    """
    found = np.zeros(len(boxes), np.int8)
    taken = np.zeros(len(truth), bool)
    rows_of = {image: np.flatnonzero(truth_images == image) for image in np.unique(truth_images)}
    for row in np.argsort(-scores, kind="stable"):
        rows = rows_of.get(images[row])
        if rows is None:
            continue
        shares = overlaps(boxes[row : row + 1], truth[rows])[0]
        best = rows[shares.argmax()]
        if shares.max() < overlap:
            continue
        if difficult[best]:
            found[row] = -1
        elif not taken[best]:  # a second detection of a found box is wrong
            found[row], taken[best] = 1, True
    return found


def voc_average_precision(
    scores: np.ndarray,
    right: np.ndarray,
    positives: int,
    protocol: Literal["2007", "2012"] = "2012",
) -> float:
    """AP of one class as the challenges of 2007 and of 2010 to 2012 define it.

    2012: the area below precision made monotone in recall. 2007: the mean of that precision at the
    recalls 0, 0.1 ... 1.

    Args:
        scores: (N,) confidences of the detections; of equal ones, the first counts first.
        right: (N,) 1 right, 0 wrong, -1 left out; see ``match_boxes``.
        positives: number of true boxes that are not difficult.
        protocol: the year whose rule holds.

    Returns:
        In [0, 1]; nan if there is no true box.

    Raises:
        ShapeError: another protocol, or more right detections than true boxes.

    Example:
        >>> scores, right = np.array([0.9, 0.8, 0.7]), np.array([1, 0, 1])
        >>> round(voc_average_precision(scores, right, 2), 4)
        0.8333
        >>> round(voc_average_precision(scores, right, 2, "2007"), 4)
        0.8485
    """
    check_choice("2007", "2012", protocol=protocol)
    if not positives:
        return float("nan")
    if (count := int((right > 0).sum())) > positives or right.shape != scores.shape:
        raise ShapeError(
            f"{count} of {len(right)} detections with {len(scores)} scores are right, and there "
            f"are {positives} true boxes; expected a score each, and no more right than true"
        )
    order = np.argsort(-scores, kind="stable")
    hits = right[order][right[order] >= 0]
    found = hits.cumsum()
    precision = found / np.arange(1, len(hits) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]  # the best from here on
    if protocol == "2012":
        return float(precision[hits > 0].sum() / positives)
    # a product such as 0.3 * 10 is just above 3
    first = np.searchsorted(found, np.ceil(RECALLS_2007 * positives - 1e-9))
    reached = np.append(precision, 0.0)[np.minimum(first, len(hits))]
    return float(reached.mean())
