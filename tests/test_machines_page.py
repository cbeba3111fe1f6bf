"""The cluster's file and the scripts for Slurm that the page "More than one machine" names."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from hgld.config import EvaluateOptions, ExportOptions, FetchOptions

PAGE = Path("docs/machines.md").read_text("utf-8")


def test_ray_accepts_the_file_of_the_cluster() -> None:
    pytest.importorskip("ray") if not os.environ.get("CI") else __import__("ray")
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(yaml.safe_load(Path("examples/ray/aws.yaml").read_text("utf-8")))
    validate_config(config)
    kinds = config["available_node_types"]
    assert kinds["gpu"]["min_workers"] == kinds["cores"]["min_workers"] == 1
    with pytest.raises(Exception, match="provder"):
        validate_config({**config, "provder": {}})


def test_the_page_names_files_and_options_that_exist() -> None:
    named = set(re.findall(r"examples/[\w/.]+\w", PAGE))
    folders = Path("examples/ray"), Path("examples/slurm")
    assert named == {str(path) for folder in folders for path in folder.iterdir()}
    stages = {"fetch": FetchOptions, "export": ExportOptions, "evaluate": EvaluateOptions}
    options = re.findall(r"`(fetch|export|evaluate)\.(\w+)`", PAGE)
    assert len(options) >= 8
    assert all(name in stages[stage].model_fields for stage, name in options)
    advised = {"cpus_per_task", "memory_gb_per_task"}  # by errors of a task on a cluster
    assert {(stage, name) for stage in stages for name in advised} <= set(options)


@pytest.mark.parametrize("script", sorted(Path("examples/slurm").glob("*.sh")), ids=str)
def test_a_script_for_slurm_is_valid_bash(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
