"""Input data of the charts, and the plan of a chart: title, caption and drawing function."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from hgld.artifacts.ranking_file import RankingFile
from hgld.figures import Drawing, Theme
from hgld.report.examples import Images, NameQueries
from hgld.report.intervals import Intervals

Draw = Callable[[Theme], Drawing]


@dataclass(frozen=True)
class ChartData:
    """Results of the evaluation for the charts.

    Attributes:
        rankings: model -> its ranking file.
    """

    evaluation: Mapping[str, Any]
    levels: Sequence[str]
    intervals: Intervals
    rankings: Mapping[str, RankingFile]
    queries: Images | NameQueries
    gallery: Images

    @cached_property
    def runs(self) -> dict[str, dict[str, Any]]:
        """Run -> its models, one for each seed, and their means."""
        runs: dict[str, dict[str, Any]] = self.evaluation["runs"]
        return runs

    @property
    def first_models(self) -> dict[str, str]:
        """Run -> its first model, for charts of a single model."""
        return {run: facts["models"][0] for run, facts in self.runs.items()}

    @property
    def query_levels(self) -> Sequence[str]:
        """Levels of the queries' classes: not those below the names, if names query."""
        queries = self.queries
        return self.levels[: queries.depth] if isinstance(queries, NameQueries) else self.levels

    @property
    def has_seeds(self) -> bool:
        """True if a run has models of several seeds."""
        return any(len(facts["models"]) > 1 for facts in self.runs.values())

    def is_surely_best(self, run: str, metric: str) -> bool:
        """True if all other runs are significantly worse."""
        return self.intervals.ties.get(metric, frozenset()) == {run}


@dataclass(frozen=True)
class ChartPlan:
    """A chart that can be drawn for a page.

    Attributes:
        table: the values in the chart, as ``hgld.report.latex.frame_cells`` takes them.
    """

    name: str
    section: str
    title: str
    caption: str
    draw: Draw
    table: pd.DataFrame | None = None
