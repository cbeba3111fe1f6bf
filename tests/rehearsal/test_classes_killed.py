"""From class folders to a release with three and with five levels, once killed on the way.

Each command is killed at a random moment of each of its stages, and of the start where it has none,
then started again. Both ways end with the same bytes, in the work folder and in the labels.
"""

import json
import random
import re
import shlex
import subprocess
from pathlib import Path
from time import perf_counter

import pandas as pd
import pytest
from PIL import Image

from tests.hierarchy.made_dump import write_dumps
from tests.mediawiki.world import entity, is_a
from tests.test_class_folders import decide, edit, kill_after, require_same_bytes, shrink
from tests.warm import Command

CLASSES = {  # class -> what it is; of "pine" the dump has another spelling
    "bread": "baked goods", "pie": "pastry", "fox": "canid", "wolf": "canid", "oak": "tree",
    "pine": "tree",
}  # fmt: skip
LEVELS = {3: ("realm", "group"), 5: ("root", "realm", "branch", "group")}
ABOVE = {3: [2], 5: [1, 2, 3]}
BEFORE_REVIEW = ("fetch", "collect", "link", "scrape", "clean", "hint", "embed", "cluster")
AFTER_REVIEW = ("review", "label", "export", "train", "evaluate", "report")
COMMANDS = (  # words, exit code, stages after each of which it is killed
    ("run mine.toml", 20, BEFORE_REVIEW),
    ("link mine.toml --apply", 0, ("", "", "")),
    ("run mine.toml", 20, ("link", "clean", "cluster")),
    ("taxonomy propose mine.toml", 0, ("", "", "")),
    ("run mine.toml", 20, ("embed",)),
    ("review mine.toml --apply", 0, ("", "", "", "")),
    ("run mine.toml", 0, AFTER_REVIEW),
)


def draft(folder: Path, levels: int) -> None:
    """Class folders, a dump that has items of their names, and the drafted pipeline."""
    kinds = {kind: f"Q{100 + i}" for i, kind in enumerate(sorted({*CLASSES.values()}))}
    entities = {item: entity(item, en=kind) for kind, item in kinds.items()}
    for number, (name, kind) in enumerate(CLASSES.items()):
        item = f"Q{200 + number}"
        label = "Pinus" if name == "pine" else name
        entities[item] = entity(item, is_a(kinds[kind], prop="P279"), en=label)
        (folder / "photos" / name).mkdir(parents=True)
        for i in range(4):
            colour = (40 * number, 60 * i, 90)
            Image.new("RGB", (40, 32), colour).save(folder / "photos" / name / f"{i}.png")
    document = {"pages": {"x": {}}, "redirects": {}, "entities": entities}
    dump = write_dumps(document, folder / "dump")["entities"]
    hgld(folder, "new photos --out mine.toml", 0)
    shrink(folder / "mine.toml")
    text = (folder / "mine.toml").read_text()
    scrape = f'source = "items"\ndump_entities = "dump/{dump.name}"\nproperties = ["P279"]'
    named = f"levels = {json.dumps(LEVELS[levels])}\nabove = {ABOVE[levels]}"
    for line, other in (
        ('source = "names"', scrape),
        (r'levels = \["supercategory"\]', named),
        (r"clusters = \d+", "clusters = 4"),
    ):
        text, changed = re.subn(line, other, text)
        assert changed, line
    (folder / "mine.toml").write_text(text)


def hgld(folder: Path, words: str, exit_code: int) -> float:
    """Run a command to its end; return its seconds."""
    start = perf_counter()
    with Command(shlex.split(words), cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        said = process.stderr.read()
    assert process.returncode == exit_code, (words, said)
    return perf_counter() - start


def answer(folder: Path, words: str) -> None:
    """Fill in the sheet that a command applies, as a person would."""
    work = folder / "work" / "mine"
    if words.startswith("link"):
        sheet = pd.read_csv(work / "link_review.csv", dtype=str, keep_default_na=False)
        assert sheet["name"].tolist() == ["pine"]
        edit(work / "link_review.csv", sheet.assign(qid="Q205", note="the tree"))
    elif words.startswith("review"):
        decide(work)


@pytest.mark.rehearsal
@pytest.mark.parametrize("levels", LEVELS)
def test_kills_in_each_stage_change_no_byte_and_lose_no_decision(folder: Path, levels: int) -> None:
    draw = random.Random(levels)
    signed = "--now 2026-01-01 --set review.who=Ann"
    seconds, hit = [], []
    for name in ("whole", "killed"):
        draft(folder / name, levels)
        for number, (words, exit_code, stages) in enumerate(COMMANDS):
            answer(folder / name, words)
            if name == "killed":
                for stage in stages:
                    wait = draw.uniform(0, 0.6 if stage else 0.9 * seconds[number])
                    given = shlex.split(f"{words} {signed}")
                    hit.append(kill_after(folder / name, stage, wait, *given))
            spent = hgld(folder / name, f"{words} {signed}", exit_code)
            seconds += [spent] if name == "whole" else []
    assert sum(hit) > 0.7 * len(hit)  # others had ended before
    whole, killed = folder / "whole", folder / "killed"
    require_same_bytes(killed / "work" / "mine", whole / "work" / "mine")
    for file in (whole / "labels").rglob("*.csv"):
        assert (killed / file.relative_to(whole)).read_bytes() == file.read_bytes(), file.name
    decided = pd.read_csv(killed / "labels" / "mine" / "decisions.csv")
    links = pd.read_csv(killed / "labels" / "mine" / "links.csv")
    assert len(decided) == 4 and links["qid"].tolist() == ["Q205"]
    paths = pd.read_csv(killed / "work" / "mine" / "hierarchy.csv")["path"].map(json.loads)
    assert len(paths) == len(CLASSES) and {len(path) for path in paths} == {levels}
    assert set(pd.read_csv(killed / "work" / "mine" / "release" / "labels.csv")) >= {"group"}
