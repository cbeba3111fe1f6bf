"""HTTP server of the review page, so that several people decide at the same time.

It is made for one machine or a trusted network, on which other people and other web pages exist.
The secret token of the address is the only permission. Requests under a foreign host name or from
a foreign page are refused, so that no page of the web can decide or read anything, and nothing is
logged, so that the token is written nowhere. A kill loses nothing: a decision is in its file
before it is answered, and a page keeps what was not answered.
"""

import json
import socket
from collections.abc import Callable, Mapping, Sequence
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from socketserver import TCPServer
from threading import Event, Thread
from typing import Any, Protocol, TypeGuard
from urllib.parse import parse_qs, unquote, urlsplit

from hgld.errors import DISK_FULL, HgldError, InvalidData, UsageError
from hgld.review.live_decisions import LiveDecisions
from hgld.words import single_blanks

LARGEST_BODY = 8_000_000  # bytes of a request
LONGEST_TEXT = 2000  # characters of a cell
IDLE_S = 30.0  # after which a silent connection is closed
BEAT_S = 5.0  # between two events of a stream without news; a lost connection is noticed by it
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page has the rest of its policy
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # links to Wikidata must not pass the token on
    "X-Content-Type-Options": "nosniff",
}
Rows = Sequence[Mapping[str, str]]


class Site(Protocol):
    """Content of the server.

    Attributes:
        decisions: decisions on the values of the page.
    """

    decisions: LiveDecisions

    def page(self) -> str:
        """Return the HTML of the page."""

    def photos(self, key: str) -> list[dict[str, str]]:
        """Return the photos of a value, each with its captions and ``src``."""

    def photo(self, name: str) -> bytes | None:
        """Return the JPEG of a ``src``; None if there is none."""

    def save(self, who: str, rows: Rows, sitting: str) -> Mapping[str, object]:
        """Append decisions of a person in one sitting; return facts for the page."""

    def undo(self, who: str, entry: str, rows: Sequence[str]) -> Mapping[str, object]:
        """Take back an entry, or rows of it by their ids, in a person's name; return facts."""
        raise InvalidData("this page takes nothing back by entries")

    def comment(self, who: str, key: str, text: str) -> None:
        """Append a comment of a person on a value."""
        raise InvalidData("this page has no comments")

    def edit_taxonomy(
        self, who: str, edit: Mapping[str, str], keys: Sequence[str]
    ) -> Mapping[str, object]:
        """Make an edit in a person's name; a split takes the values of the keys; return facts."""
        raise InvalidData("this page has no taxonomy")


class ReviewServer(ThreadingHTTPServer):
    """Server of one review, with a thread for each connection.

    Args:
        host: address to listen on.
        port: 0 takes a free one.
        token: secret part of the address.
        site: pages, photos and decisions.
        notice: receives a line for each unexpected error.

    Raises:
        UsageError: the address is in use, or not one of this machine.
    """

    daemon_threads = True
    block_on_close = False  # streams end by themselves

    def __init__(
        self, host: str, port: int, token: str, site: Site, notice: Callable[[str], None]
    ) -> None:
        self.token, self.site, self.notice = token, site, notice
        self.names = {"localhost", host.lower(), socket.gethostname().lower()}
        self.stopped = Event()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Connection)
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"{host}:{port}: cannot be served ({getattr(error, 'strerror', '') or error}); "
                "choose another port with --port, or an address of this machine with --host"
            ) from None

    @property
    def url(self) -> str:
        """Address of the page, with the token."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/{self.token}/"

    def server_bind(self) -> None:
        """Bind without asking the network for the host's name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def serve(self) -> None:
        """Serve until ``shutdown`` is called, or an exception such as KeyboardInterrupt comes."""
        watch = self.site.decisions.watch
        Thread(target=watch, args=(self.stopped, self.notice), daemon=True).start()
        try:
            self.serve_forever(poll_interval=0.1)
        finally:
            self.stopped.set()
            self.site.decisions.wake()  # streams end
            self.server_close()

    def handle_error(self, *_: object) -> None:
        """Ignore errors of a connection: a browser may close it at any time."""


