"""What each stage was made from (``lock.json``), and whether that still holds.

A stage is fresh when its inputs, its options and its code's revision are those of its last run
and its outputs are there. Files are compared by content, so that a stage that makes the same
bytes again leaves everything after it fresh.
"""

import json
import os
import shlex
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from hgld.artifacts import (
    ARTIFACTS,
    Folder,
    atomic_path,
    hash_file,
    list_tree,
    require_file,
)
from hgld.config import Pipeline, default_work
from hgld.errors import Resumable
from hgld.pipeline.stages import Stage, load_function
from hgld.words import count_text, single_blanks

__all__ = ["NEVER_RUN", "STOPPED", "Freshness", "Lock", "Workspace", "judge", "stage_options"]

State = Literal["fresh", "stale", "missing", "running"]
ABSENT = "absent"
NEVER_RUN = "not yet run"
STOPPED = "was stopped on the way"
SHOWN = 80  # letters of an option's value, in a reason
COUNTED_BY_TIME = 64 << 20  # a source file above this size counts by size and time, not content


@dataclass(frozen=True)
class Workspace:
    """Where a pipeline's files lie."""

    pipeline_file: Path
    pipeline: Pipeline
    work: Path

    @property
    def words(self) -> str:
        """What names this pipeline and folder in a command."""
        file, elsewhere = self.pipeline_file, self.work != default_work(self.pipeline_file)
        return shlex.join([str(file), *(["--work", str(self.work)] if elsewhere else [])])

    @property
    def source(self) -> Path:
        """Folder of the data set's own files."""
        return self.pipeline.source.folder or self.work / "source"

    def path_as_written(self, name: str) -> Path:
        """Path of the copy that shows what a person changed in an editable table."""
        return self.work / ".state" / "written" / ARTIFACTS[name].file

    def path(self, name: str) -> Path:
        """Path of an artifact."""
        artifact = ARTIFACTS[name]
        if artifact.place == "source":
            return self.source
        folder = self.pipeline.labels if artifact.place == "labels" else self.work
        return folder / artifact.file


@dataclass(frozen=True)
class Freshness:
    """State of a stage, why, and the outputs that were changed since it made them."""

    state: State
    reasons: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()


