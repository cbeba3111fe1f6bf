"""Titles as MediaWiki mends and refuses them, for the server that stands in for Commons."""

import html
import re
import unicodedata

__all__ = ["fault_of", "normalize"]

ILLEGAL = re.compile(r"[\[\]{}<>#|]|%[0-9A-Fa-f]{2}|&[#\w]+;")
LONGEST_NAME = 255  # bytes of a title without its namespace


def normalize(title: str) -> str:
    """A title as MediaWiki would write it.

    Example:
        >>> normalize(" category:old__town_hall ")
        'Category:Old town hall'
    """
    title = html.unescape(title).partition("#")[0]
    text = unicodedata.normalize("NFC", re.sub(r"[\s_\u00a0]+", " ", title).strip())
    space, colon, name = text.partition(":")
    if not colon:
        return text[:1].upper() + text[1:]
    name = name.strip()
    return f"{space[:1].upper()}{space[1:].lower()}:{name[:1].upper()}{name[1:]}"


def fault_of(title: str) -> str:
    """Why there can be no page of that title, as MediaWiki says it; empty where there can."""
    name = title.partition(":")[2] if ":" in title else title
    if not name:
        return "The requested page title is empty or contains only the name of a namespace."
    if bad := ILLEGAL.search(title):
        return f'The requested page title contains invalid characters: "{bad[0]}".'
    if len(name.encode()) > LONGEST_NAME:
        return (
            "The requested page title is too long. It must be no longer than 255 bytes in UTF-8 "
            "encoding."
        )
    return ""
