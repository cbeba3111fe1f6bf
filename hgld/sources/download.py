"""Resumable, verified download of one file.

A file is downloaded as ``NAME.part`` and renamed only when it is complete and verified: it has the
published MD5 or, if there is none, about the stated size and the expected columns, and it is not a
web page (a login, an error). A partial file is resumed with an HTTP range, but only if the server
still has the same version (``If-Range``). A pause that a busy server asks for is kept. A verified
file is recorded by its size and times and not read again, unless this is requested; a file with a
wrong MD5 is downloaded once more from the start.
"""

import csv
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TypeVar

import requests

from hgld.artifacts import write_file
from hgld.artifacts.atomic import require_file
from hgld.errors import HgldError, InvalidData, Resumable
from hgld.http import Session, is_web_page, read_pieces, retry_after
from hgld.tasks import say
from hgld.words import duration_text

Result = TypeVar("Result")

BLOCK_BYTES = 1 << 20
TIMEOUT_S = (10, 60)  # to connect; between two bytes
HEADERS_S = 120.0  # from connecting to the last header, redirects included
STALL_S, LEAST_PER_S = 60.0, 1000  # slower than this rate for this time: reconnect
LEAST_PROGRESS = 10_000  # bytes after which the count of failed tries starts again
TRIES = 4
PAUSE_S = 1.0  # before the second try; doubled for each further one
LONGEST_PAUSE_S, NOTED_S = 600.0, 10.0  # that a server may ask for; longer ones are reported
TRANSIENT = {408, 429, 500, 502, 503, 504}
MD5_FILE_BYTES = 4096  # bytes read of an MD5 file
HEAD_BYTES = 1 << 16  # of a file, to detect its type
SIZE_FACTOR = 4  # stated sizes are estimates; beyond this factor it is another file
SIZE_SLACK = 16_000_000, 64_000  # bytes above and below
IS_PAGE = "is a web page (a login or an error), not the file"
SAMPLE_BYTES, SAMPLE_S = 8 << 20, 5.0  # limits of a bandwidth test; the first one reached ends it


@dataclass(frozen=True)
class RemoteFile:
    """A file to download: URL, target path, and the facts for its verification.

    Attributes:
        size_bytes: as stated in the pipeline file.
        md5_url: address of its published MD5; empty: none.
        columns: required columns of a CSV.
    """

    url: str
    path: Path
    size_bytes: int
    md5_url: str
    columns: tuple[str, ...] = ()

    @property
    def part(self) -> Path:
        """Path of the partial file."""
        return self.path.with_name(self.path.name + ".part")

    @property
    def most_bytes(self) -> int:
        """Size limit above which it cannot be the expected file."""
        return self.size_bytes * SIZE_FACTOR + SIZE_SLACK[0]

    @property
    def version(self) -> Path:
        """Path of the server's version (ETag or date) that the partial file belongs to."""
        return self.path.with_name(self.path.name + ".part.version")


def download(file: RemoteFile, fetched: Path, stop: Event, again: bool = False) -> None:
    """Download one file unless a verified copy exists.

    Args:
        file: the file to download.
        fetched: folder of the records of verified files.
        stop: event that ends the download at its next block.
        again: ignore the record and compare every byte with the published MD5.

    Raises:
        InvalidData: the MD5 is wrong or, without a published one, it is not the expected file.
        Resumable: the network or the disk failed; the partial file is kept.
        HgldError: the server does not have the file, or redirects to a forbidden address.
    """
    with _connected(file) as session:
        if file.path.exists() and not again and was_right(file, fetched):
            return
        wanted = _published_md5(session, file, stop)
        if file.path.exists() and not wanted and (fault := _fault(file, file.path)):
            raise InvalidData(f"{file.path}: {fault}; remove it to have it loaded again")
        if not file.path.exists() or (wanted and _md5(file.path, stop) != wanted):
            _load_right(session, file, wanted, stop)
            file.part.replace(file.path)
        file.version.unlink(missing_ok=True)  # also that of a run that was killed before it went
        note_right(file, fetched)


