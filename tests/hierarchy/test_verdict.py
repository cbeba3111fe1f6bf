import json

import pytest

from hgld.hierarchy.scrape.verdict import classify

MAXLAG = {"error": {"code": "maxlag", "info": "Waiting for all: 5.3 seconds lagged.", "lag": 5.3}}
INTERNAL = {"error": {"code": "internal_api_error_DBQueryError", "info": "Exception caught"}}
PLAIN = {"errors": [{"code": "maxlag", "text": "Waiting", "module": "main"}]}


def body(document: object) -> bytes:
    return json.dumps(document).encode()


def test_json_without_an_error_is_ok_with_its_document() -> None:
    assert classify(200, {}, b'{"success": 1}').document == {"success": 1}


@pytest.mark.parametrize(
    ("status", "headers", "content", "kind"),
    [
        (429, {"Retry-After": "37"}, b"You are making too many requests", "wait"),
        (503, {"Retry-After": "2"}, b"<html>", "wait"),
        (200, {"Retry-After": "5"}, body(MAXLAG), "wait"),
        (200, {}, body(PLAIN), "wait"),
        (200, {}, body({"error": {"code": "readonly", "info": "locked"}}), "wait"),
        (200, {"MediaWiki-API-Error": "maxlag"}, b"", "wait"),
        (503, {}, b"<html>Service unavailable", "transient"),
        (500, {}, b"", "transient"),
        (500, {"Content-Type": "text/html"}, body(INTERNAL) + b"<!-- -->", "transient"),
        (200, {}, body(INTERNAL), "transient"),
        (200, {}, b"<!DOCTYPE html>", "transient"),
        (200, {}, b'{"entities": {"Q1": {"id', "transient"),
        (200, {}, b"[]", "transient"),
        (414, {}, b"URI too long", "split"),
        (200, {}, body({"error": {"code": "no-such-entity", "id": "Q0"}}), "split"),
        (403, {}, b"Please set a user-agent", "fatal"),
        (301, {"Location": "https://example.org"}, b"", "fatal"),
        (200, {}, body({"error": {"code": "toomanyvalues", "info": "51"}}), "fatal"),
        (200, {}, body({"error": {"code": "badvalue", "info": "Unrecognized value"}}), "fatal"),
        (200, {}, body({"error": {"code": "never-heard-of", "info": "?"}}), "fatal"),
        (200, {}, body({"error": {"code": "", "info": "?"}}), "fatal"),
        (200, {}, body({"error": "Backend fetch failed", "query": {}}), "fatal"),
        (200, {}, body({"errors": ["Backend fetch failed"]}), "fatal"),
        (200, {}, body({"error": {}}), "fatal"),
        (200, {}, body({"errors": []}), "ok"),
        (200, {}, b"[" * 100_000, "transient"),
    ],
)
def test_every_kind_of_answer(
    status: int, headers: dict[str, str], content: bytes, kind: str
) -> None:
    assert classify(status, headers, content).kind == kind


def test_an_error_beside_warnings_is_an_error() -> None:
    document = {"error": {"code": "param-missing", "info": "ids"}, "warnings": {"x": {"*": "y"}}}
    assert classify(200, {}, body(document)).reason == "param-missing: ids"


def test_an_error_of_many_lines_is_told_on_one() -> None:
    document = {"error": {"code": "badtoken", "info": "First line.\n\n  Second\tline.\r\n"}}
    assert classify(200, {}, body(document)).reason == "badtoken: First line. Second line."


@pytest.mark.parametrize("text", ["Backend \n fetch failed", ["Backend fetch failed"]])
def test_an_error_that_is_mere_text_is_told(text: object) -> None:
    answer = classify(200, {}, body({"error": text}))
    assert answer.reason == "unknown error: Backend fetch failed"


def test_as_what_wikimedia_counts_the_requests_is_told() -> None:
    headers = {"Retry-After": "37", "X-Wmf-Ratelimit-Class": "anon"}
    assert classify(429, headers, b"").reason == "HTTP 429 (counted as anon)"


@pytest.mark.parametrize("status", [200, 301, 403, 413, 429, 500, 503])
def test_every_answer_may_ask_for_a_pause(status: int) -> None:
    assert classify(status, {"Retry-After": "37"}, b"{}").pause_s == 37


def test_a_403_without_a_word_says_what_it_means() -> None:
    reason = classify(403, {}, b" \n").reason
    assert reason.startswith("HTTP 403: the server turns this program away")
    assert "scrape.contact" in reason


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("37", 37.0),
        ("0", 0.0),
        ("-5", 0.0),
        ("Sat, 21 Nov 2026 03:05:20 GMT", 20.0),
        ("Sat, 21 Nov 2026 03:00:00 GMT", 0.0),
        ("9" * 400, 1e9),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 1e9),
        ("soon", None),
        ("Sat, 21 Nov 99999999999999999999 03:05:20 GMT", None),
        ("inf", None),
        ("", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(text: str, seconds: float | None) -> None:
    headers = {"Retry-After": text, "Date": "Sat, 21 Nov 2026 03:05:00 GMT"}
    assert classify(429, headers, b"").pause_s == seconds
