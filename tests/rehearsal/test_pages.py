"""The roads that the pages tell, gone on made worlds, command by command."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.test_commands import QUICKSTART, blocks, commands

pytestmark = pytest.mark.rehearsal
SMALL = [
    "train.backbone=offline:efficientnet-lite0",
    "train.dim=16",
    "train.image_size=32",
    "train.classes_per_batch=4",
    "train.defaults={steps=2}",
]


def run(*words: str, folder: Path = Path()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hgld", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_road_from_an_empty_disk_up_to_the_shards(tmp_path: Path) -> None:
    """The made world stands for GLDv2; its decisions are made, so that nothing waits."""
    shown = commands(Path("docs/from-an-empty-disk.md"))
    first = next(i for i, command in enumerate(shown) if command.startswith("hgld fetch"))
    last = next(i for i, command in enumerate(shown) if command.startswith("hgld shards verify"))
    for command in shown[first : last + 1]:
        words = shlex.split(re.sub(r"pipelines/gldv2\.toml", QUICKSTART, command))[1:]
        if "--estimate" in words:
            continue
        # what the page saves is the sheet, byte by byte, where nothing was edited
        words = [word.replace("~/Downloads", str(tmp_path)) for word in words]
        words = [word.replace("work/gldv2", str(tmp_path)) for word in words]
        more = [] if words[0] == "shards" else ["--work", str(tmp_path)]
        if words[0] == "publish":  # as GLDv2's own pipeline file has it
            more += ["--set", "publish.parts=labels"]
        done = run(*words, *more)
        assert done.returncode == 0, f"{command}: {done.stderr}"
    assert (tmp_path / "release" / "croissant.json").is_file()
    assert (tmp_path / "shards" / "manifest.json").is_file()


def test_a_hierarchy_of_your_own_goes_the_whole_way(tmp_path: Path) -> None:
    (pipeline,) = blocks("bring-your-own-hierarchy.md", "toml")
    (tmp_path / "mine.toml").write_text(pipeline)
    make_photos(tmp_path / "photos", classes=16, images=5)
    settings = [word for setting in SMALL for word in ("--set", setting)]
    for command in commands(Path("docs/bring-your-own-hierarchy.md")):
        done = run(*shlex.split(command)[1:], *settings, folder=tmp_path)
        assert done.returncode == 0, f"{command}: {done.stderr}"
    release = tmp_path / "work" / "mine" / "release"
    header, *rows = (release / "labels.csv").read_text().splitlines()
    assert header == "split,class_id,order,family,species" and len(rows) == 16
    assert len((release / "images.csv").read_text().splitlines()) == 81
    assert (release / "shards" / "attribution.csv").is_file()


def make_photos(folder: Path, classes: int, images: int) -> None:
    """Photos of noise, each class of its own grey, in the form that the page describes."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    lines = ["path,order,family,species"]
    for number in range(classes):
        for image in range(images):
            pixels = rng.integers(10 * number, 10 * number + 60, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}-{image}.jpg")
            names = f"order {number // 4},family {number // 2},species {number}"
            lines.append(f"{number}-{image}.jpg,{names}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
