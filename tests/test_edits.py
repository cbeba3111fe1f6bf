"""What people have put into a folder that is replaced, whatever happens while it is."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from hgld.artifacts import atomic_folder
from hgld.pipeline.edits import keep_others

REPLACE = """
import os, sys
from pathlib import Path
from tests.test_edits import replace

def stop_at(step):
    steps = iter(range(1000))
    def watch(event, arguments):
        changes = event in ("os.rename", "os.remove", "os.rmdir", "os.link", "os.mkdir")
        if changes and next(steps) == step:
            os._exit(9)
    return watch

for number in range(int(sys.argv[2])):
    if os.fork() == 0:
        sys.addaudithook(stop_at(number))
        replace(Path(sys.argv[1], str(number), "release"))
        os._exit(0)
    os.wait()
"""


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def replace(folder: Path) -> None:
    """As a stage that wrote a and b makes the folder again: a is as before, b differs."""
    made = {"a": sha256_of("old"), "b": sha256_of("old")}
    with keep_others(folder, made), atomic_folder(folder) as new:
        write(new, a="old", b="new")


def sha256_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def texts(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_own_files_return_and_edited_ones_go_aside(tmp_path: Path) -> None:
    write(tmp_path / "release", a="edited", b="old", c="mine", d__e="mine")
    replace(tmp_path / "release")
    assert texts(tmp_path) == {
        "release.edited-1/a": "edited",
        "release/a": "old",
        "release/b": "new",
        "release/c": "mine",
        "release/d/e": "mine",
    }


def test_an_edit_does_not_replace_an_earlier_one(tmp_path: Path) -> None:
    for text in ("first", "second"):
        write(tmp_path / "release", a=text, b="old")
        replace(tmp_path / "release")
    assert texts(tmp_path / "release.edited-1") == {"a": "first"}
    assert texts(tmp_path / "release.edited-2") == {"a": "second"}


def test_links_and_pipes_return_as_they_are(tmp_path: Path) -> None:
    write(tmp_path / "release", a="old", b="old")
    (tmp_path / "release" / "link").symlink_to("/nowhere")
    os.mkfifo(tmp_path / "release" / "pipe")
    replace(tmp_path / "release")
    assert (tmp_path / "release" / "link").readlink() == Path("/nowhere")
    assert (tmp_path / "release" / "pipe").is_fifo()


def test_a_failure_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "release", a="edited", c="mine")
    before = texts(tmp_path)
    with pytest.raises(RuntimeError), keep_others(tmp_path / "release", {"a": ""}):
        raise RuntimeError
    assert texts(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["release"]


def test_nothing_of_a_person_is_lost_wherever_it_is_killed(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) / "release" for number in range(40)]
    for folder in folders:
        write(folder, a="edited", b="old", c="mine", d__e="mine")
    command = [sys.executable, "-c", REPLACE, str(tmp_path), str(len(folders))]
    subprocess.run(command, check=True)
    for folder in folders:
        replace(folder)
        found = texts(folder.parent)
        assert found.pop("release.edited-1/a") == "edited"
        assert texts(folder) == {"a": "old", "b": "new", "c": "mine", "d/e": "mine"}
        assert set(found) == {"release/a", "release/b", "release/c", "release/d/e"}
