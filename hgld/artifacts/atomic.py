"""Files and folders that are there whole or not at all, and the hash of what a file holds.

A writer gets a temporary path in the same folder; its bytes reach the disk before the name does, so
that a kill, a crash or a full disk leaves what was there before.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from hgld.errors import DISK_FULL, InvalidData

__all__ = ["atomic_folder", "atomic_path", "hash_file", "require_no_folder"]


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; it becomes ``path`` only when all went well."""
    require_no_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        if error.errno in DISK_FULL and not error.filename:
            error.filename = os.fspath(path)  # who writes in pieces does not know where
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``path``; it replaces ``path`` only when all went well."""
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # a killed run may have left it
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.rglob("*"):
            _sync(file)
        shutil.rmtree(path, ignore_errors=True)
        temporary.replace(path)
        _sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def require_no_folder(path: Path) -> None:
    """No folder stands where a file is read or written."""
    if path.is_dir():
        raise InvalidData(f"{path}: a folder stands where a file belongs; move it away")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
