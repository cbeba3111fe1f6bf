"""Where Triton kernels are tested: a GPU, or its interpreter on a CPU where that is asked for."""

import os
from importlib.util import find_spec

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
REASON = (
    "no triton: pip install -c constraints.txt triton"
    if find_spec("triton") is None
    else "no GPU; TRITON_INTERPRET=1 runs the kernels in Triton's interpreter"
)
needs_triton = pytest.mark.skipif(
    find_spec("triton") is None or not (INTERPRETED or torch.cuda.is_available()), reason=REASON
)


def needs_cpu_kernels() -> None:
    """Skip where the CPU's kernels cannot run: numpy may be too new for a machine's numba."""
    pytest.importorskip("numba", exc_type=ImportError)


# numpy says so where a GPU just gives inf: exp of a far negative
quiet = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
