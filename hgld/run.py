"""Runs the stages that are not fresh, in order, and tells what each one did.

Nothing here prints: what happens is handed to a ``Listener``. Outputs are written only after the
stage function has returned; a table that a person edited is never overwritten without a copy.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import pandas as pd

from hgld.alone import hold
from hgld.artifacts import ARTIFACTS, Folder, Json, Table, atomic_path, hash_file, left_behind
from hgld.config import Pipeline, StageContext, nearest
from hgld.counting import Imbalance, Summary, count_balance
from hgld.errors import (
    DISK_FULL,
    HgldError,
    InvalidData,
    MissingInput,
    UsageError,
    WaitingForReview,
)
from hgld.lock import Freshness, Lock, Workspace, judge
from hgld.stages import Stage, active_stages, load_function

__all__ = ["Listener", "Runner", "copy_beside"]


class Listener(Protocol):
    """Is told what the run does."""

    def starts(self, stage: Stage, reasons: Sequence[str]) -> None:
        """A stage starts, for these reasons."""

    def finished(self, summary: Summary) -> None:
        """A stage has finished."""

    def fresh(self, stage: Stage) -> None:
        """A stage has nothing to do."""

    def notice(self, text: str) -> None:
        """Something a person should know."""


class Runner:
    """Runs stages of one pipeline in one work folder, one process at a time."""

    def __init__(self, workspace: Workspace, now: str, listener: Listener) -> None:
        self.workspace = workspace
        self.now = now
        self.listener = listener
        self.lock = Lock.load(workspace.work / "lock.json")
        self.stages = active_stages(workspace.pipeline)

    def run(self, until: str | None = None) -> int:
        """Run what is stale or missing, up to a stage; the number of stages that ran.

        Raises:
            WaitingForReview: decisions are open; the same call goes on once they are made.
        """
        last = self.stages.index(self.stage(until)) if until else len(self.stages)
        with self.alone():
            return sum(self.run_if_needed(stage) for stage in self.stages[: last + 1])

    def run_one(self, name: str, force: bool = False) -> bool:
        """Run one stage if it is not fresh, or in any case; whether it ran."""
        with self.alone():
            return self.run_if_needed(self.stage(name), force)

    def follow(self, name: str) -> None:
        """Work on a stage beside the process that runs it: nothing is judged or recorded here."""
        stage = self.stage(name)
        self._call(stage, self._read_inputs(stage))

    def stage(self, name: str) -> Stage:
        """The row of this pipeline that has the name."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        names = [stage.name for stage in self.stages]
        raise UsageError(
            f"{self.workspace.pipeline_file}: has no stage '{name}'; its stages are "
            + ", ".join(names)
            + nearest(name, names)
        )

    def judge_all(self) -> list[tuple[Stage, Freshness]]:
        """State of every stage as of now."""
        return [(stage, judge(stage, self.lock, self.workspace)) for stage in self.stages]

    def _clear_half_written(self) -> None:
        """Remove what a killed run was writing; only in places that are hgld's own."""
        work = self.workspace.work
        left = [*left_behind(work), *left_behind(work / ".state", below=True)]
        for name, artifact in ARTIFACTS.items():
            path = self.workspace.path(name)
            if isinstance(artifact, Folder) and path.parent == work:
                left += filter(Path.is_file, path.rglob(".*.tmp"))
            elif artifact.place == "labels":
                left += left_behind(path.parent, path.name)
        for file in left:
            file.unlink(missing_ok=True)

    def read(self, name: str, stage: Stage) -> Any:
        """An artifact that a stage reads; an optional one that is not there is empty.

        Raises:
            MissingInput: it is not there; says which stage makes it.
        """
        artifact, path = ARTIFACTS[name], self.workspace.path(name)
        if path.exists():
            return artifact.read(path)
        if isinstance(artifact, Table | Json) and artifact.optional:
            return artifact.empty()
        maker = next((s for s in self.stages if name in s.writes), None)
        what = (
            f"run `hgld {maker.name} {self.workspace.pipeline_file}` first"
            if maker
            else (f"it is written by a person: {', '.join(getattr(artifact, 'columns', ()))}")
        )
        raise MissingInput(f"{path}: {stage.name} reads it and it does not exist; {what}")

    def write(self, name: str, value: Any) -> None:
        """Check an artifact and write it to its place."""
        artifact = ARTIFACTS[name]
        assert not isinstance(artifact, Folder)
        artifact.write(value, self.workspace.path(name))

    def make(self, stage: Stage) -> dict[str, Any]:
        """What a stage would write now, by artifact; nothing is written."""
        outputs = self._call(stage, self._read_inputs(stage))
        return dict(zip(stage.writes, outputs, strict=True))

    def run_if_needed(self, stage: Stage, force: bool = False) -> bool:
        """``run_one`` for whoever holds the folder already (``alone``)."""
        freshness = judge(stage, self.lock, self.workspace)
        freshness = self._settle_edits(stage, freshness)
        if freshness.state == "fresh" and not force:
            self._pass_gate(stage)
            self.listener.fresh(stage)
            return False
        self.listener.starts(stage, freshness.reasons or ("asked for",))
        self._execute(stage)
        self._pass_gate(stage)
        return True

    def _settle_edits(self, stage: Stage, freshness: Freshness) -> Freshness:
        """Check outputs that changed since they were made; keep a table, remake a folder."""
        folders = [n for n in freshness.edited if isinstance(ARTIFACTS[n], Folder)]
        for name in freshness.edited:
            if name not in folders:
                self._check_edit(stage, name, freshness)
        reasons = (*freshness.reasons, *map(self._why_changed, folders))
        return Freshness("stale", reasons) if folders else freshness

    def _check_edit(self, stage: Stage, name: str, freshness: Freshness) -> None:
        artifact, path = ARTIFACTS[name], self.workspace.path(name)
        if isinstance(artifact, Table) and artifact.spreadsheet:
            raise WaitingForReview(
                f"{path}: holds edits that are not applied; run `hgld review "
                f"{self.workspace.words} --apply` (with the same --set), "
                "or delete the file to discard them"
            )
        if freshness.state == "fresh":
            artifact.read(path)
            self._check_balance(stage, path)
            self.listener.notice(f"{artifact.file} was edited by hand and is kept as it is")

    def _check_balance(self, stage: Stage, edited: Path) -> None:
        if stage.balance is None:
            return
        try:
            count_balance(stage.name, stage.balance, self.workspace, 0.0)
        except Imbalance as error:
            raise InvalidData(
                f"{edited}: was edited by hand and its rows no longer add up: {error}; undo the "
                "edit, or delete the file to have it made again"
            ) from None

    def _why_changed(self, name: str) -> str:
        artifact, path = ARTIFACTS[name], self.workspace.path(name)
        assert isinstance(artifact, Folder)
        try:
            if artifact.verify is not None:
                load_function(artifact.verify)(path)
        except (HgldError, OSError) as error:
            return str(error)
        return f"{artifact.file} was changed since it was made"

    def _copy_others(self, stage: Stage) -> dict[Path, Path]:
        """Copies of the tables that are there but not as this stage left them."""
        copies = {}
        for name in stage.writes:
            path = self.workspace.path(name)
            if path.is_file() and not self.lock.is_own(stage, name, self.workspace):
                copies[path] = copy_beside(path)
        return copies

    def _tell_copies(self, copies: dict[Path, Path]) -> None:
        for path, copy in copies.items():
            if _same(copy, path):
                copy.unlink()
            else:
                text = f"{path.name} was not as it had been made; a copy is in {copy.name}"
                self.listener.notice(text)

    def _execute(self, stage: Stage) -> None:
        start = perf_counter()
        inputs = self._read_inputs(stage)
        hashes = self.lock.hashes(stage.reads, self.workspace)
        copies = self._copy_others(stage)
        self.lock.start(stage)
        outputs = self._call(stage, inputs)
        written = self._write_outputs(stage, outputs)
        self._tell_copies(copies)
        summary = self._count(stage, written, perf_counter() - start)
        self.lock.finish(stage, self.workspace, hashes, summary.seconds)
        self.listener.finished(summary)

    def _read_inputs(self, stage: Stage) -> list[Any]:
        return [self.read(name, stage) for name in stage.reads]

    def _call(self, stage: Stage, inputs: Sequence[Any]) -> Any:
        function = load_function(stage.function)
        with self._served(stage) as pipeline:
            return function(
                *inputs,
                options=getattr(pipeline, stage.name),
                context=self._context(stage, pipeline),
                **self._out(stage),
            )

    @contextmanager
    def _served(self, stage: Stage) -> Iterator[Pipeline]:
        """The pipeline; where it wants a stand-in for the network, with one that runs."""
        pipeline = self.workspace.pipeline
        if stage.served_by is None or not pipeline.scrape.stand_in:
            yield pipeline
            return
        with load_function(stage.served_by)(self.workspace.source) as (commons, wikidata):
            urls = {"commons_api": commons, "wikidata_api": wikidata}
            yield pipeline.model_copy(update={"scrape": pipeline.scrape.model_copy(update=urls)})

    def _context(self, stage: Stage, pipeline: Pipeline) -> StageContext:
        source = pipeline.source.model_copy(update={"folder": self.workspace.source})
        state = self.workspace.work / ".state" / stage.name
        return StageContext(self.now, state, source, pipeline.labels, pipeline.scrape)

    def _out(self, stage: Stage) -> dict[str, Path]:
        folders = [
            self.workspace.path(name)
            for name in stage.writes
            if isinstance(ARTIFACTS[name], Folder) and ARTIFACTS[name].place == "work"
        ]
        return {"out": folders[0]} if folders else {}

    def _write_outputs(self, stage: Stage, outputs: Any) -> dict[str, Any]:
        """Write what the function returned, by artifact; folders it wrote itself."""
        names = [name for name in stage.writes if not isinstance(ARTIFACTS[name], Folder)]
        values = outputs if isinstance(outputs, tuple) else (outputs,)
        written = dict(zip(names, values if names else (), strict=True))
        for name, value in written.items():
            self.write(name, value)
        return written

    def _count(self, stage: Stage, written: dict[str, Any], seconds: float) -> Summary:
        if stage.balance is not None:
            try:
                return count_balance(stage.name, stage.balance, self.workspace, seconds)
            except Imbalance as error:
                raise HgldError(f"{error}; this is a fault of hgld") from None
        rows = {name: len(t) for name, t in written.items() if isinstance(t, pd.DataFrame)}
        dropped = sum(rows.pop(name) for name in list(rows) if name.endswith("dropped"))
        went_on = max(rows.values(), default=0)
        return Summary(stage.name, None, went_on, dropped, stage.unit, seconds)

    def _pass_gate(self, stage: Stage) -> None:
        """Ask the stage's gate; while it is closed, say where and how to decide."""
        if stage.gate is None:
            return
        options = getattr(self.workspace.pipeline, stage.name)
        context = self._context(stage, self.workspace.pipeline)
        try:
            load_function(stage.gate)(*self._read_inputs(stage), options=options, context=context)
        except WaitingForReview as waits:
            sheet, review = self.workspace.path(stage.writes[0]), self.workspace.words
            raise WaitingForReview(
                f"{waits}; decide in {sheet}, then `hgld review {review} --apply` (with the same "
                f"--set), or on the page that `hgld review {review} --html` writes, which shows "
                "its command"
            ) from None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the work folder against a second process."""
        work = self.workspace.work
        _require_writable(work)
        taken = f"{work}: another hgld is at work here"
        with hold(work / ".lock", taken, "or give --work another folder"):
            self.lock = Lock.load(self.lock.path)  # as the run before this one left it
            self._tell_other_pipeline()
            self._clear_half_written()
            yield
            self.lock.save()  # file hashes too, also where no stage ran

    def _tell_other_pipeline(self) -> None:
        """Say whose run the folder held so far, where that was another pipeline's."""
        work = self.workspace.work.resolve()
        own = os.path.relpath(self.workspace.pipeline_file.resolve(), work)
        if self.lock.pipeline not in ("", own):
            other = os.path.relpath(work / self.lock.pipeline)
            self.listener.notice(
                f"{self.workspace.work} held the run of {other};\n"
                "what differs is made anew; --work keeps pipelines apart"
            )
        self.lock.pipeline = own


def copy_beside(path: Path) -> Path:
    """Copy a file to a name beside it that nothing else has: clusters.edited-1.csv."""
    names = (path.with_name(f"{path.stem}.edited-{n}{path.suffix}") for n in count(1))
    copy = next(name for name in names if not name.exists() or _same(name, path))
    with atomic_path(copy) as temporary:
        shutil.copy2(path, temporary)
    return copy


def _same(one: Path, other: Path) -> bool:
    """Whether two files hold the same; a run that was killed leaves the copies that it had made."""
    return one.stat().st_size == other.stat().st_size and hash_file(one) == hash_file(other)


def _require_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".lock").touch()
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise HgldError(
            f"{folder}: cannot be the work folder ({error.strerror}); give --work another folder"
        ) from None
