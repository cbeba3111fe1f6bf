"""Files that people changed or added among the outputs: protected, and edits accepted.

A changed file is copied beside itself (``clusters.edited-1.csv``) when the stage runs again. If the
stage replaces the complete folder (``report``, ``release``), the files that hgld did not write are
first linked into a hidden folder. Afterwards, those that are missing are put back; those that hgld
wrote again with other bytes go to ``release.edited-1/``. A killed run leaves the hidden folder; the
next run empties it.

A changed table may be a person's work or damage, and the file does not show which. So the rows that
differ from those that hgld wrote are shown, and the person confirms them.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from hgld.artifacts import ARTIFACTS, Table, atomic_path, declared_table, hash_file
from hgld.errors import InvalidData, UsageError
from hgld.pipeline.lock import judge
from hgld.pipeline.stages import Stage
from hgld.words import count_text, shortened

if TYPE_CHECKING:
    import pandas as pd

    from hgld.pipeline.run import Runner

SHOWN = 10  # rows of each kind: changed, added, removed
CELL = 40  # letters of a cell


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


@dataclass(frozen=True)
class Edit:
    """An edited table: the stage that writes it, its hash, and its differences in lines."""

    stage: Stage
    name: str
    digest: str
    lines: list[str]


def accept_edits(
    runner: "Runner", files: Sequence[Path], confirm: Callable[[Sequence[Edit]], bool]
) -> list[Edit]:
    """Accept edited tables; the stages after them use them in the next run.

    Args:
        runner: of the pipeline.
        files: the edited tables; empty: all that were changed.
        confirm: is called with the edits; if it returns False, none is accepted.

    Returns:
        The accepted edits.

    Raises:
        InvalidData: a table cannot be read, its rows do not add up, or its stage has to run again.
        UsageError: a file is not a table that people may edit, or was not changed.
    """
    with runner.alone():
        edits = list(_find_edits(runner, [file.resolve() for file in files]))
        if not edits or not confirm(edits):
            return []
        for edit in edits:
            runner.lock.accept(edit.stage, edit.name, edit.digest, edited=True)
            runner.keep_as_written(edit.name)  # the next edit is shown against this one
        return edits


def _find_edits(runner: "Runner", files: Sequence[Path]) -> Iterator[Edit]:
    names = {
        runner.workspace.path(name).resolve(): name
        for stage in runner.stages
        for name in stage.writes
        if isinstance(table := ARTIFACTS[name], Table) and table.editable
    }
    for file in files:
        if file not in names:
            tables = map(declared_table, names.values())
            known = ", ".join(table.file for table in tables if not table.edit_instead)
            raise UsageError(
                f"{file}: not a table of this pipeline that people may edit; these are: {known}"
            )
    found = set()
    for stage in runner.stages:
        now = judge(stage, runner.lock)
        for name in now.edited:
            path = runner.workspace.path(name)
            if name not in names.values() and not files:
                runner.listener.notice(
                    f"{path}: was changed, but is no table that people may edit; the next run "
                    "makes it again"
                )
            if name not in names.values() or (files and path.resolve() not in files):
                continue
            if now.state != "fresh":
                raise InvalidData(
                    f"{path}: {stage.name} is {now.state} ({'; '.join(now.reasons)}), so the next "
                    "run makes the file again and keeps your edit in a copy; run it, then edit"
                )
            digest = hash_file(path)
            rows = runner.check_edit(stage, name)
            found.add(path.resolve())
            yield Edit(stage, name, digest, [*_describe(runner, stage, name, rows)])
    for file in files:
        if file not in found:
            raise UsageError(f"{file}: is as hgld wrote it; there is nothing to accept")


def _describe(runner: "Runner", stage: Stage, name: str, now: "pd.DataFrame") -> Iterator[str]:
    """Describe the differences from the table that hgld wrote."""
    table, written = declared_table(name), runner.workspace.path_as_written(name)
    made = runner.lock.stages[stage.name]["outputs"][name]
    if not written.is_file() or hash_file(written) != made:
        yield f"{table.file}: {count_text(len(now), 'row')}; which of them changed is not known"
        return
    key = list(table.key)
    before = table.read(written).set_index(key)
    after = now.set_index(key)
    both = after.index.intersection(before.index)
    old, new = before.loc[both].astype(str), after.loc[both].astype(str)
    differs = old.ne(new)
    changed = differs.index[differs.any(axis=1)]
    added, removed = after.index.difference(before.index), before.index.difference(after.index)
    yield (
        f"{table.file}: {count_text(len(changed), 'row')} changed, {len(added):,} added, "
        f"{len(removed):,} removed, of {len(before):,}"
    )
    for row in changed[:SHOWN]:
        cells = []
        for column in differs.columns[differs.loc[row]]:
            texts = str(old.at[row, column]), str(new.at[row, column])
            # of long texts, what differs; a path of classes begins with the names of its levels
            same = os.path.commonprefix(texts)  # noqa: RUF071 - of letters, as is meant here
            start = same.rfind(" ") if max(map(len, texts)) > CELL else -1
            was, becomes = ("…" * (start > 0) + text[start + 1 :] for text in texts)
            cells.append(f"{column}: {shortened(was, CELL)!r} -> {shortened(becomes, CELL)!r}")
        yield f"  {_words(row)}: {'; '.join(cells)}"
    for sign, rows in (("+", added), ("-", removed)):
        yield from (f"  {sign} {_words(row)}" for row in rows[:SHOWN])
    hidden = sum(max(0, len(rows) - SHOWN) for rows in (changed, added, removed))
    if hidden:
        yield f"  and {hidden:,} more rows"


def _words(key: object) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)
