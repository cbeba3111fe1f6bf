"""The README and the pages are held to the truth."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hgld.cli import app, guarded
from hgld.pipeline.stages import stage_names

README = Path("README.md").read_text(encoding="utf-8")
PAGES = [Path("README.md"), *Path("docs").glob("*.md"), *Path("pipelines").glob("*.md")]
RECORD = runpy.run_path("pipelines/record.py")


def targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", Path("Makefile").read_text(), re.M))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_make_command_in_a_page_is_a_target(page: Path) -> None:
    assert set(re.findall(r"\bmake ([a-z]+)", page.read_text("utf-8"))) - {"and"} <= targets()


@pytest.mark.parametrize(
    "command", sorted(set(re.findall(r"`(hgld [a-z][^`]*)`", README)) - {"hgld run PIPELINE"})
)
def test_every_command_in_the_readme_is_one(command: str) -> None:
    words = shlex.split(command)[1:]
    verb = [word for word in words if not word.startswith(("-", "pipelines/"))]
    assert guarded(lambda: app([*verb, "--help"])) == 0


def test_the_flow_in_the_readme_is_the_stage_table() -> None:
    flow = README.split("## The flow")[1].split("## Pipelines")[0]
    assert re.findall(r"^\| ([a-z]+) \|", flow, re.M)[1:] == stage_names()


def test_the_tree_in_the_readme_is_the_tree() -> None:
    house = README.split("## The house")[1]
    for folder in re.findall(r"^([a-z]+)/ ", house, re.M):
        assert Path(folder).is_dir(), folder
    chain = re.sub(r"\s+", " ", re.findall(r"cli > .*?errors", house, re.S)[0])
    for word in re.split(r" > |, ", chain):
        assert Path("hgld", word).is_dir() or Path("hgld", f"{word}.py").is_file(), word


def test_the_readme_names_every_pipeline() -> None:
    for path in Path("pipelines").glob("*.toml"):
        assert f"`pipelines/{path.name}`" in README


def test_the_figures_in_the_pages_are_those_of_the_recorded_results() -> None:
    for path, text in RECORD["pages"]().items():
        assert path.read_text("utf-8") == text, f"{path}: run python pipelines/record.py pages"


def test_the_library_example_in_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = README.split("```python\n")[1].split("```")[0]
    exec(code, {})
    assert "tensor(" in capsys.readouterr().out


def test_local_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            assert "://" in target or (page.parent / target).exists(), f"{page}: {target}"


def test_the_api_reference_is_made_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "docs/api.py", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    text = (tmp_path / "hgld" / "ranking" / "losses.html").read_text("utf-8")
    assert "sup_ap" in text and "Hierarchical" in text
    assert (tmp_path / "hgld" / "publish.html").is_file()
    assert not list(tmp_path.rglob("gpu*.html"))
