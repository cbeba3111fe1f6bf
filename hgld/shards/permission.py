"""Keep images that may not be redistributed out of the shards: by licence and by removal list.

An unknown licence gives no permission, so such images are left out unless the pipeline lists
"unknown". Every withheld image is recorded in export_dropped with its reason, like any other
dropped image.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import pandas as pd

from hgld.tasks import say

__all__ = ["DROPPED", "count_reasons", "permits", "withhold"]

DROPPED = ["split", "image_id", "reason", "detail"]
UNKNOWN = "unknown"


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
