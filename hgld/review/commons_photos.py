"""Thumbnails of Wikimedia Commons for values whose landmarks have no photo on this machine.

Each landmark of GLDv2 is a category of Commons: its first photo under a licence that the pipeline
permits is shown, with author and licence. One client asks, one request at a time and as politely
as the scrape does; answers are kept in the work folder, so a category is asked for once.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import lxml.html
import pandas as pd

from hgld.artifacts import BY_LANDMARK, records, write_file
from hgld.credit import UNKNOWN, Credit
from hgld.errors import Resumable
from hgld.hierarchy.clean import value_keys
from hgld.hierarchy.scrape.client import ApiClient, on_this_machine
from hgld.hierarchy.scrape.titles import title_of_url
from hgld.review.photos import captions_of, shrink
from hgld.shards.shard_plan import permits
from hgld.words import single_blanks

WIDTH = 250  # pixels; one of the sizes that Wikimedia keeps ready
FILES = 10  # of a category, among which the first that may be shown is taken
PHOTO_HOST = "upload.wikimedia.org"
LARGEST_PHOTO = 4_000_000  # bytes
LONGEST_WAIT_S = 20.0  # for other photos that are asked for first
FACTS = "Artist|LicenseShortName|LicenseUrl"


class CommonsPhotos:
    """Photos of values from Commons, for several threads.

    Args:
        landmark_values: values of each landmark.
        landmarks: name and commons_url of each.
        client: asks Commons.
        api: address of its API.
        licenses: patterns of licences that may be shown.
        folder: keeps what was found.
        per_value: most photos of a value, each of another landmark.
    """

    def __init__(
        self,
        landmark_values: pd.DataFrame,
        landmarks: pd.DataFrame,
        client: ApiClient,
        api: str,
        licenses: Sequence[str],
        folder: Path,
        per_value: int,
    ) -> None:
        self.client, self.api, self.licenses, self.folder = client, api, licenses, folder
        there = landmarks[landmarks["commons_url"] != ""]
        keyed = landmark_values.assign(key=value_keys(landmark_values))
        keyed = keyed[["key", *BY_LANDMARK]].drop_duplicates()
        found = keyed.merge(there, on=BY_LANDMARK)
        found = found.sort_values(["key", *BY_LANDMARK]).groupby("key").head(per_value)
        self._landmarks = {str(key): records(rows) for key, rows in found.groupby("key")}
        self._alone = Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def list(self, key: str) -> list[dict[str, str]]:
        """Return the photos of a value: captions, and ``src`` for ``read``.

        Raises:
            HgldError: Commons cannot be asked now.
        """
        found = [
            (row["name"], self._find(row["commons_url"])) for row in self._landmarks.get(key, [])
        ]
        return [
            {"src": f"photos/{photo['name']}", **captions_of(landmark, Credit.of(photo))}
            for landmark, photo in found
            if photo
        ]

    def read(self, name: str) -> bytes | None:
        """Return a photo as JPEG; None if there is none of this name."""
        path = self.folder / f"{name}.jpg"
        return path.read_bytes() if name.isalnum() and path.is_file() else None

    def _find(self, commons_url: str) -> Mapping[str, Any]:
        """Return the photo of a category; empty if it has none that may be shown."""
        title = title_of_url(commons_url)
        if title is None:
            return {}
        # with other licences another photo may be shown, or one where there was none
        asked = "\n".join((title, *self.licenses))
        name = sha256(asked.encode()).hexdigest()[:16]
        facts = self.folder / f"{name}.json"
        if not facts.is_file():
            if not self._alone.acquire(timeout=LONGEST_WAIT_S):
                raise Resumable("Commons is asked for other photos first")
            try:
                photo = self._ask(title, name)
            finally:
                self._alone.release()
            write_file(facts, json.dumps(photo))
        found: dict[str, Any] = json.loads(facts.read_text())
        return found

    def _ask(self, title: str, name: str) -> dict[str, str]:
        parameters = {
            "generator": "categorymembers",
            "gcmtitle": title,
            "gcmtype": "file",
            "gcmlimit": str(FILES),
            "prop": "imageinfo",
            "iiprop": "url|mime|extmetadata",
            "iiurlwidth": str(WIDTH),
            "iiextmetadatafilter": FACTS,
        }
        query = self.client.ask(self.api, "query", parameters).get("query", {})
        for page in query.get("pages", []):
            photo = _photo(page)
            if photo is None or not permits(self.licenses, photo["license"]):
                continue
            url = photo["thumbnail"]
            here = on_this_machine(self.api)  # as in a test
            if not (on_this_machine(url) if here else urlsplit(url).hostname == PHOTO_HOST):
                continue
            if jpeg := shrink(self.client.download(url, LARGEST_PHOTO) or b""):
                write_file(self.folder / f"{name}.jpg", jpeg)
                return {**photo, "name": name}
        return {}


def _photo(page: Mapping[str, Any]) -> dict[str, str] | None:
    """Return title, author, licence and addresses of a page of the answer; None if it has none."""
    try:
        (info, *_) = page["imageinfo"]
        facts = {
            name: single_blanks(str(fact["value"])) for name, fact in info["extmetadata"].items()
        }
        thumbnail, url, title = info["thumburl"], info["descriptionurl"], page["title"]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    if info.get("mime") not in ("image/jpeg", "image/png"):
        return None
    # as GLDv2 writes it: its address if it is of Creative Commons
    license_url = facts.get("LicenseUrl", "").partition("/deed")[0].replace("http://", "https://")
    if "creativecommons.org/" in license_url:
        license_url = license_url.rstrip("/") + "/"
    return {
        "image_id": title,
        "title": title,
        "author": _plain(facts.get("Artist", "")) or UNKNOWN,
        "license": license_url or facts.get("LicenseShortName", "") or UNKNOWN,
        "url": url,
        "thumbnail": thumbnail,
    }


def _plain(html: str) -> str:
    """Return the text of a piece of HTML.

    Example:
        >>> _plain('<a href="//commons.wikimedia.org/wiki/User:Ann">Ann</a>')
        'Ann'
    """
    return single_blanks(str(lxml.html.fromstring(f"<p>{html}</p>").xpath("string()")))
