import os
from dataclasses import replace
from pathlib import Path

import pytest

from hgld.config import Pipeline, load_pipeline
from hgld.errors import InvalidData
from hgld.pipeline.lock import STOPPED, Lock, Workspace, judge, stage_options
from hgld.pipeline.stages import STAGES, active_stages


def test_a_changed_file_that_a_person_brought_makes_its_stage_stale(tmp_path: Path) -> None:
    for name, text in (("table", "a"), ("pages/x.html", "b")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    scrape = {"source": "table", "table": tmp_path / "table", "html_folder": tmp_path / "pages"}
    pipeline = Pipeline.model_validate({"labels": tmp_path, "scrape": scrape})
    workspace = Workspace(tmp_path / "p.toml", pipeline, tmp_path)
    stage = next(stage for stage in active_stages(pipeline) if stage.name == "scrape")
    lock = Lock(workspace)
    before = stage_options(stage, lock)
    assert stage_options(stage, lock) == before
    (tmp_path / "table").write_text("c")
    (tmp_path / "pages" / "y.html").write_text("d")
    after = stage_options(stage, lock)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"what scrape.table holds", "what scrape.html_folder holds"}


@pytest.mark.parametrize(
    ("setting", "stage", "option"),
    [
        ("source.labels_csv=../mine.csv", "collect", "source.labels_csv"),
        ("source.labels_csv=.mine.csv", "collect", "source.labels_csv"),
        ("source.inaturalist.train_list=../mine.csv", "collect", "source.inaturalist.train_list"),
        ('source.inaturalist.annotations=["a.json", "../mine.csv"]', "collect",
         "source.inaturalist.annotations.1"),
        ("collect.train_clean_csv={folder}/mine.csv", "collect", "collect.train_clean_csv"),
        ("label.train_csv=../mine.csv", "label", "label.train_csv"),
        ('fetch.downloads=[{{url = "a", megabytes = 1, wanted_csv = "../mine.csv"}}]', "fetch",
         "fetch.downloads.0.wanted_csv"),
    ],
)  # fmt: skip
def test_a_file_that_the_hash_of_the_source_folder_lacks_counts_by_its_content(
    tmp_path: Path, setting: str, stage: str, option: str
) -> None:
    file = tmp_path / "p.toml"
    file.write_text('labels = "."\n[source]\nkind = "folder"\nfolder = "source"\n')
    pipeline = load_pipeline(file, [setting.format(folder=tmp_path)])
    (tmp_path / "source").mkdir()
    lock = Lock(Workspace(file, pipeline, tmp_path))
    row = next(row for row in active_stages(pipeline) if row.name == stage)
    found = []
    for text in ("a", "b"):
        (tmp_path / "mine.csv").write_text(text)
        (tmp_path / "source" / ".mine.csv").write_text(text)
        found.append(stage_options(row, lock))
    changed = {name for name in found[1] if found[0].get(name) != found[1][name]}
    assert changed == {f"what {option} holds"}


def test_runs_and_models_in_another_order_are_other_options(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('labels = "."\n')

    def options_of(stage: str, setting: str) -> dict[str, object]:
        pipeline = load_pipeline(tmp_path / "p.toml", [setting])
        row = next(row for row in STAGES if row.name == stage)
        workspace = Workspace(tmp_path / "p.toml", pipeline, tmp_path)
        return stage_options(row, Lock(workspace))

    for option, text in (("train.runs", "{steps=1}"), ("evaluate.models", "'offline:x'")):
        stage = option.partition(".")[0]
        one = options_of(stage, f"{option}={{a={text}, b={text}}}")
        other = options_of(stage, f"{option}={{b={text}, a={text}}}")
        assert {name for name in one if one[name] != other[name]} == {f"order in {stage}"}


def test_a_renamed_work_folder_is_another_title_of_the_report(tmp_path: Path) -> None:
    report = next(stage for stage in STAGES if stage.name == "report")

    def options_of(name: str, title: str) -> dict[str, object]:
        pipeline = Pipeline.model_validate({"labels": tmp_path, "title": title})
        workspace = Workspace(tmp_path / "p.toml", pipeline, tmp_path / name)
        return stage_options(report, Lock(workspace))

    assert options_of("one", "") != options_of("other", "")
    assert options_of("one", "Mine") == options_of("other", "Mine")


def test_a_moved_file_of_weights_is_the_same_option(tmp_path: Path) -> None:
    def options_in(folder: Path) -> dict[str, object]:
        folder.mkdir()
        (folder / "w.pt").write_bytes(b"weights")
        embed = {"encoder": f"RN50/{folder}/w.pt", "images": f"open_clip:RN50/{folder}/w.pt"}
        pipeline = Pipeline.model_validate({"labels": folder, "embed": embed})
        stage = next(stage for stage in active_stages(pipeline) if stage.name == "embed")
        workspace = Workspace(folder / "p.toml", pipeline, folder)
        return stage_options(stage, Lock(workspace))

    assert options_in(tmp_path / "here") == options_in(tmp_path / "there")


def test_what_is_not_there_yet_is_said_to_be_absent(tmp_path: Path) -> None:
    scrape = {"source": "table", "table": tmp_path / "none"}
    pipeline = Pipeline.model_validate({"labels": tmp_path, "scrape": scrape})
    stage = next(stage for stage in active_stages(pipeline) if stage.name == "scrape")
    options = stage_options(stage, Lock(Workspace(tmp_path / "p.toml", pipeline, tmp_path)))
    assert options["what scrape.table holds"] == "absent"


def test_links_in_loops_pipes_and_broken_links_do_not_change_the_hash_of_a_source(
    tmp_path: Path,
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "x.jpg").write_text("x")
    pipeline = Pipeline.model_validate({"labels": tmp_path})
    workspace = Workspace(tmp_path / "p.toml", pipeline, tmp_path)
    before = Lock(workspace).hash("source")
    for name, target in (("a", "."), ("b", "."), ("root", "/"), ("gone", "nowhere")):
        (source / name).symlink_to(target)
    os.mkfifo(source / "pipe")
    assert Lock(workspace).hash("source") == before


def test_a_corrected_estimate_makes_no_fetch_stale_and_another_list_does(tmp_path: Path) -> None:
    stage = next(stage for stage in STAGES if stage.name == "fetch")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "x").write_text("")

    def workspace(**changes: object) -> Workspace:
        listed = {"url": "a.tar", "megabytes": 1, "wanted_csv": "a.csv"} | changes
        pipeline = Pipeline.model_validate({"labels": tmp_path, "fetch": {"downloads": [listed]}})
        return Workspace(tmp_path / "p.toml", pipeline, tmp_path)

    lock = Lock(workspace())
    lock.finish(stage, {}, stage_options(stage, lock), 0.0)
    sizes = {"megabytes": 2.0, "kept_megabytes": 3.0, "shards_megabytes": 4.0}
    assert judge(stage, replace(lock, workspace=workspace(**sizes))).state == "fresh"
    assert judge(stage, lock).state == "fresh"
    found = judge(stage, replace(lock, workspace=workspace(**sizes, wanted_csv="b.csv")))
    assert found.reasons == (
        "fetch.downloads: [{'wanted_csv': 'a.csv'}] -> [{'wanted_csv': 'b.csv'}]",
    )


