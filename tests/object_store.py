"""An S3 server in a process of its own (moto), and a proxy before it that can fail.

The server speaks real HTTP, so drivers, signatures and multipart uploads are the real ones. It
accepts any credentials; what a server refuses is the proxy's part.
"""

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import SystemRandom
from time import monotonic, sleep
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

SECRETS = {  # made up; no output may hold one of them
    "AWS_ACCESS_KEY_ID": "AKIAQWERTYUIOPASDFGH",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "AWS_SESSION_TOKEN": "IQoJb3JpZ2luX2VjEXAMPLETOKEN",
}
START_S = 180.0


@dataclass(frozen=True)
class Bucket:
    """An empty bucket of the server, and the environment with which a process reaches it."""

    url: str
    endpoint: str
    environment: Mapping[str, str]


@contextmanager
def serve_s3(port: int = 0, host: str = "127.0.0.1") -> Iterator[str]:
    """Start moto's server in its own process; yields its address on this machine."""
    port = port or free_port()
    command = [sys.executable, "-m", "moto.server", "-H", host, "-p", str(port)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        try:
            wait_for(f"http://127.0.0.1:{port}/moto-api/", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def free_port() -> int:
    """A port on which nothing listens; the system itself gives those below 32,768 to nobody."""
    while True:
        port = SystemRandom().randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def wait_for(address: str, process: "subprocess.Popen[bytes]") -> None:
    """Return once the address answers."""
    until = monotonic() + START_S
    while process.poll() is None and monotonic() < until:
        try:
            urlopen(address, timeout=1).close()
            return
        except HTTPError:  # an answer
            return
        except OSError:
            sleep(0.05)
    raise AssertionError(f"{address} does not answer: {process.args!r}")


def reach(endpoint: str) -> dict[str, str]:
    """Environment variables with which S3 drivers use a server."""
    return {
        **SECRETS,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def make_bucket(endpoint: str, name: str) -> Bucket:
    """Create an empty bucket."""
    place = urlsplit(endpoint)
    connection = HTTPConnection(place.hostname or "", place.port)
    connection.request("PUT", f"/{name}")
    assert connection.getresponse().status == 200
    connection.close()
    return Bucket(f"s3://{name}", endpoint, reach(endpoint))


@dataclass(frozen=True)
class Request:
    """A request that passes the proxy: its method, its path with the query, and its headers."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Fault:
    """What the proxy answers instead, or does to the answer.

    Attributes:
        status: answer this status with an S3 error of this code; 0: pass the request on.
        code: S3's word for the error.
        keep: bytes of the body that are sent before the connection is cut; None: all.
        stall_s: seconds without a byte before the cut.
        silent: take the whole request and answer nothing, for ``stall_s``.
    """

    status: int = 0
    code: str = ""
    keep: int | None = None
    stall_s: float = 0.0
    silent: bool = False


@dataclass
class Proxy:
    """A proxy before a server; ``fault`` decides for each request what goes wrong.

    Attributes:
        delay_s: added to each request, as a far network would.
        requests: all that came, in order.
        answered: those whose whole answer was sent with success.
    """

    address: str
    fault: Callable[[Request], Fault | None] = lambda _: None
    delay_s: float = 0.0
    requests: list[Request] = field(default_factory=list)
    answered: list[Request] = field(default_factory=list)

    def counts(self, method: str, path: str = "") -> int:
        """Number of requests of a method whose path has a part that matches."""
        return sum(r.method == method and bool(re.search(path, r.path)) for r in self.requests)


def read_body(request: BaseHTTPRequestHandler) -> bytes:
    """Return the body of a request, which may come in chunks."""
    if "chunked" not in request.headers.get("Transfer-Encoding", ""):
        return request.rfile.read(int(request.headers.get("Content-Length") or 0))
    parts = []
    while size := int(request.rfile.readline().split(b";")[0], 16):
        parts.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(parts)


@contextmanager
def proxy_to(endpoint: str, ranges: bool = True) -> Iterator[Proxy]:
    """Start a proxy before a server; without ``ranges`` it asks for whole objects."""
    target = urlsplit(endpoint)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def setup(self) -> None:
            super().setup()
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.behind = HTTPConnection(target.hostname or "", target.port)

        def finish(self) -> None:
            self.behind.close()
            super().finish()

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except OSError:  # the client was killed, or the server behind is gone
                self.close_connection = True

        def pass_on(self) -> None:
            body = read_body(self)
            request = Request(self.command, self.path, dict(self.headers))
            proxy.requests.append(request)
            sleep(proxy.delay_s)
            fault = proxy.fault(request) or Fault()
            if fault.status:
                text = f"<Error><Code>{fault.code}</Code><Message>made</Message></Error>".encode()
                self._answer(fault.status, {"Content-Length": str(len(text))}, text)
                return
            if fault.silent:
                sleep(fault.stall_s)
                self.close_connection = True
                return
            headers = {k: v for k, v in self.headers.items() if k.lower() != "transfer-encoding"}
            if not ranges:
                headers.pop("Range", None)
            self.behind.request(self.command, self.path, body, headers)
            answer = self.behind.getresponse()
            content = answer.read()
            kept = {k: v for k, v in answer.getheaders() if k not in ("Connection", "Date")}
            if self.command != "HEAD":
                kept["Content-Length"] = str(len(content))
            self._answer(answer.status, kept, content[: fault.keep])
            if fault.keep is not None:
                sleep(fault.stall_s)
                self.close_connection = True
            elif answer.status < 300:
                proxy.answered.append(request)

        def _answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Print nothing."""

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = pass_on  # noqa: N815

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as server:
        proxy = Proxy(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()


def is_clean(text: str) -> bool:
    """Whether a text holds no credential and no signed query."""
    secrets = [*SECRETS.values(), *(quote(secret, safe="") for secret in SECRETS.values())]
    return not any(secret in text for secret in [*secrets, "Signature", "X-Amz"])
