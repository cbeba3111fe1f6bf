"""Confusion of coarse classes: the class of the first image found, query by query."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from hgld.figures import WIDE, WIDTH, Drawing, Theme, open_figure

SHOWN = 20  # classes that have a row
NARROW = 12  # classes that fit into one column of the page


@dataclass(frozen=True)
class Confusion:
    """Counts of queries by their class and by the class of the first image found.

    Attributes:
        names: of the classes in the order of rows and columns, the last may be all others.
        counts: (C, C) queries; rows their class, columns that of the first image found. With
            others (C, C + 1): those whose first image is of another of the others come last.
        wrong: queries whose first image is of another class.
    """

    names: tuple[str, ...]
    counts: np.ndarray
    wrong: int

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        more = self.counts.shape[1] > len(self.names)
        return (*self.names, "another of the others") if more else self.names

    @property
    def queries(self) -> int:
        """All queries."""
        return int(self.counts.sum())

    def table(self) -> pd.DataFrame:
        """Return the queries of each pair of classes that has any, and their share of the row."""
        rows, columns = np.nonzero(self.counts)
        counts = self.counts[rows, columns]
        return pd.DataFrame(
            {
                "query": [self.names[row] for row in rows],
                "first image": [self.columns[column] for column in columns],
                "queries": counts,
                "share": counts / self.counts.sum(axis=1)[rows],
            }
        )


def count_confusion(
    pairs: Sequence[tuple[tuple[str, ...], tuple[str, ...]]], shown: int = SHOWN
) -> Confusion:
    """Count pairs of class paths: of a query, and of the first image that it found.

    With many classes, only those with most mistakes have a row.

    Example:
        >>> pairs = [(("lake",), ("lake",)), (("lake",), ("bay",))]
        >>> found = count_confusion(pairs)
        >>> found.names, found.counts.tolist(), found.wrong
        (('bay', 'lake'), [[0, 0], [1, 1]], 1)
    """
    classes = sorted({path for pair in pairs for path in pair})
    mistaken = Counter(path for pair in pairs if pair[0] != pair[1] for path in pair)
    queries = Counter(query for query, _ in pairs)
    chosen = sorted(classes, key=lambda path: (-mistaken[path], -queries[path], path))
    kept = sorted(chosen if len(classes) <= shown else chosen[: shown - 1])
    left_out = len(classes) - len(kept)
    place = {path: row for row, path in enumerate(kept)}
    size = len(kept) + bool(left_out)
    counts = np.zeros((size, size + bool(left_out)), dtype=np.int64)
    for query, found in pairs:
        row, column = (place.get(path, len(kept)) for path in (query, found))
        # two of the others are no right pair
        counts[row, column + (query != found and row == column)] += 1
    names = [path[-1] for path in kept] + [f"{left_out} others"] * bool(left_out)
    return Confusion(tuple(names), counts, sum(a != b for a, b in pairs))


def draw_confusion(confusion: Confusion, level: str, theme: Theme) -> Drawing:
    """Draw the matrix: rows are classes of queries, cells shares of the row, diagonal correct."""
    size, columns = confusion.counts.shape
    share = confusion.counts / np.maximum(confusion.counts.sum(axis=1, keepdims=True), 1)
    width, height = (WIDTH, 0.2) if size <= NARROW else (WIDE, 0.26)  # height of a row
    with open_figure(theme, width, 1.5 + height * max(9, size)) as figure:
        axes: Axes = figure.add_subplot(facecolor=theme.surface)
        diagonal = np.eye(size, columns, dtype=bool)
        # mistakes have a ramp of their own, as their shares are small
        _fill(axes, share, diagonal, theme.series[0], theme, 1.0)
        _fill(axes, share, ~diagonal, theme.series[1], theme, max(0.2, share[~diagonal].max()))
        for row, column in np.argwhere(share >= 0.005):
            value = share[row, column]
            colour = theme.surface if row == column and value > 0.55 else theme.ink
            cell: dict[str, Any] = {"ha": "center", "va": "center", "color": colour}
            axes.text(column, row, f"{100 * value:.0f}", fontsize=8, **cell)
        style: dict[str, Any] = {"fontsize": 8.5, "color": theme.ink}
        axes.set_xticks(range(columns), confusion.columns, rotation=40, ha="right", **style)
        axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(size + 1) - 0.5, minor=True)
        counts = confusion.counts.sum(axis=1)
        rows = [f"{name} ({n:,})" for name, n in zip(confusion.names, counts, strict=True)]
        axes.set_yticks(range(size), rows, **style)
        axes.grid(which="minor", linewidth=0.8)
        axes.spines[:].set_visible(False)
        axes.set(xlim=(-0.5, columns - 0.5), ylim=(size - 0.5, -0.5))
        axes.set_xlabel(f"{level} of the first image found")
        # of few rows, the axis is shorter than its name
        axes.set_ylabel(f"{level} of the query\n(number of queries)")
        return Drawing(figure, theme)


def _fill(
    axes: Axes, share: np.ndarray, mask: np.ndarray, colour: str, theme: Theme, most: float
) -> None:
    """Colour the cells of the mask from the page's colour at 0 to the full colour at ``most``."""
    ramp = LinearSegmentedColormap.from_list("ramp", [theme.surface, colour])
    cells = np.ma.array(share, mask=~mask)
    rows, columns = (np.arange(size + 1) - 0.5 for size in share.shape)
    axes.pcolormesh(columns, rows, cells, cmap=ramp, vmin=0, vmax=most, zorder=0)
