"""Icicle of hierarchical confusion: where in the tree the first image found is of another class.

Levels are columns, coarse to fine. The height of a class is its number of queries, its colour the
share of them whose first image is of another class at that level.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb

from hgld.figures import WIDE, WIDTH, Drawing, Theme, open_figure
from hgld.report.class_table import Path, class_columns
from hgld.words import shortened

HEIGHT = 5.6  # inches
NARROW = 4  # levels that fit into one column of the page
LETTER, LINE = 0.063, 0.13  # inches of a letter and of a line of a class's name
EDGED = 0.006  # least height of a class with an edge around it, as a share of all


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
    width = WIDTH if len(levels) <= NARROW else WIDE
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
                    percent = f" {100 * confused:.0f}%"
                    name = shortened(row["class"], int(column_inches / LETTER) - len(percent) - 1)
                    ink = _readable(ramp(confused / most), theme)
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


def _readable(fill: Any, theme: Theme) -> str:
    """The page's ink or its surface, whichever differs more in lightness from the fill."""

    def lightness(colour: Any) -> float:
        red, green, blue = to_rgb(colour)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    return max(theme.ink, theme.surface, key=lambda ink: abs(lightness(ink) - lightness(fill)))
