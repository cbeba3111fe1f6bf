"""Thumbnails of a value's landmarks for the review page, read from the source files, with credits.

Photos of a few landmarks speed up decisions on a rare word such as "folly". In the page as a file,
rows get photos in their order until its size limit, so the most important values have them; the
next page, without the decided values, shows the photos of the next ones. The page of a server asks
for the photos of a value when it shows it.
"""

import io
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import astuple
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

import pandas as pd
from PIL import Image

from hgld.artifacts import BY_LANDMARK, SPACE_OF_SPLIT, records
from hgld.credit import Credit
from hgld.errors import InvalidData
from hgld.hierarchy.clean import value_keys
from hgld.images import Undecodable, decode_rgb
from hgld.shards.files import FileReader
from hgld.storage import read_ahead
from hgld.tasks import count_cores, track

SIDE = 176  # pixels of the longer side
QUALITY = 72
KEPT = 4096  # photos of about 8 kB that a server keeps in memory


def choose_images(
    landmark_values: pd.DataFrame, landmarks: pd.DataFrame, images: pd.DataFrame, *, per_value: int
) -> pd.DataFrame:
    """Return the first images of each value: key, name, the image's row.

    Each is of another landmark; a value of fewer landmarks gets further images of them.
    """
    keyed = landmark_values.assign(key=value_keys(landmark_values))[["key", *BY_LANDMARK]]
    ours = images[images["landmark_id"].isin(keyed["landmark_id"].unique())]
    ours = ours.assign(split=ours["split"].map(SPACE_OF_SPLIT))
    ours["turn"] = ours.groupby(BY_LANDMARK).cumcount()
    found = keyed.drop_duplicates().merge(ours[ours["turn"] < per_value], on=BY_LANDMARK)
    found = found.sort_values(["key", "turn", *BY_LANDMARK]).groupby("key").head(per_value)
    names = landmarks[[*BY_LANDMARK, "name"]]
    return found.merge(names, on=BY_LANDMARK, how="left").fillna({"name": ""})


def read_photos(
    chosen: pd.DataFrame, keys: Sequence[str], source: Path, *, budget_bytes: int
) -> dict[str, list[dict[str, str]]]:
    """Return row number -> photos of its value as JPEG in base64, with captions.

    ``keys`` are those of the rows, which get photos in their order up to the byte limit. An image
    whose file is missing, or that cannot be decoded, is left out. Each core shrinks some.
    """
    by_key = _rows_by_key(chosen)
    rows = [(str(number), row) for number, key in enumerate(keys) for row in by_key.get(key, [])]
    photos: dict[str, list[dict[str, str]]] = {}
    left = budget_bytes
    with (
        closing(FileReader(source)) as reader,
        closing(
            read_ahead(shrink, (_read(row, reader) for _, row in rows), 2 * count_cores())
        ) as shrunk,
    ):
        for number, row in track(rows, "Reading photos", len(rows)):
            data = next(shrunk)
            if not data:
                continue
            jpeg, credit = b64encode(data).decode(), Credit.of(row)
            # an upper bound: escaped, a character takes up to 6 bytes
            left -= len(jpeg) + 6 * len(row["name"] + "".join(astuple(credit))) + 200
            if left < 0:
                break
            photo = {"jpeg": jpeg, **captions_of(row["name"], credit)}
            photos.setdefault(number, []).append(photo)
    return photos


def _read(row: Mapping[str, Any], reader: FileReader) -> bytes:
    """Return the bytes of an image; none if its file is missing."""
    try:
        return reader.read(row["path"], row["offset"], row["size_bytes"])
    except InvalidData:
        return b""


def _rows_by_key(chosen: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    by_key: dict[str, list[dict[str, Any]]] = {}
    for row in records(chosen):  # at once: a table for each of thousands of values takes seconds
        by_key.setdefault(row["key"], []).append(row)
    return by_key


class PhotoReader:
    """Photos of values on demand, for several threads.

    Args:
        chosen: as ``choose_images`` returns it.
        source: the folder that the paths are relative to.
    """

    def __init__(self, chosen: pd.DataFrame, source: Path) -> None:
        self._rows = _rows_by_key(chosen)
        self._by_id = {row["image_id"]: row for rows in self._rows.values() for row in rows}
        self._reader, self._alone = FileReader(source), Lock()
        self.read = lru_cache(KEPT)(self._read)

    def list(self, key: str) -> list[dict[str, str]]:
        """Return the photos of a value that can be read: captions, and ``src`` for ``read``."""
        return [
            {"src": f"photos/{quote(row['image_id'])}", **captions_of(row["name"], Credit.of(row))}
            for row in self._rows.get(key, [])
            if self.read(row["image_id"])
        ]

    def _read(self, image_id: str) -> bytes | None:
        """Return a photo as a small JPEG; None if it is not among the chosen or not readable."""
        row = self._by_id.get(image_id)
        if row is None:
            return None
        with self._alone:  # the reader closes files that another thread might read
            data = _read(row, self._reader)
        return shrink(data) or None


def captions_of(landmark: str, credit: Credit) -> dict[str, str]:
    """Return the captions of a photo in the page."""
    return {
        "landmark": landmark,
        "title": credit.title,
        "url": credit.url,
        "byline": credit.byline,
        "terms": credit.terms,
        "license_url": credit.license_url,
    }


def shrink(data: bytes) -> bytes:
    """Return an image as a small JPEG; no bytes if it cannot be decoded."""
    try:
        image = decode_rgb(data, at_least=2 * SIDE)
    except Undecodable:
        return b""
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return buffer.getvalue()