def load_part(file: RemoteFile, stop: Event) -> None:
    """Download ``file.part`` and verify its published MD5; raises as ``download``."""
    with _connected(file) as session:
        _load_right(session, file, _published_md5(session, file, stop), stop)


def measure_bandwidth(files: Sequence[RemoteFile]) -> float:
    """Return bytes per second of a parallel download of the beginnings of these files.

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
    """Return the number of bytes of a file's beginning that arrive in a short time."""
    headers, end, loaded = {"Range": f"bytes=0-{SAMPLE_BYTES - 1}"}, monotonic() + SAMPLE_S, 0
    try:
        with _session() as session, _get(session, file.url, headers) as answer:
            for block in read_pieces(answer, BLOCK_BYTES // 16):
                loaded += len(block)
                if loaded >= SAMPLE_BYTES or monotonic() > end:
                    break
    except (requests.RequestException, _Busy) as error:
        raise Resumable(
            f"{file.url}: {_in_short(error)}, so the bandwidth cannot be measured; state it with "
            "--bandwidth"
        ) from None
    return loaded


def _session() -> Session:
    session = Session()
    session.headers["Accept-Encoding"] = "identity"  # ranges count the bytes of the file
    return session


def _get(session: Session, url: str, headers: Mapping[str, str] | None = None) -> requests.Response:
    """Return a successful response whose body is not read yet."""
    with session.deadline(HEADERS_S):
        answer = session.follow(url, headers=headers, timeout=TIMEOUT_S)
    if answer.status_code in TRANSIENT:
        answer.close()
        pause_s = retry_after(answer.headers) or 0.0
        raise _Busy(f"the server answers {answer.status_code} {answer.reason}", pause_s)
    good = (requests.codes.ok, requests.codes.partial_content)
    if answer.status_code not in (*good, requests.codes.requested_range_not_satisfiable):
        answer.close()
        raise HgldError(
            f"{answer.url}: the server answers {answer.status_code} {answer.reason}; check "
            "fetch.base_url and the file's name under fetch.downloads"
        )
    return answer


@contextmanager
def _connected(file: RemoteFile) -> Iterator[Session]:
    """Yield a session; an error of the disk names the file."""
    try:
        for path in (file.path, file.part, file.version):
            require_file(path)
        with _session() as session:
            yield session
    except OSError as error:
        raise Resumable(
            f"{error.filename or file.path}: {error.strerror or error}; what was loaded is kept, "
            "run the same command again once that is fixed"
        ) from None


def _load_right(session: Session, file: RemoteFile, wanted: str, stop: Event) -> None:
    """Download the partial file; if its MD5 is wrong, once more from the start."""
    file.path.parent.mkdir(parents=True, exist_ok=True)
    for last in (False, True):
        _retry(lambda: _load(session, file, stop), file.url, stop, lambda: _size(file.part))
        if not wanted and (fault := _fault(file, file.part)):
            discard(file)
            raise InvalidData(f"{file.url}: {fault}; nothing of it is kept")
        found = _md5(file.part, stop) if wanted else wanted
        if found == wanted:
            return
        with file.part.open("rb") as part:
            is_page = _is_page(file, part.read(HEAD_BYTES))
        discard(file)
        if is_page:
            raise InvalidData(f"{file.url}: {IS_PAGE}; nothing of it is kept")
        if last:
            raise InvalidData(
                f"{file.path}: MD5 is {found}, but {file.md5_url} says {wanted}, loaded twice; "
                "nothing of it is kept, run the same command again later"
            )


def discard(file: RemoteFile) -> None:
    """Remove the partial file and the record of its version."""
    file.version.unlink(missing_ok=True)  # first: a part alone is removed by the next run
    file.part.unlink(missing_ok=True)


def _fault(file: RemoteFile, path: Path) -> str:
    """Return the reason why a file without published MD5 is not the expected one, or empty."""
    with path.open("rb") as opened:
        head = opened.read(HEAD_BYTES)
    if not head:
        return "is empty"
    if _is_page(file, head):
        return IS_PAGE
    least = file.size_bytes // SIZE_FACTOR - SIZE_SLACK[1]
    if not least <= _size(path) <= file.most_bytes:
        return _wrong_size(file, _size(path))
    line = head.decode("utf-8-sig", "replace").partition("\n")[0]
    try:
        there = [name.strip() for name in next(csv.reader([line.rstrip("\r")]), [])]
    except csv.Error:  # a lone carriage return: not a CSV
        there = []
    if missing := [name for name in file.columns if name not in there]:
        return f"has no column {', '.join(missing)}; it starts with {line[:80]!r}"
    return ""


def _is_page(file: RemoteFile, head: bytes) -> bool:
    return is_web_page(head) and file.path.suffix not in (".html", ".htm")


def _wrong_size(file: RemoteFile, size: int) -> str:
    stated = f"fetch.downloads states {file.size_bytes / 1e6:g} MB"
    return f"has {size / 1e6:g} MB, but {stated}: correct that if the file is right"


class _Busy(Exception):
    """A transient failure: the server is busy or closed the connection; another try may help.

    ``pause_s`` is what the server asks for before it.
    """

    def __init__(self, text: str, pause_s: float = 0.0) -> None:
        super().__init__(text)
        self.pause_s = pause_s


class _Slow(_Busy):
    """The connection is too slow to finish."""


def _retry(
    attempt: Callable[[], Result],
    url: str,
    stop: Event,
    progress: Callable[[], int] = lambda: 0,
) -> Result:
    """Repeat until success, or until several tries in a row made no progress."""
    left, seen = TRIES, progress()
    while True:
        try:
            return attempt()
        except (requests.RequestException, _Busy) as error:
            moved = progress() >= seen + LEAST_PROGRESS and not isinstance(error, _Slow)
            left = TRIES if moved else left
            left, seen = left - 1, max(seen, progress())
            asked_s, text = getattr(error, "pause_s", 0.0), f"{url}: {_in_short(error)}"
            asks = f" and asks for a pause of {duration_text(asked_s)}" if asked_s else ""
            if left == 0 or stop.is_set() or asked_s > LONGEST_PAUSE_S:
                raise Resumable(
                    f"{text}{asks}; what was loaded is kept, run the same command again to go on"
                ) from None
            if asked_s > NOTED_S:
                say(f"{text}{asks}; it is kept")
            stop.wait(max(asked_s, PAUSE_S * 2 ** (TRIES - 1 - left)))
            _end_if(stop)


def _in_short(error: Exception) -> str:
    """Return a network error in one line, without the names of libraries."""
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection was cut"
    if isinstance(error, requests.exceptions.ProxyError):
        return "no connection by the proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names"
    if isinstance(error, requests.exceptions.SSLError):
        reason = re.search(r"\] ([^()]+) \(", str(error))
        return f"no secure connection ({reason[1] if reason else 'TLS'})"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error).partition("\n")[0]


