"""Choose the images that may be exported, and scatter the runs of each class over the shards.

Rank losses need several images of a class in a batch. A reader that goes through shards
sequentially finds them only if they are adjacent: consecutive samples of one class are a run. The
runs of a class go to different shards, and every supercategory is dealt over all shards, so that a
few shards read side by side represent the whole data set. Nothing here reads an image.

An unknown licence gives no permission, so such images are left out unless the pipeline lists
"unknown". Every withheld image is recorded in export_dropped with its reason.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import ceil

import numpy as np
import pandas as pd

from hgld.credit import UNKNOWN
from hgld.tasks import say
from hgld.words import part_text

MEMBER_OVERHEAD = 3 * 512 + 3 * 256 + 800  # three headers, three paddings, the JSON
DROPPED = ["split", "image_id", "reason", "detail"]


def shard_name(split: str, number: int) -> str:
    """File name of a shard.

    Example:
        >>> shard_name("train", 7)
        'train-000007.tar'
    """
    return f"{split}-{number:06d}.tar"


@dataclass(frozen=True)
class SplitPlan:
    """Runs and shards of the samples of a split, in the order of writing.

    Attributes:
        order: (N,) numbers of the samples.
        runs: (N,) run of each, counted in that order.
        shards: (S + 1,) place of the first sample of each shard; then N.
    """

    order: np.ndarray
    runs: np.ndarray
    shards: np.ndarray


def plan_split(
    levels: np.ndarray,
    size_bytes: float,
    *,
    split: str,
    run_length: int,
    shard_bytes: float,
    seed: int,
) -> SplitPlan:
    """Cut the samples of each class in runs, and scatter these over the shards.

    Args:
        levels: (N, L) class numbers, coarse to fine, of the samples sorted by image_id; the two
            finest levels are enough.
        size_bytes: expected size of all images together.
        split: its name.
        run_length: most samples in a run; the runs of a class differ by one sample at most.
        shard_bytes: target size of a shard.
        seed: decides which images share a run, and the order of the runs.

    Example:
        >>> classes = np.array([[0, 0], [0, 0], [0, 1], [0, 1]])
        >>> plan = plan_split(classes, 1e4, split="train", run_length=2, shard_bytes=1e4, seed=0)
        >>> classes[plan.order, 1].tolist(), plan.runs.tolist(), plan.shards.tolist()
        ([0, 0, 1, 1], [0, 0, 1, 1], [0, 2, 4])
    """
    from hgld.shards.sampling import shuffle_classes  # loads numba, which a review does not need

    # Seeded by the split's name, so that adding a split leaves the others' shards unchanged.
    random = np.random.default_rng([seed, *split.encode()])
    order, first, sizes = shuffle_classes(levels[:, -1], random)
    starts = _cut_runs(first, sizes, run_length)
    runs = levels[order[starts[:-1]]]  # (R, L)
    size = float(size_bytes) + MEMBER_OVERHEAD * len(levels)
    # Not more than the runs, so that no shard is empty.
    shards = min(max(1, ceil(size / shard_bytes)), len(runs))
    group = runs[:, -2] if runs.shape[1] > 1 else runs[:, -1] * 0
    # Dealt group by group, the runs of a class consecutively.
    draw = random.random(int(runs[:, -1].max()) + 1)
    shard = np.empty(len(runs), np.int64)
    shard[np.lexsort((draw[runs[:, -1]], group))] = np.arange(len(runs)) % shards
    written = np.lexsort((random.random(len(runs)), shard))  # runs in the order of writing
    length = np.diff(starts)[written]
    ends = np.cumsum(length)
    # In the type of the order, and in place: of many images each temporary array is large.
    places = np.arange(len(order), dtype=order.dtype)
    places += np.repeat((starts[written] - ends + length).astype(order.dtype), length)
    order = order[places]
    number = np.repeat(np.arange(len(runs), dtype=np.int32), length)
    last = np.searchsorted(shard[written], np.arange(shards), side="right") - 1
    return SplitPlan(order, number, np.r_[0, ends[last]])


def _cut_runs(first: np.ndarray, size: np.ndarray, run_length: int) -> np.ndarray:
    """Places where the runs start, and the end, of classes of a first place and a size each.

    Example:
        >>> _cut_runs(np.array([0, 3]), np.array([3, 1]), 2)
        array([0, 2, 3, 4])
    """
    first, size = first.astype(np.int64), size.astype(np.int64)
    runs = -(-size // run_length)
    within = np.arange(runs.sum()) - np.repeat(np.cumsum(runs) - runs, runs)
    # Spread evenly, so that the runs of a class differ by one sample at most.
    starts = np.repeat(first, runs) - (-within * np.repeat(size, runs) // np.repeat(runs, runs))
    return np.asarray(np.r_[starts, size.sum()])


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
    why, known = removals_of(removals), set(images["image_id"])
    report_strange(why, [image_id for image_id in why if image_id not in known])
    return split_permitted(images, why, licenses)


def removals_of(table: pd.DataFrame | None) -> dict[str, str]:
    """Image ids of a table of removals, each with the reason."""
    return {} if table is None else dict(zip(table["image_id"], table["why"], strict=True))


def report_strange(removals: Collection[str], strange: Sequence[str]) -> None:
    """Send a notice of ids that no image has: a typo in the list would remove nothing, silently."""
    if strange:
        some = ", ".join(strange[:3]) + ", ..." * (len(strange) > 3)
        are = part_text(len(strange), len(removals), "id", "are")
        say(f"removals.csv: {are} of no image here: {some}")


def split_permitted(
    images: pd.DataFrame, removals: Mapping[str, str], licenses: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split some of the images into those that may be exported and those that may not.

    Args:
        images: of a table, all or a part.
        removals: image_id -> why it is left out.
        licenses: patterns of licences that may be exported.

    Returns:
        Rows of the images, and split, image_id, reason and detail of the others; each with the
        index of the given rows.
    """
    # Patterns are matched once per licence, not per image.
    allowed = [name for name in images["license"].unique() if permits(licenses, name)]
    removed = images["image_id"].isin(list(removals))
    # An image has one reason; a removal request has priority over its licence.
    closed = ~images["license"].isin(allowed) & ~removed
    kept = ~removed & ~closed
    # Readers refuse an index with such ids, which would break the lines of their messages.
    odd = kept & images["image_id"].str.contains(r"[\x00-\x1f]")
    dropped = [
        images[removed].assign(reason="removed", detail=lambda t: t["image_id"].map(removals)),
        images[closed].assign(reason="licence", detail=lambda t: "licence: " + t["license"]),
        images[odd].assign(reason="control character", detail="its id has one; rename the file"),
    ]
    return images[kept & ~odd], pd.concat(dropped)[DROPPED]


def count_reasons(counts: Mapping[str, int]) -> str:
    """Count dropped images by reason, as text.

    Example:
        >>> count_reasons({"removed": 1, "licence": 2})
        '2 licence, 1 removed'
    """
    return ", ".join(f"{counts[reason]} {reason}" for reason in sorted(counts)) or "none"
