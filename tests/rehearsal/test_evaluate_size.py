"""Embedding on a Ray cluster, and a ranking of a size that nobody should hold as a whole."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.gallery_growth import make_gallery, rank_gallery_file
from tests.evaluate.test_spread import embed, make_model
from tests.made_shards import make_shards
from tests.two_nodes import QUIET


@pytest.mark.rehearsal
def test_a_cluster_changes_no_byte(tmp_path: Path) -> None:
    pytest.importorskip("ray") if not os.environ.get("CI") else __import__("ray")
    shards, run = make_shards(tmp_path), make_model(tmp_path / "model")
    code = (
        "import ray, sys; from pathlib import Path\n"
        "ray.init('local', num_cpus=2, include_dashboard=False, log_to_driver=False)\n"
        "from tests.evaluate.test_spread import embed\n"
        "embed(*map(Path, sys.argv[1:]), ray='auto')\n"
    )
    folders = [str(path) for path in (shards, run, tmp_path / "ray")]
    quiet = {**os.environ, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "PYTHONPATH": str(Path.cwd())}
    run_ray = [sys.executable, "-W", "ignore", "-c", code, *folders]
    done = subprocess.run(run_ray, env={**quiet, **QUIET}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    found = {path.name: path.read_bytes() for path in sorted((tmp_path / "ray").rglob("*.npy"))}
    assert found == embed(shards, run, tmp_path / "one")


BIG = """
import re, sys
import numpy as np, pandas as pd
from pathlib import Path
from hgld.config import EvaluateOptions
from hgld.evaluate.ranking import measure_and_write
from hgld.evaluate.sides import Side
random = np.random.default_rng(0)
def side(name, n):
    labels = np.sort(random.integers(0, 9, (n, 3)), axis=0)
    return Side(name, [pd.DataFrame({"image_id": np.arange(n).astype(str)})], labels, Path(), {})
def write(path, images):
    sides = side("q", 1_600), side("g", images)
    vectors = {s.split: random.random((len(s), 8), np.float32) for s in sides}
    options = EvaluateOptions(device="cpu")
    measure_and_write(path, vectors, *sides, ["AP", "NDCG"], "abc", options)
def kilobytes(name):
    return int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
write(Path(sys.argv[1]), 1_000)  # loads the libraries and compiles the kernels
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
before = kilobytes("VmRSS")
write(Path(sys.argv[1]), 300_000)
print(kilobytes("VmHWM") - before)
"""


@pytest.mark.rehearsal
def test_a_large_ranking_is_never_held_as_a_whole(tmp_path: Path) -> None:
    """1,600 x 300,000 pairs of 8 bytes are 3.8 GB in one piece; blocks need a third."""
    run = [sys.executable, "-c", BIG, str(tmp_path / "big.npz")]
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    assert int(done.stdout) * 1024 < 1.3e9
    with np.load(tmp_path / "big.npz") as data:
        assert data["levels"].shape == (1600, 1000)


@pytest.mark.rehearsal
def test_forty_million_images_have_one_ranking_wherever_they_are_cut(tmp_path: Path) -> None:
    make_gallery(tmp_path, 40_000_000)
    few, many = (rank_gallery_file(tmp_path, 40_000_000, part) for part in (1 << 22, 1 << 18))
    assert few == many and 0 < few["H-AP"] < 1
