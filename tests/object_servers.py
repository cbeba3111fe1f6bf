"""Servers of other object stores: s3rver (S3), Azurite, an emulator of Google Cloud Storage.

`make system` installs the two of npm; without them their tests are skipped, but fail in CI. The Hub
is a stand-in: it gives the few answers of the Hub's documented file API that reading and commits of
small files need.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.object_store import free_port, read_body, wait_for

NODE = Path(__file__).parent.parent / "node_modules/.bin"
S3_KEY = {"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER"}  # the only one it has
AZURE_KEY = (  # the emulator's own, from its documentation
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
HUB_TOKEN = "hf_QwErTyUiOpAsDfGhJkLzXcVb"


@dataclass(frozen=True)
class Store:
    """A server with one container.

    Attributes:
        url: of the container.
        environment: variables with which its driver reaches it.
        wrong: variables that replace them for a key that it does not know; empty: any is accepted.
        secrets: texts that no output may hold.
    """

    url: str
    environment: Mapping[str, str]
    wrong: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()


def is_hidden(text: str, store: Store) -> bool:
    """Whether a text holds no secret of a server and no signature."""
    return not any(secret in text for secret in [*store.secrets, "Signature", "sig="])


@contextmanager
def serve_s3rver(folder: Path) -> Iterator[Store]:
    """S3 that checks the key and the signature of each request."""
    port = free_port()
    command = [_node("s3rver"), "-d", str(folder), "-a", "127.0.0.1", "-p", str(port)]
    with _running([*command, "--configure-bucket", "box"], f"http://127.0.0.1:{port}"):
        reached = {
            **S3_KEY,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        wrong = {"AWS_ACCESS_KEY_ID": "AKIAWRONGWRONG"}
        yield Store("s3://box", reached, wrong, ("AKIAWRONGWRONG",))


@contextmanager
def serve_azurite(folder: Path) -> Iterator[Store]:
    """Azure Blob Storage of Microsoft's emulator, which checks signatures."""
    port, account = free_port(), "devstoreaccount1"
    command = [_node("azurite-blob"), "--inMemoryPersistence", "--blobPort", str(port)]
    options = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]

    def connection(key: str) -> str:
        return (
            f"DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};"
            f"BlobEndpoint=http://127.0.0.1:{port}/{account};"
        )

    with _running([*command, *options], f"http://127.0.0.1:{port}"):
        from azure.storage.blob import BlobServiceClient

        BlobServiceClient.from_connection_string(connection(AZURE_KEY)).create_container("box")
        name = "AZURE_STORAGE_CONNECTION_STRING"
        wrong = AZURE_KEY.replace("E", "F")
        environment, other = {name: connection(AZURE_KEY)}, {name: connection(wrong)}
        yield Store("abfs://box", environment, other, (AZURE_KEY, wrong))


@contextmanager
def serve_gcs(folder: Path) -> Iterator[Store]:
    """Google Cloud Storage of an emulator, which accepts anyone."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "gcp_storage_emulator", "start", "--in-memory"]
    place = ["--host", "127.0.0.1", "--port", str(port), "--default-bucket", "box"]
    with _running([*command, *place], address):
        environment = {
            "STORAGE_EMULATOR_HOST": address,
            "FSSPEC_GS_TOKEN": "anon",
            "GOOGLE_CLOUD_PROJECT": "made",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # asks Google itself for a minute
        }
        yield Store("gs://box", environment)


@contextmanager
def serve_hub(folder: Path) -> Iterator[Store]:
    """Stand-in of the Hub: the data set me/world holds the files of the folder.

    The first commit is refused, as one that comes beside another.
    """
    commits: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            part = path.removeprefix("/datasets/me/world/resolve/main/")
            listed = path.removeprefix("/api/datasets/me/world/tree/main/")
            if self.headers.get("Authorization") != f"Bearer {HUB_TOKEN}":
                self._answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})
            elif path == "/api/datasets/me/world":
                self._answer(200, json.dumps({"id": "me/world", "sha": "0" * 40}).encode())
            elif listed != path and (folder / listed).is_dir():
                files = sorted(filter(Path.is_file, (folder / listed).iterdir()))
                self._answer(200, json.dumps([_describe(file) for file in files]).encode())
            elif part != path and (folder / part).is_file():
                self._answer_part((folder / part).read_bytes())
            else:
                self._answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})

        def do_POST(self) -> None:
            path = unquote(urlsplit(self.path).path).removeprefix("/api/datasets/me/world")
            body = read_body(self)
            if self.headers.get("Authorization") != f"Bearer {HUB_TOKEN}":
                self._answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})
            elif path == "/preupload/main":
                asked = [one["path"] for one in json.loads(body)["files"]]
                mode = {"uploadMode": "regular", "shouldIgnore": False}
                answer = {"files": [{"path": name, **mode} for name in asked]}
                self._answer(200, json.dumps(answer).encode())
            elif path == "/commit/main" and not commits:
                commits.append(b"")
                self._answer(412, b'{"error": "A commit has happened since"}')
            elif path == "/commit/main":
                for line in map(json.loads, body.splitlines()):
                    _commit(line["key"], line["value"])
                url = f"{address}/datasets/me/world/commit/{0:040}"
                commit = {"commitUrl": url, "commitOid": "0" * 40, "success": True}
                self._answer(200, json.dumps(commit).encode())
            else:
                self._answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})

        def log_message(self, *arguments: object) -> None:
            """Print nothing."""

        def _answer_part(self, data: bytes) -> None:
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
            part = slice(int(wanted[1]), int(wanted[2]) + 1) if wanted else slice(None)
            self._answer(206 if wanted else 200, data[part])

        def _answer(self, status: int, body: bytes, more: Mapping[str, str] | None = None) -> None:
            self.send_response_only(status)
            for name, value in {"Content-Length": str(len(body)), **(more or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    def _commit(key: str, value: Mapping[str, str]) -> None:
        if key == "file":
            (folder / value["path"]).parent.mkdir(parents=True, exist_ok=True)
            (folder / value["path"]).write_bytes(b64decode(value["content"]))
        elif key == "deletedFile":
            (folder / value["path"]).unlink()

    def _describe(file: Path) -> dict[str, object]:
        content = file.read_bytes()
        name = file.relative_to(folder).as_posix()
        return {
            "type": "file",
            "oid": sha1(content).hexdigest(),
            "size": len(content),
            "path": name,
        }

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        environment = {"HF_ENDPOINT": address, "HF_TOKEN": HUB_TOKEN, "HF_HUB_OFFLINE": "0"}
        yield Store("hf://datasets/me/world", environment, {"HF_TOKEN": "hf_wrong"}, (HUB_TOKEN,))
        server.shutdown()


def _node(name: str) -> str:
    found = shutil.which(name, path=f"{NODE}{os.pathsep}{os.environ['PATH']}")
    if found is None and os.environ.get("CI"):
        pytest.fail(f"{name} is not installed; `make system` installs it")
    if found is None:
        pytest.skip(f"{name} is not installed; `make system` installs it")
    return found


@contextmanager
def _running(command: list[str], address: str) -> Iterator[None]:
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        try:
            wait_for(address, process)
            yield
        finally:
            process.kill()
