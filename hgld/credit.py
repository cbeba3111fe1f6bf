"""Attribution of a photo: title, author, licence and address, as text for a caption.

The licences require the credit beside every photo shown, so all captions take it from here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hgld.storage import is_web

CREDITS = ("author", "license", "title", "url")  # columns of the tables of images
UNKNOWN = "unknown"  # a value of them; never null or empty, so readers need no special case
_CREATIVE_COMMONS = re.compile(
    r"https?://(?:www\.)?creativecommons\.org/(licenses|publicdomain)/([a-z+-]+)/?(\d\.\d)?"
)


@dataclass(frozen=True)
class Credit:
    """Attribution in a caption; an address is empty if there is none."""

    title: str
    author: str
    license: str
    license_url: str
    url: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Credit":
        """Return the credit of a row with image_id, title, author, license and url.

        Example:
            >>> Credit.of({"image_id": "1f", "title": "unknown", "author": "Ann",
            ...     "license": "unknown", "url": "unknown"}).title
            'image 1f'
        """
        name, address = name_license(str(row["license"]))
        url = str(row["url"]) if is_web(str(row["url"])) else ""
        title = str(row["title"]).removeprefix("File:")
        title = f"image {row['image_id']}" if title == UNKNOWN else title
        return cls(title, str(row["author"]), name, address, url)

    @property
    def has_author(self) -> bool:
        """Whether the author is known."""
        return self.author != UNKNOWN

    @property
    def has_license(self) -> bool:
        """Whether the licence is known."""
        return self.license != UNKNOWN

    @property
    def byline(self) -> str:
        """Author as text for a caption."""
        return f"by {self.author}" if self.has_author else "author unknown"

    @property
    def terms(self) -> str:
        """Licence as text for a caption."""
        return self.license if self.has_license else "licence unknown"


def name_license(text: str) -> tuple[str, str]:
    """Return the short name of a licence and its address, empty if there is none.

    Example:
        >>> name_license("https://creativecommons.org/licenses/by-sa/3.0/")
        ('CC BY-SA 3.0', 'https://creativecommons.org/licenses/by-sa/3.0/')
        >>> name_license("CC0 / public domain")
        ('CC0 / public domain', '')
    """
    found = _CREATIVE_COMMONS.match(text)
    if found is None:
        return text, text if is_web(text) else ""
    kind, name, version = found.groups()
    if kind == "licenses":
        short = f"CC {name.upper()}"
    else:
        short = {"zero": "CC0", "mark": "Public domain mark"}.get(name, "Public domain")
    return " ".join(part for part in (short, version) if part), text
