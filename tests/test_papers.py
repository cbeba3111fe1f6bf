"""The list of the papers' equations, figures and tables is complete, and its names resolve."""

import ast
import re
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

LIST = tomllib.loads(Path("pipelines/papers/equations.toml").read_text("utf-8"))
PAPERS = {paper["name"]: paper["entries"] for paper in LIST["paper"]}
ENTRIES = [
    pytest.param(entry, id=f"{paper} {entry['item']}")
    for paper, entries in PAPERS.items()
    for entry in entries
]
NUMBERED = {  # what each paper numbers, by hand from its pages
    "Ramzi et al. 2024": {"Eq. ": 58, "Fig. ": 15, "Table ": 11, "Property ": 1},
    "Ramzi et al. 2021": {"Eq. ": 11, "Fig. ": 16, "Table ": 10},
    "Brown et al. 2020": {
        "Eq. ": 8, "Eq. S": 1, "Fig. ": 4, "Fig. S": 7, "Table ": 5, "Table S": 1, "Algorithm ": 1,
    },
    "Revaud et al. 2019": {"Eq. ": 11, "Fig. ": 1, "Table ": 2, "Algorithm ": 1},
    "Rolinek et al. 2020": {
        "Eq. ": 28, "Fig. ": 6, "Table ": 9, "Algorithm ": 1, "Proposition ": 2, "Theorem ": 1,
    },
}  # fmt: skip
ROMAN = ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI"]


def resolve(name: str) -> object:
    """The object of a dotted name below hgld or pipelines."""
    parts = name.split(".") if name.startswith("pipelines.") else ["hgld", *name.split(".")]
    found: object = import_module(".".join(parts[:-1]))
    return getattr(found, parts[-1])


@cache
def functions_in(file: str) -> set[str]:
    """Names of the test functions of a file."""
    tree = ast.parse(Path("tests", file).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def numbers(item: str) -> list[str]:
    """The numbered items that an entry covers: "Eq. 8-9" is Eq. 8 and Eq. 9."""
    match = re.fullmatch(r"([A-Z]\w+\.? S?)(\d+|[XVI]+)(?:-S?(\d+|[XVI]+))?", item)
    if match is None or match[1].startswith("Section"):
        return []
    ends = match[2], match[3] or match[2]
    first, last = (ROMAN.index(end) if end in ROMAN else int(end) for end in ends)
    return [f"{match[1]}{number}" for number in range(first, last + 1)]


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_names_code_and_tests_that_exist(entry: dict[str, object]) -> None:
    assert entry["about"] and entry["code"] and entry["tests"]
    for name in entry["code"]:
        assert resolve(name) is not None
    for test in entry["tests"]:
        file, _, function = test.partition("::")
        assert function in functions_in(file), test
    assert Path(entry.get("rows", "README.md")).is_file()


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_number_of_a_paper_is_listed_once(paper: str) -> None:
    missing = [item for e in LIST["not_here"] if e["paper"] == paper for item in e["items"]]
    items = [entry["item"] for entry in PAPERS[paper]] + missing
    found = [number for item in items for number in numbers(item)]
    wanted = [f"{kind}{n}" for kind, most in NUMBERED[paper].items() for n in range(1, most + 1)]
    assert sorted(found) == sorted(wanted)


def test_a_table_and_a_step_of_a_long_proof_have_an_entry_each() -> None:
    entries = [entry["item"] for entries in PAPERS.values() for entry in entries]
    assert all(len(numbers(item)) == 1 for item in entries if item.startswith("Table"))
    assert max(len(numbers(item)) for item in entries) <= 7  # the gradient of quantised AP


def test_a_table_of_results_is_in_the_list_of_rows() -> None:
    path = "pipelines/papers/tables.toml"
    tables = tomllib.loads(Path(path).read_text("utf-8"))["table"]
    found = {(t["paper"], n) for t in tables for n in numbers(t["name"].partition(",")[0])}
    results = [(p, e) for p, entries in PAPERS.items() for e in entries if e.get("rows") == path]
    assert found == {(paper, n) for paper, entry in results for n in numbers(entry["item"])}


def test_the_losses_and_the_readme_name_what_is_not_here() -> None:
    module = import_module("hgld.ranking.losses")
    missing = " ".join((module.__doc__ or "").split()).partition("others are not: ")[2]
    named = {name.strip(".") for name in missing.split(", ")}
    for entry in LIST["not_here"]:
        assert named.issuperset(entry.get("losses", [])), entry["items"]
        assert not any(hasattr(module, name) for name in entry.get("losses", []))
        assert entry["paper"] in PAPERS and entry["about"]
    assert "docs/papers.md" in Path("README.md").read_text("utf-8")
    assert "\n## Not here\n" in Path("docs/papers.md").read_text("utf-8")
