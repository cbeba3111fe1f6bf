"""A cache on disk of the byte ranges that readers fetch from shards at a URL.

All processes of a machine share it: a range is a file with a hash of its bytes, written under a
temporary name, so a reader finds a whole range or none. Its folder is named by the shard's URL and
version, so the bytes of a replaced object are never mixed with older ones. When the cache exceeds
its limit, the ranges that were not used for the longest time are deleted.

A process checks the hash of a range once; later it reads only the parts that it needs. If an image
of them fails its own checksum, its range is requested once more: it may have arrived damaged.
"""

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, suppress
from hashlib import sha256
from os.path import exists
from pathlib import Path

from hgld.artifacts import left_behind, read_sealed, write_sealed
from hgld.errors import InvalidData
from hgld.file_lock import hold
from hgld.home import home_folder
from hgld.storage import Range, RemoteFolder, StoredFile, read_ahead

Parts = Sequence[tuple[int, int]]  # offset in a range, size

CACHE_GB = 20.0
KEPT_SHARE = 0.9  # of the limit, after the least recently used ranges were deleted


def cache_folder() -> Path:
    """Folder of the cache: below HGLD_CACHE, else below the user's cache folder.

    Raises:
        UsageError: neither is named, and the user has no home folder.
    """
    named, user = os.environ.get("HGLD_CACHE"), os.environ.get("XDG_CACHE_HOME")
    own = Path(named) if named else Path(user or home_folder("HGLD_CACHE") / ".cache") / "hgld"
    return own / "shards"


