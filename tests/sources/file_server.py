"""A local file server with ranges, ETags and faults on demand."""

import re
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from time import sleep

from hgld.config import StageContext
from tests.sources.made_set import folder_of

__all__ = ["Files", "serve_files"]

RESET = struct.pack("ii", 1, 0)  # linger for no time: closing resets the connection


@dataclass
class Files:
    """What is served, what goes wrong, and what was asked.

    Attributes:
        data: path -> bytes.
        cuts: path -> after how many bytes each coming answer breaks off.
        resets: likewise, but the connection is reset.
        stalls: likewise, but nothing comes any more and the connection stays open.
        wrong: path -> at which byte each coming answer has another bit than the file; -1: none.
        moved: path -> where it redirects to.
        statuses: path -> statuses of the coming answers, before the file is served.
        retry_after: header of the answers with these statuses.
        pace: seconds between two pieces of 10 kB.
        asked: path and Range header of each request.
        tags: whether the answers have ETags.
        lengths: whether they state their length; without it they end with the connection.
        at_once: the most answers that were under way at the same time.
    """

    data: dict[str, bytes]
    cuts: dict[str, list[int]] = field(default_factory=dict)
    resets: dict[str, list[int]] = field(default_factory=dict)
    stalls: dict[str, list[int]] = field(default_factory=dict)
    wrong: dict[str, list[int]] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, list[int]] = field(default_factory=dict)
    retry_after: str = ""
    pace: float = 0.0
    asked: list[tuple[str, str]] = field(default_factory=list)
    tags: bool = True
    lengths: bool = True
    at_once: int = 0
    running: int = 0
    lock: Lock = field(default_factory=Lock)


@contextmanager
def serve_files(files: Files) -> Iterator[str]:
    """Serve on this machine; yields the base URL."""
    over = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, asked = self.path.lstrip("/"), self.headers.get("Range", "")
            self.over = False
            with files.lock:
                files.asked.append((path, asked))
                files.running += 1
                files.at_once = max(files.at_once, files.running)
            try:
                self._answer(path, asked)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client has gone
            finally:
                self._end()

        def _end(self) -> None:
            """The client may have all of it, and go on to the next."""
            with files.lock:
                files.running -= not self.over
            self.over = True

        def _answer(self, path: str, asked: str) -> None:
            if files.statuses.get(path):
                self.send_response(files.statuses[path].pop(0))
                self.send_header("Retry-After", files.retry_after)
                self.end_headers()
            elif path in files.moved:
                self.send_response(302)
                self.send_header("Location", files.moved[path])
                self.end_headers()
            elif path not in files.data:
                self.send_error(404)
            else:
                self._send(path, files.data[path], asked)

        def _send(self, path: str, data: bytes, asked: str) -> None:
            tag = f'"{md5(data).hexdigest()}"'
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
            start = int(found[1]) if found else 0
            end = min(int(found[2]) + 1, len(data)) if found and found[2] else len(data)
            if self.headers.get("If-Range", tag) != tag:
                start, end = 0, len(data)
            if start >= len(data) > 0:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(data)}")
                self.end_headers()
                return
            part = (start, end) != (0, len(data))
            self.send_response(206 if part else 200)
            if files.lengths:
                self.send_header("Content-Length", str(end - start))
            if files.tags:
                self.send_header("ETag", tag)
            if part:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
            self.end_headers()
            self._write(path, data, start, end)

        def _write(self, path: str, data: bytes, start: int, end: int) -> None:
            at = next(iter(files.wrong.get(path, ())), -1)
            if files.wrong.get(path):
                files.wrong[path].pop(0)
            if at >= 0:
                data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            for faults in (files.cuts, files.resets, files.stalls):
                if faults.get(path):
                    self._pour(data[start : min(end, start + faults[path].pop(0))])
                    if faults is files.stalls:
                        over.wait(30)
                    if faults is files.resets:
                        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                        self.rfile.close()
                        self.connection.close()
                    return
            self._pour(data[start:end])

        def _pour(self, data: bytes) -> None:
            for place in range(0, len(data), 10_000):
                sleep(files.pace)
                if place + 10_000 >= len(data):
                    self._end()
                self.wfile.write(data[place : place + 10_000])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, address: object) -> None:
            pass  # a connection that was reset on purpose

    server = Server(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class FileSite:
    """A server of files, and the run that fetches from it."""

    url: str
    files: Files
    context: StageContext

    @property
    def folder(self) -> Path:
        return folder_of(self.context)
