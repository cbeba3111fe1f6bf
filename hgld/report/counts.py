"""Statistics of a data set: classes and images, by level and by split."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from hgld.artifacts import SPACE_OF_SPLIT, SPLITS
from hgld.errors import InvalidData
from hgld.figures import Bar
from hgld.report.examples import class_paths
from hgld.words import level_classes, share_text

COARSEST = 6  # shares are drawn for at most this number of coarsest classes


@dataclass(frozen=True)
class Counts:
    """Labelled classes and exported images of a data set.

    Attributes:
        hierarchy: split, landmark_id and path of each labelled class.
        index: the exported images.
        levels: names of the levels, coarse to fine.
    """

    hierarchy: pd.DataFrame
    index: pd.DataFrame
    levels: tuple[str, ...]

    @cached_property
    def paths(self) -> dict[tuple[str, int], tuple[str, ...]]:
        """(id space, landmark_id) -> names of its classes, coarse to fine."""
        return class_paths(self.hierarchy)

    @cached_property
    def class_sizes(self) -> dict[str, list[int]]:
        """Split -> number of images of each of its finest classes."""
        return {
            split: [int(size) for size in rows.groupby("landmark_id").size()]
            for split, rows in by_split(self.index)
        }

    def long_tail(self) -> str:
        """Return a sentence on the largest tenth of the classes, of the split with most classes."""
        split = max(self.class_sizes, key=lambda name: len(self.class_sizes[name]))
        sizes = sorted(self.class_sizes[split], reverse=True)
        head = max(1, round(len(sizes) / 10))
        share = sum(sizes[:head]) / sum(sizes)
        of, hold = ("largest", "holds") if head == 1 else (f"{head:,} largest", "hold")
        return (
            f"The {of} of {len(sizes):,} {split} classes {hold} {share_text(share)} of the images"
        )

    @cached_property
    def bars(self) -> list[Bar]:
        """Classes and images of each class of the second finest level."""
        # ids of train and index are numbered apart: 7 is another landmark in each
        space = self.index["split"].map(SPACE_OF_SPLIT)
        of_class = self.index.groupby([space, self.index["landmark_id"]]).size().to_dict()
        images = Counter[tuple[str, ...]]()
        for key, path in self.paths.items():
            images[path[:-1]] += of_class.get(key, 0)
        return [Bar(path[-1], path[0], n, images[path]) for path, n in self.by_group.items()]

    @cached_property
    def by_group(self) -> dict[tuple[str, ...], int]:
        """Path without its finest class -> number of finest classes."""
        return dict(Counter(path[:-1] for path in self._classes))

    @cached_property
    def _classes(self) -> list[tuple[str, ...]]:
        """Paths of the finest classes; a class of both id spaces has one."""
        return list(dict.fromkeys(self.paths.values()))

    @cached_property
    def shares(self) -> dict[str, dict[str, int]]:
        """Counted thing -> coarsest class -> count; empty if there are too many classes or one."""
        coarsest = sorted({path[0] for path in self.paths.values()})
        if len(self.levels) < 2 or not 2 <= len(coarsest) <= COARSEST:
            return {}
        names = [level_classes(self.levels[-1]), *(f"{split} images" for split in self.class_sizes)]
        shares = {name: dict.fromkeys(coarsest, 0) for name in names}
        for path in self._classes:
            shares[names[0]][path[0]] += 1
        for split, rows in by_split(self.index):
            for landmark, images in rows.groupby("landmark_id").size().items():
                path = self.paths[SPACE_OF_SPLIT[split], int(str(landmark))]
                shares[f"{split} images"][path[0]] += int(images)
        return shares

    def require_classes(self) -> None:
        """Raise InvalidData if the hierarchy lacks the class of an exported image."""
        for split, rows in by_split(self.index):
            for landmark in rows["landmark_id"].unique():
                if (SPACE_OF_SPLIT[split], int(landmark)) not in self.paths:
                    raise InvalidData(
                        f"hierarchy.csv: lacks landmark {landmark} of the shards' split {split}; "
                        "`hgld run` on the pipeline exports, trains and measures with it"
                    )

    def largest_share(self) -> tuple[str, float]:
        """The coarsest class with most of the finest classes, and its share of them."""
        counts = next(iter(self.shares.values()))
        name = max(counts, key=lambda kind: (counts[kind], kind))
        return name, counts[name] / sum(counts.values())


def by_split(index: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each split that has any, in the usual order of the splits."""
    return [
        (split, index[index["split"] == split])
        for split in SPLITS
        if (index["split"] == split).any()
    ]
