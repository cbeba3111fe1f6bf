"""Draws the report's charts as PNG bytes, each for a light and for a dark page.

Plain functions of numbers and names: what is drawn is decided in ``hgld.report.page``. The charts
use matplotlib's own font and none of a person's settings, and the files carry neither date nor
version, so that the same numbers give the same bytes.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

__all__ = [
    "DARK",
    "LIGHT",
    "Bar",
    "Theme",
    "draw_class_sizes",
    "draw_groups",
    "draw_level_bars",
    "draw_loss_curves",
    "open_figure",
    "png_bytes",
]

WIDTH = 5.6  # inches; one inch is 100 px of the page
PIXELS_PER_INCH = 200  # twice the page's, for sharp screens
MAX_BARS = 80
LOG_FROM = 30.0  # an axis is logarithmic where its values span more than this factor


@dataclass(frozen=True)
class Theme:
    """Colours of a page: ``series`` for models, ``groups`` for splits and coarse classes."""

    name: str
    surface: str
    ink: str
    muted: str
    grid: str
    series: tuple[str, ...]
    groups: tuple[str, ...]


LIGHT = Theme(
    "light",
    surface="#ffffff",
    ink="#1d2330",
    muted="#5f6b7d",
    grid="#e4e7ec",
    series=("#3565c9", "#dd8a16", "#8d4fb8", "#1597a5", "#b5476b", "#7a6a58"),
    groups=("#a8744f", "#23907f", "#5b5fa8", "#8a8f3a", "#a0527e", "#6b7480"),
)
DARK = Theme(
    "dark",
    surface="#1a1f2a",
    ink="#e9ecf2",
    muted="#9ba6b8",
    grid="#323a4a",
    series=("#7ba2f5", "#f0ae4e", "#c393e8", "#4fc4d0", "#e888a6", "#b9a68f"),
    groups=("#d6a27c", "#52c2af", "#9a9ee8", "#c2c76a", "#d98bb4", "#a3adba"),
)


@dataclass(frozen=True)
class Bar:
    """One class of the histogram: its name, the coarse class it belongs to, its counts."""

    name: str
    group: str
    classes: int
    images: int


def draw_level_bars(values: Mapping[str, Mapping[str, float]], theme: Theme) -> bytes:
    """AP at each level, one bar a model; ``values`` are model -> level -> [0, 1]."""
    models, levels = list(values), list(next(iter(values.values())))
    with open_figure(theme, WIDTH, 3.0) as figure:
        axes = _axes(figure, theme, grid_axis="y")
        width = 0.8 / len(models)
        for number, (model, colour) in enumerate(_colours(models, theme).items()):
            at = np.arange(len(levels)) + (number - (len(models) - 1) / 2) * width
            heights = [100 * values[model].get(level, np.nan) for level in levels]
            bars = axes.bar(at, heights, width * 0.9, color=colour, label=model)
            if len(models) * len(levels) <= 15:
                labels = ["" if np.isnan(h) else f"{h:.1f}" for h in heights]
                axes.bar_label(bars, labels, fontsize=8, color=theme.ink, padding=2)
        axes.set_xticks(np.arange(len(levels)), levels, fontsize=10, color=theme.ink)
        axes.set_ylim(0, 105)
        axes.set_ylabel("AP (%)")
        _legend(axes, theme)
        return png_bytes(figure)


def draw_loss_curves(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    models: Sequence[str],
    theme: Theme,
) -> bytes:
    """Loss against step, a panel a model, since losses differ in scale.

    Args:
        curves: model -> (steps, losses); models without a curve are left out.
        models: all models, so that each keeps its colour.
        theme: of the page.
    """
    shown, colours = list(curves), _colours(models, theme)
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    with open_figure(theme, WIDTH, 0.35 + 1.95 * rows) as figure:
        for number, model in enumerate(shown):
            axes = _axes(figure, theme, (rows, columns, number + 1), grid_axis="y")
            steps, losses = (np.asarray(part, dtype=float) for part in curves[model])
            axes.plot(steps, losses, color=colours[model], linewidth=0.8, alpha=0.35)
            axes.plot(steps, _running_mean(losses), color=colours[model], linewidth=1.8)
            axes.set_title(model, loc="left", fontsize=10, color=colours[model], weight="bold")
            axes.set_xlim(left=0)
            if number >= len(shown) - columns:
                axes.set_xlabel("step")
            if number % columns == 0:
                axes.set_ylabel("loss")
        return png_bytes(figure)


def draw_class_sizes(sizes: Mapping[str, Sequence[int]], finest: str, theme: Theme) -> bytes:
    """Images of each class, largest class first; one line a split."""
    with open_figure(theme, WIDTH, 3.0) as figure:
        axes = _axes(figure, theme, grid_axis="both")
        for (split, counts), colour in zip(sizes.items(), cycle(theme.groups), strict=False):
            ordered = np.sort(np.asarray(counts))[::-1]
            label = f"{split}: {len(ordered):,} classes, median {np.median(ordered):g}"
            ranks = np.arange(1, len(ordered) + 1)
            axes.step(ranks, ordered, where="mid", color=colour, linewidth=2, label=label)
        largest = max(max(counts) for counts in sizes.values())
        smallest = min(min(counts) for counts in sizes.values())
        _scale(axes, "x", 10, max(len(counts) for counts in sizes.values()))
        _scale(axes, "y", smallest, largest)
        if axes.get_yscale() == "linear":
            axes.set_ylim(0, 1.3 * largest)
        axes.set_xlabel(f"{finest}, by number of images")
        axes.set_ylabel("images")
        _legend(axes, theme, columns=1, inside=True)
        return png_bytes(figure)


def draw_groups(bars: Sequence[Bar], finest: str, theme: Theme) -> bytes:
    """Classes of the finest level in each group of the level above it, largest group first."""
    shown = sorted(bars, key=lambda bar: (-bar.classes, bar.name))[:MAX_BARS]
    groups = sorted({bar.group for bar in bars})
    colours = dict(zip(groups, theme.groups, strict=False))
    colours = colours if len(groups) <= len(colours) else {}
    with open_figure(theme, WIDTH, 0.9 + 0.175 * len(shown)) as figure:
        axes = _axes(figure, theme, grid_axis="x")
        largest = shown[0].classes
        _scale(axes, "x", shown[-1].classes, largest)
        logarithmic = axes.get_xscale() == "log"
        for number, bar in enumerate(shown):
            colour = colours.get(bar.group, theme.groups[1])
            start = 0.5 if logarithmic else 0.0
            axes.barh(number, bar.classes - start, 0.72, left=start, color=colour)
            text = f" {bar.classes:,} · {bar.images:,} images"
            axes.text(bar.classes, number, text, va="center", fontsize=8, color=theme.muted)
        axes.set_yticks(
            range(len(shown)), [bar.name for bar in shown], color=theme.ink, fontsize=8.5
        )
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlim(0.5 if logarithmic else 0, largest * (8 if logarithmic else 1.3))
        left_out = f" ({len(bars) - len(shown)} smaller not shown)" if len(bars) > MAX_BARS else ""
        axes.set_xlabel(f"{finest} classes{left_out}")
        for group, colour in colours.items():
            axes.barh([np.nan], [np.nan], color=colour, label=group)
        if len(colours) > 1:
            _legend(axes, theme)
        return png_bytes(figure)


@contextmanager
def open_figure(theme: Theme, width: float, height: float) -> Iterator[Figure]:
    """An empty figure of a size in inches; the block draws on it in the theme's style."""
    style: dict[str, Any] = {
        "font.size": 9,
        "text.parse_math": False,  # a class may be called "$"
        "axes.edgecolor": theme.grid,
        "axes.labelcolor": theme.muted,
        "axes.axisbelow": True,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "grid.color": theme.grid,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "xtick.minor.size": 0,
        "ytick.minor.size": 0,
    }
    with matplotlib.style.context(["default", style]):
        yield Figure((width, height), facecolor=theme.surface, layout="constrained")


