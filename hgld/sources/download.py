"""Loads one file: resumable and verified.

A file is loaded under ``NAME.part`` and gets its name only when it is complete and, where its MD5
is published, right. A partial file is continued with an HTTP range, but only while the server still
has the same file (``If-Range``). A file that was found right is noted by size and time and not read
again; one that has another MD5 than it should is loaded once more from its first byte.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TypeVar

import requests

from hgld.artifacts import atomic_path
from hgld.errors import HgldError, InvalidData, Resumable

__all__ = ["RemoteFile", "download", "load_part", "measure_bandwidth"]

Result = TypeVar("Result")

BLOCK_BYTES = 1 << 20
TIMEOUT_S = (10, 60)  # to connect, between two reads
TRIES = 4
PAUSE_S = 1.0  # before the second try; doubled each time
TRANSIENT = {408, 429, 500, 502, 503, 504}
SAMPLE_BYTES, SAMPLE_S = 8 << 20, 5.0  # of a file, when bandwidth is measured; whichever is first


@dataclass(frozen=True)
class RemoteFile:
    """One file to be: where from, where to, where its MD5 is published (empty: nowhere)."""

    url: str
    path: Path
    size_bytes: int
    md5_url: str

    @property
    def part(self) -> Path:
        """Where it grows until it is complete."""
        return self.path.with_name(self.path.name + ".part")

    @property
    def version(self) -> Path:
        """Beside the partial file: which version of the file on the server it is a part of."""
        return self.path.with_name(self.path.name + ".part.version")


def download(file: RemoteFile, fetched: Path, stop: Event) -> None:
    """Load one file unless it is there and right.

    Args:
        file: where from, where to.
        fetched: folder of the notes on files that were found right.
        stop: once it is set, the download ends at its next block.

    Raises:
        InvalidData: the file does not have its published MD5.
        Resumable: the network or the disk failed; what was loaded is kept.
        HgldError: the server does not have the file.
    """
    with _connected(file) as session:
        if file.path.exists() and _was_right(file, fetched):
            return
        wanted = _published_md5(session, file, stop)
        if not file.path.exists() or (wanted and _md5(file.path, stop) != wanted):
            _load_right(session, file, wanted, stop)
            file.part.replace(file.path)
            file.version.unlink(missing_ok=True)
        _note_right(file, fetched)


def load_part(file: RemoteFile, stop: Event) -> None:
    """Load ``file.part`` until it is complete and has its published MD5; raises as ``download``."""
    with _connected(file) as session:
        _load_right(session, file, _published_md5(session, file, stop), stop)


def measure_bandwidth(files: Sequence[RemoteFile]) -> float:
    """Bytes a second of the beginnings of all these files, loaded at the same time.

    Raises:
        Resumable: the server cannot be reached.
    """
    if not files:
        return 0.0
    start = monotonic()
    with ThreadPoolExecutor(len(files)) as workers:
        loaded = sum(workers.map(_sample, files))
    return loaded / (monotonic() - start)


def _sample(file: RemoteFile) -> int:
    """How much of a file's beginning comes in a short time."""
    headers, end, loaded = {"Range": f"bytes=0-{SAMPLE_BYTES - 1}"}, monotonic() + SAMPLE_S, 0
    try:
        with (
            _session() as session,
            session.get(file.url, headers=headers, stream=True, timeout=TIMEOUT_S) as answer,
        ):
            _require_good(answer)
            for block in answer.iter_content(BLOCK_BYTES // 16):
                loaded += len(block)
                if loaded >= SAMPLE_BYTES or monotonic() > end:
                    break
    except (requests.RequestException, _Busy) as error:
        raise Resumable(
            f"{file.url}: {_in_short(error)}, so the bandwidth cannot be measured; state it with "
            "--bandwidth"
        ) from None
    return loaded


def _session() -> requests.Session:
    session = requests.Session()
    session.headers["Accept-Encoding"] = "identity"  # ranges count the bytes of the file
    return session


@contextmanager
def _connected(file: RemoteFile) -> Iterator[requests.Session]:
    """A session; what the disk refuses is told with the file."""
    try:
        with _session() as session:
            yield session
    except OSError as error:
        raise Resumable(
            f"{file.path}: {error.strerror or error}; what was loaded is kept, run the same "
            "command again once that is mended"
        ) from None


def _load_right(session: requests.Session, file: RemoteFile, wanted: str, stop: Event) -> None:
    """Load the partial file; where its MD5 is wrong, once more from its first byte."""
    file.path.parent.mkdir(parents=True, exist_ok=True)
    for last in (False, True):
        _retry(lambda: _load(session, file, stop), file.url, stop, lambda: _size(file.part))
        found = _md5(file.part, stop) if wanted else wanted
        if found == wanted:
            return
        file.part.unlink()
        file.version.unlink(missing_ok=True)
        if last:
            raise InvalidData(
                f"{file.path}: MD5 is {found}, but {file.md5_url} says {wanted}, loaded twice; "
                "nothing of it is kept, run the same command again later"
            )


class _Busy(Exception):
    """The server cannot answer now, or ended too early; another try may help."""


def _retry(
    attempt: Callable[[], Result],
    url: str,
    stop: Event,
    progress: Callable[[], int] = lambda: 0,
) -> Result:
    """Try until it works, or until a few tries in a row brought no progress."""
    left, seen = TRIES, progress()
    while True:
        try:
            return attempt()
        except (requests.RequestException, _Busy) as error:
            left = TRIES if progress() > seen else left
            left, seen = left - 1, max(seen, progress())
            if left == 0 or stop.is_set():
                raise Resumable(
                    f"{url}: {_in_short(error)}; what was loaded is kept, run the same command "
                    "again to go on"
                ) from None
            stop.wait(PAUSE_S * 2 ** (TRIES - 1 - left))


def _in_short(error: Exception) -> str:
    """The network's fault in one line, without the names of libraries."""
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection was cut"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error).partition("\n")[0]


def _load(session: requests.Session, file: RemoteFile, stop: Event) -> None:
    """Load what is missing of the partial file."""
    version = file.version.read_text("utf-8") if file.version.exists() else ""
    start = _size(file.part) if version else 0
    headers = {"Range": f"bytes={start}-", "If-Range": version} if start else {}
    with session.get(file.url, headers=headers, stream=True, timeout=TIMEOUT_S) as answer:
        if answer.status_code == requests.codes.requested_range_not_satisfiable:
            if answer.headers.get("Content-Range") == f"bytes */{start}":
                return  # it was complete already
            file.version.unlink(missing_ok=True)
            raise _Busy("the partial file does not fit the server's; it is loaded anew")
        _require_good(answer)
        continued = answer.status_code == requests.codes.partial_content
        if continued and not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise _Busy("the server sent another part than was asked for")
        if not continued:
            start = 0
            file.part.unlink(missing_ok=True)  # first, lest an old part be taken for the new one's
            file.version.write_text(_version(answer), "utf-8")
        _write_body(answer, file.part, continued, stop)
    expected = answer.headers.get("Content-Length")
    if expected and _size(file.part) != start + int(expected):
        raise _Busy(f"cut short at byte {_size(file.part)} of {start + int(expected)}")


def _require_good(answer: requests.Response) -> None:
    if answer.status_code in TRANSIENT:
        raise _Busy(f"the server answers {answer.status_code} {answer.reason}")
    if answer.status_code not in (requests.codes.ok, requests.codes.partial_content):
        raise HgldError(
            f"{answer.url}: the server answers {answer.status_code} {answer.reason}; check "
            "fetch.base_url and the file's name under fetch.downloads"
        )


def _version(answer: requests.Response) -> str:
    """What ``If-Range`` may compare: a strong ETag, else the time of the last change."""
    tag = answer.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified", "")


def _write_body(answer: requests.Response, part: Path, continued: bool, stop: Event) -> None:
    with part.open("ab" if continued else "wb") as file:
        for block in answer.iter_content(BLOCK_BYTES):
            file.write(block)
            _end_if(stop)
        file.flush()
        os.fsync(file.fileno())  # it is renamed soon, and a name must not outlive its bytes


def _end_if(stop: Event) -> None:
    if stop.is_set():
        raise Resumable("stopped on the way; run the same command again to go on")


def _published_md5(session: requests.Session, file: RemoteFile, stop: Event) -> str:
    """The first word of the MD5 file; empty where there is none."""
    if not file.md5_url:
        return ""

    def ask() -> str:
        answer = session.get(file.md5_url, timeout=TIMEOUT_S)
        _require_good(answer)
        return answer.text

    first = next(iter(_retry(ask, file.md5_url, stop).split()), "").lower()
    if not re.fullmatch(r"[0-9a-f]{32}", first):
        raise InvalidData(
            f"{file.md5_url}: starts with '{first[:40]}'; expected an MD5 of 32 digits"
        )
    return first


def _md5(path: Path, stop: Event) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            _end_if(stop)
    return digest.hexdigest()


def _note(file: RemoteFile, fetched: Path) -> Path:
    """Where it is noted that the file was found right."""
    return fetched / hashlib.sha256(f"{file.url}\n{file.path}".encode()).hexdigest()[:32]


def _state_of(file: RemoteFile) -> str:
    facts = file.path.stat()
    return f"{file.md5_url}\n{facts.st_size}\n{facts.st_mtime_ns}"


def _was_right(file: RemoteFile, fetched: Path) -> bool:
    note = _note(file, fetched)
    return note.exists() and note.read_text("utf-8") == _state_of(file)


def _note_right(file: RemoteFile, fetched: Path) -> None:
    with atomic_path(_note(file, fetched)) as temporary:
        temporary.write_text(_state_of(file), "utf-8")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
