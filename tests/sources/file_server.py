"""A local file server with ranges, ETags and faults on demand."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

__all__ = ["Files", "serve_files"]


@dataclass
class Files:
    """What is served, what goes wrong, and what was asked.

    Attributes:
        data: path -> bytes.
        cuts: path -> after how many bytes each coming answer breaks off.
        statuses: path -> statuses of the coming answers, before the file is served.
        asked: path and Range header of each request.
    """

    data: dict[str, bytes]
    cuts: dict[str, list[int]] = field(default_factory=dict)
    statuses: dict[str, list[int]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    tags: bool = True


@contextmanager
def serve_files(files: Files) -> Iterator[str]:
    """Serve on this machine; yields the base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, asked = self.path.lstrip("/"), self.headers.get("Range", "")
            files.asked.append((path, asked))
            if files.statuses.get(path):
                self.send_error(files.statuses[path].pop(0))
                return
            if path not in files.data:
                self.send_error(404)
                return
            self._send(path, files.data[path], asked)

        def _send(self, path: str, data: bytes, asked: str) -> None:
            tag = f'"{md5(data).hexdigest()}"'
            start = int(re.sub(r"\D", "", asked) or 0)
            if self.headers.get("If-Range", tag) != tag:
                start = 0
            if start >= len(data) > 0:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(data)}")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(data) - start))
            if files.tags:
                self.send_header("ETag", tag)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.end_headers()
            cut = files.cuts.get(path) or [len(data)]
            self.wfile.write(data[start : start + cut.pop(0)])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
