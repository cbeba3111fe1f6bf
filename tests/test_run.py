"""Freshness, edits, damage and resumption, on a small folder of real image files."""

import errno
import gc
import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from hgld.config import load_pipeline
from hgld.errors import HgldError, InvalidData, MissingInput, UsageError
from hgld.file_lock import hold
from hgld.pipeline.edits import accept_edits
from hgld.pipeline.lock import Lock, Workspace, judge, left_over, stage_options
from hgld.pipeline.plan import plan
from hgld.pipeline.run import Runner, count_balance
from hgld.pipeline.stages import STAGES, Stage, load_function
from tests.listening import Notes, heard

CLASSES = {"oak": "tree", "elm": "tree", "carp": "fish", "pike": "fish"}
IMAGES = 3
NO_PROCESS = 2**22 + 1  # above the kernel's largest


def draw_images(folder: Path) -> None:
    rows = ["path,group,species"]
    for number, (species, group) in enumerate(CLASSES.items()):
        (folder / species).mkdir(parents=True)
        for i in range(IMAGES):
            color = (40 * number, 80 * i, 120)
            Image.new("RGB", (32, 24), color).save(folder / species / f"{i}.jpg")
            rows.append(f"{species}/{i}.jpg,{group},{species}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    draw_images(tmp_path / "photos")
    path = tmp_path / "animals.toml"
    path.write_text(
        'labels = "labels"\n[source]\nkind = "folder"\nfolder = "photos"\n'
        '[label]\nsource = "folder"\n'
        '[export]\nlicenses = ["unknown"]\n'
    )
    return path


@pytest.fixture
def run(pipeline: Path) -> Callable[..., Notes]:
    """Run up to the export; what happened."""

    def run(*settings: str, until: str = "export") -> Notes:
        notes = Notes()
        runner_of(pipeline, notes, *settings).run(until)
        return notes

    return run


def runner_of(pipeline: Path, notes: Notes, *settings: str) -> Runner:
    workspace = Workspace(pipeline, load_pipeline(pipeline, settings), pipeline.parent / "work")
    return Runner(workspace, "2026-01-01", notes)


def test_a_second_run_does_nothing(run: Callable[..., Notes]) -> None:
    assert run().ran == ["fetch", "collect", "label", "export"]
    assert run().ran == []


FITTING = ("collect.evaluation_share=0.5", "train.classes_per_batch=2", "train.images_per_class=2")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('evaluate.metrics=["AP:kind"]', "evaluate.metrics: .*'kind' is none of group, species"),
        ("evaluate.metrics=[]", "evaluate.metrics is empty"),
        ('evaluate.metrics=["wAP(weights=1)"]', "evaluate.metrics: .* one for each of 2 levels"),
        (
            "evaluate.query=test",
            "evaluate.query 'test' has no labelled images; there are: train: 2",
        ),
        ("evaluate.models.mine=no.npz", "evaluate.models.mine: .*no.npz is neither"),
        ("evaluate.models.mine=timm:resnet5", "evaluate.models.mine: timm has no model 'resnet5'"),
        ("evaluate.precision=fp16", "evaluate.precision fp16 needs a GPU"),
        ("train.backbone=resnet5", "train.backbone: timm has no model 'resnet5'"),
        ("train.backbone=python:nets.py:build", "network of your own, which evaluate.models"),
        ("train.classes_per_batch=3", "train.split 'train': 2 of 2 classes have 2 images or more"),
        ("train.runs.model.loss_options.level=3", "have levels 1"),
    ],
)
@pytest.mark.parametrize("labelled_before", [False, True])
def test_an_option_that_does_not_fit_the_labels_stops_the_run_before_the_export(
    run: Callable[..., Notes], pipeline: Path, setting: str, message: str, labelled_before: bool
) -> None:
    if labelled_before:
        run(*FITTING, until="label")
    notes = Notes()
    loss = ["train.runs.model.loss=SupAP"] if "loss_options" in setting else []
    with pytest.raises(HgldError, match=message):
        runner_of(pipeline, notes, *FITTING, *loss, setting).run()
    assert notes.ran == ([] if labelled_before else ["fetch", "collect", "label"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.split=dev", "train.split 'dev' has no images; there are: train: 2"),
        (
            f"collect.evaluation_classes={list(CLASSES)}",
            "train.split 'train' has no images; there are: evaluation: 4 .*; hold fewer classes",
        ),
    ],
)
def test_a_training_split_without_images_stops_the_run_after_collect(
    pipeline: Path, setting: str, message: str
) -> None:
    notes = Notes()
    share = FITTING if setting.startswith("train") else FITTING[1:]
    with pytest.raises(HgldError, match=message):
        runner_of(pipeline, notes, *share, setting).run()
    assert notes.ran == ["fetch", "collect"]


