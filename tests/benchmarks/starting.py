"""Measures how long a command takes before its first output.

In processor seconds of a new process, the least of some rounds: other work shares the machine.
The pipeline of ``hgld status`` is the quickstart with all its stages up to the shards finished.
"""

import subprocess
import sys
import tempfile

from tests.benchmarks.measures import Row
from tests.benchmarks.shards import compare
from tests.benchmarks.training import cpu_seconds

__all__ = ["rows"]

PIPELINE = "pipelines/quickstart.toml"


def rows() -> list[Row]:
    """Seconds of ``--help`` and of ``status``."""
    with tempfile.TemporaryDirectory() as work:
        _hgld("run", PIPELINE, "--work", work, "--until", "export")
        status = ("status", PIPELINE, "--work", work)
        commands = {"help": lambda: _hgld("--help"), "status": lambda: _hgld(*status)}
        least = compare(commands, cpu_seconds)
    return [
        Row("hgld --help", least["help"], "s", most=0.15),
        Row("hgld status of a finished pipeline", least["status"], "s", most=0.5),
    ]


def _hgld(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "hgld", *words], capture_output=True, check=True)
