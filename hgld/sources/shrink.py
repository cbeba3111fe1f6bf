"""Keeps of each tar only the photos that are wanted, made smaller, so that the whole fits a disk.

The 620 tars of GLDv2 take 595 GB, of which the clean list and the index need a third, and training
needs that at a short side of 256. So a tar is loaded, verified, and written again as a tar of its
own with the same members, beside where it would have been: ``images_000.kept.tar``. The loaded
bytes are removed only when that one has its name on the disk. Whatever reads tars reads these, too.

The first header of such a tar says how it was made, and has the SHA-256 of all bytes after it.
"""

import io
import re
import tarfile
from dataclasses import dataclass, replace
from glob import escape
from hashlib import file_digest, sha256
from pathlib import Path
from threading import Event

import numpy as np

from hgld.artifacts import ColumnType, atomic_path, read_csv
from hgld.artifacts.atomic import require_file
from hgld.errors import InvalidData, Resumable
from hgld.images import shrink_jpeg
from hgld.shards.tar import BLOCK, scan_tar
from hgld.sources.download import RemoteFile, load_part, note_right, was_right
from hgld.tasks import say

__all__ = [
    "ALL",
    "KeptPhotos",
    "WantedPhotos",
    "download_kept",
    "is_kept",
    "kept_path",
    "read_wanted",
]

WORDS = "comment"  # the key of a tar's global header that says how it was made
UNKNOWN = "0" * 64  # stands for the checksum until the tar is written


@dataclass(frozen=True)
class WantedPhotos:
    """Ids of the photos to keep (sorted, as bytes; None: all), and what they are known by."""

    ids: np.ndarray | None
    digest: str

    def has(self, names: list[str]) -> np.ndarray:
        """Which of these ids are wanted."""
        asked = np.array([name.encode() for name in names], dtype=np.bytes_)
        if self.ids is None:
            return np.ones(len(asked), bool)
        if not len(self.ids) or not len(asked):
            return np.zeros(len(asked), bool)
        place = np.searchsorted(self.ids, asked)
        return np.asarray(self.ids[np.minimum(place, len(self.ids) - 1)] == asked)


ALL = WantedPhotos(None, "all")


@dataclass(frozen=True)
class KeptPhotos:
    """How many photos of a tar were kept, of how many."""

    kept: int
    found: int


def kept_path(tar: Path) -> Path:
    """Where the kept photos of a tar lie.

    Example:
        >>> kept_path(Path("train/images_007.tar")).as_posix()
        'train/images_007.kept.tar'
    """
    return tar.with_name(f"{tar.stem}.kept{tar.suffix}")


def read_wanted(path: Path, labelled: Path | None = None) -> WantedPhotos:
    """The ids that a CSV of GLDv2 names: one a row, or many in ``images``; no ignored queries.

    Args:
        path: with ``id`` (and ``Usage``), or with ``images``.
        labelled: only landmarks that have a ``hierarchical_label`` in this CSV.

    Raises:
        InvalidData: a column is missing.
    """
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        names = file.readline().strip().replace('"', "").split(",")
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
) -> KeptPhotos:
    """Load one tar and keep its wanted photos, unless that was done; a whole tar is left as it is.

    Args:
        file: the tar; it is not kept itself.
        wanted: ids of the photos.
        short_side: in pixels, to which larger photos are resized.
        quality: of the JPEGs.
        stop: once it is set, the work ends soon.
        fetched: folder of the notes on files that were found right.
        again: do not trust the note; compare every kept byte with its checksum.

    Raises:
        InvalidData: the tar does not have its published MD5, or is no tar; a folder stands where
            its photos belong.
        Resumable: the network or the disk failed; what was loaded is kept.
        HgldError: the server does not have the file.
    """
    kept, view = kept_path(file.path), (short_side, quality)
    require_file(kept)
    kept_file = replace(file, path=kept)
    if is_kept(file.path, *view, wanted):
        if not again and was_right(kept_file, fetched):
            return KeptPhotos(0, 0)
        if _header_of(kept)[1] == _hash_body(kept):
            note_right(kept_file, fetched)
            return KeptPhotos(0, 0)
        say(f"{kept}: does not have its checksum; its photos are loaded again")
    load_part(file, stop)
    try:
        counts = _keep(file.part, kept, _words(*view, wanted), wanted, view, stop)
    except OSError as error:
        raise Resumable(
            f"{kept}: {error.strerror or error}; the tar it is made from is kept, run the same "
            "command again once that is mended"
        ) from None
    except InvalidData:
        _forget(file)
        raise
    _forget(file)
    note_right(kept_file, fetched)
    return counts


def is_kept(tar: Path, short_side: int, quality: int, wanted: WantedPhotos | None) -> bool:
    """Whether photos of a tar were kept with these options; None: whichever were wanted."""
    found, asked = _header_of(kept_path(tar))[0], _words(short_side, quality, wanted)
    return found == asked if wanted else found.startswith(asked)


def _words(short_side: int, quality: int, wanted: WantedPhotos | None) -> str:
    """How a kept tar is made; without the wanted photos, how these words begin."""
    digest = wanted.digest if wanted else ""
    return f"hgld: short side {short_side}, JPEG quality {quality}, wanted {digest}"


def _forget(file: RemoteFile) -> None:
    file.part.unlink(missing_ok=True)
    file.version.unlink(missing_ok=True)


def _header_of(kept: Path) -> tuple[str, str]:
    """How a kept tar was made, and its checksum; both empty if there is none.

    Python's own reader takes a tar of nothing but this header for a damaged one.
    """
    if not kept.is_file():
        return "", ""
    with kept.open("rb") as file:
        record = file.read(2 * BLOCK)[BLOCK:]
    found = re.match(rb"\d+ %s=([^\n]*), sha256 (\w{64})\n" % WORDS.encode(), record)
    return (found[1].decode("utf-8", "replace"), found[2].decode()) if found else ("", "")


def _hash_body(kept: Path) -> str:
    """SHA-256 of all bytes after the first header."""
    with kept.open("rb") as file:
        file.seek(2 * BLOCK)
        return file_digest(file, "sha256").hexdigest()


def _keep(
    tar: Path, kept: Path, words: str, wanted: WantedPhotos, view: tuple[int, int], stop: Event
) -> KeptPhotos:
    members = list(scan_tar(tar))
    is_wanted = wanted.has([m.name.rpartition("/")[2].partition(".")[0] for m in members])
    chosen = [member for member, has in zip(members, is_wanted, strict=True) if has]
    for left in kept.parent.glob(f".{escape(kept.name)}*.tmp"):
        left.unlink(missing_ok=True)  # a killed run's
    with (
        atomic_path(kept) as temporary,
        tar.open("rb") as source,
    ):
        header = {WORDS: f"{words}, sha256 {UNKNOWN}"}
        with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT, pax_headers=header) as out:
            for member in chosen:
                source.seek(member.offset)
                small = shrink_jpeg(source.read(member.size_bytes), *view)
                entry = tarfile.TarInfo(member.name)
                entry.size = len(small)
                out.addfile(entry, io.BytesIO(small))
                if stop.is_set():
                    raise Resumable("stopped on the way; run the same command again to go on")
        with temporary.open("r+b") as file:
            file.seek(file.read(2 * BLOCK).index(UNKNOWN.encode()))
            file.write(_hash_body(temporary).encode())
    return KeptPhotos(len(chosen), len(members))
