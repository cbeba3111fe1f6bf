"""Imports point down: a module knows only the layers below its own."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "hgld"
LAYERS = [
    {"cli"},
    {"tools"},
    {"doctor", "overview", "reviewing"},
    {"plan"},
    {"run"},
    {"console"},
    {"counting"},
    {"lock"},
    {"train", "evaluate", "report", "publish"},
    {"sources", "hierarchy", "shards"},
    {"model"},
    {"ranking"},
    {"alone", "artifacts", "credit", "figures", "resize", "tasks", "stages"},
    {"config"},
    {"errors", "_torchvision"},
]
MODULES = sorted(PACKAGE.rglob("*.py"))
HEAVY = {"torch", "pandas", "numpy", "open_clip", "timm", "sklearn", "webdataset", "matplotlib"}


def imports_of(path: Path) -> set[str]:
    """Absolute module names that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def room(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def layer(word: str) -> int | None:
    return next((i for i, words in enumerate(LAYERS) if word in words), None)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    if own == "__init__" or own == "__main__":
        return
    here = layer(own)
    assert here is not None, f"{own} stands in no layer"
    for name in imports_of(path):
        word = room(name) if name.startswith("hgld.") else ""
        if word and word != own and not word.startswith("__"):
            there = layer(word)
            assert there is not None and there > here, f"{path.name} imports {name}"


@pytest.mark.parametrize(
    "name", ["cli", "tools/labels", "tools/shards", "stages", "config", "errors", "tasks"]
)
def test_the_command_line_starts_light(name: str) -> None:
    tree = ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8"))
    top = {
        alias.name.split(".")[0]
        for node in tree.body
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        (node.module or "").split(".")[0] for node in tree.body if isinstance(node, ast.ImportFrom)
    }
    assert not top & HEAVY


def test_no_module_is_an_attic() -> None:
    assert not {p.stem for p in MODULES} & {"utils", "common", "helpers", "misc", "base"}
