"""Every command that a page shows is one that hgld takes, with options that exist."""

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from hgld.cli import app
from hgld.config import load_pipeline

QUICKSTART = "pipelines/quickstart.toml"
PAGES = [Path("README.md"), *sorted(Path("docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def commands(page: Path) -> list[str]:
    """The lines of a page's blocks that begin with hgld, without what they say after a #."""
    shown = [text for language, text in BLOCK.findall(page.read_text("utf-8")) if not language]
    lines = [re.split("  #| > ", line)[0].strip() for text in shown for line in text.split("\n")]
    return [line for line in lines if line.startswith("hgld ")]


def parse(words: list[str]) -> dict[str, Any]:
    """The options and arguments that hgld takes these words for; nothing is run."""
    command: Any = get_command(app)
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    found: dict[str, Any] = command.make_context("hgld", list(words)).params
    return found


@pytest.mark.parametrize(
    "command", sorted({command for page in PAGES for command in commands(page)})
)
def test_a_command_in_a_page_is_one(command: str) -> None:
    named = re.sub(r"\bPIPELINE\b|\b(mine|kinds|deep)\.toml\b", QUICKSTART, command)
    words = shlex.split(named, comments=True)
    words = [word.strip("[]") for word in words[1:]]
    parse(words)
    sets = [after for word, after in itertools.pairwise(words) if word == "--set"]
    for file in (word for word in words if word.endswith(".toml")):
        load_pipeline(Path(file), sets)


def test_the_pages_show_commands_at_all() -> None:
    assert {page.name for page in PAGES if len(commands(page)) >= 3} >= {
        "README.md",
        "bring-your-own-hierarchy.md",
        "from-an-empty-disk.md",
        "review.md",
    }


def blocks(page: str, language: str) -> list[str]:
    text = (Path("docs") / page).read_text("utf-8")
    return [block for name, block in BLOCK.findall(text) if name == language]


def test_the_pipeline_file_of_your_own_hierarchy_loads(tmp_path: Path) -> None:
    (block,) = blocks("bring-your-own-hierarchy.md", "toml")
    (tmp_path / "mine.toml").write_text(block)
    pipeline = load_pipeline(tmp_path / "mine.toml")
    assert pipeline.source.folder == tmp_path / "photos" and set(pipeline.train.runs) == {
        "pretrained",
        "happier",
        "smooth_ap",
    }


def test_what_is_to_be_written_into_the_pipeline_file_are_options(tmp_path: Path) -> None:
    block, _ = blocks("from-an-empty-disk.md", "toml")
    (tmp_path / "part.toml").write_text(f'labels = "labels"\n{block}')
    pipeline = load_pipeline(tmp_path / "part.toml")
    assert (pipeline.fetch.short_side, pipeline.fetch.tars) == (256, "0")


def test_what_the_labels_allow_is_what_the_published_ones_do(tmp_path: Path) -> None:
    _, line = blocks("from-an-empty-disk.md", "toml")
    text = (
        Path("pipelines/gldv2.toml").read_text("utf-8").replace("kept_megabytes = 52", line.strip())
    )
    (tmp_path / "gldv2.toml").write_text(text, "utf-8")
    given, published = (
        next(d for d in load_pipeline(path).fetch.downloads if d.url.startswith("train/"))
        for path in (tmp_path / "gldv2.toml", Path("pipelines/h-gldv2.toml"))
    )
    assert given.kept_megabytes == published.kept_megabytes
    assert Path(given.labelled_csv).name == Path(published.labelled_csv).name
