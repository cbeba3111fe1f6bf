"""The lock file ``lock.json``: inputs, options and outputs of each finished stage; freshness.

A stage is fresh if its inputs, options and code revision equal those of its last run and its
outputs exist. Files are compared by content, so a stage that produces the same bytes again leaves
all later stages fresh.
"""

import json
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from hgld.artifacts import (
    ARTIFACTS,
    Folder,
    Table,
    atomic_path,
    hash_file,
    list_tree,
    require_file,
)
from hgld.config import Options, Pipeline, default_work, without_folders
from hgld.errors import HgldError, Resumable, shortage
from hgld.pipeline.stages import STAGES, Stage, load_function
from hgld.words import count_text, shortened, single_blanks, some_of

State = Literal["fresh", "stale", "missing"]
LOCK = "lock.json"
ABSENT = "absent"
NEVER_RUN = "not yet run"
STOPPED = "was stopped on the way"
SHOWN = 80  # characters of an option's value in a reason
SHOWN_LINES = 2  # of an error in a reason
COUNTED_BY_TIME = 64 << 20  # source files above this size are compared by size and time


@dataclass(frozen=True)
class Workspace:
    """Paths of a pipeline's files."""

    pipeline_file: Path
    pipeline: Pipeline
    work: Path

    @property
    def words(self) -> str:
        """Arguments that name this pipeline and folder in a command."""
        file, elsewhere = self.pipeline_file, self.work != default_work(self.pipeline_file)
        return shlex.join([str(file), *(["--work", str(self.work)] if elsewhere else [])])

    @property
    def source(self) -> Path:
        """Folder of the data set's own files."""
        return self.pipeline.source.folder or self.work / "source"

    @property
    def title(self) -> str:
        """Title of the pages."""
        return self.pipeline.title or self.work.resolve().name

    def path_as_written(self, name: str) -> Path:
        """Return the path of the copy with which edits of an editable table are compared."""
        return self.work / ".state" / "written" / ARTIFACTS[name].file

    def path(self, name: str) -> Path:
        """Return the path of an artifact."""
        artifact = ARTIFACTS[name]
        if artifact.place == "source":
            return self.source
        folder = self.pipeline.labels if artifact.place == "labels" else self.work
        return folder / artifact.file


@dataclass(frozen=True)
class Freshness:
    """State of a stage, the reasons, and the outputs that were changed since it made them."""

    state: State
    reasons: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()


