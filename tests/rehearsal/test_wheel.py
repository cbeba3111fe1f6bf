"""The wheel with compiled kernels: built, installed, and used without compiling."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hgld.compiled import LEVELS, levels_of_cpu
from pipelines.wheel import build_wheel
from tests.rehearsal.test_first_call import MEASURE

pytestmark = [
    pytest.mark.rehearsal,
    pytest.mark.skipif(not levels_of_cpu(), reason=f"the CPU has none of {', '.join(LEVELS)}"),
]
PLACE = "import hgld; print(hgld.__file__)\n"
LOSS = """
import numpy as np
from hgld.ranking import losses
from hgld.shards import BatchOptions, Samples, plan_epoch
levels = (labels[:, None] == labels[None]).sum(2, dtype=torch.int8)
for dtype in (torch.float32, torch.float64):
    scores = (vectors @ vectors.T).to(dtype).requires_grad_()
    losses.sup_h_ap(scores, levels, 3).mean().backward()
plan_epoch(Samples.of_labels(labels.numpy()), BatchOptions(4, 2), seed=0, epoch=0)
"""


def test_an_installed_wheel_compiles_nothing(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, levels_of_cpu()[:1])
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.split("-")[2:4] == [python, "none"] and "any" not in wheel.name
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--target", tmp_path / "package", wheel], check=True)
    done = subprocess.run(
        [sys.executable, "-c", PLACE + MEASURE + LOSS],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "package"), "NUMBA_DEBUG_CACHE": "1",
             "NUMBA_CACHE_DIR": str(tmp_path / "empty")},
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(str(tmp_path / "package"))
    assert "data loaded from" in done.stdout and "saved to" not in done.stdout
    assert "KernelWarning" not in done.stderr
