"""Reduction of downloaded tars to the wanted photos, resized, so that the data set fits on a disk.

The 620 tars of GLDv2 take 595 GB. The clean list and the index need a third of it, and training
uses a short side of 256. So each tar is downloaded, verified, and rewritten as a tar with the
wanted members, ``images_000.kept.tar``. The downloaded bytes are removed only after that file is on
the disk under its name. Any reader of tars can read it.

Its first header records how it was made, and the SHA-256 of all bytes after it.
"""

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from glob import escape
from hashlib import file_digest, sha256
from pathlib import Path
from threading import Event

import numpy as np

from hgld.artifacts import ColumnType, atomic_path, read_csv, read_header
from hgld.artifacts.atomic import require_file
from hgld.errors import InvalidData, Resumable
from hgld.images import shrink_jpeg
from hgld.ray_tasks import FileRange
from hgld.shards.tar import BLOCK, Member, scan_tar
from hgld.sources.download import RemoteFile, discard, load_part, note_right, was_right
from hgld.tasks import say

WORDS = "comment"  # key in the tar's global header for the record of how it was made
UNKNOWN = "0" * 64  # placeholder of the checksum until the tar is written


@dataclass(frozen=True)
class WantedPhotos:
    """Ids of the photos to keep (sorted, as bytes; None: all), and a key of this set."""

    ids: np.ndarray | None
    digest: str

    def has(self, names: list[str]) -> np.ndarray:
        """Return (N,) bool: whether each id is wanted."""
        asked = np.array([name.encode() for name in names], dtype=np.bytes_)
        if self.ids is None:
            return np.ones(len(asked), bool)
        if not len(self.ids) or not len(asked):
            return np.zeros(len(asked), bool)
        place = np.searchsorted(self.ids, asked)
        return np.asarray(self.ids[np.minimum(place, len(self.ids) - 1)] == asked)


ALL = WantedPhotos(None, "all")


def kept_path(tar: Path) -> Path:
    """Return the path of a tar's kept photos.

    Example:
        >>> kept_path(Path("train/images_007.tar")).as_posix()
        'train/images_007.kept.tar'
    """
    return tar.with_name(f"{tar.stem}.kept{tar.suffix}")


def read_wanted(path: Path, labelled: Path | None = None) -> WantedPhotos:
    """Read the ids in a CSV of GLDv2: one a row, or several in ``images``, without ignored queries.

    Args:
        path: CSV with ``id`` (and ``Usage``), or with ``images``.
        labelled: CSV; restricts to landmarks that have a ``hierarchical_label`` in it.

    Raises:
        InvalidData: a column is missing.
    """
    names = read_header(path, ("id", "images"))
    used = [name for name in ("id", "Usage") if name in names] if "id" in names else ["images"]
    columns: dict[str, ColumnType] = dict.fromkeys(used, "text")
    columns |= {"landmark_id": "int"} if labelled else {}
    table = read_csv(path, columns)
    if "Usage" in table:
        table = table[table["Usage"] != "Ignored"]
    if labelled:
        labels = read_csv(labelled, {"landmark_id": "int", "hierarchical_label": "text"})
        with_label = labels["landmark_id"][labels["hierarchical_label"].str.strip() != ""]
        table = table[table["landmark_id"].isin(with_label)]
    ids = table["id"] if "id" in table else table["images"].str.split().explode().dropna()
    found = np.unique(np.array([text.encode() for text in ids], dtype=np.bytes_))
    return WantedPhotos(found, sha256(found.tobytes()).hexdigest()[:12])


