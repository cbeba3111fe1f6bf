"""Theme of all figures, and the figures of a hierarchy, for the report and for a release.

The package is below both, so that neither depends on the other.
"""

from hgld.figures.fonts import draw_line
from hgld.figures.hierarchy import RINGS, Bar, draw_groups, draw_shares, draw_sunburst
from hgld.figures.theme import (
    COMPRESSION,
    DARK,
    LIGHT,
    LONGEST_NAME,
    WIDE,
    WIDTH,
    Drawing,
    Theme,
    add_axes,
    add_legend,
    fit_legend,
    mark_of,
    open_figure,
    readable_on,
    scale_axis,
)

__all__ = [
    "COMPRESSION",
    "DARK",
    "LIGHT",
    "LONGEST_NAME",
    "RINGS",
    "WIDE",
    "WIDTH",
    "Bar",
    "Drawing",
    "Theme",
    "add_axes",
    "add_legend",
    "draw_groups",
    "draw_line",
    "draw_shares",
    "draw_sunburst",
    "fit_legend",
    "mark_of",
    "open_figure",
    "readable_on",
    "scale_axis",
]
