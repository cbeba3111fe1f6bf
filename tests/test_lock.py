from pathlib import Path

from hgld.config import Pipeline
from hgld.lock import Workspace, stage_options
from hgld.stages import active_stages


def test_a_changed_file_that_a_person_brought_makes_its_stage_stale(tmp_path: Path) -> None:
    for name, text in (("table", "a"), ("pages/x.html", "b")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    scrape = {"source": "table", "table": tmp_path / "table", "html_folder": tmp_path / "pages"}
    pipeline = Pipeline.model_validate({"labels": tmp_path, "scrape": scrape})
    workspace = Workspace(tmp_path / "p.toml", pipeline, tmp_path)
    stage = next(stage for stage in active_stages(pipeline) if stage.name == "scrape")
    before = stage_options(stage, workspace)
    assert stage_options(stage, workspace) == before
    (tmp_path / "table").write_text("c")
    (tmp_path / "pages" / "y.html").write_text("d")
    after = stage_options(stage, workspace)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"what scrape.table holds", "what scrape.html_folder holds"}


def test_what_is_not_there_yet_is_said_to_be_absent(tmp_path: Path) -> None:
    scrape = {"source": "table", "table": tmp_path / "none"}
    pipeline = Pipeline.model_validate({"labels": tmp_path, "scrape": scrape})
    stage = next(stage for stage in active_stages(pipeline) if stage.name == "scrape")
    options = stage_options(stage, Workspace(tmp_path / "p.toml", pipeline, tmp_path))
    assert options["what scrape.table holds"] == "absent"
