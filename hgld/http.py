"""HTTP client with a deadline for a complete response, a size limit, and checked redirects.

The timeouts of requests apply between two bytes, so a server that sends a byte now and then can
hold a request forever; bodies are unlimited, and redirects are followed to any address. Here a
timer shuts the connection, bodies are read in pieces, and a redirect is followed only to the
requested host or to a public address (against server-side request forgery). The check uses the
address of the open connection, since a name may resolve differently at the next look-up (DNS
rebinding).
"""

import re
import socket
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import IPv6Address, ip_address
from threading import Event, Timer
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import DecodeError, HTTPError, ReadTimeoutError

from hgld.errors import HgldError

PIECE_BYTES = 1 << 20
MOST_REDIRECTS = 10
PAUSE_CAP_S = 1e9  # longer ones are not distinguished
WEB_PAGE = re.compile(rb"\s*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)


class TooLarge(requests.RequestException):
    """The response body exceeds its size limit."""


class Session(requests.Session):
    """A requests session for one thread, whose connections can be shut by a timer."""

    def __init__(self) -> None:
        super().__init__()
        self._asked_host = ""  # requested by the user, so any address is allowed
        self._expired = Event()
        self._handles: dict[HTTPConnection, socket.socket] = {}
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter(self._opened, self._connected))

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Shut all connections if the block takes longer than this.

        Raises:
            requests.Timeout: the block did not finish in time.
        """
        expired = self._expired = Event()
        timer = Timer(seconds, self._cut, [expired])
        timer.daemon = True
        timer.start()
        try:
            yield
        except (requests.RequestException, OSError):
            if not expired.is_set():
                raise
        finally:
            timer.cancel()
        if expired.is_set():  # without a Content-Length, a cut body looks complete
            raise requests.Timeout(f"no complete answer within {seconds:g} s")

    def resolve_redirects(self, *_: Any, **__: Any) -> Generator[requests.Response, None, None]:
        """Yield nothing: requests would read the complete body of each redirect, without limit."""
        yield from ()

    def follow(self, url: str, **more: Any) -> requests.Response:
        """Send a GET request and follow redirects; the body is not read.

        Args:
            url: the address that the user requested.
            more: passed on to ``get``.

        Raises:
            HgldError: the address is not HTTP, a redirect leads to a forbidden address, or there
                are too many redirects.
        """
        start, target = url, url
        for _ in range(MOST_REDIRECTS + 1):
            try:
                url = urljoin(url, target)
                if url == start:
                    self._asked_host = urlsplit(url).hostname or ""
                else:
                    self._require_allowed(start, url)
                answer = self.get(url, stream=True, allow_redirects=False, **more)
            except ValueError:  # urllib, urllib3 and requests raise it: not a URL, or not HTTP
                way = "" if url == start and target == start else f" redirects to {target[:200]!r};"
                proxy = ""
                if get_environ_proxies(url):
                    proxy = ", and one of a proxy in HTTP_PROXY, HTTPS_PROXY or ALL_PROXY"
                raise HgldError(
                    f"{start}:{way} expected an address that starts with http or https{proxy}"
                ) from None
            moved_to = self.get_redirect_target(answer)
            if moved_to is None:
                return answer
            target = moved_to
            answer.close()
        raise HgldError(f"{start}: redirects more than {MOST_REDIRECTS} times")

    def _require_allowed(self, start: str, url: str) -> None:
        """Refuse a redirect by its URL alone; host names are checked when connected."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme not in ("http", "https"):
            raise HgldError(f"{start}: redirects to {url[:200]}, which is not http or https")
        if host != self._asked_host and (host == "localhost" or not _is_public(host, unknown=True)):
            raise HgldError(f"{start}: redirects to {url[:200]}, which is not a public address")

    def _opened(self, connection: HTTPConnection, opened: socket.socket) -> None:
        """Register a connection that has just been opened, or refuse its address."""
        address = opened.getpeername()[0]
        redirected = connection.proxy is None and connection.host != self._asked_host
        if self._asked_host and redirected and not _is_public(address):
            opened.close()
            raise HgldError(
                f"{self._asked_host}: redirects to {connection.host}, whose address {address} is "
                "not public"
            )
        self._handles[connection] = opened.dup()  # the TLS handshake takes over the original
        if self._expired.is_set():
            self._cut(self._expired)

    def _connected(self, connection: HTTPConnection) -> None:
        """Replace the registered socket by that of the finished connection (after TLS)."""
        if opened := self._handles.pop(connection, None):
            opened.close()
        if connection.sock is not None:
            self._handles[connection] = connection.sock

    def _cut(self, expired: Event) -> None:
        expired.set()
        for handle in list(self._handles.values()):
            with suppress(OSError):
                # not close(): shutdown also wakes a read that blocks in another thread
                handle.shutdown(socket.SHUT_RDWR)