class RangeCache:
    """Ranges of the shards below one URL, from the cache if it has them.

    Args:
        url: of the folder of shards.
        limit_gb: size of the cache in GB, over all URLs; 0: nothing is kept.

    Raises:
        InvalidData: (while reading) a shard does not exist, ends too early, or was replaced since
            this reader was made (at a web server: since its first range was read).
        Resumable: (while reading) the server stayed busy or unreachable.
    """

    def __init__(self, url: str, limit_gb: float = CACHE_GB) -> None:
        self.remote = RemoteFolder(url)
        self.limit_bytes = int(limit_gb * 1e9)
        # Found here, so that the workers that are forked later all know the same versions.
        self._versions: dict[str, StoredFile] = self.remote.list()
        self._checked: set[Path] = set()  # ranges whose hash this process has checked
        self._unmeasured = self.limit_bytes  # bytes written since the size was measured

    def read(self, wanted: Sequence[tuple[Range, Parts]]) -> Generator[list[memoryview]]:
        """Yield the parts of ranges in order; missing ones are fetched several at a time.

        Args:
            wanted: ranges, some maybe twice, and of each the (offset in it, size) of its parts.
        """
        self._find_versions({shard for (shard, _, _), _ in wanted})
        places = {whole: self._place(whole) for whole, _ in wanted}
        # Path.exists fails in a folder of another user.
        missing = [whole for whole, to in places.items() if not to or not exists(to)]  # noqa: PTH110
        waiting = set(missing)  # a range may be wanted again: rows of one large image
        with closing(read_ahead(self._fetch, missing)) as coming:
            for whole, parts in wanted:
                place, found, is_first = places[whole], None, whole in waiting
                waiting.discard(whole)
                if place is not None and not is_first:
                    found = self._read_parts(whole, place, parts)
                if found is None:
                    data = next(coming) if is_first else self._fetch(whole)
                    found = [data[low : low + size] for low, size in parts]
                yield found

    def stream(self, ranges: Sequence[Range]) -> Generator[memoryview]:
        """Yield whole ranges in order, some requested ahead; nothing is kept."""
        self._find_versions({shard for shard, _, _ in ranges})
        return read_ahead(self._request, ranges, ahead=8)

    def require_unchanged(self, shard: str) -> None:
        """Refuse a shard that was replaced since its version was found.

        Raises:
            InvalidData: it was replaced.
        """
        known, found = self._versions.get(shard), self.remote.stat(shard)
        if found is not None and found != known:
            raise InvalidData(
                f"{self.remote.location(shard)}: the object was changed between index and read; "
                "read the index again"
            )

    def drop(self, wanted: Range) -> None:
        """Delete a range whose bytes are wrong, although their hash fits; it is requested again."""
        place = self._place(wanted)
        if place is not None:
            self._checked.discard(place)
            with suppress(OSError):
                place.unlink()

    def _find_versions(self, shards: set[str]) -> None:
        """Ask for the versions that no list has: a web server is asked for each shard."""
        unknown = sorted(shards - self._versions.keys())
        for shard, found in zip(unknown, read_ahead(self.remote.stat, unknown), strict=True):
            if found is None:
                raise InvalidData(
                    f"{self.remote.location(shard)}: no such file, although an index names it; "
                    "bring it back, or run export again"
                )
            self._versions[shard] = found

    def _place(self, wanted: Range) -> Path | None:
        """File of a range; None if it is not kept."""
        shard, offset, size = wanted
        version = self._versions[shard].version
        # Without a version, a replaced object would be read from the cache.
        if not self.limit_bytes or not version:
            return None
        own = sha256(f"{self.remote.url}/{shard} {version}".encode()).hexdigest()[:32]
        return cache_folder() / own / f"{offset}-{size}"

    def _read_parts(self, wanted: Range, place: Path, parts: Parts) -> list[memoryview] | None:
        """Parts of a kept range; None if it is damaged or was deleted."""
        if place not in self._checked:
            whole = self._read_kept(wanted, place)
            return None if whole is None else [whole[low : low + size] for low, size in parts]
        try:
            with place.open("rb", buffering=0) as file:
                os.utime(file.fileno())  # the least recently used ranges are deleted first
                found = [os.pread(file.fileno(), size, low) for low, size in parts]
        except OSError:
            return None
        return [memoryview(data) for data in found]

    def _read_kept(self, wanted: Range, place: Path) -> memoryview | None:
        """A kept range, if its hash is that of its bytes."""
        data = read_sealed(place, self._seal(wanted))
        if data is not None:
            self._checked.add(place)
            with suppress(OSError):
                os.utime(place)
        return data

    def _fetch(self, wanted: Range) -> memoryview:
        """Request a range and keep it, unless another thread or process just did."""
        place = self._place(wanted)
        if place is None:
            return self._request(wanted)
        with ExitStack() as stack:
            with suppress(OSError):  # on a full disk it is fetched without waiting for others
                place.parent.mkdir(parents=True, exist_ok=True)
                lock = place.with_name(f".{place.name}.lock")
                stack.enter_context(hold(lock, waiting=lambda _: None))
                stack.callback(lock.unlink, missing_ok=True)
            found = self._read_kept(wanted, place)
            if found is not None:
                return found
            data = self._request(wanted)
            with suppress(OSError):  # a full disk costs time, not the run
                write_sealed(place, data, self._seal(wanted), durable=False)
                self._checked.add(place)
                self._unmeasured += len(data)
                if self._unmeasured >= self.limit_bytes * (1 - KEPT_SHARE):
                    self._unmeasured = 0
                    evict(cache_folder(), self.limit_bytes)
            return data

    def _seal(self, wanted: Range) -> str:
        shard, offset, size = wanted
        known = self._versions[shard]
        return f"{self.remote.url}/{shard} {known.size_bytes} {known.version} {offset} {size}"

    def _request(self, wanted: Range) -> memoryview:
        """Request a range, and ask afterwards whether it was read from the known version."""
        try:
            data = memoryview(self.remote.read_range(*wanted))
        except InvalidData:
            self.require_unchanged(wanted[0])
            raise
        if not self.remote.is_hub:  # which allows few questions in a minute
            self.require_unchanged(wanted[0])
        return data


def evict(folder: Path, limit_bytes: int) -> None:
    """Delete the least recently used files below a folder, if all exceed the limit."""
    found: list[tuple[float, int, Path]] = []
    for shard in filter(Path.is_dir, folder.iterdir()):
        for left in left_behind(shard, in_threads=True):
            left.unlink(missing_ok=True)
        for entry in os.scandir(shard):
            with suppress(FileNotFoundError):  # another process deletes at the same time
                facts = entry.stat()
                found.append((facts.st_mtime, facts.st_size, Path(entry.path)))
    total = sum(size for _, size, _ in found)
    if total <= limit_bytes:
        return
    for _, size, path in sorted(found):
        if total <= limit_bytes * KEPT_SHARE:
            break
        path.unlink(missing_ok=True)
        total -= size
