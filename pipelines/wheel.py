"""Build a wheel with compiled kernels, for this Python and platform: ``make wheel``.

For each level of instructions in ``hgld.compiled.LEVELS`` that this CPU has, a process calls
whatever has kernels on a small input. Their machine code goes into the package;
``hgld.compiled`` decides on each machine whether it fits.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hgld.compiled import KERNELS, LEVELS, MACHINE_CODE, levels_of_cpu, machine_code
from hgld.errors import HgldError

ROOT = Path(__file__).parents[1]


def build_wheel(out: Path, levels: Iterable[str]) -> Path:
    """Build the wheel into a folder, with kernels for levels of this CPU; return its path."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        ignored = shutil.ignore_patterns("__pycache__", MACHINE_CODE.name)
        shutil.copytree(ROOT / "hgld", source / "hgld", ignore=ignored)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        for level in levels:
            own = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": LEVELS[level][0]}
            empty = {"NUMBA_CACHE_DIR": str(Path(folder, level))}
            to = source / "hgld" / MACHINE_CODE.name / level
            _python("-m", "pipelines.wheel", "--kernels", to, **own, **empty)
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        tags = f"--python-tag=cp{sys.version_info[0]}{sys.version_info[1]} --plat-name={platform}"
        options = "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder
        _python("-m", "pip", "wheel", *options, f"--config-settings=--build-option={tags}", source)
        (wheel,) = Path(folder).glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(wheel, out / wheel.name))


def _python(*words: str | Path, **environment: str) -> None:
    subprocess.run([sys.executable, *words], env={**os.environ, **environment}, check=True)


def write_kernels(folder: Path) -> None:
    """Compile all kernels for the CPU that numba's variables name; write their machine code.

    Raises:
        HgldError: a kernel differs from plain torch.
    """
    import numpy as np
    import torch

    from hgld.ranking import metrics
    from hgld.ranking.first_call import compile_metrics
    from hgld.ranking.kernel_comparison import compare_kernels
    from hgld.ranking.structure import find_winners
    from hgld.shards.batches import plan_epoch
    from hgld.shards.sampling import BatchOptions, Samples
    from hgld.shards.tar import scan_tar

    for found in compare_kernels(torch.device("cpu")):
        if not found.same:
            raise HgldError(f"the kernels for {found.name} differ from plain torch: {found}")
    compile_metrics()
    metrics.h_rank_plus(torch.ones(1, 2), torch.ones(1, 2, dtype=torch.int8), num_levels=1)
    find_winners(np.zeros((1, 2, 1), np.int64), np.array([2]))
    labels = np.arange(32)[:, None] // [16, 4]
    runs = np.arange(32) // 4
    samples = Samples(labels, runs, runs // 4)
    for order in ("random", "shards"):
        for groups in (None, 2):
            options = BatchOptions(2, 2, order=order, groups_per_batch=groups)
            plan_epoch(samples, options, seed=0, epoch=0)
    with tempfile.NamedTemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            tar.add(__file__)
        file.flush()
        list(scan_tar(Path(file.name)))
    folder.mkdir(parents=True)
    for function in KERNELS:
        store = machine_code(function.py_func, folder)
        for signature, made in function.overloads.items():
            # its listing of types names the files of this machine
            store.save(signature, made._replace(type_annotation="")._reduce())


def main() -> None:
    """Build the wheel, or compile the kernels of one level for it."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.wheel")
    parser.add_argument("out", type=Path, help="folder of the wheel")
    parser.add_argument("--kernels", action="store_true", help="write the kernels there instead")
    given = parser.parse_args()
    if given.kernels:
        write_kernels(given.out)
    else:
        print(build_wheel(given.out, levels_of_cpu()))


if __name__ == "__main__":
    main()