def _is_public(host: str, unknown: bool = False) -> bool:
    """Whether an IP address is globally reachable; ``unknown`` is returned for a host name."""
    try:
        address = ip_address(host)
    except ValueError:
        return unknown
    if isinstance(address, IPv6Address):
        # ::ffff:127.0.0.1 is the loopback address, too
        address = address.ipv4_mapped or address
    return address.is_global


class _Adapter(HTTPAdapter):
    """Calls back when a connection is opened and when it is ready, also for those to a proxy."""

    def __init__(
        self,
        opened: Callable[[HTTPConnection, socket.socket], None],
        connected: Callable[[HTTPConnection], None],
    ) -> None:
        self._pools = {
            "http": _reporting(HTTPConnectionPool, HTTPConnection, opened, connected),
            "https": _reporting(HTTPSConnectionPool, HTTPSConnection, opened, connected),
        }
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        super().init_poolmanager(*arguments, **more)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **more)
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = self._pools
        return manager


def _reporting(
    pool: type[HTTPConnectionPool],
    connection: type[HTTPConnection],
    opened: Callable[[HTTPConnection, socket.socket], None],
    connected: Callable[[HTTPConnection], None],
) -> type[HTTPConnectionPool]:
    """Return a subclass of the pool whose connections call back."""

    def open_socket(self: HTTPConnection) -> socket.socket:
        found = connection._new_conn(self)
        opened(self, found)
        return found

    def connect(self: HTTPConnection) -> None:
        try:
            connection.connect(self)
        finally:
            connected(self)

    made = type(connection.__name__, (connection,), {"_new_conn": open_socket, "connect": connect})
    return type(pool.__name__, (pool,), {"ConnectionCls": made})


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that ``Retry-After`` asks for, which may be a number or a date; None: it does not.

    Example:
        >>> retry_after({"Retry-After": "37"}), retry_after({})
        (37.0, None)
    """
    text = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"-?\d+(\.\d+)?", text):
        seconds = float(text)
    elif until := _date(text):
        now = _date(headers.get("Date", "")) or datetime.now(UTC)
        seconds = (until - now).total_seconds()
    else:
        return None
    return min(max(0.0, seconds), PAUSE_CAP_S)


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def is_web_page(head: bytes) -> bool:
    """Whether a file that begins like this is a web page, as of a login or an error.

    Example:
        >>> is_web_page(b"<!DOCTYPE html>"), is_web_page(b"PK")
        (True, False)
    """
    return WEB_PAGE.match(head) is not None


def read_pieces(answer: requests.Response, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
    """Yield the decompressed body as it arrives; bytes before a lost connection are yielded, too.

    Raises:
        requests.RequestException: the connection was lost, no byte came in time, or its
            Content-Length is not a number, so that the end on a kept-alive connection is unknown.
    """
    stated = answer.headers.get("Content-Length", "0")
    if not re.fullmatch(r"[0-9]+(\s*,\s*[0-9]+)*", stated.strip()):
        answer.close()
        raise requests.exceptions.ContentDecodingError(f"Content-Length is {stated[:100]!r}")
    try:
        while piece := answer.raw.read1(piece_bytes, decode_content=True):
            yield piece
    except ReadTimeoutError as error:
        raise requests.ReadTimeout(str(error)) from None
    except DecodeError as error:
        raise requests.exceptions.ContentDecodingError(str(error)) from None
    except HTTPError as error:
        raise requests.exceptions.ChunkedEncodingError(str(error)) from None


def read_all(answer: requests.Response, most_bytes: int) -> bytes:
    """Return the complete decompressed body.

    Raises:
        TooLarge: it has more bytes than that.
        requests.RequestException: as ``read_pieces``.
    """
    pieces, size = [], 0
    for piece in read_pieces(answer):
        size += len(piece)
        if size > most_bytes:
            answer.close()
            raise TooLarge(f"the answer is larger than {most_bytes / 1e6:,.0f} MB")
        pieces.append(piece)
    return b"".join(pieces)
