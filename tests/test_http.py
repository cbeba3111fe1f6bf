"""Deadlines, limits and redirects, over real connections."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import requests

from hgld.errors import HgldError
from hgld.http import Session, TooLarge, read_all
from tests.drip import dripping

HEAD = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def serving(**answers: bytes | str) -> Iterator[str]:
    """Serve bodies by path; a text is where the path redirects to."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers[self.path.strip("/")]
            self.send_response(302 if isinstance(found, str) else 200)
            if isinstance(found, str):
                self.send_header("Location", found)
            elif found.startswith(b"\x1f\x8b"):
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            if isinstance(found, bytes):
                self.wfile.write(found)

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    "parts",
    [
        [HEAD[:5], b""],  # nothing more
        [HEAD, b"X: y\r\n"],
        [HEAD + b"Content-Length: 1000000\r\n\r\n", b"x"],
        [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"],
        [HEAD + b"\r\n", b"x"],  # ends where the connection ends
    ],
    ids=["status line", "headers", "body", "chunked body", "body without length"],
)
def test_an_answer_that_drips_ends_at_its_deadline(parts: list[bytes]) -> None:
    with (
        dripping(parts) as url,
        Session() as session,
        pytest.raises(requests.Timeout, match=r"no complete answer within 0\.2 s"),
        session.deadline(0.2),
    ):
        read_all(session.get(url, stream=True, timeout=5), 10**9)


@pytest.mark.parametrize("length", [b"many", b"-1", b"1e3", b""])
def test_a_length_that_is_no_number_is_refused_at_once(length: bytes) -> None:
    head = HEAD + b"Content-Length: " + length + b"\r\n\r\n"
    with (
        dripping([head + b"x", b""]) as url,
        Session() as session,
        pytest.raises(requests.exceptions.ContentDecodingError, match="Content-Length is"),
        session.deadline(60),
    ):
        read_all(session.get(url, stream=True, timeout=5), 10**9)


def test_a_session_goes_on_after_a_deadline() -> None:
    with serving(a=b"x") as url, dripping([HEAD, b"X: y\r\n"]) as slow, Session() as session:
        with pytest.raises(requests.Timeout), session.deadline(0.1):
            session.get(slow, stream=True)
        with session.deadline(60):
            assert read_all(session.get(url + "a", stream=True), 10) == b"x"


@pytest.mark.parametrize("body", [bytes(2_000_000), gzip.compress(bytes(2_000_000))])
def test_a_body_above_its_limit_is_refused_also_if_packed(body: bytes) -> None:
    with serving(a=body) as url, Session() as session:
        answer = session.get(url + "a", stream=True)
        with pytest.raises(TooLarge, match="larger than 1 MB"):
            read_all(answer, 1_000_000)


def test_an_endless_body_is_refused() -> None:
    with dripping([HEAD + b"\r\n", b"x" * 10_000], pause_s=0) as url, Session() as session:
        answer = session.get(url, stream=True)
        with pytest.raises(TooLarge):
            read_all(answer, 1_000_000)


def test_redirects_to_the_host_that_was_asked_are_followed() -> None:
    with serving(b=b"there") as there, serving(a=f"{there}b", c="a") as here, Session() as session:
        assert read_all(session.follow(f"{here}c"), 100) == b"there"


@pytest.mark.parametrize(
    "target",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "http://127.0.0.2/x",
        "http://localhost:1/x",
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "https://169.254.169.254/",
    ],
)
def test_a_redirect_to_what_is_not_public_is_refused(target: str) -> None:
    with (
        serving(a=target) as url,
        Session() as session,
        pytest.raises(HgldError, match=r"redirects to .*\bnot\b") as raised,
    ):
        session.follow(f"{url}a")
    assert "\n" not in str(raised.value)


def test_a_redirect_to_a_name_of_a_private_address_is_refused() -> None:
    with serving(a=b"secret") as there, Session() as session:
        name = there.replace("127.0.0.1", "0x7f.1")  # the system's resolver knows what this is
        with (
            serving(a=f"{name}a") as url,
            pytest.raises(HgldError, match=r"redirects to 0x7f\.1, whose address 127\.0\.0\.1"),
        ):
            session.follow(f"{url}a")


def test_a_redirect_in_a_circle_ends() -> None:
    with (
        serving(a="b", b="a") as url,
        Session() as session,
        pytest.raises(HgldError, match="redirects more than 10 times"),
    ):
        session.follow(f"{url}a")


def test_an_address_that_is_not_http_is_refused() -> None:
    with Session() as session, pytest.raises(HgldError, match="starts with http or https"):
        session.follow("file:///etc/passwd")


@pytest.mark.parametrize("target", ["http://[x", "http://x:99999/", "http://" + "a" * 70 + ".com"])
def test_a_redirect_to_what_is_not_a_url_is_refused(target: str) -> None:
    with (
        serving(a=target) as url,
        Session() as session,
        pytest.raises(HgldError, match=r"a: redirects to 'http://.* expected an address"),
    ):
        session.follow(f"{url}a")


def test_the_body_of_a_redirect_is_not_read() -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\n\r\n"
    with (
        dripping([head, b"x" * 10_000], pause_s=0) as url,
        Session() as session,
        pytest.raises(HgldError, match="not a public address"),
    ):
        session.follow(url)
