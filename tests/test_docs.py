"""The README and the pages of the site agree with the code."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from PIL import Image

from hgld.cli import app, guarded
from hgld.config import LossName
from hgld.pipeline.stages import STAGES, stage_names
from hgld.ranking.rankings import FORMS
from hgld.report.metrics_table import MEANINGS
from tests.shards.shard_world import make_world
from tests.test_layers import LAYERS
from tests.warm import python

README = Path("README.md").read_text(encoding="utf-8")
OTHERS = ("README.md", "CONTRIBUTING.md", "labels/README.md")
PAGES = [*map(Path, OTHERS), *sorted(Path("docs").glob("*.md"))]
RECORD = runpy.run_path("pipelines/record.py")


def python_blocks() -> list[tuple[Path, str]]:
    """Python examples of the pages but the one whose commands have a test of their own."""
    pages = [path for path in PAGES if path.name != "from-class-names.md"]
    texts = [(path, path.read_text(encoding="utf-8")) for path in pages]
    return [
        (p, code) for p, text in texts for code in re.findall(r"```python\n(.*?)```", text, re.S)
    ]


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", Path("Makefile").read_text(), re.M))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_make_command_in_a_page_is_a_target(page: Path) -> None:
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text("utf-8"), re.M)) <= targets()


@pytest.mark.parametrize(
    "command", sorted(set(re.findall(r"`(hgld [a-z][^`]*)`", README)) - {"hgld run PIPELINE"})
)
def test_every_command_in_the_readme_is_one(command: str) -> None:
    words = shlex.split(command)[1:]
    verb = [word for word in words if not word.startswith(("-", "pipelines/"))]
    assert guarded(lambda: app([*verb, "--help"])) == 0


def page(name: str) -> str:
    return Path("docs", name).read_text("utf-8")


def test_the_readme_has_at_most_200_lines() -> None:
    assert len(README.splitlines()) <= 200


def test_the_stages_in_the_pages_are_the_stage_table() -> None:
    table = page("run.md").split("## Stages")[1].split("## ")[0]
    assert re.findall(r"^\| ([a-z]+) \|", table, re.M)[1:] == stage_names()


def test_the_tree_in_the_pages_is_the_tree() -> None:
    for folder in re.findall(r"^([a-z]+)/ ", page("code.md"), re.M):
        assert Path(folder).is_dir(), folder


def test_the_layers_in_the_pages_are_those_that_imports_keep() -> None:
    table = page("code.md").split("## Layers")[1].split("## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.M)
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == LAYERS


def test_the_functions_in_the_walks_are_those_of_the_stages() -> None:
    named = set(re.findall(r"`(hgld[\w.]*:\w+)`", page("code.md")))
    assert named and named <= {stage.function for stage in STAGES}


def test_the_table_of_losses_has_every_loss() -> None:
    table = page("train.md").split("## Losses")[1].split("## ")[0]
    names = set(re.findall(r"`(\w+)`", table))
    assert {name.removeprefix("Sigma") for name in get_args(LossName)} <= names
    assert f"one of {len(get_args(LossName))} losses" in page("train.md")
    assert f"{len(get_args(LossName))} losses in all" in README


def test_every_metric_is_in_the_table_of_metrics_and_has_a_meaning_in_the_report() -> None:
    table = page("evaluate.md").split("## Which metric to report")[1].split("\n\nEq. 20")[0]
    names = set(FORMS)
    assert names <= set(re.findall(r"`([A-Za-z-]+)[`@:(]", table))
    assert names == set(MEANINGS)


def test_the_readme_names_every_pipeline() -> None:
    rows = Path("pipelines/README.md").read_text("utf-8")
    for path in Path("pipelines").glob("*.toml"):
        derived = path.read_text("utf-8").find("\nbase = ") > 0
        assert f"`{path.stem}:" in rows if derived else f"`pipelines/{path.name}`" in README


def test_the_figures_in_the_pages_are_those_of_the_recorded_results() -> None:
    for path, text in RECORD["pages"]().items():
        assert path.read_text("utf-8") == text, f"{path}: run python -m pipelines.record pages"


@pytest.mark.parametrize(("page", "code"), python_blocks())
def test_the_python_examples_of_the_pages_run(page: Path, code: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(code)
    if "work/quickstart" in code:
        folder, _ = make_world(tmp_path, [4] * 8).export()
        (tmp_path / "work/quickstart").mkdir(parents=True)
        folder.rename(tmp_path / "work/quickstart/shards")
    if "parents.csv" in code:
        (tmp_path / "photos/eagle owl").mkdir(parents=True)
        (tmp_path / "photos/eagle owl/1.JPG").touch()
        (tmp_path / "parents.csv").write_text("class,order,family\neagle owl,NA,true owls\n")
    if "objects.csv" in code:
        (tmp_path / "photos/a").mkdir(parents=True)
        for name in ("007_1.JPG", "007_2.jpg", "8.png", ".8.png", "labels.old"):
            (tmp_path / "photos/a" / name).touch()
        (tmp_path / "objects.csv").write_text(
            'nr,material,object,images\n007,clay,jug,"007_1.JPG;\n007_2"\n8,None,box,8\n9,wood,box,\n'
        )
    if '"genus"' in code:
        (tmp_path / "photos/Rosacées/Rosa/sp.").mkdir(parents=True)
        (tmp_path / "photos/Rosacées/Rosa/sp./1.JPG").touch()
    printed = python(tmp_path, "example.py").stdout
    assert "tensor(" in printed or page.name != "README.md"
    if "parents.csv" in code:
        rows = (tmp_path / "photos/labels.csv").read_text().splitlines()
        assert rows == ["path,order,family,class", "eagle owl/1.JPG,NA,true owls,eagle owl"]
    if "objects.csv" in code:
        rows = (tmp_path / "photos/labels.csv").read_text().splitlines()
        assert rows[0] == "path,material,object"
        assert rows[1:] == ["a/007_1.JPG,clay,jug", "a/007_2.jpg,clay,jug", "a/8.png,None,box"]
    if '"genus"' in code:
        rows = (tmp_path / "photos/labels.csv").read_text("utf-8").splitlines()
        assert rows == ["path,family,genus,species", "Rosacées/Rosa/sp./1.JPG,Rosacées,Rosa,sp."]


@pytest.mark.slow
def test_the_ten_lines_of_the_readme_end_in_the_table_of_a_model(tmp_path: Path) -> None:
    lines = README.split("Ten lines to the table")[1].split("```")[1].strip().splitlines()
    assert len(lines) == 10 and lines[0].startswith("pip install . ")
    (tmp_path / "photos").mkdir()
    rows = [f"{n}.png,{n // 8},{n // 4}" for n in range(16)]
    for number in range(16):
        colour = (200 - 50 * (number // 8), 60 * (number // 4), 10 * (number % 4))
        Image.new("RGB", (40, 30), colour).save(tmp_path / "photos" / f"{number}.png")
    (tmp_path / "photos/labels.csv").write_text("\n".join(["path,group,species", *rows]))
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n"
        "def build():\n    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
    )
    commands = Path(sys.executable).parent
    there = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}"}
    script = ["bash", "-e", "-c", "\n".join(lines[1:])]
    printed = subprocess.check_output(script, cwd=tmp_path, env=there, text=True)
    heads, values = (line.split(",") for line in printed.splitlines()[-2:])
    assert (heads[2], values[0]) == ("H-AP", "mine") and 0.5 < float(values[-3]) <= 1
    assert float(values[heads.index("R@1:species")]) == 1


def anchors(path: Path) -> set[str]:
    """Anchors of a page's headings."""
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.S)
    words = (
        re.sub(r"[^\w -]", "", heading.lower()) for heading in re.findall(r"^#+ (.+)$", text, re.M)
    )
    return {heading.strip().replace(" ", "-") for heading in words}


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_local_links_lead_to_a_file_and_a_heading(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8")):
        target, _, anchor = link.partition("#")
        found = path.parent / target if target else path
        if "://" not in link:
            assert found.exists(), link
            assert not anchor or anchor in anchors(found), link


def test_every_public_module_and_command_has_a_page() -> None:
    pages = runpy.run_path("docs/generated.py")["pages"]()
    assert {"reference/hgld.ranking.losses.md", "reference/hgld.publish.md"} <= set(pages)
    assert "## hgld shards verify\n" in pages["commands.md"]
    assert "## `[train]`\n" in pages["options.md"]
    assert not [name for name in pages if "kernels" in name]


def test_the_site_is_built_by_ci_with_broken_links_as_errors() -> None:
    assert re.search(r"^make [^#\n]*\bdocs\b", Path(".ci/run").read_text(), re.MULTILINE)
    assert "mkdocs build --strict" in Path("Makefile").read_text()