def _axes(
    figure: Figure,
    theme: Theme,
    place: tuple[int, int, int] = (1, 1, 1),
    grid_axis: str = "y",
) -> Axes:
    axes: Axes = figure.add_subplot(*place, facecolor=theme.surface)
    axes.grid(axis=grid_axis, linewidth=0.8)  # type: ignore[arg-type]
    axes.spines[["top", "right", "left"]].set_visible(False)
    return axes


def _legend(axes: Axes, theme: Theme, columns: int = 3, inside: bool = False) -> None:
    above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (-0.01, 1.0)}
    axes.legend(
        frameon=False,
        labelcolor=theme.ink,
        ncols=columns,
        fontsize=9,
        handlelength=1.0,
        columnspacing=1.4,
        **({"loc": "upper right"} if inside else above),
    )


def _scale(axes: Axes, axis: str, smallest: float, largest: float) -> None:
    """Logarithmic where the values span orders of magnitude; plain numbers in any case."""
    setter, ticks = (axes.set_xscale, axes.xaxis) if axis == "x" else (axes.set_yscale, axes.yaxis)
    span = largest / max(smallest, 1)
    if span > LOG_FROM:
        setter("log")
        ticks.set_major_locator(LogLocator(subs=(1, 2, 5) if span < 300 else (1,)))
    else:
        ticks.set_major_locator(MaxNLocator("auto", integer=True))
    ticks.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ticks.set_minor_formatter(NullFormatter())


def _running_mean(values: np.ndarray) -> np.ndarray:
    """Mean over a centred window of a twentieth of the curve, shorter at its ends."""
    half = len(values) // 40
    sums = np.concatenate([[0.0], np.cumsum(values)])
    low = np.maximum(np.arange(len(values)) - half, 0)
    high = np.minimum(np.arange(len(values)) + half + 1, len(values))
    mean: np.ndarray = (sums[high] - sums[low]) / (high - low)
    return mean


def _colours(names: Sequence[str], theme: Theme) -> dict[str, str]:
    return dict(zip(names, cycle(theme.series), strict=False))


def png_bytes(figure: Figure, pixels_per_inch: int = PIXELS_PER_INCH) -> bytes:
    """The figure as a PNG file that names neither date nor version."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=pixels_per_inch, metadata={"Software": None})
    return buffer.getvalue()
