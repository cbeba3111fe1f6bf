"""Measures the first loss and the first evaluation of a process, with and without kept kernels.

CPU seconds of the call in a new process: torch and the input are there, numba is not. The call
loads or compiles the kernels and compares them with plain torch; the input is small. The wheel of
``make wheel`` is built for this CPU and installed; no kernels are kept.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from hgld.ranking import losses, metrics
from hgld.ranking.levels import shared_levels
from tests.benchmarks.cases import embeddings_of, labels_of
from tests.benchmarks.meters import Row, from_process

ROOT = Path(__file__).parents[2]


def rows(works: tuple[str, ...] = ("loss", "evaluation"), rounds: int = 3) -> list[Row]:
    """Seconds of the first call: compiled (once); kept, and from the wheel (each the least)."""
    found = []
    for work in works:
        with tempfile.TemporaryDirectory() as folder:
            compiled = _in_a_process(work, folder)
            kept = min(_in_a_process(work, folder) for _ in range(rounds))
        found.append(Row(f"first {work} of a process, kernels compiled", compiled, "s", aim=1))
        found.append(Row(f"first {work} of a process, kernels kept", kept, "s", aim=1))
    with tempfile.TemporaryDirectory() as folder:
        package = _install_wheel(Path(folder))
        for work in works:
            least = min(_in_a_process(work, f"{folder}/{work}{i}", package) for i in range(rounds))
            found.append(Row(f"first {work} of a process, from the wheel", least, "s", aim=1))
    return found


def _install_wheel(folder: Path) -> Path:
    """Build the wheel for this CPU, and install it alone below a folder; return its place."""
    # here, since these load numba, whose import is a part of a first call
    from hgld.compiled import levels_of_cpu
    from pipelines.wheel import build_wheel

    wheel = build_wheel(folder, levels_of_cpu()[:1])
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*command, "--target", folder / "package", wheel], check=True)
    return folder / "package"


def _in_a_process(work: str, folder: str, package: Path = ROOT) -> float:
    words = "-P", "-m", "tests.benchmarks.first_call", work
    path = os.pathsep.join(map(str, (package, ROOT)))
    return float(from_process(*words, NUMBA_CACHE_DIR=folder, PYTHONPATH=path))


def main() -> None:
    """Print the seconds of one work."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=("loss", "evaluation"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    labels = labels_of(256, "2")
    vectors, levels = embeddings_of(labels), shared_levels(labels, labels)
    leaf = (vectors @ vectors.T).requires_grad_()
    start = time.process_time()
    if given.work == "loss":
        torch.autograd.grad(losses.sup_h_ap(leaf, levels, 2).mean(), leaf)
    else:
        metrics.evaluate(vectors, labels, vectors, labels, ["H-AP", "AP:2", "R@1:2"])
    print(time.process_time() - start)


if __name__ == "__main__":
    main()
