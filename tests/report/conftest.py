from pathlib import Path

import pandas as pd
import pytest

from tests.made_run import MadeRun, make_run
from tests.report.reading import write


@pytest.fixture
def run(tmp_path: Path) -> MadeRun:
    return make_run(tmp_path / "work")


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One report with all defaults, for the tests that only look."""
    run = make_run(tmp_path_factory.mktemp("made") / "work")
    return write(run, vector_figures=("svg", "pdf"))


@pytest.fixture(scope="session")
def long_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of thirteen metrics, two models side by side, and long names."""
    run = make_run(tmp_path_factory.mktemp("long") / "work")
    metrics = [f"{name}:{level}" for name in ("AP", "R@1", "mAP@100") for level in run.levels]
    metrics += ["H-AP", "NDCG", "ASI", "wAP(weights=0.2/0.3/0.5)"]
    run.evaluation["metrics"] = metrics
    for name, model in run.evaluation["models"].items():
        model["mean"] = run.evaluation["runs"][name]["mean"] = dict.fromkeys(metrics, 0.5)
    other = run.per_query.assign(model="plain", value=run.per_query["value"].to_numpy()[::-1])
    run.per_query = pd.concat([run.per_query, other], ignore_index=True)
    run.index["title"] = [f"photos/{'0123456789' * 9}/{i}.jpg" for i in range(len(run.index))]
    run.index["author"] = "Somebody_with_a_name_that_nobody_would_break_into_two_lines " * 2
    run.write_index()
    return write(run, grid_queries=3, compared_queries=1)
