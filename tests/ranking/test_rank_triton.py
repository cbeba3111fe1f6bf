"""The GPU kernels without a GPU: run in Triton's interpreter, and compiled for a real one."""

import importlib
import os
import re
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from hgld.ranking.kernels import loss_gpu
from hgld.ranking.steps import UpperStep
from hgld.ranking.surrogates import Goal

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="no triton: pip install -c constraints.txt triton"
)
STEP = {"TAU": 0.01, "RHO": 100.0, "DELTA": 0.05, "START": 0.5, "LINE": -3.51}
PAIRS = {"KIND": 0, "BY_LEVEL": True, "TEMPERATURE": 1.0, **STEP, "TARGETS": 4, "SOURCES": 1024}
COUNTING = {"LEVELS": 3, "BINS": 2, "BLOCK": 1024}
CONSTANTS = {
    "loss_triton": {
        "bound_rows": {"BLOCK": 1024},
        "count_images": {"STEPS": 4, "BLOCK": 1024},
        "list_positives": {"KIND": 1, "BY_LEVEL": True, "LEVELS": 4, "BLOCK": 1024},
        "whole_rows": PAIRS,
        "weigh_positives": {**PAIRS, "PARTS": 16},
        "spread_slopes": {**PAIRS, "PARTS": 16},
    },
    "rank_triton": {
        **dict.fromkeys(
            (
                "span_scores", "count_bins", "start_bins", "fill_bins", "settle_bins",
                "count_others", "sum_ranks",
            ),
            COUNTING,
        ),
    },
}  # fmt: skip
CASES = [
    (m, name, kind) for m, names in CONSTANTS.items() for name in names for kind in ("", "ones")
]
CASES += [("loss_triton", name, "float64") for name in CONSTANTS["loss_triton"]]
TYPES = {
    "*fp32": ("scores", "ks", "parts", "weights", "gradient", "losses", "scales", "spans"),
    "*fp64": ("rel", "tables", "logs", "discounts", "harmonic", "values"),
    "*i64": ("offsets", "keys", "ranked"),
    "*i8": ("levels",),
    "i32": (
        "width",
        "rel_stride",
        "num_ks",
        "base",
        "metrics",
        "longest",
        "num_tables",
        "num_levels",
    ),
}


ONES = {"width", "rel_stride", "num_ks", "metrics", "num_tables", "num_levels", "base"}


def type_of(name: str, special: str) -> str:
    """Type of an argument; Triton makes a constant of an integer that is 1."""
    if name.isupper() or (special == "ones" and name in ONES):
        return "constexpr"
    kind = next((kind for kind, names in TYPES.items() if name in names), "*i32")
    if special == "float64" and kind == "*fp32" and name not in ("ks", "spans"):
        return "*fp64"
    return kind


@needs_triton
@pytest.mark.skipif(
    find_spec("triton") is not None and version("triton") < "3.7",
    reason="Triton's interpreter before 3.7 does not run with numpy 2.4",
)
def test_the_kernels_agree_with_the_loops_in_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    files = [f"tests/gpu/test_gpu_{name}.py" for name in ("losses", "evaluation", "bench")]
    done = subprocess.run(
        command + files, cwd=ROOT, env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 40


@needs_triton
@pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="the interpreter compiles nothing")
@pytest.mark.skipif(sys.platform != "linux", reason="Triton's assembler is a Linux program")
@pytest.mark.parametrize(("module", "name", "special"), CASES, ids=str)
def test_a_kernel_compiles_for_hopper(module, name, special, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as assemble

    function = getattr(importlib.import_module(f"hgld.ranking.kernels.{module}"), name)
    given = {**dict.fromkeys(ONES, 1), **CONSTANTS[module][name]}
    signature = {argument: type_of(argument, special) for argument in function.arg_names}
    constants = {
        (i,): given[n] for i, n in enumerate(function.arg_names) if signature[n] == "constexpr"
    }
    source = ASTSource(function, signature, constants)
    made = assemble(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    assert made.asm["cubin"]
    adds = set(re.findall(r"atom\.global[a-z0-9_.]*", made.asm["ptx"]))
    # floats are never added by two programs in one place: a run repeats bit by bit
    assert adds <= {"atom.global.gpu.relaxed.add.u32"}


@needs_triton
def test_every_kernel_is_compiled_above() -> None:
    for module, names in CONSTANTS.items():
        assert set(names) == set(importlib.import_module(f"hgld.ranking.kernels.{module}").__all__)


def test_triton_is_not_asked_where_there_is_no_gpu() -> None:
    goal = Goal("ratio", UpperStep())
    assert os.environ.get("TRITON_INTERPRET") == "1" or not loss_gpu.fits(torch.zeros(2, 2), goal)
    script = (
        "import sys, torch; from hgld.ranking import losses, metrics; "
        "losses.sup_ap(torch.rand(2, 4), torch.tensor([[1, 0, 0, 1]] * 2)); "
        "sys.exit('hgld.ranking.kernels.loss_triton' in sys.modules)"
    )
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=env).returncode == 0
