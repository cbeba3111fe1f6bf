"""Keeps images out of the shards that may not be passed on: by licence, and by removal list.

A licence nobody knows gives no permission, so such images stay out unless the pipeline names the
word. What is kept out stays in export_dropped with its reason, as any other dropped image.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import pandas as pd

from hgld.tasks import say

__all__ = ["DROPPED", "count_reasons", "permits", "withhold"]

DROPPED = ["split", "image_id", "reason", "detail"]
UNKNOWN = "unknown"


def permits(allowed: Sequence[str], licence: str) -> bool:
    """Whether a licence is among those that may be exported.

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
    """The images that may be exported, and those that may not with their reason."""
    why = {} if removals is None else dict(zip(removals["image_id"], removals["why"], strict=True))
    known = set(images["image_id"])
    strange = [image_id for image_id in why if image_id not in known]
    if strange:  # a slip there would remove nothing, in silence
        some = ", ".join(strange[:3]) + ", ..." * (len(strange) > 3)
        say(f"removals.csv: {len(strange)} of {len(why)} ids are of no image here: {some}")
    allowed = {licence: permits(licenses, licence) for licence in images["license"].unique()}
    removed = images["image_id"].isin(list(why))
    closed = ~images["license"].map(allowed).astype(bool) & ~removed
    dropped = [
        images[removed].assign(reason="removed", detail=lambda t: t["image_id"].map(why)),
        images[closed].assign(reason="licence", detail=lambda t: "licence: " + t["license"]),
    ]
    return images[~removed & ~closed], pd.concat(dropped, ignore_index=True)[DROPPED]


def count_reasons(dropped: pd.DataFrame) -> str:
    """How many images were dropped for which reason, in words.

    Example:
        >>> count_reasons(pd.DataFrame({"reason": ["licence", "licence", "removed"]}))
        '2 licence, 1 removed'
    """
    counts = dropped["reason"].value_counts()
    return ", ".join(f"{counts[reason]} {reason}" for reason in sorted(counts.index)) or "none"
