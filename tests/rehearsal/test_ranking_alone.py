"""The ranking library alone: the wheel without its dependencies, beside torch, numpy and numba."""

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.rehearsal

DOCTESTS = """
import doctest, importlib, pkgutil, sys
import hgld.ranking
import hgld.ranking.losses  # before names that it imports are deleted below
from hgld.errors import HgldError

assert hgld.__file__.startswith(sys.prefix), hgld.__file__
failed = attempted = 0
for found in pkgutil.walk_packages(hgld.ranking.__path__, "hgld.ranking."):
    try:
        module = importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        assert error.name == "triton", error  # its kernels run where torch brings Triton
        continue
    except HgldError as error:
        assert found.name == "hgld.ranking.torchmetrics", error
        assert 'pip install "hgld[train]"' in str(error)
        continue
    if found.name == "hgld.ranking.baselines":  # some losses are those of another package
        try:
            module.Triplet()
        except HgldError as error:
            assert "pip install pytorch-metric-learning" in str(error)
        del module.Triplet, module.FastAP, module.ProxyAnchor
        del module.ArcFace, module.SubCenterArcFace, module.CosFace
    results = doctest.testmod(module, extraglobs={"torch": importlib.import_module("torch")})
    failed, attempted = failed + results.failed, attempted + results.attempted
print(failed, attempted > 100, "pandas" in sys.modules)
"""


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs(*names: str) -> set[str]:
    """Distributions that are installed here, and those that they require, without their extras."""
    found: set[str] = set()
    for name in names:
        for line in importlib.metadata.requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                found.add(requirement.name)
    return {*names} | (needs(*found) if found else set())


def link(distribution: str, folder: Path) -> None:
    """Link what a distribution installed into a folder, as downloads of gigabytes are slow."""
    installed = importlib.metadata.distribution(distribution)
    for top in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
        (folder / top).symlink_to(installed.locate_file(top))


def test_the_wheel_beside_torch_numpy_and_numba_passes_the_doctests_of_ranking(
    tmp_path: Path,
) -> None:
    source = tmp_path / "source"
    shutil.copytree("hgld", source / "hgld", ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(file, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, source)
    (wheel,) = tmp_path.glob("hgld-*.whl")

    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "alone")
    python = tmp_path / "alone" / "bin" / "python"
    run(*pip, "--python", python, "install", "-q", "--no-deps", wheel)
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    for distribution in needs("torch", "numpy", "numba"):
        link(distribution, Path(packages))

    assert run(python, "-I", "-c", DOCTESTS) == "0 True False\n"
