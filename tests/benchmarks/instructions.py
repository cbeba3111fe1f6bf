"""Instruction sets of the two sides of a ratio: numba's kernels and torch's products.

With ``HGLD_CPU=avx2`` both use AVX2 at most, and so do numpy and faiss: one machine measures both.
MKL and oneDNN have settings of their own, beside torch's. To print the sets:
``python -m tests.benchmarks.instructions``.
"""

import os
import sys

from hgld.__main__ import SPINS

SETS = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "FAISS_OPT_LEVEL": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
        "NUMBA_CPU_FEATURES": "",  # those of the name alone
        "NUMBA_CPU_NAME": "x86-64-v3",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    }
}


def choose() -> None:
    """Start again with the variables of ``HGLD_CPU``, which libraries read on import.

    Waiting threads of OpenMP spin as briefly as those of the command ``hgld``.
    """
    name = os.environ.get("HGLD_CPU", "")
    if name and name not in SETS:
        sys.exit(f"HGLD_CPU={name}: expected {', '.join(SETS)}, or nothing for all instructions")
    wanted = {"GOMP_SPINCOUNT": SPINS, **SETS.get(name, {})}
    if not wanted.items() <= os.environ.items():
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **wanted})
    if name and torch_set().lower() != name:
        sys.exit(f"HGLD_CPU={name}: torch uses {torch_set()}; this processor has no {name.upper()}")


def instructions() -> str:
    """The instruction sets in words, as the record of a benchmark names them."""
    return f"torch with {torch_set()}, numba with {numba_set()}"


def torch_set() -> str:
    """The instruction set of torch's own operators."""
    import torch

    return torch.backends.cpu.get_cpu_capability()


def numba_set() -> str:
    """The instruction set of a small kernel, by the widest registers of its machine code."""
    import numba

    from hgld import compiled

    # not kept on disk: the machine code of a kept kernel cannot be read
    kernel = numba.njit(error_model="numpy", fastmath=compiled.ANY_ORDER)(_sum_shares)
    kernel.compile("float32(float32[::1], float32[::1])")
    code = kernel.inspect_asm(kernel.signatures[0])
    widest = {"zmm": "AVX512", "ymm": "AVX2"}
    return next((name for register, name in widest.items() if register in code), "neither")


def _sum_shares(f, g):
    total = f[0]
    for i in range(1, len(f)):
        total += f[0] / (f[0] + f[i] * g[i])
    return total


if __name__ == "__main__":
    choose()
    print(instructions())
