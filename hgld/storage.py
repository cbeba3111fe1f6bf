"""Folders at a URL, through fsspec: list, read whole or by ranges, write atomically, delete.

Every driver has its own errors, and some quote a signed request. Here all calls pass through one
place that repeats what a busy server refused, and turns an error into one line without
credentials. Credentials are the driver's business: it reads them from the environment or a profile.

A file becomes visible when its last byte has arrived: object stores write one object at once, or
by a multipart upload that is completed at the end.
"""

import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from http.client import HTTPException, IncompleteRead
from itertools import islice
from logging import CRITICAL, getLogger
from pathlib import Path
from time import sleep
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import quote, unquote
from urllib.request import Request, urlopen

from hgld.errors import DISK_FULL, HgldError, InvalidData, Resumable, UsageError
from hgld.words import PASSWORD, single_blanks

Item = TypeVar("Item")
Result = TypeVar("Result")
Range = tuple[str, int, int]  # file, offset, size

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # a Path of a URL has one slash
FILE = re.compile(r"file:(?://(?:localhost)?)?(/.*)")
WEB = re.compile(r"https?://", re.IGNORECASE)
KEPT = ":/?#[]@!$&'()*+,;=%"  # legal in a URL; blanks and non-ASCII letters are escaped
LARGE = 1 << 20  # bytes of a read
TIMEOUT_S = 60.0
WAITS_S = (0.1, 0.4, 1.6)  # before the tries that follow the first
IN_FLIGHT = 16  # requests of a process at a time
SECRET = re.compile("KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL|CONNECTION_STRING", re.IGNORECASE)

