"""Ask a wiki's API as a proper caller does."""

from collections.abc import Mapping
from typing import Any

import requests

from tests.mediawiki.wiki import Wiki

__all__ = ["AGENT", "ask", "get", "post"]

AGENT = "hgld/1 (someone@example.org) test"


def post(wiki: Wiki, agent: str = AGENT, **question: Any) -> requests.Response:
    """The answer to a POST; ``formatversion`` 2 unless asked otherwise."""
    form = {"format": "json", "formatversion": 2, **question}
    return requests.post(wiki.url, data=form, headers={"User-Agent": agent}, timeout=120)


def get(wiki: Wiki, question: Mapping[str, Any]) -> requests.Response:
    """The answer to a GET, as it stands."""
    return requests.get(wiki.url, params=question, headers={"User-Agent": AGENT}, timeout=120)


def ask(wiki: Wiki, **question: Any) -> dict[str, Any]:
    """The JSON document of an answer."""
    found: dict[str, Any] = post(wiki, **question).json()
    return found