def _load(session: Session, file: RemoteFile, stop: Event) -> None:
    """Download the missing rest of the partial file."""
    version = file.version.read_text("utf-8") if file.version.exists() else ""
    start = _size(file.part) if version else 0
    headers = {"Range": f"bytes={start}-", "If-Range": version} if start else {}
    with _get(session, file.url, headers) as answer:
        if answer.status_code == requests.codes.requested_range_not_satisfiable:
            if start and answer.headers.get("Content-Range") == f"bytes */{start}":
                return  # it was complete already
            file.version.unlink(missing_ok=True)
            raise _Busy("the partial file does not fit the server's; it is loaded again")
        continued = answer.status_code == requests.codes.partial_content
        if continued and not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise _Busy("the server sent another part than was asked for")
        start = start if continued else 0  # 200: the server ignored the range
        length = _length(answer)
        _require_fitting(file, start + (length or 0))
        framed = "Content-Length" in answer.headers or "Transfer-Encoding" in answer.headers
        if not framed and not file.md5_url:
            say(f"{file.url}: its server states neither length nor MD5, so it may be incomplete")
        if not continued:
            if kept := _size(file.part):
                say(f"{file.url}: loaded from its start again, {kept / 1e6:.1f} MB are lost: the "
                    "file has changed, or its server cannot resume a download")  # fmt: skip
            file.part.unlink(missing_ok=True)  # before the version: an old part must not get it
            # The validator for If-Range: a strong ETag, else the date; none if a range would count
            # other bytes.
            tag = answer.headers.get("ETag", "")
            tag = tag if not tag.startswith("W/") else ""
            version = tag or answer.headers.get("Last-Modified", "")
            version = "" if _is_packed(answer) else version
            file.version.write_text(version, "utf-8")
        _write_body(answer, file, continued, stop)
    if length is not None and _size(file.part) != start + length:
        raise _Busy(f"cut short at byte {_size(file.part)} of {start + length}")