@pytest.mark.parametrize("stage", ["train", "evaluate"])
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_stops_the_run_before_its_first_stage(
    pipeline: Path, stage: str
) -> None:
    notes = Notes()
    with pytest.raises(UsageError, match=r"^device 'cuda': there is no GPU here"):
        runner_of(pipeline, notes, *FITTING, f"{stage}.device=cuda").run()
    assert notes.ran == []


def test_a_reservation_without_a_cluster_is_named_in_the_plan_and_in_the_run(
    pipeline: Path,
) -> None:
    said = ["export.cpus_per_task has no effect: export.ray names no Ray cluster"]
    runner = runner_of(pipeline, notes := Notes(), "export.cpus_per_task=4")
    assert list(plan(runner, "export").notes) == said and notes.notices == []
    runner.run("label")
    assert notes.notices == []
    runner.run("export")
    assert notes.notices == said


def test_an_input_that_changes_during_a_run_is_reported_at_its_end(pipeline: Path) -> None:
    class Edits(Notes):
        def starts(self, stage: Stage, reasons: Sequence[str]) -> None:
            super().starts(stage, reasons)
            if stage.name == "export":  # as a review page may do meanwhile
                with (pipeline.parent / "photos" / "labels.csv").open("a") as file:
                    file.write("oak/0.png,tree,oak\n")

    runner_of(pipeline, notes := Edits()).run("export")
    (said,) = notes.notices
    assert said.startswith("collect (source changed), label (source changed): stale, as this ")
    assert said.endswith("the same command makes them again")
    runner_of(pipeline, again := Notes()).run("export")
    assert {"collect", "label"} <= {*again.ran} and again.notices == []


def test_files_that_other_options_left_are_named_with_their_stage(pipeline: Path) -> None:
    runner = runner_of(pipeline, Notes())
    assert left_over(runner.stages, runner.workspace) == {}
    work = runner.workspace.work
    work.mkdir()
    for name in ("clusters.csv", "cluster_summary.csv", "lineage.csv", "mine.csv"):
        (work / name).touch()
    assert left_over(runner.stages, runner.workspace) == {
        "cluster": ["clusters.csv", "cluster_summary.csv"],
        "label": ["lineage.csv"],
    }


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/set", "nonsense://bucket/set"])
def test_a_url_for_shards_that_is_refused_leaves_the_export_as_it_was(
    run: Callable[..., Notes], pipeline: Path, url: str
) -> None:
    notes = Notes()
    with pytest.raises(HgldError, match=f"^{url}"):
        runner_of(pipeline, notes, f"export.out={url}").run()
    assert notes.ran == []
    run()
    with pytest.raises(HgldError, match=f"^{url}"):
        runner_of(pipeline, notes, f"export.out={url}").run_one("export", force=True)
    runner = runner_of(pipeline, notes)
    runner._require_as_made(runner.stage("evaluate"))
    assert run().ran == []


@pytest.mark.parametrize("at_url", [True, False])
def test_an_export_that_is_refused_after_planning_leaves_its_shards_usable(
    run: Callable[..., Notes], pipeline: Path, at_url: bool
) -> None:
    run()
    out, there = pipeline.parent / "work" / "shards", pipeline.parent / "there"
    there.mkdir()
    (there / "train-000000.tar").write_text("of others")
    setting = f"export.out=file://{there}" if at_url else "export.seed=7"
    says = "hgld export did not write it" if at_url else "another process is writing shards here"
    with nullcontext() if at_url else hold(out / ".writer", ""):
        for _ in range(2):
            with pytest.raises(HgldError, match=says):
                runner_of(pipeline, Notes(), setting).run_one("export")
    runner = runner_of(pipeline, Notes())
    runner._require_as_made(runner.stage("evaluate"))
    assert run().ran == []
    if not at_url:
        with_seed = runner_of(pipeline, Notes(), setting)
        found = judge(with_seed.stage("export"), with_seed.lock)
        refused, seed = found.reasons
        assert refused.startswith("failed: ") and says in refused
        assert seed == "export.seed: 0 -> 7"


