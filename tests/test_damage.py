"""Every artifact of a finished run, deleted and damaged in turn, on a very small made world."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from hgld.artifacts import ARTIFACTS
from hgld.cli.review_actions import apply_review
from hgld.config import load_pipeline
from hgld.errors import HgldError, InvalidData, MissingInput, WaitingForReview
from hgld.pipeline.lock import Workspace
from hgld.pipeline.run import Runner
from tests.listening import Notes
from tests.made_run import SMALL

pytestmark = pytest.mark.slow

# made by other pipelines: tests/mediawiki/test_link.py, tests/evaluate/test_class_photos.py
OTHERS = ("linked", "unlinked", "link_review", "ancestry", "image_vectors")
WRITTEN = [n for n in ARTIFACTS if ARTIFACTS[n].place != "labels" and n not in OTHERS]
BY_PEOPLE = [name for name in ARTIFACTS if ARTIFACTS[name].place == "labels"]
LOGIN, HOST = "xq-login-of-no-one", "xq-host-of-no-one"
DAMAGE = b"\xff\x00 not what it was"


def runner_of(folder: Path) -> tuple[Runner, Notes]:
    pipeline = load_pipeline(Path("pipelines/quickstart.toml"), SMALL)
    pipeline = pipeline.model_copy(update={"labels": folder / "labels"})
    workspace = Workspace(Path("pipelines/quickstart.toml"), pipeline, folder / "work")
    notes = Notes()
    return Runner(workspace, "2026-01-01", notes), notes


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    shutil.copytree("labels/toy", folder / "labels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOGNAME", LOGIN)
        patch.setattr("socket.gethostname", lambda: HOST)
        runner_of(folder)[0].run()
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy"


def content(path: Path) -> dict[str, bytes]:
    """Bytes of a file or of the files of a folder; hidden files left out."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return {str(f): f.read_bytes() for f in files if f.is_file() and not f.name.startswith(".")}


def damage(path: Path) -> None:
    files = sorted(path.rglob("*")) if path.is_dir() else []
    target = next((f for f in files if f.is_file() and not f.name.startswith(".")), path)
    target.write_bytes(DAMAGE)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_deleted_artifact_is_made_again_by_its_stage_alone(copy: Path, name: str) -> None:
    runner, notes = runner_of(copy)
    path = runner.workspace.path(name)
    before = content(path)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    runner.run()
    maker = next(stage.name for stage in runner.stages if name in stage.writes)
    assert notes.ran == [maker]
    assert content(path) == before


@pytest.mark.parametrize("name", WRITTEN)
def test_a_damaged_artifact_is_made_again_or_named_in_one_line(copy: Path, name: str) -> None:
    runner, notes = runner_of(copy)
    path = runner.workspace.path(name)
    before = content(path)
    damage(path)
    try:
        runner.run()
    except (InvalidData, WaitingForReview) as error:
        assert ARTIFACTS[name].file in str(error)
        assert "\n" not in str(error)
    else:
        assert notes.ran
        assert content(path) == before


@pytest.mark.parametrize("name", BY_PEOPLE)
def test_a_damaged_file_of_a_person_is_named_and_left_alone(copy: Path, name: str) -> None:
    runner, _ = runner_of(copy)
    path = runner.workspace.path(name)
    damage(path)
    with pytest.raises(InvalidData, match=path.name):
        if any(name in stage.reads for stage in runner.stages):
            runner.run()
        else:  # records that only commands read
            runner.read(name, "review")
    assert path.read_bytes() == DAMAGE


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("decisions", WaitingForReview, r"review\.csv"),
        ("taxonomy", MissingInput, r"taxonomy\.csv.*written by a person"),
    ],
)
def test_without_what_a_person_writes_the_run_says_what_to_do(
    name: str, error: type[HgldError], says: str, copy: Path
) -> None:
    runner, _ = runner_of(copy)
    runner.workspace.path(name).unlink()
    with pytest.raises(error, match=says):
        runner.run()


def test_edits_on_the_review_sheet_are_not_overwritten(copy: Path) -> None:
    runner, _ = runner_of(copy)
    sheet = runner.workspace.path("review")
    edited = sheet.read_bytes().replace(b"keep,", b"unsure,", 1)
    sheet.write_bytes(edited)
    with pytest.raises(WaitingForReview, match="edits that are not applied"):
        runner.run()
    assert sheet.read_bytes() == edited


def test_applied_edits_reach_the_decisions_and_the_labels(copy: Path) -> None:
    runner, notes = runner_of(copy)
    sheet = runner.workspace.path("review")
    sheet.write_bytes(sheet.read_bytes().replace(b"keep,", b"drop,", 1))
    applied = apply_review(runner, "a person")
    assert [change.kind for change in applied.changes if change.kind != "unchanged"] == ["changed"]
    assert "a person" in runner.workspace.path("decisions").read_text().splitlines()[-1]
    try:
        runner.run()
    except HgldError as error:  # a world this small may have too few landmarks left for a batch
        assert "classes" in str(error)
    assert {"review", "label", "export"} <= set(notes.ran)


@pytest.mark.parametrize("folder", ["models", "report", "release"])
def test_files_that_a_person_puts_into_an_output_folder_stay_there(copy: Path, folder: str) -> None:
    runner, notes = runner_of(copy)
    path = runner.workspace.path(folder)
    for name in ("mine/notes.txt", "mine/.git/HEAD"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("mine")
    (path / "mine" / "empty").mkdir()
    runner.run()
    assert notes.ran == []
    stage = next(stage for stage in runner.stages if folder in stage.writes)
    runner.run_one(stage.name, force=True)
    runner.run()
    assert notes.ran == [stage.name]
    assert (path / "mine" / "notes.txt").read_text() == "mine"
    assert (path / "mine" / ".git" / "HEAD").exists() and (path / "mine" / "empty").is_dir()
    assert not [*runner.workspace.work.glob("*.edited-*")]


def test_an_edited_card_is_kept_beside_the_new_one_and_named(copy: Path) -> None:
    runner, notes = runner_of(copy)
    card = runner.workspace.path("release") / "README.md"
    before = card.read_bytes()
    card.write_text("my words")
    runner.run()
    assert notes.ran == ["publish"] and card.read_bytes() == before
    kept = runner.workspace.work / "release.edited-1" / "README.md"
    assert kept.read_text() == "my words"
    assert any("release.edited-1/README.md" in notice for notice in notes.notices)


def test_an_edited_card_outlives_a_lost_lock_file(copy: Path) -> None:
    runner, _ = runner_of(copy)
    (runner.workspace.path("release") / "README.md").write_text("my words")
    (runner.workspace.work / "lock.json").unlink()
    runner.run()
    kept = runner.workspace.work / "release.edited-1"
    assert [path.name for path in kept.iterdir()] == ["README.md"]


@pytest.mark.parametrize("name", ["shards", "report", "release"])
def test_nothing_that_is_passed_on_names_the_machine_or_the_login(
    name: str, finished: Path
) -> None:
    secrets = [str(finished), str(Path.cwd()), f"{Path.home()}/", HOST, LOGIN]
    files = [path for path in (finished / "work" / name).rglob("*") if path.is_file()]
    texts = [path.read_bytes() for path in files]
    texts += [str(pd.read_parquet(p).to_dict()).encode() for p in files if p.suffix == ".parquet"]
    assert len(files) > 2
    assert [s for s in secrets for text in texts if s.encode() in text] == []
