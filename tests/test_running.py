"""What ``hgld status`` shows of a stage that runs in another process."""

import errno
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from hgld.cli import app, guarded
from hgld.cli.arguments import open_runner
from hgld.errors import HgldError, InvalidData
from hgld.file_lock import hold, is_held
from hgld.pipeline import running
from hgld.pipeline.lock import STOPPED, Lock, judge
from hgld.pipeline.running import RunningStage, read_running, record_running
from hgld.pipeline.stages import STAGES
from hgld.tasks import track

AT_WORK = """
import sys, time
from itertools import count
from pathlib import Path
from hgld.pipeline import running
from hgld.file_lock import hold
from hgld.tasks import track
running.EVERY_S = 0
running.monotonic = count(0, 0.01).__next__  # a busy machine would take longer for the 37
work = Path(sys.argv[1])
with hold(work / ".lock", ""), running.record_running(work, "collect"):
    for number in track(range(100), "Reading tars"):
        if number == 37:
            print("there", flush=True)
            time.sleep(60)
"""


@contextmanager
def at_work(work: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the stage collect and has done 37 of 100."""
    command = [sys.executable, "-c", AT_WORK, str(work)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_status_says_since_when_a_stage_runs_and_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = ["status", "pipelines/quickstart.toml", "--work", str(tmp_path), "--json"]
    with at_work(tmp_path):
        assert guarded(lambda: app(status)) == 0
    shown = json.loads(capsys.readouterr().out)["collect"]
    assert shown["state"] == "running"
    assert shown["reasons"][0].startswith("since ")
    pattern = r".*; Reading tars: 37 % \(37 of 100\), 97/s, about 1 s left"
    assert re.fullmatch(pattern, shown["reasons"][0])


def test_a_killed_stage_does_not_count_as_running(tmp_path: Path) -> None:
    with at_work(tmp_path) as process:
        assert read_running(tmp_path) is not None
        process.kill()
        process.wait()
        assert (tmp_path / ".state" / "running.json").exists()
        assert read_running(tmp_path) is None


def test_what_a_killed_stage_left_is_not_shown_while_another_command_holds_the_lock(
    tmp_path: Path,
) -> None:
    with at_work(tmp_path) as process:
        process.kill()
        process.wait()
    pipeline = Path("pipelines/quickstart.toml")
    with open_runner(pipeline, [], tmp_path).alone():
        assert read_running(tmp_path) is None


def test_the_first_item_is_shown_however_long_it_takes(tmp_path: Path) -> None:
    with hold(tmp_path / ".lock", ""), record_running(tmp_path, "train"):
        next(iter(track(range(3), "Training")))
        found = read_running(tmp_path)
    assert found is not None and (found.label, found.done, found.total) == ("Training", 0, 3)


def test_the_file_goes_with_its_stage(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), record_running(tmp_path, "collect"):
        assert list((tmp_path / ".state").iterdir())
        _ = 1 / 0
    assert not list((tmp_path / ".state").iterdir())


def test_after_its_last_item_a_part_is_no_longer_shown(tmp_path: Path) -> None:
    with hold(tmp_path / ".lock", ""), record_running(tmp_path, "collect"):
        assert list(track("ab", "Reading")) == ["a", "b"]
        found = read_running(tmp_path)
    assert found is not None and found.label == ""


def test_a_disk_that_takes_no_more_does_not_stop_the_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "EVERY_S", 0)
    (tmp_path / ".state").write_text("no folder")
    with record_running(tmp_path, "collect"):
        assert list(track("ab", "Reading")) == ["a", "b"]


def test_a_stage_without_progress_says_only_since_when() -> None:
    stage = RunningStage("embed", "2026-01-31T08:41:00+00:00")
    assert stage.describe().startswith("since 2026-01-3") and ";" not in stage.describe()


def test_a_stage_that_loads_its_libraries_is_starting(tmp_path: Path) -> None:
    with hold(tmp_path / ".lock", ""), record_running(tmp_path, "train") as begins:
        starting = read_running(tmp_path)
        begins()
        begun = read_running(tmp_path)
    assert starting is not None and starting.describe().endswith("; starting")
    assert begun is not None and ";" not in begun.describe()


def test_what_was_done_before_counts(tmp_path: Path) -> None:
    with hold(tmp_path / ".lock", ""), record_running(tmp_path, "train"):
        next(iter(track(range(60, 100), "Training", 100, 60)))
        found = read_running(tmp_path)
    assert found is not None and found.describe().endswith("Training: 60 % (60 of 100)")


def test_status_says_why_a_stage_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "labels.csv").write_text("photo,species\n1.jpg,gull\n")
    file = tmp_path / "own.toml"
    file.write_text('labels = "labels"\n[source]\nkind = "folder"\nfolder = "photos"\n')
    command = [str(file), "--work", str(tmp_path / "work")]
    assert guarded(lambda: app(["fetch", *command])) == 0
    code = guarded(lambda: app(["collect", *command]))
    line = capsys.readouterr().err.splitlines()[-1].removeprefix("hgld: ")
    assert guarded(lambda: app(["status", *command, "--json"])) == 0
    states = json.loads(capsys.readouterr().out)
    assert code == 3 and states["collect"] == {"state": "missing", "reasons": [f"failed: {line}"]}


def test_a_failure_is_no_reason_under_other_options(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('labels = "labels"\n[source]\nkind = "folder"\nfolder = "photos"\n')
    stage = next(stage for stage in STAGES if stage.name == "export")
    tried = open_runner(file, ["export.seed=1"], tmp_path).workspace
    lock = Lock(tried)
    lock.start(stage)
    lock.fail(stage, InvalidData("no image is left to export"))
    other = open_runner(file, [], tmp_path).workspace
    assert judge(stage, Lock.load(tried)).reasons == ("failed: no image is left to export",)
    assert judge(stage, Lock.load(other)).reasons == (STOPPED,)


def test_of_an_error_of_many_lines_the_first_two_are_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('labels = "labels"\n[source]\nkind = "folder"\nfolder = "photos"\n')
    lock = Lock(open_runner(file, [], tmp_path).workspace)
    lock.start(STAGES[0])
    rows = (f"  row {i}: x" for i in range(3, 9))
    lock.fail(STAGES[0], InvalidData("a.csv row 2: one", *rows))
    assert lock.stages[STAGES[0].name]["failed"] == "a.csv row 2: one; row 3: x; and 5 more"


@pytest.mark.parametrize(
    ("error", "fails"),
    [
        (OSError(errno.ENOSPC, "no"), False),
        (OSError(errno.ENOMEM, "no"), False),
        (MemoryError(), False),
        (RuntimeError("can't start new thread"), False),
        (OSError(errno.EACCES, "no"), True),
        (HgldError("x: cannot be read (Cannot allocate memory)"), True),
    ],
)
def test_a_full_disk_or_a_lack_of_memory_stops_a_stage_and_does_not_fail_it(
    tmp_path: Path, error: Exception, fails: bool
) -> None:
    file = tmp_path / "own.toml"
    file.write_text('labels = "labels"\n[source]\nkind = "folder"\nfolder = "photos"\n')
    lock = Lock(open_runner(file, [], tmp_path).workspace)
    lock.start(STAGES[0])
    lock.fail(STAGES[0], error)
    assert ("failed" in lock.stages[STAGES[0].name]) == fails


def test_a_look_at_the_lock_keeps_nobody_from_taking_it(tmp_path: Path) -> None:
    path, looks = tmp_path / "lock", []
    path.touch()
    looking = Thread(target=lambda: looks.extend(is_held(path) for _ in range(300)))
    looking.start()
    for _ in range(30):
        with hold(path, "taken"):
            pass
    looking.join()
    assert len(looks) == 300 and not is_held(path)
