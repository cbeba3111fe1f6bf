"""The whole road on the made world, as a newcomer runs it."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PIPELINE = "pipelines/quickstart.toml"


def command(work: Path, *more: str) -> list[str]:
    hgld = [sys.executable, "-m", "hgld", "run", PIPELINE]
    return [*hgld, "--work", str(work), "--now", "2026-01-01", *more]


def run(work: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(work, *more), capture_output=True, text=True, check=False)


def start_until(work: Path, stage: str) -> subprocess.Popen[str]:
    """Start a run and wait until the stage has started."""
    process = subprocess.Popen(command(work), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(f"{stage} "):
            return process
    raise AssertionError(f"{stage} never started")


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    work = tmp_path_factory.mktemp("quickstart")
    return work, run(work)


def outputs(work: Path) -> dict[str, bytes]:
    """CSVs, tables, shards and their index, by name."""
    files = [*work.glob("*.csv"), *work.glob("images*.parquet"), *work.glob("shards/*")]
    return {str(path.relative_to(work)): path.read_bytes() for path in files}


def test_it_ends_with_the_metrics_and_the_report(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    work, done = finished
    assert done.returncode == 0, done.stderr
    assert re.search(r"^H-AP +\d+\.\d", done.stdout, re.M)
    assert done.stdout.splitlines()[-1] == f"report: {work}/report/report.html"
    assert (work / "report" / "report.html").stat().st_size > 10_000


def test_a_second_run_does_nothing_and_says_so(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    done = run(finished[0])
    assert done.returncode == 0
    assert "All stages are fresh; nothing to do." in done.stderr


def test_a_killed_and_an_interrupted_run_go_on_to_the_same_bytes(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    killed = start_until(tmp_path, "scrape")
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    interrupted = start_until(tmp_path, "embed")
    time.sleep(1)
    interrupted.send_signal(signal.SIGINT)
    assert interrupted.wait() == 130
    assert run(tmp_path, "--until", "export").returncode == 0
    undisturbed = outputs(finished[0])
    assert len(undisturbed) > 15 and outputs(tmp_path) == undisturbed