@dataclass
class Lock:
    """The records of the finished stages, and the hashes of files by size and time."""

    path: Path
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, list[Any]] = field(default_factory=dict)
    pipeline: str = ""  # the file, from the work folder on

    @classmethod
    def load(cls, path: Path) -> "Lock":
        """Read ``lock.json``; a damaged one counts as none, since everything can be made again.

        Raises:
            InvalidData: it is a folder, a pipe or a device.
        """
        require_file(path)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            stages = {n: r for n, r in document["stages"].items() if _is_record(r)}
            return cls(path, stages, dict(document["files"]), str(document.get("pipeline", "")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return cls(path)

    def save(self) -> None:
        """Write atomically."""
        document = {"pipeline": self.pipeline, "stages": self.stages, "files": self.files}
        text = json.dumps(document, indent=1)
        with atomic_path(self.path) as temporary:
            temporary.write_text(text, encoding="ascii")  # a file's name may be no valid text

    def is_edited(self, stage: Stage, name: str, workspace: Workspace) -> bool:
        """Whether an output holds a person's work: accepted, or not as the stage left it."""
        accepted = name in self.stages.get(stage.name, {}).get("edits", ())
        return accepted or not self.is_own(stage, name, workspace)

    def is_own(self, stage: Stage, name: str, workspace: Workspace) -> bool:
        """Whether an output is as the stage left it."""
        made = self.stages.get(stage.name, {}).get("outputs", {}).get(name)
        return bool(made == self.hash(name, workspace))

    def start(self, stage: Stage) -> None:
        """Note that the stage is at work: until it finishes, its outputs are nobody's edits."""
        self.stages[stage.name] = {**self.stages.get(stage.name, {}), "at_work": True}
        self.stages[stage.name].pop("failed", None)
        self.save()

    def fail(self, stage: Stage, error: Exception) -> None:
        """Note the error that ended the stage, unless the same command resumes it."""
        record = self.stages.get(stage.name, {})
        if record.get("at_work") and not isinstance(error, Resumable):
            record["failed"] = single_blanks(str(error)) or type(error).__name__
            with suppress(OSError):  # the error itself is reported
                self.save()

    def is_unfinished(self, stage: Stage) -> bool:
        """Whether the stage has begun and not finished since."""
        return bool(self.stages.get(stage.name, {}).get("at_work"))

    def finish(
        self,
        stage: Stage,
        workspace: Workspace,
        inputs: Mapping[str, str],
        seconds: float,
        others: Collection[Path] = (),
    ) -> None:
        """Record what the stage was made from, what it made, and how long it took.

        Args:
            stage: it has just run.
            workspace: of its pipeline.
            inputs: hashes of what it read, taken before it ran.
            seconds: how long it took.
            others: files and folders in its output folders that hgld did not write.
        """
        self.stages[stage.name] = {
            "function": stage.function,
            "revision": stage.revision,
            "options": stage_options(stage, workspace, self),
            "inputs": dict(inputs),
            "files": self._list_files(stage, workspace, others),
            "seconds": round(seconds, 1),
        }
        self.stages[stage.name]["outputs"] = self.hashes(stage.writes, workspace)
        self.save()

    def made_files(self, name: str) -> dict[str, str] | None:
        """Files that hgld wrote into a folder: path below it -> SHA-256; None if not recorded."""
        records = (record.get("files", {}) for record in self.stages.values())
        return next((files[name] for files in records if name in files), None)

    def _list_files(
        self, stage: Stage, workspace: Workspace, others: Collection[Path]
    ) -> dict[str, dict[str, str]]:
        """The files in each output folder that are the stage's own, with their hashes."""
        found = {}
        for name in stage.writes:
            artifact, path = ARTIFACTS[name], workspace.path(name)
            if isinstance(artifact, Folder) and artifact.place == "work":
                lists = load_function(artifact.lists) if artifact.lists else _files
                own = (f for f in lists(path) if not {f, *f.parents} & set(others))
                found[name] = {str(f.relative_to(path)): self._hash_file(f) for f in own}
        return found

    def accept(self, stage: Stage, name: str, digest: str, edited: bool = False) -> None:
        """Take an output that has this hash for the stage's own.

        Args:
            stage: writes it.
            name: of the artifact.
            digest: its content hash.
            edited: it holds a person's work, so it is copied before the stage writes it again.
        """
        record = self.stages.setdefault(stage.name, {})
        record.setdefault("outputs", {})[name] = digest
        if edited:
            record["edits"] = sorted({*record.get("edits", ()), name})
        self.save()

    def hashes(self, names: tuple[str, ...], workspace: Workspace) -> dict[str, str]:
        """Content hash of each artifact."""
        return {name: self.hash(name, workspace) for name in names}

    def hash(self, name: str, workspace: Workspace) -> str:
        """Content hash of an artifact, "absent" where there is none."""
        path = workspace.path(name)
        if not path.exists():
            return ABSENT
        if not isinstance(ARTIFACTS[name], Folder):
            return self._hash_file(path)
        by_time, made = ARTIFACTS[name].place == "source", self.made_files(name)
        files = _files(path) if made is None else [path / file for file in made]
        lines = [
            f"{file.relative_to(path)} {self._hash_file(file, by_time)}"
            for file in files
            if made is None or file.is_file()
        ]
        return sha256(os.fsencode("\n".join(lines))).hexdigest() if lines else ABSENT

    def hash_brought(self, path: Path) -> str:
        """What a file or folder of a person counts as, in a few words.

        A folder counts by the names, sizes and times of its files, and a large file by size and
        times: a dump of 100 GB would take minutes to hash with every command.
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
        known = self.files.get(str(path))
        if known is None or known[:-1] != stamp:
            large = by_time and facts.st_size > COUNTED_BY_TIME
            digest = _size_and_times(stamp, known) if large else hash_file(path)
            known = self.files[str(path)] = [*stamp, digest]
        return str(known[-1])


def _size_and_times(stamp: list[int], known: list[Any] | None) -> str:
    """What a large file counts as: its size and mtime.

    The ctime changes in a copied folder, so it counts only if nothing else shows that the content
    of a file was changed in its place.
    """
    size, mtime, ctime = stamp
    in_place = known is not None and known[:2] == [size, mtime]
    return f"{size} {mtime} {ctime}" if in_place else f"{size} {mtime}"


def _files(folder: Path) -> list[Path]:
    """Regular files below a folder, links followed, hidden files and folders left out."""
    return list_tree(folder, hidden=False).files


def _is_record(record: Any) -> bool:
    finished = {"function", "revision", "options", "inputs", "outputs"}
    return isinstance(record, dict) and ("inputs" not in record or finished <= record.keys())


def judge(stage: Stage, lock: Lock, workspace: Workspace) -> Freshness:
    """Whether a stage's outputs are what its inputs, options and code would make now."""
    record = lock.stages.get(stage.name, {})
    stopped = f"failed: {record['failed']}" if "failed" in record else STOPPED
    if "inputs" not in record:
        return Freshness("missing", (stopped,) if record else (NEVER_RUN,))
    outputs = lock.hashes(stage.writes, workspace)
    gone = [name for name in stage.writes if outputs[name] == ABSENT]
    if gone:
        names = ", ".join(ARTIFACTS[name].file for name in gone)
        return Freshness("missing", (f"{names} is gone",))
    reasons = _reasons(stage, record, lock, workspace)
    if lock.is_unfinished(stage):
        return Freshness("stale", (stopped, *reasons))
    edited = tuple(name for name in stage.writes if outputs[name] != record["outputs"].get(name))
    return Freshness("stale" if reasons else "fresh", tuple(reasons), edited)


def stage_options(stage: Stage, workspace: Workspace, lock: Lock) -> dict[str, Any]:
    """The options that decide what a stage makes, "section.option" -> JSON value.

    An option that leads to files of a person has a second entry for their content.
    """
    flat: dict[str, Any] = {}
    for section in (stage.name, *stage.uses):
        options = getattr(workspace.pipeline, section)
        if isinstance(options, str):
            flat[section] = options
            continue
        _flatten(section, options.decisive(), workspace.pipeline_file.resolve().parent, flat)
        for name, path in options.brought_paths().items():
            flat[f"what {section}.{name} holds"] = lock.hash_brought(path)
    return flat


def _flatten(name: str, value: Any, folder: Path, into: dict[str, Any]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _flatten(f"{name}.{key}", inner, folder, into)
    elif isinstance(value, str) and value.startswith("/"):
        into[name] = os.path.relpath(value, folder)  # moving a checkout makes nothing stale
    else:
        into[name] = value


def _reasons(
    stage: Stage, record: Mapping[str, Any], lock: Lock, workspace: Workspace
) -> list[str]:
    reasons = []
    if (record["function"], record["revision"]) != (stage.function, stage.revision):
        reasons.append("its code makes something else than before")
    before, now = (
        _options_then(stage, record, workspace, lock),
        stage_options(stage, workspace, lock),
    )
    for option in sorted(before.keys() | now.keys()):
        if before.get(option) != now.get(option):
            was, becomes = _difference(before.get(option), now.get(option))
            reasons.append(f"{option}: {_short(was)} -> {_short(becomes)}")
    for name, digest in lock.hashes(stage.reads, workspace).items():
        if digest != record["inputs"].get(name, ABSENT):
            reasons.append(f"{ARTIFACTS[name].file} changed")
    return reasons


def _difference(before: Any, now: Any) -> tuple[Any, Any]:
    """Of two values that differ, the parts that do: a list may be as long as that of all files.

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


def _short(value: object) -> str:
    """The value in words of a length that a line has room for.

    Example:
        >>> _short("x" * 1000) == "x" * SHOWN + "..."
        True
    """
    text = str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _options_then(
    stage: Stage, record: Mapping[str, Any], workspace: Workspace, lock: Lock
) -> dict[str, Any]:
    """Options of the last run; one that did not exist then had what is its default now."""
    runs: dict[str, Any] = {name: {} for name in workspace.pipeline.train.runs}
    defaults = Pipeline.model_validate(
        {"labels": workspace.pipeline.labels, "train": {"runs": runs}}
    )
    known = stage_options(stage, replace(workspace, pipeline=defaults), lock)
    there = {name.rpartition(".")[0] for name in record["options"]}  # also train.runs.NAME
    added = {
        name: value
        for name, value in known.items()
        if not name.startswith(f"{stage.name}.runs.") or name.rpartition(".")[0] in there
    }
    return {**added, **record["options"]}
