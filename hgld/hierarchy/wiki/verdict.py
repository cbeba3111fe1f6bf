"""What an HTTP answer of a MediaWiki API means for the request that it answers.

    ok         a JSON object without an error
    wait       the server asks for a pause (429, 503 with Retry-After, maxlag, readonly): pause and
               ask again, for as long as it takes
    transient  a fault that passes (connection, 5xx, no JSON, a cut body): ask again, and
               later each time
    split      too much asked for at once: ask again in smaller batches
    fatal      asking again would not help: stop with one sentence

An error may stand in the body in two formats, beside warnings, or in a header alone, and its body
may be JSON with status 500 or HTML with status 200.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from hgld.hierarchy.blanks import single_blanks

__all__ = ["Answer", "classify"]

WAIT_CODES = ("maxlag", "ratelimited", "readonly")


@dataclass(frozen=True)
class Answer:
    """What one HTTP answer means.

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
    """Tell what an HTTP answer of a MediaWiki API means.

    Of the headers, ``Retry-After``, ``Date`` and ``MediaWiki-API-Error`` are looked at.

    Example:
        >>> classify(429, {"Retry-After": "37"}, b"You are making too many requests").pause_s
        37.0
        >>> classify(200, {}, b"<!DOCTYPE html>").kind
        'transient'
    """
    pause_s = _retry_after(headers)
    document = _parse(body)
    code, text = _api_error(document, headers)
    if status == 429 or code in WAIT_CODES or (status == 503 and pause_s is not None):
        return Answer("wait", reason=text or f"HTTP {status}", pause_s=pause_s)
    if status in (413, 414) or code == "no-such-entity":
        return Answer("split", reason=text or f"HTTP {status}", code=code)
    if status >= 500 or status == 408 or code.startswith("internal_api_error"):
        return Answer("transient", reason=text or f"HTTP {status}", pause_s=pause_s, heavy=True)
    if status != 200:
        return Answer("fatal", reason=f"HTTP {status}: {_meaning(status, headers, body)}")
    if document is None:
        reason = f"expected JSON, found {_excerpt(body)!r}"
        return Answer("transient", reason=reason, pause_s=pause_s, heavy=True)
    if code:
        return Answer("fatal", reason=f"{code}: {text}")
    return Answer("ok", document)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that ``Retry-After`` asks for, which may be a number or a date."""
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    if re.fullmatch(r"-?\d+(\.\d+)?", text):
        return max(0.0, float(text))
    until, now = _date(text), _date(headers.get("Date", "")) or datetime.now(UTC)
    return max(0.0, (until - now).total_seconds()) if until else None


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _api_error(document: Mapping[str, Any] | None, headers: Mapping[str, str]) -> tuple[str, str]:
    """Code and text of the error in the body (in either format), or the code in the header."""
    found = document or {}
    errors = [found["error"]] if "error" in found else found.get("errors", [])
    if not errors or not isinstance(errors[0], dict):
        code = headers.get("MediaWiki-API-Error", "")
        return code, code
    first = errors[0]
    text = single_blanks(str(first.get("info") or first.get("text") or ""))
    return single_blanks(str(first.get("code", "unknown"))), text


def _meaning(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """What a refusal means, where its body does not say it or says it to browsers."""
    if 300 <= status < 400:
        return f"it has moved to {headers.get('Location', 'an unknown place')}; mend the API's URL"
    if status == 404:
        return "no API is there; mend its URL (scrape.commons_api, scrape.wikidata_api)"
    if status == 403 and not _excerpt(body):
        return (
            "the server turns this program away without a reason; check that scrape.contact is an "
            "e-mail or URL at which you can be reached"
        )
    return _excerpt(body) or "no reason given"


def _excerpt(body: bytes) -> str:
    return " ".join(body[:300].decode("utf-8", "replace").split())[:120]
