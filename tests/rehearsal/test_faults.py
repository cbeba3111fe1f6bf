"""Signals, failing and full disks at single calls of every stage: the same bytes at the end."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = int(os.environ.get("HGLD_FAULTS", "84"))  # 390 for the whole drill; about a second each


@pytest.mark.rehearsal
def test_a_fault_at_any_call_of_any_stage_ends_in_the_same_bytes(folder: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = folder / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", source, "-o", library, "-ldl"], check=True)
    command = [sys.executable, "-m", "tests.rehearsal.faults", str(folder), str(FAULTS)]
    environment = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *wrong, summary = map(json.loads, done.stdout.splitlines())
    print(summary)
    assert wrong == []
    assert summary["faults"] == FAULTS