def download_kept(
    file: RemoteFile,
    wanted: WantedPhotos,
    short_side: int,
    quality: int,
    stop: Event,
    fetched: Path,
    again: bool = False,
    shrink: "Callable[[ShrinkTask], object] | None" = None,
) -> tuple[int, int]:
    """Download one tar and keep its wanted photos, unless done before; a complete tar stays.

    Args:
        file: the tar; its download is removed afterwards.
        wanted: ids of the photos.
        short_side: in pixels; larger photos are resized to it.
        quality: of the JPEGs.
        stop: event that ends the work soon.
        fetched: folder of the records of verified files.
        again: ignore the record and compare every kept byte with its checksum.
        shrink: does the resizing; default: ``shrink_tar``, here.

    Returns:
        Number of photos kept of the tar, and of all its photos; 0 and 0 if it was done before.

    Raises:
        InvalidData: the MD5 is wrong, the file is not a tar, or the path of the kept photos is a
            folder.
        Resumable: the network or the disk failed; the downloaded part is kept.
        HgldError: the server does not have the file.
    """
    kept, view = kept_path(file.path), (short_side, quality)
    require_file(kept)
    kept_file = replace(file, path=kept)
    if is_kept(file.path, *view, wanted):
        known = not again and was_right(kept_file, fetched)
        if known or _header_of(kept)[1] == _hash_body(kept):
            if not known:
                note_right(kept_file, fetched)
            if file.part.exists():  # of a run that was killed before it went
                discard(file)
            return 0, 0
        say(f"{kept}: does not have its checksum; its photos are loaded again")
    load_part(file, stop)
    run = shrink or partial(shrink_tar, stop=stop)
    try:
        members = list(scan_tar(file.part))
        is_wanted = wanted.has([member.stem for member in members])
        chosen = tuple(member for member, has in zip(members, is_wanted, strict=True) if has)
        for left in kept.parent.glob(f".{escape(kept.name)}*.tmp"):
            left.unlink(missing_ok=True)  # of a killed run
        run(ShrinkTask(file.part, kept, chosen, _words(*view, wanted), view))
    except OSError as error:
        raise Resumable(
            f"{kept}: {error.strerror or error}; the tar it is made from is kept, run the same "
            "command again once that is fixed"
        ) from None
    except InvalidData:
        discard(file)
        raise
    discard(file)
    note_right(kept_file, fetched)
    return len(chosen), len(members)


def is_kept(tar: Path, short_side: int, quality: int, wanted: WantedPhotos | None) -> bool:
    """Whether photos of a tar were kept with these options; None: any set of wanted photos."""
    found, asked = _header_of(kept_path(tar))[0], _words(short_side, quality, wanted)
    return found == asked if wanted else found.startswith(asked)


def _words(short_side: int, quality: int, wanted: WantedPhotos | None) -> str:
    """Return the record of how a kept tar is made; without wanted photos, its beginning."""
    digest = wanted.digest if wanted else ""
    return f"hgld: short side {short_side}, JPEG quality {quality}, wanted {digest}"


def _header_of(kept: Path) -> tuple[str, str]:
    """Return the record of how a kept tar was made, and its checksum; both empty if missing.

    Not by ``tarfile``, which treats a tar of this header alone as damaged.
    """
    if not kept.is_file():
        return "", ""
    with kept.open("rb") as file:
        record = file.read(2 * BLOCK)[BLOCK:]
    found = re.match(rb"\d+ %s=([^\n]*), sha256 (\w{64})\n" % WORDS.encode(), record)
    return (found[1].decode("utf-8", "replace"), found[2].decode()) if found else ("", "")


def _hash_body(kept: Path) -> str:
    """Return the SHA-256 of all bytes after the first header."""
    with kept.open("rb") as file:
        file.seek(2 * BLOCK)
        return file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class ShrinkTask:
    """Photos of a tar to be resized and written as another tar.

    Attributes:
        tar, kept: the two tars.
        members: photos to keep.
        words: record of how they are made, for the first header.
        view: short side in pixels and JPEG quality.
    """

    tar: Path
    kept: Path
    members: tuple[Member, ...]
    words: str
    view: tuple[int, int]

    def reads(self) -> Iterator[FileRange]:
        """Ranges of the tar that hold the photos."""
        return ((self.tar, member.offset, member.size_bytes) for member in self.members)

    def shares(self) -> tuple[Path, ...]:
        """No file is read by all tasks."""
        return ()

    def writes(self) -> tuple[Path, ...]:
        """The tar of kept photos."""
        return (self.kept,)

    def moved(self, place: Callable[[Path], Path]) -> "ShrinkTask":
        """Return the task for other folders."""
        return replace(self, tar=place(self.tar), kept=place(self.kept))


def shrink_tar(task: ShrinkTask, stop: Event | None = None) -> None:
    """Write the tar of resized photos atomically; ``stop`` ends the work soon.

    Raises:
        Resumable: it was stopped, or the tar became shorter while it was read.
    """
    with atomic_path(task.kept) as temporary, task.tar.open("rb") as source:
        header = {WORDS: f"{task.words}, sha256 {UNKNOWN}"}
        with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT, pax_headers=header) as out:
            for member in task.members:
                source.seek(member.offset)
                data = source.read(member.size_bytes)
                if len(data) < member.size_bytes:
                    raise Resumable(
                        f"{task.tar}: ends within {member.name}, so another process shortened it "
                        "while it was read; run the same command again"
                    )
                small = shrink_jpeg(data, *task.view)
                entry = tarfile.TarInfo(member.name)
                entry.size = len(small)
                out.addfile(entry, io.BytesIO(small))
                if stop is not None and stop.is_set():
                    raise Resumable("stopped on the way; run the same command again to go on")
        with temporary.open("r+b") as file:
            file.seek(file.read(2 * BLOCK).index(UNKNOWN.encode()))
            file.write(_hash_body(temporary).encode())
