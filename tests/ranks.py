"""A script in several processes, with the environment that torchrun gives to each.

They are forked from the process with the libraries. Tests of what torchrun itself does with hgld
start it, and its processes import the libraries again, for 4 CPU seconds each.
"""

import os
import subprocess
from pathlib import Path

from tests.object_store import free_port
from tests.warm import Script


def run_ranks(processes: int, *words: str | Path) -> list["subprocess.CompletedProcess[str]"]:
    """Run what follows ``python`` as ranks 0 to ``processes`` - 1; return how each ended."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared = {**os.environ, "OMP_NUM_THREADS": "1", **place, "WORLD_SIZE": str(processes)}
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [
        Script(words, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}, **piped)
        for rank in range(processes)
    ]
    try:
        texts = [process.communicate(timeout=300) for process in started]
    finally:
        for process in started:
            process.kill()
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *text)
        for process, text in zip(started, texts, strict=True)
    ]


def run_to_end(processes: int, *words: str | Path) -> str:
    """Require that all ranks succeed; return what they print on stderr, one after the other."""
    ranks = run_ranks(processes, *words)
    text = "".join(rank.stderr for rank in ranks)
    assert not any(rank.returncode for rank in ranks), text
    return text
