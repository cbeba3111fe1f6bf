"""Layout of a section's charts on the page in balanced columns, without half-empty rows."""

from collections.abc import Sequence
from itertools import groupby, product

from hgld.report.charts import Chart

__all__ = ["arrange"]

WORDS = 1.1  # height of a chart's title and caption in inches


def arrange(charts: Sequence[Chart]) -> list[list[list[Chart]]]:
    """Return rows of the page: each is one chart, or two columns of similar height."""
    rows = []
    for wide, some in groupby(charts, key=lambda chart: chart.wide):
        if wide:
            rows += [[[chart]] for chart in some]
        else:
            rows.append(_balance(list(some)))
    return rows


def _balance(charts: list[Chart]) -> list[list[Chart]]:
    """Split the charts into two columns of most similar height; the first chart stays first."""
    if len(charts) == 1:
        return [charts]

    def columns(sides: tuple[int, ...]) -> list[list[Chart]]:
        placed = list(zip(charts, (0, *sides), strict=True))
        return [[chart for chart, side in placed if side == column] for column in (0, 1)]

    def gap(sides: tuple[int, ...]) -> float:
        heights = [sum(chart.size[1] + WORDS for chart in column) for column in columns(sides)]
        # rounded, so that equal layouts tie in spite of float errors and the first one is taken
        return round(abs(heights[0] - heights[1]), 6)

    return columns(min(product((0, 1), repeat=len(charts) - 1), key=gap))
