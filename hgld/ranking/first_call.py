"""Compile the kernels that measure metrics before they are needed.

The first evaluation of an installation compiles for ten seconds. A run of several stages compiles
meanwhile, in a separate process. This module loads numba and torch in that process only.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

KERNELS = ("rank_cpu", "metrics_cpu")


def plan_compiling() -> Callable[[], None] | None:
    """Return ``compile_metrics``; None if numba has kept kernels since the code changed.

    None, too, if the installed wheel has kernels. A wrong answer costs time only: numba itself
    decides which kernels it compiles.
    """
    own = Path(__file__).parent / "kernels"
    if (Path(__file__).parents[1] / "machine_code").is_dir():
        return None
    kept = [own / "__pycache__"]
    with suppress(RuntimeError):  # the user has no home folder
        kept.append(Path("~/.cache/numba").expanduser())
    if "NUMBA_CACHE_DIR" in os.environ:
        kept = [Path(os.environ["NUMBA_CACHE_DIR"])]
    for module in KERNELS:
        changed = (own / f"{module}.py").stat().st_mtime
        found = (file for folder in kept for file in folder.rglob(f"{module}.*.nbi"))
        if not any(file.stat().st_mtime > changed for file in found):
            return compile_metrics
    return None


def compile_metrics() -> None:
    """Measure the metrics and curves of a gallery of two images."""
    import numpy as np
    import torch

    from hgld.ranking import metrics
    from hgld.ranking.curves import measure_curves

    vectors, labels = torch.eye(2), torch.tensor([[0], [1]])
    metrics.evaluate(vectors, labels, vectors, labels, ["H-AP"])
    measure_curves(np.ones((64, 64), np.int8), 1)  # so many are counted by a kernel