@dataclass
class Lock:
    """Records of the finished stages of a work folder, and a cache of hashes by size and time."""

    workspace: Workspace
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, list[Any]] = field(default_factory=dict)
    pipeline: str = ""  # path of the pipeline file, relative to the work folder

    @classmethod
    def load(cls, workspace: Workspace) -> "Lock":
        """Read ``lock.json``; a damaged one is treated as missing, since all can be made again.

        Raises:
            HgldError: it cannot be read: without it, all stages would run again.
            InvalidData: the path is a folder, a pipe or a device.
        """
        path = workspace.work / LOCK
        require_file(path)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            finished = {"function", "revision", "options", "inputs", "outputs"}
            stages = {
                name: record
                for name, record in document["stages"].items()
                if isinstance(record, dict)
                and ("inputs" not in record or finished <= record.keys())
            }
            pipeline = str(document.get("pipeline", ""))
            return cls(workspace, stages, dict(document["files"]), pipeline)
        except (FileNotFoundError, NotADirectoryError):
            return cls(workspace)
        except OSError as error:
            raise HgldError(
                f"{path}: cannot be read ({error.strerror}), and it records which stages are "
                "finished; correct that, or give --work another folder"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return cls(workspace)

    def save(self) -> None:
        """Write atomically."""
        document = {"pipeline": self.pipeline, "stages": self.stages, "files": self.files}
        text = json.dumps(document, indent=1)
        with atomic_path(self.workspace.work / LOCK) as temporary:
            temporary.write_text(text, encoding="ascii")  # file names may hold surrogates

    def is_edited(self, stage: Stage, name: str) -> bool:
        """Whether an output contains a person's edits: accepted, or changed since the stage ran."""
        accepted = name in self.stages.get(stage.name, {}).get("edits", ())
        return accepted or not self.is_own(stage, name)

    def is_own(self, stage: Stage, name: str) -> bool:
        """Whether an output is unchanged since the stage wrote it."""
        made = self.stages.get(stage.name, {}).get("outputs", {}).get(name)
        return bool(made == self.hash(name))

    def start(self, stage: Stage) -> None:
        """Record that the stage is running: until it finishes, changed outputs are not edits."""
        record = {**self.stages.get(stage.name, {}), "at_work": True}
        self.stages[stage.name] = {n: v for n, v in record.items() if not n.startswith("failed")}
        self.save()

    def fail(self, stage: Stage, error: Exception) -> None:
        """Record the error that ended the stage, unless the same command resumes it.

        If the stage was refused before it changed an output, its outputs remain those of its last
        run.
        """
        record = self.stages.get(stage.name, {})
        if record.get("at_work") and not (isinstance(error, Resumable) or shortage(error)):
            lines = [single_blanks(line) for line in str(error).splitlines()]
            record["failed"] = some_of(lines, SHOWN_LINES, "; ") or type(error).__name__
            # The stage's own error must be reported, not one of these.
            with suppress(OSError, HgldError):
                record["failed_with"] = stage_options(stage, self)
                made = record.get("files", {})
                tables = [name for name in stage.writes if name not in made]
                outputs = record.get("outputs", {})
                # each output has the files that the stage's last run wrote, and no others
                if self._list_files(stage) == made and all(
                    self.hash(name) == outputs.get(name) for name in tables
                ):
                    del record["at_work"]
            with suppress(OSError):
                self.save()

    def is_unfinished(self, stage: Stage) -> bool:
        """Whether the stage has started and not finished since."""
        return bool(self.stages.get(stage.name, {}).get("at_work"))

    def finish(
        self,
        stage: Stage,
        inputs: Mapping[str, str],
        options: Mapping[str, Any],
        seconds: float,
        others: Collection[Path] = (),
    ) -> None:
        """Record inputs, outputs and duration of a stage.

        Args:
            stage: the stage that has just run.
            inputs: hashes of its inputs, taken before it read them.
            options: those that decide its output, likewise.
            seconds: its duration.
            others: files and folders in its output folders that hgld did not write.
        """
        self.stages[stage.name] = {
            "function": stage.function,
            "revision": stage.revision,
            "options": dict(options),
            "inputs": dict(inputs),
            "files": self._list_files(stage, others),
            "seconds": round(seconds, 1),
        }
        self.stages[stage.name]["outputs"] = self.hashes(stage.writes)
        self.save()

    def made_files(self, name: str) -> dict[str, str] | None:
        """Return files that hgld wrote into a folder: path -> SHA-256; None if not recorded."""
        records = (record.get("files", {}) for record in self.stages.values())
        return next((files[name] for files in records if name in files), None)

    def _list_files(self, stage: Stage, others: Collection[Path] = ()) -> dict[str, dict[str, str]]:
        """Return the files that the stage wrote in each output folder, with their hashes."""
        found = {}
        for name in stage.writes:
            artifact, path = ARTIFACTS[name], self.workspace.path(name)
            if isinstance(artifact, Folder) and artifact.place == "work":
                lists = load_function(artifact.lists) if artifact.lists else _files
                own = (f for f in lists(path) if not {f, *f.parents} & set(others))
                found[name] = {str(f.relative_to(path)): self._hash_file(f) for f in own}
        return found

    def accept(self, stage: Stage, name: str, digest: str, edited: bool = False) -> None:
        """Record this hash as the valid content of an output.

        Args:
            stage: the stage that writes it.
            name: of the artifact.
            digest: its content hash.
            edited: it contains a person's edits and is copied before the stage writes it again.
        """
        record = self.stages.setdefault(stage.name, {})
        record.setdefault("outputs", {})[name] = digest
        if edited:
            record["edits"] = sorted({*record.get("edits", ()), name})
        self.save()

    def hashes(self, names: tuple[str, ...]) -> dict[str, str]:
        """Return the content hash of each artifact."""
        return {name: self.hash(name) for name in names}

    def hash(self, name: str) -> str:
        """Return the content hash of an artifact, "absent" if it is missing."""
        path = self.workspace.path(name)
        if not path.exists():
            return ABSENT
        artifact = ARTIFACTS[name]
        if not isinstance(artifact, Folder):
            return self._hash_file(path)
        there = load_function(artifact.elsewhere) if artifact.elsewhere else None
        if there is not None and not there(path, self.workspace.pipeline):
            return ABSENT
        # files that a person added to an output folder do not make later stages stale
        by_time, made = artifact.place == "source", self.made_files(name)
        files = _files(path) if made is None else [path / file for file in made]
        lines = [
            f"{file.relative_to(path)} {self._hash_file(file, by_time)}"
            for file in files
            if made is None or file.is_file()
        ]
        return sha256(os.fsencode("\n".join(lines))).hexdigest() if lines else ABSENT

    def hash_brought(self, path: Path) -> str:
        """Return the fingerprint of a file or folder that the user provides.

        A folder is identified by the names, sizes and times of its files, a large file by its size
        and times: hashing a dump of 100 GB with every command would take minutes.
        """
        if path.is_file():
            return self._hash_file(path, by_time=True)
        lines = [
            f"{file.relative_to(path)} {facts.st_size} {facts.st_mtime_ns}"
            for file, facts in ((file, file.stat()) for file in _files(path))
        ]
        digest = sha256(os.fsencode("\n".join(lines))).hexdigest()
        return f"{count_text(len(lines), 'file')}, {digest[:12]}" if lines else ABSENT

    def _hash_file(self, path: Path, by_time: bool = False) -> str:
        facts = path.stat()
        stamp = [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns]
        # the ctime is part of the stamp, since a tool may set back the mtime of changed bytes
        known = self.files.get(str(path))
        if known is None or known[:-1] != stamp:
            if by_time and facts.st_size > COUNTED_BY_TIME:
                # The ctime changes when a folder is copied, so it is used only if nothing else
                # shows that the content of a file was changed in place.
                in_place = known is not None and known[:2] == stamp[:2]
                digest = " ".join(map(str, stamp if in_place else stamp[:2]))
            else:
                digest = hash_file(path)
            known = self.files[str(path)] = [*stamp, digest]
        return str(known[-1])


def _files(folder: Path) -> list[Path]:
    """Regular files below a folder, links followed, hidden files and folders left out."""
    return list_tree(folder, hidden=False).files


def judge(stage: Stage, lock: Lock) -> Freshness:
    """Whether a stage's outputs are what its inputs, options and code would make now."""
    record = lock.stages.get(stage.name, {})
    failed = "failed" in record
    if failed and "failed_with" in record:  # other options may pass
        failed = record["failed_with"] == stage_options(stage, lock)
    stopped = f"failed: {record['failed']}" if failed else STOPPED
    if "inputs" not in record:
        return Freshness("missing", (stopped,) if record else (NEVER_RUN,))
    outputs = lock.hashes(stage.writes)
    gone = [name for name in stage.writes if outputs[name] == ABSENT]
    if gone:
        names = ", ".join(ARTIFACTS[name].file for name in gone)
        return Freshness("missing", (f"{names} is gone",))
    reasons = _reasons(stage, record, lock)
    if lock.is_unfinished(stage) or (reasons and failed):
        reasons = [stopped, *reasons]
    if lock.is_unfinished(stage):
        return Freshness("stale", tuple(reasons))
    edited = tuple(name for name in stage.writes if outputs[name] != record["outputs"].get(name))
    return Freshness("stale" if reasons else "fresh", tuple(reasons), edited)


def foresee(stages: Iterable[Stage], lock: Lock) -> Iterator[tuple[Stage, Freshness]]:
    """Yield the states that a run would find, given changed folders and stale earlier stages."""
    remade: set[str] = set()
    for stage in stages:
        now = judge(stage, lock)
        again = [ARTIFACTS[name] for name in set(stage.reads) & remade]
        waits = sorted(artifact.file for artifact in again)
        tables = {name: ARTIFACTS[name] for name in now.edited}
        # sheets and editable tables are for people
        edits = [
            name
            for name, table in tables.items()
            if isinstance(table, Table) and (table.editable or table.spreadsheet)
        ]
        # an input that is made again may become what it was; a data set stays as it is
        unsure = {f"{artifact.file} changed" for artifact in again if artifact.place == "work"}
        state, reasons = now.state, [reason for reason in now.reasons if reason not in unsure]
        # a damaged output is made again; an edit of a person first has to be accepted
        if state == "fresh" and (waits or len(edits) < len(now.edited)):
            state = "stale"
        if waits and not reasons:
            reasons.append(f"{', '.join(waits)} may change")
        for name in now.edited:
            how = "by hand: see `hgld accept` or `hgld review`" if name in edits else "since"
            reasons.append(f"{ARTIFACTS[name].file} was changed {how}")
        if state != "fresh":
            remade |= set(stage.writes)
        yield stage, Freshness(state, tuple(reasons), now.edited)


def left_over(stages: Sequence[Stage], workspace: Workspace) -> dict[str, list[str]]:
    """Return stage -> its files in the work folder that no stage of these options writes."""
    written = {name for stage in stages for name in stage.writes}
    makers = {name: stage.name for stage in STAGES for name in stage.writes if name not in written}
    found: dict[str, list[str]] = {}
    for name, maker in makers.items():
        if ARTIFACTS[name].place == "work" and workspace.path(name).exists():
            found.setdefault(maker, []).append(ARTIFACTS[name].file)
    return found


def stage_options(stage: Stage, lock: Lock) -> dict[str, Any]:
    """Return the options that decide a stage's output, "section.option" -> JSON value.

    An option with a path to the user's files has a second entry for their content.
    """
    flat: dict[str, Any] = {}
    workspace = lock.workspace
    for section in dict.fromkeys((stage.name, *(used.partition(".")[0] for used in stage.uses))):
        options = getattr(workspace.pipeline, section)
        if isinstance(options, str):
            flat[section] = getattr(workspace, section)  # the folder's name, if there is no title
            continue
        _flatten(section, options.decisive(), workspace.pipeline_file.resolve().parent, flat)
        brought = options.brought_paths() | _not_hashed(options, workspace.source)
        for name, path in brought.items():
            if _decides(stage, f"{section}.{name}"):
                flat[f"what {section}.{name} holds"] = lock.hash_brought(path)
    return _decisive(flat | _orders(stage, workspace.pipeline), stage)


def _orders(stage: Stage, pipeline: Pipeline) -> dict[str, Any]:
    """Return the order of runs or models in the pipeline file, in which results show them."""
    names = {"train": [*pipeline.train.runs], "evaluate": [*pipeline.evaluate.models]}
    return {f"order in {stage.name}": ", ".join(names[stage.name])} if stage.name in names else {}


def _not_hashed(options: Options, source: Path) -> dict[str, Path]:
    """Return option -> file, of those relative to the source folder that its hash lacks."""
    folder, found = os.path.normpath(source), dict[str, Path]()
    for option, value in options:
        several = enumerate(value) if isinstance(value, tuple) else ()
        for name, one in [(f"{option}.{i}", one) for i, one in several] or [(option, value)]:
            if isinstance(one, Options):
                found |= {f"{name}.{own}": file for own, file in _not_hashed(one, source).items()}
            elif option in options.in_source and one:
                found[name] = source / one
    return {
        name: file
        for name, file in found.items()
        if not (inside := Path(os.path.normpath(file))).is_relative_to(folder)
        or any(part.startswith(".") for part in inside.relative_to(folder).parts)
    }


def _decisive(options: Mapping[str, Any], stage: Stage) -> dict[str, Any]:
    """Return the options that decide the output of a stage."""
    names = {name: name.removeprefix("what ").removesuffix(" holds") for name in options}
    return {name: value for name, value in options.items() if _decides(stage, names[name])}


def _decides(stage: Stage, option: str) -> bool:
    """Whether a stage does not ignore an option, and uses it or all of its section."""
    alone = {used.partition(".")[0] for used in stage.uses if "." in used}
    used = option in stage.uses or option.partition(".")[0] not in alone
    return used and option not in stage.ignores


def _flatten(name: str, value: Any, folder: Path, into: dict[str, Any]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _flatten(f"{name}.{key}", inner, folder, into)
    else:
        into[name] = _from_folder(value, folder)


def _from_folder(value: Any, folder: Path) -> Any:
    """Return paths relative to the folder, since a moved checkout must stay fresh."""
    if isinstance(value, list):
        return [_from_folder(inner, folder) for inner in value]
    if not isinstance(value, str):
        return value
    return os.path.relpath(value, folder) if value.startswith("/") else without_folders(value)


def _reasons(stage: Stage, record: Mapping[str, Any], lock: Lock) -> list[str]:
    reasons = []
    if record["function"] != stage.function:
        reasons.append(f"function: {record['function']} -> {stage.function}")
    elif record["revision"] != stage.revision:
        reasons.append("the code of this stage changed")
    before, now = _options_then(stage, record, lock), stage_options(stage, lock)
    for option in sorted(before.keys() | now.keys()):
        if before.get(option) != now.get(option):
            values = _difference(before.get(option, "unused"), now.get(option, "unused"))
            was, becomes = (shortened(str(value) or "empty", SHOWN) for value in values)
            reasons.append(f"{option}: {was} -> {becomes}")
    for name, digest in lock.hashes(stage.reads).items():
        if digest != record["inputs"].get(name, ABSENT):
            reasons.append(f"{ARTIFACTS[name].file} changed")
    return reasons


def _difference(before: Any, now: Any) -> tuple[Any, Any]:
    """Return the parts of two values that differ: a list may name all files of the data set.

    Example:
        >>> _difference([{"url": "a", "count": 1}, 5], [{"url": "a", "count": 2}, 5])
        ([{'count': 1}], [{'count': 2}])
    """
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = [_difference(b, n) for b, n in zip(before, now, strict=True) if b != n]
        return [was for was, _ in pairs], [becomes for _, becomes in pairs]
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        return {key: before.get(key) for key in keys}, {key: now.get(key) for key in keys}
    return before, now


def _options_then(stage: Stage, record: Mapping[str, Any], lock: Lock) -> dict[str, Any]:
    """Return the options of the last run; an option added since then gets its default."""
    pipeline = lock.workspace.pipeline
    runs: dict[str, Any] = {name: {} for name in pipeline.train.runs}
    defaults = Pipeline.model_validate({"labels": pipeline.labels, "train": {"runs": runs}})
    plain = replace(lock, workspace=replace(lock.workspace, pipeline=defaults))
    known = stage_options(stage, plain)
    known |= _orders(stage, pipeline)  # locks of earlier versions lack it
    there = {name.rpartition(".")[0] for name in record["options"]}  # also train.runs.NAME
    added = {
        name: value
        for name, value in known.items()
        if not name.startswith(f"{stage.name}.runs.") or name.rpartition(".")[0] in there
    }
    return {**added, **_decisive(record["options"], stage)}