DRIVERS = {  # scheme -> what installs its package
    "s3": "hgld[s3]",
    "gs": "hgld[gs]",
    "abfs": "hgld[azure]",
    "az": "hgld[azure]",
    "hf": "huggingface_hub",
}
OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {
        "config_kwargs": {
            "retries": {"total_max_attempts": 1},  # botocore's own would multiply ours
            "max_pool_connections": 32,
            "read_timeout": 15.0,  # seconds without a byte
        }
    },
    "hf": {"block_size": 1},  # else 5 MB more than asked for are read
}
ALIASES = {"s3a": "s3", "gcs": "gs", "abfss": "abfs"}  # other schemes of the same drivers
OBJECT_STORES = {"s3", "gs", "abfs", "az", "hf", "memory"}
EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
REFUSED = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "401"}
REGION = {"AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "301", "307"}
BUSY = {"SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "IncompleteBody"}
BUSY |= {"429", "500", "502", "503", "504"}
BUSY |= {"NoSuchUpload"}  # the driver aborts an upload whose end was confirmed too late
BESIDE = {"409", "412"}  # the Hub refuses a commit that comes beside another one
CUT = {"ClientPayloadError", "FSTimeoutError", "IncompleteRead", "ServerDisconnectedError"}


@dataclass(frozen=True)
class StoredFile:
    """A file of a remote folder; ``version`` changes with its content (etag or its like)."""

    name: str
    size_bytes: int
    version: str

    @property
    def stamp(self) -> list[int | str]:
        """Size and version, as a note keeps them to recognise the file."""
        return [self.size_bytes, self.version]


def is_url(folder: Path | str) -> bool:
    """Whether a folder is a URL, even one that was converted to a Path.

    Example:
        >>> is_url("s3://bucket/shards"), is_url("work/shards")
        (True, False)
    """
    return URL.match(str(folder)) is not None


def is_object_store(location: str) -> bool:
    """Whether a location is in an object store, where a file appears at once.

    Example:
        >>> is_object_store("s3a://bucket/shards"), is_object_store("sftp://host/shards")
        (True, False)
    """
    return _scheme(location) in OBJECT_STORES


def is_web(location: Path | str) -> bool:
    """Whether a location is at a web server, which may know neither sizes nor ranges.

    Example:
        >>> is_web("https://host/shards"), is_web("s3://bucket/shards")
        (True, False)
    """
    return WEB.match(str(location)) is not None


def as_folder(folder: Path | str) -> Path | str:
    """Path of a folder on this machine, or URL of another.

    Raises:
        UsageError: a URL was converted to a Path, which loses a slash; a file:// URL has a host;
            a URL holds a password or a query, which errors and logs would repeat, or a fragment,
            which a web server does not get.

    Example:
        >>> as_folder("file:///data/shards"), as_folder("s3://bucket/shards/")
        (PosixPath('/data/shards'), 's3://bucket/shards')
    """
    if not is_url(folder):
        return Path(folder)
    if isinstance(folder, Path):
        raise UsageError(f"{masked(str(folder))}: a URL has to be given as text, not as a Path")
    if PASSWORD.search(folder):
        raise UsageError(
            f"{masked(folder)}: the URL holds a password; the driver reads credentials from the "
            "environment or a profile"
        )
    if not folder.startswith("file:"):
        if "?" in folder:
            raise UsageError(
                f"{masked(folder)}: the URL of a folder has no query; the driver reads credentials "
                "from the environment or a profile"
            )
        if "#" in folder and is_web(folder):
            raise UsageError(f"{folder}: the URL of a folder has no fragment; write # as %23")
        return folder.rstrip("/")
    path = FILE.fullmatch(folder)
    if path is None:
        raise UsageError(f"{folder}: a file:// URL has an absolute path, such as file:///data/set")
    return Path(unquote(path[1]))


def local_folder(folder: Path | str) -> Path:
    """The Path of a folder given as a path or as text.

    Raises:
        UsageError: it is a URL.
    """
    found = as_folder(folder)
    if isinstance(found, Path):
        return found
    raise UsageError(f"{masked(found)}: a URL; expected a folder on this machine")


def join_location(folder: Path | str, name: str) -> str:
    """Path or URL of a file in a folder.

    Example:
        >>> join_location("https://host/shards/", "train-000000.tar")
        'https://host/shards/train-000000.tar'
        >>> join_location("https://host/shards", "a#b.tar"), join_location("shards", "a#b.tar")
        ('https://host/shards/a%23b.tar', 'shards/a#b.tar')
    """
    return f"{str(folder).rstrip('/')}/{quote(name) if is_web(folder) else name}"


def masked(text: str) -> str:
    """Return a text without queries and passwords of URLs and secrets of the environment.

    Example:
        >>> masked("no answer of https://me:secret@host/a.tar?X-Amz-Signature=1")
        'no answer of https://me@host/a.tar'
    """
    text = PASSWORD.sub(r"\1@", text)
    text = re.sub(r"(\w+://[^\s?'\"]*)\?[^\s'\")]*", r"\1", text)
    for name, value in os.environ.items():
        if SECRET.search(name) and len(value) > 7:
            pattern = ""
            for letter in value:  # also percent-encoded, once or several times
                code = "".join(f"%(?:25)*{byte:02x}" for byte in os.fsencode(letter))
                pattern += f"(?:{re.escape(letter)}|(?i:{code}))"
            text = re.sub(pattern, "***", text)
    return text


class RemoteFolder:
    """A folder at a URL; may be shared by threads and survives a fork.

    Args:
        url: of the folder, such as s3://bucket/shards.

    Raises:
        InvalidData: (all methods) a file does not exist, or ends too early.
        Resumable: the server stayed busy or unreachable, the credentials have expired, or the disk
            of a file:// URL is full.
        HgldError: the scheme is unknown, its driver is missing, or access is refused.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    @property
    def is_hub(self) -> bool:
        """Whether the folder is on the Hub, which limits the questions of a minute."""
        return self.url.startswith("hf:")

    def list(self) -> dict[str, StoredFile]:
        """Files of the folder by name; none if it does not exist."""
        try:
            entries = self._call("", lambda files, path: _fresh(files).ls(path, detail=True))
        except InvalidData:
            return {}
        found = (_stored(entry) for entry in entries if entry["type"] == "file")
        return {file.name: file for file in found if file.name}

    def stat(self, name: str) -> StoredFile | None:
        """Size and version of a file; None if it does not exist."""
        try:
            return _stored(self._call(name, lambda files, path: _fresh(files).info(path)))
        except InvalidData:
            return None

    def read(self, name: str) -> bytes:
        """All bytes of a small file."""
        data: bytes = self._call(name, lambda files, path: files.cat_file(path, start=0))
        return data

    def read_range(self, name: str, offset: int, size: int) -> bytes:
        """``size`` bytes of a file from ``offset`` on."""
        data: bytes = self._call(
            name, lambda files, path: files.cat_file(path, start=offset, end=offset + size)
        )
        if len(data) > size:
            raise HgldError(
                f"{self.location(name)}: {len(data)} bytes came where {size} were asked for; the "
                "server, or a proxy before it, knows no ranges: reach another"
            )
        if len(data) < size:
            raise InvalidData(
                f"{self.location(name)}: ends before byte {offset + size}, where its index has "
                f"{size} bytes; the file is truncated, get it again"
            )
        return data

    def download(self, name: str, path: Path) -> None:
        """Copy a file to a path on this machine."""
        if is_web(self.url):
            self._call(name, lambda files, url: files.download(url, path))
            return
        found = self.stat(name)
        if found is None:
            raise _no_such_file(self.location(name))
        size, piece = found.size_bytes, 8 * LARGE
        parts = read_ahead(
            lambda at: self.read_range(name, at, min(piece, size - at)), range(0, size, piece), 4
        )
        with path.open("wb") as file, closing(parts):
            for part in parts:
                file.write(part)

    def upload(self, path: Path, name: str) -> StoredFile:
        """Copy a file of this machine into the folder; others see it when it is complete."""
        self._put(name, lambda files, there: files.put_file(str(path), there))
        return self._require_size(name, path.stat().st_size)

    def write(self, name: str, content: bytes) -> StoredFile:
        """Write a small file; others see it when it is complete."""
        self._put(name, lambda files, there: files.pipe_file(there, content))
        return self._require_size(name, len(content))

    def delete(self, names: Sequence[str]) -> None:
        """Delete files; missing ones are fine."""
        for name in names:
            try:
                self._call(name, lambda files, path: files.rm_file(path), writes=True)
            except InvalidData:
                continue

    def location(self, name: str = "") -> str:
        """URL of a file or of the folder without credentials, for messages."""
        return masked(join_location(self.url, name) if name else self.url)

    def _put(self, name: str, put: Callable[[Any, str], object]) -> None:
        def replace(files: Any, path: str) -> None:
            folder = path.rpartition("/")[0]
            files.makedirs(folder, exist_ok=True)
            put(files, f"{folder}/.{name}.tmp")
            files.mv(f"{folder}/.{name}.tmp", path)

        try:
            self._call(name, put if is_object_store(self.url) else replace, writes=True)
        except InvalidData:  # most drivers report a missing bucket as a missing file
            raise _no_such_bucket(self.location(name)) from None

    def _require_size(self, name: str, size: int) -> StoredFile:
        found = self.stat(name)
        if found is None or found.size_bytes != size:
            raise Resumable(
                f"{self.location(name)}: holds {found.size_bytes if found else 'none'} of {size} "
                "bytes after it was written; run the same command again"
            )
        return found

    def _call(
        self, name: str, action: Callable[[Any, str], Result], writes: bool = False
    ) -> Result:
        """Call the driver; repeat what a busy server refused, and explain any error."""
        location = join_location(self.url, name) if name else self.url
        for wait in (*WAITS_S, None):
            try:
                files, root = _connect(self.url)
                return action(files, join_location(root, name) if name else root)
            except Exception as error:  # drivers have no common class
                fault, again = _explain(error, location, writes)
            if not again or wait is None:
                raise fault
            sleep(wait)
        raise AssertionError("the last try returns or raises")


def read_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], ahead: int = IN_FLIGHT
) -> Generator[Result]:
    """Yield the results of a function that waits for a server, in order; threads work ahead.

    Example:
        >>> list(read_ahead(abs, [-1, 2, -3], ahead=2))
        [1, 2, 3]
    """
    waiting = iter(items)
    with ThreadPoolExecutor(ahead) as pool:
        coming = deque(pool.submit(function, item) for item in islice(waiting, ahead))
        try:
            while coming:
                yield coming.popleft().result()
                coming.extend(pool.submit(function, item) for item in islice(waiting, 1))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class _Web:
    """Files of a web server, with the methods of fsspec that reading needs (no aiohttp)."""

    def ls(self, url: str, detail: bool) -> list[dict[str, Any]]:
        raise FileNotFoundError(url)  # a web server lists no folder for programs

    def open(self, url: str, start: int = 0, end: int | None = None) -> BinaryIO:
        span = {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
        answer = self._answer(url, span if start or end is not None else None)
        if answer.status != HTTPStatus.PARTIAL_CONTENT:  # the whole file, from its start
            for at in range(0, start, LARGE):
                answer.read(min(LARGE, start - at))
        return cast(BinaryIO, answer)

    def info(self, url: str) -> dict[str, Any]:
        with self._answer(url, method="HEAD") as answer:
            size = int(answer.headers["Content-Length"] or -1)
            version = answer.headers["ETag"] or answer.headers["Last-Modified"] or ""
            return {"name": url, "size": size, "ETag": version, "type": "file"}

    def cat_file(self, url: str, start: int, end: int | None = None) -> bytes:
        if end is None:
            return self.open(url).read()
        with self.open(url, start, end) as answer:
            data = answer.read(end - start)
            if len(data) < end - start:
                require_end(answer)
            return data

    def download(self, url: str, path: Path) -> None:
        with self.open(url) as answer, path.open("wb") as file:
            shutil.copyfileobj(answer, file, LARGE)
            require_end(answer)

    def _answer(self, url: str, headers: dict[str, str] | None = None, method: str = "GET") -> Any:
        # a % without a code of two digits is meant as it is
        whole = quote(re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", url), safe=KEPT)
        request = Request(whole, headers=headers or {}, method=method)
        return urlopen(request, timeout=TIMEOUT_S)


def require_end(file: BinaryIO) -> None:
    """Refuse an answer of a web server that broke off, of which ``read(size)`` makes a short one.

    Raises:
        IncompleteRead: fewer bytes came than the server stated.
    """
    if left := getattr(file, "length", None):  # other files have no such attribute
        raise IncompleteRead(b"", left)


def _scheme(url: str) -> str:
    """The scheme of a URL, the same for all that name one driver."""
    found = url.partition("://")[0]
    return ALIASES.get(found, found)


def _connect(url: str) -> tuple[Any, str]:
    """The driver of a URL, and the URL's path in its words."""
    scheme = _scheme(url)
    if is_web(url):
        return _Web(), url
    import fsspec  # here, since few commands need it

    here = as_folder(url)
    url = url if isinstance(here, str) else str(here)  # fsspec takes %20 for a part of the name
    # fsspec keeps one driver a process; a list that it remembers would miss what others write.
    files, path = fsspec.url_to_fs(url, use_listings_cache=False, **OPTIONS.get(scheme, {}))
    if scheme == "gs":  # prints a traceback of each error that it raises
        getLogger("gcsfs").setLevel(CRITICAL)
    if hasattr(files, "retries"):
        files.retries = 2  # of a part of an upload; more would multiply ours
    return files, str(path)


def _fresh(files: Any) -> Any:
    """The driver without the lists that it remembers; that of the Hub keeps them regardless."""
    if hasattr(files, "invalidate_cache"):
        files.invalidate_cache()
    return files


def open_location(location: str, start: int = 0) -> BinaryIO:
    """Open a path or URL for reading from front to back.

    Args:
        location: of the file.
        start: first byte to read, if the file is at a web server.

    Raises:
        InvalidData: the file does not exist.
        HgldError: it cannot be opened.
    """
    if is_web(location):
        web: BinaryIO = RemoteFolder(location)._call("", lambda files, url: files.open(url, start))
        return web
    try:
        if is_url(location):
            files, path = _connect(location)
            return cast(BinaryIO, files.open(path))
        if Path(location).exists() and not Path(location).is_file():
            raise InvalidData(f"{location}: not a regular file; expected a file of shards")
        return Path(location).open("rb", buffering=LARGE)
    except HgldError:
        raise
    except Exception as error:
        raise _explain(error, location, writes=False)[0] from None


def _stored(entry: dict[str, Any]) -> StoredFile:
    keys = ("ETag", "etag", "md5Hash", "content_md5", "blob_id", "mtime", "created", "LastModified")
    found = next((entry[key] for key in keys if entry.get(key)), "")
    # fsspec's memory has a number in a list, and a time for one file.
    version = str(found.timestamp() if isinstance(found, datetime) else found)
    name = str(entry["name"]).rpartition("/")[2]
    return StoredFile(name, int(entry.get("size") or 0), version.strip('"'))


def _explain(error: Exception, location: str, writes: bool) -> tuple[HgldError, bool]:
    """The error in one line without credentials, and whether another try may help."""
    if isinstance(error, HgldError):
        return error, False
    scheme, code = _scheme(location), _code(error)
    names = [kind.__name__ for link in _chain(error) for kind in type(link).__mro__[:-3]] or ["?"]
    place = masked(location)
    why = code if code and not code.isdigit() else masked(single_blanks(str(error))) or names[0]
    if isinstance(error, ImportError):
        install = f': pip install "{DRIVERS[scheme]}"' if scheme in DRIVERS else ""
        text = (
            f"{place}: the package that reads {scheme}:// is not installed ({why}); install it"
            f"{install}, or copy the shards to this machine"
        )
        return HgldError(text), False
    if "Protocol not known" in why:
        text = (
            f"{place}: cannot be opened ({why}); expected file, http, https, {', '.join(DRIVERS)}"
        )
        return HgldError(text), False
    if code == "NoSuchBucket" or "bucket does not exist" in why.lower():
        return _no_such_bucket(place), False
    if code in ("InvalidRange", "416"):
        return InvalidData(f"{place}: ends before the bytes that its index names; the file is "
                           "truncated, get it again"), False  # fmt: skip
    is_missing = isinstance(error, FileNotFoundError) and code not in BUSY
    if is_missing or code in ("404", "NoSuchKey"):
        return _no_such_file(place), False
    if code in REGION or "RecursionError" in names:  # s3fs follows redirects without end
        text = f"{place}: the server names another region for the bucket"
        return HgldError(f"{text}; set AWS_DEFAULT_REGION, or the profile's region, to it"), False
    if code in EXPIRED:
        text = f"{place}: the credentials have expired; renew them and run the same command again"
        return Resumable(text), False
    if code == "RequestTimeTooSkewed":
        text = f"{place}: the clock of this machine differs from the server's; set it"
        return Resumable(f"{text} and run the same command again"), False
    if code == "400" and scheme == "s3":  # a HEAD has no word for what is wrong
        text = f"{place}: the credentials have expired, or are for another region; renew them, or"
        return Resumable(f"{text} set AWS_DEFAULT_REGION, and run the same command again"), False
    if code in REFUSED or "NoCredentialsError" in names:
        text = f"{place}: the server does not accept the credentials, or none are set"
        why = f" ({code})" if code else ""
        return HgldError(f"{text}{why}; set those of its driver in the environment"), False
    if isinstance(error, PermissionError) or code in ("403", "AccessDenied"):
        what = "writing is" if writes else "access is"
        # a HEAD has no word for a key or a clock that is wrong
        why = "access denied" + ", or this machine's key or clock is wrong" * (code == "403")
        text = f"{place}: {what} not allowed ({why})"
        return HgldError(f"{text}; use credentials with the permission, or another URL"), False
    text = f"{place}: cannot be {'written' if writes else 'opened'} ({why})"
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        text = f"{place}: cannot be written ({error.strerror}); free some, the same command resumes"
        return Resumable(text), False
    cut = isinstance(error, ConnectionError | TimeoutError | HTTPException) or CUT & {*names}
    refused = any("Connect" in name or "Timeout" in name for name in names)
    refused |= "URLError" in names and "HTTPError" not in names  # urllib's answers are URLErrors
    beside = scheme == "hf" and writes and code in BESIDE
    if code in BUSY or beside or cut or refused:
        tries = len(WAITS_S) + 1
        return Resumable(f"{text} in {tries} tries; the same command resumes later"), True
    return HgldError(text), False


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _code(error: Exception) -> str:
    """The server's word or number for an error; empty if it did not answer."""
    for link in _chain(error):
        response = getattr(link, "response", None)
        if isinstance(response, dict):  # botocore
            return str(response.get("Error", {}).get("Code", ""))
        status = getattr(response, "status_code", None) or getattr(link, "status", None)
        status = status or getattr(link, "code", None)
        if isinstance(status, int):
            return str(int(status))
    return ""


def _no_such_file(location: str) -> InvalidData:
    return InvalidData(
        f"{location}: no such file, although an index names it; bring it back, or give the folder "
        "that holds it"
    )


def _no_such_bucket(location: str) -> HgldError:
    """The error for a missing bucket, which alone is named: a file of it is not what is wrong."""
    scheme, parts = _scheme(location), location.split("/")
    if scheme == "hf":  # hf://datasets/ME/SET
        return HgldError(
            f"{'/'.join(parts[:5])}: no such repository, or the token may not see it; create it, "
            "or correct the URL or HF_TOKEN"
        )
    if scheme not in DRIVERS:
        return HgldError(f"{location}: its folder cannot be made; correct the URL")
    bucket = "/".join(parts[:3])
    return HgldError(f"{bucket}: the bucket does not exist; create it, or correct the URL")
