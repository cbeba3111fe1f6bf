"""Thumbnails of a value's landmarks for the review page, read from the source files, with credits.

Photos of three landmarks speed up decisions on a rare word such as "folly". Rows get photos in
their order until the size limit of the page, so the most important values have them; the next page,
without the decided values, shows the photos of the next ones.
"""

import io
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from hgld.artifacts import SPACE_OF_SPLIT
from hgld.credit import Credit
from hgld.errors import InvalidData
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.columns import records
from hgld.images import Undecodable, decode_rgb
from hgld.shards.files import FileReader
from hgld.tasks import track

__all__ = ["ReviewPhoto", "choose_images", "read_photos"]

SIDE = 176  # pixels of the longer side
QUALITY = 72
LANDMARK = ["split", "landmark_id"]


@dataclass(frozen=True)
class ReviewPhoto:
    """A small JPEG in base64, its landmark, and its attribution."""

    jpeg: str
    landmark: str
    credit: Credit


def choose_images(
    landmark_values: pd.DataFrame, landmarks: pd.DataFrame, images: pd.DataFrame, *, per_value: int
) -> pd.DataFrame:
    """Return an image for the first landmarks of each value: key, name, the image's row."""
    keyed = landmark_values.assign(key=value_keys(landmark_values))[["key", *LANDMARK]]
    ours = images[images["landmark_id"].isin(keyed["landmark_id"].unique())]
    shown = ours.assign(split=ours["split"].map(SPACE_OF_SPLIT)).drop_duplicates(LANDMARK)
    found = keyed.drop_duplicates().merge(shown, on=LANDMARK)
    found = found.sort_values(["key", *LANDMARK]).groupby("key").head(per_value)
    names = landmarks[[*LANDMARK, "name"]]
    return found.merge(names, on=LANDMARK, how="left").fillna({"name": ""})


def read_photos(
    chosen: pd.DataFrame, keys: Sequence[str], source: Path, *, budget_bytes: int
) -> dict[str, list[ReviewPhoto]]:
    """Return value key -> its photos, for the keys in their order, up to the byte limit.

    An image whose file is missing, or that cannot be decoded, is left out.
    """
    by_key = dict(tuple(chosen.groupby("key")))
    rows = [row for key in keys if key in by_key for row in records(by_key[key])]
    photos: dict[str, list[ReviewPhoto]] = {}
    left = budget_bytes
    for row, photo in _read(rows, source):
        left -= _weight(photo)
        if left < 0:
            break
        photos.setdefault(row["key"], []).append(photo)
    return photos


def _read(
    rows: Sequence[dict[str, Any]], source: Path
) -> Iterator[tuple[dict[str, Any], ReviewPhoto]]:
    reader = FileReader(source)
    for row in track(rows, "Reading photos", len(rows)):
        try:
            data = reader.read(row["path"], row["offset"], row["size_bytes"])
            image = decode_rgb(data, at_least=2 * SIDE)
        except (InvalidData, Undecodable):
            continue
        image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
        small = b64encode(buffer.getvalue()).decode()
        yield row, ReviewPhoto(small, row["name"], Credit.of(row))
    reader.close()


def _weight(photo: ReviewPhoto) -> int:
    """Return an upper bound for the bytes of the photo in the page."""
    credit = photo.credit
    words = photo.landmark, credit.title, credit.author, credit.license, credit.license_url
    text = "".join((*words, credit.url))
    return len(photo.jpeg) + 6 * len(text) + 200  # escaped, a character takes up to 6 bytes
