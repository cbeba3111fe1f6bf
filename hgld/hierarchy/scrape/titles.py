"""From the URL of a Wikimedia Commons category to the title that the API is asked for.

The URL is decoded exactly once and its plus signs are pluses: a forgotten decoding, or a second
one, turns every accented landmark into a silent "no such page". A query (``?uselang=de``) is cut
off before that; a question mark of the title is ``%3F`` or has no ``name=`` after it. Letter case,
double blanks and the like are left unchanged, since Commons' own API normalises those and reports
it.
"""

import re
from html import unescape
from unicodedata import normalize
from urllib.parse import unquote

_PAGE = re.compile(r"https?://commons\.(?:m\.)?wikimedia\.org/wiki/(.+)", re.DOTALL)
_QUERY = re.compile(r"\?\w+=[^#]*")
_IMPOSSIBLE = re.compile(r"[\x00-\x1f\x7f|]")  # would also break a batch of titles apart
_ILLEGAL = re.compile(r"[\[\]{}<>#|]|%[0-9A-Fa-f]{2}|&[#\w]+;")
LONGEST_NAME = 255  # bytes of a title without its namespace
_DIRECTIONS = re.compile("[\u200e\u200f\u202a-\u202e]")  # unseen marks of where text runs to


def title_of_url(url: str) -> str | None:
    """The page's title with blanks for underscores, in NFC; None if the URL is not that of a page.

    Example:
        >>> title_of_url("http://commons.wikimedia.org/wiki/Category:C++_G%C3%B6ttingen")
        'Category:C++ Göttingen'
        >>> title_of_url("http://example.org/Eiffel_Tower") is None
        True
    """
    found = _PAGE.fullmatch(url.strip())
    if found is None:
        return None
    path = _QUERY.sub("", found[1])
    try:
        decoded = unquote(path, errors="strict")
    except UnicodeDecodeError:  # MediaWiki reads it as Latin-1, too
        decoded = unquote(path, encoding="latin-1")
    title = normalize("NFC", decoded.replace("_", " ")).strip()
    return None if not title or _IMPOSSIBLE.search(title) else title


def as_stored(title: str) -> str:
    """The title as MediaWiki stores it, for where no API is there to normalise it.

    Example:
        >>> as_stored("category: old_town  hall &amp; more#History")
        'Category:Old town hall & more'
    """
    plain = _DIRECTIONS.sub("", normalize("NFC", unescape(title))).partition("#")[0]
    text = " ".join(plain.replace("_", " ").split())
    space, _, name = text.partition(":")
    if space.strip().casefold() == "category":
        return f"Category:{upper_first(name.strip())}"
    return upper_first(text)


def fault_of_title(title: str) -> str:
    """The reason of MediaWiki why no page can have that title; empty if one can.

    Example:
        >>> fault_of_title("Category:"), fault_of_title("Berlin:")  # no namespace
        ('The requested page title is empty or contains only the name of a namespace.', '')
    """
    name = title.removeprefix("Category:")
    if not name:
        return "The requested page title is empty or contains only the name of a namespace."
    if bad := _ILLEGAL.search(title):
        return f'The requested page title contains invalid characters: "{bad[0]}".'
    if len(name.encode()) > LONGEST_NAME:
        return (
            "The requested page title is too long. It must be no longer than 255 bytes in UTF-8 "
            "encoding."
        )
    return ""


def upper_first(name: str) -> str:
    """The first letter as a capital, where that is one letter (MediaWiki's rule too)."""
    capital = name[:1].upper()
    return capital + name[1:] if len(capital) == 1 else name
