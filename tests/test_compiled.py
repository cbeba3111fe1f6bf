"""Vectors of kernels on CPUs with AVX-512, and the settings that change them."""

import os
import subprocess
import sys

import pytest
from numba.core.codegen import get_host_cpu_features

from hgld.ranking.kernels.loss_cpu import run_rows

HOST = get_host_cpu_features()
INTEL = {"NUMBA_CPU_NAME": "sapphirerapids"}  # LLVM prefers half its vectors

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("+avx512f" not in HOST, reason="the CPU has no AVX-512"),
]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (INTEL, "torch with AVX512, numba with AVX512"),
        ({**INTEL, "NUMBA_CPU_FEATURES": HOST}, "torch with AVX512, numba with AVX2"),
        ({"HGLD_CPU": "avx2"}, "torch with AVX2, numba with AVX2"),
    ],
)
def test_kernels_use_whole_vectors_on_intel_unless_the_user_sets_others(settings, expected) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.instructions"], env={**os.environ, **settings},
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.strip() == expected


def test_an_unknown_instruction_set_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.instructions"],
        env={**os.environ, "HGLD_CPU": "avx3"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (
        done.stderr == ("HGLD_CPU=avx3: expected avx2, or nothing for all instructions\n")
        and done.returncode == 1
    )


def test_kept_kernels_are_kept_for_their_vectors() -> None:
    target = run_rows.targetctx.codegen()
    _, (_, _, features), _ = run_rows._cache._index_key((), target)
    assert features == os.environ.get("NUMBA_CPU_FEATURES", f"{HOST},-prefer-256-bit")
