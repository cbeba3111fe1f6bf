"""The command ``hgld export`` with several processes, stopped from outside and gone on with."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests import in_process
from tests.shards.shard_world import draw
from tests.shards.test_shards_write import content, require_none_left
from tests.warm import Command

pytestmark = pytest.mark.slow

CLASSES, IMAGES = 8, 60
PIPELINE = """
labels = "labels"
[source]
kind = "folder"
folder = "photos"
[label]
source = "folder"
[export]
licenses = ["unknown"]
short_side = 60
shard_megabytes = 0.1
processes = 2
"""


def hgld(*words: str | Path) -> Command:
    """A command in a process group of its own, as a shell starts it."""
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return Command(words, **streams, process_group=0)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and what was said on stderr."""
    said = process.communicate(timeout=300)[1]
    return process.returncode, said


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photos with the pipeline and all that the export reads."""
    folder = tmp_path_factory.mktemp("command")
    rows = ["path,group,species"]
    photos = [draw(number, (160, 120)) for number in range(IMAGES)]
    for kind in range(CLASSES):
        (folder / f"photos/{kind}").mkdir(parents=True)
        for i, photo in enumerate(photos):
            (folder / f"photos/{kind}/{i}.jpg").write_bytes(photo)
            rows.append(f"{kind}/{i}.jpg,group {kind % 2},species {kind}")
    (folder / "photos/labels.csv").write_text("\n".join(rows) + "\n")
    (folder / "animals.toml").write_text(PIPELINE)
    run = hgld("run", folder / "animals.toml", "--until", "label", "--work", folder / "labelled")
    assert finish(run)[0] == 0
    return folder


@pytest.fixture(scope="module")
def whole(labelled: Path) -> dict[str, str]:
    """The shards of an export that nobody stopped."""
    work = shutil.copytree(labelled / "labelled", labelled / "whole")
    # in this process, since forks hash strings alike
    in_process.hgld("export", labelled / "animals.toml", "--work", work)
    return content(work / "shards")


@pytest.mark.parametrize(
    ("ending", "to_all", "code", "says"),
    [
        (signal.SIGTERM, False, 75, "stopped by SIGTERM; the same command goes on from here"),
        (signal.SIGTERM, True, 75, "same command"),
        (signal.SIGINT, False, 130, "interrupted; the same command goes on from here"),
        (signal.SIGINT, True, 130, "interrupted; the same command goes on from here"),
    ],
)
def test_a_stopped_export_keeps_its_finished_shards_and_goes_on(
    labelled: Path,
    whole: dict[str, str],
    tmp_path: Path,
    ending: signal.Signals,
    to_all: bool,
    code: int,
    says: str,
) -> None:
    work = shutil.copytree(labelled / "labelled", tmp_path / "work")
    shards = work / "shards"
    command = ("export", labelled / "animals.toml", "--work", work)
    process = hgld(*command)
    while len(list(shards.glob("*.tar"))) < 4:
        assert process.poll() is None
        time.sleep(0.001)
    (os.killpg if to_all else os.kill)(process.pid, ending)
    found, said = finish(process)
    require_none_left(process.pid)
    assert found == code and "Traceback" not in said
    assert says in said.splitlines()[-1] and said.splitlines()[-1].startswith("hgld: ")
    kept = {tar.name: tar.stat().st_mtime_ns for tar in shards.glob("*.tar")}
    assert 4 <= len(kept) < len([name for name in whole if name.endswith(".tar")])
    assert not (shards / "manifest.json").exists()
    assert finish(hgld(*command))[0] == 0
    assert content(shards) == whole
    anew = [name for name, at in kept.items() if (shards / name).stat().st_mtime_ns != at]
    assert len(anew) <= 2  # a shard whose marker was not written yet, of each process


def test_a_cluster_that_does_not_answer_is_told_in_one_line(labelled: Path, tmp_path: Path) -> None:
    work = shutil.copytree(labelled / "labelled", tmp_path / "work")
    command = ("export", labelled / "animals.toml", "--work", work, "--ray", "127.0.0.1:1")
    code, said = finish(hgld(*command))
    assert code == 1
    known = ("hgld: no Ray cluster answers at 127.0.0.1:1 (", "hgld: Ray is not installed")
    assert said.splitlines()[-1].startswith(known)
