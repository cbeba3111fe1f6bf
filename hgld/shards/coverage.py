"""Report before training which classes and images an epoch reaches, and which it leaves out.

Sampling by class leaves images out silently. Over a few epochs most of them are drawn, but classes
that are too small never are. Both numbers should be known before a run that takes days.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hgld.shards.batches import BatchOptions, Samples, plan_epoch

__all__ = ["Coverage", "measure_coverage"]


@dataclass(frozen=True)
class Coverage:
    """Classes and images of some epochs.

    Attributes:
        steps: batches of each epoch.
        classes, images: how many there are.
        classes_reached, images_reached: how many are in at least one batch.
        classes_too_small: classes that are left out because they have fewer than K images.
        images_too_small: images of those classes.
        images_left_out: images of other classes that no batch took (remainders, cap, no partners).
        repeats: images that are in an epoch more than once.
        padding: cells of batches that are padding.
    """

    steps: tuple[int, ...]
    classes: int
    images: int
    classes_reached: int
    images_reached: int
    classes_too_small: int
    images_too_small: int
    images_left_out: int
    repeats: int
    padding: int

    def describe(self, images_per_class: int) -> str:
        """Describe in one line what an epoch covers and what it leaves out."""
        shown = (
            f"batches of an epoch: {max(self.steps):,}; classes in them: {self.classes_reached:,} "
            f"of {self.classes:,}; images: {self.images_reached:,} of {self.images:,}"
        )
        others = self.classes - self.classes_reached - self.classes_too_small
        left_out = {
            f"classes with fewer than {images_per_class} images": self.classes_too_small,
            "images of these": self.images_too_small,
            "classes without room or partners": others,
            "images left for other epochs": self.images_left_out,
            "repeated images": self.repeats,
            "padded places": self.padding,
        }
        return "; ".join([shown, *(f"{what}: {n:,}" for what, n in left_out.items() if n)])

    def to_json(self) -> dict[str, Any]:
        """The counts as plain values."""
        return asdict(self)


def measure_coverage(
    samples: Samples, options: BatchOptions, *, seed: int, epochs: int = 1
) -> Coverage:
    """Plan the first ``epochs`` epochs and count the classes and images in them."""
    plans = [plan_epoch(samples, options, seed=seed, epoch=epoch) for epoch in range(epochs)]
    drawn = [plan[plan >= 0] for plan in plans]
    reached = np.unique(np.concatenate(drawn))
    finest = samples.labels[:, -1]
    classes, number, size = np.unique(finest, return_inverse=True, return_counts=True)
    small = size < options.images_per_class
    if options.small_classes != "drop":
        # Otherwise small classes are repeated or padded, not left out.
        small = np.zeros_like(small)
    in_small = int(size[small].sum())
    return Coverage(
        steps=tuple(len(plan) for plan in plans),
        classes=len(classes),
        images=len(finest),
        classes_reached=len(np.unique(number[reached])),
        images_reached=len(reached),
        classes_too_small=int(small.sum()),
        images_too_small=in_small,
        images_left_out=len(finest) - len(reached) - in_small,
        repeats=sum(len(rows) - len(np.unique(rows)) for rows in drawn),
        padding=sum(int((plan < 0).sum()) for plan in plans),
    )
