"""Draws queries and what they found as one picture, for slides.

The page shows the same photos as text and images of their own; a picture that leaves the page has
to carry the credits itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from PIL import Image

from hgld.report.figures import Theme, open_figure, png_bytes

__all__ = ["Cell", "draw_retrievals"]

PIXELS_PER_INCH = 150


@dataclass(frozen=True)
class Cell:
    """One photo of a retrieval sheet: image, frame colour, and the text below it."""

    image: Image.Image
    colour: str
    verdict: str
    credit: Sequence[str]


def draw_retrievals(rows: Sequence[tuple[str, Sequence[Cell]]], theme: Theme) -> bytes:
    """A sheet of queries (first photo of each row) and what they found, credits below each."""
    columns = max(len(cells) for _, cells in rows)
    with open_figure(theme, 1.55 * columns, 2.55 * len(rows)) as figure:
        for number, (heading, cells) in enumerate(rows):
            for column, cell in enumerate(cells):
                place = (len(rows), columns, number * columns + column + 1)
                axes: Axes = figure.add_subplot(*place)
                _photo(axes, cell, theme)
                if column == 0:
                    axes.set_title(heading, loc="left", fontsize=8, color=theme.ink, weight="bold")
        return png_bytes(figure, PIXELS_PER_INCH)


def _photo(axes: Axes, cell: Cell, theme: Theme) -> None:
    axes.imshow(np.asarray(_square(cell.image)))
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(color=cell.colour, linewidth=3)
    axes.set_xlabel(cell.verdict, fontsize=7, color=theme.ink, labelpad=4)
    lines = [fill(line, 32, max_lines=2, placeholder=" ...") for line in cell.credit]
    below: dict[str, Any] = {"xycoords": "axes fraction", "ha": "center", "va": "top"}
    axes.annotate("\n".join(lines), (0.5, -0.17), fontsize=4.5, color=theme.muted, **below)


def _square(image: Image.Image) -> Image.Image:
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))
