"""Class names as text queries: each class of a split searches the gallery by its name.

A query of a level above the finest has no class below it, so that it shares at most its own level
with a photo.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from hgld.artifacts import SPACE_OF_SPLIT
from hgld.credit import UNKNOWN
from hgld.errors import UsageError
from hgld.evaluate.given import unit_rows
from hgld.evaluate.sides import Shards, Side
from hgld.shards.index import labels_of
from hgld.shards.schema import numbered_levels
from hgld.tasks import say
from hgld.words import part_text

if TYPE_CHECKING:
    from hgld.model import TextEncoder
    from hgld.model.custom import CustomNetwork


def name_queries(
    shards: Shards, split: str, level: str | None, hierarchy: pd.DataFrame, landmarks: pd.DataFrame
) -> Side:
    """Return a side with one query for each class of a level among the images of a split.

    The id of a query is the path of its class, as ``human-made/church``.

    Args:
        shards: the images.
        split: of the images; several as ``A+B``.
        level: of the classes; None: the finest.
        hierarchy: split, landmark_id and path of the finest classes.
        landmarks: their names; one without a name has no query, and is counted.

    Raises:
        UsageError: no such level or split, or no class has a name.
    """
    depth = level_number("name_level", level, shards.levels)
    columns = numbered_levels(depth)
    wanted = ["split", "landmark_id", *columns]
    parts = [
        file[wanted].drop_duplicates(columns) for file in shards.files_of(split, "evaluate.query")
    ]
    rows = pd.concat(parts, ignore_index=True).drop_duplicates(columns).sort_values(columns)
    spaces = rows["split"].map(SPACE_OF_SPLIT)
    keys = list(zip(spaces, rows["landmark_id"], strict=True))
    of_path = _by_landmark(hierarchy, "path")
    paths = [tuple(json.loads(of_path[key]).values())[:depth] for key in keys]
    names = pd.Series([path[-1] for path in paths], rows.index)
    if depth == len(shards.levels):  # its class is called by its number
        known = _by_landmark(landmarks, "name")
        names[:] = [known.get(key, UNKNOWN) for key in keys]
    named = ~names.isin(["", UNKNOWN])
    if not named.any():
        raise UsageError(f"evaluate.queries: no {shards.levels[depth - 1]} of '{split}' has a name")
    if lost := int((~named).sum()):
        have = part_text(lost, len(rows), "class", "have")
        say(f"evaluate: {have} no name and cannot be searched for")
    finer = dict.fromkeys(numbered_levels(len(shards.levels))[depth:], -1)
    ids = ["/".join(path) for path in paths]
    rows = rows.assign(image_id=ids, **finer)[named].reset_index(drop=True)
    split = f"names of {split}"
    return Side(split, [rows], labels_of(rows), shards.folder, {}, tuple(names[named]))


def level_number(option: str, level: str | None, levels: Sequence[str]) -> int:
    """Number of the level that an option names, 1 for the coarsest; None is the finest.

    Raises:
        UsageError: no such level.

    Example:
        >>> levels = ("group", "species")
        >>> [level_number("name_level", level, levels) for level in ("group", None)]
        [1, 2]
    """
    if level is not None and level not in levels:
        raise UsageError(f"evaluate.{option} '{level}' is none of {', '.join(levels)}")
    return len(levels) if level is None else list(levels).index(level) + 1


def embed_prompts(
    encoder: "TextEncoder | CustomNetwork", names: Sequence[str], prompts: Sequence[str]
) -> np.ndarray:
    """(N, D) unit vectors of names: the mean over the prompts, as CLIP's zero-shot classes.

    Args:
        encoder: of texts.
        names: of classes.
        prompts: each holds one ``{}`` for the name.
    """
    texts = [[prompt.replace("{}", name) for name in names] for prompt in prompts]
    return unit_rows(np.mean([encoder.encode(some) for some in texts], axis=0))


def _by_landmark(table: pd.DataFrame, column: str) -> dict[tuple[str, int], str]:
    keys = zip(table["split"], table["landmark_id"], strict=True)
    return dict(zip(keys, table[column], strict=True))
