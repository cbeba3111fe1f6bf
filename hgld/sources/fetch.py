"""Parallel download of the data set's own files; existing verified files are left alone.

The pipeline file lists the files, their sizes and the addresses of their MD5s.
``hgld.sources.download`` downloads, resumes and verifies one file; ``hgld.sources.shrink`` reduces
a tar to its wanted photos. Tars come last, since the CSVs define which photos are wanted.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, nullcontext, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from threading import Event
from time import monotonic
from urllib.parse import urljoin, urlsplit

from hgld.artifacts import size_of_file
from hgld.config import Download, FetchOptions, StageContext
from hgld.errors import HgldError, InvalidData, Resumable, UsageError
from hgld.file_lock import hold
from hgld.ray_tasks import Reserve, cluster_connection
from hgld.sources.download import RemoteFile, download, measure_bandwidth
from hgld.sources.shrink import (
    ALL,
    ShrinkTask,
    WantedPhotos,
    download_kept,
    is_kept,
    kept_path,
    read_wanted,
    shrink_tar,
)
from hgld.tasks import map_tasks, say, track, watched_by
from hgld.words import part_text, size_text, some_of


@dataclass(frozen=True)
class _Planned:
    """A file to download and its entry in the pipeline file.

    Attributes:
        is_there: the file exists, judged by names only; False until ``_look``.
    """

    file: RemoteFile
    listed: Download
    shrinks: bool
    is_there: bool = False

    @property
    def kept_bytes(self) -> int:
        """Bytes of it that stay on the disk."""
        if not self.shrinks or self.file.path.exists():
            return self.file.size_bytes
        return self.small_bytes

    @property
    def small_bytes(self) -> int:
        """Bytes of its wanted photos, resized: measured if they exist, else as stated."""
        stated, found = round(self.listed.kept_megabytes * 1_000_000), self._found_bytes
        return (found or stated if self.is_there else stated or found) or self.file.size_bytes

    @property
    def there_bytes(self) -> int:
        """Bytes on the disk that stay; photos to be replaced count up to the new size."""
        if self.is_there:
            return self.kept_bytes
        return min(self._found_bytes, self.kept_bytes) if self.shrinks else 0

    @property
    def _found_bytes(self) -> int:
        kept = kept_path(self.file.path)
        return kept.stat().st_size if kept.exists() else 0

    def shard_bytes(self, resized: bool) -> int:
        """Return bytes of its photos in the shards: as stated, else all of its photos."""
        if self.file.path.suffix != ".tar":
            return 0
        stated = round(self.listed.shards_megabytes * 1_000_000)
        return (stated or self.small_bytes) if resized else self.kept_bytes


@dataclass(frozen=True)
class Estimate:
    """Cost of a fetch.

    Attributes:
        files, size_bytes: all listed files.
        to_load, to_load_bytes: files that are missing.
        stays_bytes: on the disk after the fetch.
        peak_bytes: maximum on the disk during the fetch.
        there_bytes: part of it that is already on the disk.
        shards_bytes: expected size of the shards of its photos.
    """

    files: int
    size_bytes: int
    to_load: int
    to_load_bytes: int
    stays_bytes: int
    peak_bytes: int
    there_bytes: int
    shards_bytes: int

    @property
    def most_bytes(self) -> int:
        """Maximum bytes on the disk until the shards are written."""
        return max(self.peak_bytes, self.stays_bytes + self.shards_bytes)


def fetch_files(*, options: FetchOptions, context: StageContext) -> None:
    """Download every missing file of ``options.downloads`` into the source folder.

    A verified file is not read again until its size or times change; with ``context.force`` every
    file with a published MD5 is compared with it.

    If no downloads are listed, the user provides the files, and the folder only must not be empty.
    With ``options.short_side`` a tar is replaced by its wanted photos, resized, once it is
    downloaded and verified. A complete tar that exists in the folder is used unchanged and never
    removed.

    Raises:
        InvalidData: a file has a wrong MD5 or, without a published one, is not the listed file;
            the folder is empty although files are expected.
        Resumable: the network failed for several tries; partial files are kept.
        HgldError: a server does not have the file, or another process fetches into the folder.
        UsageError: a URL with another placeholder than ``{number}``; numbers of no tar; two files
            of one path.
    """
    folder = context.source.folder
    assert folder is not None
    if not options.downloads:
        if not folder.is_dir() or not any(folder.iterdir()):
            what = "is empty" if folder.is_dir() else "does not exist"
            raise InvalidData(
                f"{folder}: the source folder {what}; put the data set's files there, set "
                "source.folder to where they are, or list them under fetch.downloads"
            )
        return
    planned, notes = list(_plan(options, folder)), context.state / "fetched"
    with ExitStack() as stack:
        # A folder that cannot be written may have all files; else the download reports it.
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            taken = f"{folder}: another process fetches into this folder"
            lock = hold(folder / ".fetch.lock", taken, "or set source.folder to another folder")
            stack.enter_context(lock)
        shrinking = [p for p in planned if p.shrinks and not p.file.path.exists()]
        whole = [p for p in planned if not p.shrinks or p.file.path.exists()]
        loading = [partial(_load_whole, p.file, notes, context.force) for p in whole]
        _load_all(loading, [p.file for p in whole], options.parallel)
        if shrinking:
            side, quality = options.short_side, options.jpeg_quality
            assert side is not None  # else no tar would shrink
            lists = {p.listed.url: p.listed for p in shrinking}
            wanted = {url: _read_wanted(folder, listed) for url, listed in lists.items()}
            works = [
                partial(
                    download_kept,
                    p.file,
                    wanted[p.listed.url],
                    side,
                    quality,
                    fetched=notes,
                    again=context.force,
                    shrink=partial(_shrink_elsewhere, options) if options.ray else None,
                )
                for p in shrinking
            ]
            # one connection for all threads
            with cluster_connection(options.ray) if options.ray else nullcontext():
                results = _load_all(works, [p.file for p in shrinking], options.parallel)
            kept, found = map(sum, zip(*results, strict=True))
            if found:
                are = part_text(kept, found, "photo", "are")
                say(f"{are} kept, resized; the others are not wanted")


Work = Callable[[Event], tuple[int, int] | None]


def _load_whole(file: RemoteFile, notes: Path, again: bool, stop: Event) -> None:
    download(file, notes, stop, again)
    if (kept := kept_path(file.path)).exists():
        kept.unlink()  # else collect finds photos twice


def _shrink_elsewhere(options: FetchOptions, task: ShrinkTask) -> None:
    reserve = Reserve(options.cpus_per_task, memory_gb=options.memory_gb_per_task)
    with watched_by(None):  # the download is the step of progress
        map_tasks(shrink_tar, [task], f"Resizing {task.tar}", cluster=options.ray, reserve=reserve)


def _load_all(
    works: Sequence[Work], files: Sequence[RemoteFile], parallel: int
) -> list[tuple[int, int]]:
    """Run the downloads of the files in parallel; raise errors after the others have finished."""
    stop, total = Event(), size_text(sum(file.size_bytes for file in files))
    began, before = monotonic(), sum(map(_loaded_bytes, files))

    def label() -> str:  # with the bytes that are here, since one file may take hours
        loaded = sum(map(_loaded_bytes, files))
        rate = (loaded - before) / max(monotonic() - began, 0.001)
        return f"{size_text(loaded)} of {total}, {size_text(rate)}/s"

    workers = ThreadPoolExecutor(parallel)
    try:
        # copy the context, since the sink of notices is a context variable
        futures = [workers.submit(copy_context().run, work, stop) for work in works]
        done = list(track(as_completed(futures), label, len(futures)))
        errors = [error for future in done if (error := future.exception())]
        for error in errors:
            if not isinstance(error, HgldError):
                raise error
        for kind in (InvalidData, Resumable, HgldError):  # what the user should fix first
            if found := sorted({str(error) for error in errors if isinstance(error, kind)}):
                raise kind(some_of(found, 5, "; "))
        return [result for future in futures if (result := future.result()) is not None]
    finally:
        stop.set()  # an interrupt ends the running downloads at their next block
        workers.shutdown(wait=True, cancel_futures=True)


def _loaded_bytes(file: RemoteFile) -> int:
    if file.path.exists() or kept_path(file.path).exists():
        return file.size_bytes
    return max(0, size_of_file(file.part)[0])


def _read_wanted(folder: Path, listed: Download) -> WantedPhotos:
    if not listed.wanted_csv:
        return ALL
    for name in filter(None, (listed.wanted_csv, listed.labelled_csv)):
        if not (folder / name).is_file():
            raise InvalidData(
                f"{folder / name}: no such file; fetch.downloads says that it names the wanted "
                f"photos of '{listed.url}': list it there too, or make it first (hgld label)"
            )
    labelled = folder / listed.labelled_csv if listed.labelled_csv else None
    return read_wanted(folder / listed.wanted_csv, labelled)


def plan_downloads(options: FetchOptions, folder: Path) -> list[tuple[str, Path, int]]:
    """Return URL, target path and bytes of each file that ``fetch_files`` would download.

    Example:
        >>> from hgld.config import Download
        >>> tars = Download(url="train/images_{number:03d}.tar", count=2, megabytes=1000)
        >>> options = FetchOptions(base_url="https://a.example/b/", downloads=(tars,))
        >>> [(url, str(path), size) for url, path, size in plan_downloads(options, Path("s"))][1]
        ('https://a.example/b/train/images_001.tar', 's/train/images_001.tar', 1000000000)
    """
    missing = [p.file for p in _look(options, folder) if not p.is_there]
    return [(file.url, file.path, file.size_bytes) for file in missing]


def estimate_fetch(options: FetchOptions, folder: Path, resized: bool = False) -> Estimate:
    """Estimate bytes to download and to store, from stated sizes and existing files.

    Args:
        options: the listed downloads.
        folder: the source folder.
        resized: whether the photos in the shards are resized.

    Example:
        >>> from hgld.config import Download
        >>> tars = Download(url="{number}.tar", count=100, megabytes=1000, kept_megabytes=50)
        >>> options = FetchOptions(downloads=(tars,), short_side=256, parallel=6)
        >>> found = estimate_fetch(options, Path("nowhere"))
        >>> found.size_bytes // 10**9, found.stays_bytes // 10**9, found.peak_bytes // 10**9
        (100, 5, 11)
    """
    planned = _look(options, folder)
    missing = [p for p in planned if not p.is_there]
    stays = sum(p.kept_bytes for p in planned)
    # While photos are made, their tar and the previous photos are there, too.
    in_flight = sorted(
        (p.file.size_bytes + p.there_bytes for p in missing if p.shrinks), reverse=True
    )
    peak = stays + sum(in_flight[: options.parallel])
    there = sum(p.there_bytes for p in planned)
    return Estimate(
        len(planned),
        sum(p.file.size_bytes for p in planned),
        len(missing),
        sum(p.file.size_bytes for p in missing),
        stays,
        peak,
        there,
        sum(p.shard_bytes(resized) for p in planned),
    )


def sample_bandwidth(options: FetchOptions, folder: Path) -> float:
    """Return the current bytes per second of a parallel download; 0 if no file is missing.

    Raises:
        Resumable: the server cannot be reached.
    """
    missing = [p.file for p in _look(options, folder) if not p.is_there]
    largest = sorted(missing, key=lambda file: file.size_bytes, reverse=True)
    return measure_bandwidth(largest[: options.parallel])


def _look(options: FetchOptions, folder: Path) -> list[_Planned]:
    """Return all listed files and whether each exists, complete or as its wanted photos."""

    def is_there(planned: _Planned) -> bool:
        tar, side = planned.file.path, options.short_side
        if tar.exists() or not planned.shrinks or side is None or not kept_path(tar).exists():
            return tar.exists()
        wanted = _known_wanted(folder, planned.listed)
        return is_kept(tar, side, options.jpeg_quality, wanted)

    return [replace(planned, is_there=is_there(planned)) for planned in _plan(options, folder)]


def _known_wanted(folder: Path, listed: Download) -> WantedPhotos | None:
    """Return the wanted photos; None while the CSVs that name them are missing."""
    csvs = [folder / name for name in (listed.wanted_csv, listed.labelled_csv) if name]
    if not all(csv.is_file() for csv in csvs):
        return None
    facts = [csv.stat() for csv in csvs]
    return _wanted_as_of(folder, listed, tuple((f.st_size, f.st_mtime_ns) for f in facts))


@lru_cache(maxsize=8)  # called for each tar, and the full CSVs take seconds to read
def _wanted_as_of(
    folder: Path, listed: Download, stamps: tuple[tuple[int, int], ...]
) -> WantedPhotos:
    return _read_wanted(folder, listed)


def _plan(options: FetchOptions, folder: Path) -> Iterator[_Planned]:
    chosen, found, urls = _read_numbers(options.tars), False, dict[Path, str]()
    for listed in options.downloads:
        for number in range(listed.count):
            if chosen is not None and listed.count > 1 and number not in chosen:
                continue
            found |= listed.count > 1
            url, md5_url = _fill(listed.url, number), _fill(listed.md5_url, number)
            file = RemoteFile(
                _join(options.base_url, url),
                folder / _place(url),
                round(listed.megabytes * 1_000_000),
                _join(options.base_url, md5_url) if md5_url else "",
                listed.columns,
            )
            if file.path in urls:
                raise UsageError(
                    f"fetch.downloads: '{urls[file.path]}' and '{file.url}' would both be "
                    f"{file.path}; list a file once, and put {{number}} into the url of several"
                )
            urls[file.path] = file.url
            shrinks = options.short_side is not None and file.path.suffix == ".tar"
            yield _Planned(file, listed, shrinks)
    if chosen is not None and not found:
        raise UsageError(f"fetch.tars: '{options.tars}' are numbers of no file that is listed")


def _read_numbers(text: str) -> set[int] | None:
    """Return the numbers in ``0-9`` or ``0,5-7``; None if the text is empty: all.

    Example:
        >>> sorted(_read_numbers("0,5-7"))
        [0, 5, 6, 7]
    """
    if not text.strip():
        return None
    numbers: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", part)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise UsageError(f"fetch.tars: '{text}'; expected numbers such as 0-9 or 0,5-7")
        numbers |= set(range(int(found[1]), int(found[2] or found[1]) + 1))
    return numbers


def _fill(url: str, number: int) -> str:
    try:
        return url.format(number=number)
    except (LookupError, ValueError, AttributeError):
        raise UsageError(
            f"fetch.downloads: '{url}' has braces that cannot be filled in; only {{number}} is, "
            "with a format as in {number:03d} if wanted"
        ) from None


def _join(base_url: str, url: str) -> str:
    try:
        if _place(url).name:
            return urljoin(base_url, url)
    except ValueError:  # such as http://[x
        pass
    raise UsageError(f"fetch.downloads: '{url}' below '{base_url}' is not the address of a file")


def _place(url: str) -> PurePosixPath:
    """Return the path below the source folder: a relative URL, or the name in an absolute one."""
    parts = urlsplit(url)
    path = PurePosixPath(parts.path)
    if parts.scheme or path.is_absolute() or ".." in path.parts:
        return PurePosixPath(path.name)
    return path
