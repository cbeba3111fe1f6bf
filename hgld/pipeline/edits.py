"""Protection of files that people changed or added among the outputs, when a stage runs again.

A changed file is copied beside itself (``clusters.edited-1.csv``). If the stage replaces the
complete folder (``report``, ``release``), the files that hgld did not write are first linked into a
hidden folder. Afterwards, those that are missing are put back; those that hgld wrote again with
other bytes go to ``release.edited-1/``. A killed run leaves the hidden folder; the next run empties
it.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from hgld.artifacts import atomic_path, hash_file


@dataclass(frozen=True)
class ReturnedFiles:
    """Paths of people's files after their folder was replaced.

    Attributes:
        returned: files and folders at their old path.
        copies: files in ``FOLDER.edited-N/``.
    """

    returned: list[Path] = field(default_factory=list)
    copies: list[Path] = field(default_factory=list)


def copy_beside(path: Path) -> Path:
    """Copy a file to an unused name beside it: clusters.edited-1.csv."""
    names = (path.with_name(f"{path.stem}.edited-{n}{path.suffix}") for n in count(1))
    copy = next(name for name in names if not name.exists() or is_same_file(name, path))
    with atomic_path(copy) as temporary:
        shutil.copy2(path, temporary)
    return copy


@contextmanager
def keep_others(folder: Path, made: Mapping[str, str] | None) -> Iterator[ReturnedFiles]:
    """Keep the files of a folder that hgld did not write while the block replaces the folder.

    A file that the block does not write is put back. One that it writes with other bytes goes to
    ``FOLDER.edited-N/``.

    Args:
        folder: may be missing.
        made: the files that hgld wrote: path below the folder -> SHA-256. None: unknown; then
            files that the block does not write go to ``FOLDER.edited-N/``, too.

    Yields:
        The new paths of the files; filled when the block has ended.
    """
    kept, found = folder.with_name(f".{folder.name}.kept"), ReturnedFiles()
    if kept.exists():  # a killed run left it
        _return(kept, folder, found, returns=made is not None)
    for path in list(_others(folder, made)):
        copy = kept / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        _link(path, copy)
    try:
        yield found
    finally:
        if kept.exists():
            _return(kept, folder, found, returns=made is not None)


def is_same_file(one: Path, other: Path) -> bool:
    """Whether both paths are files with the same bytes."""
    if one.is_symlink() or other.is_symlink():
        links = one.is_symlink() and other.is_symlink()
        return links and one.readlink() == other.readlink()
    if not (one.is_file() and other.is_file()):
        return False
    # hard links of one file, as ``_link`` makes them, need no hashing
    if one.samefile(other):
        return True
    return one.stat().st_size == other.stat().st_size and hash_file(one) == hash_file(other)


def _others(folder: Path, made: Mapping[str, str] | None) -> Iterator[Path]:
    """Yield files that differ from ``made``; a folder without any file of it as one path."""
    if not folder.is_dir():
        return
    known = made or {}
    above = {str(parent) for name in known for parent in Path(name).parents}

    def walk(inner: Path) -> Iterator[Path]:
        for path in sorted(inner.iterdir()):
            name = str(path.relative_to(folder))
            if _is_folder(path) and (made is None or name in above):
                yield from walk(path)
            elif name not in known or not path.is_file() or hash_file(path) != known[name]:
                yield path

    yield from walk(folder)


def _return(kept: Path, folder: Path, found: ReturnedFiles, returns: bool) -> None:
    """Empty the hidden folder: files go back to their folder, or to FOLDER.edited-N."""
    names = (folder.with_name(f"{folder.name}.edited-{n}") for n in count(1))
    aside = next(name for name in names if not name.exists() or not any(name.iterdir()))

    def walk(inner: Path) -> None:
        for path in sorted(inner.iterdir()):
            name = path.relative_to(kept)
            target = folder / name
            if returns and not os.path.lexists(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
                found.returned.append(target)
            elif _is_folder(path) and (_is_folder(target) or not os.path.lexists(target)):
                walk(path)
            # the stage wrote the same bytes again, so no copy is needed
            elif is_same_file(path, target):
                path.unlink()
            else:
                (aside / name).parent.mkdir(parents=True, exist_ok=True)
                path.rename(aside / name)
                found.copies.append(aside / name)
        inner.rmdir()

    walk(kept)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _link(path: Path, copy: Path) -> None:
    """Hard-link a file, or the files of a folder; copy if the file system has no links."""
    if _is_folder(path):
        copy.mkdir(exist_ok=True)
        for inner in path.iterdir():
            _link(inner, copy / inner.name)
        return
    try:
        os.link(path, copy, follow_symlinks=False)
    except OSError:
        shutil.copy2(path, copy, follow_symlinks=False)  # another disk, or one without links
