import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from hgld.artifacts import ARTIFACTS
from hgld.config import Pipeline
from hgld.pipeline.lock import Lock, Workspace, stage_options
from hgld.pipeline.stages import STAGES, Stage, active_stages, left_out, load_function, stage_names

PEOPLE_WRITE = {
    "agreement",
    "class_roots",
    "cluster_edits",
    "comments",
    "decisions",
    "links",
    "overrides",
    "removals",
    "taxonomy",
    "taxonomy_edits",
}


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.function)
def test_the_function_of_a_stage_exists(stage: Stage) -> None:
    for name in (stage.function, stage.gate, *stage.checks, stage.served_by):
        assert name is None or callable(load_function(name))


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.function)
def test_a_stage_names_artifacts_that_exist_and_has_options(stage: Stage) -> None:
    assert {*stage.reads, *stage.also, *stage.writes} <= set(ARTIFACTS)
    assert stage.name in Pipeline.model_fields
    pipeline = Pipeline.model_validate({"labels": "x"})
    for used in stage.uses:  # a section, or an option of one
        attrgetter(used)(pipeline)


def test_only_stages_with_a_model_load_torch() -> None:
    """It takes a second and a quarter of a gigabyte, in each process that writes shards too."""
    with_model = {"embed", "link", "train", "evaluate"}
    modules = {s.function.partition(":")[0] for s in STAGES if s.name not in with_model}
    code = f"import sys, {', '.join(sorted(modules))}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("compare, hgld.evaluate.results", {"torch", "timm", "torchvision", "numba"}),
        ("measured_files, hgld.evaluate.given", {"timm", "torchvision"}),
        ("embedded, hgld.evaluate.export", {"timm", "torchvision", "numba"}),
        ("protocol, hgld.evaluate.measure", {"timm", "torchvision"}),
    ],
)
def test_an_evaluation_that_embeds_no_photo_loads_no_networks(
    modules: str, heavy: set[str]
) -> None:
    code = f"import sys, hgld.evaluate.{modules}; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_artifact_is_written_by_a_stage_or_by_people() -> None:
    written = {name for stage in STAGES for name in stage.writes}
    assert written | PEOPLE_WRITE == set(ARTIFACTS)


def test_the_checks_of_folders_and_tables_exist() -> None:
    for artifact in ARTIFACTS.values():
        names = [getattr(artifact, name, None) for name in ("verify", "index")]
        assert all(name is None or callable(load_function(name)) for name in names)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"source": {"kind": "toy"}},
        {"source": {"kind": "folder"}, "label": {"source": "folder"}},
        {"label": {"source": "published"}},
        {"scrape": {"source": "table"}},
        {"scrape": {"source": "html"}},
        {"scrape": {"source": "dump"}},
        {"source": {"kind": "folder"}, "scrape": {"source": "names"}},
        {"source": {"kind": "folder"}, "scrape": {"source": "items"}},
        {"scrape": {"source": "items", "most_hops": 2}, "cluster": {"ancestry": 2}},
        {"cluster": {"on": "text+images", "seeds": "decided"}},
        {"evaluate": {"models": {"given": "timm:resnet50"}}},
    ],
    ids=str,
)
def test_what_a_stage_reads_is_written_before_it(options: dict[str, dict[str, str]]) -> None:
    pipeline = Pipeline.model_validate({"labels": "labels", **options})
    there = PEOPLE_WRITE | (set() if pipeline.trains else {"models"})
    for stage in active_stages(pipeline):
        assert set(stage.reads) <= there, stage.name
        there |= set(stage.writes)


def test_a_pipeline_has_each_stage_once() -> None:
    options = {"publish": {"name": "Mine"}, "scrape": {"source": "items"}}
    pipeline = Pipeline.model_validate({"labels": "x", **options})
    names = [stage.name for stage in active_stages(pipeline)]
    assert names == stage_names()


@pytest.mark.parametrize(
    ("scrape", "function"),
    [
        ({}, "hint_classes"),
        ({"source": "dump"}, "hint_nothing"),
        ({"source": "dump", "contact": "me@example.org"}, "hint_classes"),
    ],
)
def test_a_contact_makes_the_hints_of_other_sources_stale(
    scrape: dict[str, str], function: str
) -> None:
    pipeline = Pipeline.model_validate({"labels": "x", "scrape": scrape})
    (stage,) = (stage for stage in active_stages(pipeline) if stage.name == "hint")
    assert stage.function == f"hgld.hierarchy.hints:{function}"


def test_another_name_of_a_level_makes_the_release_stale(tmp_path: Path) -> None:
    options = {"labels": "x", "publish": {"name": "Mine"}, "cluster": {"levels": ["a", "b"]}}
    pipeline = Pipeline.model_validate(options)
    (stage,) = (stage for stage in active_stages(pipeline) if stage.name == "publish")
    workspace = Workspace(tmp_path / "p.toml", pipeline, tmp_path)
    found = stage_options(stage, Lock(workspace))
    assert found["cluster.levels"] == ["a", "b"]


@pytest.mark.parametrize(
    ("section", "option", "values", "stage"),
    [
        ("cluster", "clusters", (5, 6), "cluster"),  # others take the names of the levels
        ("scrape", "most_hops", (1, 2), "scrape"),  # links take the wiki or its dump
        ("scrape", "properties", (["P31"], ["P171"]), "scrape"),
        ("embed", "prompt", ("{label}", "a {label}"), "embed"),
    ],
)
def test_an_option_makes_no_stage_stale_that_uses_only_others_of_its_section(
    tmp_path: Path, section: str, option: str, values: tuple[object, object], stage: str
) -> None:
    found = []
    for value in values:
        options: dict[str, Any] = {"labels": "x", "publish": {"name": "Mine"}, "cluster": {}}
        options |= {"scrape": {"source": "items"}, "embed": {"encoder": "offline:minilm"}}
        options[section] |= {option: value}
        pipeline = Pipeline.model_validate(options)
        lock = Lock(Workspace(tmp_path / "p.toml", pipeline, tmp_path))
        stages = active_stages(pipeline)
        found.append({stage.name: stage_options(stage, lock) for stage in stages})
    assert [name for name in found[0] if found[0][name] != found[1][name]] == [stage]


def test_without_a_name_nothing_is_published() -> None:
    pipeline = Pipeline.model_validate({"labels": "x"})
    assert left_out(pipeline) == {"publish": "publish.name"}
    assert "publish" not in [stage.name for stage in active_stages(pipeline)]
    named = Pipeline.model_validate({"labels": "x", "publish": {"name": "Mine"}})
    assert left_out(named) == {}
