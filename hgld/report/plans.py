"""What a chart is planned from, and the plan: the words beside it and how it is drawn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hgld.figures import Theme
from hgld.report.examples import Images
from hgld.report.intervals import Intervals
from hgld.report.rankings import Ranking

__all__ = ["Measured", "Plan"]

Draw = Callable[[Theme], bytes]


@dataclass(frozen=True)
class Measured:
    """What the evaluation found, as the charts need it."""

    evaluation: Mapping[str, Any]
    levels: Sequence[str]
    intervals: Intervals
    rankings: Mapping[str, Ranking]
    queries: Images
    gallery: Images

    @property
    def models(self) -> list[str]:
        """Names of the models in their order."""
        return list(self.evaluation["models"])


@dataclass(frozen=True)
class Plan:
    """A chart that can be drawn for a page."""

    name: str
    section: str
    title: str
    caption: str
    draw: Draw
    wide: bool = False
