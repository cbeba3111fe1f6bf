"""Target of a soft redirect: the page that its template names.

Hard redirects do not work for categories, so Commons moves them with {{Category redirect|Target}},
which the API does not follow. The template puts the page into a special category, by which such
pages are known at no extra cost; only for them is the text asked for. The target is the template's
first parameter. Where the template goes by a name that is not known here, the page's only link to
a category is the target; where there are several, it has none.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hgld.hierarchy.scrape.answers import answered_pages
from hgld.words import single_blanks

__all__ = ["Redirect", "read_redirects", "target_of_text"]

_TEMPLATE = re.compile(
    r"\{\{\s*(?:template:\s*)?"
    r"(?:soft[ _-]?)?(?:cat(?:egory)?[ _-]*redir(?:ect)?|redirect[ _-]?cat(?:egory)?"
    r"|see[ _-]?cat(?:egory)?|cat[ _-]?red)"
    r"\s*\|([^{}]*)\}\}",
    re.IGNORECASE,
)
_NAME = re.compile(r"[^\[\]{}<>#|\x00-\x1f\x7f]+")


@dataclass(frozen=True)
class Redirect:
    """A soft redirect; ``target`` is a category's title, empty if it is unknown."""

    target: str


def read_redirects(document: Mapping[str, Any], titles: Sequence[str]) -> dict[str, Redirect]:
    """Targets of the asked titles from ``prop=revisions|links&rvprop=content&plnamespace=14``.

    Links of an unfinished answer may be lacking, so it accounts only for what its texts say.
    """
    whole = document.get("batchcomplete") is True or len(titles) == 1
    found: dict[str, Redirect] = {}
    for title, page in answered_pages(document, titles).items():
        try:
            target = target_of_text(_text(page))
            if not target and whole:
                links = [str(link["title"]) for link in page.get("links", [])]
                target = links[0] if len(links) == 1 else ""
        except (AttributeError, IndexError, KeyError, TypeError):
            continue  # damaged, or the answer to another question
        if target or whole:
            found[title] = Redirect(target)
    return found


def target_of_text(text: str) -> str:
    """The category that a page's text redirects to; empty where it does not say.

    Example:
        >>> target_of_text("{{Category redirect|:Category:old_town hall|reason=moved}}")
        'Category:Old town hall'
        >>> target_of_text("{{Category redirect}}")
        ''
    """
    start, *parts = text.split("<!--")  # as in MediaWiki, a comment without an end takes the rest
    text = start + "".join(part.partition("-->")[2] for part in parts)
    template = _TEMPLATE.search(text)
    if template is None:
        return ""
    named, plain = {}, []
    for parameter in template[1].split("|"):
        name, found, value = parameter.partition("=")
        if found:
            named[name.strip()] = value
        else:
            plain.append(parameter)
    name = named.get("1") or next(iter(plain), "")
    name = single_blanks(name.replace("_", " ").replace("[[", "").replace("]]", ""))
    name = re.sub(r"^:?\s*(?:category\s*:)?\s*", "", name, flags=re.IGNORECASE)
    return f"Category:{name[0].upper()}{name[1:]}" if _NAME.fullmatch(name) else ""


def _text(page: Mapping[str, Any]) -> str:
    """The page's text, empty if there is no such page, or its text is hidden or was not asked for.

    Raises:
        KeyError: neither text nor links: this is the answer to another question.
    """
    if page.get("missing") is True or page.get("invalid") is True:
        return ""
    if "revisions" not in page and "links" in page:
        return ""
    slot = page["revisions"][0]["slots"]["main"]
    text: str = "" if slot.get("texthidden") is True else slot["content"]
    if not isinstance(text, str):
        raise TypeError
    return text