def _length(answer: requests.Response) -> int | None:
    """Return the length of the body if it is known; for a compressed one it is not."""
    text = answer.headers.get("Content-Length", "")
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) and not _is_packed(answer) else None


def _is_packed(answer: requests.Response) -> bool:
    return answer.headers.get("Content-Encoding", "identity").lower() not in ("", "identity")


def _require_fitting(file: RemoteFile, size: int) -> None:
    if size > file.most_bytes:
        discard(file)
        raise InvalidData(f"{file.url}: {_wrong_size(file, size)}; nothing of it is kept")


def _write_body(answer: requests.Response, file: RemoteFile, continued: bool, stop: Event) -> None:
    size = _size(file.part) if continued else 0
    since, before = monotonic(), size
    with file.part.open("ab" if continued else "wb") as part:
        for block in read_pieces(answer, BLOCK_BYTES):
            part.write(block)
            size += len(block)
            _end_if(stop)
            _require_fitting(file, size)
            if (seconds := monotonic() - since) > STALL_S:
                if size - before < seconds * LEAST_PER_S:
                    raise _Slow(f"only {size - before} bytes came in {seconds:.0f} s")
                since, before = monotonic(), size
        part.flush()
        os.fsync(part.fileno())  # before the rename: after a crash, a name must have all bytes


def _end_if(stop: Event) -> None:
    if stop.is_set():
        raise Resumable("stopped on the way; run the same command again to go on")


def _published_md5(session: Session, file: RemoteFile, stop: Event) -> str:
    """Return the first word of the MD5 file; empty if there is none."""
    if not file.md5_url:
        return ""

    def ask() -> bytes:
        with session.deadline(HEADERS_S), _get(session, file.md5_url) as answer:
            head = b""
            for block in read_pieces(answer, MD5_FILE_BYTES):
                head += block
                if len(head) >= MD5_FILE_BYTES:
                    break
        return head

    head = _retry(ask, file.md5_url, stop)
    first = next(iter(head.decode("utf-8", "replace").split()), "").lower()
    if not re.fullmatch(r"[0-9a-f]{32}", first):
        what = IS_PAGE if is_web_page(head) else f"starts with '{first[:40]}'"
        raise InvalidData(f"{file.md5_url}: {what}; expected an MD5 of 32 digits")
    return first


def _md5(path: Path, stop: Event) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            _end_if(stop)
    return digest.hexdigest()


def _note(file: RemoteFile, fetched: Path) -> Path:
    """Return the path of the record that the file was verified."""
    return fetched / hashlib.sha256(f"{file.url}\n{file.path}".encode()).hexdigest()[:32]


def _state_of(file: RemoteFile) -> str:
    facts = file.path.stat()
    found = (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)  # no program can set the ctime
    return "\n".join(map(str, (file.md5_url, file.size_bytes, *file.columns, *found)))


def was_right(file: RemoteFile, fetched: Path) -> bool:
    """Whether the file was verified, and its size and times are unchanged since."""
    note = _note(file, fetched)
    return note.exists() and note.read_text("utf-8") == _state_of(file)


def note_right(file: RemoteFile, fetched: Path) -> None:
    """Record that the file is verified."""
    write_file(_note(file, fetched), _state_of(file))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
