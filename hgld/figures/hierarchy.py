"""Figures of a hierarchy: histogram of class sizes, sunburst diagram, stacked bars of shares.

They are plain functions of names and counts, so that a report with images and a release without
any draw the same figures.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from hgld.figures.theme import (
    LONGEST_NAME,
    WIDTH,
    Drawing,
    Theme,
    add_axes,
    add_legend,
    fit_legend,
    open_figure,
    readable_on,
    scale_axis,
)
from hgld.words import columns_of, count_text, level_classes, share_text, shortened

MAX_BARS = 80
HEIGHT = 4.6  # inches of the rings with the names around them
RINGS = 4  # at most; of a deeper hierarchy, the coarsest levels
HOLE, RING = 0.36, 0.64  # radius of the hole, width of all rings together
LETTER = 0.06  # width of a letter outside the rings in inches
BOLD, LINE = 0.077, 0.12  # width and height of a letter inside them
LONGEST = 18  # letters of a name outside the rings
LEAST = 4  # letters of a name inside them, of one that is cut
NAMED = 0.018  # smaller shares have no space for a name

Path = tuple[str, ...]


@dataclass(frozen=True)
class Bar:
    """One class of the histogram: its name, the coarse class it belongs to, its counts."""

    name: str
    group: str
    classes: int
    images: int


def draw_groups(bars: Sequence[Bar], finest: str, theme: Theme) -> Drawing:
    """Classes of the finest level in each group of the level above it, largest group first."""
    shown = sorted(bars, key=lambda bar: (-bar.classes, bar.name))[:MAX_BARS]
    groups = sorted({bar.group for bar in bars})
    few = len(groups) <= len(theme.groups)
    colours = dict(zip(groups, theme.groups, strict=False)) if few else {}
    names = [shortened(bar.name, LONGEST_NAME) for bar in shown]
    legend, columns, more = fit_legend(colours, 3, _width_beside(names))
    with open_figure(theme, WIDTH, 0.9 + 0.175 * len(shown) + more) as figure:
        axes = add_axes(figure, theme, grid_axis="x")
        largest = shown[0].classes
        scale_axis(axes, "x", shown[-1].classes, largest)
        logarithmic = axes.get_xscale() == "log"
        start = 0.5 if logarithmic else 0.0
        with_images = any(bar.images for bar in bars)
        for number, bar in enumerate(shown):
            colour = colours.get(bar.group, theme.groups[1])
            axes.barh(number, bar.classes - start, 0.72, left=start, color=colour)
            text = f" {bar.classes:,}" + f" · {count_text(bar.images, 'image')}" * with_images
            axes.text(bar.classes, number, text, va="center", fontsize=8, color=theme.muted)
        axes.set_yticks(range(len(shown)), names, color=theme.ink, fontsize=8.5)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlim(start, largest * (8 if logarithmic else 1.3))
        others = count_text(len(bars) - len(shown), "other")  # the largest may be as large
        left_out = f" ({others} not shown)" if len(bars) > MAX_BARS else ""
        scale = ", logarithmic" if logarithmic else ""
        axes.set_xlabel(f"number of {level_classes(finest)}{scale}{left_out}")
        for group, colour in zip(legend, colours.values(), strict=True):
            axes.barh([np.nan], [np.nan], color=colour, label=group)
        if len(colours) > 1:
            add_legend(axes, theme, columns)
        return Drawing(figure, theme)


def _width_beside(names: Iterable[str]) -> float:
    """Inches of a panel beside the names of its rows."""
    return WIDTH - 0.25 - LETTER * max(map(columns_of, names), default=0)


def draw_sunburst(counts: Mapping[Path, int], levels: Sequence[str], theme: Theme) -> Drawing:
    """The hierarchy as rings, coarse inside; an angle is a share of all counts.

    Args:
        counts: path of a class, coarse to fine -> what it holds; all paths are of one length.
        levels: name of each ring and then of what is counted.
        theme: of the page.
    """
    depth = min(RINGS, len(next(iter(counts))))
    total = sum(counts.values())
    with open_figure(theme, WIDTH, HEIGHT) as figure:
        axes: Axes = figure.add_subplot(facecolor=theme.surface)
        axes.set_aspect("equal")
        axes.set_axis_off()
        names = sorted({path[0] for path in counts})
        palette = theme.groups if len(names) <= len(theme.groups) else theme.classes
        colours = {name: palette[number % len(palette)] for number, name in enumerate(names)}
        outer = _parts(counts, depth).items()
        named = [_cut(path[-1]) for path, count in outer if count / total >= NAMED]
        letters = max(map(columns_of, named), default=0)
        # in radii of the outer ring, with the names outside it
        reach = 1.05 / (1 - 2 * LETTER * letters / HEIGHT)
        for ring in range(depth):
            parts = _parts(counts, ring + 1)
            _draw_ring(axes, parts, ring, depth, colours, theme, 2 * reach / HEIGHT)
        axes.set(xlim=(-reach * WIDTH / HEIGHT, reach * WIDTH / HEIGHT), ylim=(-reach, reach))
        middle = f"{total:,}\n" + "\n".join(level_classes(levels[-1]).rsplit(" ", 1))
        axes.text(0, 0, middle, ha="center", va="center", fontsize=9, color=theme.ink)
        return Drawing(figure, theme)


def _parts(counts: Mapping[Path, int], length: int) -> dict[Path, int]:
    """Counts of the classes with paths of a length; larger first within what holds them."""
    sums: dict[Path, int] = {}
    for path, count in counts.items():
        for end in range(1, length + 1):
            sums[path[:end]] = sums.get(path[:end], 0) + count
    parts = [path for path in sums if len(path) == length]
    parts.sort(key=lambda p: [(-sums[p[:end]], p[end - 1]) for end in range(1, length + 1)])
    return {path: sums[path] for path in parts}


def _draw_ring(
    axes: Axes,
    parts: Mapping[Path, int],
    ring: int,
    depth: int,
    colours: Mapping[str, str],
    theme: Theme,
    inch: float,
) -> None:
    """Draw the classes of a level; ``inch`` is in radii of the outer ring."""
    total, width = sum(parts.values()), RING / depth
    outer = HOLE + width * (ring + 1)
    shades = _shades(list(parts), colours, theme, ring)
    wedges, *_ = axes.pie(
        list(parts.values()),
        radius=outer,
        colors=shades,
        startangle=90,
        counterclock=False,
        wedgeprops={"width": width, "edgecolor": theme.surface, "linewidth": 1.0},
    )
    last = ring == depth - 1
    for wedge, (path, count) in zip(wedges, parts.items(), strict=True):
        wedge.set_linewidth(min(1.0, 100 * count / total))
        share = count / total
        if share < NAMED:
            continue
        angle, name = (wedge.theta1 + wedge.theta2) / 2, path[-1]
        if last:
            _write(axes, _cut(name), angle, outer + 0.03, last, theme.ink)
            continue
        cut = (f"{name[:end]}…" for end in range(len(name) - 1, LEAST - 1, -1))
        for text in chain((f"{name} {share_text(share)}", name), cut):
            length, height = BOLD * columns_of(text) * inch, LINE * inch
            place = place_in_ring(length, height, 2 * math.pi * share, outer - width, outer)
            if place:
                ink = readable_on(wedge.get_facecolor(), theme)
                _write(axes, text, angle, place, last, ink)
                break


def place_in_ring(length: float, height: float, turn: float, inner: float, outer: float) -> float:
    """Return the radius at which a straight text fits into a part of a ring; 0 if none does.

    Args:
        length: of the text, in the unit of the radii; its middle is at the radius.
        height: likewise.
        turn: angle of the part in radians.
        inner: radius of the ring's inner edge.
        outer: radius of its outer edge.

    Example:
        >>> [round(place_in_ring(length, 0.1, 3.0, 0.3, 0.7), 2) for length in (0.2, 1.0, 1.3)]
        [0.5, 0.44, 0]
    """
    half = length / 2
    if half >= outer:
        return 0
    radius = min((inner + outer) / 2, math.sqrt(outer**2 - half**2) - height / 2)
    low = radius - height / 2
    inside = turn >= math.pi or half <= low * math.tan(turn / 2)
    return radius if low >= inner and inside else 0


def _cut(name: str) -> str:
    if columns_of(name) <= LONGEST:
        return name
    end = next(end for end in range(LONGEST, 0, -1) if columns_of(name[:end]) <= LONGEST - 2)
    return f"{name[:end]}..."


def _shades(
    paths: Sequence[Path], colours: Mapping[str, str], theme: Theme, ring: int
) -> list[tuple[float, float, float]]:
    """The coarsest class's colour, paler outwards, and in turn darker and paler."""
    surface = np.array(to_rgb(theme.surface))
    shades: list[tuple[float, float, float]] = []
    for number, path in enumerate(paths):
        pale = 0.0 if ring == 0 else 0.22 + 0.2 * (number % 2)
        colour = np.array(to_rgb(colours[path[0]]))
        red, green, blue = (1 - pale) * colour + pale * surface
        shades.append((red, green, blue))
    return shades