class _Connection(BaseHTTPRequestHandler):
    """One connection of a browser."""

    server: ReviewServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "hgld", ""
    timeout = IDLE_S

    def log_message(self, *_: object) -> None:
        """Log nothing, as addresses hold the token."""

    def do_GET(self) -> None:
        """Send the page, the stream of events, the photos of a value, or a photo."""
        self._route({"": self._page, "events": self._events, "photos": self._photos}, self._photo)

    def do_POST(self) -> None:
        """Save decisions or a comment, edit the taxonomy, or take an entry back."""
        routes = {
            "decisions": self._save,
            "undo": self._undo,
            "comments": self._comment,
            "taxonomy": self._edit_taxonomy,
        }
        self._route(routes, self._unknown)

    def _route(self, routes: Mapping[str, Callable[[], None]], else_do: Callable[[], None]) -> None:
        if not (self._names_this_machine() and self._comes_from_the_page()):
            return self._refuse(HTTPStatus.FORBIDDEN, "not asked by the page of this server")
        parts = urlsplit(self.path)
        token, slash, self.name = parts.path.removeprefix("/").partition("/")
        if not compare_digest(token.encode(), self.server.token.encode()) or not slash:
            return self._unknown()
        self.query = {name: texts[-1] for name, texts in parse_qs(parts.query).items()}
        try:
            routes.get(self.name, else_do)()
        except (ConnectionError, TimeoutError):
            self.close_connection = True  # the browser has gone
        except HgldError as error:
            self._refuse(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
        except OSError as error:
            reason = DISK_FULL.get(error.errno or 0, error.strerror)
            text = f"{error.filename or 'review'}: {reason}; nothing was saved, it is tried again"
            self.server.notice(text)
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, text)
        except Exception as error:  # a fault of hgld: without an answer, the page would wait for it
            text = f"unexpected {type(error).__name__}: {single_blanks(str(error))}"
            self.server.notice(text)
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, text)

    def _names_this_machine(self) -> bool:
        """Whether the host is an address or a name of this machine, against DNS rebinding."""
        try:
            host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
            return host in self.server.names or bool(ip_address(host))
        except ValueError:
            return False

    def _comes_from_the_page(self) -> bool:
        """Whether no page of another server sends the request; a link to the page may be there."""
        here = f"http://{self.headers.get('Host', '')}"
        if self.command == "POST":
            kind = self.headers.get_content_type()
            return self.headers.get("Origin") == here and kind == "application/json"
        site = self.headers.get("Sec-Fetch-Site", "same-origin")
        is_link = self.headers.get("Sec-Fetch-Mode") == "navigate"
        same = site in ("same-origin", "none") and self.headers.get("Origin", here) == here
        return same or is_link

    def _page(self) -> None:
        self._send(self.server.site.page().encode(), "text/html; charset=utf-8")

    def _photos(self) -> None:
        self._send_json(self.server.site.photos(self.query.get("key", "")))

    def _photo(self) -> None:
        jpeg = self.server.site.photo(unquote(self.name.removeprefix("photos/")))
        if jpeg is None:
            self._unknown()
        else:
            self._send(jpeg, "image/jpeg", {"Cache-Control": "private, max-age=86400"})

    def _events(self) -> None:
        """Send what is new as server-sent events, until the browser or the server goes."""
        decisions, at = self.server.site.decisions, self.query.get("since", "")
        self.close_connection = True
        self._head(HTTPStatus.OK, {"Content-Type": "text/event-stream", "Connection": "close"})
        with decisions.present(single_blanks(self.query.get("who", ""))[:LONGEST_TEXT]):
            while not self.server.stopped.is_set():
                at, news = decisions.since(at, BEAT_S)
                event = {"at": at, "news": news, "people": sorted(+decisions.people)}
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def _save(self) -> None:
        body = self._body()
        rows = body.get("rows")
        if not isinstance(rows, list) or not all(map(_is_row, rows)):
            raise InvalidData(
                f"rows: expected a list of objects of texts of at most {LONGEST_TEXT} characters; "
                "is a note longer?"
            )
        who, sitting = _text(body, "who"), _text(body, "sitting") if "sitting" in body else ""
        self._send_news(body, self.server.site.save(who, rows, sitting))

    def _undo(self) -> None:
        body = self._body()
        who, entry, rows = _text(body, "who"), _text(body, "entry"), _texts(body, "rows")
        undone = self.server.site.undo(who, entry, rows)
        self._send_news(body, undone)

    def _comment(self) -> None:
        body = self._body()
        self.server.site.comment(*(_text(body, name) for name in ("who", "key", "text")))
        self._send_news(body, {})

    def _edit_taxonomy(self) -> None:
        body = self._body()
        who, edit, keys = _text(body, "who"), body.get("edit"), _texts(body, "keys")
        if not _is_row(edit):
            raise InvalidData("edit: expected an object of short texts")
        self._send_news(body, self.server.site.edit_taxonomy(who, edit, keys))

    def _send_news(self, body: Mapping[str, Any], facts: Mapping[str, object]) -> None:
        decisions = self.server.site.decisions
        decisions.refresh()
        at, news = decisions.since(str(body.get("since", "")), 0.0)
        self._send_json({**facts, "at": at, "news": news})

    def _body(self) -> Mapping[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            raise InvalidData(f"a request has at most {LARGEST_BODY:,} bytes, and names its length")
        try:
            body = json.loads(self.rfile.read(int(length)))
            json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # JSON may escape one half of a pair of surrogates
            raise InvalidData("a text holds half an emoji; expected all of it") from None
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise InvalidData("expected an object in JSON")
        return body

    def _unknown(self) -> None:
        self._refuse(HTTPStatus.NOT_FOUND, "not found")

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True  # the body of the request may not be read
        self._send_json({"error": why}, status)

    def _send_json(self, facts: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(json.dumps(facts).encode(), "application/json", {}, status)

    def _send(
        self,
        data: bytes,
        kind: str,
        more: Mapping[str, str] | None = None,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> None:
        facts = {"Content-Type": kind, "Content-Length": str(len(data)), **(more or {})}
        self._head(status, facts)
        self.wfile.write(data)

    def _head(self, status: HTTPStatus, facts: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, text in {**HEADERS, **facts}.items():
            self.send_header(name, text)
        self.end_headers()


def _is_row(row: object) -> TypeGuard[Mapping[str, str]]:
    return isinstance(row, dict) and all(map(_is_short, row.values()))


def _is_short(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and len(text) <= LONGEST_TEXT


def _text(body: Mapping[str, Any], name: str) -> str:
    """Return a text of a request.

    Raises:
        InvalidData: it is missing or too long.
    """
    text = body.get(name)
    if not _is_short(text) or not single_blanks(text):
        raise InvalidData(f"{name}: expected a text of at most {LONGEST_TEXT} characters")
    return single_blanks(text)


def _texts(body: Mapping[str, Any], name: str) -> list[str]:
    """Return a list of short texts of a request, empty if it is missing.

    Raises:
        InvalidData: it is something else.
    """
    texts = body.get(name, [])
    if not isinstance(texts, list) or not all(map(_is_short, texts)):
        raise InvalidData(f"{name}: expected a list of short texts")
    return texts
