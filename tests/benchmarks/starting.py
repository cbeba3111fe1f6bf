"""Measures how long a command takes before its first output.

The quickstart and the report, whose charts are drawn by all cores, in elapsed seconds; the rest in
processor seconds of a new process: other work shares the machine. The quickstart runs twice: after
an install from source it compiles kernels, after that and from the wheel it does not. Of the report
and the rest the least of some rounds. The pipeline of ``hgld status`` is the quickstart, finished;
its report is made again.
"""

import os
import subprocess
import sys
import tempfile
import time

from tests.benchmarks.meters import Row, fastest
from tests.benchmarks.training import cpu_seconds

PIPELINE = "pipelines/quickstart.toml"


def rows(*settings: str) -> list[Row]:
    """Seconds of ``--help``, ``status``, quickstart and report; settings as of ``--set``."""
    chosen = [f"--set={setting}" for setting in settings]
    with tempfile.TemporaryDirectory() as folder:
        quickstart = list[float]()
        for work in (f"{folder}/first", f"{folder}/second"):
            given = (PIPELINE, "--work", work, *chosen)
            start = time.perf_counter()
            _hgld("run", *given, "--now", "2026-01-01", NUMBA_CACHE_DIR=f"{folder}/kernels")
            quickstart.append(time.perf_counter() - start)
        commands = {"help": lambda: _hgld("--help"), "status": lambda: _hgld("status", *given)}
        least = fastest(commands, clock=cpu_seconds, warm_up=False)
        report = {"report": lambda: _hgld("report", *given, "--force")}
        least |= fastest(report, clock=time.perf_counter, warm_up=False)
    return [
        Row("hgld --help", least["help"], "s", most=0.15, aim=0.15),
        Row("hgld status of a finished pipeline", least["status"], "s", most=0.5, aim=0.5),
        Row("quickstart, elapsed, kernels compiled", quickstart[0], "s", aim=25),
        Row("quickstart, elapsed, kernels kept", quickstart[1], "s", aim=25),
        Row("report of the quickstart, elapsed", least["report"], "s", aim=3),
    ]


def _hgld(*words: str, **environment: str) -> None:
    command = [sys.executable, "-m", "hgld", *words]
    subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=True)
