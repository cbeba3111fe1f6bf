"""Accept the edits that a person made by hand in a stage's tables.

A changed file may be a person's work or damage, and the file does not show which. So the rows that
differ from those that hgld wrote are shown, and the person confirms them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from hgld.artifacts import ARTIFACTS, Table, declared_table, hash_file
from hgld.errors import InvalidData, UsageError
from hgld.pipeline.lock import judge
from hgld.pipeline.run import Runner
from hgld.pipeline.stages import Stage
from hgld.words import count_text

SHOWN = 10  # rows of each kind: changed, added, removed
CELL = 40  # letters of a cell


@dataclass(frozen=True)
class Edit:
    """An edited table: the stage that writes it, its hash, and its differences in lines."""

    stage: Stage
    name: str
    digest: str
    lines: list[str]


def accept_edits(
    runner: Runner, files: Sequence[Path], confirm: Callable[[Sequence[Edit]], bool]
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


def _find_edits(runner: Runner, files: Sequence[Path]) -> Iterator[Edit]:
    names = {
        runner.workspace.path(name).resolve(): name
        for stage in runner.stages
        for name in stage.writes
        if isinstance(table := ARTIFACTS[name], Table) and table.editable
    }
    for file in files:
        if file not in names:
            known = ", ".join(ARTIFACTS[name].file for name in names.values())
            raise UsageError(
                f"{file}: not a table of this pipeline that people may edit; these are: {known}"
            )
    found = set()
    for stage in runner.stages:
        now = judge(stage, runner.lock, runner.workspace)
        for name in now.edited:
            path = runner.workspace.path(name)
            if name not in names.values() or (files and path.resolve() not in files):
                continue
            if now.state != "fresh":
                raise InvalidData(
                    f"{path}: {stage.name} is {now.state} ({'; '.join(now.reasons)}), so the next "
                    "run makes the file again and keeps your edit in a copy; run it, then edit"
                )
            digest = hash_file(path)
            table = runner.check_edit(stage, name)
            found.add(path.resolve())
            yield Edit(stage, name, digest, [*_describe(runner, stage, name, table)])
    for file in files:
        if file not in found:
            raise UsageError(f"{file}: is as hgld wrote it; there is nothing to accept")


def _describe(runner: Runner, stage: Stage, name: str, now: pd.DataFrame) -> Iterator[str]:
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
        cells = [
            f"{column}: {_short(str(old.at[row, column]))} -> {_short(str(new.at[row, column]))}"
            for column in differs.columns[differs.loc[row]]
        ]
        yield f"  {_words(row)}: {'; '.join(cells)}"
    for sign, rows in (("+", added), ("-", removed)):
        yield from (f"  {sign} {_words(row)}" for row in rows[:SHOWN])
    hidden = sum(max(0, len(rows) - SHOWN) for rows in (changed, added, removed))
    if hidden:
        yield f"  and {hidden:,} more rows"


def _words(key: object) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= CELL else f"{cell[:CELL]}...")
