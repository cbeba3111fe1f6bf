"""Embedding on a Ray cluster, and a ranking of a size that nobody should hold as a whole."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.evaluate.test_spread import embed, make_model
from tests.made_shards import make_shards


@pytest.mark.rehearsal
def test_a_cluster_changes_no_byte(tmp_path: Path) -> None:
    pytest.importorskip("ray") if not os.environ.get("CI") else __import__("ray")
    shards, run = make_shards(tmp_path), make_model(tmp_path / "model")
    code = (
        "import ray, sys; from pathlib import Path\n"
        "ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)\n"
        "from tests.evaluate.test_spread import embed\n"
        "embed(*map(Path, sys.argv[1:]), ray='auto')\n"
    )
    folders = [str(path) for path in (shards, run, tmp_path / "ray")]
    quiet = {**os.environ, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "PYTHONPATH": str(Path.cwd())}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, *folders], check=True, env=quiet)
    found = {path.name: path.read_bytes() for path in sorted((tmp_path / "ray").rglob("*.npy"))}
    assert found == embed(shards, run, tmp_path / "one")


BIG = """
import resource, sys
import numpy as np, pandas as pd
from pathlib import Path
from hgld.evaluate.ranking import measure_and_write
from hgld.evaluate.sides import Side
random = np.random.default_rng(0)
def side(name, n):
    labels = np.sort(random.integers(0, 9, (n, 3)), axis=0)
    return Side(name, pd.DataFrame({"image_id": np.arange(n).astype(str)}), labels, Path(), {})
sides = side("q", 400), side("g", 300_000)
vectors = {s.split: random.random((len(s.rows), 8), np.float32) for s in sides}
measure_and_write(Path(sys.argv[1]), vectors, *sides, ["AP", "NDCG"], "abc", "cpu")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.rehearsal
def test_a_large_ranking_is_never_held_as_a_whole(tmp_path: Path) -> None:
    """400 x 300,000 pairs of 8 bytes are 1 GB in one piece; blocks need much less."""
    run = [sys.executable, "-c", BIG, str(tmp_path / "big.npz")]
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    assert int(done.stdout) * 1024 < 1.6e9
    with np.load(tmp_path / "big.npz") as data:
        assert data["levels"].shape == (400, 300_000)
