"""Recursive listing of the regular files of an untrusted folder.

A folder of photos may contain links in loops, links to ``/``, pipes and devices. Only regular files
are listed. A link to a folder is followed unless that folder was listed before or contains the link
itself, so the walk always ends. Every skipped entry is recorded with the reason.
"""

import os
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Identity = tuple[int, int]  # device and inode
SPECIAL = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass
class Tree:
    """The sorted regular files below a folder, and skipped entries: path -> reason."""

    files: list[Path] = field(default_factory=list)
    passed_over: dict[Path, str] = field(default_factory=dict)


def list_tree(folder: Path, hidden: bool = True) -> Tree:
    """List the files below a folder; links are followed.

    Args:
        folder: the root of the listing.
        hidden: include names that begin with a dot.
    """
    tree, waiting = Tree(), deque([folder] if folder.is_dir() else [])
    listed: set[Identity] = set()
    above: set[Identity] = set()  # ancestors of listed folders
    while waiting:  # real folders before links, so that a file gets its real path if possible
        start = waiting.popleft()
        own = _identity(start.stat())
        if start != folder and (own in above or own in _folders_above(start)):
            tree.passed_over[start] = "a link to a folder above it"
        else:
            above |= _folders_above(start.resolve())
            waiting += sorted(_list_real_folders(start, hidden, listed, tree))
    tree.files.sort()
    return tree


def _folders_above(path: Path) -> set[Identity]:
    inner = path.parent.resolve()
    return {_identity(folder.stat()) for folder in (inner, *inner.parents)}


def size_of_file(path: Path) -> tuple[int, str]:
    """Return the size of a regular file and an empty text; else -1 and the reason."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a null byte
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return -1, "a broken link" if path.is_symlink() else "no such file"
        return -1, getattr(error, "strerror", None) or str(error)
    if stat.S_ISREG(found.st_mode):
        return found.st_size, ""
    return -1, f"{SPECIAL.get(stat.S_IFMT(found.st_mode), 'something else')}, not a file"


def _list_real_folders(
    start: Path, hidden: bool, listed: set[Identity], tree: Tree
) -> Iterator[Path]:
    """List a folder and the real folders below it; yield the links to other folders."""
    folders = [start]
    while folders:
        folder = folders.pop()
        try:
            own = _identity(folder.stat())
            entries = list(os.scandir(folder))
        except OSError as error:
            tree.passed_over[folder] = f"a folder that cannot be read ({error.strerror})"
            continue
        if own in listed:
            tree.passed_over[folder] = "a folder whose files are listed under another path"
            continue
        listed.add(own)
        for entry in entries:
            path = Path(entry.path)
            if entry.name.startswith(".") and not hidden:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            elif entry.is_file(follow_symlinks=False):
                tree.files.append(path)
            elif entry.is_symlink() and os.path.isdir(path):  # noqa: PTH112 - Path.is_dir may raise
                yield path
            else:
                size, fault = size_of_file(path)
                if size < 0:
                    tree.passed_over[path] = fault
                else:
                    tree.files.append(path)


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino
