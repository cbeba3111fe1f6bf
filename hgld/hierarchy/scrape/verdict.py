"""Meaning of an HTTP answer of a MediaWiki API for the request that it answers.

    ok         a JSON object without an error
    wait       the server asks for a pause (429, 503 with Retry-After, maxlag, readonly): pause and
               ask again, for as long as it takes
    transient  a fault that passes (connection, 5xx, no JSON, a cut body): ask again, and
               later each time
    split      too much asked for at once: ask again in smaller batches
    fatal      asking again would not help: stop with one sentence

An error may be in the body in two formats, as mere text, beside warnings, or in a header alone,
and its body may be JSON with status 500 or HTML with status 200. One whose word is not known here
stops the run: nothing says whether to wait, to ask again or to ask for less.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from hgld.hierarchy.scrape.answers import parse_json
from hgld.http import retry_after
from hgld.words import single_blanks

WAIT_CODES = ("maxlag", "ratelimited", "readonly")
LONGEST_TEXT = 200  # characters of an error in no known format


@dataclass(frozen=True)
class Answer:
    """Meaning of one HTTP answer.

    Attributes:
        document: the JSON object of an ``ok`` answer.
        reason: for people, where it is not ``ok``.
        pause_s: seconds that the server asks to wait, if it does.
        heavy: the server may have choked on the size of what was asked.
        code: the API's word for its error, if it has one.
    """

    kind: Literal["ok", "wait", "transient", "split", "fatal"]
    document: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    pause_s: float | None = None
    heavy: bool = False
    code: str = ""


def classify(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    """Classify an HTTP answer of a MediaWiki API.

    Of the headers, ``Retry-After``, ``Date``, ``MediaWiki-API-Error`` and, for people, Wikimedia's
    ``X-Wmf-Ratelimit-Class`` are looked at.

    Example:
        >>> classify(429, {"Retry-After": "37"}, b"You are making too many requests").pause_s
        37.0
        >>> classify(200, {}, b"<!DOCTYPE html>").kind
        'transient'
    """
    pause_s = retry_after(headers)
    answer = partial(Answer, pause_s=pause_s)
    try:
        document = parse_json(body)
    except ValueError:
        document = None
    document = document if isinstance(document, dict) else None
    code, text = _api_error(document, headers)
    reason = text or f"HTTP {status}"
    if status == 429 or (status == 503 and pause_s is not None) or code in WAIT_CODES:
        # A good User-Agent may be counted as something else there.
        name = single_blanks(headers.get("X-Wmf-Ratelimit-Class", ""))
        return answer("wait", reason=f"{reason} (counted as {name})" if name else reason)
    if status in (413, 414) or code == "no-such-entity":
        return answer("split", reason=reason, code=code)
    if status >= 500 or status == 408 or code.startswith("internal_api_error"):
        return answer("transient", reason=reason, heavy=True)
    if status != 200:
        return answer("fatal", reason=f"HTTP {status}: {_meaning(status, headers, body)}")
    if document is None:
        return answer("transient", reason=f"expected JSON, found {_excerpt(body)!r}", heavy=True)
    return answer("fatal", reason=f"{code}: {text}") if code else answer("ok", document)


def _api_error(document: Mapping[str, Any] | None, headers: Mapping[str, str]) -> tuple[str, str]:
    """Code and text of the error in the body, in any format, or the code in the header."""
    found = document or {}
    errors = found.get("error", found.get("errors"))
    if errors in (None, "", []):
        code = headers.get("MediaWiki-API-Error", "")
        return code, code
    first = errors[0] if isinstance(errors, list) else errors
    if not isinstance(first, dict):
        return "unknown error", single_blanks(str(first))[:LONGEST_TEXT]
    text = single_blanks(str(first.get("info") or first.get("text") or ""))
    return single_blanks(str(first.get("code") or "unknown error")), text


def _meaning(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """Meaning of a refusal whose body does not say it, or says it to browsers."""
    if 300 <= status < 400:
        place = headers.get("Location", "an unknown place")
        return f"it has moved to {place}; correct the API's URL"
    if status == 404:
        return "no API is there; correct its URL (scrape.commons_api, scrape.wikidata_api)"
    if status == 403 and not _excerpt(body):
        return (
            "the server turns this program away without a reason; check that scrape.contact is an "
            "e-mail or URL at which you can be reached"
        )
    return _excerpt(body) or "no reason given"


def _excerpt(body: bytes) -> str:
    return single_blanks(body[:300].decode("utf-8", "replace"))[:120]
