"""Measures how long a command takes before its first output.

The quickstart, once, and the report, whose charts are drawn by all cores, in elapsed seconds; the
rest in processor seconds of a new process: other work shares the machine. Of the report and the
rest the least of some rounds. The pipeline of ``hgld status`` is the quickstart, finished; its
report is made again.
"""

import subprocess
import sys
import tempfile
import time

from tests.benchmarks.meters import Row, fastest
from tests.benchmarks.training import cpu_seconds

PIPELINE = "pipelines/quickstart.toml"


def rows(*settings: str) -> list[Row]:
    """Seconds of ``--help``, ``status``, quickstart and report; settings as of ``--set``."""
    with tempfile.TemporaryDirectory() as work:
        given = (PIPELINE, "--work", work, *(f"--set={setting}" for setting in settings))
        start = time.perf_counter()
        _hgld("run", *given, "--now", "2026-01-01")
        quickstart = time.perf_counter() - start
        commands = {"help": lambda: _hgld("--help"), "status": lambda: _hgld("status", *given)}
        least = fastest(commands, clock=cpu_seconds, warm_up=False)
        report = {"report": lambda: _hgld("report", *given, "--force")}
        least |= fastest(report, clock=time.perf_counter, warm_up=False)
    return [
        Row("hgld --help", least["help"], "s", most=0.15, aim=0.15),
        Row("hgld status of a finished pipeline", least["status"], "s", most=0.5, aim=0.5),
        Row("quickstart, elapsed", quickstart, "s", aim=25),
        Row("report of the quickstart, elapsed", least["report"], "s", aim=3),
    ]


def _hgld(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "hgld", *words], capture_output=True, check=True)
