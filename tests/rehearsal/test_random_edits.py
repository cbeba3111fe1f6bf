"""Random changes to photos, labels, options and outputs: a run makes what a fresh folder gets.

After each few changes, the run goes on in its work folder, and another one starts in a new folder.
The outputs have the same bytes, and the plan has named each stage that ran.
"""

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from PIL import Image

from hgld.artifacts import ARTIFACTS, Table, hash_file
from hgld.config import load_pipeline
from hgld.errors import HgldError
from hgld.pipeline.lock import Workspace
from hgld.pipeline.plan import plan
from hgld.pipeline.run import Runner
from tests.listening import Notes
from tests.test_run import draw_images

OPTIONS = {
    "collect.evaluation_share": ("0.0", "0.5"),
    "collect.seed": ("0", "1"),
    "export.run_length": ("1", "16"),
    "export.shard_megabytes": ("0.003", "256"),
    "export.short_side": ("16", "20"),
    "export.decode_all": ("true", "false"),
}
LOCK = Path("lock.json")
FOR_PEOPLE = {a.file for a in ARTIFACTS.values() if isinstance(a, Table) and a.editable}


class Edits:
    """A pipeline of a folder, and the changes that a person or an accident makes."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.draw, self.options = folder / "0", random.Random(seed), dict[str, str]()
        draw_images(self.folder / "photos")
        (self.folder / "labels").mkdir()
        text = 'labels = "labels"\nsource = { kind = "folder", folder = "photos" }\n'
        text += 'label = { source = "folder" }\nexport = { licenses = ["unknown"] }\n'
        (self.folder / "p.toml").write_text(text)

    @property
    def photos(self) -> list[Path]:
        return sorted((self.folder / "photos").rglob("*.jpg"))

    def change(self) -> str:
        """Make one change; return its name."""
        changes: list[Callable[[], object]] = [
            self.set_option, self.replace_photo, self.swap_photos, self.add_photo,
            self.rename_group, self.remove_images, self.damage, self.delete, self.move,
            self.run_one,
        ]  # fmt: skip
        change = self.draw.choice(changes)
        change()
        return change.__name__

    def set_option(self) -> None:
        name = self.draw.choice([*OPTIONS])
        self.options[name] = self.draw.choice(OPTIONS[name])

    def replace_photo(self) -> None:
        """Write another photo; its file keeps the time."""
        photo, colour = self.draw.choice(self.photos), self.draw.randbytes(3)
        before = photo.stat().st_mtime_ns
        Image.new("RGB", (32, 24), tuple(colour)).save(photo)
        os.utime(photo, ns=(before, before))

    def swap_photos(self) -> None:
        one, other = self.draw.sample(self.photos, 2)
        aside = one.rename(one.with_suffix(".aside"))
        other.rename(one)
        aside.rename(other)

    def add_photo(self) -> None:
        name = f"oak/{self.draw.randrange(1000)}.jpg"
        shutil.copy(self.draw.choice(self.photos), self.folder / "photos" / name)
        with (self.folder / "photos" / "labels.csv").open("a") as file:
            file.write(f"{name},{self._group()},oak\n")

    def rename_group(self) -> None:
        labels, after = self.folder / "photos" / "labels.csv", self.draw.choice(["tree", "plant"])
        labels.write_text(labels.read_text().replace(f",{self._group()},", f",{after},"))

    def _group(self) -> str:
        text = (self.folder / "photos" / "labels.csv").read_text()
        return "tree" if ",tree," in text else "plant"

    def remove_images(self) -> None:
        chosen = self.draw.sample(self.photos, self.draw.randrange(3))
        rows = [f"{photo.relative_to(self.folder / 'photos')},asked" for photo in chosen]
        (self.folder / "labels" / "removals.csv").write_text("\n".join(["image_id,why", *rows, ""]))

    def damage(self) -> None:
        files = [file for file in self._outputs() if file.name not in FOR_PEOPLE]
        if files:
            file = self.draw.choice(files)
            content = bytearray(file.read_bytes()) or bytearray(1)
            content[self.draw.randrange(len(content))] ^= 1
            file.write_bytes(content[: self.draw.choice([len(content), len(content) // 2])])

    def delete(self) -> None:
        if files := self._outputs():
            self.draw.choice(files).unlink()

    def _outputs(self) -> list[Path]:
        """Also hidden files, such as the lock file and the markers of shards."""
        return sorted(file for file in (self.folder / "work").rglob("*") if file.is_file())

    def move(self) -> None:
        """Copy everything elsewhere, which gives all files new times and inodes."""
        other = self.folder.with_name(str(int(self.folder.name) + 1))
        shutil.copytree(self.folder, other, symlinks=True)
        shutil.rmtree(self.folder)
        self.folder = other

    def run_one(self) -> None:
        """Run any one stage, which may be refused."""
        runner = self.runner("work")
        stage = self.draw.choice(["collect", "label", "export"])
        with suppress(HgldError):
            runner.run_one(stage, force=self.draw.random() < 0.5)

    def runner(self, work: str, notes: Notes | None = None) -> Runner:
        settings = [f"{name}={value}" for name, value in self.options.items()]
        file = self.folder / "p.toml"
        workspace = Workspace(file, load_pipeline(file, settings), self.folder / work)
        return Runner(workspace, "2026-01-01", notes or Notes())

    def made(self, work: str) -> dict[str, str]:
        """Hash of each output, without hidden files and copies of tables that were changed."""
        found = {f: f.relative_to(self.folder / work) for f in (self.folder / work).rglob("*")}
        files = {f: n for f, n in found.items() if ".edited-" not in f.name}
        shown = {f: n for f, n in files.items() if not any(p.startswith(".") for p in n.parts)}
        return {str(n): hash_file(f) for f, n in shown.items() if f.is_file() and n != LOCK}


@pytest.mark.rehearsal
@pytest.mark.parametrize("seed", range(10))
def test_after_any_changes_a_run_makes_what_a_new_folder_gets(folder: Path, seed: int) -> None:
    edits, done = Edits(folder, seed), list[str]()
    for _ in range(6):
        done += [edits.change() for _ in range(edits.draw.randrange(4))]
        notes = Notes()
        stages = plan(edits.runner("work"), "export").stages
        edits.runner("work", notes).run("export")
        assert {*notes.ran} <= {stage.name for stage, now in stages if now.state != "fresh"}, done
        edits.runner("new").run("export")
        assert edits.made("work") == edits.made("new"), done
        shutil.rmtree(edits.folder / "new")
