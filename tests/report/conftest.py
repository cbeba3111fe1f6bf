import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hgld.report import charts
from hgld.tasks import map_tasks
from tests.made_run import MadeRun, make_run
from tests.report.reading import write

_drawn: dict[bytes, Any] = {}


@pytest.fixture(autouse=True)
def charts_of_equal_data_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests look at the words of a report; to draw its charts takes most of the time."""

    def draw_new(
        function: Callable[..., Any], tasks: Sequence[Any], *more: Any, **named: Any
    ) -> list[Any]:
        keys = [pickle.dumps(task) for task in tasks]
        new = {key: task for key, task in zip(keys, tasks, strict=True) if key not in _drawn}
        drawn = map_tasks(function, [*new.values()], *more, **named)
        _drawn.update(zip(new, drawn, strict=True))
        return [_drawn[key] for key in keys]

    monkeypatch.setattr(charts, "map_tasks", draw_new)


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
