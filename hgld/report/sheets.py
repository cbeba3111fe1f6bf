"""Retrieval sheets: queries and the images that they found as one picture, for slides.

Outside the page, a picture must contain the credits of its photos. The photos are pasted onto one
canvas by pixel, which takes a tenth of the time of one matplotlib panel for each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from hgld.figures import Drawing, Theme, open_figure

__all__ = ["Cell", "draw_retrievals"]

PIXELS_PER_INCH = 150
SIDE, GAP, FRAME = 216, 18, 6  # of a photo, between photos, around a photo; in pixels
HEADING, CREDIT = 34, 114  # above and below the photos of a row


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
    size = GAP + columns * (SIDE + GAP), len(rows) * _height()
    canvas = Image.new("RGB", size, theme.surface)
    inches = [length / PIXELS_PER_INCH for length in size]
    with open_figure(theme, inches[0], inches[1], padded=False) as figure:
        for number, (heading, cells) in enumerate(rows):
            top = number * _height()
            _write(figure, size, (GAP, top + 22), heading, fontsize=9, weight="bold")
            for column, cell in enumerate(cells):
                place = GAP + column * (SIDE + GAP), top + HEADING
                canvas.paste(_framed(cell), place)
                _caption(figure, size, place, cell, theme)
        figure.figimage(np.asarray(canvas), 0, 0, resize=False, zorder=-1)
        return Drawing(figure, theme).png(PIXELS_PER_INCH)


def _height() -> int:
    return HEADING + SIDE + CREDIT


def _framed(cell: Cell) -> Image.Image:
    """The middle of the photo, as a square with a frame."""
    side = min(cell.image.size)
    left, top = (cell.image.width - side) // 2, (cell.image.height - side) // 2
    square = cell.image.convert("RGB").crop((left, top, left + side, top + side))
    inner = SIDE - 2 * FRAME
    colour = tuple(round(255 * part) for part in to_rgb(cell.colour))
    framed = Image.new("RGB", (SIDE, SIDE), colour)
    framed.paste(square.resize((inner, inner), Image.Resampling.LANCZOS), (FRAME, FRAME))
    return framed


def _caption(
    figure: Figure, size: tuple[int, int], place: tuple[int, int], cell: Cell, theme: Theme
) -> None:
    middle, bottom = place[0] + SIDE // 2, place[1] + SIDE
    _write(figure, size, (middle, bottom + 18), cell.verdict, fontsize=7.5, ha="center")
    lines = [fill(line, 38, max_lines=2, placeholder=" ...") for line in cell.credit]
    small: dict[str, Any] = {"fontsize": 4.8, "color": theme.muted, "va": "top", "ha": "center"}
    _write(figure, size, (middle, bottom + 24), "\n".join(lines), **small)


def _write(
    figure: Figure, size: tuple[int, int], place: tuple[int, int], text: str, **style: Any
) -> None:
    """Text at a place in pixels from the top left."""
    figure.text(place[0] / size[0], 1 - place[1] / size[1], text, **style)
