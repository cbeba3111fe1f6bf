"""The runner: executes the stages that are not fresh, in order, and reports each one.

It prints nothing: events go to a ``Listener``. Outputs are written only after the stage function
has returned; a table that a person edited is never overwritten without a copy. Rows in = rows out +
rows dropped: the keys are compared, from the written files, so that no row is lost without a record
and none is counted twice.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from hgld.artifacts import (
    ARTIFACTS,
    Folder,
    Json,
    LargeTable,
    Table,
    atomic_path,
    declared_table,
    file_stamp,
    finish_files,
    is_replacing,
    left_behind,
)
from hgld.config import Pipeline, StageContext
from hgld.errors import (
    DISK_FULL,
    HgldError,
    InvalidData,
    MissingInput,
    UsageError,
    WaitingForReview,
)
from hgld.file_lock import hold
from hgld.pipeline.edits import ReturnedFiles, copy_beside, is_same_file, keep_others
from hgld.pipeline.lock import Freshness, Lock, Workspace, foresee, judge, stage_options
from hgld.pipeline.running import forget_running, record_running
from hgld.pipeline.stages import Balance, Stage, active_stages, left_out, load_function
from hgld.tasks import count_cores, prepare_workers, start_aside
from hgld.words import count_text, nearest, some_of

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 3  # copies named in a notice


@dataclass(frozen=True)
class Summary:
    """Statistics of a finished stage: rows in, out and dropped, their unit, and seconds."""

    stage: str
    came_in: int | None
    went_on: int
    dropped: int
    unit: str
    seconds: float


class Imbalance(HgldError):
    """Rows in do not equal rows out plus rows dropped."""


def count_balance(stage: Stage, workspace: Workspace, seconds: float) -> Summary:
    """Count rows in, out and dropped of a stage that has an equation.

    Raises:
        Imbalance: they do not add up; gives the number of wrong rows and names one.
    """
    balance = stage.balance
    assert balance is not None
    came_in = _keys(balance.came_in, balance, workspace)
    went_on = _keys(balance.went_on, balance, workspace)
    dropped = _keys(balance.dropped, balance, workspace) if balance.dropped else came_in[:0]
    unit = balance.unit or workspace.pipeline.source.class_noun
    lost = came_in.difference(went_on).difference(dropped)
    both = went_on.intersection(dropped)
    if len(lost) or len(both) or len(went_on) + len(dropped) != len(came_in):
        example = (list(lost) + list(both) + list(went_on.difference(came_in)))[:1]
        raise Imbalance(
            f"{stage.name}: {count_text(len(came_in), unit)} in, but {len(went_on)} out and "
            f"{len(dropped)} dropped (see {example})"
        )
    return Summary(stage.name, len(came_in), len(went_on), len(dropped), unit, seconds)


def without_effect(stage: Stage, pipeline: Pipeline) -> list[str]:
    """Describe options of a stage that are set, but reserve for tasks on no Ray cluster."""
    names = getattr(pipeline, stage.name).without_effect()
    return [
        f"{stage.name}.{name} has no effect: {stage.name}.ray names no Ray cluster"
        for name in names
    ]


def _keys(name: str, balance: Balance, workspace: Workspace) -> "pd.Index":
    import pandas as pd

    artifact, path, key = ARTIFACTS[name], workspace.path(name), list(balance.key)
    table: Any
    if isinstance(artifact, Folder) and artifact.index:
        table = load_function(artifact.index)(path, columns=key)
    elif isinstance(artifact, Table) and path.suffix == ".parquet":
        table = artifact.read_large(path)  # of which only the key is read
    else:
        table = artifact.read(path)
    return pd.MultiIndex.from_frame(table[key].drop_duplicates())


class Listener(Protocol):
    """Receiver of the events of a run."""

    def starts(self, stage: Stage, reasons: Sequence[str]) -> None:
        """A stage starts, for these reasons."""

    def working(self, stage: Stage) -> AbstractContextManager[None]:
        """Return a context that holds while the stage runs."""

    def finished(self, summary: Summary) -> None:
        """A stage has finished."""

    def fresh(self, stage: Stage) -> None:
        """A stage has nothing to do."""

    def notice(self, text: str) -> None:
        """The run sends a notice for the user."""


class Runner:
    """Runner of the stages of one pipeline in one work folder, one process at a time."""

    def __init__(self, workspace: Workspace, now: str, listener: Listener) -> None:
        self.workspace = workspace
        self.now = now
        self.listener = listener
        self.lock = Lock.load(workspace)
        self.stages = active_stages(workspace.pipeline)
        self._checked: set[tuple[str, str]] = set()
        self._aside: dict[str, BaseProcess | None] = {}
        self._kept: dict[str, tuple[object, Any]] | None = None

    def run(self, until: str | None = None) -> int:
        """Run stale or missing stages up to ``until``; return the number of stages that ran.

        Raises:
            WaitingForReview: decisions are open; the same call continues once they are made.
        """
        last = self.stages.index(self.stage(until)) if until else len(self.stages)
        stages = self.stages[: last + 1]
        with self.alone():
            ran = sum(self.run_if_needed(s, ahead=stages[i:]) for i, s in enumerate(stages, 1))
            stale = [
                f"{stage.name} ({some_of(now.reasons, SHOWN, '; ')})"
                for stage in (stages if ran else ())
                if (now := judge(stage, self.lock)).state == "stale"
            ]
            if stale:
                self.listener.notice(
                    f"{', '.join(stale)}: stale, as this changed during the run; later stages may "
                    "have read old and new files, and the same command makes them again"
                )
        for name, option in left_out(self.workspace.pipeline).items() if until is None else ():
            self.listener.notice(f"{name} is left out: {option} is not set")
        return ran

    def run_one(self, name: str, force: bool = False) -> None:
        """Run one stage if it is not fresh or ``force`` is set."""
        with self.alone():
            stage = self.stage(name)
            stale = [
                f"{maker.name} is stale ({some_of(now.reasons, SHOWN, '; ')})"
                for maker, now in foresee(self.stages, self.lock)
                if set(stage.reads) & set(maker.writes) and not self.lock.is_unfinished(maker)
                if now.state == "stale" and not now.edited  # changed outputs are refused
            ]
            if stale:  # a run would make these before
                it, them = ("it", "it") if len(stale) == 1 else ("they", "them")
                self.listener.notice(
                    f"{', '.join(stale)}: {name} reads what {it} made before; `hgld run "
                    f"{self.workspace.words}` makes {them} again"
                )
            self.run_if_needed(stage, force)

    def follow(self, name: str) -> None:
        """Run a stage as a further process of a torchrun: freshness is not checked or recorded."""
        stage = self.stage(name)
        self._call(stage, self._read_inputs(stage))

    def stage(self, name: str) -> Stage:
        """Return the stage of this pipeline with that name."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        names = [stage.name for stage in self.stages]
        if option := left_out(self.workspace.pipeline).get(name):
            raise UsageError(
                f"{self.workspace.pipeline_file}: {name} needs {option}; set it in the file or by "
                f"--set {option}=..."
            )
        raise UsageError(
            f"{self.workspace.pipeline_file}: has no stage '{name}'; its stages are "
            + ", ".join(names)
            + nearest(name, names)
        )

    def _clear_half_written(self) -> None:
        """Remove temporary files of a killed run, only in folders that hgld writes."""
        work = self.workspace.work
        left = [*left_behind(work), *left_behind(work / ".state", below=True)]
        for name, artifact in ARTIFACTS.items():
            path = self.workspace.path(name)
            if isinstance(artifact, Folder) and path.parent == work and not artifact.replaced:
                left += left_behind(path, below=True)
            elif artifact.place == "labels":
                left += left_behind(path.parent, path.name)
        # Only the holder of the lock writes here, so no temporary file is in use.
        for file in left:
            file.unlink(missing_ok=True)
        if is_replacing(self.workspace.pipeline.labels):
            with self.hold_labels():  # which finishes it; half of an edit would be read
                pass

    @contextmanager
    def hold_labels(self) -> Iterator[None]:
        """Hold the lock of the labels folder; wait for other work folders that hold it."""
        labels = self.workspace.pipeline.labels
        labels.mkdir(parents=True, exist_ok=True)
        taken = f"{labels}: another hgld is adding decisions"
        with hold(labels / ".lock", taken, waiting=self.listener.notice):
            if finish_files(labels):
                self.listener.notice(
                    f"{labels}: finished the edit of the taxonomy that was stopped"
                )
            yield

    def keep_tables(self) -> None:
        """Keep tables in memory from now on, each until its file changes."""
        self._kept = {}

    def read(self, name: str, stage: str, *, other_levels: bool = False) -> Any:
        """Read an artifact for the stage of that name; a missing optional one is empty.

        With ``other_levels`` kinds of the taxonomy may have other levels, so that they can be
        filled in.

        Raises:
            MissingInput: it is missing; names the stage that makes it.
            UsageError: the pipeline has no such stage.
        """
        in_parts = self.stage(stage).in_parts
        artifact, path = ARTIFACTS[name], self.workspace.path(name)
        if path.exists():
            if name in in_parts and isinstance(artifact, Table):
                return artifact.read_large(path)
            if self._kept is None or other_levels or not isinstance(artifact, Table):
                return self._fitting(name, artifact.read(path), other_levels)
            stamp, kept = file_stamp(path), self._kept.get(name)
            if kept is None or kept[0] != stamp:
                kept = self._kept[name] = stamp, self._fitting(name, artifact.read(path))
            return kept[1]
        if isinstance(artifact, Table | Json) and artifact.optional:
            return artifact.empty()
        maker = next((s for s in self.stages if name in s.writes), None)
        if isinstance(artifact, Folder) and artifact.optional and maker is None:
            return artifact.read(path)
        what = (
            f"run `hgld {maker.name} {self.workspace.words}` first"
            if maker
            else "it is written by a person: a CSV with the header "
            f"{','.join(getattr(artifact, 'columns', ()))}, at first without rows"
        )
        raise MissingInput(f"{path}: {stage} reads it and it does not exist; {what}")

    def _fitting(self, name: str, value: Any, other_levels: bool = False) -> Any:
        """Check the levels of the taxonomy, which only the pipeline knows."""
        if name == "taxonomy":
            require = load_function("hgld.hierarchy.kinds:require_kinds")
            levels, path = self.workspace.pipeline.cluster.levels, self.workspace.path(name)
            require(value, levels, path, other_levels=other_levels)
        return value

    def write(self, name: str, value: Any) -> None:
        """Check an artifact and write it to its path."""
        artifact = ARTIFACTS[name]
        assert not isinstance(artifact, Folder)
        artifact.write(value, self.workspace.path(name))

    def make(self, stage: Stage) -> dict[str, Any]:
        """Return the outputs of a stage by artifact, without writing them."""
        outputs = self._call(stage, self._read_inputs(stage))
        return dict(zip(stage.writes, outputs, strict=True))

    def run_if_needed(self, stage: Stage, force: bool = False, ahead: Sequence[Stage] = ()) -> bool:
        """``run_one`` for a caller that holds the folder's lock (``alone``); return whether it ran.

        Args:
            stage: the stage to run.
            force: run it even if it is fresh.
            ahead: stages that will run after it; their options are checked before it runs,
                against the tables that already exist.
        """
        freshness = judge(stage, self.lock)
        freshness = self._settle_edits(stage, freshness, force)
        if freshness.state == "fresh" and not force:
            self._pass_gate(stage)
            self.listener.fresh(stage)
            return False
        with (
            record_running(self.workspace.work, stage.name) as begins,
            self.listener.working(stage),
        ):
            self._check_ahead(stage, ahead)
            for later in ahead if count_cores() > 1 else ():
                if later.aside is not None and later.name not in self._aside:
                    work = load_function(later.aside)()
                    self._aside[later.name] = None if work is None else start_aside(work)
            self._require_as_made(stage)
            for text in without_effect(stage, self.workspace.pipeline):
                self.listener.notice(text)
            self.listener.starts(stage, freshness.reasons or ("asked for",))
            try:
                self._execute(stage, force, begins)
            except Exception as error:
                self.lock.fail(stage, error)
                raise
        self._pass_gate(stage)
        return True

    def _check_ahead(self, stage: Stage, ahead: Sequence[Stage]) -> None:
        """Check options of later stages as soon as the tables for the check exist.

        Those of the stage itself are checked if that takes no tables; it checks the rest itself.
        """
        earlier = self.stages[: self.stages.index(stage)]
        made = {name for other in earlier for name in other.writes}
        tables: dict[str, Any] = {}
        # A typo in an option of the last stage is found in the first minutes.
        for later in (stage, *ahead):
            options = getattr(self.workspace.pipeline, later.name)
            for function, reads in later.checks.items():
                if (later.name, function) in self._checked or not made.issuperset(reads):
                    continue
                if later is stage and reads:
                    continue
                for name in reads:
                    tables[name] = tables[name] if name in tables else self.read(name, later.name)
                load_function(function)(
                    *(tables[name] for name in reads),
                    options=options,
                    context=self._context(later, self.workspace.pipeline),
                )
                self._checked.add((later.name, function))

    def _settle_edits(self, stage: Stage, freshness: Freshness, force: bool) -> Freshness:
        """Refuse edits that are not accepted; any other change is damage and made again."""
        editable = []
        for name in freshness.edited:
            artifact, path = ARTIFACTS[name], self.workspace.path(name)
            if not isinstance(artifact, Table):
                continue
            # A review sheet is read by --apply alone; a run must not lose its cells.
            if artifact.spreadsheet:
                raise WaitingForReview(
                    f"{path}: holds edits that are not applied; run `hgld {stage.name} "
                    f"{self.workspace.words} --apply` (with your --set, if any), "
                    "or delete the file to discard them"
                )
            if artifact.editable:
                editable.append(name)
                if freshness.state == "fresh" and not force:
                    self.check_edit(stage, name)
                    raise self._not_accepted(path)
        damaged = [name for name in freshness.edited if name not in editable]
        reasons = (*freshness.reasons, *map(self._why_changed, damaged))
        return Freshness("stale", reasons) if damaged else freshness

    def _require_as_made(self, stage: Stage) -> None:
        """Refuse inputs that another stage left half-written or that were changed since it ended.

        This concerns a stage that runs alone: a run makes such inputs first.

        The files of a source folder belong to the user and may change.

        Raises:
            HgldError: an input is damaged, or its stage has not finished.
            InvalidData: an input has an edit that is not accepted.
        """
        for maker in self.stages:
            record = self.lock.stages.get(maker.name, {})
            for name in set(stage.reads) & set(maker.writes):
                artifact, path = ARTIFACTS[name], self.workspace.path(name)
                if artifact.place == "source" or not path.exists():
                    continue
                if self.lock.is_unfinished(maker):
                    raise HgldError(
                        f"{path}: {maker.name} was stopped on the way and may have written a part "
                        f"of its files; run `hgld {maker.name} {self.workspace.words}` first"
                    )
                if "inputs" not in record or self.lock.is_own(maker, name):
                    continue
                if isinstance(artifact, Table) and artifact.editable:
                    raise self._not_accepted(path)
                raise HgldError(
                    f"{path}: was changed since {maker.name} made it; `hgld run "
                    f"{self.workspace.words}` makes it again"
                )

    def _not_accepted(self, path: Path) -> InvalidData:
        return InvalidData(
            f"{path}: was changed since hgld wrote it; to use your edit, run `hgld accept "
            f"{self.workspace.words} {path}`, or delete the file to have it made again"
        )

    def check_edit(self, stage: Stage, name: str) -> "pd.DataFrame":
        """Read a table that a person edited.

        Raises:
            InvalidData: another table is to be edited instead, it cannot be read, its ``verify``
                refuses it, or its rows do not balance with the stage's others.
        """
        artifact, path = declared_table(name), self.workspace.path(name)
        try:
            if other := artifact.edit_instead:
                raise InvalidData(
                    f"{path}: a release takes its classes from {other}, which is the table to edit"
                )
            table = artifact.read(path)
            if artifact.verify is not None:
                load_function(artifact.verify)(table)
        except InvalidData as error:
            raise InvalidData(
                f"{error}; undo the edit, or delete the file to have it made again"
            ) from None
        if stage.balance is not None:
            try:
                count_balance(stage, self.workspace, 0.0)
            except Imbalance as error:
                raise InvalidData(
                    f"{path}: was edited by hand and its rows no longer add up: {error}; undo the "
                    "edit, or delete the file to have it made again"
                ) from None
        return table

    def _why_changed(self, name: str) -> str:
        artifact, path = ARTIFACTS[name], self.workspace.path(name)
        try:
            if isinstance(artifact, Folder) and artifact.verify is not None:
                load_function(artifact.verify)(path)
        except (HgldError, OSError) as error:
            return str(error)
        return f"{artifact.file} was changed since it was made"

    def _execute(self, stage: Stage, force: bool, begins: Callable[[], None]) -> None:
        start = perf_counter()
        if stage.workers is not None and count_cores() > 1:
            prepare_workers(stage.workers)
        # Hashed before they are read: what changes from then on makes the stage stale again.
        hashes = self.lock.hashes(stage.reads)
        options = stage_options(stage, self.lock)
        inputs = self._read_inputs(stage)
        # From here on a kill leaves the stage unfinished in the lock.
        self.lock.start(stage)
        load_function(stage.function)  # the import takes seconds and belongs to the start
        begins()
        if (process := self._aside.pop(stage.name, None)) is not None:
            process.join()
        with self._others_kept(stage) as kept:
            outputs = self._call(stage, inputs, force)
        # Late: a person may have saved edits meanwhile.
        copies = {
            path: copy_beside(path)
            for name in stage.writes
            if (path := self.workspace.path(name)).is_file() and self.lock.is_edited(stage, name)
        }
        written = self._write_outputs(stage, outputs)
        for path, copy in copies.items():
            if is_same_file(copy, path):
                copy.unlink()
            else:
                text = f"{path.name} was not as hgld made it; a copy is in {copy.name}"
                self.listener.notice(text)
        summary = self._count(stage, written, perf_counter() - start)
        self.lock.finish(stage, hashes, options, summary.seconds, kept.returned)
        self.listener.finished(summary)

    @contextmanager
    def _others_kept(self, stage: Stage) -> Iterator[ReturnedFiles]:
        """Keep files that hgld did not write in a folder that is replaced; report the copies."""
        folders = {n: a for n in stage.writes if isinstance(a := ARTIFACTS[n], Folder)}
        replaced = next((name for name, folder in folders.items() if folder.replaced), None)
        if replaced is None:
            yield ReturnedFiles()
            return
        kept = keep_others(self.workspace.path(replaced), self.lock.made_files(replaced))
        with kept as found:
            yield found
        if found.copies:
            names = [str(copy.relative_to(self.workspace.work)) for copy in found.copies]
            self.listener.notice(
                f"{ARTIFACTS[replaced].file}: files that hgld had not written so are kept as "
                f"{some_of(names, SHOWN)}"
            )

    def _read_inputs(self, stage: Stage) -> list[Any]:
        return [self.read(name, stage.name) for name in stage.reads]

    def _call(self, stage: Stage, inputs: Sequence[Any], force: bool = False) -> Any:
        function = load_function(stage.function)
        given = dict(zip(stage.reads, inputs, strict=True))
        also = {name: given.pop(name) for name in stage.also if name in given}
        artifacts = {name: ARTIFACTS[name] for name in stage.writes}
        own = [n for n, a in artifacts.items() if isinstance(a, Folder) and a.place == "work"]
        out = {"out": self.workspace.path(own[0])} if own else {}
        with self._served(stage) as pipeline:
            return function(
                *given.values(),
                **also,
                options=getattr(pipeline, stage.name),
                context=self._context(stage, pipeline, force),
                **out,
            )

    @contextmanager
    def _served(self, stage: Stage) -> Iterator[Pipeline]:
        """Yield the pipeline; start its local stand-in for the network if it has one."""
        pipeline = self.workspace.pipeline
        if stage.served_by is None or not pipeline.scrape.stand_in:
            yield pipeline
            return
        with load_function(stage.served_by)(self.workspace.source) as (commons, wikidata):
            # A copy: the stand-in lives only as long as the stage.
            urls = {"commons_api": commons, "wikidata_api": wikidata}
            yield pipeline.model_copy(update={"scrape": pipeline.scrape.model_copy(update=urls)})

    def _context(self, stage: Stage, pipeline: Pipeline, force: bool = False) -> StageContext:
        source = pipeline.source.model_copy(update={"folder": self.workspace.source})
        state = self.workspace.work / ".state" / stage.name
        return StageContext(
            self.now,
            state,
            source,
            pipeline.labels,
            pipeline.scrape,
            force,
            self.workspace.title,
            pipeline.cluster.levels,
            pipeline.embed,
            pipeline.link.languages,
            self.workspace.words,
        )

    def _write_outputs(self, stage: Stage, outputs: Any) -> dict[str, Any]:
        """Write the returned tables by artifact; the stage has written its folders itself."""
        names = [name for name in stage.writes if not isinstance(ARTIFACTS[name], Folder)]
        values = outputs if isinstance(outputs, tuple) else (outputs,)
        written = dict(zip(names, values if names else (), strict=True))
        for name, value in written.items():
            self.write(name, value)
            artifact = ARTIFACTS[name]
            if isinstance(artifact, Table) and artifact.editable:
                self.keep_as_written(name)
        return written

    def keep_as_written(self, name: str) -> None:
        """Copy an editable table, so that later edits can be shown as differences."""
        with atomic_path(self.workspace.path_as_written(name)) as temporary:
            shutil.copyfile(self.workspace.path(name), temporary)

    def _count(self, stage: Stage, written: dict[str, Any], seconds: float) -> Summary:
        if stage.balance is not None:
            try:
                return count_balance(stage, self.workspace, seconds)
            except Imbalance as error:
                raise HgldError(f"{error}; this is a fault of hgld") from None
        small = [n for n, t in written.items() if not isinstance(t, LargeTable)]
        rows = {n: len(written[n]) for n in small if isinstance(ARTIFACTS[n], Table)}
        # Stages without an equation count by their largest table.
        dropped = sum(rows.pop(name) for name in list(rows) if name.endswith("dropped"))
        went_on = max(rows.values(), default=0)
        return Summary(stage.name, None, went_on, dropped, stage.unit, seconds)

    def waits_for(self, stage: Stage) -> str:
        """Return what a person still has to decide before a run passes a fresh stage's gate."""
        # A gate that let a run pass does so until the stage has other inputs or options.
        if stage.gate is None or self.lock.stages[stage.name].get("passed"):
            return ""
        options = getattr(self.workspace.pipeline, stage.name)
        context = self._context(stage, self.workspace.pipeline)
        try:
            load_function(stage.gate)(*self._read_inputs(stage), options=options, context=context)
        except WaitingForReview as waits:
            return str(waits)
        return ""

    def _pass_gate(self, stage: Stage) -> None:
        """Raise, with where and how to decide, if the stage's gate is closed."""
        if waits := self.waits_for(stage):
            sheet, review = self.workspace.path(stage.writes[0]), self.workspace.words
            raise WaitingForReview(
                f"{waits}; decide in {sheet}, then `hgld review {review} --apply` (with your "
                f"--set, if any), or on the page that `hgld review {review} --html` writes, which "
                "shows its command"
            )
        if stage.gate is not None:
            self.lock.stages[stage.name]["passed"] = True

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of the work folder, which excludes a second process."""
        work = self.workspace.work
        self._require_outside_source()
        try:
            work.mkdir(parents=True, exist_ok=True)
            # Permission bits do not show a read-only mount; a write does.
            (work / ".lock").touch()
        except OSError as error:
            if error.errno in DISK_FULL:
                raise
            raise HgldError(
                f"{work}: cannot be the work folder ({error.strerror}); give --work another folder"
            ) from None
        taken = f"{work}: another hgld is at work here"
        with hold(work / ".lock", taken, "or give --work another folder"):
            forget_running(work)
            self.lock = Lock.load(self.workspace)  # another run may have changed it since
            self._tell_other_pipeline()
            self._clear_half_written()
            yield
            self.lock.save()  # keeps the cache of file hashes, even if no stage ran

    def _require_outside_source(self) -> None:
        """Refuse a work folder whose files would be among those of the data set."""
        work, source = self.workspace.work.resolve(), self.workspace.source.resolve()
        # hidden files are not among them
        if work.is_relative_to(source) and not any(
            part.startswith(".") for part in work.relative_to(source).parts
        ):
            raise UsageError(
                f"{self.workspace.work}: is in the source folder {source}, so that its files would "
                "be among those of the data set; give --work a folder outside"
            )

    def _tell_other_pipeline(self) -> None:
        """Send a notice if the folder belonged to another pipeline so far."""
        work = self.workspace.work.resolve()
        # Relative, so that a work folder can be moved together with its pipeline.
        own = os.path.relpath(self.workspace.pipeline_file.resolve(), work)
        if self.lock.pipeline not in ("", own):
            other = os.path.relpath(work / self.lock.pipeline)
            self.listener.notice(
                f"{self.workspace.work} held the run of {other};\n"
                "what differs is made again; --work keeps pipelines apart"
            )
        self.lock.pipeline = own
