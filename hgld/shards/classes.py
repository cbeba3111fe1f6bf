"""Convert the paths of the hierarchy into dense class numbers, one per level, coarse to fine.

A class is identified by its whole path: two groups of one name under different parents are two
classes, so the levels that two samples share are the common prefix of their numbers. Numbers are
the same in every split, since they are derived from the hierarchy alone.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from hgld.artifacts import SPACE_OF_SPLIT
from hgld.errors import InvalidData

__all__ = ["Classes", "label_images", "number_classes"]


@dataclass(frozen=True)
class Classes:
    """The classes of all levels.

    Attributes:
        levels: names of the levels, coarse to fine.
        landmarks: split (the id space), landmark_id, level_1 .. level_L, and one name per level.
        table: level, id, name, parent_id (-1 at the coarsest level).
    """

    levels: tuple[str, ...]
    landmarks: pd.DataFrame
    table: pd.DataFrame


def number_classes(hierarchy: pd.DataFrame) -> Classes:
    """Number the classes of each level in the order of their paths.

    Raises:
        InvalidData: no rows; a path is not a JSON object of names, or has other levels.
    """
    if hierarchy.empty:
        raise InvalidData("hierarchy.csv: no rows, so no image has a class; run label again")
    paths = [_read_path(text, row) for row, text in enumerate(hierarchy["path"])]
    levels = _common_levels(paths)
    names = [tuple(path.values()) for path in paths]
    landmarks = hierarchy[["split", "landmark_id"]].reset_index(drop=True)
    rows: list[tuple[int, int, str, int]] = []
    parents: dict[tuple[str, ...], int] = {}
    for level in range(1, len(levels) + 1):
        # Sorted by path, so that the numbers do not depend on the order of the rows.
        numbers = {prefix: i for i, prefix in enumerate(sorted({n[:level] for n in names}))}
        rows += [(level, i, p[-1], parents.get(p[:-1], -1)) for p, i in numbers.items()]
        landmarks[f"level_{level}"] = np.array([numbers[n[:level]] for n in names], np.int64)
        landmarks[f"name_{level}"] = [n[level - 1] for n in names]
        parents = numbers
    table = pd.DataFrame(rows, columns=["level", "id", "name", "parent_id"])
    return Classes(levels, landmarks, table)


def label_images(images: pd.DataFrame, classes: Classes) -> pd.DataFrame:
    """Give each image the classes of its landmark; nan if the landmark has none.

    Args:
        images: split, landmark_id, and any other columns.
        classes: of all landmarks.

    Returns:
        The images, in their order, with level_1 .. level_L and name_1 .. name_L.
    """
    landmarks = classes.landmarks.rename(columns={"split": "space"})
    labelled = images.assign(space=images["split"].map(SPACE_OF_SPLIT)).merge(
        landmarks, on=["space", "landmark_id"], how="left", validate="many_to_one"
    )
    return labelled.drop(columns="space")


def _common_levels(paths: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the levels of all paths; the majority is right, so that an odd row is the error."""
    found = [tuple(path) for path in paths]
    levels = Counter(found).most_common(1)[0][0]
    for row, other in enumerate(found):
        if other != levels:
            raise InvalidData(
                f"hierarchy.csv row {row + 2}: levels {', '.join(other)}; expected "
                f"{', '.join(levels)} as in row {found.index(levels) + 2}"
            )
    return levels


def _read_path(text: str, row: int) -> dict[str, str]:
    try:
        path = json.loads(text)
    except ValueError:
        path = None
    if (
        not isinstance(path, dict)
        or not path
        or not all(v and isinstance(v, str) for v in path.values())
    ):
        raise InvalidData(
            f"hierarchy.csv row {row + 2}: path is {text!r}; expected a JSON object of level "
            "names and classes, coarse to fine"
        )
    return path
