"""Downloads the data set's own files, several at a time; what is there and right is left alone.

Which files there are, their sizes and where their MD5s are published stands in the pipeline file.
How one file is loaded, resumed and verified stands in ``hgld.sources.download``.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path, PurePosixPath
from threading import Event
from urllib.parse import urljoin, urlsplit

from hgld.config import FetchOptions, StageContext
from hgld.errors import HgldError, InvalidData, Resumable, UsageError
from hgld.sources.download import RemoteFile, download
from hgld.tasks import track

__all__ = ["fetch_files", "plan_downloads"]


def fetch_files(*, options: FetchOptions, context: StageContext) -> None:
    """Load every file of ``options.downloads`` that is not there yet into the source folder.

    Where no downloads are listed the files are a person's own; the folder only has to hold some.

    Raises:
        InvalidData: a file that does not have its published MD5; no files where some should be.
        Resumable: the network failed for longer than a few tries; partial files are kept.
        HgldError: a server that does not have the file.
        UsageError: a URL with another placeholder than ``{number}``.
    """
    folder = context.source.folder
    assert folder is not None
    if not options.downloads:
        _require_files(folder)
        return
    files = list(_plan(options, folder))
    stop = Event()
    workers = ThreadPoolExecutor(max(1, options.parallel))
    try:
        futures = [
            workers.submit(download, file, context.state / "fetched", stop) for file in files
        ]
        _raise_first(list(track(as_completed(futures), "Downloading", len(futures))))
    finally:
        stop.set()  # an interrupt ends the running downloads at their next block
        workers.shutdown(wait=True, cancel_futures=True)


def plan_downloads(options: FetchOptions, folder: Path) -> list[tuple[str, Path, int]]:
    """What ``fetch_files`` would load: URL, target path and bytes of each file.

    Example:
        >>> from hgld.config import Download
        >>> tars = Download(url="train/images_{number:03d}.tar", count=2, megabytes=1000)
        >>> options = FetchOptions(base_url="https://a.example/b/", downloads=(tars,))
        >>> [(url, str(path), size) for url, path, size in plan_downloads(options, Path("s"))][1]
        ('https://a.example/b/train/images_001.tar', 's/train/images_001.tar', 1000000000)
    """
    return [(file.url, file.path, file.size_bytes) for file in _plan(options, folder)]


def _plan(options: FetchOptions, folder: Path) -> Iterator[RemoteFile]:
    for listed in options.downloads:
        for number in range(listed.count):
            url, md5_url = _fill(listed.url, number), _fill(listed.md5_url, number)
            yield RemoteFile(
                urljoin(options.base_url, url),
                folder / _place(url),
                round(listed.megabytes * 1_000_000),
                urljoin(options.base_url, md5_url) if md5_url else "",
            )


def _fill(url: str, number: int) -> str:
    try:
        return url.format(number=number)
    except (LookupError, ValueError, AttributeError):
        raise UsageError(
            f"fetch.downloads: '{url}' has braces that cannot be filled in; only {{number}} is, "
            "with a format as in {number:03d} if wanted"
        ) from None


def _place(url: str) -> PurePosixPath:
    """Below the source folder: the relative URL, or the last part of an absolute one."""
    parts = urlsplit(url)
    path = PurePosixPath(parts.path)
    if parts.scheme or path.is_absolute() or ".." in path.parts:
        return PurePosixPath(path.name)
    return path


def _require_files(folder: Path) -> None:
    if not folder.is_dir() or not any(folder.iterdir()):
        what = "is empty" if folder.is_dir() else "does not exist"
        raise InvalidData(
            f"{folder}: the source folder {what}; put the data set's files there, set "
            "source.folder to where they are, or list them under fetch.downloads"
        )


def _raise_first(done: list["Future[None]"]) -> None:
    """Raise what went wrong, all wrong files in one line; what can be mended comes first."""
    errors = [error for future in done if (error := future.exception())]
    for error in errors:
        if not isinstance(error, HgldError):
            raise error
    for kind in (InvalidData, Resumable, HgldError):
        found = sorted({str(error) for error in errors if isinstance(error, kind)})
        if found:
            raise kind("; ".join(found[:5]) + (f"; and {len(found) - 5} more" * (len(found) > 5)))
