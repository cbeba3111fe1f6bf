import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.rehearsal

COMPILE = "from hgld.ranking.first_call import compile_metrics; compile_metrics()"
MEASURE = """
import torch
from hgld.ranking import metrics
from hgld.ranking.curves import measure_curves
torch.manual_seed(0)
labels = torch.arange(300)[:, None] // torch.tensor([100, 20, 4])
vectors = torch.randn(300, 8)
names = ["H-AP", "NDCG", "ASI", "AP:1", "R@1:1", "mAP@100"]
metrics.evaluate(vectors, labels, vectors, labels, names, exclude_self=True)
measure_curves((labels[:, None] == labels[None]).sum(2, dtype=torch.int8).numpy(), 3)
"""


def test_a_first_evaluation_compiles_nothing_after_compile_metrics(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_DEBUG_CACHE": "1"}
    saved = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.count("data saved to")
        for code in (COMPILE, MEASURE)
    ]
    assert saved[0] > 0 == saved[1]
