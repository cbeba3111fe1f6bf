"""Confusion of classes: the class of the first image found, query by query.

The matrix is of the classes of one level. The icicle shows where in the tree the first image is of
another class: levels are columns, coarse to fine; the height of a class is its number of queries,
its colour the share of them whose first image is of another class at that level.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LinearSegmentedColormap, Normalize

from hgld.figures import LONGEST_NAME, WIDE, WIDTH, Drawing, Theme, open_figure, readable_on
from hgld.report.class_table import Path, class_columns
from hgld.words import percent_text, share_text, shortened

SHOWN = 20  # classes that have a row
FEW_CLASSES = 12  # that fit into one column of the page
FEW_LEVELS = 4  # likewise
HEIGHT = 5.6  # inches of the icicle
LETTER, LINE = 0.063, 0.13  # inches of a letter and of a line of a class's name
EDGED = 0.006  # least height of a class with an edge around it, as a share of all


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
    width, height = (WIDTH, 0.2) if size <= FEW_CLASSES else (WIDE, 0.26)  # height of a row
    with open_figure(theme, width, 1.5 + height * max(9, size)) as figure:
        axes: Axes = figure.add_subplot(facecolor=theme.surface)
        diagonal = np.eye(size, columns, dtype=bool)
        # mistakes have a ramp of their own, as their shares are small
        right = _fill(axes, share, diagonal, theme.series[0], theme, 1.0)
        most = max(0.2, share[~diagonal].max())
        wrong = _fill(axes, share, ~diagonal, theme.series[1], theme, most)
        for row, column in np.argwhere(share >= 0.005):
            value = share[row, column]
            fill = right(value) if row == column else wrong(value / most)
            cell: dict[str, Any] = {"ha": "center", "va": "center"}
            cell["color"] = readable_on(fill, theme)
            axes.text(column, row, percent_text(value, digits=0), fontsize=8, **cell)
        style: dict[str, Any] = {"fontsize": 8.5, "color": theme.ink}
        names = [shortened(name, LONGEST_NAME) for name in confusion.columns]
        axes.set_xticks(range(columns), names, rotation=40, ha="right", **style)
        axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(size + 1) - 0.5, minor=True)
        counts = confusion.counts.sum(axis=1)
        rows = [f"{name} ({n:,})" for name, n in zip(names, counts, strict=False)]
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
) -> LinearSegmentedColormap:
    """Colour the cells of the mask from the page's colour at 0 to the full colour at ``most``.

    Returns:
        The colour of each share of ``most``.
    """
    ramp = LinearSegmentedColormap.from_list("ramp", [theme.surface, colour])
    cells = np.ma.array(share, mask=~mask)
    rows, columns = (np.arange(size + 1) - 0.5 for size in share.shape)
    axes.pcolormesh(columns, rows, cells, cmap=ramp, vmin=0, vmax=most, zorder=0)
    return ramp


def confusion_by_class(
    pairs: Sequence[tuple[Path, int]], levels: Sequence[str], names: Mapping[str, str]
) -> pd.DataFrame:
    """Return one row for each class of the queries: a class comes before those within it.

    Args:
        pairs: of each query, its classes coarse to fine, and the number of levels that the first
            image shares with it.
        levels: names, coarse to fine.
        names: finest class -> its name, if known.

    Returns:
        level, class, within, queries, confused: share of queries with a first image of another
        class at that level. Larger classes come first.

    Example:
        >>> pairs = [(("nature", "lake"), 2), (("nature", "bay"), 1), (("nature", "bay"), 2)]
        >>> confusion_by_class(pairs, ("kind", "type"), {})
          level   class  within  queries  confused
        0  kind  nature                3       0.0
        1  type     bay  nature        2       0.5
        2  type    lake  nature        1       0.0
    """
    queries, wrong = Counter[Path](), Counter[Path]()
    for path, shared in pairs:
        for depth in range(1, len(levels) + 1):
            queries[path[:depth]] += 1
            wrong[path[:depth]] += shared < depth
    order = sorted(
        queries, key=lambda p: [(-queries[p[:i]], p[i - 1]) for i in range(1, len(p) + 1)]
    )
    return pd.DataFrame(
        {
            **class_columns(order, levels, names),
            "queries": [queries[path] for path in order],
            "confused": [wrong[path] / queries[path] for path in order],
        }
    )


def draw_icicle(table: pd.DataFrame, levels: Sequence[str], theme: Theme) -> Drawing:
    """Draw the rows of ``confusion_by_class``."""
    width = WIDTH if len(levels) <= FEW_LEVELS else WIDE
    # the full colour is at 20 % at least, so that few mistakes do not look like many
    ramp = LinearSegmentedColormap.from_list("ramp", [theme.surface, theme.series[1]])
    most = max(0.2, float(table["confused"].max()))
    total = int(table.loc[table["level"] == levels[0], "queries"].sum())
    with open_figure(theme, width, HEIGHT) as figure:
        axes: Axes = figure.add_subplot(facecolor=theme.surface)
        column_inches = (width - 0.9) / len(levels)
        for column, level in enumerate(levels):
            top = 0.0
            for row in table[table["level"] == level].to_dict("records"):
                share, confused = row["queries"] / total, row["confused"]
                style: dict[str, Any] = {"color": ramp(confused / most), "linewidth": 0}
                if share >= EDGED:
                    style |= {"edgecolor": theme.muted, "linewidth": 0.5}
                axes.bar(column, share, 1.0, bottom=top, **style)
                if share * (HEIGHT - 0.7) >= LINE:
                    percent = f" {share_text(confused)}"
                    name = shortened(row["class"], int(column_inches / LETTER) - len(percent) - 1)
                    ink = readable_on(ramp(confused / most), theme)
                    words: dict[str, Any] = {"va": "center", "fontsize": 7.5, "color": ink}
                    axes.text(column - 0.47, top + share / 2, name + percent, **words)
                top += share
        axes.set_xticks(range(len(levels)), levels, color=theme.ink, fontsize=9)
        axes.xaxis.tick_top()
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
        axes.set(xlim=(-0.5, len(levels) - 0.5), ylim=(1, 0))
        colours = ScalarMappable(Normalize(0, 100 * most), ramp)
        bar: Colorbar = figure.colorbar(colours, ax=axes, fraction=0.04, pad=0.02, aspect=40)
        bar.set_label("first image of another class (% of queries)", color=theme.muted)
        bar.outline.set_visible(False)
        return Drawing(figure, theme)
