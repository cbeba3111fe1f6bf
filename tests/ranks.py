"""A script in several processes, with the environment that torchrun gives to each.

They are forked from the process with the libraries. Tests of the commands that people start by
torchrun start it, and its processes import the libraries again, for 4 CPU seconds each.
"""

import os
from pathlib import Path

from tests.object_store import free_port
from tests.warm import Script


def run_ranks(processes: int, *words: str | Path) -> list[int]:
    """Run a script, a file and its arguments, as ranks 0 to ``processes`` - 1; their exit codes."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared = {**os.environ, "OMP_NUM_THREADS": "1", **place, "WORLD_SIZE": str(processes)}
    started = [
        Script(words, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(processes)
    ]
    try:
        return [process.wait(300) for process in started]
    finally:
        for process in started:
            process.kill()
