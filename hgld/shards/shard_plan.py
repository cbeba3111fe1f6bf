"""Choose the images that may be exported, and scatter the runs of each class over the shards.

Rank losses need several images of a class in a batch. A reader that goes through shards
sequentially finds them only if they are adjacent: consecutive samples of one class are a run. The
runs of a class go to different shards, and every supercategory is dealt over all shards, so that a
few shards read side by side represent the whole data set. Nothing here reads an image.

An unknown licence gives no permission, so such images are left out unless the pipeline lists
"unknown". Every withheld image is recorded in export_dropped with its reason.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from math import ceil

import numpy as np
import pandas as pd

from hgld.tasks import say

__all__ = ["DROPPED", "count_reasons", "permits", "plan_shards", "shard_name", "withhold"]

MEMBER_OVERHEAD = 3 * 512 + 3 * 256 + 800  # three headers, three paddings, the JSON
DROPPED = ["split", "image_id", "reason", "detail"]
UNKNOWN = "unknown"


def shard_name(split: str, number: int) -> str:
    """File name of a shard.

    Example:
        >>> shard_name("train", 7)
        'train-000007.tar'
    """
    return f"{split}-{number:06d}.tar"


def plan_shards(
    samples: pd.DataFrame, *, run_length: int, shard_bytes: float, seed: int
) -> pd.DataFrame:
    """Assign each sample its shard and run; return the rows in the order of writing.

    Args:
        samples: split, image_id, level_1 .. level_L (class numbers), expected_bytes.
        run_length: most samples in a run; the runs of a class differ by one sample at most.
        shard_bytes: target size of a shard.
        seed: decides which images share a run, and the order of the runs.

    Returns:
        The samples with ``shard`` (file name) and ``run`` (counted in each split, in order).
    """
    parts = [
        _plan_split(_by_id(part), str(split), run_length, shard_bytes, seed)
        for split, part in samples.groupby("split", sort=True)
    ]
    return pd.concat(parts, ignore_index=True) if parts else samples.assign(shard="", run=0)


def _by_id(samples: pd.DataFrame) -> pd.DataFrame:
    in_order = samples["image_id"].is_monotonic_increasing
    return samples if in_order else samples.sort_values("image_id")


def _plan_split(
    samples: pd.DataFrame, split: str, run_length: int, shard_bytes: float, seed: int
) -> pd.DataFrame:
    # Seeded by the split's name, so that adding a split leaves the others' shards unchanged.
    random = np.random.default_rng([seed, *split.encode()])
    levels = samples[[name for name in samples.columns if name.startswith("level_")]].to_numpy()
    # A stable sort of a random permutation: grouped by class, shuffled within each class.
    order = random.permutation(len(samples))
    order = order[np.argsort(levels[order, -1], kind="stable")]
    run = _cut_runs(levels[order, -1], run_length)
    runs = levels[order[np.flatnonzero(np.r_[True, run[1:] != run[:-1]])]]  # (R, L)
    size = float(samples["expected_bytes"].sum()) + MEMBER_OVERHEAD * len(samples)
    # Not more than the runs, so that no shard is empty.
    shards = min(max(1, ceil(size / shard_bytes)), len(runs))
    group = runs[:, -2] if runs.shape[1] > 1 else runs[:, -1] * 0
    shard = _deal_runs(group, runs[:, -1], shards, random)
    place = _rank(np.lexsort((random.random(len(runs)), shard)))
    written = np.argsort(place[run], kind="stable")
    names = np.array([shard_name(split, n) for n in range(shards)], object)
    planned = samples.take(order[written]).reset_index(drop=True)
    return planned.assign(shard=names[shard[run[written]]], run=place[run[written]])


def _cut_runs(classes: np.ndarray, run_length: int) -> np.ndarray:
    """Run number of each row; rows of equal classes must be adjacent.

    Example:
        >>> _cut_runs(np.array([5, 5, 5, 7]), 2)
        array([0, 0, 1, 2])
    """
    first = np.flatnonzero(np.r_[True, classes[1:] != classes[:-1]])
    size = np.diff(np.r_[first, len(classes)])
    runs = -(-size // run_length)
    place = np.arange(len(classes)) - np.repeat(first, size)
    # Spread evenly, so that the runs of a class differ by one sample at most.
    within = place * np.repeat(runs, size) // np.repeat(size, size)
    return np.asarray(np.repeat(np.cumsum(runs) - runs, size) + within)


def _deal_runs(
    groups: np.ndarray, classes: np.ndarray, shards: int, random: np.random.Generator
) -> np.ndarray:
    """Shard of each run: dealt group by group, the runs of a class consecutively."""
    draw = random.random(int(classes.max()) + 1)
    order = np.lexsort((draw[classes], groups))
    return np.asarray(_rank(order) % shards)


def _rank(order: np.ndarray) -> np.ndarray:
    """Inverse of a permutation: the position of each item in the order."""
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank


def permits(allowed: Sequence[str], licence: str) -> bool:
    """Whether a licence matches one of the patterns that may be exported.

    Example:
        >>> permits(["*/licenses/by/*"], "https://creativecommons.org/licenses/by/3.0/")
        True
        >>> permits(["*"], "unknown"), permits(["*", "unknown"], "unknown")
        (False, True)
    """
    if licence.strip().lower() in ("", UNKNOWN):
        return UNKNOWN in allowed
    return any(fnmatchcase(licence.lower(), pattern.lower()) for pattern in allowed)


def withhold(
    images: pd.DataFrame, removals: pd.DataFrame | None, licenses: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split the images into those that may be exported and those that may not, with a reason."""
    why = {} if removals is None else dict(zip(removals["image_id"], removals["why"], strict=True))
    known = set(images["image_id"])
    strange = [image_id for image_id in why if image_id not in known]
    if strange:  # a typo in the list would remove nothing, silently
        some = ", ".join(strange[:3]) + ", ..." * (len(strange) > 3)
        say(f"removals.csv: {len(strange)} of {len(why)} ids are of no image here: {some}")
    # Patterns are matched once per licence, not per image.
    allowed = {licence: permits(licenses, licence) for licence in images["license"].unique()}
    removed = images["image_id"].isin(list(why))
    # An image has one reason; a removal request has priority over its licence.
    closed = ~images["license"].map(allowed).astype(bool) & ~removed
    dropped = [
        images[removed].assign(reason="removed", detail=lambda t: t["image_id"].map(why)),
        images[closed].assign(reason="licence", detail=lambda t: "licence: " + t["license"]),
    ]
    return images[~removed & ~closed], pd.concat(dropped, ignore_index=True)[DROPPED]


def count_reasons(dropped: pd.DataFrame) -> str:
    """Count dropped images by reason, as text.

    Example:
        >>> count_reasons(pd.DataFrame({"reason": ["licence", "licence", "removed"]}))
        '2 licence, 1 removed'
    """
    counts = dropped["reason"].value_counts()
    return ", ".join(f"{counts[reason]} {reason}" for reason in sorted(counts.index)) or "none"