def _write(axes: Axes, text: str, angle: float, radius: float, outside: bool, ink: str) -> None:
    """A name along its ray outside the rings, or along the ring inside it."""
    x, y = (radius * f(math.radians(angle)) for f in (math.cos, math.sin))
    style: dict[str, Any] = {"fontsize": 7.5, "color": ink, "va": "center", "ha": "center"}
    if outside:
        left = 90 < angle % 360 < 270
        style["rotation"] = angle + 180 if left else angle
        style |= {"rotation_mode": "anchor", "ha": "right" if left else "left"}
    else:
        style["rotation"] = angle + 90 if angle % 360 > 180 else angle - 90
        style["weight"] = "bold"
    axes.text(x, y, text, **style)


def draw_shares(shares: Mapping[str, Mapping[str, int]], theme: Theme) -> Drawing:
    """A bar for each thing counted, parted by class: where natural ends and human-made begins.

    Args:
        shares: what is counted -> class -> count; every row names the same classes. Of more
            classes than there are colours, the largest of the first row are drawn.
        theme: of the page.
    """
    classes = next(iter(shares.values()))
    if len(classes) > len(theme.groups):
        largest = sorted(classes, key=lambda name: -classes[name])[: len(theme.groups) - 1]
        others = count_text(len(classes) - len(largest), "other")
        shares = {
            what: {name: counts[name] for name in largest}
            | {others: sum(counts.values()) - sum(counts[name] for name in largest)}
            for what, counts in shares.items()
        }
    colours = dict(zip(next(iter(shares.values())), theme.groups, strict=False))
    legend, columns, more = fit_legend(colours, 4, _width_beside(shares))
    with open_figure(theme, WIDTH, 0.75 + 0.42 * len(shares) + more) as figure:
        axes = add_axes(figure, theme, grid_axis="x")
        style: dict[str, Any] = {"color": theme.surface, "weight": "bold", "ha": "center"}
        for row, counts in enumerate(shares.values()):
            start = 0.0
            for name, colour in colours.items():
                part = 100 * counts[name] / max(1, sum(counts.values()))
                axes.barh(row, part, 0.66, left=start, color=colour)
                if part >= 16:  # it has the room
                    text = f"{share_text(part / 100)} · {counts[name]:,}"
                    axes.text(start + part / 2, row, text, va="center", **style)
                start += part
        axes.set_yticks(range(len(shares)), list(shares), color=theme.ink)
        axes.set(xlim=(0, 100), ylim=(len(shares) - 0.5, -0.5), xlabel="share (%)")
        axes.legend(
            handles=[
                Patch(color=colour, label=name)
                for name, colour in zip(legend, colours.values(), strict=True)
            ],
            frameon=False,
            loc="lower left",
            bbox_to_anchor=(-0.01, 1.0),
            ncols=columns,
            handlelength=1.0,
            labelcolor=theme.ink,
        )
        return Drawing(figure, theme)
