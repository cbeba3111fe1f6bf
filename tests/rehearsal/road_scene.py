"""GLDv2 at 1 % of its size, all of it made: a server of its files, a wiki, and what people decide.

The files are made in GLDv2's layout, in as many tars as there truly are, with their MD5s. Of each
category there is a page in the wiki or a reason why not. The values are the real ones of
``labels/gldv2/decisions.csv``, and the person at the review decides as that file does.
"""

import csv
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pandas as pd

from tests.full_size.made_world import make_world, sizes_of
from tests.mediawiki.made import FIRST_CLASS, WIKIMEDIA_CATEGORY, Part
from tests.mediawiki.wiki import fill_copy, serve
from tests.mediawiki.world import World, is_a
from tests.rehearsal.scrape_scene import FOUND, MISSED, require_table
from tests.sources.file_server import Files, serve_files

__all__ = ["SHARE", "Servers", "Truth", "decide", "prepare_labels", "read_rows", "serve_all"]

SHARE = 0.01
LABELS = Path("labels/gldv2")
IRRELEVANT = ("Wikimedia category", "Wikimedia disambiguation page")

Row = dict[str, str]


@dataclass(frozen=True)
class Truth:
    """The statements, and the reasons for none, that a scrape has to find."""

    found: list[tuple[str, int, str, int, str]]
    missed: list[tuple[str, int, str]]

    def require(self, found: pd.DataFrame, missed: pd.DataFrame) -> None:
        """The tables of a scrape hold exactly these."""
        require_table(found, FOUND, self.found)
        require_table(missed, MISSED, self.missed)

    def labels(self, split: str) -> dict[str, tuple[str, str]]:
        """Landmark -> supercategory and kind of its first value that is not irrelevant."""
        words, first = list(decided().values()), dict[str, Row]()
        for place, landmark, _, _, class_id in sorted(self.found, key=lambda fact: fact[:4]):
            word = words[int(class_id[1:]) - FIRST_CLASS]
            if place == split and word["key"] not in IRRELEVANT:
                first.setdefault(str(landmark), word)
        kept = {at: word for at, word in first.items() if word["decision"] == "keep"}
        return {at: (word["supercategory"], word["kind"]) for at, word in kept.items()}


@dataclass(frozen=True)
class Servers:
    """Where the files and the wiki are, what was asked for, and what is true."""

    files: Files
    files_url: str
    wiki_url: str
    truth: Truth


@contextmanager
def serve_all(template: Path, folder: Path) -> Iterator[Servers]:
    """Make the world and serve it."""
    source = folder / "made"
    make_world(source, SHARE, all_tars=True)
    part, world = _wiki_of(source)
    truth = Truth(part.found + _in_index(part.found), part.missed + _in_index(part.missed))
    files = Files(_read_all(source))
    shutil.rmtree(source)
    wiki = fill_copy(template, folder / "wiki", [world, part.world])
    with serve_files(files) as url, serve(wiki) as served:
        yield Servers(files, url, served.url, truth)


def _read_all(source: Path) -> dict[str, bytes]:
    """The files by path, and the MD5 of each tar in a file of its own."""
    data = {str(p.relative_to(source)): p.read_bytes() for p in source.rglob("*") if p.is_file()}
    for name in [name for name in data if name.endswith(".tar")]:
        split, _, tar = name.partition("/")
        note = f"{hashlib.md5(data[name], usedforsecurity=False).hexdigest()}  {tar}\n"
        data[f"md5sum/{split}/md5.{tar.removesuffix('.tar')}.txt"] = note.encode()
    return data


def _wiki_of(source: Path) -> tuple[Part, World]:
    """The pages and items of the train landmarks, and the classes that the items are of."""
    words = decided()
    part = Part(classes=len(words))
    for row in read_rows(source / "metadata/train_label_to_category.csv"):
        name = unquote(row["category"].partition("Category:")[2]).replace("_", " ")
        part.add(int(row["landmark_id"]), name)
    return part, _classes(list(words.values()))


def _in_index(facts: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The same of the index landmarks, whose categories are those of the first train landmarks."""
    return [("index", *f[1:]) for f in facts if f[1] < sizes_of(SHARE).index_landmarks]


def _classes(words: Sequence[Row]) -> World:
    """A class a word, most of them below a known class of their supercategory."""
    world, roots = World(), read_rows(LABELS / "class_roots.csv")
    above = {row["supercategory"]: row["class_id"] for row in roots}
    for root in roots:
        world.item(root["class_id"], en=root["label"])
    world.item(WIKIMEDIA_CATEGORY, en="Wikimedia category")
    for number, word in enumerate(words):
        known = above.get(word["supercategory"])
        claims = [is_a(known, prop="P279")] if known else []
        world.item(f"Q{FIRST_CLASS + number}", *claims, en=word["key"])
    return world


def decided() -> dict[str, Row]:
    """What the project's own people say of each word."""
    return {row["key"]: row for row in read_rows(LABELS / "decisions.csv")}


def prepare_labels(folder: Path) -> Path:
    """A labels folder in which nothing is decided."""
    folder.mkdir(parents=True)
    for name in ("taxonomy.csv", "class_roots.csv"):
        shutil.copy(LABELS / name, folder)
    return folder


def decide(sheet: Path) -> int:
    """Fill in the review sheet as a person does in a spreadsheet; how many values there are."""
    rows, known = read_rows(sheet), decided()
    for row in rows:
        row |= {name: known[row["instance_of"]][name] for name in ("decision", "supercategory")}
    with sheet.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), delimiter=";")
        writer.writeheader()
        writer.writerows(rows)
    return len(rows)


def read_rows(path: Path) -> list[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))
