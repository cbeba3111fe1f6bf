"""Figures of metrics, losses and class sizes, for a light or a dark page.

They are plain functions of numbers and names; ``hgld.report.charts`` selects the figures. A model
has the same colour and dashes in all of them.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from hgld.figures import (
    WIDTH,
    Drawing,
    Theme,
    add_axes,
    add_legend,
    fit_legend,
    open_figure,
    scale_axis,
)
from hgld.words import columns_of, count_text

DASHES = ("-", (0, (5, 1.6)), (0, (1.4, 1.3)), (0, (6, 1.5, 1.4, 1.5)))
DOTS = "os^Dv"
HATCHES = ("", "/////", ".....")  # of bars, for more models than colours
LEGEND = WIDTH - 0.7  # width of a legend above a panel in inches
INSIDE, LETTERS = 4, 30  # most names, and letters of each, of a legend inside a panel

Line = tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray]  # x and y
Interval = tuple[float, float]


def draw_level_bars(
    values: Mapping[str, Mapping[str, float]],
    intervals: Mapping[tuple[str, str], Interval],
    theme: Theme,
) -> Drawing:
    """Draw AP at each level, one bar for each model, with its interval.

    Args:
        values: model -> level -> [0, 1].
        intervals: (model, level) -> ends; some may be missing.
        theme: of the page.
    """
    models, levels = list(values), list(next(iter(values.values())))
    legend, columns, more = fit_legend(models, 3, LEGEND)
    with open_figure(theme, WIDTH, 3.2 + more) as figure:
        axes = add_axes(figure, theme, grid_axis="y")
        width = 0.8 / len(models)
        for number, (model, colour) in enumerate(model_colours(models, theme).items()):
            hatch = HATCHES[number // len(theme.series) % len(HATCHES)]
            look: dict[str, Any] = {"color": colour, "hatch": hatch, "label": legend[number]}
            look |= {"edgecolor": theme.surface, "linewidth": 0} if hatch else {}
            at = np.arange(len(levels)) + (number - (len(models) - 1) / 2) * width
            heights = np.array([100 * values[model].get(level, np.nan) for level in levels])
            axes.bar(at, heights, width * 0.9, **look)
            none = np.nan, np.nan
            ends = 100 * np.array([intervals.get((model, level), none) for level in levels])
            axes.vlines(at, ends[:, 0], ends[:, 1], color=theme.ink, linewidth=1.1)
            if len(models) * len(levels) <= 15:
                tops = np.fmax(heights, ends[:, 1])
                for x, top, height in zip(at, tops, heights, strict=True):
                    if not np.isnan(height):
                        style: dict[str, Any] = {"ha": "center", "fontsize": 8}
                        axes.text(x, top + 1.2, f"{height:.1f}", color=theme.ink, **style)
        axes.set_xticks(np.arange(len(levels)), levels, fontsize=10, color=theme.ink)
        axes.set_ylim(0, 110)
        axes.set_yticks(range(0, 101, 20))
        axes.set_ylabel("average precision (%)")
        add_legend(axes, theme, columns)
        return Drawing(figure, theme)


def draw_lines(
    lines: Mapping[str, Line],
    models: Sequence[str],
    axis: tuple[str, str],
    theme: Theme,
    *,
    labels: Mapping[str, str] | None = None,
    dots: bool = True,
    powers: bool = False,
    full: bool = False,
) -> Drawing:
    """Draw one line for each model.

    Args:
        lines: model -> x and y.
        models: all models, so that each keeps its colour.
        axis: labels of x and y.
        theme: of the page.
        labels: model -> its text in the legend; None: its name.
        dots: mark the measured points.
        powers: x values are powers of two.
        full: both axes range from 0 to 100.
    """
    colours = model_colours(models, theme)
    names = [(labels or {}).get(model, model) for model in lines]
    legend, columns, more = fit_legend(names, 3, LEGEND)
    inside = ""
    if len(names) <= INSIDE and max(map(columns_of, names)) <= LETTERS:
        inside, columns, more = "best", 1 if len(lines) < 4 else 2, 0.0
    with open_figure(theme, WIDTH, 3.4 + more) as figure:
        axes = add_axes(figure, theme, grid_axis="both")
        for name, (model, (x, y)) in zip(legend, lines.items(), strict=True):
            number = list(models).index(model)
            style: dict[str, Any] = {"linestyle": DASHES[number % len(DASHES)], "linewidth": 2}
            style |= {"marker": DOTS[number % len(DOTS)], "markersize": 5} if dots else {}
            axes.plot(x, y, color=colours[model], label=name, **style)
        if powers:
            axes.set_xscale("log", base=2)
            ticks = sorted({value for x, _ in lines.values() for value in x})
            axes.xaxis.set_major_locator(FixedLocator(ticks))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        if full:
            axes.set(xlim=(0, 100), ylim=(0, 102))
        axes.set(xlabel=axis[0], ylabel=axis[1])
        add_legend(axes, theme, columns, inside)
        return Drawing(figure, theme)


def draw_loss_curves(
    curves: Mapping[str, Sequence[Line]],
    models: Sequence[str],
    theme: Theme,
) -> Drawing:
    """Draw loss against step, one panel for each model, since losses differ in scale.

    Args:
        curves: model -> (steps, losses) of each seed; models without a curve are left out.
        models: all models, so that each keeps its colour.
        theme: of the page.
    """
    shown, colours = list(curves), model_colours(models, theme)
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    with open_figure(theme, WIDTH, 0.35 + 1.95 * rows) as figure:
        for number, model in enumerate(shown):
            axes = add_axes(figure, theme, (rows, columns, number + 1), grid_axis="y")
            for curve in curves[model]:
                steps, losses = (np.asarray(part, dtype=float) for part in curve)
                axes.plot(steps, losses, color=colours[model], linewidth=0.8, alpha=0.35)
                # over a centred window of a twentieth of the curve, shorter at its ends
                windows = pd.Series(losses).rolling(
                    2 * (len(losses) // 40) + 1, center=True, min_periods=1
                )
                axes.plot(steps, windows.mean(), color=colours[model], linewidth=1.8)
            axes.set_title(model, loc="left", fontsize=10, color=colours[model], weight="bold")
            axes.set_xlim(left=0)
            if number >= len(shown) - columns:
                axes.set_xlabel("training step")
            if number % columns == 0:
                axes.set_ylabel("loss")
        return Drawing(figure, theme)


def draw_class_sizes(sizes: Mapping[str, Sequence[int]], finest: str, theme: Theme) -> Drawing:
    """Draw the number of images of each class, largest first; one line for each split."""
    with open_figure(theme, WIDTH, 3.0) as figure:
        axes = add_axes(figure, theme, grid_axis="both")
        for (split, counts), colour in zip(sizes.items(), cycle(theme.groups), strict=False):
            ordered = np.sort(np.asarray(counts))[::-1]
            label = f"{split}: {count_text(len(ordered), 'class')}, "
            label += f"median {np.median(ordered):g}"
            ranks = np.arange(1, len(ordered) + 1)
            axes.step(ranks, ordered, where="mid", color=colour, linewidth=2, label=label)
        largest = max(max(counts) for counts in sizes.values())
        smallest = min(min(counts) for counts in sizes.values())
        scale_axis(axes, "x", 10, max(len(counts) for counts in sizes.values()))
        scale_axis(axes, "y", smallest, largest)
        if axes.get_yscale() == "linear":
            axes.set_ylim(0, 1.3 * largest)
        axes.set_xlabel(f"rank of the {finest} by number of images")
        axes.set_ylabel(f"images of the {finest}")
        add_legend(axes, theme, columns=1, inside="upper right")
        return Drawing(figure, theme)


def model_colours(names: Sequence[str], theme: Theme) -> dict[str, str]:
    """The colour of each model."""
    return dict(zip(names, cycle(theme.series), strict=False))
