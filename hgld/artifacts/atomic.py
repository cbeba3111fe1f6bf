"""Atomic replacement of files and folders, and content hashes of files.

A writer gets a temporary path in the same folder. Its bytes are synced to the disk before the
rename, so after a kill, a crash or a full disk the previous version is still there.

A sealed cache file ends with a hash of its bytes and of a description of its content. If it is
damaged, truncated, or swapped with another one, it is made again.
"""

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING

from hgld.errors import InvalidData, UsageError

if TYPE_CHECKING:
    import numpy as np

REPLACING = ".replacing"  # folder with the new versions of files that are replaced together
SEAL = sha256().digest_size  # bytes at the end of the file, which readers of .npy ignore


@contextmanager
def atomic_path(path: Path, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` if the block succeeds.

    Args:
        path: of the file.
        durable: sync it to the disk; a cache needs only the rename.

    Raises:
        InvalidData: ``path`` is a folder, a pipe, a device or a stream such as /dev/stdout.
        OSError: it cannot be written; the error always names a file.
    """
    require_file(path)
    # /dev/stdout and its like: the rename would replace this link of the system
    if path.is_symlink() and path.readlink().is_relative_to("/proc"):
        raise InvalidData(f"{path}: a stream, where a file belongs; name a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with named_in_errors(path):
            yield temporary
            if durable:
                _sync(temporary)
            temporary.replace(path)
            if durable:
                _sync(path.parent)  # the rename is durable only once its folder is synced
    finally:
        temporary.unlink(missing_ok=True)


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file of text in UTF-8, or of bytes, as ``atomic_path`` does; raises as that."""
    with atomic_path(path) as temporary:
        if isinstance(content, str):
            temporary.write_text(content, encoding="utf-8")
        else:
            temporary.write_bytes(content)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``path``; it replaces ``path`` if the block succeeds.

    A non-empty folder cannot be replaced in one step, so the old one is first renamed to a hidden
    name. A kill between the two renames leaves it there; the next call restores it.

    Raises:
        InvalidData: ``path`` is not a folder, is a link, or is the current folder.
        OSError: leftovers of an earlier call cannot be removed, or the disk fails; it always names
            a file or the folder.
    """
    require_folder(path)
    temporary, aside = path.with_name(f".{path.name}.tmp"), path.with_name(f".{path.name}.old")
    _bring_back(aside, path)
    for left in filter(Path.exists, (temporary, aside)):  # leftovers of a killed run
        shutil.rmtree(left)
    temporary.mkdir(parents=True)
    try:
        with named_in_errors(path):
            yield temporary
        for file in (temporary, *temporary.rglob("*")):
            _sync(file)
        try:
            if path.exists():
                path.replace(aside)
            temporary.replace(path)
        finally:
            _bring_back(aside, path)
        _sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def atomic_files(folder: Path) -> Iterator[Path]:
    """Yield an empty folder; if the block succeeds, its files replace those of ``folder`` together.

    A kill leaves either all old files, or a hidden folder from which ``finish_files`` moves the
    rest. The caller holds a lock on the folder.
    """
    finish_files(folder)
    temporary = folder / ".replacing.tmp"
    temporary.mkdir()
    try:
        with named_in_errors(folder):
            yield temporary
        for file in (*temporary.iterdir(), temporary):
            _sync(file)
        temporary.rename(folder / REPLACING)  # from here on, the new files count
        _sync(folder)
        finish_files(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def finish_files(folder: Path) -> bool:
    """Move the files into place that a killed ``atomic_files`` left; return whether there were any.

    The caller holds a lock on the folder.
    """
    shutil.rmtree(folder / ".replacing.tmp", ignore_errors=True)
    ready = folder / REPLACING
    if not is_replacing(folder):
        return False
    for file in sorted(ready.iterdir()):
        file.replace(folder / file.name)
    _sync(folder)
    ready.rmdir()
    return True


def is_replacing(folder: Path) -> bool:
    """Whether ``atomic_files`` is replacing files of the folder, or was killed while it did."""
    return (folder / REPLACING).is_dir()


def _bring_back(aside: Path, path: Path) -> None:
    if aside.exists() and not path.exists():  # killed or failed between the two renames
        aside.replace(path)
        _sync(path.parent)


def left_behind(
    folder: Path, name: str = "*", below: bool = False, in_threads: bool = False
) -> list[Path]:
    """List temporary files of ``atomic_path`` whose process no longer exists.

    Args:
        folder: folder of the files; may be missing.
        name: glob of their final names.
        below: search subfolders, too.
        in_threads: whether other threads may be writing some; otherwise a file with the number of
            this process is one of an earlier process with that number.
    """
    found = (folder.rglob if below else folder.glob)(f".{name}.*.tmp")
    return [file for file in found if file.is_file() and _is_left(file, in_threads)]


def _is_left(temporary: Path, in_threads: bool) -> bool:
    process = temporary.name.split(".")[-2]
    if not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return not in_threads and int(process) == os.getpid()


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Add the path to an OSError without one; those of read, write and fsync have none."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or os.fspath(path)
        raise


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal.

    Raises:
        InvalidData: the path is a folder, a pipe or a device; reading the last two may never end.
    """
    require_file(path)
    with named_in_errors(path), path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def file_stamp(path: Path) -> tuple[int, ...]:
    """Return numbers that change if a file is replaced; empty if there is none."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return ()
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def require_file(path: Path) -> None:
    """Refuse a path that is a folder, a pipe or a device, before it is read or written."""
    with suppress(OSError):  # missing, or deleted now; the reader or writer reports the rest
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise InvalidData(
                f"{path}: a folder stands where a file belongs; move it away, or name a file"
            )
        if not stat.S_ISREG(mode):
            raise InvalidData(
                f"{path}: a pipe or a device, where a file belongs; move it away, or name a file"
            )


def require_folder(path: Path, *own: str) -> None:
    """Refuse a path that cannot be replaced by a new folder, before it is made.

    Args:
        path: of the folder; may be missing.
        own: names of the files that may be lost; if any are given, others are refused.

    Raises:
        InvalidData: it is a file, a device, a link, or the current folder.
        UsageError: it holds other files.
    """
    # root could replace even a device
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise InvalidData(
            f"{path}: a file, link or device stands where a folder belongs; name another path"
        )
    if path.name in ("", ".."):
        raise InvalidData(f"{path}: this folder cannot be replaced; name a new one in it")
    if not own or not path.is_dir():
        return
    if other := sorted({file.name for file in path.iterdir()} - {*own}):
        raise UsageError(
            f"{path}: holds other files, such as {other[0]}; give a new folder, or one that this "
            "command wrote"
        )


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        with named_in_errors(path):
            os.fsync(handle)
    finally:
        os.close(handle)


def write_sealed(path: Path, content: bytes | memoryview, holds: str, durable: bool = True) -> None:
    """Write atomically; ``holds`` describes the content and its inputs and is part of the hash."""
    with atomic_path(path, durable) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.write(_seal([content], holds))


def read_sealed(path: Path, holds: str) -> memoryview | None:
    """Return the content, or None if the file is missing, damaged, or sealed for other content."""
    try:
        if not path.is_file():  # reading a pipe or a device might never end
            return None
        whole = memoryview(path.read_bytes())
    except OSError:
        return None
    content = whole[:-SEAL]
    return content if _seal([content], holds) == whole[-SEAL:] else None


def map_sealed(path: Path, holds: str) -> "np.ndarray | None":
    """Map a sealed .npy file after one check of its hash; None as of ``read_sealed``.

    The array is copy-on-write: a change never reaches the file.
    """
    import numpy as np  # here, since most commands write files and need no numpy

    if not path.is_file() or path.stat().st_size < SEAL:
        return None
    end = path.stat().st_size - SEAL
    try:
        with path.open("rb") as file:
            blocks = iter(lambda: file.read(min(1 << 20, end - file.tell())), b"")
            if _seal(blocks, holds) != file.read():
                return None
        found: np.ndarray = np.load(path, mmap_mode="c")
    except OSError:
        return None
    return found


def _seal(blocks: Iterable[bytes | memoryview], holds: str) -> bytes:
    digest = sha256(holds.encode() + b"\0")
    for block in blocks:
        digest.update(block)
    return digest.digest()
