"""Imports point down: a module knows only the layers below its own, and what they make public."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "hgld"
LAYERS = [
    {"cli"},
    {"pipeline"},
    {"train", "evaluate", "report", "publish", "review"},
    {"sources", "hierarchy"},
    {"figures", "shards", "model"},
    {
        "bootstrap",
        "credit",
        "file_lock",
        "http",
        "images",
        "ranking",
        "tasks",
    },
    {"artifacts", "compiled", "config", "home", "ray_tasks", "storage"},
    {
        "errors",
        "lazy",
        "stopping",
        "template_files",
        "torchvision_operators",
        "words",
    },
]
MODULES = sorted(PACKAGE.rglob("*.py"))
HEAVY = {"torch", "pandas", "numpy", "open_clip", "timm", "sklearn", "webdataset", "matplotlib"}


def imports_of(path: Path) -> set[str]:
    """Absolute module names that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in nodes(tree(path)):
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
    "name",
    [
        "cli/__init__",
        "cli/labels",
        "cli/shards",
        "pipeline/stages",
        "config/pipeline_file",
        "errors",
        "tasks",
    ],
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


def test_a_public_class_has_its_own_name() -> None:
    named: dict[str, list[str]] = {}
    for path in MODULES:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                named.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in named.items() if len(places) > 1} == {}


def test_no_module_is_an_attic() -> None:
    assert not {p.stem for p in MODULES} & {"utils", "common", "helpers", "misc", "base"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(module: ast.Module) -> list[ast.AST]:
    """Imports, attributes and constants of a module, in the order of ``ast.walk``."""
    kinds = ast.Import | ast.ImportFrom | ast.Attribute | ast.Constant
    return [node for node in ast.walk(module) if isinstance(node, kinds)]


def trees(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Every module of these folders by its name."""
    root = PACKAGE.parent
    for path in (p for folder in folders for p in sorted((root / folder).rglob("*.py"))):
        parts = path.relative_to(root).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), tree(path)


def public_names(module: ast.Module) -> set[str] | None:
    """What ``__all__`` lists; None where a module has none."""
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return None


PUBLIC = {name: public_names(module) for name, module in trees("hgld", "pipelines")}
Taken = Iterator[tuple[set[str], str, str]]  # of one of these modules, this name, by this module


def imported(*folders: str) -> Taken:
    """Names that are imported from a module."""
    for user, module in trees(*folders):
        for node in nodes(module):
            if isinstance(node, ast.ImportFrom) and node.module in PUBLIC:
                names = {a.name for a in node.names if f"{node.module}.{a.name}" not in PUBLIC}
                yield from (({node.module}, name, user) for name in sorted(names))


def read(*folders: str) -> Taken:
    """Names that are read of a module that is imported as a whole."""
    for user, module in trees(*folders):
        known: dict[str, set[str]] = {}
        for node in nodes(module):
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                if f"{node.module}.{alias.name}" in PUBLIC:
                    word = alias.asname or alias.name
                    known.setdefault(word, set()).add(f"{node.module}.{alias.name}")
        for node in nodes(module) if known else ():
            whole = node.value if isinstance(node, ast.Attribute) else None
            if isinstance(whole, ast.Name) and whole.id in known:
                yield known[whole.id], node.attr, user


def unlisted(taken: Taken) -> list[str]:
    return [
        f"{user} takes {name} of {' or '.join(sorted(modules))}"
        for modules, name, user in taken
        if all(name not in (public or {name}) for public in map(PUBLIC.get, modules))
    ]


def test_a_name_that_another_module_imports_is_public() -> None:
    assert not unlisted(imported("hgld", "pipelines", "tests"))


def test_a_name_that_another_module_reads_is_public() -> None:  # tests may look inside a module
    assert not unlisted(read("hgld", "pipelines"))


MODULE = dict(trees("hgld"))


@cache
def source_of(module: str, name: str) -> set[str]:
    """The module that defines a name, and the packages that pass it on."""
    if f"{module}.{name}" in MODULE:
        return {module, f"{module}.{name}"}
    passed = [
        node.module
        for node in nodes(MODULE[module])
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}
    ]
    return {module}.union(*(source_of(m, name) for m in passed if m in MODULE))


@cache
def used_by(user: str) -> set[str]:
    """Modules that a module imports, or names in a string to load them later.

    What a package passes on counts only for those who take it.
    """
    package = (PACKAGE.parent / user.replace(".", "/")).is_dir()
    passed_on = (PUBLIC[user] or set()) if package else set()
    found = set()
    for node in nodes(MODULE[user]):
        if isinstance(node, ast.ImportFrom) and node.module in MODULE:
            taken = (alias.name for alias in node.names if alias.name not in passed_on)
            found |= {m for name in taken for m in source_of(node.module, name)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            module, _, name = node.value.partition(":")
            if module in MODULE:
                found |= source_of(module, name)
    return found


def reached(start: Iterable[str]) -> set[str]:
    """Modules that these modules use, directly or not."""
    seen: set[str] = set()
    coming = set(start)
    while coming:
        seen |= coming
        coming = set().union(*map(used_by, coming)) - seen
    return seen


def shown() -> set[str]:
    """Modules of which a page has an example; test_docs runs them."""
    pages = [Path("README.md"), *Path("docs").glob("*.md")]
    blocks = [
        ast.parse(code)
        for page in pages
        for code in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.S)
    ]
    taken = (node for block in blocks for node in ast.walk(block))
    return {
        module
        for node in taken
        if isinstance(node, ast.ImportFrom) and node.module in MODULE
        for alias in node.names
        for module in source_of(node.module, alias.name)
    }


def folder(module: str) -> str:
    """The folder that holds a module; a package's own code is in the package's."""
    is_package = (PACKAGE.parent / module.replace(".", "/")).is_dir()
    return module if is_package else module.rpartition(".")[0]


def run_time(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from run_time(child)


def test_folders_make_no_circle() -> None:
    uses: dict[str, set[str]] = {}
    for user, module in MODULE.items():
        for node in run_time(module):
            if isinstance(node, ast.ImportFrom) and node.module in MODULE:
                names = (f"{node.module}.{alias.name}" for alias in node.names)
                found = {folder(n if n in MODULE else node.module) for n in names}
                # the layers hold for modules at the root, each by itself
                uses.setdefault(folder(user), set()).update(found - {folder(user), "hgld"})
    uses.pop("hgld")
    TopologicalSorter(uses).prepare()  # raises CycleError, which names the folders


def test_every_module_is_reached_by_a_command_or_shown_in_a_page_and_tested() -> None:
    by_commands = reached({"hgld.__main__"})
    tested = {module for modules, _, _ in imported("tests") for module in modules}
    tested |= {f"{m}.{name}" for modules, name, _ in read("tests") for m in modules}
    holding_code = {name for name, module in MODULE.items() if len(module.body) > 1}
    assert holding_code - by_commands - reached(shown() & tested) == set()
