"""Runs single stages of a small pipeline with one fault each, and again without.

A process that has imported everything is forked for each run, so that a fault costs a second and
not ten. It must be started with the library of ``faults.c`` preloaded, which brings the faults:

    LD_PRELOAD=faults.so python -m tests.rehearsal.faults FOLDER FAULTS

Prints one JSON line for each fault that did not end in the same bytes, then the counts.
"""

import atexit
import ctypes
import errno
import importlib
import json
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hgld.artifacts import ARTIFACTS
from hgld.config import load_pipeline
from hgld.pipeline.lock import Workspace
from hgld.pipeline.stages import active_stages
from tests.made_run import SMALL

PIPELINE = Path("pipelines/quickstart.toml")
CALLS = ("rename", "fsync", "write", "pwrite", "unlink", "mkdir")
SIGNALS = {"KILL": signal.SIGKILL, "TERM": signal.SIGTERM, "INT": signal.SIGINT}
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
CODES = {0, 1, 75, 130, -signal.SIGKILL}
SEED = 0


@dataclass(frozen=True)
class Fault:
    """The n-th call of a function, on a file of the work folder, meets this."""

    stage: str
    call: str
    at: int
    what: str


def main(folder: Path, faults: int) -> None:
    """Draw faults from all that can be met, and print what became of them."""
    for stage in active_stages(load_pipeline(PIPELINE, SMALL)):
        importlib.import_module(stage.function.partition(":")[0])
    finished = folder / "finished"
    finished.mkdir()
    code, said = run(finished, ["run"])
    assert code == 0, said
    wanted = content(finished / "work")
    drawn = draw(list(possible(folder, finished)), faults)
    codes: Counter[str] = Counter()
    for fault in drawn:
        code, said, differ = meet(fault, folder, finished, wanted)
        codes[str(code)] += 1
        if differ or code not in CODES or "Traceback" in said:
            print(json.dumps({**asdict(fault), "code": code, "differ": differ, "said": said}))
    by_call = Counter(f"{fault.call} {fault.what}" for fault in drawn)
    print(json.dumps({"faults": len(drawn), "codes": codes, "by_call": by_call}))


def possible(folder: Path, finished: Path) -> Iterator[Fault]:
    """Each call of each stage with each fault."""
    for stage in active_stages(load_pipeline(PIPELINE, SMALL)):
        code, counts = run(prepare(stage.name, folder, finished), [stage.name], ("", 0, 0, 0))
        assert code == 0, counts
        for call, count in json.loads(counts).items():
            for at in range(1, count + 1):
                yield from (Fault(stage.name, call, at, what) for what in (*SIGNALS, *ERRORS))


def draw(every: Sequence[Fault], count: int) -> list[Fault]:
    """As many of each stage and function, where there are as many; always the same ones."""
    chance, groups = random.Random(SEED), dict[tuple[str, str], list[Fault]]()
    for fault in every:
        groups.setdefault((fault.stage, fault.call), []).append(fault)
    for group in groups.values():
        chance.shuffle(group)
    found: list[Fault] = []
    while len(found) < count and any(groups.values()):
        found += [group.pop() for group in groups.values() if group]
    return found[:count]


def meet(
    fault: Fault, folder: Path, finished: Path, wanted: dict[str, bytes]
) -> tuple[int, str, list[str]]:
    """Exit code and words of a run that met a fault; files that differ after the next run."""
    prepared = prepare(fault.stage, folder, finished)
    sent, error = SIGNALS.get(fault.what, 0), ERRORS.get(fault.what, 0)
    code, said = run(prepared, [fault.stage], (fault.call, fault.at, sent, error))
    again, words = run(prepared, [fault.stage])
    found = content(prepared / "work")
    differ = sorted(n for n in found | wanted if found.get(n) != wanted.get(n))
    return code, said, [*differ, *([words] if again else [])]


def prepare(stage: str, folder: Path, finished: Path) -> Path:
    """A copy of the finished run, as before that stage had run for the first time."""
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(finished, copy)
    pipeline = load_pipeline(PIPELINE, SMALL)
    workspace = Workspace(PIPELINE, pipeline, copy / "work")
    row = next(one for one in active_stages(pipeline) if one.name == stage)
    for name in row.writes:
        assert ARTIFACTS[name].place != "labels"
        path = workspace.path(name)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(copy / "work" / ".state" / stage, ignore_errors=True)
    return copy


def run(
    folder: Path, words: Sequence[str], armed: tuple[str, int, int, int] | None = None
) -> tuple[int, str]:
    """Exit code and stderr of an hgld command; of one that only counts, the counts."""
    out = folder.parent / "stderr"
    child = os.fork()
    if child == 0:
        _run_here(folder, words, armed, out)
    status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    return code, out.read_text(errors="replace") if out.exists() else ""


def _run_here(
    folder: Path, words: Sequence[str], armed: tuple[str, int, int, int] | None, out: Path
) -> None:
    from hgld import cli

    out.write_text("")
    settings = [word for setting in SMALL for word in ("--set", setting)]
    place = ["--work", str(folder / "work"), "--now", "2026-01-01"]
    sys.argv = ["hgld", *words, str(PIPELINE), *place, *settings]
    library = ctypes.CDLL(None)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    if armed is not None:
        call, at, sent, error = armed
        library.fault_arm(call.encode(), os.fsencode((folder / "work").resolve()), at, sent, error)
        if not at:
            atexit.register(_write_counts, library, out)
    try:
        cli.main()  # it ends the process
    finally:
        os._exit(70)


def _write_counts(library: ctypes.CDLL, out: Path) -> None:
    out.write_text(json.dumps({call: library.fault_seen(call.encode()) for call in CALLS}))


def content(work: Path) -> dict[str, bytes]:
    """The files of a work folder that a person sees, without times."""
    files = (path for path in work.rglob("*") if path.is_file() and path.name != "lock.json")
    named = {str(path.relative_to(work)): path for path in files}
    return {n: p.read_bytes() for n, p in named.items() if "/." not in f"/{n}"}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