def test_a_stage_that_was_stopped_names_the_options_that_changed_since(tmp_path: Path) -> None:
    stage = next(stage for stage in STAGES if stage.name == "fetch")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "x").write_text("")

    def workspace(**fetch: object) -> Workspace:
        pipeline = Pipeline.model_validate({"labels": tmp_path, "fetch": fetch})
        return Workspace(tmp_path / "p.toml", pipeline, tmp_path)

    lock = Lock(workspace())
    lock.finish(stage, {}, stage_options(stage, lock), 0.0)
    lock.start(stage)
    assert judge(stage, lock).reasons == (STOPPED,)
    found = judge(stage, replace(lock, workspace=workspace(short_side=256)))
    assert found.reasons == (STOPPED, "fetch.short_side: None -> 256")


def test_an_empty_value_is_named_in_a_reason(tmp_path: Path) -> None:
    stage = next(stage for stage in STAGES if stage.name == "evaluate")
    (tmp_path / "ranked_levels").mkdir()
    for name in ("report.json", "per_query.parquet", "ranked_levels/mine.npz"):
        (tmp_path / name).write_text("")

    def workspace(**models: str) -> Workspace:
        pipeline = Pipeline.model_validate({"labels": tmp_path, "evaluate": {"models": models}})
        return Workspace(tmp_path / "p.toml", pipeline, tmp_path)

    none, one = Lock(workspace()), Lock(workspace(mine="offline:x"))
    for before, now, reason in ((none, one, "empty -> mine"), (one, none, "mine -> empty")):
        before.finish(stage, {}, stage_options(stage, before), 0.0)
        found = judge(stage, replace(before, workspace=now.workspace))
        assert f"order in evaluate: {reason}" in found.reasons


def lock_of(folder: Path) -> Lock:
    pipeline = Pipeline.model_validate({"labels": folder, "source": {"folder": folder / "source"}})
    return Lock(Workspace(folder / "p.toml", pipeline, folder))


def test_a_large_file_that_changes_under_the_same_size_and_time_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hgld.pipeline.lock.COUNTED_BY_TIME", 3)
    file = tmp_path / "source" / "x.tar"
    file.parent.mkdir()
    file.write_text("right")
    lock = lock_of(tmp_path)
    before, facts = lock.hash("source"), file.stat()
    assert lock.hash("source") == before
    file.write_text("wrong")
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    changed = lock.hash("source")
    assert changed != before and lock.hash("source") == changed


def test_what_a_person_brought_is_seen_to_change_under_the_same_size_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hgld.pipeline.lock.COUNTED_BY_TIME", 3)
    table, folder = tmp_path / "table", tmp_path / "pages"
    folder.mkdir()
    for file in (table, folder / "a", folder / "b"):
        file.write_text(f"{file.name:>5}")
        os.utime(file, ns=(0, 0))
    lock = lock_of(tmp_path)
    before = lock.hash_brought(table), lock.hash_brought(folder)
    table.write_text("other")
    os.utime(table, ns=(0, 0))
    (folder / "a").rename(folder / "c")
    after = lock.hash_brought(table), lock.hash_brought(folder)
    assert before[0] != after[0] and before[1] != after[1]
    assert after == (lock.hash_brought(table), lock.hash_brought(folder))


def test_links_that_lead_round_and_special_files_of_a_source_stop_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "a").mkdir(parents=True)
    (source / "a" / "x.jpg").write_text("x")
    before = lock_of(tmp_path).hash("source")
    for name, target in {"one": ".", "two": ".", "root": "/", "none": "/nowhere"}.items():
        (source / name).symlink_to(target)
    os.mkfifo(source / "a" / "pipe")
    assert lock_of(tmp_path).hash("source") == before


def test_a_lock_file_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock.json")
    with pytest.raises(InvalidData, match="a pipe or a device"):
        Lock.load(lock_of(tmp_path).workspace)