def test_an_export_that_fails_as_it_writes_leaves_its_shards_half_written(
    run: Callable[..., Notes], pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise InvalidData("a photo is damaged")

    run()
    monkeypatch.setattr("hgld.shards.write._write_all", fail)
    with pytest.raises(InvalidData, match="a photo is damaged"):
        runner_of(pipeline, Notes(), "export.seed=7").run_one("export")
    runner = runner_of(pipeline, Notes())
    with pytest.raises(HgldError, match="export was stopped on the way"):
        runner._require_as_made(runner.stage("evaluate"))


def test_options_that_fit_pass_the_check(run: Callable[..., Notes], pipeline: Path) -> None:
    runner = runner_of(pipeline, Notes(), *FITTING)
    run(*FITTING, until="label")
    export = runner.stage("export")
    with heard() as said:
        runner._check_ahead(export, runner.stages)
    # one species of each group is held out
    assert "no two of the 2 evaluated classes share a group" in said[0] and len(said) == 1
    assert runner._checked == {
        ("export", "hgld.shards.shard_url:check_url"),
        ("train", "hgld.model.devices:check_device"),
        ("train", "hgld.train:check_split"),
        ("train", "hgld.train:check_training"),
        ("evaluate", "hgld.model.devices:check_device"),
        ("evaluate", "hgld.evaluate:check_evaluation"),
    }


def test_models_that_are_all_given_are_evaluated_without_training(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    ids = [f"{species}/{i}.jpg" for species in CLASSES for i in range(IMAGES)]
    vectors = np.random.default_rng(0).normal(size=(len(ids), 4)).astype("float32")
    np.savez(pipeline.parent / "mine.npz", vectors=vectors, ids=ids)
    mine = f"evaluate.models.mine={pipeline.parent / 'mine.npz'}"
    share, plain = "collect.evaluation_share=0.5", "report.vector_figures=[]"
    notes = run(share, mine, plain, until="report")
    assert notes.ran == ["fetch", "collect", "label", "export", "evaluate", "report"]
    found = json.loads((pipeline.parent / "work" / "report.json").read_text())
    assert list(found["models"]) == ["mine"]
    metrics = ["H-AP", "NDCG", "ASI", "AP:group", "AP:species", "R@1:species", "mAP@100:species"]
    assert found["metrics"] == metrics


def test_a_removal_list_makes_a_new_export_without_the_image(run, pipeline: Path) -> None:
    run()
    listed = pd.read_parquet(pipeline.parent / "work" / "images.parquet")["image_id"]
    (pipeline.parent / "labels").mkdir()
    (pipeline.parent / "labels" / "removals.csv").write_text(f"image_id,why\n{listed[0]},asked\n")
    notes = run()
    assert notes.ran == ["export"] and notes.summaries["export"].dropped == 1
    assert run().ran == []
    (pipeline.parent / "labels" / "removals.csv").unlink()
    assert run().summaries["export"].dropped == 0


class Meanwhile(Runner):
    """A person changes files as soon as a stage has read its inputs."""

    changes: dict[str, Path]

    def _read_inputs(self, stage: Stage) -> list[Any]:
        inputs = super()._read_inputs(stage)
        if stage.name in self.changes:
            self.changes[stage.name].write_text("image_id,why\noak/0.jpg,asked\n")
        return inputs


def test_a_file_that_changes_while_its_stage_runs_makes_the_stage_stale(pipeline: Path) -> None:
    removals, excluded = (pipeline.parent / name for name in ("labels/removals.csv", "list.csv"))
    removals.parent.mkdir()
    for path in (removals, excluded):
        path.write_text("image_id,why\n")
    workspace = runner_of(pipeline, Notes(), f'collect.exclude=["{excluded}"]').workspace
    runner = Meanwhile(workspace, "2026-01-01", Notes())
    runner.changes = {"collect": excluded, "export": removals}
    runner.run("export")
    states = {stage.name: judge(stage, runner.lock).state for stage in runner.stages}
    assert [states[name] for name in ("collect", "label", "export")] == ["stale", "fresh", "stale"]


def test_every_row_is_accounted_for(run: Callable[..., Notes]) -> None:
    summaries = run().summaries
    assert (summaries["label"].came_in, summaries["label"].went_on) == (4, 4)
    assert (summaries["export"].came_in, summaries["export"].dropped) == (12, 0)


@pytest.mark.parametrize("name", ["landmarks.csv", "hierarchy.csv", "images.parquet"])
def test_a_deleted_table_is_made_again_and_what_follows_stays_fresh(
    run: Callable[..., Notes], pipeline: Path, name: str
) -> None:
    run()
    path = pipeline.parent / "work" / name
    before = path.read_bytes()
    path.unlink()
    assert run().ran == (["label"] if name == "hierarchy.csv" else ["collect"])
    assert path.read_bytes() == before


def edit(pipeline: Path, old: str, new: str) -> Path:
    path = pipeline.parent / "work" / "hierarchy.csv"
    path.write_text(path.read_text().replace(old, new))
    return path


def accepted(pipeline: Path) -> list[str]:
    """Accept all edits; the lines that are shown."""
    edits = accept_edits(runner_of(pipeline, Notes()), [], lambda edits: True)
    return [line for edit in edits for line in edit.lines]


def test_the_plan_says_that_an_input_which_is_gone_may_change(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    (pipeline.parent / "work" / "landmarks.csv").unlink()
    found = {stage.name: now for stage, now in plan(runner_of(pipeline, Notes()), "label").stages}
    assert found["collect"].reasons == ("landmarks.csv is gone",)
    assert found["label"].reasons == ("landmarks.csv may change",)


def test_an_edit_stops_the_run_until_it_is_accepted(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    path = edit(pipeline, "tree", "plant")
    edited = path.read_bytes()
    with pytest.raises(
        InvalidData, match=r"hierarchy\.csv: was changed since.*`hgld accept .*toml"
    ):
        run()
    lines = accepted(pipeline)
    assert lines[0] == "hierarchy.csv: 2 rows changed, 0 added, 0 removed, of 4"
    assert lines[1].startswith("  train 1: path: ") and "plant" in lines[1]
    notes = run()
    assert notes.ran == ["export"] and "hierarchy.csv changed" in notes.why["export"]
    assert path.read_bytes() == edited and run().ran == []


def test_a_second_edit_is_shown_against_the_first(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    edit(pipeline, "tree", "plant")
    accepted(pipeline)
    edit(pipeline, "fish", "swimmer")
    assert [("plant" in line, "swimmer" in line) for line in accepted(pipeline)[1:]] == [
        (False, True),
        (False, True),
    ]


def test_of_a_long_cell_the_part_that_differs_is_shown(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    edit(pipeline, "tree", "plant of the woods, hills and lowlands")
    shown = '…"tree", "species": "elm"}\' -> \'…"plant of the woods, hills and lowland…\''
    assert accepted(pipeline)[1] == f"  train 1: path: '{shown}"


def test_an_accepted_edit_is_copied_before_its_stage_runs_again(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    edited = edit(pipeline, "tree", "plant").read_text()
    accepted(pipeline)
    labels = pipeline.parent / "photos" / "labels.csv"
    labels.write_text(labels.read_text().replace("fish", "swimmer"))
    assert "label" in run().ran
    assert (pipeline.parent / "work" / "hierarchy.edited-1.csv").read_text() == edited


def test_a_path_with_other_levels_is_not_accepted(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    path = edit(pipeline, "tree", "plant")
    first, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join([first, 'train,0,"{""class"": ""x""}"\n', *others[1:]]))
    for text in ("levels class; expected", "path is 'x'; expected a JSON object"):
        with pytest.raises(InvalidData, match=rf"hierarchy\.csv row 2: {text}.*; undo the edit"):
            accepted(pipeline)
        path.write_text("".join([first, "train,0,x\n", *others[1:]]))


def test_an_edit_that_is_not_confirmed_is_not_taken(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    edit(pipeline, "tree", "plant")
    assert accept_edits(runner_of(pipeline, Notes()), [], lambda edits: False) == []
    with pytest.raises(InvalidData, match="was changed since"):
        run()


def test_force_makes_an_edited_table_again_and_keeps_a_copy(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    edited = edit(pipeline, "tree", "plant").read_text()
    runner_of(pipeline, Notes()).run_one("label", force=True)
    assert (pipeline.parent / "work" / "hierarchy.edited-1.csv").read_text() == edited
    assert run().ran == []


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (
            "images.parquet",
            "not a table of this pipeline that people may edit; these are: landm",
        ),
        ("landmarks.csv", "is as hgld wrote it; there is nothing to accept"),
    ],
)
def test_what_cannot_be_accepted_is_named(
    run: Callable[..., Notes], pipeline: Path, file: str, says: str
) -> None:
    run()
    with pytest.raises(UsageError, match=says):
        accept_edits(runner_of(pipeline, Notes()), [pipeline.parent / "work" / file], bool)


def test_the_label_files_are_not_among_the_tables_to_edit(tmp_path: Path) -> None:
    pipeline = tmp_path / "toy.toml"
    pipeline.write_text('labels = "labels"\n[source]\nkind = "toy"\n')
    runner = runner_of(pipeline, Notes())
    with pytest.raises(
        UsageError, match=r"these are: landmarks\.csv, .*, hierarchy\.csv$"
    ) as raised:
        accept_edits(runner, [tmp_path / "work" / "images.parquet"], bool)
    assert "label_to_hierarchical" not in str(raised.value)
    stage = next(stage for stage in runner.stages if "train_labels" in stage.writes)
    for name in ("train_labels", "index_labels"):
        file = f"{name.removesuffix('s')}_to_hierarchical.csv"
        with pytest.raises(
            InvalidData, match=f"{file}: a release takes its classes from hierarchy"
        ):
            runner.check_edit(stage, name)


def test_a_changed_table_that_cannot_be_accepted_is_reported(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    path, notes = pipeline.parent / "work" / "queries.csv", Notes()
    path.write_text(path.read_text("utf-8") + "\n", "utf-8")
    assert accept_edits(runner_of(pipeline, notes), [], bool) == []
    assert notes.notices == [
        f"{path}: was changed, but is no table that people may edit; the next run makes it again"
    ]


@pytest.mark.parametrize("name", ["images.parquet", "queries.csv", "export_dropped.parquet"])
def test_a_table_that_nobody_edits_is_made_again_when_a_byte_changes(
    run: Callable[..., Notes], pipeline: Path, name: str
) -> None:
    run()
    path = pipeline.parent / "work" / name
    before = path.read_bytes()
    damaged = before[:-1] + bytes([before[-1] ^ 1])
    path.write_bytes(damaged)
    notes = run()
    assert len(notes.ran) == 1 and f"{name} was changed since it was made" in notes.why.popitem()[1]
    assert path.read_bytes() == before
    copy = path.with_name(f"{path.stem}.edited-1{path.suffix}")
    assert copy.read_bytes() == damaged
    assert notes.notices == [f"{name} was not as hgld made it; a copy is in {copy.name}"]


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        (
            "images.parquet",
            HgldError,
            r"was changed since collect made it; `hgld run ",
        ),
        ("hierarchy.csv", InvalidData, "to use your edit, run `hgld accept"),
    ],
)
def test_a_stage_run_alone_takes_no_input_that_was_changed(
    run: Callable[..., Notes], pipeline: Path, name: str, error: type[HgldError], says: str
) -> None:
    run()
    path = pipeline.parent / "work" / name
    path.write_bytes(path.read_bytes().replace(b"tree", b"bush") + b"\n")
    with pytest.raises(error, match=rf"{name}: .*{says}"):
        runner_of(pipeline, Notes()).run_one("export")


def test_a_stage_run_alone_takes_no_input_of_a_stage_that_was_stopped(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    stop("collect", pipeline)
    with pytest.raises(HgldError, match=r"csv: collect was stopped on the way .*`hgld collect .*`"):
        runner_of(pipeline, Notes()).run_one("label", force=True)
    assert run().ran == ["collect"]


def test_a_stage_run_alone_reports_inputs_that_its_options_would_make_anew(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    notes = Notes()
    runner = runner_of(pipeline, notes, "collect.evaluation_share=0.5")
    runner.run_one("label")
    assert not notes.ran and notes.notices == [
        "collect is stale (collect.evaluation_share: 0.0 -> 0.5): label reads what it made before; "
        f"`hgld run {runner.workspace.words}` makes it again"
    ]
    notes = Notes()
    runner_of(pipeline, notes).run_one("label")
    assert not notes.notices


def test_a_stage_run_alone_reports_inputs_of_which_an_earlier_stage_is_stale(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    notes = Notes()
    runner_of(pipeline, notes, "collect.evaluation_share=0.5").run_one("export")
    (notice,) = notes.notices
    assert notice.startswith("collect is stale (collect.evaluation_share: 0.0 -> 0.5), ")
    assert "label is stale (landmarks.csv may change)" in notice
    assert "export reads what they made before" in notice


def test_a_changed_photo_is_no_reason_to_run_another_stage_before_collect(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    Image.new("RGB", (32, 24), "red").save(pipeline.parent / "photos" / "oak" / "0.jpg")
    notes = Notes()
    found = {stage.name: now for stage, now in plan(runner_of(pipeline, Notes())).stages}
    assert found["collect"].reasons == ("source changed",)
    runner_of(pipeline, notes).run_one("collect")
    assert notes.ran == ["collect"] and not notes.notices


def test_an_edit_that_would_be_overwritten_is_copied_first(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    work = pipeline.parent / "work"
    edited = (work / "hierarchy.csv").read_text().replace("tree", "plant")
    (work / "hierarchy.csv").write_text(edited)
    labels = pipeline.parent / "photos" / "labels.csv"
    labels.write_text(labels.read_text().replace("fish", "swimmer"))
    assert "label" in run().ran
    assert (work / "hierarchy.edited-1.csv").read_text() == edited


def test_what_a_killed_run_was_writing_is_cleared(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    work, labels = pipeline.parent / "work", pipeline.parent / "labels"
    places = [
        work / name for name in ("landmarks.csv", "lock.json", "review.html", "a.edited-1.csv")
    ]
    places += [work / ".state" / "evaluate" / "embeddings" / "toy" / "0.npy", work / "shards" / "a"]
    places += [labels / "decisions.csv"]
    for path in places:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(f".{path.name}.{NO_PROCESS}.tmp").write_text("half")
    run()
    assert not list(pipeline.parent.rglob(".*.tmp"))


def test_hidden_files_that_are_not_hgld_s_own_stay(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    places = {
        "photos": ".a.tmp",
        "work/mine": f".b.{NO_PROCESS}.tmp",
        "work": ".c.tmp",
        "labels": f".d.{NO_PROCESS}.tmp",
    }
    theirs = [pipeline.parent / folder / name for folder, name in places.items()]
    theirs.append(pipeline.parent / "labels" / f".decisions.csv.{os.getppid()}.tmp")  # at work
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    run()
    assert all(path.exists() for path in theirs)


def test_an_edit_outlives_a_lost_lock_file(run: Callable[..., Notes], pipeline: Path) -> None:
    run()
    work = pipeline.parent / "work"
    edited = (work / "hierarchy.csv").read_text().replace("tree", "plant")
    (work / "hierarchy.csv").write_text(edited)
    (work / "lock.json").unlink()
    run()
    assert (work / "hierarchy.edited-1.csv").read_text() == edited
    assert [path.name for path in work.glob("*.edited-*")] == ["hierarchy.edited-1.csv"]


def test_a_copy_that_a_killed_run_had_made_goes_with_the_next(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    work = pipeline.parent / "work"
    (work / "hierarchy.edited-1.csv").write_bytes((work / "hierarchy.csv").read_bytes())
    (work / "lock.json").unlink()
    run()
    assert not [*work.glob("*.edited-*")]


def test_an_edit_outlives_the_loss_of_its_neighbour(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    work = pipeline.parent / "work"
    edited = (work / "landmarks.csv").read_text().replace("oak", "OAK")
    (work / "landmarks.csv").write_text(edited)
    (work / "queries.csv").unlink()
    run()
    assert (work / "landmarks.edited-1.csv").read_text() == edited


def test_an_edit_that_loses_a_row_is_named_where_it_happened(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    path = pipeline.parent / "work" / "hierarchy.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(InvalidData, match=r"hierarchy\.csv: was edited by hand and its rows no"):
        run()


def test_an_edit_with_its_time_put_back_is_seen(run: Callable[..., Notes], pipeline: Path) -> None:
    run()
    path = pipeline.parent / "work" / "hierarchy.csv"
    facts = path.stat()
    path.write_text(path.read_text().replace("tree", "bush"))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    with pytest.raises(InvalidData, match="was changed since"):
        run()


def test_an_image_below_a_link_is_seen_to_change(run: Callable[..., Notes], pipeline: Path) -> None:
    photos, elsewhere = pipeline.parent / "photos", pipeline.parent / "elsewhere"
    (photos / "oak").rename(elsewhere)
    (photos / "oak").symlink_to(elsewhere)
    run()
    Image.new("RGB", (30, 30), (1, 2, 3)).save(elsewhere / "0.jpg")
    assert {"collect", "export"} <= set(run().ran)


def test_a_damaged_table_stops_the_run_with_file_and_row(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    path = pipeline.parent / "work" / "hierarchy.csv"
    path.write_text(path.read_text().replace("train,1,", "train,one,"))
    with pytest.raises(InvalidData, match=r"hierarchy\.csv row 3: landmark_id is 'one'"):
        run()


@pytest.mark.parametrize("damage", [b"", b"half"])
def test_a_damaged_shard_is_named_and_made_again(
    run: Callable[..., Notes], pipeline: Path, damage: bytes
) -> None:
    run()
    shard = pipeline.parent / "work" / "shards" / "train-000000.tar"
    before = shard.read_bytes()
    shard.write_bytes(damage)
    notes = run()
    assert notes.ran == ["export"] and "train-000000.tar" in notes.why["export"]
    assert shard.read_bytes() == before


def test_a_deleted_folder_is_made_again(run: Callable[..., Notes], pipeline: Path) -> None:
    run()
    shards = pipeline.parent / "work" / "shards"
    before = {path.name: path.read_bytes() for path in shards.iterdir()}
    for path in shards.iterdir():
        path.unlink()
    assert run().ran == ["export"]
    assert {path.name: path.read_bytes() for path in shards.iterdir()} == before


def test_a_changed_option_makes_its_stage_stale_and_is_named(run: Callable[..., Notes]) -> None:
    run()
    notes = run("export.run_length=2")
    assert notes.ran == ["export"]
    assert notes.why["export"] == "export.run_length: 16 -> 2"


def test_an_option_of_speed_makes_nothing_stale(run: Callable[..., Notes]) -> None:
    run()
    assert run("export.processes=2").ran == []


def test_an_option_that_is_new_and_at_its_default_makes_nothing_stale(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    path = pipeline.parent / "work" / "lock.json"
    lock = json.loads(path.read_text())
    del lock["stages"]["export"]["options"]["export.run_length"]
    path.write_text(json.dumps(lock))
    assert run().ran == []
    assert run("export.run_length=2").ran == ["export"]


def test_an_option_of_each_training_run_may_be_new_too_but_a_new_run_is_named(
    tmp_path: Path,
) -> None:
    text = 'labels = "labels"\n[train.runs.a]\nsteps = 3\n'
    (tmp_path / "p.toml").write_text(text)
    then = Workspace(tmp_path / "p.toml", load_pipeline(tmp_path / "p.toml"), tmp_path)
    stage = next(stage for stage in STAGES if stage.name == "train")
    lock = Lock(then)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "runs.json").write_text('{"runs": ["a"]}')
    lock.finish(stage, lock.hashes(stage.reads), stage_options(stage, lock), 0.0)
    del lock.stages["train"]["options"]["train.runs.a.memory"]
    del lock.stages["train"]["options"]["order in train"]
    assert judge(stage, lock).state == "fresh"
    more = load_pipeline(tmp_path / "p.toml", ["train.runs.b.steps=3"])
    found = judge(stage, replace(lock, workspace=replace(then, pipeline=more)))
    assert found.state == "stale" and "train.runs.b.loss: unused -> HAPPIER" in found.reasons


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        '{"stages": 3}',
        '{"stages": [], "files": {}}',
        '{"stages": {"label": 3}, "files": {}}',
    ],
)
def test_a_damaged_lock_file_only_costs_time(
    run: Callable[..., Notes], pipeline: Path, damage: str
) -> None:
    run()
    (pipeline.parent / "work" / "lock.json").write_text(damage)
    assert run().ran == ["fetch", "collect", "label", "export"]


def test_a_lock_file_that_cannot_be_read_is_not_taken_for_a_new_folder(
    run: Callable[..., Notes], pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    path, read = pipeline.parent / "work" / "lock.json", Path.read_text

    def refuse(file: Path, *given: Any, **named: Any) -> str:
        if file == path:
            raise PermissionError(errno.EACCES, "Permission denied", file)
        return read(file, *given, **named)

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(HgldError, match=r"lock\.json: cannot be read \(Permission denied\), and"):
        run()


def stop(stage: str, pipeline: Path) -> None:
    """Mark the stage as a kill leaves it."""
    path = pipeline.parent / "work" / "lock.json"
    lock = json.loads(path.read_text())
    lock["stages"][stage]["at_work"] = True
    path.write_text(json.dumps(lock))


def test_a_stage_that_was_stopped_on_the_way_runs_again(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    run()
    stop("label", pipeline)
    assert run().why == {"label": "was stopped on the way"}


def test_a_stage_before_its_input_names_the_stage_to_run(pipeline: Path) -> None:
    with pytest.raises(MissingInput, match=r"run `hgld collect .*animals\.toml --work .*` first"):
        runner_of(pipeline, Notes()).run_one("export")


def test_a_stage_that_the_pipeline_does_not_have_is_refused(pipeline: Path) -> None:
    with pytest.raises(HgldError, match="has no stage 'scrape'; its stages are fetch, collect"):
        runner_of(pipeline, Notes()).run_one("scrape")


def test_a_folder_that_held_another_pipeline_s_run_says_so_once(
    run: Callable[..., Notes], pipeline: Path
) -> None:
    assert run(until="collect").notices == []
    work, other = pipeline.parent / "work", pipeline.parent / "other.toml"
    shutil.copy(pipeline, other)
    notes = [Notes(), Notes()]
    for note in notes:
        Runner(Workspace(other, load_pipeline(other), work), "2026-01-01", note).run("collect")
    assert (notes[0].ran, notes[1].notices) == ([], [])
    assert len(notes[0].notices) == 1 and "held the run of " in notes[0].notices[0]
    assert "animals.toml;\nwhat differs is made again" in notes[0].notices[0]


def test_two_runs_in_one_folder_do_not_meet(pipeline: Path) -> None:
    with (
        runner_of(pipeline, Notes()).alone(),
        pytest.raises(HgldError, match="another hgld is at work here"),
    ):
        runner_of(pipeline, Notes()).run("collect")


def test_a_work_folder_among_the_files_of_the_data_set_is_refused(pipeline: Path) -> None:
    settings = f"source.folder={pipeline.parent}", "source.labels_csv=photos/labels.csv"
    with pytest.raises(UsageError, match=r"in the source folder .*; give --work a folder outside"):
        runner_of(pipeline, Notes(), *settings).run("collect")
    assert not (pipeline.parent / "work").exists()


def test_a_row_that_vanishes_is_noticed(run: Callable[..., Notes], pipeline: Path) -> None:
    run()
    runner = runner_of(pipeline, Notes())
    hierarchy = pipeline.parent / "work" / "hierarchy.csv"
    hierarchy.write_text("\n".join(hierarchy.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(HgldError, match="4 classes in, but 3 out and 0 dropped"):
        count_balance(runner.stage("label"), runner.workspace, 0.0)


def make_folder() -> Callable[[], None]:
    return Path(os.environ["HGLD_TEST_FOLDER"]).mkdir


def test_a_stage_waits_for_its_work_aside(
    pipeline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HGLD_TEST_FOLDER", str(tmp_path / "aside"))
    monkeypatch.setattr("hgld.pipeline.run.count_cores", lambda: 2)
    runner = runner_of(pipeline, Notes())
    runner.stages = [
        replace(stage, aside=f"{__name__}:make_folder") if stage.name == "export" else stage
        for stage in runner.stages
    ]
    runner.run("export")
    assert (tmp_path / "aside").is_dir()


def test_the_workers_of_a_stage_import_while_it_is_loaded(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def load(name: str) -> Any:
        seen.append(name)
        return load_function(name)

    report = next(stage for stage in STAGES if stage.name == "report")
    assert report.workers == load_function("hgld.report.charts:draw_chart").__module__
    monkeypatch.setattr("hgld.pipeline.run.count_cores", lambda: 2)
    monkeypatch.setattr("hgld.pipeline.run.prepare_workers", seen.append)
    monkeypatch.setattr("hgld.pipeline.run.load_function", load)
    runner = runner_of(pipeline, Notes())
    runner.stages = tuple(replace(stage, workers="workers") for stage in runner.stages[:1])
    runner.run()
    assert seen[:2] == ["workers", runner.stages[0].function]


def test_nothing_is_searched_for_garbage_while_a_stage_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_stage.py").write_text("import gc\nnow = gc.isenabled()\nheld = [{}]\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_function("imported_stage:now") is False
    assert gc.isenabled()
    held, frozen = load_function("imported_stage:held"), gc.get_freeze_count()
    assert all(found is not held for found in gc.get_objects())  # nor is it later
    load_function("imported_stage:now")
    assert gc.get_freeze_count() <= frozen  # nothing else is kept at the next call
    with pytest.raises(ModuleNotFoundError):
        load_function("no_such_stage:now")
    assert gc.isenabled()
